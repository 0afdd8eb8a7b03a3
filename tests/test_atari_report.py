"""Reports, recordings and evaluations of Atari and Gymnasium runs, looked at as a user would."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from test_report import Page, last_values

from ngu.agent import load_policy
from ngu.checkpoint import load_newest
from ngu.cli import main
from ngu.commands.session import final_results
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.envs.atari_game import AtariGame
from ngu.envs.atari_games import ATARI_GAMES, human_normalised
from ngu.envs.gym import make_gymnasium_spec
from ngu.errors import UserError
from ngu.networks import AgentInput, QNetwork, RecurrentState
from ngu.policy import Policy
from ngu.presets import preset
from ngu.report import poster, read_results, record_episode, write_figure, write_report, write_results_csv
from ngu.report.film import BLUE, ORANGE
from ngu.report.games.episode import bars, play
from ngu.report.games.film import GameFilm, ScreenColours
from ngu.report.games.pictures import novel_steps
from ngu.report.groups import make_groups
from ngu.report.results import read_sources
from ngu.report.style import ALPHA, INTRINSIC
from ngu.report.worlds import World
from ngu.run_folder import RunFolder
from ngu.training import Training

RGB = NDArray[np.uint8]

TINY = {
    "env.num_envs": 2,
    "env.workers": 1,
    "env.threads": 1,
    "env.max_frames": 1200,
    "mixture.num_mixtures": 2,
    "novelty.filters": (4, 4, 4),
    "novelty.hidden": (8,),
    "novelty.memory_capacity": 500,
    "network.filters": (4, 4, 4),
    "network.hidden": (8,),
    "network.torso_size": 16,
    "network.lstm_size": 16,
    "network.dueling_size": 16,
    "replay.capacity": 2000,
    "replay.trace_length": 16,
    "replay.period": 8,
    "replay.min_sequences": 6,
    "learner.batch_size": 4,
    "evaluation.num_envs": 1,
    "evaluation.max_steps": 20,
    "evaluation.period": 100,
    "evaluation.epsilon": 0.0,
    "run.log_period": 40,
    "run.steps": 200,
    "run.checkpoint_period": 100,
    "run.tensorboard": False,
}
MAZE = "ngu.envs:ngu/DiscoMaze-v0"


def tiny(base: str, **changes: Any) -> Config:
    return with_overrides(preset(base), {**TINY, **{name.replace("__", "."): value for name, value in changes.items()}})


def train(folder: Path, name: str, base: str, **changes: Any) -> Path:
    """A run of 200 steps; larger weights make its policies differ and heed what they see."""
    training = Training.start(tiny(base, run__folder=str(folder), run__name=name, **changes))
    with torch.no_grad():
        for weight in training.runner.agent.learner.network.parameters():
            weight.mul_(3)
    training.run(show_progress=False)
    training.close()
    return folder / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Montezuma's Revenge on the emulator's own threads; CartPole, whose observations are no pictures."""
    folder = tmp_path_factory.mktemp("runs")
    train(folder, "montezuma", "atari-cpu", env__game="Montezuma's Revenge")
    train(folder, "cartpole", "gym", env__id="CartPole-v1")
    return folder


