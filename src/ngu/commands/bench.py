"""`ngu bench`: how fast the agent and its parts are on this machine."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ngu.commands.train import Train, read_command


@dataclass(frozen=True)
class Bench(Train):
    """Measures the whole agent's speed, its parts' times and shares, and the bare environment's speed beside them.

    Takes the settings of `ngu train`, and writes nothing to disk.
    """

    seconds: float = 10.0
    """How long the whole agent is measured, after a warm-up."""
    json: bool = False
    """Print the measurements as JSON."""
    kernels: bool = False
    """Print where the time of acting, sampling and an update goes, kernel by kernel, instead."""


def main(argv: list[str]) -> int:
    command, config = read_command("ngu bench", Bench, argv)
    from ngu.benchmarks.agent import kernel_table, measure

    if command.kernels:
        print(kernel_table(config))
        return 0
    benchmark = measure(config, command.seconds)
    print(json.dumps(benchmark.to_dict(), indent=2) if command.json else benchmark.table())
    return 0
