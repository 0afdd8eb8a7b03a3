"""Gymnasium environments for the agent: which spaces fit, and how they are turned into what the agent takes.

Actions are one `Discrete` space; the agent counts from 0 whatever the space's `start`. Observations are one `Box`:

- uint8 of rank 2 or 3 is a picture and becomes [C, H, W] uint8. [H, W] has one channel. Of three axes the shorter of
  the first and the last is C, so [210, 160, 3] and [4, 84, 84] are both understood; if they are equal it is the last,
  as is Gymnasium's custom. An environment whose attribute `channels_first` is True or False settles it.
- any other number of rank 0, 1 or 2, and uint8 of rank 0 or 1, is a vector: flattened, float32, its values as they are.

Everything else is refused with a sentence that names the Gymnasium wrapper to use. Nothing here needs PyTorch before a
batch is made, so that worker processes start fast and stay small.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ngu.envs.answers import Env, WrongAnswerError, as_number
from ngu.errors import UserError, unknown_name

if TYPE_CHECKING:
    from ngu.envs.protocol import EnvironmentSpec
    from ngu.envs.workers import WorkerEnvironments

SCORE = "score"
"""The measurement that every environment has: the sum of the running episode's rewards."""

_TAKEN = ("return", "length", "episode_length", "episodes", "restarts", "human_normalised")
"""What metrics of an episode and of all environments are called, whatever these measure."""
_PARTS = {"/", "@"}
"""What the names of metrics are put together with, as in `score/exploit`."""


@dataclass(frozen=True)
class Interface:
    """How the agent and one Gymnasium environment understand each other; plain data."""

    space_shape: tuple[int, ...]
    """The shape of the environment's own observations."""
    channels_last: bool
    """The environment's pictures are [H, W, C]."""
    observation_shape: tuple[int, ...]
    """[C, H, W] or [D], as the agent sees them."""
    observation_dtype: Literal["uint8", "float32"]
    num_actions: int
    first_action: int
    """What the environment calls action 0."""
    max_episode_steps: int | None
    measurements: tuple[str, ...]
    """The names that the environment puts into `info` after every reset and step."""
    controllable_state: tuple[str, ...] = ()
    """Those of them that make up a hand-crafted controllable state."""
    probed_position: tuple[str, ...] = ()
    """Those of them that say where the agent is."""
    probed_room: tuple[str, int] | None = None
    """The one of them that says in which of how many rooms it is."""

    @classmethod
    def from_plain(cls, fields: Mapping[str, Any]) -> Interface:
        """From what `asdict` made of one, after a journey through JSON, which knows lists and no tuples."""
        arguments: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**arguments)

    @cached_property
    def all_measurements(self) -> tuple[str, ...]:
        """The environment's own, and the score unless it has one of its own."""
        return self.measurements if SCORE in self.measurements else (SCORE, *self.measurements)

    def convert(self, observation: Any) -> NDArray[Any]:
        """One observation of the environment as an array of `observation_shape`; it may share memory."""
        array = np.asarray(observation)
        if array.shape != self.space_shape:
            raise WrongAnswerError(f"its observation has shape {array.shape}, but its space says {self.space_shape}")
        if self.observation_dtype == "uint8" and array.dtype != np.uint8:
            raise WrongAnswerError(f"its observation is {array.dtype}, but its space says uint8")
        if array.dtype.kind not in "biuf":
            raise WrongAnswerError(f"its observation is {array.dtype} and not of numbers")
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):  # what is above float32 becomes infinite, and is told
                finite = np.isfinite(array.astype(np.float32, copy=False))
            if not finite.all():
                raise WrongAnswerError(f"its observation holds {array[~finite][0]}")
        if self.channels_last:
            array = array.transpose(2, 0, 1)
        return array.reshape(self.observation_shape)

    def measure(self, score: float, info: Mapping[str, Any]) -> list[float]:
        """The values of `all_measurements`."""
        missing = [name for name in self.measurements if name not in info]
        if missing:
            raise WrongAnswerError(f"its info lacks the measurement {missing[0]!r}")
        return [
            as_number(f"measurement {name!r}", info[name]) if name in self.measurements else score
            for name in self.all_measurements
        ]

    def spec(self) -> EnvironmentSpec:
        """The same for networks, memories and replay."""
        import torch

        from ngu.envs.protocol import EnvironmentSpec

        return EnvironmentSpec(
            observation_shape=self.observation_shape,
            observation_dtype=torch.uint8 if self.observation_dtype == "uint8" else torch.float32,
            num_actions=self.num_actions,
            max_episode_steps=self.max_episode_steps,
            measurements=self.all_measurements,
            controllable_state=self.controllable_state,
            probed_position=self.probed_position,
            probed_room=self.probed_room,
        )


