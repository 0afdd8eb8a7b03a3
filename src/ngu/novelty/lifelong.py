"""Life-long novelty: Random Network Distillation and the modulator alpha (paper, Sec. 2; Burda et al., 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ngu.config import NoveltyConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.graphs import fusable
from ngu.networks import FeatureTorso
from ngu.observations import Whitening, prepared


@fusable
def modulator(error: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """alpha_t = 1 + (err(x_t) - mu_e) / sigma_e; 1 while the errors have not varied."""
    varied = deviation > 0
    return 1 + torch.where(varied, (error - mean) / torch.where(varied, deviation, 1.0), 0.0)


def clipped_modulator(alpha: Tensor, max_modulation: float) -> Tensor:
    """min{max{alpha, 1}, L}, the factor on the episodic reward (Eq. 1)."""
    return alpha.clamp(1.0, max_modulation)


class RandomNetworkDistillation(nn.Module):
    """err(x) = mean squared error of a predictor that learns the outputs of a fixed random network.

    The inputs are whitened with the running mean and deviation of the observations it was trained on and clipped to
    [-5, 5]. Those statistics change in training alone and travel with the weights.
    """

    def __init__(self, spec: EnvironmentSpec, config: NoveltyConfig) -> None:
        super().__init__()
        self.target = FeatureTorso(spec, config.filters, config.kernels, config.strides, config.hidden, config.rnd_size)
        self.predictor = FeatureTorso(
            spec, config.filters, config.kernels, config.strides, config.hidden, config.rnd_size
        )
        self.target.requires_grad_(False)
        self.inputs = Whitening(spec.observation_shape, least=1e-2) if config.rnd_normalise else None

    def error(self, observation: Tensor) -> Tensor:
        """[B, *observation_shape] to err(x), [B] float32."""
        features = prepared(observation, self.inputs, self.target.torso.fold)
        with torch.no_grad():
            wanted: Tensor = self.target(features).float()
        predicted: Tensor = self.predictor(features)
        return (predicted.float() - wanted).square().mean(-1)

    def store_in(self, dtype: torch.dtype) -> None:
        """Keeps the weights in the type that they are used in, for a copy that is not trained."""
        self.target.to(dtype)
        self.predictor.to(dtype)

    def observe(self, observation: Tensor, valid: Tensor) -> None:
        """Updates the statistics of the inputs with [B, *observation_shape]; `valid` is [B] bool."""
        if self.inputs is not None:
            self.inputs.observe(observation, valid)
