"""Episodes played from a checkpoint, as an animation and as a poster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_tiny_config
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import animation
from numpy.typing import NDArray
from PIL import Image

from ngu.envs import DiscoMaze
from ngu.envs.scripted import ScriptedPolicy
from ngu.errors import UserError
from ngu.report import poster, record_episode
from ngu.report.film import gif
from ngu.report.mazes.episode import Episode, Played, play, play_evaluation
from ngu.report.mazes.film import MazeFilm, palette
from ngu.report.mazes.pictures import AGENT, PATH, WALL, maze_map
from ngu.training import Training
from ngu.variants import VARIANTS

RGB = NDArray[np.uint8]
MAZE_VARIANTS = ["ngu", "ngu-no-rnd", "random-projection", "rnd-only", "r2d2-retrace"]
"""One for each kind of intrinsic reward; a maze has no hand-crafted controllable state."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Tiny runs of each variant, made when first asked for."""
    folder = tmp_path_factory.mktemp("runs")

    def make(variant: str) -> Path:
        if not (folder / variant).exists():
            changes = {name.replace(".", "__"): value for name, value in VARIANTS[variant].changes.items()}
            config = make_tiny_config(
                variant=variant,
                run__folder=str(folder),
                run__name=variant,
                run__steps=400,
                run__tensorboard=False,
                evaluation__num_envs=16,
                evaluation__epsilon=0.2,
                **changes,
            )
            Training.start(config).run(show_progress=False)
        return folder / variant

    return make


def scripted_episode(size: int, steps: int, name: str = "wall-follower", seed: int = 0) -> Episode:
    """An episode of a scripted policy, which lasts longer than one of an agent that has learned nothing."""
    env = DiscoMaze(1, size, steps, 8, "cpu")
    step = env.reset(seed)
    policy = ScriptedPolicy(name, env, seed)
    walls = env.walls[0].numpy().copy()
    observations, positions, coverages = [], [], []
    for time in range(steps + 1):
        if time:
            env.send(policy.act(step))
            step = env.recv()
            env.maintain()
        observations.append(step.observation[0].numpy().copy())
        positions.append(int(env.position[0]))
        coverages.append(float(step.info["coverage"][0]))
        if bool(step.ended[0]):
            break
    reward = np.linspace(0, 5, len(positions))
    return Episode(
        walls, np.stack(observations), np.array(positions), np.array(coverages), reward, reward, np.ones_like(reward),
        hit_wall=bool(step.terminated[0]),
    )  # fmt: skip


# Playing


@pytest.mark.parametrize("variant", MAZE_VARIANTS)
def test_played_episodes_are_those_of_the_evaluation(trained: Callable[[str], Path], variant: str) -> None:
    run = trained(variant)
    training = Training.resume(run)
    expected = training.evaluate()
    assert training.folder
    training.folder.close()
    played = play_evaluation(run)
    assert len(played.episodes) == 16
    assert played.checkpoint_step == 400
    mean = played.mean_coverage()
    assert mean[[3, 12]].tolist() == pytest.approx([expected[f"eval/explore/coverage@{mark}"] for mark in (3, 12)])
    assert np.mean([episode.length for episode in played.episodes]) == pytest.approx(expected["eval/explore/length"])


@pytest.mark.parametrize("variant", MAZE_VARIANTS)
def test_an_episode_is_a_walk_with_its_rewards(trained: Callable[[str], Path], variant: str) -> None:
    for episode in play(trained(variant), episodes=12, seed=5).episodes:
        steps = np.abs(np.diff(np.stack(np.divmod(episode.position, episode.size)))).sum(0)
        assert (steps == 1).all()
        on_wall = episode.walls.ravel()[episode.position]
        assert on_wall.sum() == on_wall[-1] == episode.hit_wall
        assert episode.hit_wall or episode.length == 12
        assert episode.coverage[-1] == pytest.approx((episode.first_visit >= 0).sum() / (~episode.walls).sum())
        green = (episode.observation == np.array([0, 255, 0])[None, :, None, None]).all(1)
        assert green.reshape(len(green), -1).argmax(1).tolist() == episode.position.tolist()
        assert episode.reward[0] == 0
        assert episode.reward[1:-1].all() == (variant != "r2d2-retrace" or episode.length == 1)
        if variant in ("rnd-only", "r2d2-retrace"):
            assert not episode.episodic.any()
        else:
            np.testing.assert_allclose(episode.reward, episode.episodic * np.clip(episode.alpha, 1, 5), rtol=1e-5)


