"""Hand-crafted controllable states in the place of f (paper, App. I.2 and I.3): the reward alone, and the whole agent.

On Montezuma's Revenge everything is held against an emulator of the tests' own, whose memory is read once more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import Constants, MovingAverage, clone, difference, neighbour_distances, reward_of_distances
from tiny_runs import checkpoint_steps, metrics_without_time, options

import ngu
from ngu.actor import Actor
from ngu.agent import make_actor, make_learner
from ngu.benchmarks.hosted import measure_hosted
from ngu.checkpoint import load_newest
from ngu.cli import main
from ngu.config import Config, NoveltyConfig
from ngu.config_reading import with_overrides
from ngu.envs.atari_game import HAND_CRAFTED_STATE, AtariGame
from ngu.envs.make import make_environment
from ngu.envs.protocol import EnvironmentSpec
from ngu.envs.workers import WorkerEnvironments
from ngu.novelty.reward import IntrinsicReward
from ngu.presets import preset

CPU = torch.device("cpu")
SPEC = EnvironmentSpec((3,), torch.float32, 4, controllable_state=("x", "y"))


def config(**changes: Any) -> NoveltyConfig:
    small: dict[str, Any] = {
        "hidden": (8,),
        "rnd_size": 6,
        "memory_capacity": 50,
        "controllable_states": "hand-crafted",
    }
    return NoveltyConfig(**{**small, **changes})


def make(envs: int, seed: int = 0, **changes: Any) -> IntrinsicReward:
    torch.manual_seed(seed)
    return IntrinsicReward(SPEC, envs, config(**changes))


class Twin:
    """Algorithm 1 on given states, once more, times given factors."""

    def __init__(self, envs: int, settings: NoveltyConfig) -> None:
        self.settings = settings
        self.average = MovingAverage(settings.distance_decay)
        self.memories: list[list[np.ndarray]] = [[] for _ in range(envs)]
        self.episodes = [0] * envs

    def __call__(self, states: np.ndarray, first: list[bool]) -> list[float]:
        """The episodic rewards of [E, D] states."""
        s = self.settings
        constants = Constants(s.neighbours, s.pseudo_count, s.kernel_epsilon, s.cluster_distance, s.max_similarity)
        for env, begins in enumerate(first):
            if begins and self.episodes[env] % s.memory_episodes == 0:
                self.memories[env] = []
            self.episodes[env] += begins
        near = [neighbour_distances(m, state, s.neighbours) for m, state in zip(self.memories, states, strict=True)]
        self.average.update([d for each in near for d in each])
        self.memories = [[*m, state][-s.memory_capacity :] for m, state in zip(self.memories, states, strict=True)]
        return [reward_of_distances(each, self.average.value, constants) for each in near]


# ------------------------------------------------------------------------------------------- the reward alone


@given(
    seed=st.integers(0, 2**31),
    envs=st.integers(1, 3),
    capacity=st.sampled_from([4, 50]),
    memory_episodes=st.sampled_from([1, 3]),
    lifelong=st.booleans(),
)
@settings(max_examples=25)
def test_the_reward_of_a_walk_equals_its_twin(
    seed: int, envs: int, capacity: int, memory_episodes: int, lifelong: bool
) -> None:
    """Whole steps on a grid: places are met again and again, so that many distances are exactly 0."""
    changes: dict[str, Any] = {"memory_capacity": capacity, "memory_episodes": memory_episodes}
    intrinsic = make(envs, seed % 1000, lifelong=lifelong, **changes)
    twin = Twin(envs, intrinsic.config)
    random = torch.Generator().manual_seed(seed)
    first = torch.ones(envs, dtype=torch.bool)
    place = torch.zeros(envs, 2)
    for _ in range(25):
        place = torch.where(first.unsqueeze(1), 0.0, place + torch.randint(-1, 2, (envs, 2), generator=random))
        expected = twin(place.numpy().astype(float), first.tolist())
        parts = intrinsic.parts(torch.randn(envs, 3, generator=random), first, controllable_state=place)
        assert parts.episodic.tolist() == pytest.approx(expected, rel=1e-3)
        factor = parts.alpha.clamp(1.0, intrinsic.config.max_modulation)
        assert torch.allclose(parts.reward, torch.where(first, 0.0, parts.episodic * factor))
        first = torch.rand(envs, generator=random) < 0.15


def test_the_observation_has_no_say_in_the_episodic_part() -> None:
    one, other = make(2, lifelong=False), make(2, lifelong=False)
    for step in range(6):
        first, state = torch.full((2,), step == 0), torch.randint(0, 3, (2, 2)).float()
        seen = [part(torch.randn(2, 3), first, controllable_state=state) for part in (one, other)]
        assert torch.equal(*seen)


def test_integers_are_states_too() -> None:
    one, other = make(1, lifelong=False), make(1, lifelong=False)
    for step in range(4):
        first, state = torch.tensor([step == 0]), torch.tensor([[step, 2 * step]])
        whole, real = (part(torch.zeros(1, 3), first, None, s) for part, s in ((one, state), (other, state.float())))
        assert torch.equal(whole, real)


def test_there_is_no_inverse_dynamics_model_and_rnd_is_trained_as_ever() -> None:
    intrinsic = make(2)
    assert intrinsic.model.inverse is None
    assert intrinsic.snapshots is None
    report = intrinsic.train(torch.randn(8, 3), torch.randint(0, 4, (8,)), torch.randn(8, 3))
    assert list(report.values) == ["loss/rnd"]
    state = intrinsic.state_dict()
    assert {"memory", "scale", "rnd", "moments"} <= state.keys()
    assert "snapshots" not in state
    assert not [name for name in state["model"] if "inverse" in name]
    without = make(2, lifelong=False)
    assert not list(without.model.parameters())
    assert not without.train(torch.randn(8, 3), torch.randint(0, 4, (8,)), torch.randn(8, 3)).values


def test_a_saved_reward_goes_on_exactly_and_a_restarted_one_keeps_the_running_distance() -> None:
    def play(intrinsic: IntrinsicReward, seed: int) -> list[torch.Tensor]:
        random = torch.Generator().manual_seed(seed)
        steps = [(torch.rand(3, 2, generator=random), torch.rand(3, generator=random) < 0.2) for _ in range(12)]
        return [intrinsic(torch.zeros(3, 3), first, controllable_state=state) for state, first in steps]

    one, other = make(3), make(3, seed=5)
    play(one, 1)
    other.load_state_dict(clone(one.state_dict()))
    assert all(torch.equal(a, b) for a, b in zip(play(one, 2), play(other, 2), strict=True))
    assert not difference(one.state_dict(), other.state_dict())
    fresh = make(3, seed=6)
    fresh.restart(one.model, one)
    assert fresh.memory is not None
    assert fresh.memory.filled.tolist() == [0, 0, 0]
    assert torch.equal(fresh.scale.total, one.scale.total)
    assert fresh.scale.weight.item() > 0


def test_what_is_missing_or_of_no_use_is_told() -> None:
    observation, first = torch.zeros(2, 3), torch.tensor([True, True])
    with pytest.raises(ngu.UserError, match=r"none is given; give a controllable_state of shape \(2, 2\): x, y of"):
        make(2)(observation, first)
    with pytest.raises(ngu.UserError, match=r"one of shape \(2, 3\) is given"):
        make(2)(observation, first, controllable_state=torch.zeros(2, 3))
    with pytest.raises(ngu.UserError, match=r"one of the type ndarray is given; give a controllable_state of shape"):
        make(2)(observation, first, controllable_state=np.zeros((2, 2)))  # type: ignore[arg-type]
    learned = IntrinsicReward(SPEC, 2, NoveltyConfig(hidden=(8,)))
    with pytest.raises(ngu.UserError, match=r"set novelty\.controllable_states to hand-crafted, or leave it out"):
        learned(observation, first, controllable_state=torch.zeros(2, 2))
    with pytest.raises(ngu.UserError, match="the environments' spec has no controllable_state"):
        IntrinsicReward(EnvironmentSpec((3,), torch.float32, 4), 2, config())


def test_a_state_that_is_not_finite_pays_nothing_and_spoils_no_statistics() -> None:
    intrinsic = make(2, lifelong=False)
    nothing, later = torch.zeros(2, 3), torch.zeros(2, dtype=torch.bool)
    for value in (0.0, 1.0, torch.nan, 2.0, 3.0):
        reward = intrinsic(nothing, later, controllable_state=torch.tensor([[value, 0.0], [5.0, 1.0]]))
        assert torch.isfinite(reward).all()
    assert torch.isfinite(intrinsic.scale.total).all()
    assert (reward > 0).all()


# ------------------------------------------------------------------------------------------- any environment

WALK: dict[str, Any] = {
    "env.name": "gym",
    "env.id": "gym_factories:test/Walk-v0",
    "env.num_envs": 4,
    "env.workers": 2,
    "novelty.controllable_states": "hand-crafted",
    "evaluation.marks": (),
}


def test_an_environment_that_knows_its_state_trains_the_agent() -> None:
    changes = {name.replace(".", "__"): value for name, value in WALK.items()}
    with ngu.NGU(make_tiny_config(**changes, run__log_period=200)) as agent:
        agent.learn(400, progress=False)
        (actor,) = agent._training.runner.agent.actors
        memory = actor.novelty.memory
        assert memory is not None
        for env, filled in enumerate(memory.filled.tolist()):
            walk = memory.entries[env, :filled]
            assert walk[0].tolist() == [0.0, 0.0]
            assert (walk.diff(dim=0).abs().sum(1) == 1).all(), "one step at a time, on the grid"
        assert agent._training.runner.agent.learner.updates > 0
        lines, found = agent.history, agent.evaluate()
        assert any("env/farthest" in line for line in lines)
        assert not [name for line in [*lines, found] for name in line if name.endswith(("/x", "/y"))]
        assert not [name for line in lines for name in line if "inverse" in name]

        action, state = agent.predict(np.zeros(3), controllable_state=(0, 0))
        for place in ((1, 0), (1, 1)):
            action, state = agent.predict(np.zeros(3), state, controllable_state=place)
            assert 0 <= action < 4
            assert state.intrinsic.item() > 0
        several, _ = agent.predict(np.zeros((2, 3)), controllable_state=[(0, 0), (2, 1)])
        assert several.shape == (2,)
        for given in ({}, {"controllable_state": (1, 2, 3)}):
            with pytest.raises(ngu.UserError, match=r"give a controllable_state of shape \(1, 2\): x, y of each"):
                agent.predict(np.zeros(3), **given)


# ------------------------------------------------------------------------------------------- Montezuma's Revenge

MONTEZUMA: dict[str, Any] = {
    "env.game": "montezuma_revenge",
    "env.num_envs": 2,
    "env.workers": 2,
    "env.max_frames": 160,
    "mixture.num_mixtures": 2,
    "novelty.filters": (4, 4, 4),
    "novelty.memory_capacity": 200,
    "novelty.memory_episodes": 3,
    "network.filters": (4, 4, 4),
    "network.torso_size": 16,
    "network.lstm_size": 16,
    "network.dueling_size": 16,
    "replay.capacity": 2000,
    "replay.trace_length": 16,
    "replay.period": 8,
    "replay.min_sequences": 6,
    "learner.batch_size": 4,
    "evaluation.num_envs": 1,
    "evaluation.max_steps": 10,
    "evaluation.period": 100,
    "run.steps": 160,
    "run.log_period": 80,
    "run.checkpoint_period": 80,
    "run.tensorboard": False,
}


def montezuma(**changes: Any) -> Config:
    return with_overrides(preset("atari-cpu", "hand-crafted"), {**MONTEZUMA, **changes})


def plain_state(game: AtariGame) -> list[float]:
    """The paper's four numbers, by the console's own addresses, which begin at 0x80."""

    def byte(address: int) -> int:
        return int(game.ram[address - 0x80])

    keys = sum(byte(0xC1) >> bit & 1 for bit in (1, 2, 3, 4))
    return [byte(0xAA), byte(0xAB), byte(0x83) + 24 * byte(0xB9), keys]


def test_the_memory_of_montezumas_revenge_holds_what_the_console_says() -> None:
    """Two environments over several episodes of 40 steps, beside plain emulators that are played the same actions."""
    settings = montezuma(**{"mixture.epsilon_base": 1.0, "novelty.lifelong": False})
    env = make_environment(settings, 2, CPU)
    try:
        assert isinstance(env, WorkerEnvironments), "though env.backend is vector"
        assert settings.env.backend == "vector"
        assert env.spec.controllable_state == HAND_CRAFTED_STATE
        learner = make_learner(settings, env.spec, CPU)
        actor: Actor = make_actor(
            settings, env, learner, torch.zeros(2, dtype=torch.int64), torch.ones(2), torch.Generator()
        )
        twin = Twin(2, settings.novelty)
        games = [AtariGame("montezuma_revenge", max_frames=160) for _ in range(2)]
        step = actor.reset(7)
        for e, game in enumerate(games):
            seed = np.random.SeedSequence(7, spawn_key=(e, 0)).generate_state(1, np.uint32)[0] >> 1
            game.reset(seed=int(seed))
        paid = []
        for _ in range(150):
            states = np.array([plain_state(game) for game in games], dtype=float)
            expected = twin(states, step.first.tolist())
            silent = step.first | step.terminated
            wanted = [0.0 if quiet else reward for quiet, reward in zip(silent.tolist(), expected, strict=True)]
            assert actor.intrinsic.tolist() == pytest.approx(wanted, rel=1e-3)
            assert actor.novelty.memory is not None
            assert [tuple(e) for e in actor.novelty.memory.entries[0, : len(twin.memories[0])].tolist()] == [
                tuple(entry) for entry in twin.memories[0]
            ]
            paid += wanted
            ended = step.ended.clone()
            for game, action, over in zip(games, actor.action.tolist(), ended.tolist(), strict=True):
                game.reset() if over else game.step(action)
            step = actor.step()
        assert int(actor.novelty.episodes.min()) >= 4, "a meta-episode was over"
        assert len({round(reward, 3) for reward in paid}) > 50
        assert states[:, 2].tolist() == [1.0, 1.0], "the room where the game begins"
    finally:
        env.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained by the command line, with two checkpoints, then resumed for as many steps again."""
    folder = tmp_path_factory.mktemp("runs")
    place = {"run.folder": str(folder), "run.name": "montezuma"}
    command = ["train", "atari-cpu", "--variant", "hand-crafted", "--device", "cpu"]
    assert main([*command, *options({**MONTEZUMA, **place})]) == 0
    assert checkpoint_steps(folder / "montezuma") == [80, 160]
    assert main(["resume", str(folder / "montezuma"), "--steps", "320"]) == 0
    return folder / "montezuma"


