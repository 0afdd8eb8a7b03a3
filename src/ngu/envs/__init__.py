"""Environments: one protocol, and what implements it.

Importing this package registers `ngu/DiscoMaze-v0`, `ngu/DeepSea-v0` and `ngu/RandomCoin-v0` with Gymnasium, so
`gymnasium.make("ngu.envs:ngu/DiscoMaze-v0")` works on its own and `gymnasium.make("ngu/DiscoMaze-v0")` after the
import. It does not import PyTorch: every worker process of `workers.py` imports this package.
"""

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from ngu.envs.deep_sea import DeepSea
    from ngu.envs.deep_sea_gym import DeepSeaEnv
    from ngu.envs.disco_maze import DiscoMaze
    from ngu.envs.disco_maze_gym import DiscoMazeEnv
    from ngu.envs.minigrid_level import MiniGridLevel
    from ngu.envs.protocol import EnvironmentBatch, EnvironmentSpec, Step
    from ngu.envs.random_coin import RandomCoin
    from ngu.envs.random_coin_gym import RandomCoinEnv
    from ngu.envs.scripted import SCRIPTED_POLICIES, ScriptedPolicy, run_scripted

__all__ = [
    "SCRIPTED_POLICIES",
    "DeepSea",
    "DeepSeaEnv",
    "DiscoMaze",
    "DiscoMazeEnv",
    "EnvironmentBatch",
    "EnvironmentSpec",
    "MiniGridLevel",
    "RandomCoin",
    "RandomCoinEnv",
    "ScriptedPolicy",
    "Step",
    "register_gymnasium_environments",
    "run_scripted",
]

_HOMES = {
    "SCRIPTED_POLICIES": "ngu.envs.scripted",
    "DeepSea": "ngu.envs.deep_sea",
    "DeepSeaEnv": "ngu.envs.deep_sea_gym",
    "DiscoMaze": "ngu.envs.disco_maze",
    "DiscoMazeEnv": "ngu.envs.disco_maze_gym",
    "EnvironmentBatch": "ngu.envs.protocol",
    "EnvironmentSpec": "ngu.envs.protocol",
    "MiniGridLevel": "ngu.envs.minigrid_level",
    "RandomCoin": "ngu.envs.random_coin",
    "RandomCoinEnv": "ngu.envs.random_coin_gym",
    "ScriptedPolicy": "ngu.envs.scripted",
    "Step": "ngu.envs.protocol",
    "run_scripted": "ngu.envs.scripted",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for."""
    if name == "gym":  # the home of `make_gymnasium_spec`, which messages name
        return importlib.import_module("ngu.envs.gym")
    if name not in _HOMES:
        raise AttributeError(f"module 'ngu.envs' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "gym"]


def register_gymnasium_environments() -> None:
    """Makes `gymnasium.make("ngu/DiscoMaze-v0")` and the others known; a second call changes nothing."""
    for name, environment in {
        "DiscoMaze": "DiscoMazeEnv",
        "DeepSea": "DeepSeaEnv",
        "RandomCoin": "RandomCoinEnv",
    }.items():
        if f"ngu/{name}-v0" not in gymnasium.registry:
            gymnasium.register(id=f"ngu/{name}-v0", entry_point=f"{_HOMES[environment]}:{environment}")


register_gymnasium_environments()
