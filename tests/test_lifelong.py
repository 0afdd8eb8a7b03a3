"""Life-long novelty: alpha, its clip, running moments, RND (paper, Sec. 2)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ngu.config import NoveltyConfig
from ngu.envs.protocol import EnvironmentSpec
from ngu.moments import RunningMoments
from ngu.novelty.lifelong import RandomNetworkDistillation, clipped_modulator, modulator

numbers = st.floats(-1e3, 1e3, width=32)
batches = st.lists(st.lists(numbers, min_size=0, max_size=7), min_size=1, max_size=8)
IMAGES = EnvironmentSpec((3, 7, 7), torch.uint8, 4)
VECTORS = EnvironmentSpec((5,), torch.float32, 4)


def after(data: list[list[float]], decay: float = 0.0) -> RunningMoments:
    moments = RunningMoments((), decay)
    for batch in data:
        moments.update(torch.tensor(batch, dtype=torch.float32))
    return moments


# ------------------------------------------------------------------------------------------- running moments


@given(batches)
def test_moments_equal_numpys_over_all_data(data: list[list[float]]) -> None:
    moments = after(data)
    everything = [value for batch in data for value in batch]
    if not everything:
        assert (moments.mean.item(), moments.deviation.item()) == (0.0, 0.0)
        return
    assert moments.weight.item() == len(everything)
    assert moments.mean.item() == pytest.approx(np.mean(everything), rel=1e-4, abs=1e-3)
    assert moments.deviation.item() == pytest.approx(np.std(everything), rel=1e-3, abs=1e-2)


@given(st.lists(numbers, min_size=1, max_size=20), st.integers(0, 2**31))
def test_moments_do_not_depend_on_the_batching(data: list[float], seed: int) -> None:
    random = np.random.default_rng(seed)
    cuts = np.sort(random.integers(0, len(data) + 1, size=3))
    pieces = [piece.tolist() for piece in np.split(np.array(data), cuts)]
    one, other = after([data]), after(pieces)
    assert one.mean.item() == pytest.approx(other.mean.item(), rel=1e-4, abs=1e-3)
    assert one.deviation.item() == pytest.approx(other.deviation.item(), rel=1e-3, abs=1e-2)


def test_moments_do_not_cancel_far_from_zero() -> None:
    """The mean of squares minus the square of the mean would lose every digit here."""
    data = 10_000 + np.random.default_rng(0).normal(scale=0.1, size=(50, 20))
    moments = after(data.tolist())
    assert moments.deviation.item() == pytest.approx(np.std(data.astype(np.float32), dtype=np.float64), rel=1e-2)


@given(batches, st.lists(st.sampled_from([np.nan, np.inf, -np.inf]), min_size=1, max_size=3), st.integers(0, 2**31))
def test_moments_ignore_what_is_not_finite(data: list[list[float]], rubbish: list[float], seed: int) -> None:
    random = np.random.default_rng(seed)
    dirty = [list(batch) for batch in data]
    for value in rubbish:
        dirty[random.integers(len(dirty))].append(value)
    clean, same = after(data), after(dirty)
    assert same.weight.item() == clean.weight.item()
    assert same.mean.item() == pytest.approx(clean.mean.item(), rel=1e-5, abs=1e-4)
    assert same.deviation.item() == pytest.approx(clean.deviation.item(), rel=1e-4, abs=1e-3)


@given(batches, st.integers(0, 2**31))
def test_moments_ignore_rows_that_are_not_valid(data: list[list[float]], seed: int) -> None:
    random = np.random.default_rng(seed)
    moments = RunningMoments(())
    kept = []
    for batch in data:
        valid = random.random(len(batch)) < 0.5
        moments.update(torch.tensor(batch), torch.tensor(valid, dtype=torch.bool))
        kept.append([value for value, keep in zip(batch, valid, strict=True) if keep])
    clean = after(kept)
    assert moments.weight.item() == clean.weight.item()
    assert moments.mean.item() == pytest.approx(clean.mean.item(), rel=1e-5, abs=1e-4)
    assert moments.deviation.item() == pytest.approx(clean.deviation.item(), rel=1e-4, abs=1e-3)


@given(st.lists(st.lists(numbers, min_size=2, max_size=5), min_size=1, max_size=8), st.sampled_from([0.5, 0.9, 0.999]))
def test_decayed_moments_are_the_weighted_ones(data: list[list[float]], decay: float) -> None:
    moments = after(data, decay)
    weights = np.concatenate([np.full(len(batch), decay ** (len(data) - 1 - i)) for i, batch in enumerate(data)])
    everything = np.concatenate(data)
    mean = np.average(everything, weights=weights)
    deviation = np.sqrt(np.average((everything - mean) ** 2, weights=weights))
    assert moments.mean.item() == pytest.approx(mean, rel=1e-4, abs=1e-3)
    assert moments.deviation.item() == pytest.approx(deviation, rel=1e-3, abs=1e-2)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_moments_stay_as_they_are_when_nothing_finite_comes(decay: float) -> None:
    moments = after([[1.0], [3.0]], decay)
    mean, deviation = moments.mean.item(), moments.deviation.item()
    for _ in range(20):
        moments.update(torch.tensor([torch.nan]))
    assert moments.mean.item() == pytest.approx(mean)
    assert moments.deviation.item() == pytest.approx(deviation)


def test_moments_survive_a_huge_number() -> None:
    """A float whose square is none (a sentinel such as 3e38) must not turn the deviation into NaN for good."""
    moments = after([[1e25, 0.0], [1.0, 2.0]])
    assert torch.isfinite(moments.mean)
    assert not torch.isnan(moments.deviation)


def test_moments_work_per_element() -> None:
    data = np.random.default_rng(0).normal(size=(30, 2, 3)).astype(np.float32)
    moments = RunningMoments((2, 3))
    for part in np.split(data, 5):
        moments.update(torch.tensor(part))
    assert moments.mean.numpy() == pytest.approx(data.mean(0), abs=1e-5)
    assert moments.deviation.numpy() == pytest.approx(data.std(0), abs=1e-5)


def test_moments_count_beyond_the_floats_whole_numbers() -> None:
    moments = RunningMoments(())
    moments.weight.fill_(2.0**24)
    moments.update(torch.tensor([1.0]))
    assert moments.weight.item() == 2**24 + 1


# ------------------------------------------------------------------------------------------- alpha


@given(numbers, numbers, st.floats(0.01, 100.0))
def test_alpha_is_the_papers_formula(error: float, mean: float, deviation: float) -> None:
    alpha = modulator(torch.tensor(error), torch.tensor(mean), torch.tensor(deviation))
    assert alpha.item() == pytest.approx(1 + (error - mean) / deviation, rel=1e-4, abs=1e-4)


def test_mistake_alpha_has_its_one_and_its_mean() -> None:
    """Without the 1, an average error gives 0; without the mean, everything is above 1. Both make the clip idle."""
    errors = torch.tensor([1.0, 3.0, 5.0])
    alpha = modulator(errors, errors.mean(), errors.std(correction=0))
    spread = 2 / np.sqrt(8 / 3)
    assert alpha.tolist() == pytest.approx([1 - spread, 1.0, 1 + spread])
    assert clipped_modulator(alpha, 5.0).tolist() == pytest.approx([1.0, 1.0, 1 + spread])


def test_alpha_is_one_while_errors_have_not_varied() -> None:
    assert modulator(torch.tensor([0.5, 7.0]), torch.tensor(0.5), torch.tensor(0.0)).tolist() == [1.0, 1.0]


@given(st.floats(-1e6, 1e6), st.floats(1.0, 100.0))
def test_alpha_is_clipped_between_1_and_the_maximum(alpha: float, most: float) -> None:
    clipped = clipped_modulator(torch.tensor(alpha, dtype=torch.float64), most).item()
    assert clipped == min(max(alpha, 1.0), most)


# ------------------------------------------------------------------------------------------- RND


@pytest.fixture
def small() -> NoveltyConfig:
    return NoveltyConfig(filters=(4,), kernels=(3,), strides=(1,), hidden=(8,), rnd_size=6)


@pytest.mark.parametrize("spec", [IMAGES, VECTORS], ids=["images", "vectors"])
def test_rnds_error_is_the_mean_squared_error_of_whitened_clipped_inputs(
    spec: EnvironmentSpec, small: NoveltyConfig
) -> None:
    torch.manual_seed(0)
    rnd = RandomNetworkDistillation(spec, small)
    if spec is IMAGES:
        seen = torch.randint(0, 256, (50, 3, 7, 7), dtype=torch.uint8)
        new = torch.randint(0, 256, (4, 3, 7, 7), dtype=torch.uint8)
    else:
        seen, new = torch.randn(50, 5) * 0.2, torch.randn(4, 5) * 10
    rnd.observe(seen, torch.ones(50, dtype=torch.bool))
    scaled_seen, scaled_new = ((x.double() / 255 if x.dtype == torch.uint8 else x.double()) for x in (seen, new))
    whitened = (scaled_new - scaled_seen.mean(0)) / scaled_seen.std(0, correction=0).clamp_min(1e-2)
    whitened = whitened.clamp(-5, 5).float()
    if spec is VECTORS:
        assert (whitened.abs() == 5).any(), "the clip is not exercised"
    expected = ((rnd.predictor(whitened) - rnd.target(whitened)) ** 2).mean(1)
    assert rnd.error(new).detach().numpy() == pytest.approx(expected.detach().numpy(), rel=1e-3)


def test_whitening_can_be_switched_off(small: NoveltyConfig) -> None:
    rnd = RandomNetworkDistillation(VECTORS, NoveltyConfig(hidden=small.hidden, rnd_size=6, rnd_normalise=False))
    observation = torch.randn(4, 5)
    before = rnd.error(observation)
    rnd.observe(torch.randn(10, 5), torch.ones(10, dtype=torch.bool))
    assert torch.equal(rnd.error(observation), before)
    expected = ((rnd.predictor(observation) - rnd.target(observation)) ** 2).mean(1)
    assert torch.allclose(before, expected)


def test_computing_the_error_changes_no_statistics(small: NoveltyConfig) -> None:
    rnd = RandomNetworkDistillation(VECTORS, small)
    before = {name: value.clone() for name, value in rnd.state_dict().items()}
    rnd.error(torch.randn(10, 5))
    assert all(torch.equal(before[name], value) for name, value in rnd.state_dict().items())


def test_only_the_predictor_can_learn(small: NoveltyConfig) -> None:
    rnd = RandomNetworkDistillation(VECTORS, small)
    rnd.error(torch.randn(4, 5)).mean().backward()
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in rnd.target.parameters())
    assert all(parameter.grad is not None for parameter in rnd.predictor.parameters())


def test_target_and_predictor_begin_apart(small: NoveltyConfig) -> None:
    rnd = RandomNetworkDistillation(VECTORS, small)
    assert (rnd.error(torch.randn(4, 5)) > 0).all()


@settings(max_examples=20)
@given(st.integers(0, 2**31))
def test_a_pixel_that_never_changed_bounds_what_it_does_once_it_moves(seed: int) -> None:
    torch.manual_seed(seed)
    rnd = RandomNetworkDistillation(VECTORS, NoveltyConfig(hidden=(8,), rnd_size=6))
    rnd.observe(torch.zeros(20, 5), torch.ones(20, dtype=torch.bool))
    error = rnd.error(torch.full((1, 5), 1e9))
    assert torch.equal(error, rnd.error(torch.full((1, 5), 0.05)))


def test_moments_still_follow_after_a_thousand_million_values() -> None:
    """Single-precision sums of that size no longer grow by what a small batch adds."""
    moments = RunningMoments(())
    moments.weight.fill_(2.0**30)
    moments.square.fill_(2.0**30)
    before = moments.square.item()
    for _ in range(100):
        moments.update(torch.tensor([1.0, -1.0]))
    assert moments.square.item() - before == pytest.approx(200, rel=0.01)
    assert moments.deviation.item() == pytest.approx(1.0, rel=1e-5)