def test_a_run_trains_is_saved_and_resumed(run: Path) -> None:
    assert checkpoint_steps(run) == [240, 320]
    lines = metrics_without_time(run)
    assert lines[-1]["step"] == 320
    assert max(line.get("learner/updates", 0) for line in lines) > 4
    names = {name for line in lines for name in line}
    assert {
        "env/score",
        "env/rooms",
        "eval/explore/rooms",
        "eval/exploit/score",
        "env/score/episode_1",
        "env/rooms/episode_1",
        "eval/exploit/score/episode_3",
        "eval/explore/rooms/episode_2",
        "loss/rnd",
        "novelty/episodic",
    } <= names
    assert not [name for name in names if any(part in name for part in (*HAND_CRAFTED_STATE, "inverse"))]
    state = load_newest(run / "checkpoints").state
    novelty = state["actors"]["0"]["novelty"]
    assert novelty["memory"]["entries"].shape == (2, 41 * 3, 4)
    assert novelty["scale"]["total"].shape == ()
    assert not [name for name in state["learner"]["novelty"] if "inverse" in name]
    assert "snapshots" not in novelty
    assert list(state["learner"]["novelty_trainer"]) == ["rnd"]


def test_it_is_evaluated_recorded_and_reported(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["eval", str(run), "--episodes", "1", "--steps", "8", "--json"]) == 0
    policies = json.loads(capsys.readouterr().out)["policies"]
    for policy in ("explore", "exploit"):
        assert policies[policy].keys() == {"score", "rooms", "return", "length", "human_normalised"}
        for place in (1, 2, 3):
            assert policies[f"{policy}, episode {place}"].keys() == {"score", "rooms", "return", "length"}
            assert policies[f"{policy}, episode {place}"]["length"] == 8
    assert main(["record", str(run), "--steps", "12", "--out", str(tmp_path / "film.gif")]) == 0
    assert (tmp_path / "film.gif").stat().st_size > 0
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "hand-crafted" in page
    assert "Rooms by the episode" in page
    assert "Measured by the environment" not in page


def test_it_is_loaded_and_asked(run: Path) -> None:
    with ngu.NGU.load(run) as agent:
        screen = np.zeros((1, 84, 84), dtype=np.uint8)
        action, state = agent.predict(screen, controllable_state=[77, 235, 1, 0])
        action, state = agent.predict(screen, state, controllable_state=[78, 235, 1, 0])
        assert 0 <= action < 18
        assert state.intrinsic.item() > 0
        with pytest.raises(ngu.UserError, match="player_x, player_y, room_and_level, keys of each environment"):
            agent.predict(screen)


def test_it_is_measured_in_worker_processes() -> None:
    result = measure_hosted(montezuma(**{"env.threads": 1}), 0.1, (0.0,), fill=50)
    assert result.emulator_threads == 2, "worker processes, not threads"
    assert result.agent[0].memory_filled_at_start == 50
