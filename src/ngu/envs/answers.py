"""What one Gymnasium environment answers, taken apart: a sentence says what to change where it is not as it must be.

This module is imported by every worker: nothing in it may need PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import gymnasium

Env = gymnasium.Env[Any, Any]

RETURNED = {
    "reset": ("observation", "info"),
    "step": ("observation", "reward", "terminated", "truncated", "info"),
}
"""What each call must return."""

_GYMNASIUM = Path(gymnasium.__file__).parent
_BETWEEN = (_GYMNASIUM / "core.py", _GYMNASIUM / "wrappers", _GYMNASIUM / "utils", Path(__file__).parent / "gym.py",
            Path(__file__).parent / "worker_process.py", Path(__file__))  # fmt: skip
"""What stands between an environment and the agent, and stumbles over what it returns."""


class WrongAnswerError(ValueError):
    """An environment returned what its spaces or Gymnasium's interface do not allow; the message says "its"."""


def reset_once(env: Env, seed: int | None) -> tuple[Any, Mapping[str, Any]]:
    """The first observation of an episode, and its info."""
    observation, info = _parts(env.reset(seed=seed), "reset")
    return observation, info


def step_once(env: Env, action: int) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
    """Observation, reward, terminated, truncated and info of one step."""
    observation, reward, terminated, truncated, info = _parts(env.step(action), "step")
    ends = _as_end("terminated", terminated), _as_end("truncated", truncated)
    return observation, as_number("reward", reward), *ends, info


def _parts(answer: Any, call: str) -> tuple[Any, ...]:
    wanted = RETURNED[call]
    if not isinstance(answer, tuple | list):
        found = f"a value of the type {type(answer).__name__}"
    elif len(answer) != len(wanted):
        found = f"{len(answer)} values"
    elif not isinstance(answer[-1], Mapping):
        found = f"an info of the type {type(answer[-1]).__name__}"
    else:
        return tuple(answer)
    raise WrongAnswerError(f"its {call} returned {found}; {advice(call)}")


def advice(call: str) -> str:
    """What a call must return, as an advice."""
    *names, _ = RETURNED[call]
    return f"let {call} return {', '.join(names)} and info, a dictionary"


def as_number(what: str, given: Any) -> float:
    """A number that an environment gave, of whichever type."""
    try:
        if not isinstance(given, str | bytes):
            return float(given)
    except OverflowError:
        raise WrongAnswerError(f"its {what} is too large for a float; scale it") from None
    except (TypeError, ValueError):
        pass
    raise WrongAnswerError(f"its {what} is of the type {type(given).__name__}; give one number")


def _as_end(what: str, given: Any) -> bool:
    """Whether the environment says that the episode is over; a text would always be true, None never."""
    try:
        if not isinstance(given, str | bytes | None):
            return bool(given)
    except (TypeError, ValueError):
        pass
    raise WrongAnswerError(f"its {what} is of the type {type(given).__name__}; give True or False")


def describe(error: BaseException, call: str = "") -> str:
    """`raised ValueError: what it says (file.py, line 12)`, on one line.

    Where an environment's answer to a `call` made others stumble, their place says nothing, and an advice does.
    """
    text = " ".join(str(error).split())
    if isinstance(error, WrongAnswerError):
        return f"is at fault: {text}"
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" ({PurePath(place.tb_frame.f_code.co_filename).name}, line {place.tb_lineno})" if place else ""
    said = f"raised {type(error).__name__}{': ' if text else ''}{text}"
    if call and place and _is_between(Path(place.tb_frame.f_code.co_filename)):
        return f"{said.removesuffix('.')}; {advice(call)}"
    return said + where


def _is_between(file: Path) -> bool:
    return any(file.is_relative_to(part) for part in _BETWEEN)
