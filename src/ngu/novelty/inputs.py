"""What a user gives to `IntrinsicReward` is looked at first: one sentence instead of an error from inside PyTorch.

Of tensors on a GPU types, shapes and devices alone are looked at, never values: that takes no time, and waits for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, get_args

import torch
from torch import Tensor

from ngu.config import NoveltyConfig, Precision
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError

_KNOWN = (torch.uint8, torch.float32)


def check_tensor(what: str, given: Any, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    """Refuses anything but a tensor of that shape and type on that kind of device."""
    wanted = f"a tensor of shape {shape} and {dtype}"
    if not isinstance(given, Tensor):
        hint = ", as torch.as_tensor makes one" if hasattr(given, "__array__") else ""
        raise UserError(f"{what} is of the type {type(given).__name__}; give {wanted}{hint}.")
    if tuple(given.shape) != shape:
        swapped = len(shape) == 4 and sorted(given.shape) == sorted(shape)
        hint = "; channels come before height and width" if swapped else ""
        raise UserError(f"{what} has the shape {tuple(given.shape)}; give {wanted}{hint}.")
    if given.dtype != dtype:
        hint = ", from 0 to 255" if dtype == torch.uint8 else ""
        raise UserError(f"{what} is {given.dtype}; give {wanted}{hint}.")
    if given.device.type != device.type:
        raise UserError(f"{what} is on {given.device}, but the reward is on {device}; move one of them.")


def check_parts(spec: Any, config: Any, num_envs: Any, precision: Any) -> None:
    """Refuses what no reward could be built from."""
    if not isinstance(spec, EnvironmentSpec):
        raise UserError(
            f"the spec is of the type {type(spec).__name__}; give an ngu.EnvironmentSpec, which "
            "ngu.envs.gym.make_gymnasium_spec(env) makes for a Gymnasium environment."
        )
    if spec.observation_dtype not in _KNOWN:
        raise UserError(
            f"the spec's observation_dtype is {spec.observation_dtype}; set it to torch.uint8 for pictures or "
            "torch.float32 for vectors."
        )
    shape = spec.observation_shape
    if not isinstance(shape, tuple | list) or len(shape) not in (1, 3) or not all(map(_is_positive, shape)):
        raise UserError(
            f"the spec's observation_shape is {shape}; set it to (D,) for vectors, such as (4,), or (C, H, W) for "
            "pictures."
        )
    if not _is_positive(spec.num_actions):
        raise UserError(f"the spec's num_actions is {spec.num_actions}; set it to how many there are, 1 or more.")
    if spec.max_episode_steps is not None and not _is_positive(spec.max_episode_steps):
        raise UserError(
            f"the spec's max_episode_steps is {spec.max_episode_steps}; set it to 1 or more, or None if nothing bounds "
            "an episode."
        )
    if not isinstance(config, NoveltyConfig):
        hint = "; a preset's is ngu.preset(name).novelty" if hasattr(config, "novelty") else ""
        raise UserError(f"the config is of the type {type(config).__name__}; give an ngu.NoveltyConfig{hint}.")
    if not _is_positive(num_envs):
        raise UserError(f"num_envs is {num_envs!r}; give how many environments step together, 1 or more.")
    if precision not in get_args(Precision):
        raise UserError(f"precision is {precision!r}; choose one of {', '.join(get_args(Precision))}.")


def find_device(given: Any) -> torch.device:
    """cpu, cuda, cuda:1 or auto for cuda where there is one, to a device that exists."""
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if given == "auto" else given)
    except (RuntimeError, TypeError):
        raise UserError(f"the device is {given!r}; give cpu, cuda or auto.") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"the device {device} is not supported; give cpu, cuda or auto.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("the device is cuda, but PyTorch finds no CUDA device here; give device='cpu'.")
    return device


def _is_positive(value: Any) -> bool:
    # NumPy's whole numbers are some, too; True is none.
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


def check_actions(action: Tensor, valid: Tensor | None, num_actions: int) -> None:
    """Refuses actions that the spec has not. On the CPU, where looking at values costs nothing; padding may be any."""
    if action.device.type != "cpu":
        return
    used = action if valid is None else action[valid]
    if len(used) and (used.min() < 0 or used.max() >= num_actions):
        raise UserError(
            f"action holds numbers from {used.min()} to {used.max()}; the spec has {num_actions} actions, so give 0 to "
            f"{num_actions - 1}."
        )


def check_behaviour(given: Any, action: Tensor, valid: Tensor | None, wanted: bool, device: torch.device) -> None:
    """Refuses what is no probability of the actions, its lack where it is used, and one that would be ignored."""
    if given is None and not wanted:
        return
    if not wanted:
        raise UserError(
            "a behaviour is given, but nothing is done with it; set novelty.balance_actions, or leave it out."
        )
    if given is None:
        raise UserError(
            "novelty.balance_actions is set, but no behaviour is given; give the probabilities with which your policy "
            "took the actions, or turn it off."
        )
    check_tensor("behaviour", given, tuple(action.shape), torch.float32, device)
    used = given if valid is None else given[valid]
    if device.type == "cpu" and len(used) and not bool(((used > 0) & (used <= 1)).all()):
        raise UserError(
            f"behaviour holds numbers from {used.min():g} to {used.max():g}; give the probabilities of the actions "
            "that were taken, above 0 and at most 1."
        )


def check_state(given: Any, own: Mapping[str, Any]) -> None:
    """Refuses a saved state of another reward before anything of this one is changed."""
    theirs, mine = _shapes(given), _shapes(own)
    wrong = next((name for name in mine if theirs.get(name) != mine[name]), "")
    if wrong:
        found = f"of shape {theirs[wrong]}" if wrong in theirs else "missing"
        raise UserError(
            f"the state is not of a reward like this: its {wrong} is {found}, not of shape {mine[wrong]}; make one of "
            "the same spec, num_envs and config, or load the state that it saved."
        )


def _shapes(state: Any, path: str = "") -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors in nested dictionaries, by their names."""
    if isinstance(state, Tensor):
        return {path: tuple(state.shape)}
    parts = state.items() if isinstance(state, Mapping) else ()
    return {name: shape for key, part in parts for name, shape in _shapes(part, f"{path}/{key}".strip("/")).items()}
