"""Never Give Up: directed exploration by episodic and life-long novelty (Badia et al., 2020), in PyTorch.

`NGU` is the agent, `IntrinsicReward` the novelty reward alone, `preset` the paper's settings, `Config` all of them.
"""

from ngu.api import NGU
from ngu.config import Config, NoveltyConfig, with_overrides
from ngu.envs import EnvironmentSpec
from ngu.errors import UserError
from ngu.novelty.reward import IntrinsicReward
from ngu.presets import PRESETS, VARIANTS, preset

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