def test_the_policy_that_plays_can_be_chosen(trained: Callable[[str], Path], tmp_path: Path) -> None:
    def walks(run: Path, policy: str) -> list[list[int]]:
        return [episode.position.tolist() for episode in play(run, episodes=32, seed=0, policy=policy).episodes]

    config = make_tiny_config(
        run__folder=str(tmp_path), run__name="two", run__steps=8, run__tensorboard=False, mixture__num_mixtures=2
    )
    training = Training.start(config)
    with torch.no_grad():  # larger weights, so that the policy's number alone changes what is done
        for weight in training.runner.agent.learner.network.parameters():
            weight.mul_(5)
    training.run(show_progress=False)
    assert walks(tmp_path / "two", "explore") == walks(tmp_path / "two", "explore")
    assert walks(tmp_path / "two", "explore") != walks(tmp_path / "two", "exploit")
    assert walks(trained("ngu"), "explore") == walks(trained("ngu"), "exploit")
    with pytest.raises(UserError, match="the policy exploits does not exist; the nearest are exploit, explore"):
        walks(tmp_path / "two", "exploits")


@given(st.integers(0, 30), st.sampled_from([5, 7]), st.sampled_from(["random", "non-reversing"]))
def test_visits_are_told_apart_as_by_a_walk_through_the_episode(seed: int, size: int, name: str) -> None:
    episode = scripted_episode(size, 20, name, seed)
    seen: list[int] = []
    for step, position in enumerate(episode.position.tolist()):
        is_new = position not in seen and not episode.walls.ravel()[position]
        assert episode.new_cell[step] == is_new
        if is_new:
            seen.append(position)
            assert episode.first_visit.ravel()[position] == step
    share = episode.visit_share.ravel()
    assert (~np.isnan(share)).sum() == len(seen)
    assert share[seen].tolist() == pytest.approx(np.linspace(0, 1, len(seen)).tolist() if len(seen) > 1 else [0.0])


def test_means_hold_the_coverage_of_episodes_that_ended() -> None:
    short, long = scripted_episode(7, 20, "random", 1), scripted_episode(7, 20)
    assert short.length < long.length == 20
    played = Played([short, long], 20, 0)
    for step, mean in enumerate(played.mean_coverage()):
        assert mean == pytest.approx((short.coverage[min(step, short.length)] + long.coverage[step]) / 2)
    assert Played([long, short, short], 20, 0).typical is short


# The animation


def frames_of(path: Path) -> list[RGB]:
    with Image.open(path) as image:
        frames = []
        for index in range(image.n_frames):
            image.seek(index)
            frames.append(np.asarray(image.convert("RGB")))
        return frames


def cells_of(frame: RGB, film: MazeFilm, left: int) -> RGB:
    """The colours in the middle of each cell of a panel."""
    middle = film.scale // 2
    panel = frame[film.top : film.top + film.panel, left : left + film.panel]
    return panel[middle :: film.scale, middle :: film.scale]


def test_a_gif_has_a_frame_for_each_observation(trained: Callable[[str], Path], tmp_path: Path) -> None:
    run = trained("ngu")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    out = record_episode(run, tmp_path / "episode.gif", seed=3)
    episode = play(run, episodes=1, seed=3).episodes[0]
    frames = frames_of(out)
    film = MazeFilm(episode, 12)
    assert len(frames) == episode.length + 1
    assert {frame.shape for frame in frames} == {(film.height, film.width, 3)}
    for step, frame in enumerate(frames):
        assert (cells_of(frame, film, film.left) == np.moveaxis(episode.observation[step], 0, -1)).all()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_the_map_grows_with_the_episode(tmp_path: Path) -> None:
    episode = scripted_episode(9, 60)
    film = MazeFilm(episode, 60)
    (tmp_path / "a.gif").write_bytes(gif(film, 0.06))
    frames = frames_of(tmp_path / "a.gif")
    assert len(frames) == 61
    final = maze_map(episode)
    for step, frame in enumerate(frames):
        cells = cells_of(frame, film, film.right)
        here = np.divmod(episode.position[step], 9)
        assert tuple(cells[here]) == AGENT
        assert (cells[episode.walls] == WALL).all()
        visited = (episode.first_visit >= 0) & (episode.first_visit <= step)
        unvisited = ~visited & ~episode.walls
        assert (cells[unvisited] == PATH).all()
        visited[here] = False
        # The animation has fewer shades than the map.
        assert np.abs(cells[visited].astype(int) - final[visited]).max(initial=0) <= 6
    # Rewards grow as bars from the left: none at first, up to the right edge in the end.
    bars = [
        (frame[film.plot_top :] == palette()[10]).all(-1) | (frame[film.plot_top :] == palette()[11]).all(-1)
        for frame in frames
    ]
    widths = [int(bar.any(0).sum()) for bar in bars]
    assert widths[0] == 0
    assert widths == sorted(widths)
    assert widths[-1] > 0.7 * film.width
    assert len((tmp_path / "a.gif").read_bytes()) < 600_000


