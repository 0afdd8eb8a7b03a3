"""The never-give-up reward r_i = r_episodic * min{max{alpha, 1}, L}, usable with any agent (paper, Sec. 2, Eq. 1).

Feed `IntrinsicReward` every observation of a batch of environments and where episodes start; it returns r_i. Train it
with `train` on transitions from anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ngu.config import LearnerConfig, NoveltyConfig, Precision
from ngu.envs.protocol import EnvironmentSpec
from ngu.graphs import Branch
from ngu.novelty.embedding import EmbeddingSnapshots, InverseDynamics, inverse_dynamics_loss
from ngu.novelty.episodic import DistanceScale, EpisodicMemory, Kernel, episodic_reward
from ngu.novelty.lifelong import RandomNetworkDistillation, RunningMoments, clipped_modulator, modulator
from ngu.novelty.nearest import search_nearest
from ngu.optimiser import GuardedAdam
from ngu.precision import autocast, in_full, storage_dtype


class NoveltyModel(nn.Module):
    """Everything of the reward that is learned: inverse dynamics (f and h) and RND."""

    def __init__(self, spec: EnvironmentSpec, config: NoveltyConfig) -> None:
        super().__init__()
        self.inverse = InverseDynamics(spec, config) if config.episodic else None
        self.rnd = RandomNetworkDistillation(spec, config) if config.lifelong else None


@dataclass
class NoveltyParts:
    """r_i and what it is made of, [E] each."""

    reward: Tensor
    episodic: Tensor
    alpha: Tensor
    """Before the clip."""
    error: Tensor
    """RND's error."""


@dataclass
class NoveltyReport:
    """What one training step did; scalars on the device."""

    values: dict[str, Tensor]
    """Losses and accuracies by metric name."""
    refused: Tensor
    """bool: a loss or gradient was not finite, and that network was left alone."""