@pytest.fixture(scope="module")
def page(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return Page(write_report([runs / "montezuma"], tmp_path_factory.mktemp("page") / "page.html"))


# The page of a game


def test_a_games_page_has_its_own_parts_and_none_of_the_mazes(page: Page) -> None:
    topic = "Montezuma-s-Revenge"
    assert page.sections == [f"score-{topic}", "game-episode", f"curves-{topic}", "settings", "origin", "glossary"]
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert "http" not in page.source
    shown = page.source[: page.source.index('<section id="settings">')]
    for word in ("maze", "coverage", "scripted", "wall-follower", "open cells"):
        assert word not in shown.lower()
    assert "Never Give Up on Montezuma's Revenge" in page.text


def test_steps_and_frames_are_both_named(page: Page) -> None:
    assert "after 200 agent steps (800 frames) of training" in page.text
    assert page.text.count("frames (4 in a step)") == 3  # score, human-normalised score, rooms
    assert page.text.count("agent steps (4 frames each)") >= 7
    cards = {what: (number, small) for what, number, small in _cards(page)}
    assert cards["agent steps"] == ("200", "800 frames")


def _cards(page: Page) -> list[tuple[str, str, str]]:
    pattern = r'<div class="card[^"]*"><span>(.*?)</span><b>(.*?)</b>(?:<small>(.*?)</small>)?</div>'
    return re.findall(pattern, page.source)


def test_both_policies_stand_beside_the_published_players(runs: Path, page: Page) -> None:
    values = last_values(runs / "montezuma")
    facts = ATARI_GAMES["montezuma_revenge"]
    for policy in ("exploit", "explore"):
        score, human = values[f"eval/{policy}/score"], values[f"eval/{policy}/human_normalised"]
        assert human == pytest.approx(human_normalised("montezuma_revenge", score))
        assert page.cells(f"agent, {policy}")[1:3] == [f"{score:g}", f"{human:.1f}\N{NO-BREAK SPACE}%"]
        rooms, length = page.cells(f"agent, {policy}")[3:5]
        assert rooms == f"{values[f'eval/{policy}/rooms']:g}"
        assert length == "20"  # every episode was cut there
    assert page.cells("human tester")[1:3] == [f"{facts.human:,.0f}", "100.0\N{NO-BREAK SPACE}%"]
    assert page.cells("random player")[1:3] == ["0", "0.0\N{NO-BREAK SPACE}%"]


def test_the_page_draws_what_is_asked_of_learning(page: Page) -> None:
    for title in (
        "Score in evaluation", "Human-normalised score", "Inverse model: accuracy", "commonest action",
        f"Life-long modulator {ALPHA}", f"Intrinsic reward {INTRINSIC} while training", "Retrace loss",
        "Loss of RND's predictor",
    ):  # fmt: skip
        assert title in page.text, title
    assert "exploit" in page.text
    assert "explore" in page.text


def test_screens_of_the_episode_are_in_the_page(runs: Path, page: Page) -> None:
    seed = RunFolder.open(runs / "montezuma").config.evaluation.seed
    episode = play(runs / "montezuma", steps=2000, seed=seed).episode
    steps = novel_steps(episode)
    assert len(steps) == len(page.pictures) == 8
    for picture, step in zip(page.pictures, steps, strict=True):
        np.testing.assert_array_equal(np.asarray(picture.convert("RGB")), episode.screen(step))
        assert f"step {step:,}" in page.text
    # Each is the most novel of its eighth.
    parts = np.array_split(np.arange(1, episode.length + 1), 8)
    for part, step in zip(parts, steps, strict=True):
        assert abs(part[0] - step) < len(part) + 2
        assert episode.reward[step] >= episode.reward[part[1:-1]].max()
    assert f"score {episode.score[-1]:g} after {episode.length} steps, 1 room visited, mean intrinsic" in page.text


def test_a_killed_run_of_a_game_still_gives_a_report(runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "montezuma", tmp_path / "killed")
    shutil.rmtree(run / "checkpoints")
    (run / "metrics.jsonl").unlink()
    page = Page(write_report([run], tmp_path / "page.html"))
    assert "No evaluation has been made yet." in page.text
    assert "No episode can be drawn: there is no checkpoint" in page.text
    assert unescape(page.cells("env.game")[1]) == "Montezuma's Revenge"


# An episode


def by_hand(run: Path, game: gymnasium.Env[Any, Any], mixture: int, seed: int, steps: int) -> dict[str, list[Any]]:
    """The same episode, with the policy as `NGU.predict` uses it and a game stepped here."""
    folder = RunFolder.open(run)
    config = folder.config
    state = load_newest(folder.checkpoints).state
    spec = make_gymnasium_spec(game)

    class Shapes:
        spec = make_gymnasium_spec(game)

    learner, statistics = load_policy(config, Shapes(), state, torch.device("cpu"))  # type: ignore[arg-type]
    policy = Policy(config, spec, learner, statistics)
    memory = policy.begin(1)
    found: dict[str, list[Any]] = {"reward": [], "alpha": [], "score": [], "screen": [], "room": []}
    observation, info = game.reset(seed=int(np.random.SeedSequence(seed).generate_state(1)[0]) >> 1)
    gained, ended, total = 0.0, False, 0.0
    for _ in range(steps + 1):
        total += gained
        array = torch.from_numpy(np.asarray(observation, dtype=str(spec.observation_dtype)[6:]))[None]
        action = policy.act(array, memory, torch.tensor([gained]), mixture, 0.0)
        found["reward"].append(memory.intrinsic.item())
        assert memory.novelty.rnd is not None
        moments = memory.novelty.moments
        deviation = moments.deviation.item()  # 0 at the first error of all
        over = memory.novelty.rnd.error(array).item() - moments.mean.item()
        found["alpha"].append(1 + (over / deviation if deviation else 0.0))
        found["score"].append(info.get("score", total))
        found["screen"].append(game.render() if game.render_mode else None)
        found["room"].append(game.unwrapped.room if isinstance(game.unwrapped, AtariGame) else None)
        if ended:
            break
        observation, gained, terminated, truncated, info = game.step(int(action))
        ended = terminated or truncated
    return found


@pytest.mark.parametrize("policy", ["exploit", "explore"])
def test_an_episode_is_what_the_policy_plays_in_a_game_stepped_by_hand(runs: Path, policy: str) -> None:
    run = runs / "montezuma"
    played = play(run, steps=150, seed=4, policy=policy)
    episode = played.episode
    assert (played.policy, played.epsilon, played.checkpoint_step) == (policy, 0.0, 200)
    game = AtariGame("montezuma_revenge", max_frames=1200, render_mode="rgb_array")
    twin = by_hand(run, game, 0 if policy == "exploit" else 1, 4, 150)
    assert episode.length == len(twin["score"]) - 1
    assert episode.room is not None
    assert episode.room.tolist() == twin["room"]
    assert episode.score.tolist() == twin["score"]
    # No action follows a terminal observation, so its novelty is not paid.
    np.testing.assert_allclose(episode.reward[1:-1], twin["reward"][1:-1], rtol=1e-4)
    assert episode.reward[1:-1].any()
    np.testing.assert_allclose(episode.alpha, twin["alpha"], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(episode.reward, episode.episodic * np.clip(episode.alpha, 1, 5), rtol=1e-5)
    for step in range(0, episode.length + 1, 10):
        np.testing.assert_array_equal(episode.screen(step), twin["screen"][step])


def test_the_policies_play_differently_and_seeds_do(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a network that prefers the action of its policy's number: one that has hardly learned may play alike."""
    plain = QNetwork.step

    def step(self: QNetwork, inputs: AgentInput, *rest: Any) -> tuple[torch.Tensor, RecurrentState]:
        values, state = plain(self, inputs, *rest)
        return values + 1000.0 * (torch.arange(values.shape[1]) == inputs.mixture.unsqueeze(1)), state

    monkeypatch.setattr(QNetwork, "step", step)

    def rewards(**choice: Any) -> list[float]:
        return play(runs / "montezuma", steps=60, **choice).episode.reward.tolist()

    first = rewards(seed=0, policy="explore")
    assert rewards(seed=0, policy="explore") == first
    assert rewards(seed=0, policy="exploit") != first
    assert rewards(seed=1, policy="explore") != first
    with pytest.raises(UserError, match="the policy exploits does not exist"):
        rewards(seed=0, policy="exploits")


def test_numbers_that_are_observed_are_kept_as_they_are(runs: Path) -> None:
    played = play(runs / "cartpole", steps=30, seed=2)
    episode = played.episode
    twin = by_hand(runs / "cartpole", gymnasium.make("CartPole-v1"), 1, 2, 30)
    assert episode.score.tolist() == twin["score"] == list(range(episode.length + 1))
    assert episode.ended
    assert episode.room is None
    if played.no_screen:  # without pygame
        assert episode.vectors is not None
        assert episode.vectors.shape == (episode.length + 1, 4)
        assert abs(episode.vectors[-1, 2]) > 0.2  # the pole has fallen


def test_an_entry_point_that_takes_no_render_mode_is_recorded_without_a_screen(tmp_path: Path) -> None:
    run = train(tmp_path, "cart", "gym", env__id="gym_factories:test/Unasked-v0")
    played = play(run, steps=5, seed=0)
    assert "unexpected keyword argument 'render_mode'" in played.no_screen
    assert played.episode.vectors is not None
    assert main(["record", str(run), "--steps", "5"]) == 0


def test_an_environments_own_picture_is_shown(tmp_path: Path) -> None:
    """The Disco Maze as a Gymnasium environment draws itself, 16 pixels a cell, and measures its coverage."""
    run = train(tmp_path, "maze", "gym", env__id=MAZE, **SMALL_KERNELS)
    played = play(run, steps=50, seed=0)
    assert not played.no_screen
    screen = played.episode.screen(0)
    assert screen.shape == (21 * 16, 21 * 16, 3)
    assert ((screen == (0, 255, 0)).all(-1)).sum() == 16 * 16  # the player
    page = Page(write_report([run], tmp_path / "page.html"))
    assert "Measured by the environment: coverage" in page.text
    assert "frames" not in page.source[: page.source.index('<section id="settings">')]
    assert page.pictures[0].size == (336, 336)


SMALL_KERNELS = {
    f"{group}__{name}": value
    for group in ("novelty", "network")
    for name, value in (("kernels", (3, 3, 3)), ("strides", (2, 2, 1)))
}


def test_an_environment_that_fails_is_said_in_the_page(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(runs / "cartpole", tmp_path / "broken")
    content = json.loads((run / "config.json").read_text())
    content["config"]["env"]["id"] = "NoSuchCart-v1"
    (run / "config.json").write_text(json.dumps(content))
    page = Page(write_report([run], tmp_path / "page.html"))
    assert "No episode can be drawn: the Gymnasium environment NoSuchCart-v1 does not exist" in page.text
    monkeypatch.setattr(CartPoleEnv, "step", lambda *_: 1 // 0)
    page = Page(write_report([runs / "cartpole"], tmp_path / "page.html"))
    assert "No episode can be drawn: the environment raised ZeroDivisionError" in page.text
    assert "Score in evaluation" in page.text


@given(st.integers(1, 400), st.data())
def test_bars_stand_on_the_middle_by_their_share(count: int, data: st.DataObject) -> None:
    vector = np.array(data.draw(st.lists(st.floats(-2, 2, width=32), min_size=count, max_size=count)), dtype=np.float32)
    picture = bars(vector, np.full(count, 2.0, dtype=np.float32))
    column = picture.shape[1] // count
    for place in range(count):
        strip = picture[:, place * column + column // 2]
        up, down = (strip == (0, 114, 178)).all(-1).sum(), (strip == (213, 94, 0)).all(-1).sum()
        assert up == pytest.approx(max(vector[place], 0) / 2 * 101, abs=1)
        assert down == pytest.approx(max(-vector[place], 0) / 2 * 101, abs=1)


# The animation


def frames_of(path: Path) -> list[RGB]:
    with Image.open(path) as image:
        frames = []
        for index in range(image.n_frames):
            image.seek(index)
            frames.append(np.asarray(image.convert("RGB")))
        return frames


def test_a_gif_shows_the_screen_twice_as_large_in_its_own_colours(runs: Path, tmp_path: Path) -> None:
    run = runs / "montezuma"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    frames = frames_of(record_episode(run, tmp_path / "a.gif", seed=3, steps=40))
    played = play(run, steps=40, seed=3)
    film = GameFilm(played)
    assert len(frames) == 41
    assert {frame.shape for frame in frames} == {(film.height, film.width, 3)}
    for step, frame in enumerate(frames):
        shown = frame[film.top : film.top + 420, film.left : film.left + 320]
        np.testing.assert_array_equal(shown, played.episode.screen(step).repeat(2, 0).repeat(2, 1))
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_plots_grow_with_the_episode_and_numbers_change(runs: Path, tmp_path: Path) -> None:
    played = play(runs / "montezuma", steps=40, seed=3)
    film = GameFilm(played)
    frames = frames_of(record_episode(runs / "montezuma", tmp_path / "a.gif", seed=3, steps=40))
    assert [track.headline(40).partition(":")[0] for track in film.tracks] == [
        "Score", "Intrinsic reward r_i", f"Modulator {ALPHA}", f"Room 1, {played.episode.rooms[-1]:.0f} visited so far",
    ]  # fmt: skip
    top, bottom = film.plot_of(1)
    reward = played.episode.reward
    widths = []
    for frame in frames:
        bars_seen = (frame[top : bottom + 1, film.plot_left : film.plot_right] == film.palette[BLUE]).all(-1)
        widths.append(int(bars_seen.any(0).sum()))
    assert widths[0] == 0
    assert widths == sorted(widths)
    assert widths[-1] == film.plot_right - film.plot_left  # r_i is never 0 inside this episode
    # The highest bar is that of the highest reward, and fills the plot.
    heights = bars_seen.sum(0)
    peak = int(reward.argmax())
    inner = film.plot_right - film.plot_left
    assert heights[inner * (peak - 1) // 40] == heights.max() == bottom - top + 1
    # The line of alpha passes where its values are, between the lowest and the highest of them and 1.
    top, bottom = film.plot_of(2)
    alpha = played.episode.alpha
    low, high = min(alpha.min(), 1), max(alpha.max(), 1)
    for step in (1, 10, 25, 40):
        column = film.plot_left + (2 * step - 1) * inner // 80
        (rows,) = np.nonzero((frames[-1][top - 2 : bottom + 1, column] == film.palette[ORANGE]).all(-1))
        assert top - 2 + rows.max() == pytest.approx(
            bottom - (bottom - top) * (alpha[step] - low) / (high - low), abs=1
        )
    for index in range(3):
        head = slice(film.plot_of(index)[0] - 24, film.plot_of(index)[0] - 6)
        seen = {frame[head, film.plot_left :].tobytes() for frame in frames}
        assert len(seen) == len({film.tracks[index].headline(step) for step in range(41)})
    corner = [frame[:28, film.plot_left :] for frame in frames]
    assert len({area.tobytes() for area in corner}) == 41  # the step


def test_a_long_recording_shows_every_second_step(runs: Path) -> None:
    played = play(runs / "montezuma", steps=20, seed=3)
    episode = played.episode
    for name in ("score", "reward", "episodic", "alpha", "room"):
        setattr(episode, name, np.resize(getattr(episode, name), 1001))
    episode.screens = [episode.screens[step % 21] for step in range(1001)]
    film = GameFilm(played)
    assert film.shown == list(range(0, 1001, 2))
    assert sum(1 for _ in film.frames()) == 501


def test_the_command_records_either_policy_for_as_long_as_it_is_told(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.gif"
    for policy in ("exploit", "explore"):
        arguments = ["record", str(runs / "montezuma"), "--out", str(out), "--policy", policy, "--steps", "12"]
        assert main(arguments) == 0
        assert capsys.readouterr().out == f"{out}\n"
        assert len(frames_of(out)) == 13
    assert main(["record", str(runs / "montezuma"), "--steps", "0"]) == 2
    assert "--steps is 0; set it to 1 or more" in capsys.readouterr().err
    assert not (runs / "montezuma" / "episode.gif").exists()


def test_an_episode_of_numbers_is_drawn_as_bars(runs: Path, tmp_path: Path) -> None:
    played = play(runs / "cartpole", steps=1000, seed=3)
    frames = frames_of(record_episode(runs / "cartpole", tmp_path / "a.gif", seed=3))
    film = GameFilm(played)
    assert len(frames) == played.episode.length + 1
    for step, frame in enumerate(frames):
        shown = frame[film.top : film.top + film.screen_height, film.left : film.left + film.screen_width]
        if film.scale > 1 or played.no_screen:
            expected = played.episode.screen(step).repeat(film.scale, 0).repeat(film.scale, 1)
            np.testing.assert_array_equal(shown, expected)


@given(st.integers(1, 400), st.integers(0, 99))
def test_few_colours_are_kept_and_many_are_near(colours: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    palette = random.integers(0, 256, (colours, 3), dtype=np.uint8)
    screens = [palette[random.integers(0, colours, (12, 15))] for _ in range(3)]
    reduced = ScreenColours(lambda step: screens[step], range(3))
    errors = [
        np.abs(reduced.palette[reduced.numbers(screen)].astype(int) - screen).max(-1).mean() for screen in screens
    ]
    assert max(errors) < 20
    if len(np.unique(np.concatenate(screens).reshape(-1, 3), axis=0)) <= 208:
        assert max(errors) == 0


def test_a_poster_of_a_game_is_its_episode(runs: Path, tmp_path: Path) -> None:
    with Image.open(poster(runs / "montezuma", tmp_path / "poster.png")) as image:
        drawn = np.asarray(image.convert("RGB"))
    water = (drawn == (66, 158, 130)).all(-1)  # the green of the first room's walls
    assert water[: len(drawn) // 4].sum() > 1000
    assert not water[len(drawn) // 2 :].any()
    blue = (drawn == (0x00, 0x72, 0xB2)).all(-1)
    assert blue.sum() > 1000


# Results files


@pytest.fixture
def results(runs: Path, tmp_path: Path) -> Path:
    """Two games, one of them with two variants and two seeds: one run under several names."""
    folder = tmp_path / "results"
    text = write_results_csv(runs / "montezuma", folder / "mr-ngu-0.csv", machine="a laptop").read_text()
    (folder / "mr-ngu-1.csv").write_text(text.replace("# seed: 0", "# seed: 1"))
    alone = re.sub(r"# variant: ngu", "# variant: r2d2-retrace", text)
    alone = re.sub(r"eval/exploit/", "eval/other/", alone)  # a family of one has no exploiting policy
    (folder / "mr-r2d2-0.csv").write_text(alone)
    (folder / "pong-ngu-0.csv").write_text(text.replace("montezuma_revenge", "pong"))
    return folder


def test_results_name_their_game(runs: Path, results: Path, tmp_path: Path) -> None:
    lines = (results / "mr-ngu-0.csv").read_text().splitlines()
    assert "# game: montezuma_revenge" in lines
    assert not any("maze" in line for line in lines if line.startswith("#"))
    found = read_results(results / "mr-ngu-0.csv")
    assert found.world == World("atari", "montezuma_revenge")
    assert {"eval/exploit/score", "eval/explore/human_normalised", "novelty/alpha", "loss/retrace"} <= found.names()
    out = write_results_csv(runs / "cartpole", tmp_path / "cartpole.csv")
    assert "# environment: CartPole-v1" in out.read_text().splitlines()
    assert read_results(out).world == World("gym", "CartPole-v1")


def test_runs_are_grouped_by_game_and_variant(results: Path, tmp_path: Path) -> None:
    groups = make_groups(read_sources([results]))
    assert [(group.topic, group.label, len(group.runs)) for group in groups] == [
        ("Montezuma's Revenge", "NGU", 2), ("Montezuma's Revenge", "R2D2 (Retrace)", 1), ("Pong", "NGU", 1),
    ]  # fmt: skip
    assert [group.place for group in groups] == [0, 1, 0]
    page = Page(write_report([results], tmp_path / "page.html"))
    assert "Never Give Up on Montezuma's Revenge and Pong" in page.text
    assert [name for name in page.sections if name.startswith("score")] == ["score-Montezuma-s-Revenge", "score-Pong"]
    assert page.cells("NGU, exploit")[-1].startswith("2 seeds (0, 1), 200 steps in ")
    assert page.cells("R2D2 (Retrace)")[-1].startswith("seed 0, 200 steps in ")  # its one policy has no name
    assert "Score in evaluation (dashed: explore)" in page.text
    with Image.open(tmp_path / "page.png") as beside:
        width, height = beside.size
    # Two rows of three panels: one game has rooms.
    assert width == pytest.approx(height * 3 * 5.6 / (2 * 3.75), rel=0.02)
    write_figure([results], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes() == (tmp_path / "page.png").read_bytes()


def test_mazes_and_games_can_share_a_page_but_no_figure(results: Path, tmp_path: Path) -> None:
    head = "# preset: disco-maze\n# variant: ngu\n# seed: 0\n# maze_size: 7\n# maze_step_cap: 12\n"
    (results / "maze.csv").write_text(f"{head}step,time,eval/explore/coverage@3\n0,1,0.1\n9,2,0.2\n")
    page = Page(write_report([results], tmp_path / "page.html"))
    assert "Never Give Up on the 7 x 7 Random Disco Maze, Montezuma's Revenge and Pong" in page.text
    assert {"coverage-disco-maze", "score-Pong"} <= set(page.sections)
    assert page.cells("wall-follower")
    assert len(page.ids) == len(set(page.ids))
    with pytest.raises(UserError, match="name runs of one kind"):
        write_figure([results], tmp_path / "figure.png")


def test_a_results_file_without_its_game_is_refused(results: Path, tmp_path: Path) -> None:
    text = (results / "mr-ngu-0.csv").read_text()
    (tmp_path / "bad.csv").write_text(text.replace("# game: montezuma_revenge\n", ""))
    with pytest.raises(UserError, match=r"lacks a line '# game: \.\.\.'"):
        read_results(tmp_path / "bad.csv")
    (tmp_path / "bad.csv").write_text(text.replace("montezuma_revenge", "montezumas_rage"))
    with pytest.raises(UserError, match="the nearest is montezuma_revenge"):
        read_results(tmp_path / "bad.csv")


# Commands


def test_eval_plays_whole_episodes_and_counts_rooms(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run was trained without rooms, and its evaluations were cut after 20 steps."""
    assert main(["eval", str(runs / "montezuma"), "--json", "--episodes", "2"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["published"]["human tester"] == {"score": 4753.3, "human_normalised": 100.0}
    for policy in ("exploit", "explore"):
        found = answer["policies"][policy]
        assert 20 < found["length"] <= 300  # 1,200 frames at most
        assert found["rooms"] >= 1
        assert found["human_normalised"] == pytest.approx(human_normalised("montezuma_revenge", found["score"]))


def test_eval_prints_a_table_of_a_game(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs / "montezuma"
    assert main(["eval", str(run), "--steps", "15", "--epsilon", "0.5"]) == 0
    head, columns, *rows = capsys.readouterr().out.splitlines()
    assert head == f"{run} at 200 agent steps (800 frames), 1 episodes, epsilon 0.5"
    assert columns.split() == ["score", "human-normalised", "rooms", "length"]
    assert [row.split("  ")[0] for row in rows] == ["exploit", "explore", "random player", "human tester"]
    assert rows[0].split()[-1] == "15"
    assert rows[3].split()[2:] == ["4,753", "100.0%", "-", "-"]
    assert len({len(row) for row in [columns, *rows]}) == 1


def test_eval_of_a_gymnasium_environment(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(runs / "cartpole"), "--json", "--episodes", "3"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["published"] == {}
    for found in answer["policies"].values():
        assert found["score"] == found["length"] == found["return"] >= 8
        assert found.keys() == {"score", "return", "length"}


def test_training_says_score_and_human_normalised_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = {**TINY, "env.game": "pong", "run.steps": 40, "run.folder": str(tmp_path), "run.name": "pong"}
    config = tmp_path / "config.json"
    groups: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        group, field = name.split(".")
        groups.setdefault(group, {})[field] = value
    config.write_text(json.dumps(groups))
    assert main(["train", "atari-cpu", "--config", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"run: {tmp_path / 'pong'}, from step 0"
    for line, policy in zip(lines[1:3], ("exploit", "explore"), strict=True):
        score = last_values(tmp_path / "pong")[f"eval/{policy}/score"]
        expected = f"score in evaluation, {policy}: {score:g}, human-normalised {human_normalised('pong', score):.1f}%"
        assert line == expected
    assert lines[3] == f"report: {tmp_path / 'pong' / 'report.html'}"


def test_last_words_follow_what_was_measured() -> None:
    game = {"score": 12345.5, "rooms": 3.5, "return": 12345.5, "human_normalised": 259.72, "length": 900.0}
    maze = {"coverage@3": 0.25, "coverage@12": 0.5, "return": 0.0, "length": 7.0}
    own = {"score": -1.5, "return": 2.0, "speed": 1.0, "length": 7.0}
    sea = {"solved": 0.75, "return": 0.74, "length": 20.0}
    said = [
        final_results({f"eval/explore/{name}": value for name, value in found.items()})
        for found in (game, maze, own, sea, {"return": 0.0})
    ]
    assert said == [
        ["score in evaluation, explore: 12,345.5, human-normalised 259.7%, rooms visited 3.5"],
        ["coverage of held-out mazes, explore: 25.0% after 3 steps, 50.0% after 12 steps"],
        ["score in evaluation, explore: -1.5"],
        ["score in evaluation, explore: 0.74, solved 75.0%"],
        [],
    ]
