"""What a measured agent occupies."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ngu.agent import Agent
from ngu.machine import resident_memory


@dataclass(frozen=True)
class MemoryUse:
    """Bytes, unless said otherwise."""

    resident_at_start: int
    """Of this process, before anything was built; worker processes have their own."""
    resident_when_warm: int
    """When everything was built, and the first updates were done."""
    resident_at_end: int
    """After the last measurement of the whole agent."""
    gpu_allocated: int | None
    """By PyTorch's tensors, after the last measurement of the whole agent; None without a GPU."""
    gpu_peak: int | None
    """The most that was allocated until then."""
    replay_capacity: int
    """Transitions that the replay holds when full, all allocated."""
    replay_place: str
    """Where it is: cpu or cuda."""
    replay: int
    episodic_memories: int


def memory_use(agent: Agent, at_start: int, when_warm: int) -> MemoryUse:
    """What the agent occupies now, and this process before."""
    on_gpu = agent.device.type == "cuda"
    replay = agent.replay
    memories = [actor.novelty.memory for actor in agent.actors]
    return MemoryUse(
        resident_at_start=at_start,
        resident_when_warm=when_warm,
        resident_at_end=resident_memory(),
        gpu_allocated=torch.cuda.memory_allocated(agent.device) if on_gpu else None,
        gpu_peak=torch.cuda.max_memory_allocated(agent.device) if on_gpu else None,
        replay_capacity=replay.slots * replay.streams,
        replay_place=replay.device.type,
        replay=sum(tensor.nbytes for tensor in replay.state_dict().values()),
        episodic_memories=sum(memory.entries.untyped_storage().nbytes() for memory in memories if memory is not None),
    )
