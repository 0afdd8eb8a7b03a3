"""Tasks with known answers: the batched games against the plain ones, their known answers, and MiniGrid's levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from conftest import make_tiny_config
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from ngu.cli import main
from ngu.config_reading import with_overrides
from ngu.envs import DeepSea, DeepSeaEnv, MiniGridLevel, RandomCoin, RandomCoinEnv
from ngu.envs.deep_sea import right_actions
from ngu.envs.gym import GymEnvironments, make_gymnasium_spec
from ngu.envs.make import make_environment, single_environment
from ngu.envs.minigrid_level import ACTIONS, PLANES, check_level, level_names, one_hot
from ngu.envs.protocol import Step
from ngu.errors import UserError
from ngu.metrics import read_metrics
from ngu.presets import preset
from ngu.report import record_episode, write_report, write_results_csv
from ngu.report.results import read_results
from ngu.runners.local import LocalRunner
from ngu.training import Training

CPU = torch.device("cpu")
Batch = DeepSea | RandomCoin


def play(env: Batch, actions: torch.Tensor) -> list[dict[str, Any]]:
    """Copies of the steps that the actions [T, E] bring."""
    steps = []
    for action in actions:
        env.send(action)
        steps.append(copied(env.recv()))
    return steps


def copied(step: Step) -> dict[str, Any]:
    fields = ("observation", "reward", "terminated", "truncated", "first")
    return {name: getattr(step, name).clone() for name in fields} | {k: v.clone() for k, v in step.info.items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


# Both games


def twin_step(twin: gymnasium.Env[Any, Any], outcome: Any, index: int, step: dict[str, Any]) -> None:
    """One environment of the batch has brought what the plain game brought."""
    picture, reward, terminated, truncated, info = outcome
    seen = step["observation"][index].numpy()
    assert np.array_equal(seen.transpose(1, 2, 0) if len(seen) == 3 else seen[0], picture)
    assert step["reward"][index].item() == pytest.approx(reward, abs=1e-7)
    assert (bool(step["terminated"][index]), bool(step["truncated"][index])) == (terminated, truncated)
    assert {name: step[name][index].item() for name in info} == info
    assert twin.observation_space.contains(picture)


@given(st.integers(2, 9), st.integers(0, 2**32 - 1), st.integers(0, 2**31))
@settings(max_examples=20)
def test_the_batched_sea_is_the_plain_one(size: int, sea_seed: int, seed: int) -> None:
    envs = 5
    batch = DeepSea(envs, size, sea_seed, "cpu")
    twins = [DeepSeaEnv(size, sea_seed) for _ in range(envs)]
    check_equal(batch, twins, [{}] * envs, seed, steps=3 * size + 4)


@given(st.integers(2, 6), st.integers(1, 12), st.integers(0, 2**31))
@settings(max_examples=20)
def test_the_batched_coins_are_the_plain_ones(size: int, step_cap: int, seed: int) -> None:
    envs = 5
    batch = RandomCoin(envs, size, step_cap, "cpu")
    check_equal(batch, [RandomCoinEnv(size, step_cap) for _ in range(envs)], None, seed, steps=30)


def check_equal(batch: Batch, twins: list[Any], options: list[dict[str, Any]] | None, seed: int, steps: int) -> None:
    """Step for step; where an episode begins, the plain game is given the places that the batch has drawn."""
    step = copied(batch.reset(seed))
    actions = torch.randint(batch.spec.num_actions, (steps, len(twins)), generator=torch.Generator().manual_seed(seed))
    for action in [None, *actions]:
        begins = torch.ones(len(twins), dtype=torch.bool) if action is None else step["terminated"] | step["truncated"]
        if action is not None:
            batch.send(action)
            step = copied(batch.recv())
        assert torch.equal(step["first"], begins)
        for index, twin in enumerate(twins):
            if begins[index]:
                placed = options[index] if options is not None else places(step, index)
                picture, info = twin.reset(options=placed)
                twin_step(twin, (picture, 0.0, False, False, info), index, step)
            else:
                assert action is not None
                twin_step(twin, twin.step(int(action[index])), index, step)


def places(step: dict[str, Any], index: int) -> dict[str, Any]:
    """Where agent and coin are, as the picture shows."""
    coin, agent = (tuple(np.argwhere(step["observation"][index, plane].numpy())[0]) for plane in (0, 1))
    return {"agent": agent, "coin": coin}


@pytest.mark.parametrize("make", [lambda: DeepSea(3, 6, 1, "cpu"), lambda: RandomCoin(3, 5, 9, "cpu")])
def test_state_is_saved_whole_and_seeds_decide(make: Any) -> None:
    actions = torch.randint(2, (40, 3), generator=torch.Generator().manual_seed(0))
    env = make()
    env.reset(7)
    begun = play(env, actions[:15])
    saved = env.state_dict()
    rest = play(env, actions[15:])
    other = make()
    other.load_state_dict(saved)
    assert same(copied(other.recv()), begun[-1])
    assert all(map(same, play(other, actions[15:]), rest))
    again = make()
    again.reset(7)
    assert all(map(same, play(again, actions), begun + rest))
    with pytest.raises(UserError, match="the saved environments do not fit"):
        other.load_state_dict({**saved, "row": torch.zeros(4)})


@pytest.mark.parametrize("make", [lambda: DeepSea(3, 6, 1, "cpu"), lambda: RandomCoin(3, 5, 9, "cpu")])
def test_a_graph_would_find_the_same_tensors(make: Any) -> None:
    env = make()
    first = env.reset(0)
    before = {name: tensor.data_ptr() for name, tensor in env._state.items()}
    play(env, torch.zeros(12, 3, dtype=torch.int64))
    assert env.recv() is first
    assert {name: tensor.data_ptr() for name, tensor in env._state.items()} == before


@pytest.mark.parametrize("name", ["ngu/DeepSea-v0", "ngu/RandomCoin-v0"])
def test_gymnasium_accepts_the_plain_games(name: str) -> None:
    env = gymnasium.make(f"ngu.envs:{name}", render_mode="rgb_array")
    check_env(env.unwrapped)
    env.reset(seed=0)
    env.step(0)
    picture = env.render()
    assert isinstance(picture, np.ndarray)
    assert (picture.dtype, picture.shape[2]) == (np.uint8, 3)
    while not (outcome := env.step(0))[2] and not outcome[3]:
        pass
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)


@pytest.mark.parametrize("name", ["deep-sea", "random-coin"])
def test_both_forms_are_the_same_for_the_agent(name: str) -> None:
    config = preset(name)
    batch, single = make_environment(config, 2, CPU).spec, make_gymnasium_spec(single_environment(config)(0))
    fields = ("observation_shape", "observation_dtype", "num_actions", "max_episode_steps", "controllable_state")
    assert all(getattr(batch, field) == getattr(single, field) for field in fields)
    assert batch.reported == ("solved",)


# Deep Sea


@pytest.mark.parametrize("size", [2, 10, 50])
def test_the_treasure_pays_what_bsuite_says(size: int) -> None:
    """Always right: 0.99. Never: 0. A single step to the left loses the treasure."""
    env = DeepSea(3, size, 42, "cpu")
    right = torch.from_numpy(right_actions(size, 42))
    step = env.reset(0)
    total, solved = torch.zeros(3), torch.zeros(3)
    for time in range(size):
        row, column = step.info["row"].long(), step.info["column"].long()
        goes_right = right[row, column]
        wrong = size // 2
        action = torch.stack([goes_right[0], 1 - goes_right[1], goes_right[2] if time != wrong else 1 - goes_right[2]])
        assert not step.ended.any()
        env.send(action)
        step = env.recv()
        total += step.reward
        solved += step.info["solved"]
    assert step.terminated.all()
    assert not step.observation.any()
    assert solved.tolist() == [1, 0, 0]
    assert total.tolist() == pytest.approx([0.99, 0.0, -0.01 * (size - 1) / size], abs=1e-6)


def test_actions_mean_what_bsuite_draws() -> None:
    """The first row for mapping_seed 42, drawn by hand: uniform numbers of the generator above one half."""
    uniform = np.random.RandomState(42).random_sample((10, 10))
    assert np.array_equal(right_actions(10, 42), (uniform > 0.5).astype(np.int64))
    assert not np.array_equal(right_actions(10, 42), right_actions(10, 43))


# Random coin


def test_places_are_drawn_evenly_and_never_coincide() -> None:
    env = RandomCoin(20_000, 3, 5, "cpu")
    observation = env.reset(3).observation.flatten(2).bool()
    coin, agent = (observation[:, plane].int().argmax(1) for plane in (0, 1))
    pairs = torch.bincount(coin * 9 + agent, minlength=81).view(9, 9)
    assert pairs.diagonal().sum() == 0
    counts = pairs[~torch.eye(9, dtype=torch.bool)].double()
    expected = 20_000 / 72
    assert abs(((counts - expected) ** 2 / expected).sum() - 71) < 5 * np.sqrt(2 * 71)


def test_the_shortest_way_to_the_coin_pays_one_and_walls_hold() -> None:
    env = RandomCoinEnv()
    env.reset(options={"agent": (0, 3), "coin": (2, 3)})
    assert env.step(2)[4]["row"] == 0  # up, against the wall
    assert env.step(3)[1:4] == (0.0, False, False)
    assert env.step(3)[1:4] == (1.0, True, False)
    env.reset(options={"agent": (0, 0), "coin": (14, 14)})
    outcomes = [env.step(0)[1:4] for _ in range(200)]
    assert outcomes[:-1] == [(0.0, False, False)] * 199
    assert outcomes[-1] == (0.0, False, True)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: DeepSea(1, 1, 0, "cpu"), "the size of the sea is 1"),
        (lambda: DeepSea(1, 5, -1, "cpu"), "the seed of the sea is -1"),
        (lambda: DeepSea(0, 5, 0, "cpu"), "the number of environments is 0"),
        (lambda: RandomCoin(1, 1, 9, "cpu"), "the size of the room is 1"),
        (lambda: RandomCoinEnv(5, 0), "the step cap is 0"),
        (lambda: RandomCoinEnv(render_mode="human"), "the render mode 'human' does not exist"),
        (lambda: DeepSeaEnv(render_mode="human"), "the render mode 'human' does not exist"),
        (lambda: RandomCoinEnv(5).reset(options={"agent": (0, 5)}), "outside of the room"),
        (lambda: RandomCoinEnv(5).reset(options={"agent": (1, 1), "coin": (1, 1)}), "choose two cells"),
        (lambda: MiniGridLevel("DoorKey-8x8", "human"), "the render mode 'human' does not exist"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        make()


# MiniGrid


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("DoorKey-8x8", "MiniGrid-DoorKey-8x8-v0"),
        ("MultiRoom-N4-S5", "MiniGrid-MultiRoom-N4-S5-v1"),
        ("MiniGrid-KeyCorridorS3R3-v0", "MiniGrid-KeyCorridorS3R3-v0"),
    ],
)
def test_levels_have_short_names(name: str, level: str) -> None:
    assert check_level(name) == level


def test_a_wrong_level_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="'DoorKey-7x7' does not exist; the nearest are MiniGrid-DoorKey-"):
        check_level("DoorKey-7x7")
    with pytest.raises(UserError, match="MiniGrid-KeyCorridorS3R3"):
        make_environment(with_overrides(preset("minigrid"), {"env.level": "KeyCorridor-S3R3"}), 1, CPU)


def test_the_view_is_one_hot_and_loses_nothing() -> None:
    """The planes give back MiniGrid's own symbols; one of each group is lit in every cell."""
    game: Any = gymnasium.make("MiniGrid-KeyCorridorS3R3-v0").unwrapped
    view = game.reset(seed=3)[0]
    planes = one_hot(view["image"], view["direction"])
    assert planes.shape == (sum(PLANES), 7, 7)
    assert set(np.unique(planes)) == {0, 255}
    groups = np.split(planes, np.cumsum(PLANES)[:-1])
    assert all((group.astype(int).sum(0) == 255).all() for group in groups)
    codes = [group.argmax(0) for group in groups]
    assert np.array_equal(np.stack(codes[:3], -1), view["image"])
    assert (codes[3] == view["direction"]).all()


