"""What an actor is given of a step that was made on the host."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_environments import ScriptedEpisodes

from ngu.envs.atari import AtariVector
from ngu.envs.protocol import EnvironmentSpec, Step
from ngu.hosted import HostedSteps

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]


def parts(step: Step) -> dict[str, torch.Tensor]:
    named = {name: getattr(step, name) for name in ("observation", "reward", "terminated", "truncated", "first")}
    return {name: tensor.cpu().clone() for name, tensor in (named | step.info).items()}


def assert_same(seen: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert seen.keys() == expected.keys()
    for name, tensor in expected.items():
        assert seen[name].dtype == tensor.dtype, name
        assert torch.equal(seen[name], tensor), name


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=30, deadline=None)
@given(
    envs=st.integers(1, 9),
    shape=st.sampled_from([(4,), (1, 84, 84), (3, 5, 7)]),
    measurements=st.sampled_from([(), ("score",), ("score", "rooms", "coverage")]),
    seed=st.integers(0, 2**31),
)
def test_every_number_arrives(
    device: str, envs: int, shape: tuple[int, ...], measurements: tuple[str, ...], seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    env = ScriptedEpisodes([[(3, "terminated")]] * envs)
    dtype = torch.float32 if len(shape) == 1 else torch.uint8
    env.spec = EnvironmentSpec(shape, dtype, 3, None, measurements)
    hosted = HostedSteps(env, torch.device(device))
    places = [tensor.data_ptr() for tensor in (hosted.step().observation, hosted.step().reward)]
    for _ in range(3):
        step = Step(
            (torch.rand(envs, *shape, generator=draw) * 255).to(dtype),
            torch.randn(envs, generator=draw),
            *(torch.rand(envs, generator=draw) < 0.5 for _ in range(3)),
            info={name: torch.randn(envs, generator=draw) for name in measurements},
        )
        expected = parts(step)
        hosted.take(step)
        seen = hosted.step()
        assert all(tensor.device.type == device for tensor in (seen.observation, seen.reward, seen.first))
        assert_same(parts(seen), expected)
        # A recorded graph reads where it read the first time, and what it reads must not be the environments' own.
        assert [tensor.data_ptr() for tensor in (seen.observation, seen.reward)] == places
        step.observation.zero_()
        step.reward.zero_()
        assert_same(parts(hosted.step()), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_actions_go_out_and_their_outcome_comes_back(device: str) -> None:
    script = [[(2, "terminated"), (3, "truncated")], [(4, "truncated")], [(1, "terminated")]]
    env, twin = ScriptedEpisodes(script), ScriptedEpisodes(script)
    hosted = HostedSteps(env, torch.device(device))
    hosted.take(env.reset(0))
    assert_same(parts(hosted.step()), parts(twin.reset(0)))
    for t in range(20):
        action = torch.tensor([t % 3, (t + 1) % 3, (t + 2) % 3])
        on_device = action.to(device)
        if t % 2:
            hosted.fetch_action(on_device)
        hosted.send(on_device)
        hosted.receive()
        twin.send(action)
        assert_same(parts(hosted.step()), parts(twin.recv()))


def test_pictures_of_a_game_arrive() -> None:
    batch = AtariVector("breakout", 3, threads=2, max_frames=40)
    hosted = HostedSteps(batch, torch.device("cpu"))
    hosted.take(batch.reset(0))
    ends = 0
    for _ in range(30):
        hosted.send(torch.ones(3, dtype=torch.int64))
        hosted.receive()
        step = batch.recv()  # the same once more
        assert_same(parts(hosted.step()), parts(step))
        ends += int(step.ended.sum())
    assert ends > 0
    batch.close()
