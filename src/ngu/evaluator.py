"""Evaluation: policies beta_0 and beta_{N-1} on environments of their own, with their own epsilon (paper, App. A)."""

from __future__ import annotations

import torch
from torch import Tensor

from ngu.actor import episode_names
from ngu.agent import Teacher, make_actor
from ngu.config import Config
from ngu.envs.atari_games import human_normalised
from ngu.envs.make import cut_after, make_environment, measuring_rooms
from ngu.envs.protocol import Step
from ngu.novelty.reward import IntrinsicReward


class Evaluator:
    """Plays one episode in each of its environments, or one meta-episode, and reports the means.

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
        self.env = make_environment(cut_after(measuring_rooms(config), settings.max_steps), envs, device)
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
        """`eval/<policy>/<measurement>@<mark>` and the return and length of the episodes, as means.

        With meta-episodes of n > 1 episodes they are means over all n, and `.../episode_1` to `.../episode_n` are those
        over the first episodes, the second, and so on. Episodes that had not begun when n times `max_steps` steps were
        over, since one before them never ended, do not count.
        """
        settings, actor = self.config.evaluation, self.actor
        actor.generator.manual_seed(settings.seed)
        actor.network.load_state_dict(learner.playing.state_dict())
        actor.novelty.restart(learner.novelty, novelty)
        step = actor.reset(settings.seed)
        episodes = self.config.novelty.memory_episodes
        # What is measured at a mark is what was last measured until then: it also holds for marks behind the end.
        limits = {f"@{mark}": mark for mark in settings.marks}
        # Coverage at a last mark needs no second name; `score` and an environment's own measurements are looked for.
        if settings.max_steps not in settings.marks or self.config.env.name != "disco-maze":
            limits[""] = settings.max_steps
        place = torch.arange(episodes, device=step.first.device).unsqueeze(1)
        nothing = torch.zeros(episodes, self.env.num_envs, device=step.first.device)
        results = {f"{name}{end}": nothing for name in self.env.spec.reported for end in limits}
        total = length = nothing
        time = torch.zeros_like(actor.novelty.episodes)
        for count in range(episodes * (settings.max_steps + 1)):
            if count:
                step = actor.step()
            time = torch.where(step.first, 0, time + 1)
            running = actor.novelty.episodes - 1 == place  # [n, E]; nowhere once all n are over
            for name in self.env.spec.reported:
                for end, limit in limits.items():
                    key = f"{name}{end}"
                    results[key] = torch.where(running & (time <= limit), step.info[name], results[key])
            counted = running & (time <= settings.max_steps)
            total = total + torch.where(counted, step.reward, 0.0)
            length = torch.where(counted, time.to(length.dtype), length)
            if not self.env.graph_safe and self._is_over(step, time):
                break  # on a device of its own, looking would cost more than the steps that it saves
        return self._means({**results, "return": total, "length": length}, actor.novelty.episodes > place)

    def _is_over(self, step: Step, time: Tensor) -> bool:
        """Whether the last episode of each environment has ended or been cut."""
        begun, episodes = self.actor.novelty.episodes, self.config.novelty.memory_episodes
        last_is_over = step.ended | (time >= self.config.evaluation.max_steps)
        return bool(((begun > episodes) | (begun == episodes) & last_is_over).all())

    def _means(self, results: dict[str, Tensor], begun: Tensor) -> dict[str, float]:
        """Metrics from what each episode measured, [n, E]; those that were not `begun` are left out."""
        count = self.config.evaluation.num_envs
        metrics: dict[str, float] = {}
        for index, policy in enumerate(self.policies):
            mine = slice(index * count, (index + 1) * count)
            for name, values in results.items():
                metrics[f"eval/{policy}/{name}"] = values[:, mine][begun[:, mine]].mean().item()
            if self.config.env.name == "atari":
                score = metrics[f"eval/{policy}/return"]
                metrics[f"eval/{policy}/human_normalised"] = human_normalised(self.config.env.game, score)
            for place, end in enumerate(episode_names(self.config.novelty.memory_episodes)):
                if begun[place, mine].any():
                    for name, values in results.items():
                        metrics[f"eval/{policy}/{name}{end}"] = values[place, mine][begun[place, mine]].mean().item()
        return metrics
