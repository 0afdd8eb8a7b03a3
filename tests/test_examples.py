"""The examples run as they stand, with small budgets, and do what they say."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import pytest
import torch
import tyro
from conftest import make_tiny_config
from oracles import Constants, MovingAverage, algorithm_1, neighbour_distances, reward_of_distances

import ngu
from ngu.commands.train import read_config
from ngu.config import NoveltyConfig
from ngu.config_reading import read_config_file
from ngu.envs.atari_game import AtariGame
from ngu.experiments.scales import SCALES
from ngu.mixture import discounts
from ngu.report.results import read_results
from ngu.training import Training

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested() -> None:
    names = {
        "custom_config",
        "disco_maze",
        "does_f_learn",
        "goal_mountain_car",
        "how_soon_is_the_player_seen",
        "intrinsic_reward_with_ppo",
        "look_into_a_game_agent",
        "look_into_a_maze_agent",
        "what_novelty_pays",
        "what_the_way_to_the_key_pays",
        "what_tours_earn",
        "where_games_come_to",
    }
    assert {path.stem for path in EXAMPLES.glob("*.py")} == names


def test_does_f_learn(capsys: pytest.CaptureFixture[str]) -> None:
    example = load("does_f_learn")
    arguments = ["--game", "pong", "--updates", "4", "--steps", "640", "--print-period", "2", "--batch-size", "32"]
    results = example.main(tyro.cli(example.Settings, args=arguments))
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == [
        f"{kind}, {updates} updates" for kind in ("relu", "linear", "whitened") for updates in (2, 4)
    ]  # fmt: skip
    assert printed[-1].endswith("numbers in use 32")
    # Linear states lose none of the directions that a ReLU cuts off.
    assert 0 <= results["relu"]["inverse/dimensions"] < results["linear"]["inverse/dimensions"] <= 32


def test_the_small_task_is_montezumas_revenge_for_either_kind_of_states() -> None:
    for variant in ("hand-crafted", "ngu-n1"):
        config = read_config_file(EXAMPLES / "small_montezuma.toml", ngu.preset("atari-node", variant))
        assert (config.env.game, config.env.num_envs, config.mixture.num_mixtures) == ("montezuma_revenge", 32, 1)
        assert config.learner.advantage_learning == 0.9
        assert config.network.whiten


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("hand-crafted", "--variant hand-crafted --novelty.memory-episodes 1 --mixture.discount-max 0.99"),
        ("n1", "--variant ngu-n1 --novelty.cluster-distance 0.2 --mixture.discount-max 0.99"),
        ("ngu", "--variant ngu --novelty.cluster-distance 0.2"),
        ("r2d2-rnd", "--variant r2d2-rnd"),
    ],
)
def test_the_settings_for_a_node_are_those_of_the_runs_that_are_kept(name: str, arguments: str) -> None:
    path = EXAMPLES / "montezuma_on_a_node.toml"
    assert f"#   node {arguments}\n" in path.read_text()
    config = read_config(["atari-node", "--config", str(path), *arguments.split()])
    command = read_results(EXAMPLES.parent / f"results/atari/montezuma_revenge/remedies/{name}-seed0.csv").origin[
        "command"
    ]
    kept = read_config(command.removeprefix("ngu train ").partition(" (")[0].split())
    for group in ("mixture", "novelty", "network", "replay", "learner", "actor"):
        assert getattr(config, group) == getattr(kept, group), group
    assert (config.env.game, config.env.backend, config.env.num_envs) == ("montezuma_revenge", "workers", 128)


def test_how_soon_is_the_player_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """With whitened pictures 30 updates are enough to learn something, without them they are not."""
    example = load("how_soon_is_the_player_seen")
    arguments = ["--updates", "30", "--print-period", "15", "--steps", "6400", "--envs", "16", "--batch-size", "64"]
    left = example.main(tyro.cli(example.Settings, args=arguments))
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == [
        f"{inputs}, {updates} updates" for inputs in ("scaled", "whitened") for updates in (15, 30)
    ]
    assert left["whitened"][-1] < 0.8 < left["scaled"][-1]


def test_disco_maze(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = load("disco_maze")
    out = tmp_path / "agent"
    arguments = ["--steps", "2000", "--out", str(out), "--seed", "3"]
    coverage = example.main(tyro.cli(example.Settings, args=arguments))
    printed = capsys.readouterr().out
    assert "eval/explore/coverage@100: 0." in printed
    assert "loaded at 2,048 steps" in printed  # whole steps of 64 environments
    assert 0 < coverage <= 1
    assert f"coverage {coverage:.0%}" in printed
    assert ngu.NGU.load(out).config.run.seed == 3
    with pytest.raises(SystemExit, match="exists already"):
        example.main(tyro.cli(example.Settings, args=arguments))


def test_custom_config(capsys: pytest.CaptureFixture[str]) -> None:
    example = load("custom_config")
    agent = example.main(tyro.cli(example.Settings, args=["--steps", "4000"]))
    assert agent.steps >= 4000
    config = agent.config
    assert (config.variant, config.novelty.lifelong) == ("ngu-no-rnd", False)  # from the variant
    assert (config.env.maze_size, config.mixture.num_mixtures) == (7, 2)  # from the file
    assert (config.env.num_envs, config.run.seed) == (32, 7)  # from the code
    printed = capsys.readouterr().out
    assert "refused: env.maze_size is 8" in printed
    assert "eval/exploit/coverage@60" in printed
    assert "eval/explore/coverage@60" in printed


def test_custom_config_from_a_file(tmp_path: Path) -> None:
    example = load("custom_config")
    path = tmp_path / "mine.toml"
    path.write_text("[env]\nmaze_size = 5\n[evaluation]\nnum_envs = 4\n")
    agent = example.main(tyro.cli(example.Settings, args=["--config", str(path), "--steps", "320"]))
    assert (agent.config.env.maze_size, agent.config.mixture.num_mixtures) == (5, 1)


def test_goal_mountain_car() -> None:
    """As a script: its environment is defined there, and worker processes do not run the script again."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / "goal_mountain_car.py")]
    command += ["--steps", "4000", "--num-envs", "8", "--seed", "1"]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stderr
    printed = dict(line.rpartition(": ")[::2] for line in answer.stdout.splitlines())
    assert 0 <= float(printed["eval/exploit/score"]) <= 100
    assert -1 < float(printed["eval/explore/farthest"]) <= 1
    assert 0 < float(printed["eval/exploit/length"]) <= 200
    assert re.fullmatch(r"after \d+ steps", answer.stdout.splitlines()[-1].partition(":")[0])
    assert "Warning" not in answer.stderr


