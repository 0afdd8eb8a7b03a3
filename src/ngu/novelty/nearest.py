"""The nearest-neighbour search of the episodic memory at a cost in proportion to how full the memories are.

`ngu.novelty.episodic.nearest_squared_distances` is the definition, and computes every slot. Most slots are empty most
of the time: Atari's memories have 27,001, and an episode seldom gets so far. Here only the slots that hold an entry are
read: on a GPU by a kernel of our own, on the CPU by looking at how full the memories are.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ngu.novelty.episodic import nearest_squared_distances

_PIECE = 2**17
"""Numbers that the CPU works on at a time, so that what lies between its three passes stays in a core's cache."""

Search = Callable[[Tensor, Tensor, Tensor, int], Tensor]


@torch.no_grad()
def search_nearest(query: Tensor, memory: Tensor, filled: Tensor, neighbours: int) -> Tensor:
    """The k smallest squared Euclidean distances from each query to its own memory: `nearest_squared_distances`, fast.

    Args:
        query: [E, D] controllable states f(x_t).
        memory: [E, M, D] the entries of each environment's memory, laid out as in `EpisodicMemory`. On a GPU, one laid
            out otherwise is searched slot by slot, full or not.
        filled: [E] how many of its M slots hold an entry; the others are ignored.
        neighbours: k.

    Returns:
        [E, min(k, M)] ascending; infinite where the memory holds fewer entries. NaN comes after infinity.
    """
    if memory.device.type == "cpu":
        return _search_on_cpu(query, memory, filled, neighbours)
    # What the kernel reads at once are four neighbouring slots of one component.
    readable = memory.dtype == torch.float32 and memory.stride(1) == 1 and memory.stride(2) % 4 == 0
    kernel = _kernel_of(memory.device) if readable and memory.data_ptr() % 16 == 0 else None
    if kernel is None:
        return nearest_squared_distances(query, memory, filled, neighbours)
    with torch.cuda.device(memory.device):
        return kernel(query, memory, filled, neighbours)


def _search_on_cpu(query: Tensor, memory: Tensor, filled: Tensor, neighbours: int) -> Tensor:
    environments, slots, _ = memory.shape
    neighbours = min(neighbours, slots)
    nearest = memory.new_empty(environments, neighbours)
    # Where slots are left, k empty ones stand for them all.
    lengths = [min(count + neighbours, slots) for count in filled.tolist()]
    for group, length in _groups(lengths, max(_PIECE // memory.shape[2], 1)):
        distance = _squared_distances(query[group], memory[group, :length])
        distance.masked_fill_(torch.arange(length) >= filled[group].unsqueeze(1), torch.inf)
        nearest[group] = distance.topk(neighbours, dim=1, largest=False, sorted=True).values
    return nearest


def _groups(lengths: list[int], most: int) -> Iterator[tuple[slice, int]]:
    """Neighbours whose longest length, times their number, is at most `most`; who is longer than that is alone.

    Yields:
        The group and its longest length.
    """
    begin = 0
    while begin < len(lengths):
        end, longest = begin + 1, lengths[begin]
        while end < len(lengths) and (end + 1 - begin) * max(longest, lengths[end]) <= most:
            longest = max(longest, lengths[end])
            end += 1
        yield slice(begin, end), longest
        begin = end


def _squared_distances(query: Tensor, memory: Tensor) -> Tensor:
    """[G, L] from [G, D] to [G, L, D], in pieces."""
    group, length, size = memory.shape
    distance = memory.new_empty(group, length)
    step = max(_PIECE // (group * size), 1)
    for begin in range(0, length, step):
        difference = memory[:, begin : begin + step] - query.unsqueeze(1)
        torch.sum(difference.square_(), -1, out=distance[:, begin : begin + step])
    return distance


@functools.cache
def _kernel_of(device: torch.device) -> Search | None:
    """The kernel, or None where Triton is not there or does not work; asked once, before graphs are recorded."""
    if importlib.util.find_spec("triton") is None:
        return None
    try:
        from ngu.novelty.nearest_kernel import search_filled

        with torch.cuda.device(device):
            memory = torch.zeros(1, 4, 32, device=device).transpose(1, 2)
            search_filled(memory[:, 0], memory, torch.ones(1, dtype=torch.int64, device=device), 1)
    except Exception as error:
        # Triton needs a C compiler, Python's headers and a folder to write to, and fails in as many ways.
        warnings.warn(f"the search of full memories will be slow, since Triton does not work: {error}", stacklevel=2)
        return None
    return search_filled
