"""Does f learn what the agent controls in a game? Trains it on random play alone, as the paper has it and otherwise.

    python examples/does_f_learn.py --game montezuma_revenge

Emulators play at random, and f and the action classifier h are trained on what was seen, a transition about as often as
in `ngu train atari-node`. For every hundred updates it prints how often h was right, what always guessing the commonest
action would have given, in how many directions the states f(x) differ, and how many of their numbers do so at all: one
that a ReLU has cut off for every picture learns nothing. Where h is no better than a guess, f is a random projection.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import tyro
from torch import Tensor

import ngu
from ngu.envs.atari import AtariVector


@dataclass(frozen=True)
class Settings:
    """Trains f on random play of an Atari game."""

    game: str = "montezuma_revenge"
    updates: int = 1000
    steps: int = 48_000
    """Transitions that are played before, and drawn from."""
    batch_size: int = 320
    """64 sequences, of which the last 5 transitions train f."""
    kinds: tuple[Literal["relu", "linear", "whitened"], ...] = ("relu", "linear", "whitened")
    """f with a last ReLU, without it, and without it on whitened pictures (novelty.embedding_whiten); each is trained
    from the same first weights on the same batches."""
    print_period: int = 100
    """In updates."""
    seed: int = 0
    threads: int = 1
    """CPU threads."""


@dataclass(frozen=True)
class Play:
    """What E emulators showed over T steps of random actions."""

    observation: Tensor
    """[T + 1, E, 1, 84, 84] uint8"""
    action: Tensor
    """[T, E] int64"""
    valid: Tensor
    """[T, E] bool: False at automatic resets, which no action has brought about."""


def play(envs: AtariVector, steps: int, seed: int) -> Play:
    random = torch.Generator().manual_seed(seed)
    step = envs.reset(seed)
    observations, actions, valid = [step.observation.clone()], [], []
    for _ in range(-(-steps // envs.num_envs)):
        action = torch.randint(envs.spec.num_actions, (envs.num_envs,), generator=random)
        envs.send(action)
        step = envs.recv()
        observations.append(step.observation.clone())
        actions.append(action)
        valid.append(~step.first)
    return Play(torch.stack(observations), torch.stack(actions), torch.stack(valid))


def numbers_in_use(played: Play, intrinsic: ngu.IntrinsicReward) -> int:
    """How many of a state's numbers are not the same for every picture."""
    assert intrinsic.model.inverse is not None
    pictures = played.observation[:: max(len(played.observation) // 30, 1)].flatten(0, 1)
    with torch.no_grad():
        state = intrinsic.model.inverse.embedding(pictures)
    return int((state != state[0]).any(0).sum())


def train(played: Play, envs: AtariVector, settings: Settings, kind: str) -> dict[str, float]:
    """Trains one f and returns what was last printed."""
    novelty = dataclasses.replace(
        ngu.preset("atari").novelty,
        embedding_relu=kind == "relu",
        embedding_whiten=kind == "whitened",
        lifelong=False,  # RND would only cost time here
        memory_capacity=1,
    )
    torch.manual_seed(settings.seed)
    intrinsic = ngu.IntrinsicReward(envs.spec, envs.num_envs, novelty)
    random = torch.Generator().manual_seed(settings.seed)
    seen: dict[str, list[float]] = {"inverse/accuracy": [], "inverse/majority": [], "inverse/dimensions": []}
    for update in range(1, settings.updates + 1):
        time, env = (torch.randint(n, (settings.batch_size,), generator=random) for n in played.action.shape)
        report = intrinsic.train(
            played.observation[time, env],
            played.action[time, env],
            played.observation[time + 1, env],
            played.valid[time, env],
        )
        for name, values in seen.items():
            values.append(report.values[name].item())
        if update % settings.print_period == 0:
            means = {name: float(np.mean(values[-settings.print_period :])) for name, values in seen.items()}
            print(
                f"{kind}, {update} updates: right {means['inverse/accuracy']:.1%}, "
                f"commonest action {means['inverse/majority']:.1%}, directions {means['inverse/dimensions']:.1f}, "
                f"numbers in use {numbers_in_use(played, intrinsic)}",
                flush=True,
            )
    return means


def main(settings: Settings) -> dict[str, dict[str, float]]:
    torch.set_num_threads(settings.threads)
    envs = AtariVector(settings.game, 32, threads=settings.threads)
    played = play(envs, settings.steps, settings.seed)
    results: dict[str, dict[str, float]] = {kind: train(played, envs, settings, kind) for kind in settings.kinds}
    envs.close()
    return results


if __name__ == "__main__":
    main(tyro.cli(Settings))