def test_goal_mountain_car_is_paid_at_the_goal_alone() -> None:
    example = load("goal_mountain_car")
    assert gymnasium.make("GoalMountainCar-v0", render_mode="rgb_array").render_mode == "rgb_array", "for `ngu record`"
    env = example.make_environment()
    assert env.observation_space.contains(env.reset(seed=0)[0])
    rewards, velocity, terminated = [], 0.0, False
    while not terminated:
        # With the speed it has, whichever way that is: it swings up.
        observation, reward, terminated, truncated, info = env.step(2 if velocity >= 0 else 0)
        velocity = observation[1]
        assert not truncated
        rewards.append(reward)
    assert rewards == [0.0] * (len(rewards) - 1) + [100.0]
    assert info["farthest"] == pytest.approx(observation[0])
    assert abs(observation).max() <= 1


def test_ppo_sees_more_of_mountain_car_with_the_intrinsic_reward(capsys: pytest.CaptureFixture[str]) -> None:
    """Long enough for the difference to be large: the car has left the valley's floor."""
    example = load("intrinsic_reward_with_ppo")
    outcomes = example.main(tyro.cli(example.Settings, args=["--steps", "28000"]))
    assert outcomes["with"].coverage > 2 * outcomes["without"].coverage
    assert outcomes["without"].terminated == 0
    assert outcomes["with"].episodes >= 16
    printed = capsys.readouterr().out
    assert "beta 0: coverage" in printed
    assert "beta 0.5: coverage" in printed