def test_a_long_episode_leaves_out_frames_but_not_its_end(tmp_path: Path) -> None:
    episode = scripted_episode(21, 500)
    film = MazeFilm(episode, 500)
    assert film.shown == [*range(0, 500, 2), 500]
    content = gif(film, 0.06)
    (tmp_path / "long.gif").write_bytes(content)
    assert len(content) < 2_000_000
    last = frames_of(tmp_path / "long.gif")[-1]
    assert (cells_of(last, film, film.left) == np.moveaxis(episode.observation[-1], 0, -1)).all()


def test_the_same_seed_gives_the_same_file(trained: Callable[[str], Path], tmp_path: Path) -> None:
    run = trained("ngu")
    first = record_episode(run, tmp_path / "a.gif", seed=1).read_bytes()
    torch.rand(3)
    assert record_episode(run, tmp_path / "b.gif", seed=1).read_bytes() == first
    assert record_episode(run, tmp_path / "c.gif", seed=2).read_bytes() != first


def test_a_recording_can_be_cut(tmp_path: Path) -> None:
    config = make_tiny_config(
        run__folder=str(tmp_path), run__name="run", run__steps=8, run__tensorboard=False, env__maze_size=21
    )
    Training.start(config).run(show_progress=False)
    whole = play(tmp_path / "run", episodes=40, seed=0)
    cut = play(tmp_path / "run", episodes=40, seed=0, steps=1)
    assert max(episode.length for episode in whole.episodes) > 1
    for short, long in zip(cut.episodes, whole.episodes, strict=True):
        assert short.length == 1
        assert short.position.tolist() == long.position[:2].tolist()
        assert short.hit_wall == (long.hit_wall and long.length == 1)
    frames = frames_of(record_episode(tmp_path / "run", tmp_path / "a.gif", steps=1))
    assert len(frames) == 2


def test_a_video_is_made_where_there_is_ffmpeg(trained: Callable[[str], Path], tmp_path: Path) -> None:
    out = tmp_path / "episode.mp4"
    if animation.FFMpegWriter.isAvailable():
        assert record_episode(trained("ngu"), out).read_bytes()[4:8] == b"ftyp"
    else:
        with pytest.raises(UserError, match="a video needs ffmpeg"):
            record_episode(trained("ngu"), out)
        assert not out.exists()


def test_what_cannot_be_recorded_is_refused(trained: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither a GIF nor a video"):
        record_episode(trained("ngu"), tmp_path / "episode.avi")
    with pytest.raises(UserError, match="there is no run folder"):
        record_episode(tmp_path / "nowhere", tmp_path / "episode.gif")
    config = make_tiny_config(run__folder=str(tmp_path), run__name="new")
    assert Training.start(config).folder
    with pytest.raises(UserError, match="there is no checkpoint"):
        record_episode(tmp_path / "new", tmp_path / "episode.gif")
    assert not (tmp_path / "episode.gif").exists()


# The poster


def test_the_poster_shows_maze_map_and_curve(trained: Callable[[str], Path], tmp_path: Path) -> None:
    out = poster(trained("ngu"), tmp_path / "pictures" / "poster.png")
    with Image.open(out) as image:
        drawn = np.asarray(image.convert("RGB"))
    height, width, _ = drawn.shape
    assert width > 3 * height
    magenta = np.argwhere((drawn == (255, 0, 255)).all(-1))
    walls = np.argwhere((drawn == WALL).all(-1))
    line = np.argwhere((drawn == (0x00, 0x72, 0xB2)).all(-1))
    for pixels, left, right in ((magenta, 0, 0.3), (walls, 0.2, 0.6), (line, 0.5, 1.0)):
        assert len(pixels) > 300
        assert left * width < pixels[:, 1].min() < pixels[:, 1].max() < right * width
