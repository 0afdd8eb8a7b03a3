"""One Atari emulator with the paper's pre-processing, written plainly from ale-py and NumPy alone.

It knows nothing of the code it judges. What it is told from outside: how many frames the emulator has counted when an
episode begins, which says how many no-ops were drawn.
"""

from __future__ import annotations

from fractions import Fraction

import ale_py
import numpy as np
from ale_py import roms

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def covered_pixels(old_size: int, new_size: int = 84) -> list[list[tuple[int, np.float32]]]:
    """For each new pixel, the old pixels that it covers and the share of it that each of them fills."""
    width = Fraction(old_size, new_size)
    cells = []
    for new in range(new_size):
        left, right = new * width, (new + 1) * width
        cell = []
        for old in range(old_size):
            shared = min(right, Fraction(old + 1)) - max(left, Fraction(old))
            if shared > 0:
                cell.append((old, np.float32(shared / width)))
        cells.append(cell)
    return cells


ROWS, COLUMNS = covered_pixels(210), covered_pixels(160)


def shrink(screen: np.ndarray) -> np.ndarray:
    """[210, 160] -> [84, 84], the mean over areas; each sum in float32 and in reading order."""
    narrow = np.zeros((210, 84), dtype=np.float32)
    for column, cell in enumerate(COLUMNS):
        for old, share in cell:
            narrow[:, column] += screen[:, old] * share
    small = np.zeros((84, 84), dtype=np.float32)
    for row, cell in enumerate(ROWS):
        for old, share in cell:
            small[row] += narrow[old] * share
    return np.rint(small).astype(np.uint8)


class PlainAtari:
    """Plays one game, frame by frame."""

    def __init__(self, game: str, max_frames: int = 108_000) -> None:
        self.emulator = ale_py.ALEInterface()
        self.emulator.setFloat("repeat_action_probability", 0.0)
        self.emulator.setInt("random_seed", 12345)
        self.emulator.loadROM(roms.get_rom_path(game))
        self.max_frames = max_frames
        self.over = True

    def reset(self, frames: int) -> np.ndarray:
        """Waits until the emulator has counted so many frames; some games begin with more than none."""
        self.emulator.reset_game()
        while self.emulator.getEpisodeFrameNumber() < frames:
            self.emulator.act(ale_py.Action.NOOP)
        self.shown = self.emulator.getScreenGrayscale()
        self.frames = self.steps = 0
        self.score = 0
        self.over = False
        return shrink(self.shown)

    def step(self, action: int) -> tuple[np.ndarray, int, bool, bool]:
        """Observation, reward, terminated, truncated; no screen is taken at a frame that ends the episode."""
        screens = []
        reward = 0
        terminated = truncated = False
        while len(screens) < 4 and not (terminated or truncated):
            reward += self.emulator.act(ale_py.Action(action))
            self.frames += 1
            terminated = self.emulator.game_over()
            truncated = self.frames == self.max_frames and not terminated
            if not (terminated or truncated):
                screens.append(self.emulator.getScreenGrayscale())
        if len(screens) == 4:
            self.shown = np.maximum(screens[2], screens[3])
        elif len(screens) == 3:
            self.shown = np.maximum(self.shown, screens[2])
        self.steps += 1
        self.score += reward
        self.over = terminated or truncated
        return shrink(self.shown), reward, terminated, truncated
