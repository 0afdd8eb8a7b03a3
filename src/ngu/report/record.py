"""An episode as an animation: what the agent sees, where it has been, and what it is paid.

Frames are drawn in the numbers of one palette, so that a GIF needs no search for colours and stays small.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib import animation, get_data_path
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ngu.envs.disco_maze import PALETTE
from ngu.errors import UserError
from ngu.report.episode import Episode, play
from ngu.report.mazes import AGENT, PATH, WALL, visit_colours
from ngu.report.results import write_file
from ngu.report.style import ALPHA, INTRINSIC

Canvas = NDArray[np.uint8]
"""[height, width]: numbers of the palette."""

_GREYS = 24
"""Shades from the paper's white to the ink, for the edges of letters."""
_VISITS = 160
"""Shades of the visits, from the first to the last."""
_MAZE, _WALL, _PATH, _AGENT, _NEW, _OLD, _AXIS, _GREY, _VISIT = (0, 7, 8, 9, 10, 11, 12, 16, 48)
"""Where the colours stand in the palette."""

_PANEL = 252
_MARGIN = 18
_TITLE = 30
_PLOT = 104
_STATUS = 40
_TEXT_SIZE = 15

_MOST_FRAMES = 260
"""Of a longer episode only every second (third, ...) observation is shown, so that files stay small."""
_SECONDS = 16.0
"""The animation takes about so long."""
_LONGEST_FRAME, _SHORTEST_FRAME, _LAST_FRAME = 0.2, 0.06, 2.0


@cache
def palette() -> NDArray[np.uint8]:
    """[256, 3] RGB."""
    colours = np.zeros((256, 3), dtype=np.uint8)
    colours[_MAZE : _MAZE + len(PALETTE)] = PALETTE
    colours[[_WALL, _PATH, _AGENT]] = [WALL, PATH, AGENT]
    colours[[_NEW, _OLD, _AXIS]] = [(0, 114, 178), (213, 94, 0), (190, 195, 201)]
    ramp = np.linspace(0, 1, _GREYS)[:, None]
    colours[_GREY : _GREY + _GREYS] = np.round(255 + ramp * (np.array([31, 35, 40]) - 255))
    colours[_VISIT : _VISIT + _VISITS] = visit_colours(np.linspace(0, 1, _VISITS))
    return colours


