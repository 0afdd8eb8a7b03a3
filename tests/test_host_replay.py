"""A replay on the host beside an agent on another device: what is carried is what would have been there.

Here both devices are the CPU; `test_cuda.py` does the same across two.
"""

from __future__ import annotations

import torch
from conftest import make_tiny_config
from oracles import difference

from ngu.agent import Agent
from ngu.host_replay import BatchCarrier, RowCarrier
from ngu.networks import RecurrentState
from ngu.replay import SequenceReplay
from ngu.sequences import Row

CPU = torch.device("cpu")


def make_replay() -> SequenceReplay:
    return Agent.create(make_tiny_config(replay__period=4, replay__burn_in=4), CPU).replay


def random_row(generator: torch.Generator, *, first: bool, ended: bool) -> tuple[Row, RecurrentState]:
    def numbers(*shape: int) -> torch.Tensor:
        return torch.rand(8, *shape, generator=generator)

    flags = torch.full((8,), ended)
    row = Row(
        observation=(numbers(3, 7, 7) * 255).to(torch.uint8),
        action=torch.full((8,), -1) if first else (numbers() * 4).to(torch.int64),
        behaviour=numbers(),
        extrinsic=numbers(),
        intrinsic=numbers(),
        td_error=numbers(),
        terminated=flags,
        truncated=torch.zeros_like(flags),
        first=torch.full((8,), first),
    )
    return row, RecurrentState(numbers(16), numbers(16))


def test_rows_that_are_carried_are_the_rows_that_were_held() -> None:
    direct, carried = make_replay(), make_replay()
    carriers = [RowCarrier(carried, slice(0, 3)), RowCarrier(carried, slice(3, 8))]
    generator = torch.Generator().manual_seed(0)
    for time in range(40):
        row, state = random_row(generator, first=time % 10 == 0, ended=time % 10 == 9)
        direct.add(row, state)
        for carrier, part in zip(carriers, (slice(0, 3), slice(3, 8)), strict=True):
            carrier.hold(
                Row(**{name: value[part] for name, value in vars(row).items()}),
                RecurrentState(state.hidden[part], state.cell[part]),
            )
            carrier.begin()
            carrier.finish()
            carrier.finish()  # nothing is handed over twice
    assert int(direct.count()) > 0
    assert not difference(direct.state_dict(), carried.state_dict())


def test_batches_come_into_the_same_tensors_and_priorities_go_back() -> None:
    replay, twin = make_replay(), make_replay()
    generator = torch.Generator().manual_seed(0)
    for time in range(60):
        row, state = random_row(generator, first=time % 10 == 0, ended=time % 10 == 9)
        replay.add(row, state)
        twin.add(row, state)
    carrier = BatchCarrier(replay, 8, CPU)
    held = carrier()
    first_observation = held.inputs.observation
    twin.sample(8)
    assert carrier() is held
    expected = twin.sample(8)
    assert held.inputs.observation is first_observation
    assert torch.equal(held.inputs.observation, expected.inputs.observation)
    assert torch.equal(held.state.hidden, expected.state.hidden)
    assert torch.equal(held.place, expected.place)
    assert held.burn_in is not None
    assert expected.burn_in is not None
    assert torch.equal(held.burn_in.inputs.observation, expected.burn_in.inputs.observation)
    assert held.burn_in.exists.any()
    priority = torch.linspace(5.0, 9.0, 8)
    carrier.update_priorities(priority)
    twin.update_priorities(expected, priority)
    assert torch.equal(replay.priority, twin.priority)
