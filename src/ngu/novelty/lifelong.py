"""Life-long novelty: Random Network Distillation and the modulator alpha (paper, Sec. 2; Burda et al., 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ngu.config import NoveltyConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.graphs import fusable
from ngu.networks import FeatureTorso, compute_dtype, folded, scaled_observation


@fusable
def modulator(error: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """alpha_t = 1 + (err(x_t) - mu_e) / sigma_e; 1 while the errors have not varied."""
    varied = deviation > 0
    return 1 + torch.where(varied, (error - mean) / torch.where(varied, deviation, 1.0), 0.0)


def clipped_modulator(alpha: Tensor, max_modulation: float) -> Tensor:
    """min{max{alpha, 1}, L}, the factor on the episodic reward (Eq. 1)."""
    return alpha.clamp(1.0, max_modulation)


class RunningMoments(nn.Module):
    """Running mean and deviation of a stream of batches, elementwise over `shape`.

    Batches are merged by the pairwise formula of Chan et al., which does not cancel. With `decay` above 0 the past is
    weighed down at each batch; with 0 all values since the start count the same. Non-finite values are left out.
    """

    weight: Tensor
    mean: Tensor
    square: Tensor

    def __init__(self, shape: tuple[int, ...], decay: float = 0.0) -> None:
        super().__init__()
        self.keep = decay if decay > 0 else 1.0
        # Doubles: after 2^24 values sums in floats no longer grow.
        self.register_buffer("weight", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("square", torch.zeros(shape, dtype=torch.float64))

    @property
    def deviation(self) -> Tensor:
        """Standard deviation, of `shape`; 0 before any value."""
        variance = torch.where(self.weight > 0, self.square / self.weight.clamp_min(1e-30), 0.0)
        return variance.clamp_min(0.0).sqrt().to(self.mean.dtype)

    @torch.no_grad()
    def update(self, values: Tensor, valid: Tensor | None = None) -> None:
        """Merges [B, *shape]; rows that are not marked in `valid` [B] bool do not count."""
        merged = merge_moments(self.weight, self.mean, self.square, values, valid, self.keep)
        for mine, new in zip((self.weight, self.mean, self.square), merged, strict=True):
            mine.copy_(new)


@fusable
def merge_moments(
    weight: Tensor, mean: Tensor, square: Tensor, values: Tensor, valid: Tensor | None, keep: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Weight, mean and summed squared deviation after a batch of values [B, *shape]; the past counts `keep` times."""
    # Squares are summed, so a finite value with an infinite square is left out, too.
    sound = torch.isfinite(values.square())
    include = sound.flatten(1).all(1) if values.dim() > 1 else sound
    if valid is not None:
        include = include & valid
    row = include.view(-1, *[1] * (values.dim() - 1))
    count = include.sum().to(values.dtype)
    batch_mean = torch.where(row, values, 0.0).sum(0) / count.clamp_min(1.0)
    batch_square = torch.where(row, (values - batch_mean).square(), 0.0).sum(0)

    kept = weight * keep
    total = kept + count
    share = torch.where(total > 0, count / total, 0.0)
    difference = batch_mean - mean
    between = difference.square() * (kept * share)
    return total, mean + difference * share.to(values.dtype), square * keep + batch_square + between


@fusable
def whiten(observation: Tensor, mean: Tensor, deviation: Tensor, dtype: torch.dtype, fold: int = 1) -> Tensor:
    """Observations [B, ...] less their mean, over their deviation, clipped to [-5, 5]; images channels last, `folded`.

    A pixel that never changed has deviation 0; the floor and the clip bound what it does once it moves.
    """
    white = ((_unit(observation) - mean) / deviation.clamp_min(1e-2)).clamp(-5.0, 5.0).to(dtype)
    return folded(white, fold).contiguous(memory_format=torch.channels_last) if white.dim() == 4 else white


def _unit(observation: Tensor) -> Tensor:
    return observation.float() / 255 if observation.dtype == torch.uint8 else observation.float()


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
        self.inputs = RunningMoments(spec.observation_shape) if config.rnd_normalise else None

    def error(self, observation: Tensor) -> Tensor:
        """[B, *observation_shape] to err(x), [B] float32."""
        dtype = compute_dtype(observation.device)
        fold = self.target.torso.fold if observation.is_cuda else 1
        if self.inputs is not None:
            features = whiten(observation, self.inputs.mean, self.inputs.deviation, dtype, fold)
        else:
            features = scaled_observation(observation, fold)
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
            self.inputs.update(_unit(observation), valid)