def read_interface(env: Env) -> Interface:
    """How to talk to `env`; a `UserError` says what to change where its spaces do not fit."""
    if not isinstance(env, gymnasium.Env):
        raise UserError(
            f"the factory made {type(env).__name__!r}, which is no gymnasium.Env; return an environment with "
            "Gymnasium's interface."
        )
    num_actions, first_action = _read_actions(env.action_space)
    settled = env.get_wrapper_attr("channels_first") if env.has_wrapper_attr("channels_first") else None
    space_shape, channels_last, shape, dtype = _read_observations(env.observation_space, settled)
    measurements = _read_measurements(env)
    return Interface(
        space_shape=space_shape,
        channels_last=channels_last,
        observation_shape=shape,
        observation_dtype=dtype,
        num_actions=num_actions,
        first_action=first_action,
        max_episode_steps=_read_longest_episode(env),
        measurements=measurements,
        controllable_state=_read_measured(env, "controllable_state", measurements),
        probed_position=_read_measured(env, "probed_position", measurements),
        probed_room=_read_room(env, measurements),
    )


def make_gymnasium_spec(env: Env) -> EnvironmentSpec:
    """The shapes that the agent is built from, for one Gymnasium environment; spaces that do not fit are refused."""
    return read_interface(env).spec()


def _read_actions(space: spaces.Space[Any]) -> tuple[int, int]:
    """How many actions there are, and the environment's number of the first."""
    if isinstance(space, spaces.Discrete):
        return int(space.n), int(space.start)
    if isinstance(space, spaces.Box):
        advice = (
            "wrap the environment in gymnasium.wrappers.DiscretizeAction, or in TransformAction with a choice of them"
        )
    else:
        advice = "number the combinations in a gymnasium.wrappers.TransformAction with a Discrete action space"
    raise UserError(
        f"the environment's actions are {_brief(space)}, but the agent needs one Discrete action; {advice}."
    )


