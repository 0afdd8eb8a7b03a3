"""An episode of a game as an animation: the screen, and beside it score, novelty and room as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ngu.report.film import (
    AXIS,
    BLUE,
    INK,
    MARGIN,
    ORANGE,
    PAPER,
    RGB,
    TEXT_SIZE,
    Canvas,
    evenly,
    shared_palette,
    text_width,
    write_text,
)
from ngu.report.games.episode import Played
from ngu.report.results import Floats
from ngu.report.style import ALPHA, short_number
from ngu.report.wording import plain_number

_MOST_FRAMES = 501
"""Of a longer episode only every second (third, ...) step is shown, so that files stay small."""
_SCREEN_WIDTH, _SCREEN_HEIGHT = 480, 420
"""Screens are enlarged by a whole number to fit into this, or shrunk."""
_TITLE = 32
_TRACKS_WIDTH, _LEAST_WIDTH, _LEAST_HEIGHT = 330, 300, 340
_SCALE_WIDTH = 48
"""Pixels beside a plot for the numbers at its top and bottom."""
_SMALL = 11

_SCREEN = 48
"""Where the screen's colours begin in the palette."""
_SCREEN_COLOURS = 256 - _SCREEN


@dataclass(frozen=True)
class Track:
    """One value along the episode, under a line of text that gives it."""

    headline: Callable[[int], str]
    """The text at a step."""
    values: Floats
    """[T+1]"""
    low: float
    high: float
    colour: int
    filled: bool = False
    """Bars from the bottom instead of a line."""
    level: float | None = None
    """A value to compare with, as a thin line across."""


def tracks_of(played: Played) -> list[Track]:
    """Score, r_i, alpha and, where they are known, rooms."""
    episode = played.episode
    score, reward, alpha, rooms = episode.score, episode.reward, episode.alpha, episode.rooms
    tracks = [
        Track(lambda t: f"Score: {plain_number(score[t])}", score, *_range(score, 0.0), INK),
        Track(lambda t: f"Intrinsic reward r_i: {reward[t]:.2f}", reward, *_range(reward, 0.0), BLUE, filled=True),
        Track(lambda t: f"Modulator {ALPHA}: {alpha[t]:.2f}", alpha, *_range(alpha, 1.0), ORANGE, level=1.0),
    ]
    if rooms is not None and episode.room is not None:
        room, count = episode.room, rooms
        tracks.append(
            Track(
                lambda t: f"Room {room[t]}, {count[t]:.0f} visited so far", count, 0.0, max(float(count[-1]), 2.0), INK
            )
        )
    return tracks


def _range(values: Floats, included: float) -> tuple[float, float]:
    """Lowest and highest of the values and one more, and never the same."""
    low, high = min(float(values.min()), included), max(float(values.max()), included)
    return low, high if high > low else low + 1.0


def _scale_number(value: float) -> str:
    """1234.5 to '1.23k', -0.0896 to '-0.09'."""
    return short_number(float(f"{value:.{3 if abs(value) >= 100 else 2}g}"))