@pytest.mark.parametrize("name", ["DoorKey-5x5", "KeyCorridorS3R1", "MultiRoom-N2-S4"])
def test_a_level_plays_by_minigrids_rules(name: str) -> None:
    """The same seed and actions bring the same rewards and ends as the bare level, under its own numbers of actions."""
    env = MiniGridLevel(name)
    check_env(env, skip_render_check=True)
    bare = gymnasium.make(check_level(name)).unwrapped
    numbers = [int(bare.actions[action]) for action in env.actions]  # type: ignore[attr-defined]
    random = np.random.default_rng(0)
    picture, info = env.reset(seed=5)
    view = bare.reset(seed=5)[0]
    assert (info, env.max_episode_steps) == ({"solved": 0.0}, bare.max_steps)  # type: ignore[attr-defined]
    for _ in range(300):
        assert np.array_equal(picture, one_hot(view["image"], view["direction"]))
        action = int(random.integers(len(env.actions)))
        picture, reward, terminated, truncated, info = env.step(action)
        view, *wanted = bare.step(numbers[action])[:4]
        assert [reward, terminated, truncated] == wanted or (terminated and wanted[1:] == [True, True])
        assert info["solved"] == (reward > 0)
        if terminated or truncated:
            picture, _ = env.reset()
            view = bare.reset()[0]
    env.close()


