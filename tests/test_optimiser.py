"""GuardedAdam: PyTorch's Adam while all is finite, and nothing at all when it is not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import clone, difference
from torch import nn

from ngu.config import LearnerConfig
from ngu.optimiser import GuardedAdam

BAD = [float("nan"), float("inf"), float("-inf")]


def make_model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def make_loss(model: nn.Module, seed: int, size: float = 1.0) -> torch.Tensor:
    data = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed))
    loss: torch.Tensor = (size * (model(data) - 1).square()).mean()
    return loss


@given(
    seed=st.integers(0, 1000),
    size=st.sampled_from([1e-3, 1.0, 1e5]),
    decay=st.sampled_from([0.0, 1e-2]),
    clip=st.sampled_from([0.1, 40.0]),
    scaling=st.booleans(),
)
@settings(max_examples=20)
def test_it_is_pytorchs_adam_with_clipping(seed: int, size: float, decay: float, clip: float, scaling: bool) -> None:
    config = LearnerConfig(clip_norm=clip)
    model, twin = make_model(seed), make_model(seed)
    guarded = GuardedAdam(model.parameters(), config, 0.01, weight_decay=decay, loss_scaling=scaling)
    adam = torch.optim.Adam(
        twin.parameters(), lr=0.01, betas=(0.9, 0.999), eps=1e-4, weight_decay=decay, foreach=False, fused=False
    )
    for step in range(5):
        report = guarded.step(make_loss(model, step, size))
        adam.zero_grad()
        make_loss(twin, step, size).backward()
        norm = nn.utils.clip_grad_norm_(twin.parameters(), clip)
        adam.step()
        assert report.applied.item()
        assert report.grad_norm.item() == pytest.approx(norm.item(), rel=1e-3)
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_the_learning_rate_can_change_between_steps() -> None:
    model, twin = make_model(), make_model()
    guarded = GuardedAdam(model.parameters(), LearnerConfig(), 0.01)
    adam = torch.optim.Adam(twin.parameters(), lr=0.01, eps=1e-4)
    for step, rate in enumerate([0.01, 0.1, 0.001]):
        guarded.set_learning_rate(rate)
        guarded.step(make_loss(model, step))
        adam.param_groups[0]["lr"] = rate
        adam.zero_grad()
        make_loss(twin, step).backward()
        adam.step()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def everything(model: nn.Module, optimiser: GuardedAdam) -> dict[str, object]:
    """Weights, moments and step counts."""
    return clone({"weights": dict(model.state_dict()), "moments": optimiser.state_dict()["moments"]})


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("scaling", [False, True])
def test_a_non_finite_loss_changes_nothing(bad: float, scaling: bool) -> None:
    model = make_model()
    optimiser = GuardedAdam(model.parameters(), LearnerConfig(), 0.01, weight_decay=0.1, loss_scaling=scaling)
    optimiser.step(make_loss(model, 0))
    before = everything(model, optimiser)
    report = optimiser.step(make_loss(model, 1) * bad)
    assert not report.applied.item()
    assert not difference(before, everything(model, optimiser))


@pytest.mark.parametrize("bad", BAD)
def test_a_non_finite_loss_with_finite_gradients_changes_nothing(bad: float) -> None:
    model = make_model()
    optimiser = GuardedAdam(model.parameters(), LearnerConfig(), 0.01)
    before = everything(model, optimiser)
    report = optimiser.step(make_loss(model, 1) + bad)
    assert torch.isfinite(report.grad_norm)
    assert not report.applied.item()
    assert not difference(before, everything(model, optimiser))


def test_one_non_finite_gradient_among_finite_ones_changes_nothing() -> None:
    """sqrt at 0 has a finite value and an infinite slope."""
    model = make_model()
    optimiser = GuardedAdam(model.parameters(), LearnerConfig(), 0.01)
    before = everything(model, optimiser)
    report = optimiser.step(make_loss(model, 1) + (model[2].bias - model[2].bias.detach()).clamp_min(0).sqrt().sum())
    assert not report.applied.item()
    assert not difference(before, everything(model, optimiser))


def test_after_a_skipped_step_it_goes_on_as_if_nothing_had_happened() -> None:
    model, twin = make_model(), make_model()
    optimiser, other = (GuardedAdam(m.parameters(), LearnerConfig(), 0.01) for m in (model, twin))
    optimiser.step(make_loss(model, 0))
    optimiser.step(make_loss(model, 1) * float("nan"))
    optimiser.step(make_loss(model, 2))
    other.step(make_loss(twin, 0))
    other.step(make_loss(twin, 2))
    assert not difference(everything(model, optimiser), everything(twin, other))


def test_the_loss_scale_halves_after_an_overflow_and_doubles_after_a_long_run() -> None:
    model = make_model()
    optimiser = GuardedAdam(model.parameters(), LearnerConfig(), 0.01, loss_scaling=True)
    optimiser.growth_interval = 3
    scale = optimiser.scale.item()
    optimiser.step(make_loss(model, 0) * float("inf"))
    assert optimiser.scale.item() == scale / 2
    for step in range(3):
        assert optimiser.scale.item() == scale / 2
        optimiser.step(make_loss(model, step))
    assert optimiser.scale.item() == scale


def test_without_loss_scaling_the_scale_is_one_for_ever() -> None:
    model = make_model()
    optimiser = GuardedAdam(model.parameters(), LearnerConfig(), 0.01)
    optimiser.step(make_loss(model, 0) * float("inf"))
    assert optimiser.scale.item() == 1.0


def test_frozen_parameters_are_left_out() -> None:
    model = make_model()
    model[0].requires_grad_(False)
    before = clone(dict(model[0].state_dict()))
    optimiser = GuardedAdam(model.parameters(), LearnerConfig(), 0.01, weight_decay=0.1)
    optimiser.step(make_loss(model, 0))
    assert len(optimiser.parameters) == 2
    assert not difference(before, dict(model[0].state_dict()))


@pytest.mark.parametrize("scaling", [False, True])
def test_a_saved_optimiser_goes_on_exactly(scaling: bool) -> None:
    model, twin = make_model(), make_model(1)
    one, other = (GuardedAdam(m.parameters(), LearnerConfig(), 0.01, loss_scaling=scaling) for m in (model, twin))
    for step in range(3):
        one.step(make_loss(model, step))
    twin.load_state_dict(model.state_dict())
    other.load_state_dict(clone(one.state_dict()))
    for step in range(3, 6):
        one.step(make_loss(model, step))
        other.step(make_loss(twin, step))
    assert not difference(everything(model, one), everything(twin, other))
    assert not difference(one.state_dict(), other.state_dict())


# ------------------------------------------------------------------------------------------- the loss scale of fp16


def test_going_on_in_fp16_after_another_precision_keeps_the_start_of_the_scale() -> None:
    plain = GuardedAdam(make_model().parameters(), LearnerConfig(), 0.01)
    scaled = GuardedAdam(make_model().parameters(), LearnerConfig(), 0.01, loss_scaling=True)
    start = scaled.scale.item()
    scaled.load_state_dict(clone(plain.state_dict()))
    assert scaled.scale.item() == start > 1
    scaled.scale.fill_(8.0)
    other = GuardedAdam(make_model().parameters(), LearnerConfig(), 0.01, loss_scaling=True)
    other.load_state_dict(clone(scaled.state_dict()))
    assert other.scale.item() == 8.0


def test_an_overflow_halves_the_scale_and_is_refused_only_when_it_cannot_shrink_further() -> None:
    model = make_model()
    guarded = GuardedAdam(model.parameters(), LearnerConfig(), 0.01, loss_scaling=True)
    model[0].weight.register_hook(lambda gradient: gradient * float("inf"))
    before = clone(dict(model.state_dict()))
    scale = guarded.scale.item()
    report = guarded.step(make_loss(model, 0))
    assert (report.applied.item(), report.refused.item()) == (False, False)
    assert guarded.scale.item() == scale / 2
    guarded.scale.fill_(guarded.least_scale)
    report = guarded.step(make_loss(model, 0))
    assert (report.applied.item(), report.refused.item()) == (False, True)
    assert not difference(before, dict(model.state_dict()))
