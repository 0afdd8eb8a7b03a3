"""Settings: begin with a preset, change what you like, and train a family of two policies.

    python examples/custom_config.py
    python examples/custom_config.py --config my.toml

Later sources win: the preset, its variant, a file, then overrides in code. `ngu train disco-maze-small --variant
ngu-no-rnd --config my.toml --mixture.num-mixtures 2` reads the same sources in the same order.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro

import ngu
from ngu.config_reading import read_config_file

FILE = """\
# Groups are tables, settings their keys; what is not named keeps its value.
[env]
maze_size = 7
maze_step_cap = 60

[mixture]
num_mixtures = 2      # beta_0 = 0 exploits, beta_1 = beta explores
cross_mixture_ratio = 0.5

[evaluation]
num_envs = 16
max_steps = 60
marks = [30, 60]
"""


@dataclass(frozen=True)
class Settings:
    """Trains with settings from a preset, a variant, a file and code."""

    config: Path | None = None
    """A TOML or JSON file of settings; the one printed below if not given."""
    steps: int = 20_000
    """Agent steps to learn for."""


def main(settings: Settings) -> ngu.NGU:
    """Returns the trained agent."""
    config = ngu.preset("disco-maze-small", variant="ngu-no-rnd")

    if settings.config is None:
        print(FILE)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "settings.toml"
            path.write_text(FILE)
            config = read_config_file(path, config)
    else:
        config = read_config_file(settings.config, config)

    config = ngu.with_overrides(config, {"env.num_envs": 32, "run.seed": 7, "run.log_period": 5_000})
    print(f"maze {config.env.maze_size}, {config.mixture.num_mixtures} policies, {config.env.num_envs} environments")

    # A config is checked when it is made: one that exists can be run.
    try:
        ngu.with_overrides(config, {"env.maze_size": 8})
    except ngu.UserError as error:
        print(f"refused: {error}")

    agent = ngu.NGU(config).learn(settings.steps, progress=False)
    for line in agent.history:
        if "inverse/accuracy" in line:
            print(f"step {line['step']:>6,}: inverse accuracy {line['inverse/accuracy']:.2f}")
    for name, value in agent.evaluate().items():
        print(f"{name}: {value:.3f}")
    return agent


if __name__ == "__main__":
    main(tyro.cli(Settings))