class NoveltyTrainer:
    """Trains a `NoveltyModel`; each loss has its own Adam."""

    def __init__(
        self,
        model: NoveltyModel,
        config: NoveltyConfig,
        optimiser: LearnerConfig,
        precision: Precision = "fp32",
    ) -> None:
        self.model = model
        self.precision: Precision = precision
        scaling = precision == "fp16" and any(parameter.is_cuda for parameter in model.parameters())
        self.inverse: GuardedAdam | None = None
        self.rnd: GuardedAdam | None = None
        if model.inverse is not None and config.controllable_states == "learned":
            self.inverse = GuardedAdam(
                model.inverse.parameters(),
                optimiser,
                config.learning_rate,
                weight_decay=config.l2_weight,
                loss_scaling=scaling,
            )
        if model.rnd is not None:
            self.rnd = GuardedAdam(
                model.rnd.predictor.parameters(), optimiser, config.rnd_learning_rate, loss_scaling=scaling
            )

    @property
    def metrics(self) -> list[str]:
        """The names in `NoveltyReport.values`."""
        inverse = ["loss/inverse", "inverse/accuracy", "inverse/majority"] if self.inverse is not None else []
        return inverse + (["loss/rnd"] if self.rnd is not None else [])

    def train(
        self, observation: Tensor, action: Tensor, next_observation: Tensor, valid: Tensor | None = None
    ) -> NoveltyReport:
        """One step of both losses on B transitions.

        Args:
            observation: [B, *observation_shape] x_t
            action: [B] int64 a_t
            next_observation: [B, *observation_shape] x_{t+1}
            valid: [B] bool; rows that are False (padding) do not count.
        """
        if valid is None:
            valid = torch.ones(action.shape, dtype=torch.bool, device=action.device)
        values: dict[str, Tensor] = {}
        refused = torch.zeros((), dtype=torch.bool, device=action.device)
        if self.inverse is not None and self.model.inverse is not None:
            with autocast(action.device, self.precision):
                logits = self.model.inverse(observation, next_observation)
            loss, metrics = inverse_dynamics_loss(logits, action, valid)
            step = self.inverse.step(loss)
            values |= {"loss/inverse": loss.detach(), **metrics}
            refused = refused | step.refused
        if self.rnd is not None and self.model.rnd is not None:
            self.model.rnd.observe(next_observation, valid)
            with autocast(action.device, self.precision):
                error = self.model.rnd.error(next_observation)
            loss = torch.where(valid, error, 0.0).sum()
            step = self.rnd.step(loss)
            values |= {"loss/rnd": loss.detach()}
            refused = refused | step.refused
        return NoveltyReport(values, refused)

    def state_dict(self) -> dict[str, Any]:
        parts = {"inverse": self.inverse, "rnd": self.rnd}
        return {name: part.state_dict() for name, part in parts.items() if part is not None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in (("inverse", self.inverse), ("rnd", self.rnd)):
            if part is not None:
                part.load_state_dict(state[name])


class IntrinsicReward:
    """r_i for a batch of E environments.

    Alone: `IntrinsicReward(spec, num_envs)`, then for each step of the environments `reward = intrinsic(observation,
    first)`, now and then `intrinsic.train(observation, action, next_observation)`.

    Inside the agent the learner trains the model; `publish` hands its weights to this side.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        num_envs: int,
        config: NoveltyConfig | None = None,
        device: torch.device | str = "cpu",
        *,
        precision: Precision = "fp32",
        optimiser: LearnerConfig | None = None,
        model: NoveltyModel | None = None,
    ) -> None:
        config = config or NoveltyConfig()
        device = torch.device(device)
        self.config = config
        self.precision: Precision = precision
        self.num_envs = num_envs
        self._owns_model = model is None
        self.model = model if model is not None else NoveltyModel(spec, config).to(device)
        self._optimiser = optimiser or LearnerConfig()
        self._trainer: NoveltyTrainer | None = None

        stored = storage_dtype(device, precision)
        self.episodes = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.snapshots: EmbeddingSnapshots | None = None
        self.memory: EpisodicMemory | None = None
        if self.model.inverse is not None:
            copies = config.embedding_snapshots if config.controllable_states == "learned" else 1
            self.snapshots = EmbeddingSnapshots(
                self.model.inverse.embedding, num_envs, copies, spec, config, device, stored
            )
            self.memory = EpisodicMemory(num_envs, self._slots(spec), config.embedding_size, device)
            self.scale = DistanceScale(copies, config.distance_decay, device)
            self.kernel = Kernel.create(config)
        self.rnd: RandomNetworkDistillation | None = None
        if self.model.rnd is not None:
            self.rnd = RandomNetworkDistillation(spec, config).to(device)
            self.rnd.load_state_dict(self.model.rnd.state_dict())
            self.rnd.requires_grad_(False)
            self.rnd.store_in(stored)
            self._rnd_branch = Branch(device, urgent=True)
            self.moments = RunningMoments((), config.modulator_decay).to(device)

    def _slots(self, spec: EnvironmentSpec) -> int:
        """Memory slots: the set capacity, or fewer if no meta-episode can fill them."""
        if spec.max_episode_steps is None:
            return self.config.memory_capacity
        longest = (spec.max_episode_steps + 1) * self.config.episodes_per_memory
        return min(self.config.memory_capacity, longest)

    @torch.no_grad()
    def __call__(self, observation: Tensor, first: Tensor, terminated: Tensor | None = None) -> Tensor:
        """r_i of each environment's newest observation.

        Args:
            observation: [E, *observation_shape]
            first: [E] bool, where the observation begins an episode.
            terminated: [E] bool, where it is terminal. No action is taken there, so its novelty is not worth reaching
                it (paper, App. A: an actor computes r_i for the observations it acts on).

        Returns:
            [E] float32; 0 at an episode's first observation and at terminal ones.
        """
        return self.parts(observation, first, terminated).reward

    @torch.no_grad()
    def parts(self, observation: Tensor, first: Tensor, terminated: Tensor | None = None) -> NoveltyParts:
        """As calling, with what the reward is made of."""
        error = torch.zeros(self.num_envs, device=observation.device)
        with autocast(observation.device, self.precision):
            if self.rnd is not None:
                with self._rnd_branch.fork():
                    error = self.rnd.error(observation)
            episodic = self._episodic(observation, first)
        if self.rnd is not None:
            self._rnd_branch.join()
            self.moments.update(error)
            alpha = modulator(error, self.moments.mean, self.moments.deviation)
        else:
            alpha = torch.ones_like(episodic)
        if self.snapshots is not None:
            reward = episodic * clipped_modulator(alpha, self.config.max_modulation)
        elif self.rnd is not None:
            deviation = self.moments.deviation
            reward = torch.where(deviation > 0, error / torch.where(deviation > 0, deviation, 1.0), 0.0)
        else:
            reward = torch.zeros_like(error)
        # Nothing led to an episode's first observation, and an empty memory would pay 1 / c.
        reward = torch.where(first if terminated is None else first | terminated, 0.0, reward)
        return NoveltyParts(torch.nan_to_num(reward, 0.0, 0.0, 0.0), episodic, alpha, error)

    def _episodic(self, observation: Tensor, first: Tensor) -> Tensor:
        if self.snapshots is None or self.memory is None:
            return torch.zeros(self.num_envs, device=observation.device)
        wiped = first & (self.episodes % self.config.episodes_per_memory == 0)
        self.episodes.add_(first.to(torch.int64))
        self.memory.wipe(wiped)
        self.snapshots.begin(wiped)
        state = self.snapshots(observation)
        distance = search_nearest(state, self.memory.entries, self.memory.filled, self.kernel.neighbours)
        mean_distance = self.scale.update(distance, self.snapshots.slot)
        self.memory.append(state)
        return episodic_reward(distance, mean_distance, self.kernel)

    def train(
        self, observation: Tensor, action: Tensor, next_observation: Tensor, valid: Tensor | None = None
    ) -> NoveltyReport:
        """Trains the model on B transitions (see `NoveltyTrainer.train`) and acts with the result."""
        if self._trainer is None:
            self._trainer = NoveltyTrainer(self.model, self.config, self._optimiser, self.precision)
        report = self._trainer.train(observation, action, next_observation, valid)
        self.publish(self.model)
        return report

    @torch.no_grad()
    def restart(self, model: NoveltyModel, statistics: IntrinsicReward) -> None:
        """Forgets all episodes, and rewards as another side does now: with its newest f and its running statistics.

        For evaluation: the copy must see the rewards that the actors see, and leave theirs alone. A running distance
        belongs to the f it was measured under, so both come from there; RND's weights come from `model`.
        """
        self.episodes.zero_()
        if self.snapshots is not None and self.memory is not None and statistics.snapshots is not None:
            self.memory.written.zero_()
            newest = statistics.snapshots.newest
            self.snapshots.replace_all(statistics.snapshots.copies[int(newest)])
            self.scale.take_over(statistics.scale, newest)
        if self.rnd is not None and model.rnd is not None:
            for mine, theirs in zip(self.rnd.state_dict().values(), model.rnd.state_dict().values(), strict=True):
                mine.copy_(theirs)
            self.moments.load_state_dict(statistics.moments.state_dict())

    @torch.no_grad()
    def publish(self, model: NoveltyModel) -> None:
        """Takes over newly trained weights: RND's at once, f's for episodes that begin from now on."""
        if self.snapshots is not None and model.inverse is not None and self.config.controllable_states == "learned":
            before = self.snapshots.newest.clone()
            self.scale.renew(self.snapshots.renew(model.inverse.embedding), before)
        if self.rnd is not None and model.rnd is not None:
            for mine, theirs in zip(self.rnd.state_dict().values(), model.rnd.state_dict().values(), strict=True):
                mine.copy_(theirs)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"episodes": self.episodes}
        if self.snapshots is not None and self.memory is not None:
            state["snapshots"] = in_full(self.snapshots.state_dict())
            state["memory"] = self.memory.state_dict()
            state["scale"] = self.scale.state_dict()
        if self.rnd is not None:
            state["rnd"] = in_full(self.rnd.state_dict())
            state["moments"] = dict(self.moments.state_dict())
        if self._owns_model:
            state["model"] = dict(self.model.state_dict())
        if self._trainer is not None:
            state["trainer"] = self._trainer.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episodes.copy_(state["episodes"])
        if self.snapshots is not None and self.memory is not None:
            self.snapshots.load_state_dict(state["snapshots"])
            self.memory.load_state_dict(state["memory"])
            self.scale.load_state_dict(state["scale"])
        if self.rnd is not None:
            self.rnd.load_state_dict(state["rnd"])
            self.moments.load_state_dict(state["moments"])
        if self._owns_model:
            self.model.load_state_dict(state["model"])
        if "trainer" in state:
            self._trainer = NoveltyTrainer(self.model, self.config, self._optimiser, self.precision)
            self._trainer.load_state_dict(state["trainer"])
