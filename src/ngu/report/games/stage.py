"""One environment in this process, as a batch of one: for an actor that plays it while its screen is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ngu.config import Config
from ngu.envs.answers import Env, describe, reset_once, step_once
from ngu.envs.atari_game import AtariGame
from ngu.envs.gym import GymFactory, read_interface
from ngu.envs.make import single_environment
from ngu.envs.protocol import Step
from ngu.errors import UserError


class Stage:
    """E = 1; see `EnvironmentBatch`. What raises an exception in the environment's code becomes a `UserError`."""

    num_envs = 1
    device = torch.device("cpu")
    graph_safe = False
    restores = False
    generators: tuple[torch.Generator, ...] = ()

    def __init__(self, config: Config) -> None:
        self._env, self.no_screen = self._guarded(_make_single, config)
        """Why `screen` gives nothing; empty as long as it gives pictures."""
        self._interface = self._guarded(read_interface, self._env)
        self.spec = self._interface.spec()
        self._screen_shape: tuple[int, ...] | None = None
        self._score = 0.0
        self._step: Step | None = None

    def reset(self, seed: int) -> Step:
        # Gymnasium takes seeds of 32 bits, environments of other people sometimes 31.
        word = int(np.random.SeedSequence(seed).generate_state(1)[0]) >> 1
        return self._begin(word)

    def _begin(self, seed: int | None) -> Step:
        observation, info = self._guarded(reset_once, self._env, seed)
        self._score = 0.0
        return self._take_in(observation, 0.0, False, False, info, first=True)

    def send(self, action: Tensor) -> None:
        assert self._step is not None
        if bool(self._step.ended):
            self._begin(None)
            return
        choice = int(action) + self._interface.first_action
        observation, reward, terminated, truncated, info = self._guarded(step_once, self._env, choice)
        self._score += reward
        self._take_in(observation, reward, terminated, truncated, info, first=False)

    def recv(self) -> Step:
        assert self._step is not None
        return self._step

    def _take_in(
        self,
        observation: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
        *,
        first: bool,
    ) -> Step:
        interface = self._interface
        values = self._guarded(interface.measure, self._score, info)
        array = np.array(self._guarded(interface.convert, observation), dtype=interface.observation_dtype)
        self._step = Step(
            observation=torch.from_numpy(array)[None],
            reward=torch.tensor([reward]),
            terminated=torch.tensor([terminated]),
            truncated=torch.tensor([truncated]),
            first=torch.tensor([first]),
            info={name: torch.tensor([value]) for name, value in zip(self.spec.measurements, values, strict=True)},
        )
        return self._step

    def screen(self) -> NDArray[np.uint8] | None:
        """The environment's picture of itself as it stands, [H, W, 3]; None where it has none, see `no_screen`."""
        if self.no_screen:
            return None
        if self._screen_shape is None:  # the first tells whether it can draw; packages for that are often missing
            try:
                picture = np.asarray(self._env.render())
            except Exception as error:
                self.no_screen = _reason(error)
                return None
            if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
                self.no_screen = f"its pictures are {picture.dtype} of shape {picture.shape}"
                return None
            self._screen_shape = picture.shape
            return picture.copy()
        picture = np.asarray(self._guarded(self._env.render))
        if picture.shape != self._screen_shape:
            raise UserError(f"the environment's pictures change from {self._screen_shape} to {picture.shape}.")
        return picture.copy()

    @property
    def room(self) -> int:
        """A number for the room that the player is in; -1 where rooms are not known."""
        game = self._env.unwrapped
        room = game.room if isinstance(game, AtariGame) else None
        return -1 if room is None else room

    def _guarded(self, call: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"the environment {describe(error)}.") from None

    def maintain(self) -> None:
        """Nothing to do between steps."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing is restored."""

    def close(self) -> None:
        self._guarded(self._env.close)


def _make_single(config: Config) -> tuple[Env, str]:
    """The environment, and why it will draw no picture; empty if it will, which only one that was made can say."""
    factory = single_environment(config)
    env = factory(0)
    if "rgb_array" not in (env.metadata.get("render_modes") or ()):
        return env, "it offers no pictures"
    try:
        drawn = GymFactory(factory.environment, {**factory.kwargs, "render_mode": "rgb_array"})(0)
    except Exception as error:  # an entry point that takes no render_mode, a package for drawing that is missing
        return env, _reason(error)
    env.close()
    return drawn, "" if drawn.render_mode == "rgb_array" else "it offers no pictures"


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()).removesuffix(".") or type(error).__name__
