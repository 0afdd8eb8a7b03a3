"""An episode in a maze as an animation: what the agent sees, where it has been, and what it is paid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from ngu.envs.disco_maze import PALETTE
from ngu.report.film import (
    AXIS,
    BLUE,
    MARGIN,
    ORANGE,
    PAPER,
    RGB,
    TEXT_SIZE,
    Canvas,
    evenly,
    shared_palette,
    write_text,
)
from ngu.report.mazes.episode import Episode
from ngu.report.mazes.pictures import AGENT, PATH, WALL, visit_colours
from ngu.report.style import ALPHA, INTRINSIC

_VISITS = 160
"""Shades of the visits, from the first to the last."""
_MAZE, _WALL, _PATH, _AGENT, _VISIT = (0, 7, 8, 9, 48)
"""Where the maze's own colours stand in the palette."""

_PANEL = 252
_TITLE = 30
_PLOT = 104
_STATUS = 40

_MOST_FRAMES = 260
"""Of a longer episode only every second (third, ...) observation is shown, so that files stay small."""


@cache
def palette() -> RGB:
    """[256, 3] RGB."""
    colours = shared_palette()
    colours[_MAZE : _MAZE + len(PALETTE)] = PALETTE
    colours[[_WALL, _PATH, _AGENT]] = [WALL, PATH, AGENT]
    colours[_VISIT : _VISIT + _VISITS] = visit_colours(np.linspace(0, 1, _VISITS))
    return colours


@dataclass
class MazeFilm:
    """See `Film`."""

    episode: Episode
    max_steps: int

    def __post_init__(self) -> None:
        episode = self.episode
        self.palette = palette()
        self.scale = max(1, round(_PANEL / episode.size))
        self.panel = self.scale * episode.size
        self.width = 2 * self.panel + 3 * MARGIN
        self.plot_top = _TITLE + self.panel + MARGIN + TEXT_SIZE + 8
        self.height = self.plot_top + _PLOT + _STATUS
        self.top, self.left, self.right = _TITLE, MARGIN, self.panel + 2 * MARGIN
        self.first_visit = episode.first_visit
        self.shade = np.round(np.nan_to_num(episode.visit_share) * (_VISITS - 1)).astype(np.int64)
        self.new_cell = episode.new_cell
        self.top_reward = max(float(episode.reward.max()), 1e-9)
        # A video's codec wants even numbers of pixels.
        self.width += self.width % 2
        self.height += self.height % 2

    @property
    def shown(self) -> list[int]:
        return evenly(self.episode.length, _MOST_FRAMES)

    def frames(self) -> Iterator[Canvas]:
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
        canvas = np.full((self.height, self.width), PAPER, dtype=np.uint8)
        write_text(canvas, MARGIN, 7, "What the agent sees", bold=True)
        write_text(canvas, self.right, 7, "Where it has been", bold=True)
        write_text(canvas, MARGIN, self.plot_top - TEXT_SIZE - 8, "Intrinsic reward at each step", bold=True)
        x = self.right
        for colour, text in ((BLUE, "new cell"), (ORANGE, "seen before")):
            canvas[self.plot_top - TEXT_SIZE - 2 : self.plot_top - 8, x : x + 10] = colour
            write_text(canvas, x + 16, self.plot_top - TEXT_SIZE - 8, text)
            x += 110
        canvas[self.plot_top + _PLOT, MARGIN : self.width - MARGIN] = AXIS
        return canvas

    def _put(self, canvas: Canvas, left: int, cells: Canvas) -> None:
        canvas[self.top - 1 : self.top + self.panel + 1, left - 1 : left + self.panel + 1] = AXIS
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
        inner = self.width - 2 * MARGIN
        left = MARGIN + inner * (step - 1) // self.max_steps
        right = max(left + 1, MARGIN + inner * step // self.max_steps - (inner >= 3 * self.max_steps))
        height = round(_PLOT * self.episode.reward[step] / self.top_reward)
        bottom = self.plot_top + _PLOT
        canvas[bottom - height : bottom, left:right] = BLUE if self.new_cell[step] else ORANGE

    def _draw_status(self, canvas: Canvas, step: int) -> None:
        episode = self.episode
        top = self.plot_top + _PLOT + 1
        canvas[top:] = PAPER
        columns = (
            f"step {step} of {self.max_steps}",
            f"coverage {episode.coverage[step]:.0%}",
            f"{INTRINSIC} {episode.reward[step]:.2f}",
            f"{ALPHA} {episode.alpha[step]:.2f}",
        )
        for index, text in enumerate(columns):
            write_text(canvas, MARGIN + index * (self.width - MARGIN) // len(columns), top + 10, text)
