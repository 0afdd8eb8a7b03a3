"""Makes the batch of environments that a config names."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import torch

from ngu.config import Config, EnvConfig
from ngu.config_reading import with_overrides
from ngu.envs.protocol import EnvironmentBatch
from ngu.errors import UserError

if TYPE_CHECKING:
    from ngu.envs.gym import GymFactory

_OTHERWISE = "set novelty.controllable_states to learned"


def make_environment(config: Config, num_envs: int, device: torch.device, share: int = 1) -> EnvironmentBatch:
    """`num_envs` environments, on `device` if they are tensors (`EnvConfig.on_device`), else on the host.

    `share` batches divide the machine's cores: each gets its part of the worker processes.
    """
    env, hand_crafted = config.env, config.novelty.hand_crafted
    if hand_crafted:
        _check_hand_crafted_state(env)
    if env.name == "disco-maze":
        from ngu.envs.disco_maze import DiscoMaze

        return DiscoMaze(
            num_envs=num_envs,
            size=env.maze_size,
            step_cap=env.maze_step_cap,
            pool=env.maze_pool,
            device=device,
            compile_kernels=config.run.compile and device.type == "cuda",
            tell_position=config.probe.enabled,
        )
    if env.name == "deep-sea":
        from ngu.envs.deep_sea import DeepSea

        return DeepSea(num_envs, env.sea_size, env.sea_seed, device)
    if env.name == "random-coin":
        from ngu.envs.random_coin import RandomCoin

        return RandomCoin(num_envs, env.coin_size, env.coin_step_cap, device)
    if in_emulator_threads(config):
        from ngu.envs.atari import AtariVector

        # Every group may use all threads: while one works, the others mostly wait for their actions.
        threads = min(env.threads or cores(), num_envs)
        return AtariVector(env.game, num_envs, threads=threads, noops=env.noops, max_frames=env.max_frames)

    from ngu.envs.workers import WorkerEnvironments

    batch = WorkerEnvironments(
        single_environment(config),
        num_envs,
        workers=max((env.workers or cores()) // share, 1),
        timeout=env.worker_timeout,
        max_restarts=env.max_restarts,
    )
    if hand_crafted and not batch.spec.controllable_state:  # only an environment that was made can say
        batch.close()
        raise UserError(
            f"the environment {env.which} has no hand-crafted controllable state; name the measurements that make it "
            f"up in its attribute controllable_state, or {_OTHERWISE}."
        )
    if config.probe.enabled and not (batch.spec.probed_position or batch.spec.probed_room):
        batch.close()
        raise UserError(
            f"there is nothing to probe f for: {env.which} does not say where the agent is; name measurements in its "
            "attribute probed_position, or leave probe.enabled off."
        )
    return batch


def single_environment(config: Config) -> GymFactory:
    """Makes single environments of the kind that the config names, in Gymnasium's interface."""
    from ngu.envs.gym import GymFactory

    env = config.env
    if env.name == "atari":
        from ngu.envs.atari_game import AtariGame
        from ngu.envs.atari_games import check_game

        settings = {"game": check_game(env.game), "noops": env.noops, "max_frames": env.max_frames}
        told = {"hand_crafted": config.novelty.hand_crafted, "tell_position": config.probe.enabled}
        return GymFactory(AtariGame, {**settings, **told})
    if env.name == "minigrid":
        from ngu.envs.minigrid_level import MiniGridLevel, check_level

        return GymFactory(MiniGridLevel, {"level": check_level(env.level)})
    if env.name == "disco-maze":
        from ngu.envs.disco_maze_gym import DiscoMazeEnv

        return GymFactory(DiscoMazeEnv, {"size": env.maze_size, "step_cap": env.maze_step_cap})
    if env.name == "deep-sea":
        from ngu.envs.deep_sea_gym import DeepSeaEnv

        return GymFactory(DeepSeaEnv, {"size": env.sea_size, "sea_seed": env.sea_seed})
    if env.name == "random-coin":
        from ngu.envs.random_coin_gym import RandomCoinEnv

        return GymFactory(RandomCoinEnv, {"size": env.coin_size, "step_cap": env.coin_step_cap})
    if not env.id:
        raise UserError("no Gymnasium environment is named; set env.id, for example to CartPole-v1.")
    return GymFactory(env.id, json.loads(env.kwargs))


def _check_hand_crafted_state(env: EnvConfig) -> None:
    """Refuses what has no such state before anything is made."""
    from ngu.envs.atari_game import HAND_CRAFTED_GAME
    from ngu.envs.atari_games import check_game

    if env.name == "disco-maze":
        raise UserError(f"there is no hand-crafted controllable state for the Disco Maze; {_OTHERWISE}.")
    if env.name == "atari" and check_game(env.game) != HAND_CRAFTED_GAME:
        raise UserError(
            f"there is no hand-crafted controllable state for {check_game(env.game)}; train on {HAND_CRAFTED_GAME}, or "
            f"{_OTHERWISE}."
        )


def in_emulator_threads(config: Config) -> bool:
    """Atari in the emulator's own threads, which do not read the console's memory, where places and states stand."""
    reads_memory = config.novelty.hand_crafted or config.probe.enabled
    return config.env.name == "atari" and config.env.backend == "vector" and not reads_memory


def measuring_rooms(config: Config) -> Config:
    """The same environments in worker processes where a game has rooms: only those read the console's memory."""
    from ngu.envs.atari_game import ROOM_READERS
    from ngu.envs.atari_games import check_game

    if config.env.name == "atari" and check_game(config.env.game) in ROOM_READERS:
        return with_overrides(config, {"env.backend": "workers"})
    return config


def cut_after(config: Config, steps: int) -> Config:
    """The same environments, whose episodes are truncated after so many steps; Gymnasium's have their own limit."""
    from ngu.envs.atari_game import FRAME_SKIP

    if config.env.name == "atari":
        return with_overrides(config, {"env.max_frames": min(config.env.max_frames, FRAME_SKIP * steps)})
    if config.env.name == "disco-maze":
        return with_overrides(config, {"env.maze_step_cap": min(config.env.maze_step_cap or steps, steps)})
    return config


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
