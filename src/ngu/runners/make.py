"""Makes the runner that a config names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ngu.config import Config
from ngu.runners.local import LocalRunner

if TYPE_CHECKING:
    from ngu.runners.ray import RayRunner


def make_runner(config: Config, device: torch.device) -> LocalRunner | RayRunner:
    """Everything in this process, or actors and evaluator on a Ray cluster."""
    if config.run.runner == "ray":
        from ngu.runners.ray import RayRunner  # an optional part of the installation

        return RayRunner(config, device)
    return LocalRunner(config, device)