def _read_observations(
    space: spaces.Space[Any], channels_first: bool | None = None
) -> tuple[tuple[int, ...], bool, tuple[int, ...], Literal["uint8", "float32"]]:
    """The space's shape, whether its channels are last, and the agent's shape and dtype."""
    refusal = f"the environment's observations are {_brief(space)}, but the agent needs one Box; "
    if isinstance(space, spaces.Dict):
        raise UserError(
            refusal + "join its entries with gymnasium.wrappers.FlattenObservation, or choose one with "
            "gymnasium.wrappers.TransformObservation."
        )
    if isinstance(space, spaces.Tuple | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise UserError(refusal + "wrap the environment in gymnasium.wrappers.FlattenObservation.")
    if not isinstance(space, spaces.Box):
        raise UserError(refusal + "turn them into one with gymnasium.wrappers.TransformObservation.")
    shape, rank = tuple(map(int, space.shape)), len(space.shape)
    if 0 in shape:
        raise UserError(f"the environment's observations have shape {shape}, which holds no number; give them one.")
    if space.dtype == np.uint8 and rank == 2:
        return shape, False, (1, *shape), "uint8"
    if space.dtype == np.uint8 and rank == 3:
        channels_last = shape[2] <= shape[0] if channels_first is None else not channels_first
        return shape, channels_last, (shape[2], *shape[:2]) if channels_last else shape, "uint8"
    if rank <= 2:
        return shape, False, (int(np.prod(shape)),), "float32"
    found = f"the environment's observations are {_brief(space)}, but the agent takes pictures of uint8 and vectors; "
    if space.dtype == np.uint8:
        raise UserError(
            found + "join their axes to [height, width, channels] with gymnasium.wrappers.TransformObservation."
        )
    raise UserError(
        found + "make a picture uint8 (0 to 255) with gymnasium.wrappers.TransformObservation, or a vector with "
        "gymnasium.wrappers.FlattenObservation."
    )


def _brief(space: spaces.Space[Any]) -> str:
    """A space in few words; the bounds of a box are left out, and what is inside others."""
    if isinstance(space, spaces.Box):
        return f"a Box of shape {space.shape} and {space.dtype}"
    return f"a {type(space).__name__} space"


def _read_longest_episode(env: Env) -> int | None:
    """The limit that Gymnasium enforces, or one that the environment names itself as `max_episode_steps`."""
    if env.spec and env.spec.max_episode_steps:
        return env.spec.max_episode_steps
    own = env.get_wrapper_attr("max_episode_steps") if env.has_wrapper_attr("max_episode_steps") else None
    return own if isinstance(own, int) and own > 0 else None


def _read_names(env: Env, attribute: str) -> tuple[str, ...]:
    """The names in an attribute of the environment, if it has one that is meant to hold names."""
    names = env.get_wrapper_attr(attribute) if env.has_wrapper_attr(attribute) else ()
    if not isinstance(names, str | list | tuple | set | frozenset):
        return ()  # something of the environment's own that happens to be called so
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UserError(
            f"the environment's {attribute} is {names!r}; give a tuple of names, such as ('doors', 'keys')."
        )
    return tuple(names)


def _read_measurements(env: Env) -> tuple[str, ...]:
    """The names that become metrics, so they must be fit for that."""
    names = _read_names(env, "measurements")
    for name in names:
        if name in _TAKEN or not name.strip() or not name.isprintable() or set(name) & _PARTS:
            why = "is what a metric of ngu itself is called" if name in _TAKEN else "cannot be a metric's name"
            raise UserError(f"the environment's measurements name {name!r}, which {why}; choose another name.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"the environment's measurements name {twice!r} twice; name it once.")
    return names


def _read_measured(env: Env, attribute: str, measurements: tuple[str, ...]) -> tuple[str, ...]:
    """The names in an attribute of the environment, all of which it must measure."""
    names = _read_names(env, attribute)
    for name in names:
        if name not in measurements:
            raise UserError(
                f"the environment's {attribute} names {name!r}, which its measurements do not; add it to them."
            )
    return names


def _read_room(env: Env, measurements: tuple[str, ...]) -> tuple[str, int] | None:
    """The measurement that says which room the agent is in, and how many there are, from `probed_room`."""
    given = env.get_wrapper_attr("probed_room") if env.has_wrapper_attr("probed_room") else None
    if given is None:
        return None
    name, count = given if isinstance(given, list | tuple) and len(given) == 2 else (None, None)
    if name not in measurements or not isinstance(count, int) or count < 1:
        raise UserError(
            f"the environment's probed_room is {given!r}; give the name of one of its measurements and how many rooms "
            "there are, such as ('room', 24)."
        )
    return name, count


class GymFactory:
    """Makes Gymnasium environments of one kind, here or in a worker process; called with the environment's index.

    Args:
        environment: an id, which may begin with the module that registers it ("my_package:MyEnv-v0"), or a class.
        kwargs: what the environment's constructor is given.
    """

    def __init__(self, environment: str | type[Env], kwargs: Mapping[str, Any] | None = None) -> None:
        self.environment = environment
        self.kwargs = dict(kwargs or {})
        # What was registered in this process, in a script for example, travels along: a worker has not run the script.
        self._registered = gymnasium.registry.get(environment) if isinstance(environment, str) else None

    def __call__(self, index: int) -> Env:
        if not isinstance(self.environment, str):
            return self.environment(**self.kwargs)
        # Gymnasium's warnings about an environment are told once, by the first, and not by all of them.
        options = {"disable_env_checker": index > 0 or None, **self.kwargs}
        try:
            return gymnasium.make(self._registered or self.environment, **options)
        except gymnasium.error.UnregisteredEnv:
            what = f"the Gymnasium environment {self.environment}"
            near = difflib.get_close_matches(self.environment, gymnasium.registry, cutoff=0.5)
            sentence = unknown_name(what, self.environment, near) if near else f"{what} does not exist."
            raise UserError(
                f"{sentence.removesuffix('.')}; if a package of yours registers it, put the package's name before it, "
                "as in my_package:MyEnv-v0."
            ) from None
        except (gymnasium.error.Error, ImportError) as error:
            reason = " ".join(str(error).split()).removesuffix(".")
            cause = error.__cause__ or error  # Gymnasium adds its own words to an import that failed
            if isinstance(cause, ModuleNotFoundError) and cause.name == self.environment.partition(":")[0]:
                reason = f"{cause}; install it, or put its folder into PYTHONPATH, as in `PYTHONPATH=. ngu ...`"
            raise UserError(f"the Gymnasium environment {self.environment} cannot be made: {reason}.") from None


def GymEnvironments(  # noqa: N802, it stands beside the classes of environments
    environment: str | type[Env] | Callable[..., Env],
    num_envs: int,
    *,
    workers: int = 0,
    timeout: float = 60.0,
    max_restarts: int = 100,
    kwargs: Mapping[str, Any] | None = None,
) -> WorkerEnvironments:
    """`num_envs` Gymnasium environments in worker processes, by id, class, or a factory that is given an index.

    See `WorkerEnvironments` for the rest; `kwargs` are given to the constructor, or to the factory after the index.
    """
    from ngu.envs.workers import WorkerEnvironments

    make_env: Callable[[int], Env]
    if isinstance(environment, str | type):
        make_env = GymFactory(environment, kwargs)
    else:
        make_env = partial(environment, **(kwargs or {}))
    return WorkerEnvironments(make_env, num_envs, workers=workers, timeout=timeout, max_restarts=max_restarts)
