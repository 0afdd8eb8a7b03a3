"""What is learned of the never-give-up reward, and how: inverse dynamics, and the predictor of RND (paper, Sec. 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ngu.config import LearnerConfig, NoveltyConfig, Precision
from ngu.envs.protocol import EnvironmentSpec
from ngu.novelty.embedding import InverseDynamics, dimensions_in_use, inverse_dynamics_loss
from ngu.novelty.lifelong import RandomNetworkDistillation
from ngu.novelty.transitions import Transitions
from ngu.optimiser import GuardedAdam
from ngu.precision import autocast


class NoveltyModel(nn.Module):
    """Everything of the reward that is learned: inverse dynamics (f and h) and RND. Hand-crafted states need no f."""

    def __init__(self, spec: EnvironmentSpec, config: NoveltyConfig) -> None:
        super().__init__()
        self.inverse = InverseDynamics(spec, config) if config.episodic and not config.hand_crafted else None
        self.rnd = RandomNetworkDistillation(spec, config) if config.lifelong else None


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
        inverse = ["loss/inverse", "inverse/accuracy", "inverse/majority", "inverse/dimensions"]
        return (inverse if self.inverse is not None else []) + (["loss/rnd"] if self.rnd is not None else [])

    def train(self, controlled: Transitions, seen: Transitions) -> NoveltyReport:
        """One step of both losses: of inverse dynamics on `controlled`, of RND on what `seen` came to."""
        values: dict[str, Tensor] = {}
        refused = torch.zeros((), dtype=torch.bool, device=seen.action.device)
        if self.inverse is not None and self.model.inverse is not None:
            self.model.inverse.embedding.observe(controlled.next_observation, controlled.valid)
            with autocast(controlled.action.device, self.precision):
                logits, state = self.model.inverse(controlled.observation, controlled.next_observation)
            loss, metrics = inverse_dynamics_loss(logits, controlled.action, controlled.weight)
            step = self.inverse.step(loss)
            metrics["inverse/dimensions"] = dimensions_in_use(state, controlled.valid)
            values |= {"loss/inverse": loss.detach(), **metrics}
            refused = refused | step.refused
        if self.rnd is not None and self.model.rnd is not None:
            self.model.rnd.observe(seen.next_observation, seen.valid)
            with autocast(seen.action.device, self.precision):
                error = self.model.rnd.error(seen.next_observation)
            loss = torch.where(seen.valid, error, 0.0).sum()
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
