"""Running mean and deviation of streams: of RND's errors, of what networks take in, of what probes predict."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ngu.graphs import fusable


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
        return deviation_of(self.weight, self.square)

    def reset(self) -> None:
        """Forgets all that was seen."""
        for buffer in self.buffers():
            buffer.zero_()

    @torch.no_grad()
    def update(self, values: Tensor, valid: Tensor | None = None) -> None:
        """Merges [B, *shape]; rows that are not marked in `valid` [B] bool do not count."""
        merged = merge_moments(self.weight, self.mean, self.square, values, valid, self.keep)
        for mine, new in zip((self.weight, self.mean, self.square), merged, strict=True):
            mine.copy_(new)


@fusable
def deviation_of(weight: Tensor, square: Tensor) -> Tensor:
    """The deviation, float32, from summed squared deviations and the weight of what was summed; 0 without any."""
    variance = torch.where(weight > 0, square / weight.clamp_min(1e-30), 0.0)
    return variance.clamp_min(0.0).sqrt().float()


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
