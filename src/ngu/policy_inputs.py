"""What a user gives to `NGU.predict`, looked at and turned into tensors: one sentence for what does not fit.

Unlike in training, values are looked at, too: an answer to a wrong question would pass for the agent's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError

_HIGHEST = 255


def as_numbers(what: str, given: Any) -> NDArray[Any]:
    """What is given as an array of finite numbers; on the host, wherever a tensor was."""
    if isinstance(given, Tensor):
        given = given.detach().cpu()
        given = given.float() if given.dtype == torch.bfloat16 else given  # which NumPy does not know
    try:
        array = np.asarray(given)
    except ValueError:  # rows of several lengths
        array = np.empty((), dtype=object)
    if array.dtype.kind not in "biuf":
        raise UserError(f"the {what} is of the type {type(given).__name__}; give an array or tensor of numbers.")
    if array.dtype.kind == "f" and not (finite := np.isfinite(array)).all():
        raise UserError(f"the {what} holds {array[~finite][0]}; give finite numbers.")
    return array


def as_observations(given: Any, spec: EnvironmentSpec) -> tuple[Tensor, bool]:
    """One observation or a batch, images channels first or last, to [B, *observation_shape], and whether it was one."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], dict):
        raise UserError("the observation is a tuple, as env.reset() returns it; give the first of its two parts.")
    array = np.atleast_1d(as_numbers("observation", given))
    wanted = spec.observation_shape
    last = (*wanted[1:], wanted[0])
    single = array.shape in (wanted, last)
    batch = array[None] if single else array
    if batch.shape[1:] != wanted and len(wanted) == 3 and batch.shape[1:] == last:
        batch = batch.transpose(0, 3, 1, 2)
    if batch.shape[1:] != wanted:
        raise UserError(
            f"the observation has shape {array.shape}, but this agent was trained on {wanted}; give one observation or "
            "a batch of them, images with channels first or last."
        )
    if len(batch) == 0:
        raise UserError("the batch of observations is empty; give one or more.")
    return torch.from_numpy(_in_its_type(batch, spec)), single


def _in_its_type(batch: NDArray[Any], spec: EnvironmentSpec) -> NDArray[Any]:
    """A copy of the type that the agent was trained on, where that changes no value but by rounding."""
    if spec.observation_dtype == torch.uint8:
        if batch.dtype.kind not in "iu" or batch.min() < 0 or batch.max() > _HIGHEST:
            raise UserError(
                f"the observation is {batch.dtype} from {batch.min():g} to {batch.max():g}, but this agent was trained "
                f"on pictures of whole numbers; give uint8, from 0 to {_HIGHEST}."
            )
        return batch.astype(np.uint8, order="C")
    largest = np.finfo(np.float32).max
    if np.abs(batch.astype(np.float64)).max() > largest:
        raise UserError(f"the observation holds numbers above {largest:g}, the largest that float32 knows; scale it.")
    return batch.astype(np.float32, order="C")


def as_rewards(given: Any, batch: int) -> Tensor:
    """One reward for all, or one for each of `batch` observations, to [B] float32."""
    array = as_numbers("reward", given)
    if array.shape not in ((), (1,), (batch,)):
        wanted = "one number" if batch == 1 else f"one number, or {batch}, one for each observation"
        raise UserError(f"the reward has shape {array.shape}; give {wanted}.")
    largest = np.finfo(np.float32).max
    if np.abs(array.astype(np.float64)).max() > largest:
        raise UserError(f"the reward is above {largest:g} in size, the largest that float32 knows; scale it.")
    return torch.from_numpy(array.astype(np.float32)).expand(batch)


def as_epsilon(given: Any) -> float:
    """A share, from 0 to 1."""
    array = as_numbers("epsilon", given)
    if array.shape != () or not 0 <= array <= 1:
        raise UserError(f"epsilon is {given!r}; give the share of random actions, from 0 to 1.")
    return float(array)