def test_every_level_can_be_made_and_has_its_familys_actions() -> None:
    names = level_names()
    assert {next(family for family in ACTIONS if family in name) for name in names} == set(ACTIONS)
    assert "drop" in MiniGridLevel("KeyCorridorS3R1").actions  # the key must be put down to take the ball
    assert MiniGridLevel("MultiRoom-N6").action_space == gymnasium.spaces.Discrete(4)


def test_minigrid_runs_in_workers() -> None:
    config = with_overrides(preset("minigrid"), {"env.level": "MultiRoom-N2-S4", "env.workers": 1})
    env = make_environment(config, 2, CPU)
    try:
        assert env.spec.observation_shape == (24, 7, 7)
        assert (env.spec.num_actions, env.spec.max_episode_steps) == (4, 40)
        step = env.reset(0)
        for _ in range(45):
            env.send(torch.zeros(2, dtype=torch.int64))
            step = env.recv()
        assert step.info["solved"].tolist() == [0.0, 0.0]
    finally:
        env.close()


def test_an_environment_settles_where_its_channels_are() -> None:
    batch = GymEnvironments(MiniGridLevel, 1, workers=1, kwargs={"level": "DoorKey-5x5"})
    batch.close()
    assert batch.spec.observation_shape == (24, 7, 7)  # without its attribute the last axis would be taken for channels


