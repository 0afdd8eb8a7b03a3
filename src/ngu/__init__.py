"""Never Give Up: directed exploration by episodic and life-long novelty (Badia et al., 2020), in PyTorch.

`NGU` is the agent, `IntrinsicReward` the novelty reward alone, `preset` the paper's settings, `Config` all of them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngu.api import NGU
    from ngu.config import Config, NoveltyConfig
    from ngu.config_reading import with_overrides
    from ngu.envs import EnvironmentSpec
    from ngu.errors import UserError
    from ngu.novelty.reward import IntrinsicReward
    from ngu.presets import PRESETS, preset
    from ngu.variants import VARIANTS

__version__ = "0.1.0"

__all__ = [
    "NGU",
    "PRESETS",
    "VARIANTS",
    "Config",
    "EnvironmentSpec",
    "IntrinsicReward",
    "NoveltyConfig",
    "UserError",
    "preset",
    "with_overrides",
]

_HOMES = {
    "NGU": "ngu.api",
    "PRESETS": "ngu.presets",
    "VARIANTS": "ngu.variants",
    "Config": "ngu.config",
    "EnvironmentSpec": "ngu.envs",
    "IntrinsicReward": "ngu.novelty.reward",
    "NoveltyConfig": "ngu.config",
    "UserError": "ngu.errors",
    "preset": "ngu.presets",
    "with_overrides": "ngu.config_reading",
}
_MODULES = ("config_reading", "envs", "graphs", "metrics")
"""Those that the docs and messages name, so that `import ngu` is enough for `ngu.metrics.read_metrics`."""


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for, so that `ngu --help` does not wait for PyTorch."""
    if name in _MODULES:
        return importlib.import_module(f"ngu.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'ngu' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, *_MODULES, "__version__"]
