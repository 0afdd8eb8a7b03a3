"""One Atari game with the paper's pre-processing, as a Gymnasium environment that also reads the game's memory.

Pictures, rewards and ends of episodes are those of the vector environment in `atari.py`, bit for bit; the tests hold
both against a third stack. What the vector environment cannot give stands in `info`: the rooms that the episode has
visited, and the hand-crafted controllable state of the paper's last appendix.

A step repeats its action for 4 frames and shows the maximum over frames 3 and 4 of the grayscale screen, averaged over
areas down to 84 x 84. The actions are all 18 of the joystick; rewards are the game's own; losing a life ends nothing;
no action sticks and nothing fires by itself. An episode begins with 0 to 30 no-ops and is truncated after 108,000
frames; the no-ops do not count.

One habit of the emulator's vector environment is kept, so that the two stay equal: the screen at the frame that ends an
episode is not read. The last observation is the maximum over what was last seen before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ngu.envs.atari_games import check_game
from ngu.errors import UserError, needs_extra

if TYPE_CHECKING:
    from ale_py import ALEInterface

FRAME_SKIP = 4
"""Frames that an action is repeated for."""
PICTURE_SIZE = 84
"""Height and width of an observation."""
NUM_ACTIONS = 18
"""All positions of the joystick, with and without the button; where a game forbids one, it does nothing."""

HAND_CRAFTED_STATE = ("player_x", "player_y", "room_and_level", "keys")
"""The parts of `hand_crafted_state`, in order."""
HAND_CRAFTED_GAME = "montezuma_revenge"
"""The only game that the paper has such a state for."""
POSITION = HAND_CRAFTED_STATE[:2]
"""Those parts of it that say where the player is in the room."""
ROOM = ("room", 24)
"""What the room alone is called, and how many a level has."""


def load_emulator() -> Any:
    """The module `ale_py`, an optional part of the installation."""
    try:
        import ale_py
        import ale_py.vector_env
    except ImportError:
        raise UserError(needs_extra("Atari games need the emulator ale-py", "atari")) from None
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no greeting for each emulator
    return ale_py


def check_atari_settings(noops: int, max_frames: int) -> None:
    """Refuses what the emulator would choke on."""
    if noops < 0:
        raise UserError(f"the number of no-ops is {noops}; set it to 0 or more, 30 in the paper.")
    if max_frames < 1:
        raise UserError(f"the longest episode has {max_frames} frames; set it to 1 or more, 108000 in the paper.")


def montezuma_room(ram: NDArray[np.uint8]) -> int:
    """Room (0 to 23) and level of Montezuma's Revenge as one number, room + 24 level: addresses 0x83 and 0xB9."""
    return int(ram[3]) + 24 * int(ram[57])


def pitfall_room(ram: NDArray[np.uint8]) -> int:
    """The scene of Pitfall!, one of 255: the shift register at 0x81 that the game draws its jungle from."""
    return int(ram[1])


ROOM_READERS: dict[str, Callable[[NDArray[np.uint8]], int]] = {
    "montezuma_revenge": montezuma_room,
    "pitfall": pitfall_room,
}
"""For games whose rooms are counted: [128] bytes of memory -> a number for the room."""


def montezuma_state(ram: NDArray[np.uint8]) -> NDArray[np.float32]:
    """[4] float32: `HAND_CRAFTED_STATE` from the [128] bytes of memory (the paper's addresses, less 0x80).

    x and y are the bytes at 0xAA and 0xAB. The inventory at 0xC1 holds a hammer (bit 0), four keys (1 to 4), two swords
    (5, 6) and a torch (7). The paper sums "bits {2, ..., 6}", counted from 1 and without the last: the four keys.
    """
    keys = (int(ram[65]) & 0b00011110).bit_count()
    return np.array([ram[42], ram[43], montezuma_room(ram), keys], dtype=np.float32)


