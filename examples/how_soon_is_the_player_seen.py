"""How many updates does the Q-network's torso need before it sees the player? With and without whitened inputs.

    python examples/how_soon_is_the_player_seen.py

The player of Montezuma's Revenge is a few pixels before a picture that stands still. Emulators play at random; then the
torso and the layer behind it learn, by plain regression, to tell the player's x and y from the picture. What is printed
is the share of their variance that is left on play that was not trained on: 1 is no better than a constant.

An agent's Q-network has to find the player by the same gradients, and through noisier targets than these.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import torch
import tyro
from torch import Tensor, nn

import ngu
from ngu.config_reading import with_overrides
from ngu.envs.atari_game import HAND_CRAFTED_GAME, POSITION
from ngu.envs.make import make_environment
from ngu.envs.protocol import EnvironmentSpec
from ngu.networks import QNetwork
from ngu.optimiser import GuardedAdam

_HELD_OUT = 4
"""Every so many games are held out."""


@dataclass(frozen=True)
class Settings:
    """Trains the torso to tell where the player is."""

    inputs: tuple[Literal["scaled", "whitened"], ...] = ("scaled", "whitened")
    """Pictures from 0 to 1, or less their mean and over their deviation (network.whiten)."""
    updates: int = 600
    steps: int = 64_000
    """Frames that are played at random before."""
    envs: int = 32
    batch_size: int = 256
    learning_rate: float = 2e-4
    print_period: int = 50
    """In updates."""
    seed: int = 0
    threads: int = 1
    """CPU threads."""


def play(settings: Settings) -> tuple[EnvironmentSpec, Tensor, Tensor]:
    """Pictures [T, E, 1, 84, 84] and positions [T, E, 2] of random play."""
    changes = {"env.game": HAND_CRAFTED_GAME, "env.backend": "workers", "env.workers": 1, "probe.enabled": True}
    config = with_overrides(ngu.preset("atari"), changes)
    env = make_environment(config, settings.envs, torch.device("cpu"))
    random = torch.Generator().manual_seed(settings.seed)
    step = env.reset(settings.seed)
    pictures, positions = [], []
    for _ in range(-(-settings.steps // settings.envs)):
        pictures.append(step.observation.clone())
        positions.append(torch.stack([step.info[name] for name in POSITION], 1))
        env.send(torch.randint(env.spec.num_actions, (settings.envs,), generator=random))
        step = env.recv()
    env.close()
    return env.spec, torch.stack(pictures), torch.stack(positions)


def train(spec: EnvironmentSpec, pictures: Tensor, positions: Tensor, settings: Settings, inputs: str) -> list[float]:
    """Prints and returns the variance that is left, after every `print_period` updates."""
    held_out = torch.arange(settings.envs) % _HELD_OUT == 0
    seen, test = pictures[:, ~held_out].flatten(0, 1), pictures[:, held_out].flatten(0, 1)
    where, test_where = positions[:, ~held_out].flatten(0, 1), positions[:, held_out].flatten(0, 1)
    mean, deviation = where.mean(0), where.std(0)
    test, test_where = test[:: max(len(test) // 1000, 1)], (test_where[:: max(len(test) // 1000, 1)] - mean) / deviation

    torch.manual_seed(settings.seed)
    config = ngu.preset("atari")
    network = QNetwork(spec, 1, dataclasses.replace(config.network, whiten=inputs == "whitened"))
    tells = nn.Linear(config.network.torso_size, len(POSITION))
    trained = [*network.torso.parameters(), *network.dense.parameters(), *tells.parameters()]
    optimiser = GuardedAdam(trained, config.learner, settings.learning_rate)
    random = torch.Generator().manual_seed(settings.seed)
    left = []
    for update in range(1, settings.updates + 1):
        rows = torch.randint(len(seen), (settings.batch_size,), generator=random)
        network.observe(seen[rows], torch.ones(len(rows), dtype=torch.bool))
        told = tells(network.look(network.prepare(seen[rows])))
        optimiser.step((told - (where[rows] - mean) / deviation).square().sum())
        if update % settings.print_period == 0:
            with torch.no_grad():
                error = (tells(network.look(network.prepare(test))) - test_where).square().mean(0)
            left.append((error / test_where.var(0)).mean().item())
            print(f"{inputs}, {update} updates: {left[-1]:.1%} of the variance of x and y left", flush=True)
    return left


def main(settings: Settings) -> dict[str, list[float]]:
    torch.set_num_threads(settings.threads)
    spec, pictures, positions = play(settings)
    return {inputs: train(spec, pictures, positions, settings, inputs) for inputs in settings.inputs}


if __name__ == "__main__":
    main(tyro.cli(Settings))
