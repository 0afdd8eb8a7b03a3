"""Where the time of acting, sampling and an update goes, kernel by kernel."""

from __future__ import annotations

from torch.profiler import ProfilerActivity, profile

from ngu.benchmarks.timing import wait
from ngu.benchmarks.whole import WholeAgent, learning_at_once
from ngu.config import Config


def kernel_table(config: Config, fill: int = 0, rows: int = 25) -> str:
    """Tables as PyTorch's profiler makes them: of kernels on a GPU, of operators on the CPU.

    With `fill` entries in the episodic memories, or with what the warm-up leaves in them if that is 0.
    """
    agent = WholeAgent(learning_at_once(config))
    try:
        agent.begin()
        agent.warm_up()
        if fill:
            agent.fill_memories(fill)
        on_gpu = agent.device.type == "cuda"
        activities = [ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]
        sort = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
        calls = 10 if on_gpu else 2
        text = []
        for name, call in agent.parts().items():
            call()
            wait(agent.device)
            with profile(activities=activities) as profiler:
                for _ in range(calls):
                    call()
                wait(agent.device)
            averages = profiler.key_averages()
            count = sum(entry.count for entry in averages) / calls
            table = averages.table(sort_by=sort, row_limit=rows, max_name_column_width=70)
            what = "kernels" if on_gpu else "operators"
            text.append(f"{name}: {count:.0f} {what} a call ({calls} calls below)\n{table}")
        return "\n".join(text)
    finally:
        agent.close()
