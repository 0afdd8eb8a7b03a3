"""Evaluation: policies beta_0 and beta_{N-1} on environments of their own, with their own epsilon (paper, App. A)."""

from __future__ import annotations

import torch
from torch import Tensor

from ngu.agent import Teacher, make_actor
from ngu.config import Config
from ngu.envs.atari_games import human_normalised
from ngu.envs.make import make_environment, measuring_rooms
from ngu.novelty.reward import IntrinsicReward


class Evaluator:
    """Plays one episode in each of its environments and reports the means.

    The environments are held out: they have a seed of their own, the same at every evaluation, so two evaluations
    differ by the weights alone. It shares the weights and statistics of actors and learner and changes neither.
    """

    def __init__(self, config: Config, learner: Teacher, device: torch.device) -> None:
        """`eval/exploit` is beta_0, `eval/explore` beta_{N-1}; with one policy there is no exploitative one."""
        self.config = config
        settings = config.evaluation
        last = config.mixture.num_mixtures - 1
        # With one policy there is no exploitative one.
        self.policies = {"explore": last} if last == 0 else {"exploit": 0, "explore": last}
        envs = settings.num_envs * len(self.policies)
        self.env = make_environment(measuring_rooms(config), envs, device)
        mixture = torch.tensor([index for index in self.policies.values() for _ in range(settings.num_envs)])
        self.actor = make_actor(
            config,
            self.env,
            learner,
            mixture.to(device),
            torch.full((envs,), settings.epsilon, device=device),
            torch.Generator(device),
        )

    @torch.no_grad()
    def evaluate(self, learner: Teacher, novelty: IntrinsicReward) -> dict[str, float]:
        """`eval/<policy>/<measurement>@<mark>` and the return and length of the episodes, as means."""
        settings = self.config.evaluation
        actor = self.actor
        actor.generator.manual_seed(settings.seed)
        actor.network.load_state_dict(learner.network.state_dict())
        actor.novelty.restart(learner.novelty, novelty)
        step = actor.reset(settings.seed)
        kept = {name: step.info[name].clone() for name in self.env.spec.reported}
        total = step.reward.clone()
        length = torch.zeros_like(total)
        alive = torch.ones_like(step.first)
        results: dict[str, Tensor] = {}
        for time in range(1, settings.max_steps + 1):
            step = actor.step()
            for name, value in kept.items():
                kept[name] = torch.where(alive, step.info[name], value)
            total += torch.where(alive, step.reward, 0.0)
            length += alive
            alive &= ~step.ended
            if time in settings.marks:
                results |= {f"{name}@{time}": value for name, value in kept.items()}
            if not self.env.graph_safe and not alive.any():
                break  # on a device of its own, looking would cost more than the steps that it saves
        # What an episode measured at its end holds for the marks behind it.
        for mark in settings.marks:
            results |= {f"{name}@{mark}": value for name, value in kept.items() if f"{name}@{mark}" not in results}
        if settings.max_steps not in settings.marks:
            results |= kept
        results |= {"return": total, "length": length}
        metrics = {
            f"eval/{policy}/{name}": value[index * settings.num_envs : (index + 1) * settings.num_envs].mean().item()
            for index, policy in enumerate(self.policies)
            for name, value in results.items()
        }
        if self.config.env.name == "atari":
            for policy in self.policies:
                score = metrics[f"eval/{policy}/return"]
                metrics[f"eval/{policy}/human_normalised"] = human_normalised(self.config.env.game, score)
        return metrics
