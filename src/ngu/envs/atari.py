"""Atari games, a batch of E emulators on C++ threads (ale-py's vector environment), as the paper's table has them.

The rules stand at the head of `atari_game.py`, which plays the same game for one player in Python; the tests hold both
against a third stack, step for step.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ngu.envs.atari_game import FRAME_SKIP, NUM_ACTIONS, PICTURE_SIZE, check_atari_settings, load_emulator
from ngu.envs.atari_games import check_game
from ngu.envs.priority import step_back
from ngu.envs.protocol import EnvironmentSpec, Step
from ngu.errors import UserError


def emulator_seeds(seed: int, num_envs: int) -> NDArray[np.int64]:
    """[E] seeds of the emulators, 31 bits each; different `seed`s give unrelated ones, so no two groups are alike."""
    return (np.random.SeedSequence(seed).generate_state(num_envs) >> 1).astype(np.int64)


class AtariVector:
    """E emulators of one game that step together on the host; see `EnvironmentBatch`.

    Observations are [E, 1, 84, 84] uint8. `send` returns at once; the emulators step on threads of their own until
    `recv`. The seed decides the number of no-ops that each episode begins with, and nothing else is random: the same
    seed gives the same episodes for the same actions, whatever the number of threads.

    An emulator takes about a tenth of a second to make, one after another, and `reset`, which seeds them anew, as long
    again on all threads: make a batch once and let its episodes reset themselves.

    Args:
        game: which one, for example `montezuma_revenge`; see `check_game`.
        num_envs: E.
        threads: emulator threads; 0 for as many as there are cores.
        noops: an episode begins with 0 to this many no-ops, each number as likely.
        max_frames: an episode is truncated after this many frames, no-ops not counted.
    """

    device = torch.device("cpu")
    graph_safe = False
    restores = False
    """A saved state holds no running episodes: a resumed run begins new ones."""
    generators: tuple[torch.Generator, ...] = ()

    def __init__(
        self, game: str, num_envs: int, *, threads: int = 0, noops: int = 30, max_frames: int = 108_000
    ) -> None:
        self.game = check_game(game)
        check_atari_settings(noops, max_frames)
        if num_envs < 1:
            raise UserError(f"the number of environments is {num_envs}; set it to 1 or more.")
        if threads < 0:
            raise UserError(f"the number of emulator threads is {threads}; set it to 0 (all cores) or more.")
        self.num_envs = num_envs
        self.spec = EnvironmentSpec(
            observation_shape=(1, PICTURE_SIZE, PICTURE_SIZE),
            observation_dtype=torch.uint8,
            num_actions=NUM_ACTIONS,
            max_episode_steps=-(-max_frames // FRAME_SKIP),
            measurements=("score",),
        )
        make_emulators = partial(
            load_emulator().vector_env.AtariVectorEnv,
            self.game,
            num_envs,
            num_threads=threads,
            max_num_frames_per_episode=max_frames,
            repeat_action_probability=0.0,
            full_action_space=True,
            autoreset_mode="NextStep",
            img_height=PICTURE_SIZE,
            img_width=PICTURE_SIZE,
            grayscale=True,
            stack_num=1,
            frameskip=FRAME_SKIP,
            maxpool=True,
            noop_max=noops + 1,  # it draws from 0 to noop_max - 1
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
            use_fire_reset=False,
        )
        self._emulators: Any = _made_by_a_thread_that_steps_back(make_emulators)
        self._button = _place_of_each_action(self._emulators.ale.get_action_set())
        self._running = False
        self._step: Step | None = None
        self._score: NDArray[np.float32] = np.zeros(num_envs, dtype=np.float32)
        self._ended: NDArray[np.bool_] = np.zeros(num_envs, dtype=np.bool_)
        self.episode_frames: NDArray[np.int32] = np.zeros(num_envs, dtype=np.int32)
        """[E] int32: frames of the running episodes as the emulator counts them, with no-ops and, where a game begins
        with presses of the console's switches, those."""

    def reset(self, seed: int) -> Step:
        if self._running:
            self.recv()  # the emulators must stand still
        observation, info = self._open().reset(seed=emulator_seeds(seed, self.num_envs))
        nothing = np.zeros(self.num_envs, dtype=np.bool_)
        return self._take_in(observation, np.zeros(self.num_envs), nothing, nothing.copy(), ~nothing, info)

    def send(self, action: Tensor) -> None:
        choice = action.numpy()
        if choice.shape != (self.num_envs,) or choice.min() < 0 or choice.max() >= NUM_ACTIONS:
            # The emulators' threads would swallow the error, and `recv` wait for ever.
            raise ValueError(f"actions must be {self.num_envs} numbers from 0 to {NUM_ACTIONS - 1}, not {action}.")
        if self._step is None:
            raise RuntimeError("the games have not begun; call reset() before send().")
        if self._running:
            raise RuntimeError("the last step has not been received; call recv() before the next send().")
        self._open().send(self._button[choice])
        self._running = True

    def recv(self) -> Step:
        if self._running:
            observation, reward, terminated, truncated, info = self._open().recv()
            self._running = False
            return self._take_in(observation, reward, terminated, truncated, self._ended, info)
        if self._step is None:
            raise RuntimeError("the games have not begun; call reset() before recv().")
        return self._step

    def _take_in(
        self,
        observation: NDArray[np.uint8],
        reward: NDArray[Any],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        first: NDArray[np.bool_],
        info: dict[str, NDArray[Any]],
    ) -> Step:
        """The emulators' arrays, which are new at each step, as tensors; keeps the score."""
        gained = reward.astype(np.float32)
        self._score = np.where(first, gained, self._score + gained)
        self._ended = terminated | truncated
        self.episode_frames = info["episode_frame_number"]
        self._step = Step(
            observation=torch.from_numpy(observation),
            reward=torch.from_numpy(gained),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            first=torch.from_numpy(first),
            info={"score": torch.from_numpy(self._score)},
        )
        return self._step

    def maintain(self) -> None:
        """Nothing to do between steps."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing is restored; see `restores`."""

    def close(self) -> None:
        """Ends the emulators and their threads; a second call changes nothing."""
        self._emulators = None
        self._running = False

    def _open(self) -> Any:
        if self._emulators is None:
            raise RuntimeError("the emulators have been closed.")
        return self._emulators


def _made_by_a_thread_that_steps_back(make: Callable[[], Any]) -> Any:
    """What `make` returns, or raises. Its threads have the low priority of the thread that starts them."""
    with ThreadPoolExecutor(1, initializer=step_back) as thread:
        return thread.submit(make).result()


def _place_of_each_action(legal: list[Any]) -> NDArray[np.int64]:
    """[18] int64: where each of the 18 actions stands in the game's own list; those it lacks (Skiing) do nothing."""
    places = {action.value: place for place, action in enumerate(legal)}
    return np.array([places.get(action, places[0]) for action in range(NUM_ACTIONS)], dtype=np.int64)
