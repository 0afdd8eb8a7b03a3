"""Linear probes of f: a NumPy twin, what they can and cannot read, and that nobody notices them (paper, App. I.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from conftest import make_tiny_config
from gym_factories import Walk
from oracles import clone, difference
from tiny_runs import metrics_without_time, train_command

from ngu.cli import main
from ngu.config import LearnerConfig, ProbeConfig
from ngu.config_reading import with_overrides
from ngu.envs import DiscoMaze
from ngu.envs.atari_game import AtariGame
from ngu.envs.gym import make_gymnasium_spec
from ngu.envs.make import make_environment
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError
from ngu.metrics import explain
from ngu.novelty.probe import LinearProbe, pop_errors
from ngu.presets import preset
from ngu.runners.local import LocalRunner

CPU = torch.device("cpu")
ROOMS = 3
SPEC = EnvironmentSpec(
    (3,), torch.float32, 4, measurements=("x", "y", "room"), probed_position=("x", "y"), probed_room=("room", ROOMS)
)


def make_probe(size: int, spec: EnvironmentSpec = SPEC, rate: float = 1e-2) -> LinearProbe:
    return LinearProbe(size, spec, ProbeConfig(learning_rate=rate), LearnerConfig(), CPU)


def told(position: torch.Tensor, room: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"x": position[:, 0], "y": position[:, 1], "room": room.float()}


class Twin:
    """The probe once more, step by step, in NumPy: all data so far is kept."""

    def __init__(self, size: int, rate: float) -> None:
        self.rate = rate
        self.batches: list[tuple[np.ndarray, np.ndarray]] = []
        self.theta = np.zeros((size + 1, 2 + ROOMS))
        self.m, self.v = np.zeros_like(self.theta), np.zeros_like(self.theta)
        self.errors: list[tuple[float, float, bool]] = []

    def __call__(self, state: np.ndarray, position: np.ndarray, room: np.ndarray) -> None:
        self.batches.append((state, position))
        age = np.repeat(0.99 ** np.arange(len(self.batches))[::-1], len(state))
        seen, places = (np.concatenate(parts) for parts in zip(*self.batches, strict=True))
        mean = np.average(seen, axis=0, weights=age)
        spread = np.sqrt(np.average((seen - mean) ** 2, axis=0, weights=age))
        z = np.column_stack([np.clip((state - mean) / spread, -5, 5), np.ones(len(state))])
        output = z @ self.theta
        centre, scale = places.mean(0), places.std(0)
        guess = output[:, :2] * scale + centre
        chance = np.exp(output[:, 2:]) / np.exp(output[:, 2:]).sum(1, keepdims=True)
        named = np.eye(ROOMS)[room]
        for e in range(len(state)):
            self.errors.append(
                (((guess - position)[e] ** 2).sum(), -np.log(chance[e, room[e]]), chance[e].argmax() != room[e])
            )
        aim = (position - centre) / scale
        gradient = z.T @ np.column_stack([2 * (output[:, :2] - aim), chance - named])
        gradient *= min(1.0, 40.0 / (np.linalg.norm(gradient) + 1e-6))
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * gradient**2
        step = len(self.batches)
        self.theta -= self.rate * (self.m / (1 - 0.9**step)) / (np.sqrt(self.v / (1 - 0.999**step)) + 1e-4)


def test_it_equals_its_twin() -> None:
    random = torch.Generator().manual_seed(0)
    probe, twin = make_probe(5, rate=0.03), Twin(5, 0.03)
    mixing = torch.randn(5, 2, generator=random)
    positions, rooms = [], []
    for _ in range(60):
        state = 3 + 2 * torch.randn(6, 5, generator=random).pow(3)  # far out now and then
        position = 10 * state @ mixing + torch.randn(6, 2, generator=random)
        room = torch.randint(0, ROOMS, (6,), generator=random)
        probe.observe(state, told(position, room))
        twin(state.double().numpy(), position.double().numpy(), room.numpy())
        positions.append(position)
        rooms += room.tolist()
    weights = torch.cat([probe.weight, probe.bias.unsqueeze(0)]).detach().numpy()
    assert weights == pytest.approx(twin.theta, rel=2e-3, abs=2e-4)
    squared, surprise, wrong = np.array(twin.errors, dtype=float).T
    commonest = max(rooms.count(room) for room in range(ROOMS)) / len(rooms)
    metrics = pop_errors([probe])
    assert metrics == pytest.approx(
        {
            "probe/position/squared_error": squared.mean(),
            "probe/position/baseline": torch.cat(positions).double().var(0, correction=0).sum().item(),
            "probe/room/cross_entropy": surprise.mean(),
            "probe/room/error_rate": wrong.mean(),
            "probe/room/baseline": 1 - commonest,
        },
        rel=2e-3,
    )
    assert all(explain(name) for name in metrics)
    assert pop_errors([probe]) == {}, "since the last call"


def errors_after(state_of: Any, steps: int = 400) -> dict[str, float]:
    """A probe of states that are made from (x, y) and the room, at the end of its training."""
    random = torch.Generator().manual_seed(1)
    probe = make_probe(8)
    for step in range(steps):
        if step == steps - 100:
            pop_errors([probe])
        place = torch.randint(0, 9, (16, 2), generator=random).float()
        room = torch.randint(0, ROOMS, (16,), generator=random)
        probe.observe(state_of(place, room, random), told(place, room))
    return pop_errors([probe])


def test_what_is_linear_in_f_is_found_and_what_is_not_in_it_is_not() -> None:
    mixing = torch.randn(2 + ROOMS, 8, generator=torch.Generator().manual_seed(2))

    def telling(place: torch.Tensor, room: torch.Tensor, _random: torch.Generator) -> torch.Tensor:
        return 100 + torch.cat([place, 5.0 * torch.nn.functional.one_hot(room, ROOMS)], 1) @ mixing

    def silent(place: torch.Tensor, _room: torch.Tensor, random: torch.Generator) -> torch.Tensor:
        return torch.randn(len(place), 8, generator=random)

    found, lost = errors_after(telling), errors_after(silent)
    assert found["probe/position/squared_error"] < 0.02 * found["probe/position/baseline"]
    assert found["probe/room/error_rate"] < 0.02
    assert lost["probe/position/squared_error"] > 0.95 * lost["probe/position/baseline"]
    assert lost["probe/room/error_rate"] > 0.55
    assert lost["probe/position/baseline"] == pytest.approx(2 * (81 - 1) / 12, rel=0.05)


def test_numbers_that_are_not_finite_and_rooms_that_do_not_exist_are_left_out() -> None:
    probe, other = make_probe(2), make_probe(2)
    state, position, room = torch.randn(6, 2), torch.randn(6, 2), torch.tensor([0, 1, 2, 1, 0, 1])
    bad_state, bad_position, bad_room = state.clone(), position.clone(), room.clone()
    bad_state[3, 0], bad_position[4, 1], bad_room[5] = float("nan"), float("inf"), ROOMS
    for _ in range(3):
        probe.observe(bad_state, told(bad_position, bad_room))
        other.observe(state[:3], told(position[:3], room[:3]))
    assert torch.allclose(probe.weight, other.weight, atol=1e-6)
    assert pop_errors([probe]) == pytest.approx(pop_errors([other]), rel=1e-5)


@pytest.mark.parametrize("part", ["position", "room"])
def test_one_of_the_two_may_be_missing(part: str) -> None:
    spec = {
        "position": EnvironmentSpec((3,), torch.float32, 4, probed_position=("x", "y")),
        "room": EnvironmentSpec((3,), torch.float32, 4, probed_room=("room", ROOMS)),
    }[part]
    probe, both = make_probe(4, spec), make_probe(4)
    for _ in range(5):
        state, info = torch.randn(6, 4), told(torch.randn(6, 2), torch.tensor([0, 1, 2, 0, 1, 0]))
        probe.observe(state, info)
        both.observe(state, info)
    mine, whole = pop_errors([probe]), pop_errors([both])
    assert mine == pytest.approx({name: whole[name] for name in whole if part in name}, rel=1e-4)


# ------------------------------------------------------------------------------------------- beside the agent


def make_runner(**changes: Any) -> LocalRunner:
    return LocalRunner(make_tiny_config(**changes), CPU)


def advance(runner: LocalRunner, steps: int) -> LocalRunner:
    for _ in range(steps):
        runner.advance()
    return runner


@pytest.mark.parametrize("states", ["learned", "random"])
def test_the_agent_does_not_notice_it(states: str) -> None:
    """With and without a probe the same bytes: no gradient into f, no random number drawn, no step changed."""
    changes: dict[str, Any] = {"novelty__controllable_states": states, "env__groups": 2}
    probed = advance(make_runner(probe__enabled=True, **changes), 60)
    plain = advance(make_runner(**changes), 60)
    state = probed.state_dict()
    for actor in state["actors"].values():
        assert actor.pop("probe")["weight"].abs().sum() > 0
    assert not difference(plain.state_dict(), state)
    assert probed.agent.learner.updates > 3
    metrics = probed.pop_statistics()
    assert {name for name in metrics if name.startswith("probe/")} == {
        "probe/position/squared_error",
        "probe/position/baseline",
    }
    assert {name: metrics[name] for name in metrics if not name.startswith("probe/")} == plain.pop_statistics()


def test_a_resumed_run_goes_on_with_the_same_probe() -> None:
    changes: dict[str, Any] = {"probe__enabled": True, "novelty__memory_episodes": 2}
    whole = advance(make_runner(**changes), 50)
    resumed = make_runner(**changes)
    resumed.load_state_dict(clone(advance(make_runner(**changes), 23).state_dict()))
    advance(resumed, 27)
    assert not difference(whole.state_dict(), resumed.state_dict())
    assert whole.pop_statistics() == resumed.pop_statistics()
    state = clone(whole.state_dict())
    state["runner"]["device"] = "cuda"
    state["learner"]["generator"] = torch.zeros(16, dtype=torch.uint8)
    del state["actors"]["0"]["env"], state["actors"]["0"]["generator"], state["replay"]["generator"]
    moved = make_runner(**changes)
    moved.load_state_dict(state)
    assert moved.agent.actors[0].probe is not None
    assert not difference(moved.agent.actors[0].probe.state_dict(), whole.state_dict()["actors"]["0"]["probe"])


def test_a_run_is_trained_evaluated_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "probed"
    assert main(train_command(tmp_path, "probed", probe__enabled=True)) == 0
    assert main(["eval", str(run)]) == 0
    assert "column" not in capsys.readouterr().out
    lines = metrics_without_time(run)
    names = {name for line in lines for name in line}
    assert not [name for name in names if "column" in name or "row" in name.split("/")]
    assert sum("probe/position/squared_error" in line for line in lines) == 3
    assert "Position by a linear probe of f" in (run / "report.html").read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------- environments


def test_the_maze_says_where_the_player_is() -> None:
    plain = DiscoMaze(4, 7, 12, 64, CPU)
    assert plain.spec.measurements == ("coverage",)
    maze, restored = (DiscoMaze(4, 7, 12, 64, CPU, tell_position=True) for _ in range(2))
    assert maze.spec.probed_position == ("column", "row")
    assert maze.spec.reported == ("coverage",)
    step = maze.reset(3)
    for time in range(20):
        for e in range(4):
            column, row = (int(step.info[name][e]) for name in ("column", "row"))
            assert step.observation[e, :, row, column].tolist() == [0, 255, 0], "the player is green"
        maze.maintain()
        maze.send(torch.full((4,), time % 4))
        step = maze.recv()
    restored.reset(5)
    restored.load_state_dict(maze.state_dict())
    for name in ("column", "row"):
        assert torch.equal(restored.recv().info[name], step.info[name])


def test_montezumas_revenge_says_where_the_player_is() -> None:
    game = AtariGame("montezuma_revenge", tell_position=True)
    _, info = game.reset(seed=0)
    assert list(info) == list(game.measurements) == ["score", "rooms", "player_x", "player_y", "room"]
    assert (info["player_x"], info["player_y"], info["room"]) == (game.ram[42], game.ram[43], game.ram[3])
    spec = make_gymnasium_spec(game)
    assert spec.reported == ("score", "rooms")
    assert (spec.probed_position, spec.probed_room) == (("player_x", "player_y"), ("room", 24))
    both = AtariGame("montezuma_revenge", hand_crafted=True, tell_position=True)
    both.reset(seed=0)
    assert both.measurements == ("score", "rooms", "player_x", "player_y", "room_and_level", "keys", "room")
    assert AtariGame("pong", tell_position=True).measurements == ("score",)


def test_f_is_probed_for_the_position_and_room_in_montezumas_revenge() -> None:
    changes = {
        "env.game": "montezuma_revenge", "env.num_envs": 4, "env.workers": 2, "env.max_frames": 400,
        "mixture.num_mixtures": 2, "mixture.epsilon_base": 1.0, "novelty.filters": (4, 4, 4),
        "network.filters": (4, 4, 4), "network.torso_size": 16, "network.lstm_size": 16, "network.dueling_size": 16,
        "replay.capacity": 2000, "replay.trace_length": 16, "replay.period": 8, "replay.min_sequences": 6,
        "learner.batch_size": 4, "probe.enabled": True,
    }  # fmt: skip
    runner = LocalRunner(with_overrides(preset("atari-cpu"), changes), CPU)
    try:
        advance(runner, 60)
        metrics = runner.pop_statistics()
        assert metrics["probe/position/baseline"] > 10, "pixels"
        assert metrics["probe/position/squared_error"] > 0
        assert metrics["probe/room/baseline"] == 0, "all are in the first room"
        assert 0 < metrics["probe/room/cross_entropy"] < np.log(24)
        assert metrics["probe/room/error_rate"] < 0.5
        assert "env/room" not in metrics
    finally:
        runner.close()


class Roomy(Walk):
    measurements = ("farthest", "x", "y", "side")
    controllable_state = ()
    probed_position = ("x", "y")
    probed_room: Any = ("side", 2)


def test_an_environment_of_your_own_names_what_to_probe_for() -> None:
    spec = make_gymnasium_spec(Roomy())
    assert (spec.probed_position, spec.probed_room) == (("x", "y"), ("side", 2))
    assert spec.reported == ("score", "farthest")
    for wrong in ("side", ("room", 2), ("side", 0), ("side", "two"), (1, 2, 3)):
        env = Roomy()
        env.probed_room = wrong
        with pytest.raises(UserError, match="give the name of one of its measurements and how many rooms"):
            make_gymnasium_spec(env)
    absent: gymnasium.Env[Any, Any] = Roomy()
    absent.probed_position = ("z",)  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="probed_position names 'z', which its measurements do not"):
        make_gymnasium_spec(absent)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"novelty__controllable_states": "hand-crafted"}, "needs an embedding f to look at"),
        ({"novelty__episodic": False}, "needs an embedding f to look at"),
        ({"run__runner": "ray"}, "needs run.runner local, not ray"),
        ({"probe__learning_rate": 0.0}, "set it above 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        make_tiny_config(probe__enabled=True, **changes)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"env__name": "gym", "env__id": "CartPole-v1"}, "CartPole-v1"),
        ({"env__name": "atari", "env__game": "pong"}, "pong"),
    ],
)
def test_environments_that_do_not_say_where_the_agent_is_are_refused(changes: dict[str, Any], name: str) -> None:
    config = make_tiny_config(probe__enabled=True, env__workers=1, **changes)
    with pytest.raises(UserError, match=f"nothing to probe f for: {name} does not say where the agent is"):
        make_environment(config, 1, CPU)
