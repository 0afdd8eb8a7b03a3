"""Functions that torch.compile may fuse on a GPU give the same results compiled as they do eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ngu.actor import choose_actions, episode_totals
from ngu.learner import _summarise, retrace_errors, weighted_loss
from ngu.moments import merge_moments
from ngu.networks import _lstm_cell
from ngu.novelty.episodic import Kernel, _averaged, episodic_reward, nearest_squared_distances
from ngu.novelty.lifelong import modulator
from ngu.novelty.snapshots import pixels_under
from ngu.observations import _scaled_image, whiten
from ngu.policy_statistics import _merge
from ngu.retrace import ValueTransform
from ngu.sequences import advance_streams

E, K, D, M = 6, 4, 3, 9
T, B, A = 5, 4, 3


def _uniform(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _coin(*shape: int) -> Tensor:
    return _uniform(*shape) < 0.5


def _cases() -> list[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    kernel = Kernel(neighbours=K, epsilon=1e-2, cluster_distance=8e-3, pseudo_count=1e-3, max_similarity=8.0)
    distance = torch.where(_coin(E, K), _uniform(E, K), torch.inf)
    image = (_uniform(B, 3, 6, 6) * 255).to(torch.uint8)
    weight = torch.tensor(7.0, dtype=torch.float64)
    action = torch.arange(T * B).view(T, B) % A
    sequence = (action, _uniform(T, B) + 0.1, _uniform(T, B), _uniform(T, B), _coin(T, B), _coin(T, B), _coin(T - 2, B))
    return [
        ("choose_actions", choose_actions, (_uniform(E, A), _uniform(E), _uniform(2, E))),
        (
            "episode_totals",
            episode_totals,
            (
                _coin(E),
                _coin(E, 1)[:, 0],
                _uniform(E),
                _uniform(E),
                _uniform(E),
                [_uniform(E)],
                [_uniform(E)],
                _coin(2, E),
            ),
        ),
        ("scaled_image", _scaled_image, (image, torch.float32, 1)),
        ("scaled_image_folded", _scaled_image, (image, torch.float32, 3)),
        ("whiten", whiten, (image, _uniform(3, 6, 6), _uniform(3, 6, 6), torch.float32)),
        ("whiten_folded", whiten, (image, _uniform(3, 6, 6), _uniform(3, 6, 6), torch.float16, 2)),
        ("lstm_cell", _lstm_cell, (_uniform(E, 4 * D), _uniform(E, 4 * D), _uniform(E, D))),
        ("pixels_under", pixels_under, (_uniform(E, 3, 9, 7), 3, 2)),
        ("modulator", modulator, (_uniform(E), _uniform(1)[0], torch.tensor(0.5))),
        ("merge_moments", merge_moments, (weight, _uniform(3), _uniform(3), _uniform(E, 3), _coin(E), 0.9)),
        ("nearest", nearest_squared_distances, (_uniform(E, D), _uniform(E, M, D), torch.arange(E), K)),
        ("episodic_reward", episodic_reward, (distance, _uniform(1)[0], kernel)),
        ("averaged", _averaged, (_uniform(1)[0], _uniform(1)[0], distance, 0.9)),
        (
            "advance_streams",
            advance_streams,
            (torch.arange(E) + 9, _coin(E), _coin(E, 1)[:, 0], torch.arange(E), torch.arange(E) + 2, _coin(E), 7, 3),
        ),
        (
            "retrace_errors",
            retrace_errors,
            (
                _uniform(T + 1, B, A),
                _uniform(T + 1, B, A),
                *sequence,
                _uniform(B),
                _uniform(B),
                0.01,
                0.97,
                0.05,
                0.9,
                ValueTransform(1e-3),
            ),
        ),
        ("weighted_loss", weighted_loss, (_uniform(T, B), _uniform(B))),
        (
            "summarise",
            _summarise,
            (_uniform(T - 2, B), _uniform(T - 2, B), _uniform(T - 2, B), _coin(T - 2, B), 0.9),
        ),
        (
            "policy_statistics",
            _merge,
            (_uniform(2, 3), _uniform(3), torch.arange(B) % 2, _uniform(T, B), _uniform(T, B), _coin(T, B)),
        ),
    ]


@pytest.mark.parametrize(("name", "function", "arguments"), _cases(), ids=[case[0] for case in _cases()])
def test_compiled_equals_eager(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    eager = function.__wrapped__
    compiled = torch.compile(eager, fullgraph=True, dynamic=False)
    expected, found = eager(*arguments), compiled(*arguments)
    if isinstance(expected, Tensor):
        expected, found = (expected,), (found,)
    for one, other in zip(expected, found, strict=True):
        assert one.dtype == other.dtype, name
        assert one.stride() == other.stride(), name
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def test_retrace_errors_have_the_same_gradient_compiled() -> None:
    arguments = next(case[2] for case in _cases() if case[0] == "retrace_errors")
    gradients = []
    plain = retrace_errors.__wrapped__
    for function in (plain, torch.compile(plain, fullgraph=True, dynamic=False)):
        q = arguments[0].clone().requires_grad_()
        function(q, *arguments[1:])[0].square().sum().backward()
        gradients.append(q.grad)
    assert gradients[0].abs().sum() > 0
    torch.testing.assert_close(gradients[1], gradients[0])