# Without extrinsic rewards


@pytest.mark.parametrize("sees", [True, False])
def test_without_extrinsic_rewards_the_agent_never_sees_one(sees: bool) -> None:
    """In a room of 2 x 2 coins are found all the time; metrics tell of them, replay and networks only if they may."""
    config = make_tiny_config(
        env__name="random-coin", env__coin_size=2, mixture__extrinsic=sees, network__kernels=(1, 1),
        novelty__kernels=(1, 1), mixture__epsilon_alpha=0.0,
    )  # fmt: skip
    runner = LocalRunner(config, CPU)
    seen = 0.0
    for _ in range(40):
        runner.advance()
        seen += runner.agent.actors[0].extrinsic.sum().item()
    told = runner.pop_statistics()
    stored = runner.agent.replay.state_dict()["extrinsic"]
    assert told["env/solved"] == told["env/return"] > 0
    assert (stored.sum().item() > 0) == (seen > 0) == sees


# Runs


TASKS: dict[str, dict[str, Any]] = {
    "Deep Sea of size 6": {"env__name": "deep-sea", "env__sea_size": 6},
    "Random Coin of size 5": {"env__name": "random-coin", "env__coin_size": 5, "env__coin_step_cap": 12},
    "MiniGrid MultiRoom-N2-S4": {"env__name": "minigrid", "env__level": "MultiRoom-N2-S4", "env__workers": 1},
}


@pytest.mark.parametrize("title", TASKS)
def test_a_run_is_trained_resumed_reported_recorded_and_evaluated(
    title: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_tiny_config(
        run__folder=str(tmp_path), run__name="run", run__steps=320, run__tensorboard=False, evaluation__marks=(),
        evaluation__max_steps=40, mixture__num_mixtures=2, **TASKS[title],
    )  # fmt: skip
    run = tmp_path / "run"
    training = Training.start(config)
    try:
        half = training.run(160, show_progress=False)
        assert 0 <= half.evaluation["eval/exploit/solved"] <= 1
        training.run(show_progress=False)
    finally:
        training.close()
    told = read_metrics(run / "metrics.jsonl")
    assert any("env/solved" in row for row in told)
    page = write_report([run], tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"Never Give Up on {title}" in page
    assert "Solved in evaluation" in page
    assert record_episode(run, tmp_path / "episode.gif", steps=8).stat().st_size > 1000
    assert main(["eval", str(run), "--episodes", "2"]) == 0
    assert "solved" in capsys.readouterr().out
    exported = read_results(write_results_csv(run, tmp_path / "results.csv"))
    assert exported.world.title == title
    assert "eval/explore/solved" in exported.names()