def test_ppo_takes_images(capsys: pytest.CaptureFixture[str]) -> None:
    example = load("intrinsic_reward_with_ppo")
    arguments = ["--env", "ngu/DiscoMaze-v0", "--env-options", "size", "7", "step_cap", "20"]
    arguments += ["--steps", "400", "--num-envs", "4", "--rollout", "50", "--minibatch", "64"]
    outcomes = example.main(tyro.cli(example.Settings, args=arguments))
    open_cells = 17  # of a maze of 3 x 3 rooms
    for outcome in outcomes.values():
        assert outcome.terminated > 10
        assert 1 / open_cells <= outcome.coverage < 0.5
        assert outcome.mean_return == 0.0
    assert capsys.readouterr().out.startswith("ngu/DiscoMaze-v0, 400 steps")


def test_ppos_advantages_are_the_definition() -> None:
    """Against a loop over the definition: terminal values are 0, time limits bootstrap, nothing crosses an end."""
    example = load("intrinsic_reward_with_ppo")
    generator = torch.Generator().manual_seed(0)
    steps, envs, discount, decay = 12, 5, 0.9, 0.8
    terminated = torch.rand(steps, envs, generator=generator) < 0.2
    ended = terminated | (torch.rand(steps, envs, generator=generator) < 0.2)
    value, reward = (torch.randn(steps, envs, generator=generator) for _ in range(2))
    last_value = torch.randn(envs, generator=generator)
    empty = torch.zeros(steps, envs)
    rollout = example.Rollout(empty, empty, empty, value, empty, reward, terminated, ended, ~ended)
    result = example.advantages(rollout, last_value, discount, decay)
    for e in range(envs):
        for t in range(steps):
            total, weight = 0.0, 1.0
            for s in range(t, steps):
                after = value[s + 1, e] if s + 1 < steps else last_value[e]
                total += weight * float(reward[s, e] + discount * after * (not terminated[s, e]) - value[s, e])
                weight *= discount * decay
                if ended[s, e]:
                    break
            assert float(result[t, e]) == pytest.approx(total, abs=1e-5)


def train_montezuma(variant: str, folder: Path) -> Training:
    """A run of a few steps."""
    tiny = {**SCALES["smoke"].settings["atari"], "mixture.num_mixtures": 2 if variant == "ngu" else 1}
    changes = {**tiny, "env.game": "montezuma_revenge", "run.folder": str(folder.parent), "run.name": folder.name}
    training = Training.start(ngu.preset("atari-cpu", variant, changes))
    training.run(64, show_progress=False)
    training.close()
    return training


def test_what_novelty_pays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for variant in ("ngu", "hand-crafted"):
        train_montezuma(variant, tmp_path / variant)
    example = load("what_novelty_pays")
    arguments = [str(tmp_path / "ngu"), "--others", str(tmp_path / "hand-crafted"), "--envs", "2", "--steps", "150"]
    told = example.main(tyro.cli(example.Settings, args=arguments))
    players = ["the agent", "at random", str(tmp_path / "hand-crafted")]
    measures = ["place", "f, xi 0.008", "f, xi 0.2", "f, xi 0.5"]
    assert list(told) == [(measure, player) for measure in measures for player in players]
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(told)
    for measure in measures:  # the untrained agents may not move at all
        numbers = told[measure, "at random"]
        assert numbers["new"][0] > 0
        assert numbers["rank"][0] == pytest.approx(1) if measure == "place" else 0 < numbers["rank"][0] < 1
    again = told["place", "at random"]["in this life"][0]
    assert again < 0.5, "a place that is known pays less than half of what a new one does"
    with pytest.raises(SystemExit, match="not learned; name one that has an f"):
        example.main(example.Settings(tmp_path / "hand-crafted"))


