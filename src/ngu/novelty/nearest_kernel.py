"""The nearest-neighbour search on a GPU, in two Triton kernels; import this module only where Triton is installed.

`ngu.novelty.nearest` decides when to use it.

A memory is cut into tiles. A program of the first kernel finds the k smallest distances of one tile; the one of a tile
without an entry ends before it reads anything, so the time grows with the entries and not with the slots. A program of
the second kernel merges the sorted lists of one environment's tiles. How full memories are is known to the GPU alone:
nothing waits for the host, and the launches are the same at every step, so that a CUDA graph can hold them.

Distances are compared as integers: the bits of floats from 0 to infinity have the order of their values, NaN comes
after infinity, as in `torch.topk`, and one key is left over for what cannot be chosen.
"""

# Triton has no types, and is not there to be checked on most machines.
# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

INFINITE = tl.constexpr(0x7F800000)
"""The key of an empty slot: the bits of infinity."""
NOT_A_NUMBER = tl.constexpr(0x7FC00000)
"""The key of a distance that is NaN, whatever its bits."""
GONE = tl.constexpr(0x7FFFFFFF)
"""The key of what is taken already, or is no slot at all."""

TILE = 1024
"""Slots of a tile, where a memory has that many."""
WARPS = 4
"""Warps of a program of the first kernel."""


def search_filled(
    query: Tensor, memory: Tensor, filled: Tensor, neighbours: int, *, tile: int = TILE, warps: int = WARPS
) -> Tensor:
    """`nearest_squared_distances` of float32 tensors; see there.

    Args:
        query: [E, D].
        memory: [E, M, D] with the slots side by side, and from one component to the next a multiple of 4 slots.
        filled: [E] integers.
        neighbours: k.
        tile: the most slots for one program, a power of two.
        warps: warps of that program.
    """
    environments, slots, size = memory.shape
    neighbours = min(neighbours, slots)
    tile = min(tile, max(triton.next_power_of_2(slots), 32 * warps))
    tiles = triton.cdiv(slots, tile)
    query, filled = query.contiguous(), filled.contiguous()
    lists = torch.empty(environments, tiles, neighbours, dtype=torch.int32, device=memory.device)
    _search_tile[(environments, tiles)](
        query, memory, filled, lists, slots, memory.stride(0), memory.stride(2), size, neighbours, tile, num_warps=warps
    )
    if tiles == 1:
        return lists.view(torch.float32)[:, 0]
    nearest = torch.empty(environments, neighbours, dtype=torch.int32, device=memory.device)
    width = triton.next_power_of_2(tiles)
    _merge_tiles[(environments,)](
        lists, filled, nearest, slots, tiles, neighbours, tile, width, num_warps=1 if width <= 128 else 4
    )
    return nearest.view(torch.float32)


@triton.jit
def _search_tile(
    query,
    memory,
    filled,
    lists,
    slots,
    environment_stride,
    component_stride,
    SIZE: tl.constexpr,
    K: tl.constexpr,
    TILE: tl.constexpr,
):
    """Writes the K smallest keys of one tile, ascending. Programs: (environments, tiles)."""
    environment, tile = tl.program_id(0), tl.program_id(1)
    count = tl.load(filled + environment).to(tl.int32)
    # The first tile is always searched, so that there is a list even if the memory is empty.
    if (tile > 0) & (tile * TILE >= count):
        return
    lane = tl.arange(0, TILE)
    slot = tile * TILE + lane
    # Four slots are read at a time; the rest of the last four belongs to the same row, and does not count below.
    readable = slot < (count + 3) // 4 * 4
    row = memory + environment.to(tl.int64) * environment_stride
    distance = tl.zeros([TILE], tl.float32)
    for component in tl.static_range(SIZE):
        entry = tl.load(row + component * component_stride + slot, mask=readable)
        difference = entry - tl.load(query + environment * SIZE + component)
        distance += difference * difference

    key = tl.where(distance == distance, distance.to(tl.int32, bitcast=True), NOT_A_NUMBER)
    key = tl.where(slot < count, key, tl.where(slot < slots, INFINITE, GONE))
    listed = lists + (environment * tl.num_programs(1) + tile) * K
    for neighbour in range(K):
        smallest = tl.min(key, 0)
        tl.store(listed + neighbour, smallest)
        # Equal distances count once each: take one of them only.
        key = tl.where(lane == tl.min(tl.where(key == smallest, lane, TILE), 0), GONE, key)


@triton.jit
def _merge_tiles(
    lists,
    filled,
    nearest,
    slots,
    tiles,
    K: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Writes the K smallest of the keys that an environment's tiles listed. Programs: (environments,)."""
    environment = tl.program_id(0)
    count = tl.load(filled + environment).to(tl.int32)
    tile = tl.arange(0, WIDTH)
    searched = (tile == 0) | (tile * TILE < count)
    taken = tl.zeros([WIDTH], tl.int32)
    for neighbour in range(K):
        # The slots of a tile that was not searched are all empty.
        unsearched = tl.where(tile * TILE + taken < slots, INFINITE, GONE)
        key = tl.load(lists + (environment * tiles + tile) * K + taken, mask=searched, other=0)
        key = tl.where(searched, key, unsearched)
        smallest = tl.min(key, 0)
        tl.store(nearest + environment * K + neighbour, smallest)
        taken += (tile == tl.min(tl.where(key == smallest, tile, WIDTH), 0)).to(tl.int32)