class GameFilm:
    """See `Film`."""

    def __init__(self, played: Played) -> None:
        self.played = played
        self.tracks = tracks_of(played)
        height, width = self._sized(0).shape[:2]
        self.scale = max(min(_SCREEN_HEIGHT // height, _SCREEN_WIDTH // width), 1)
        """How many pixels high and wide a pixel of the screen is shown."""
        self.screen_height, self.screen_width = height * self.scale, width * self.scale
        self.colours = ScreenColours(self._sized, self.shown)
        self.palette = shared_palette()
        self.palette[_SCREEN:] = self.colours.palette
        self.top, self.left = _TITLE, MARGIN
        body = max(self.screen_height + (_SMALL + 8 if played.no_screen else 0), _LEAST_HEIGHT)
        self.plot_left = max(self.screen_width, _LEAST_WIDTH) + 2 * MARGIN
        self.plot_right = self.plot_left + _TRACKS_WIDTH - _SCALE_WIDTH
        self.width = self.plot_left + _TRACKS_WIDTH + MARGIN
        self.height = _TITLE + body + MARGIN
        self.track_height = body // len(self.tracks)
        # A video's codec wants even numbers of pixels.
        self.width += self.width % 2
        self.height += self.height % 2

    @property
    def shown(self) -> list[int]:
        return evenly(self.played.episode.length, _MOST_FRAMES)

    def frames(self) -> Iterator[Canvas]:
        canvas = self._background()
        drawn = 0
        for step in self.shown:
            for index, track in enumerate(self.tracks):
                for earlier in range(drawn + 1, step + 1):
                    self._draw_value(canvas, index, track, earlier)
                self._draw_headline(canvas, index, track.headline(step))
            drawn = step
            screen = (self.colours.numbers(self._sized(step)) + _SCREEN).repeat(self.scale, 0).repeat(self.scale, 1)
            canvas[self.top : self.top + self.screen_height, self.left : self.left + self.screen_width] = screen
            self._draw_step(canvas, step)
            yield canvas.copy()

    def _sized(self, step: int) -> RGB:
        """The screen at a step, shrunk if it is too large."""
        screen = self.played.episode.screen(step)
        height, width = screen.shape[:2]
        smaller = min(_SCREEN_HEIGHT / height, _SCREEN_WIDTH / width)
        if smaller >= 1:
            return screen
        size = max(round(width * smaller), 1), max(round(height * smaller), 1)
        return np.asarray(Image.fromarray(screen).resize(size, Image.Resampling.BOX))

    def plot_of(self, index: int) -> tuple[int, int]:
        """The first and the last row of a track's plot."""
        top = _TITLE + index * self.track_height + TEXT_SIZE + 9
        return top, _TITLE + (index + 1) * self.track_height - 14

    def _background(self) -> Canvas:
        canvas = np.full((self.height, self.width), PAPER, dtype=np.uint8)
        left, top = self.left, self.top
        canvas[top - 1 : top + self.screen_height + 1, left - 1 : left + self.screen_width + 1] = AXIS
        write_text(canvas, MARGIN, 7, f"{self.played.world.title}, {self.played.policy} policy", bold=True)
        if self.played.no_screen:
            vectors = self.played.episode.vectors
            what = (
                "the agent's observation" if vectors is None else f"what the agent observes: {vectors.shape[1]} numbers"
            )
            write_text(canvas, left, top + self.screen_height + 6, what, size=_SMALL)
        for index, track in enumerate(self.tracks):
            top, bottom = self.plot_of(index)
            canvas[bottom + 1, self.plot_left : self.plot_right] = AXIS
            if track.level is not None:
                canvas[self._row(index, track, track.level), self.plot_left : self.plot_right : 4] = AXIS
            write_text(canvas, self.plot_right + 6, top - 4, _scale_number(track.high), size=_SMALL)
            write_text(canvas, self.plot_right + 6, bottom - _SMALL + 3, _scale_number(track.low), size=_SMALL)
        return canvas

    def _draw_headline(self, canvas: Canvas, index: int, text: str) -> None:
        top = _TITLE + index * self.track_height
        canvas[top : top + TEXT_SIZE + 5, self.plot_left :] = PAPER
        write_text(canvas, self.plot_left, top, text, bold=True)

    def _draw_step(self, canvas: Canvas, step: int) -> None:
        """In the upper right corner: the step, or how the animation ends."""
        episode = self.played.episode
        text = f"step {step:,} of {episode.length:,}"
        if step == episode.length:
            text = f"step {step:,}, {'the end' if episode.ended else 'cut here'}"
        canvas[: _TITLE - 4, self.plot_left :] = PAPER
        write_text(canvas, self.width - MARGIN - text_width(text), 7, text)

    def _row(self, index: int, track: Track, value: float) -> int:
        top, bottom = self.plot_of(index)
        return bottom - round((bottom - top) * (value - track.low) / (track.high - track.low))

    def _draw_value(self, canvas: Canvas, index: int, track: Track, step: int) -> None:
        """Adds a step's value to a plot; earlier ones stand already."""
        inner, length = self.plot_right - self.plot_left, self.played.episode.length
        left = self.plot_left + inner * (step - 1) // length
        right = max(left + 1, self.plot_left + inner * step // length)
        row = self._row(index, track, float(track.values[step]))
        if track.filled:
            canvas[row : self.plot_of(index)[1] + 1, left:right] = track.colour
            return
        before = self._row(index, track, float(track.values[step - 1]))
        canvas[min(row, before) : max(row, before) + 1, left] = track.colour
        canvas[max(row - 1, 0) : row + 1, left:right] = track.colour


class ScreenColours:
    """The colours of all screens: each of them if they are few, as on a console, else as many as a palette holds."""

    def __init__(self, screen: Callable[[int], RGB], steps: Sequence[int]) -> None:
        packed: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        for step in steps:
            packed = np.union1d(packed, _pack(screen(step)))
            if len(packed) > _SCREEN_COLOURS:
                break
        self._packed = packed
        self._reduced: Image.Image | None = None
        if len(packed) <= _SCREEN_COLOURS:
            colours = np.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=-1)
        else:
            # An even choice of some screens stands for all.
            sample = np.concatenate([screen(step) for step in steps[:: max(len(steps) // 16, 1)]])
            self._reduced = Image.fromarray(sample).quantize(_SCREEN_COLOURS)
            colours = np.array(self._reduced.getpalette("RGB"), dtype=np.int64).reshape(-1, 3)[:_SCREEN_COLOURS]
        self.palette = np.zeros((_SCREEN_COLOURS, 3), dtype=np.uint8)
        """[208, 3]"""
        self.palette[: len(colours)] = colours

    def numbers(self, screen: RGB) -> NDArray[np.uint8]:
        """[H, W] places in `palette`."""
        if self._reduced is None:
            return np.searchsorted(self._packed, _pack(screen)).astype(np.uint8)
        return np.asarray(Image.fromarray(screen).quantize(palette=self._reduced, dither=Image.Dither.NONE))


def _pack(screen: RGB) -> NDArray[np.int64]:
    """[H, W]: red, green and blue in one number."""
    wide = screen.astype(np.int64)
    return (wide[..., 0] << 16) + (wide[..., 1] << 8) + wide[..., 2]
