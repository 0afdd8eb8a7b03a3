"""The whole agent on a Gymnasium environment in worker processes learns what random actions never find."""

from __future__ import annotations

import pytest
import torch

from ngu.config_reading import with_overrides
from ngu.presets import preset
from ngu.training import Training


@pytest.mark.slow
def test_mountain_car_is_solved_by_curiosity() -> None:
    """Every episode of a random policy is cut after 200 steps, with a return of -200: no reward says where to go.

    The exploratory policies rock the car up the hill because it brings new states.
    """
    changes = {
        "env.id": "MountainCar-v0",
        "env.workers": 1,
        "run.steps": 60_000,
        "run.threads": 1,
        "run.log_period": 2000,
        "evaluation.period": 0,
        "evaluation.num_envs": 1,
        "evaluation.max_steps": 1,
    }
    threads = torch.get_num_threads()
    training = Training(with_overrides(preset("gym"), changes))
    try:
        training.run(show_progress=False)
    finally:
        training.close()
        torch.set_num_threads(threads)
    returns = {row["step"]: row["env/return"] for row in training.history if "env/return" in row}
    early = [value for step, value in returns.items() if step <= 5_000]
    assert early
    assert max(early) == -200.0
    # A mean of -195 over ten or more episodes: several have reached the goal.
    assert max(returns.values()) > -195.0
