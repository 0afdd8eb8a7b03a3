"""The search of the filled slots, on the CPU and by the GPU's kernel, against a naive one in NumPy.

The kernel's tests run on a GPU, or anywhere that Triton is installed with TRITON_INTERPRET=1 set.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ngu.graphs import Graphed
from ngu.novelty import nearest
from ngu.novelty.episodic import EpisodicMemory, nearest_squared_distances
from ngu.novelty.nearest import search_nearest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu")
needs_gpu = pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU")
needs_kernel = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or not (INTERPRETED or DEVICE.type == "cuda"),
    reason="needs Triton, and a GPU or TRITON_INTERPRET=1",
)
# Each is compiled on its own, so they are few: D and k, tile and warps.
KERNEL_SIZES = [(1, 3), (7, 10), (16, 1), (32, 32)]
KERNEL_SHAPES = [(32, 1), (128, 4)]

Search = Callable[[Tensor, Tensor, Tensor, int], Tensor]


def naive(query: np.ndarray, memory: np.ndarray, filled: list[int], k: int) -> np.ndarray:
    """[E, min(k, M)]: empty slots are infinitely far, NumPy sorts NaN to the end."""
    with np.errstate(over="ignore", invalid="ignore"):
        distance = ((memory.astype(np.float32) - query[:, None]) ** 2).sum(-1, dtype=np.float32)
    for row, count in zip(distance, filled, strict=True):
        row[count:] = np.inf
    return np.sort(distance, axis=1)[:, :k]


def laid_out(memory: Tensor) -> Tensor:
    """The same in the layout of `EpisodicMemory`, with NaN where nothing should be read."""
    entries = EpisodicMemory(*memory.shape, memory.device).entries
    assert entries._base is not None
    entries._base.fill_(torch.nan)
    return entries.copy_(memory)


@st.composite
def problems(
    draw: st.DrawFn, slot_counts: st.SearchStrategy[int], sizes: list[tuple[int, int]]
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Query, memory, filled, k: with ties, with values that are not finite, with fills from 0 to all."""
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    environments, slots = draw(st.integers(1, 4)), draw(slot_counts)
    size, k = draw(st.sampled_from(sizes))
    memory = random.normal(size=(environments, slots, size)).astype(np.float32)
    query = random.normal(size=(environments, size)).astype(np.float32)
    if draw(st.booleans()):
        memory, query = memory.round(), query.round()
    for value in draw(st.sets(st.sampled_from([np.nan, np.inf, 1e30]))):
        memory[random.random(memory.shape) < draw(st.sampled_from([0.01, 0.3]))] = value
    if draw(st.integers(0, 5)) == 0:
        query[0, 0] = draw(st.sampled_from([np.nan, np.inf]))
    full = draw(st.integers(0, 3)) == 0
    filled = np.full(environments, slots) if full else random.integers(0, slots + 1, environments)
    return torch.tensor(query), torch.tensor(memory), torch.tensor(filled), k


ANY_PROBLEM = problems(st.integers(1, 150), [(size, k) for size in (1, 7, 16, 32) for k in (1, 3, 10, 32)])
KERNEL_PROBLEM = problems(st.sampled_from([1, 9, 32, 96, 150]), KERNEL_SIZES)


def check(search: Search, query: Tensor, memory: Tensor, filled: Tensor, k: int) -> None:
    expected = torch.tensor(naive(query.cpu().numpy(), memory.cpu().numpy(), filled.tolist(), k))
    found = search(query, memory, filled, k).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0.0, equal_nan=True)


# ------------------------------------------------------------------------------------------- the definition, the CPU


@given(ANY_PROBLEM)
@settings(max_examples=60)
def test_the_definition_equals_the_naive_search(problem: tuple[Tensor, Tensor, Tensor, int]) -> None:
    check(nearest_squared_distances, *problem)


@given(ANY_PROBLEM, st.booleans(), st.sampled_from([1, 100, 1000, 2**17]))
@settings(max_examples=150)
def test_the_search_on_the_cpu_equals_the_naive_one(
    problem: tuple[Tensor, Tensor, Tensor, int], as_in_memory: bool, piece: int
) -> None:
    """In pieces smaller than a slot up to all at once, in both layouts."""
    query, memory, filled, k = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "_PIECE", piece)
        check(search_nearest, query, laid_out(memory) if as_in_memory else memory, filled, k)


BROKEN = (torch.zeros(5, 7), torch.full((5, 70, 7), torch.nan), torch.tensor([0, 32, 64, 66, 70]), 10)
"""Nothing but NaN, with the end of a tile of 32 slots right behind the last entry: empty slots come first."""


def test_on_the_cpu_nan_comes_after_the_empty_slots() -> None:
    check(search_nearest, *BROKEN)


@given(st.lists(st.integers(0, 12), max_size=12), st.integers(1, 20))
def test_groups_follow_one_another_and_keep_to_their_size(lengths: list[int], most: int) -> None:
    groups = list(nearest._groups(lengths, most))
    assert [index for group, _ in groups for index in range(group.start, group.stop)] == list(range(len(lengths)))
    for group, longest in groups:
        assert longest == max(lengths[group])
        assert group.stop - group.start == 1 or longest * (group.stop - group.start) <= most