@cache
def _font(bold: bool) -> ImageFont.FreeTypeFont:
    """The font that matplotlib brings along, so that no machine lacks it."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / name), _TEXT_SIZE)


def _write(canvas: Canvas, x: int, y: int, text: str, *, bold: bool = False) -> None:
    """Writes text with its upper left corner at (x, y)."""
    height, width = canvas.shape
    mask = Image.new("L", (width - x, min(height - y, 2 * _TEXT_SIZE)))
    ImageDraw.Draw(mask).text((0, 0), text, fill=255, font=_font(bold))
    shades = np.asarray(mask, dtype=np.uint16) * (_GREYS - 1) // 255
    area = canvas[y : y + shades.shape[0], x:]
    area[shades > 0] = (_GREY + shades[shades > 0]).astype(np.uint8)


@dataclass
class Film:
    """Draws the frames of an episode."""

    episode: Episode
    max_steps: int

    def __post_init__(self) -> None:
        episode = self.episode
        self.scale = max(1, round(_PANEL / episode.size))
        self.panel = self.scale * episode.size
        self.width = 2 * self.panel + 3 * _MARGIN
        self.plot_top = _TITLE + self.panel + _MARGIN + _TEXT_SIZE + 8
        self.height = self.plot_top + _PLOT + _STATUS
        self.top, self.left, self.right = _TITLE, _MARGIN, self.panel + 2 * _MARGIN
        self.first_visit = episode.first_visit
        self.shade = np.round(np.nan_to_num(episode.visit_share) * (_VISITS - 1)).astype(np.int64)
        self.new_cell = episode.new_cell
        self.top_reward = max(float(episode.reward.max()), 1e-9)
        # A video's codec wants even numbers of pixels.
        self.width += self.width % 2
        self.height += self.height % 2

    @property
    def shown(self) -> list[int]:
        """The steps that have a frame: 0, the last, and all between or evenly many of them."""
        length = self.episode.length
        stride = -(-(length + 1) // _MOST_FRAMES)
        return [*range(0, length, stride), length]

    def frames(self) -> Iterator[Canvas]:
        """One for each of the steps shown."""
        canvas = self._background()
        drawn = 0
        for step in self.shown:
            for earlier in range(drawn + 1, step + 1):
                self._draw_reward(canvas, earlier)
            drawn = step
            self._draw_observation(canvas, step)
            self._draw_map(canvas, step)
            self._draw_status(canvas, step)
            yield canvas.copy()

    def _background(self) -> Canvas:
        canvas = np.full((self.height, self.width), _GREY, dtype=np.uint8)
        _write(canvas, _MARGIN, 7, "What the agent sees", bold=True)
        _write(canvas, self.right, 7, "Where it has been", bold=True)
        _write(canvas, _MARGIN, self.plot_top - _TEXT_SIZE - 8, "Intrinsic reward at each step", bold=True)
        x = self.right
        for colour, text in ((_NEW, "new cell"), (_OLD, "seen before")):
            canvas[self.plot_top - _TEXT_SIZE - 2 : self.plot_top - 8, x : x + 10] = colour
            _write(canvas, x + 16, self.plot_top - _TEXT_SIZE - 8, text)
            x += 110
        canvas[self.plot_top + _PLOT, _MARGIN : self.width - _MARGIN] = _AXIS
        return canvas

    def _put(self, canvas: Canvas, left: int, cells: Canvas) -> None:
        canvas[self.top - 1 : self.top + self.panel + 1, left - 1 : left + self.panel + 1] = _AXIS
        enlarged = cells.repeat(self.scale, 0).repeat(self.scale, 1)
        canvas[self.top : self.top + self.panel, left : left + self.panel] = enlarged

    def _draw_observation(self, canvas: Canvas, step: int) -> None:
        picture = np.moveaxis(self.episode.observation[step], 0, -1)
        # [S, S, 7]: which of the maze's colours each cell has.
        matches = (picture[..., None, :] == np.array(PALETTE, dtype=np.uint8)).all(-1)
        self._put(canvas, self.left, (_MAZE + matches.argmax(-1)).astype(np.uint8))

    def _draw_map(self, canvas: Canvas, step: int) -> None:
        episode = self.episode
        cells = np.where(episode.walls, _WALL, _PATH)
        visited = (self.first_visit >= 0) & (self.first_visit <= step)
        cells = np.where(visited, _VISIT + self.shade, cells)
        cells.ravel()[episode.position[step]] = _AGENT
        self._put(canvas, self.right, cells.astype(np.uint8))

    def _draw_reward(self, canvas: Canvas, step: int) -> None:
        """Adds the bar of this step; earlier ones stand already."""
        inner = self.width - 2 * _MARGIN
        left = _MARGIN + inner * (step - 1) // self.max_steps
        right = max(left + 1, _MARGIN + inner * step // self.max_steps - (inner >= 3 * self.max_steps))
        height = round(_PLOT * self.episode.reward[step] / self.top_reward)
        bottom = self.plot_top + _PLOT
        canvas[bottom - height : bottom, left:right] = _NEW if self.new_cell[step] else _OLD

    def _draw_status(self, canvas: Canvas, step: int) -> None:
        episode = self.episode
        top = self.plot_top + _PLOT + 1
        canvas[top:] = _GREY
        columns = (
            f"step {step} of {self.max_steps}",
            f"coverage {episode.coverage[step]:.0%}",
            f"{INTRINSIC} {episode.reward[step]:.2f}",
            f"{ALPHA} {episode.alpha[step]:.2f}",
        )
        for index, text in enumerate(columns):
            _write(canvas, _MARGIN + index * (self.width - _MARGIN) // len(columns), top + 10, text)


def record_episode(run: Path, out: Path, seed: int = 0, policy: str = "explore") -> Path:
    """Plays one episode with the newest checkpoint and writes it as an animation.

    Args:
        run: the run's folder.
        out: a file that ends in .gif, or in .mp4 where ffmpeg is installed.
        seed: of the maze.
        policy: "explore" (beta_{N-1}) or "exploit" (beta_0); the same when N = 1.
    """
    kind = out.suffix.lower()
    if kind not in (".gif", ".mp4"):
        raise UserError(f"{out.name} is neither a GIF nor a video; give a name that ends in .gif or .mp4.")
    if kind == ".mp4" and not animation.FFMpegWriter.isAvailable():
        raise UserError(
            "a video needs ffmpeg, which is not installed here; install it, or give a name that ends in .gif."
        )
    played = play(run, episodes=1, seed=seed, policy=policy)
    episode = played.episodes[0]
    film = Film(episode, max(played.max_steps, 1))
    pause = min(max(_SECONDS / len(film.shown), _SHORTEST_FRAME), _LONGEST_FRAME)
    if kind == ".gif":
        write_file(out, gif(film, pause))
    else:
        _write_video(film, pause, out)
    return out


def gif(film: Film, pause: float) -> bytes:
    images = []
    for canvas in film.frames():
        image = Image.fromarray(canvas)
        image.putpalette(palette().tobytes())
        images.append(image)
    durations = [round(1000 * pause)] * len(images)
    durations[-1] = round(1000 * _LAST_FRAME)
    with io.BytesIO() as file:
        images[0].save(file, format="GIF", save_all=True, append_images=images[1:], duration=durations, loop=0)
        return file.getvalue()


def _write_video(film: Film, pause: float, out: Path) -> None:
    writer = animation.FFMpegWriter(fps=round(1 / pause), extra_args=["-pix_fmt", "yuv420p"])
    dpi = 100
    figure = Figure(figsize=(film.width / dpi, film.height / dpi), dpi=dpi)
    frames = film.frames()
    picture = figure.figimage(palette()[next(frames)])
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with writer.saving(figure, str(out), dpi):
            writer.grab_frame()
            for canvas in frames:
                picture.set_data(palette()[canvas])
                writer.grab_frame()
            for _ in range(round(_LAST_FRAME / pause)):
                writer.grab_frame()
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another place.") from None
