"""Environments: one protocol, and what implements it.

Importing this package registers `ngu/DiscoMaze-v0` with Gymnasium, so `gymnasium.make("ngu.envs:ngu/DiscoMaze-v0")`
works on its own and `gymnasium.make("ngu/DiscoMaze-v0")` after the import.
"""

import gymnasium

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


def register_gymnasium_environments() -> None:
    """Makes `gymnasium.make("ngu/DiscoMaze-v0")` known; a second call changes nothing."""
    name = "ngu/DiscoMaze-v0"
    if name not in gymnasium.registry:
        gymnasium.register(id=name, entry_point="ngu.envs.disco_maze_gym:DiscoMazeEnv")


register_gymnasium_environments()