def test_what_novelty_pays_counts_visits_and_follows_algorithm_1() -> None:
    example = load("what_novelty_pays")
    path = [(50, 200), (51, 200), (60, 200), (50, 202), (120, 200), (50, 200), (50, 200), (90, 200), (60, 200)]
    first = torch.tensor([True, *[False] * 5, True, *[False] * 2]).unsqueeze(1)
    exact = torch.tensor([[[x, y, 1.0]] for x, y in path])
    seen = example.visits(example.Games(exact, exact, first))
    assert seen.count.squeeze(1).tolist() == [0, 1, 0, 2, 0, 3, 0, 0, 0]
    assert [seen.away[t].item() for t in (1, 3, 5)] == [1, 2, 2]
    assert seen.age.squeeze(1).tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    # From 50 to 120 the player has died, and from 120 to 50 again.
    assert [seen.this_life[t].item() for t in (1, 3, 5)] == [True, True, False]

    average, memory = MovingAverage(0.999), list[Any]()
    constants = Constants(k=3, epsilon=1e-4, xi=0.2)
    expected = []
    for state, begins in zip(exact.squeeze(1).numpy(), first.squeeze(1), strict=True):
        memory = [] if begins else memory
        reward = algorithm_1(memory, state, average, constants)
        expected.append(0.0 if begins else reward)
        memory.append(state)
    kernel = example.Kernel(3, 1e-4, 0.2, 1e-3, 8.0)
    assert example.novelty(exact, first, kernel).squeeze(1).tolist() == pytest.approx(expected, rel=1e-4)