class NewElements(TorchDispatchMode):
    """Counts the elements of all new tensors that are made."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        held = {value.data_ptr() for value in args if isinstance(value, Tensor)}
        if isinstance(result, Tensor) and not func.is_view and result.data_ptr() not in held:
            self.elements += result.numel()
        return result


def elements_made(call: Callable[[], object]) -> int:
    with NewElements() as counted:
        call()
    return counted.elements


def test_the_cost_on_the_cpu_grows_with_the_entries_and_not_with_the_slots() -> None:
    def cost(slots: int, fills: list[int]) -> int:
        memory = EpisodicMemory(len(fills), slots, 32, torch.device("cpu")).entries
        filled = torch.tensor(fills)
        return elements_made(lambda: search_nearest(torch.zeros(len(fills), 32), memory, filled, 10))

    assert cost(300, [100] * 4) == cost(30_000, [100] * 4)
    assert cost(30_000, [0] * 4) < 0.15 * cost(30_000, [100] * 4)
    # One full memory does not make the others cost as much.
    assert cost(30_000, [0, 30_000, 0, 0]) < 0.27 * cost(30_000, [30_000] * 4)


def test_appending_and_wiping_cost_the_same_in_a_memory_of_any_size() -> None:
    def cost(slots: int) -> int:
        memory = EpisodicMemory(4, slots, 8, torch.device("cpu"))
        state, where = torch.ones(4, 8), torch.tensor([True, False, True, False])

        def write() -> None:
            memory.append(state)
            memory.wipe(where)
            memory.append(state)

        return elements_made(write)

    assert cost(3) == cost(3_000)


# ------------------------------------------------------------------------------------------- the kernel


def kernel(tile: int, warps: int) -> Search:
    from ngu.novelty.nearest_kernel import search_filled

    return lambda *arguments: search_filled(*arguments, tile=tile, warps=warps)


@needs_kernel
@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
@given(KERNEL_PROBLEM, st.sampled_from(KERNEL_SHAPES))
@settings(max_examples=60)
def test_the_kernel_equals_the_naive_search(
    problem: tuple[Tensor, Tensor, Tensor, int], shape: tuple[int, int]
) -> None:
    """The interpreter computes with NumPy, which warns of what is not finite."""
    query, memory, filled, k = problem
    check(kernel(*shape), query.to(DEVICE), laid_out(memory.to(DEVICE)), filled.to(DEVICE), k)


@needs_kernel
def test_in_the_kernel_nan_comes_after_the_empty_slots_of_all_tiles() -> None:
    query, memory, filled, k = BROKEN
    check(kernel(32, 1), query.to(DEVICE), laid_out(memory.to(DEVICE)), filled.to(DEVICE), k)


@needs_kernel
@pytest.mark.parametrize("capacity", [5, 40])
def test_the_kernel_finds_what_a_ring_holds(capacity: int) -> None:
    """From an empty memory to one that has wrapped around, wiped on the way."""
    random = np.random.default_rng(0)
    memory = EpisodicMemory(2, capacity, 4, DEVICE)
    twin: list[list[np.ndarray]] = [[], []]
    search = kernel(32, 1)
    for time in range(2 * capacity + 3):
        wipe = [False, time == capacity + 2]
        memory.wipe(torch.tensor(wipe, device=DEVICE))
        twin = [[] if wiped else held for wiped, held in zip(wipe, twin, strict=True)]
        state = random.normal(size=(2, 4)).astype(np.float32)
        query = torch.tensor(state, device=DEVICE)
        found = search(query, memory.entries, memory.filled, 6).cpu().numpy()
        for each, held, mine in zip(found, twin, state, strict=True):
            distances = sorted(((entry - mine) ** 2).sum() for entry in held)
            expected = [*distances, *[np.inf] * 6][: min(6, capacity)]
            assert each == pytest.approx(np.array(expected), rel=1e-5)
        memory.append(query)
        twin = [[*held, mine][-capacity:] for held, mine in zip(twin, state, strict=True)]


@needs_kernel
@needs_gpu
def test_a_recorded_search_follows_the_memory() -> None:
    """One recording serves every fill: how full memories are is read on the GPU."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    memory = EpisodicMemory(8, 3_000, 32, DEVICE)
    memory.entries.normal_(generator=generator)
    query = torch.empty(8, 32, device=DEVICE)
    search = Graphed(lambda: search_nearest(query, memory.entries, memory.filled, 10), DEVICE)
    for fill in (0, 1, 9, 300, 1024, 1025, 2999, 3000, 5000, 0, 7):
        memory.written.copy_(torch.arange(8, device=DEVICE) + fill)
        query.normal_(generator=generator)
        expected = nearest_squared_distances(query, memory.entries, memory.filled, 10)
        torch.testing.assert_close(search(), expected, rtol=1e-5, atol=0.0)
    assert search._graph is not None


@needs_gpu
def test_memories_of_another_layout_are_searched_too() -> None:
    generator = torch.Generator(DEVICE).manual_seed(0)
    memory = torch.randn(3, 50, 7, device=DEVICE, generator=generator)
    query, filled = torch.randn(3, 7, device=DEVICE, generator=generator), torch.tensor([0, 20, 50], device=DEVICE)
    for each in (memory, memory.transpose(1, 2).contiguous().transpose(1, 2), laid_out(memory)[:, 1:]):
        check(search_nearest, query, each, filled.clamp_max(each.shape[1]), 10)
