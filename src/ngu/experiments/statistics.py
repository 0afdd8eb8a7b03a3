"""Means over seeds, and how sure they are: stratified bootstrap intervals.

Runs of one task are resampled with replacement among themselves, as Agarwal et al. (2021, "Deep Reinforcement Learning
at the Edge of the Statistical Precipice") advise for few seeds and several tasks. With two or three seeds an interval
says little more than the range that was seen, and one seed has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
_RESAMPLES = 10_000
_SEED = 0
"""The same numbers give the same interval."""


def bootstrap_interval(
    strata: Sequence[Floats],
    statistic: Callable[[Floats], Floats],
    *,
    resamples: int = _RESAMPLES,
    confidence: float = CONFIDENCE,
) -> tuple[float, float]:
    """The percentile bootstrap interval of a statistic over tasks of means over seeds.

    strata: for each task, the values of its seeds, [S_g]. statistic: [R, G] means, a row for each resample, to [R].
    """
    generator = np.random.default_rng(_SEED)
    means = np.stack([_resampled_means(values[:, None], resamples, generator)[:, 0] for values in strata], axis=1)
    low, high = np.quantile(statistic(means), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def bootstrap_bands(values: Floats, *, resamples: int = 2000, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """The same for the mean over seeds at every point of a curve: values [S, T] to two times [T].

    Whole curves are resampled, so that neighbouring points have the same seeds.
    """
    means = _resampled_means(values, resamples, np.random.default_rng(_SEED))
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return low, high


def _resampled_means(values: Floats, resamples: int, generator: np.random.Generator) -> Floats:
    """[S, T] to [R, T]: means over S seeds drawn with replacement."""
    seeds = len(values)
    drawn = generator.integers(seeds, size=(resamples, seeds))
    # How often each seed was drawn: a matrix product instead of an array of R x S x T.
    counts = np.stack([(drawn == seed).sum(1) for seed in range(seeds)], axis=1)
    means: Floats = counts @ values / seeds
    return means


def mean_over_tasks(means: Floats) -> Floats:
    """[R, G] to [R]."""
    averages: Floats = means.mean(1)
    return averages


def median_over_tasks(means: Floats) -> Floats:
    """[R, G] to [R]."""
    medians: Floats = np.median(means, axis=1)
    return medians