def test_where_games_come_to(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    example = load("where_games_come_to")
    monkeypatch.setattr(example, "_STRETCH", 1000)
    arguments = "atari-cpu --variant ngu-n1 --game montezuma_revenge --env.backend workers --env.workers 1"
    arguments += " --env.num-envs 8 --novelty.filters 2 2 2 --network.filters 2 2 2 --network.lstm-size 8"
    arguments += " --actor.random-steps 3000 --run.steps 3000 --replay.min-sequences 500"
    with pytest.raises(SystemExit, match=r"add --probe\.enabled"):
        example.main(arguments.split())
    with pytest.raises(SystemExit, match=r"--env\.backend workers"):
        example.main(arguments.replace("montezuma_revenge", "pong").split())
    told = example.main([*arguments.split(), "--probe.enabled"])
    assert [steps for steps, _ in told] == [1000, 2000, 3000]
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert all(0 <= share <= 1 for _, shares in told for share in shares)


def test_where_games_come_to_counts_games_by_their_goals() -> None:
    example = load("where_games_come_to")

    def step(x: list[float], y: list[float], reward: list[float], first: list[bool]) -> Any:
        info = {"player_x": torch.tensor(x), "player_y": torch.tensor(y), "rooms": torch.ones(2)}
        return SimpleNamespace(info=info, reward=torch.tensor(reward), first=torch.tensor(first))

    steps = [
        step([133, 77], [170, 235], [0, 0], [False, False]),  # the right ladder
        step([133, 21], [170, 180], [0, 0], [False, False]),  # the left ladder
        step([77, 15], [235, 200], [0, 100], [True, False]),  # the first game is over; the key
        step([133, 15], [148, 200], [0, 0], [False, False]),  # the floor
    ]
    actor = SimpleNamespace(env=SimpleNamespace(num_envs=2), receive=iter(steps).__next__)
    watched = example.Watched(actor)
    for _ in steps:
        actor.receive()
    assert watched.pop().tolist() == [[True, False, False], [False, False, False], [False, True, True]]
    assert watched.pop().tolist() == [[False, False, False]] * 2


def test_what_the_way_to_the_key_pays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_montezuma("ngu", tmp_path / "run")
    example = load("what_the_way_to_the_key_pays")
    settings = tyro.cli(example.Settings, args=[str(tmp_path / "run")])
    told = example.main(settings)
    assert list(told) == ["place", "f, xi 0.008", "f, xi 0.05", "f, xi 0.2", "alpha"]
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(told)
    parts = ["upper half", "right ladder", "floor", "left ladder, key"]
    assert all(list(column) == parts for column in told.values())
    assert all(told["place"][part] > 10 for part in parts), "a good way stays nowhere for long"
    assert told["f, xi 0.2"]["upper half"] < told["f, xi 0.008"]["upper half"]
    assert all(1 <= alpha <= 5 for alpha in told["alpha"].values())

    way = example.way_to_the_key(settings)
    game = AtariGame("montezuma_revenge")
    game.reset(seed=settings.seed, options={"noops": 0})
    rewards = [game.step(action)[1] for action in way]
    assert rewards == [0.0] * (len(way) - 1) + [100.0]
    with pytest.raises(SystemExit, match="no way to the key was found in"):
        example.main(tyro.cli(example.Settings, args=[str(tmp_path / "run"), "--patience", "100"]))
    states = torch.tensor([[0.0], [3.0], [3.0], [4.0]])
    constants = Constants(k=2, epsilon=1e-4, xi=0.2)
    config = NoveltyConfig(neighbours=2, kernel_epsilon=1e-4, cluster_distance=0.2)
    paid = example.novelty(states, torch.tensor(4.0), config)
    expected = [
        reward_of_distances(neighbour_distances(list(states[:t].numpy()), states[t].numpy(), 2), 4.0, constants)
        for t in range(1, 4)
    ]
    assert paid.tolist() == pytest.approx([0.0, *expected], rel=1e-4)


@pytest.mark.parametrize("variant", ["ngu", "hand-crafted"])
def test_look_into_a_game_agent(variant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = train_montezuma(variant, tmp_path / "run")
    example = load("look_into_a_game_agent")
    arguments = [str(tmp_path / "run"), "--envs", "2", "--steps", "120", "--map"]
    told = example.main(tyro.cli(example.Settings, args=arguments))
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed if "rooms" in line] == ["the agent", "at random"]
    assert printed.count("room 1") == 2
    for columns in told.values():
        assert all(0 <= share <= 1 for share in columns["stuck"])
        assert columns["came"][0] > 0, "every step pays something"
        assert sum(columns["moved"]) == pytest.approx(1, abs=0.05)  # the first step of an episode is no move
        assert sum(columns["paid"]) == pytest.approx(1, abs=0.05)
    before = torch.tensor([[50, 200]]).expand(6, 2)
    after = torch.tensor([[50, 195], [52, 203], [51, 198], [50, 200], [90, 200], [50, 250]])
    assert example.moves(before, after).tolist() == [0, 1, 2, 3, 4, 4]

    played = example.play(
        example.Player.load(tmp_path / "run", "explore"), example.Settings(tmp_path / "run", 2, 50), True
    )
    assert played.visits[0].tolist() == [0, 0], "nobody has been anywhere"
    assert torch.equal(played.places, (played.visits == 0).cumsum(0)), "each first visit is a new place"
    assert played.visits.max() > 1, "in 50 random steps the player comes back to some places"
    assert played.age[-1].tolist() == [50.0, 50.0]
    rooms, columns = example.drawn(played)[0], {(int(x), int(y)) for x, y, _ in played.place.flatten(0, 1)}
    assert rooms == "room 1"
    assert sum(line[5:].count("+") + line[5:].count("#") for line in example.drawn(played)[1:]) == len(columns)
    # Three episodes of one environment: all come to one place, two to another, one of them twice, one to a third.
    places = torch.tensor([[[2, 9, 1]], [[2, 9, 1]], [[3, 9, 1]], [[3, 9, 1]], [[2, 9, 1]], [[3, 9, 1]], [[0, 8, 1]]])
    begins = torch.tensor([0, 0, 0, -1, -1, 0, 0]).unsqueeze(1)
    some = replace(played, place=places, move=begins)
    assert example.drawn(some) == ["room 1", "  36   ##", "  32 +"]
    config = training.config
    beta, discount = config.mixture.beta, discounts(config.mixture.num_mixtures, 0.997, 0.99)[-1]
    expected = sum(discount**t * beta * played.novelty[1 + t] for t in range(49))
    assert torch.allclose(played.came[0], expected, rtol=1e-4)


def test_look_into_a_maze_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tables against what the evaluator says, and against counting step by step."""
    steps, mazes, size = 12, 16, 7
    config = make_tiny_config(run__folder=str(tmp_path), run__name="run", evaluation__num_envs=mazes)
    training = Training.start(config)
    training.run(2000, show_progress=False)
    evaluated = training.evaluate()["eval/explore/coverage@12"]
    training.close()
    example = load("look_into_a_maze_agent")
    played = example.main(tyro.cli(example.Settings, args=[str(tmp_path / "run"), "--mazes", str(mazes)]))
    printed = capsys.readouterr().out.splitlines()
    last = next(line for line in reversed(printed) if line.count("%") == 2)
    assert float(last.split()[-1].rstrip("%")) / 100 == pytest.approx(evaluated, abs=0.001)

    assert played.reward.shape == (3 * steps, mazes)
    visits, back = example.visits_before(played), example.turns_back(played, size)
    sums = example.returns(played.reward, 0.9)
    for maze in range(mazes):
        path = played.position[:, maze].tolist()
        assert [path[: time + 1].count(path[time + 1]) for time in range(3 * steps)] == visits[:, maze].tolist()
        for time in range(1, 3 * steps):
            around = [path[time] + move for move in (-1, 1, -size, size)]
            ways = sum(not bool(played.walls[maze, cell]) for cell in around)
            returned = path[time + 1] == path[time - 1] and ways > 1 and bool(played.alive[time, maze])
            assert bool(back[time - 1, maze]) == returned
        expected = sum(0.9**time * float(reward) for time, reward in enumerate(played.reward[:, maze]))
        assert float(sums[0, maze]) == pytest.approx(expected, rel=1e-5)

    # A corridor from 37 to 41 with a way down at 39: the agent passes it by twice and takes it when it comes again.
    walls = torch.ones(1, 81, dtype=torch.bool)
    walls[0, [37, 38, 39, 40, 41, 48]] = False
    path = torch.tensor([[38, 39, 40, 41, 40, 39, 38, 37, 38, 39, 48]]).T
    alive = torch.ones(10, 1, dtype=torch.bool)
    walk = example.Played(path, walls, torch.zeros(10, 1), torch.zeros(10, 1), alive)
    found = {kind: (chosen.steps, chosen.took) for kind, chosen in example.choices(walk, 9, 10).items()}
    assert found == {"fork, first time": (1, 1), "fork, again": (2, 1), "corridor": (2, 2)}


def test_what_tours_earn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tours are closed walks over open cells; the whole one sees everything, the one without twigs what it should."""
    config = make_tiny_config(
        run__folder=str(tmp_path), run__name="run", evaluation__max_steps=60, env__maze_step_cap=60
    )
    training = Training.start(config)
    training.run(64, show_progress=False)
    training.close()
    example = load("what_tours_earn")
    earned = example.main(tyro.cli(example.Settings, args=[str(tmp_path / "run"), "--mazes", "16"]))
    printed = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in printed[1:]] == list(example.TOURS)
    # 7x7: 17 open cells, so a tour of at most 32 steps.
    assert earned["all of it"].coverage == earned["twigs on the way back"].coverage == 1
    assert 0 < earned["without twigs"].coverage < 1
    assert all(tour.returned > 0 for tour in earned.values())

    # A corridor of six cells from left to right, with a twig of two at the third.
    size, cells = 9, [37, 38, 39, 40, 41, 42, 48, 57]
    walls = [cell not in cells for cell in range(size * size)]
    there, here, twig = [37, 38, 39, 40, 41, 42], [41, 40, 39, 38, 37], [48, 57, 48, 39]
    assert example.tour(walls, size, 37, False, False) == there + here
    assert example.tour(walls, size, 37, True, False) == [37, 38, 39, *twig, 40, 41, 42, *here]
    assert example.tour(walls, size, 37, False, True) == [*there, 41, 40, 39, *twig, 38, 37]
