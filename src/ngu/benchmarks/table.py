"""The measurements of `ngu bench` on environments of the host, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ngu.machine import human_bytes

if TYPE_CHECKING:
    from ngu.benchmarks.acting import ActingTime, Growth
    from ngu.benchmarks.hosted import AgentRate, HostedBenchmark
    from ngu.benchmarks.memory import MemoryUse

PARTS = {
    "emulators": "waiting for emulators",
    "copies": "copies from the host",
    "acting": "acting",
    "actions": "waiting for actions",
    "sending": "sending actions to emulators",
    "replay": "writing to a replay on the host",
    "learner": "learner",
    "weights": "fetching weights",
    "rest": "rest",
}
"""Where the time of this process goes. On a GPU `acting` and `learner` are launches alone: the GPU works meanwhile."""


def table(result: HostedBenchmark) -> str:
    """Everything, one block after the other."""
    blocks = [_title(result), _bare(result), _agent(result), _group_step(result), _alone(result)]
    if result.growth is not None:
        blocks.append(_growth(result.growth))
    return "\n\n".join([*blocks, _memory(result.memory)])


def _title(result: HostedBenchmark) -> str:
    groups = f"{result.groups} groups with {result.emulator_threads} emulator threads each"
    if result.groups == 1:
        groups = f"1 group with {result.emulator_threads} emulator threads"
    lines = [
        f"{result.preset}, {result.variant}, {result.environment}, {result.device}, {result.precision}, "
        f"{result.cores} cores, {result.num_envs} environments in {groups}",
        f"N = {result.num_mixtures}; a replay of {result.memory.replay_capacity:,} transitions; made in "
        f"{result.build_seconds:.1f} s, reset in {result.reset_seconds:.1f} s",
    ]
    if result.memory_slots:
        lines.append(
            f"episodic memories begin with {result.memory_fill:,} of {result.memory_slots:,} entries at each ratio"
        )
    changes = [f"{name} {used:,} (was {asked:,})" for name, (asked, used) in result.changed_settings.items()]
    if changes:
        why = "so that learning starts at once and memories keep their entries"
        lines.append(f"changed for the benchmark, {why}: {', '.join(changes)}")
    return "\n".join(lines)


def _bare(result: HostedBenchmark) -> str:
    frames = result.frames_per_step
    heads = ["bare emulator, random actions", "env steps/s", *(["frames/s"] if frames else []), "resets"]
    measured = [("all environments in lock step", result.bare_lock_step)]
    for place, rate in enumerate(result.bare_overlapped):
        after = "before the agent" if place == 0 else f"after the agent, {_ratio(result.agent[place - 1])}"
        measured.append((f"{result.groups} overlapped, {after}" if result.groups > 1 else f"one group, {after}", rate))
    rows = [
        [
            name,
            f"{rate.env_steps_per_second:,.0f}",
            *([f"{rate.env_steps_per_second * frames:,.0f}"] if frames else []),
            f"{rate.reset_share:.2%}",
        ]
        for name, rate in measured
    ]
    rates = [rate.env_steps_per_second for rate in result.bare_overlapped]
    varied = f"in this run the bare emulator's rate varied from {min(rates):,.0f} to {max(rates):,.0f} env steps/s"
    return f"{aligned([heads, *rows])}\n{varied}"


def _agent(result: HostedBenchmark) -> str:
    frames = result.frames_per_step
    heads = ["whole agent, trained steps per collected step", "env steps/s", *(["frames/s"] if frames else [])]
    heads += ["updates/s", "bare around it", "agent / bare", "resets", "memory at the end"]
    rows = []
    for rate in result.agent:
        shown = [_ratio(rate), f"{rate.env_steps_per_second:,.0f}"]
        if rate.frames_per_second is not None:
            shown.append(f"{rate.frames_per_second:,.0f}")
        shown += [f"{rate.updates_per_second:,.2f}", f"{rate.bare_env_steps_per_second:,.0f}"]
        shown += [f"{rate.ratio_to_bare:.1%}", f"{rate.reset_share:.2%}", f"{rate.memory_filled_at_end:,.0f}"]
        rows.append(shown)
    return aligned([heads, *rows])


def _group_step(result: HostedBenchmark) -> str:
    heads = ["one step of one group, ms of this process", *map(_ratio, result.agent)]
    rows = [
        [PARTS[name], *(f"{rate.group_step_ms[name]:.3f}" for rate in result.agent)]
        for name in PARTS
        if any(name in rate.group_step_ms for rate in result.agent)
    ]
    sums = ["sum", *(f"{sum(rate.group_step_ms.values()):.3f}" for rate in result.agent)]
    return aligned([heads, *rows, sums])


def _alone(result: HostedBenchmark) -> str:
    learner = result.learner
    counts = result.kernels or {}

    def counted(name: str) -> str:
        return f", {counts[name]:.0f} kernels" if name in counts else ""

    parts = aligned(
        [
            ["alone", "ms"],
            [
                f"learner update, {learner.batch_size} x {learner.trace_length}{counted('update')}",
                f"{learner.update_ms:.3f}",
            ],
            [f"drawing a batch{counted('sampling')}", f"{learner.sampling_ms:.3f}"],
        ]
    )
    acting = _acting(f"acting step alone{counted('acting')}", result.acting)
    return f"{parts}\n\n{acting}"


def _growth(growth: Growth) -> str:
    blocks = [
        _acting("acting step over environments", growth.environments),
        _acting("acting step over memory", growth.memory_filled),
        _acting("acting step over N", growth.mixtures),
    ]
    if growth.too_large:
        blocks.append(
            f"not measured, since memories would not fit: {', '.join(map(str, growth.too_large))} environments"
        )
    return "\n\n".join(blocks)


def _acting(title: str, times: Sequence[ActingTime]) -> str:
    heads = [title, "N", "entries", "ms", "of it compute", "k-NN search alone"]
    rows = [
        [
            f"{time.num_envs} environment{'s' if time.num_envs > 1 else ''}",
            str(time.num_mixtures),
            f"{time.memory_filled:,}",
            f"{time.step_ms:.3f}",
            f"{time.compute_ms:.3f}",
            "" if time.knn_ms is None else f"{time.knn_ms:.3f}",
        ]
        for time in times
    ]
    return aligned([heads, *rows])


def _memory(memory: MemoryUse) -> str:
    rows = [
        ["memory", ""],
        ["resident, before the agent was made", human_bytes(memory.resident_at_start)],
        ["resident, after the warm-up", human_bytes(memory.resident_when_warm)],
        ["resident, after the whole agent", human_bytes(memory.resident_at_end)],
        [f"replay of {memory.replay_capacity:,} transitions, {memory.replay_place}", human_bytes(memory.replay)],
        ["episodic memories", human_bytes(memory.episodic_memories)],
    ]
    if memory.gpu_allocated is not None and memory.gpu_peak is not None:
        rows.append(["GPU, after the whole agent", human_bytes(memory.gpu_allocated)])
        rows.append(["GPU, most", human_bytes(memory.gpu_peak)])
    return aligned(rows)


def _ratio(rate: AgentRate) -> str:
    return f"{rate.replay_ratio:g}" if rate.replay_ratio else "acting alone"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for first, *others in rows:
        cells = [f"{first:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
