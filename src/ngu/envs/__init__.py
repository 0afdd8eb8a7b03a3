"""Environments: one protocol, and what implements it.

Importing this package registers `ngu/DiscoMaze-v0` with Gymnasium, so `gymnasium.make("ngu.envs:ngu/DiscoMaze-v0")`
works on its own and `gymnasium.make("ngu/DiscoMaze-v0")` after the import. It does not import PyTorch: every worker
process of `workers.py` imports this package.
"""

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from ngu.envs.disco_maze import DiscoMaze
    from ngu.envs.disco_maze_gym import DiscoMazeEnv
    from ngu.envs.protocol import EnvironmentBatch, EnvironmentSpec, Step
    from ngu.envs.scripted import SCRIPTED_POLICIES, ScriptedPolicy, run_scripted

__all__ = [
    "SCRIPTED_POLICIES",
    "DiscoMaze",
    "DiscoMazeEnv",
    "EnvironmentBatch",
    "EnvironmentSpec",
    "ScriptedPolicy",
    "Step",
    "register_gymnasium_environments",
    "run_scripted",
]

_HOMES = {
    "SCRIPTED_POLICIES": "ngu.envs.scripted",
    "DiscoMaze": "ngu.envs.disco_maze",
    "DiscoMazeEnv": "ngu.envs.disco_maze_gym",
    "EnvironmentBatch": "ngu.envs.protocol",
    "EnvironmentSpec": "ngu.envs.protocol",
    "ScriptedPolicy": "ngu.envs.scripted",
    "Step": "ngu.envs.protocol",
    "run_scripted": "ngu.envs.scripted",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ngu.envs' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__


def register_gymnasium_environments() -> None:
    """Makes `gymnasium.make("ngu/DiscoMaze-v0")` known; a second call changes nothing."""
    name = "ngu/DiscoMaze-v0"
    if name not in gymnasium.registry:
        gymnasium.register(id=name, entry_point="ngu.envs.disco_maze_gym:DiscoMazeEnv")


register_gymnasium_environments()