class AreaResize:
    """Shrinks a [H, W] uint8 picture to [84, 84]: each new pixel is the mean over the area that it covers.

    With w the overlaps of new and old pixels, y[i, j] = sum_ab w[i, a] w[j, b] x[a, b], rounded to the nearest. Sums
    run in float32, columns first and from left to right: the order decides how ties are rounded.
    """

    def __init__(self, height: int, width: int) -> None:
        self._rows, self._row_weights = _overlaps(height)
        self._columns, self._column_weights = _overlaps(width)

    def __call__(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        # Whole columns are contiguous in the transpose, and gathering whole lines is several times faster.
        across = _weighted_lines(np.ascontiguousarray(picture.T), self._columns, self._column_weights)
        down = _weighted_lines(np.ascontiguousarray(across.T), self._rows, self._row_weights)
        return np.rint(down).astype(np.uint8)


def _overlaps(old_size: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Which old pixels each of the 84 new ones covers, and by what share of itself: two arrays [K, 84]."""
    scale = old_size / PICTURE_SIZE
    start = np.arange(PICTURE_SIZE) * scale
    pixel = np.floor(start).astype(np.intp) + np.arange(int(np.ceil(scale)) + 1)[:, None]
    overlap = np.minimum(pixel + 1, start + scale) - np.maximum(pixel, start)
    weight = np.where(overlap > 1e-3, overlap / scale, 0.0).astype(np.float32)
    used = weight.any(axis=1)
    return np.minimum(pixel, old_size - 1)[used], weight[used]


def _weighted_lines(lines: NDArray[Any], chosen: NDArray[np.intp], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """[84, M] float32: sum_k weights[k, i] lines[chosen[k, i]], added in the order of k."""
    total: NDArray[np.float32] = lines[chosen[0]] * weights[0][:, None]
    for line, weight in zip(chosen[1:], weights[1:], strict=True):
        total += lines[line] * weight[:, None]
    return total


class AtariGame(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """One game; see the head of this file for the rules.

    Observation: [1, 84, 84] uint8. Actions: 0 to 17, in the emulator's order. After every reset and step, `info` holds
    the running episode's value of each name in `measurements`: `score`, the sum of the rewards; `rooms`, how many
    different rooms were visited (Montezuma's Revenge and Pitfall! alone).

    Args:
        game: which one, for example `montezuma_revenge`; see `check_game`.
        noops: an episode begins with 0 to this many no-ops, each number as likely.
        max_frames: an episode is truncated after this many frames.
        hand_crafted: also measure the parts of `hand_crafted_state` at every step (Montezuma's Revenge alone).
        tell_position: also measure where the player is, for probes, where that is known: `player_x` and `player_y` as
            above, and the `room`, 0 to 23 whatever the level.
        render_mode: `rgb_array` for the colour screen, [210, 160, 3]; None for nothing.

    `reset(options={"noops": n})` begins with exactly n no-ops.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        *,
        noops: int = 30,
        max_frames: int = 108_000,
        hand_crafted: bool = False,
        tell_position: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.game = check_game(game)
        check_atari_settings(noops, max_frames)
        if hand_crafted and self.game != HAND_CRAFTED_GAME:
            raise UserError(_no_hand_crafted_state(self.game))
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"the render mode {render_mode!r} does not exist; choose rgb_array, or None.")
        self.noops = noops
        self.max_frames = max_frames
        self.max_episode_steps = -(-max_frames // FRAME_SKIP)
        self.hand_crafted = hand_crafted
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0, 255, (1, PICTURE_SIZE, PICTURE_SIZE), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
        self._room_of = ROOM_READERS.get(self.game)
        told = tell_position and self.game == HAND_CRAFTED_GAME
        self.probed_position: tuple[str, ...] = POSITION if told else ()
        """Those of the `measurements` that say where the player is."""
        self.probed_room = ROOM if told else None
        """The one that says in which of how many rooms."""
        names = ["score", *(["rooms"] if self._room_of else [])]
        names += [*(HAND_CRAFTED_STATE if hand_crafted else ()), *((*POSITION, ROOM[0]) if told else ())]
        self.measurements: tuple[str, ...] = tuple(dict.fromkeys(names))
        """The names in `info`."""
        self.controllable_state: tuple[str, ...] = HAND_CRAFTED_STATE if hand_crafted else ()
        """Those of them that make up the hand-crafted controllable state."""
        # Loading a game takes a tenth of a second and is repeated when a reset names a seed, so it waits for the reset.
        self._ale: ALEInterface | None = None
        self._ended = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        if self._ale is None or seed is not None:
            # Some games carry memory from one episode to the next; a new console makes a seed mean the same each time.
            self._ale = self._load(int(self.np_random.integers(2**31)))
        ale = self._ale
        given = (options or {}).get("noops")
        noops = int(self.np_random.integers(self.noops + 1)) if given is None else int(given)
        ale.reset_game()
        for _ in range(noops):
            ale.act(0)
            if ale.game_over():
                ale.reset_game()
        ale.getScreenGrayscale(self._seen)
        self._third.fill(0)
        self._frames = 0
        self._score = 0.0
        self._rooms: set[int] = set()
        self._ended = False
        return self._observation(), self._measure()

    def step(self, action: np.int64 | int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        if self._ended:
            raise gymnasium.error.ResetNeeded("The episode has not begun or has ended; call reset() to begin the next.")
        if not 0 <= action < NUM_ACTIONS:
            raise ValueError(f"the action {action} does not exist; choose 0 to {NUM_ACTIONS - 1}.")
        ale = self._emulator
        button = int(action)
        reward = 0
        terminated = truncated = False
        for frame in range(1, FRAME_SKIP + 1):
            reward += ale.act(button)
            self._frames += 1
            terminated = ale.game_over()
            truncated = not terminated and self._frames >= self.max_frames
            if terminated or truncated:
                break
            if frame == FRAME_SKIP - 1:
                ale.getScreenGrayscale(self._third)
            elif frame == FRAME_SKIP:
                ale.getScreenGrayscale(self._seen)
        np.maximum(self._seen, self._third, out=self._seen)
        self._score += reward
        self._ended = terminated or truncated
        return self._observation(), float(reward), terminated, truncated, self._measure()

    @property
    def ram(self) -> NDArray[np.uint8]:
        """The game's memory, [128] uint8."""
        return self._emulator.getRAM()

    @property
    def room(self) -> int | None:
        """A number for the room that the player is in; None where rooms are not known."""
        return None if self._room_of is None else self._room_of(self.ram)

    def hand_crafted_state(self) -> NDArray[np.float32]:
        """[4] float32: the paper's hand-crafted controllable state, see `montezuma_state`."""
        if self.game != HAND_CRAFTED_GAME:
            raise UserError(_no_hand_crafted_state(self.game))
        return montezuma_state(self.ram)

    def render(self) -> NDArray[np.uint8] | None:
        """The colour screen as it stands, [210, 160, 3] uint8."""
        return self._emulator.getScreenRGB() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        self._ale = None
        self._ended = True

    @property
    def _emulator(self) -> ALEInterface:
        if self._ale is None:
            raise gymnasium.error.ResetNeeded("The game has not begun; call reset() first.")
        return self._ale

    def _load(self, seed: int) -> ALEInterface:
        ale_py = load_emulator()
        ale: ALEInterface = ale_py.ALEInterface()
        ale.setInt("random_seed", seed)
        ale.setFloat("repeat_action_probability", 0.0)
        ale.loadROM(ale_py.roms.get_rom_path(self.game))
        height, width = ale.getScreenDims()
        self._shrink = AreaResize(height, width)
        self._third = np.zeros((height, width), dtype=np.uint8)
        self._seen = np.zeros((height, width), dtype=np.uint8)
        return ale

    def _observation(self) -> NDArray[np.uint8]:
        return self._shrink(self._seen)[None]

    def _measure(self) -> dict[str, Any]:
        info = {"score": self._score}
        if self._room_of is not None:
            ram = self.ram
            self._rooms.add(self._room_of(ram))
            info["rooms"] = float(len(self._rooms))
            if self.hand_crafted or self.probed_room:
                state = dict(zip(HAND_CRAFTED_STATE, montezuma_state(ram).tolist(), strict=True))
                state["room"] = state["room_and_level"] % ROOM[1]
                info |= {name: value for name, value in state.items() if name in self.measurements}
        return info


def _no_hand_crafted_state(game: str) -> str:
    return f"there is no hand-crafted state for {game}; the paper has one for {HAND_CRAFTED_GAME} alone."
