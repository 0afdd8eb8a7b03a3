"""`ngu bench`: how fast the agent and its parts are on this machine."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ngu.commands.train import Train, read_command
from ngu.config import Config
from ngu.errors import UserError


@dataclass(frozen=True)
class Bench(Train):
    """Measures the whole agent's speed, its parts' times and shares, and the bare environment's speed beside them.

    On Atari and Gymnasium environments the whole agent is measured at several ratios of trained to collected steps, in
    turns with the bare emulator; acting and learning are measured alone, too.

    With --runner ray: the local runner, the Ray runner with 1, 2 and 4 actors, and the learner's intake alone.

    Takes the settings of `ngu train`, and writes nothing to disk but the plot that is asked for.
    """

    seconds: float = 10.0
    """How long the whole agent is measured, at each ratio, after a warm-up."""
    json: bool = False
    """Print the measurements as JSON."""
    kernels: bool = False
    """Print where the time of acting, sampling and an update goes, kernel by kernel, instead."""
    ratios: Annotated[tuple[float, ...], tyro.conf.arg(metavar="FLOAT [FLOAT ...]", help_behavior_hint="")] = ()
    """Atari, Gymnasium: trained steps for each collected one, 0 for acting alone; 0, 1.5, 8, 16, the preset's own."""
    fill: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Atari, Gymnasium: entries of each episodic memory when the whole agent is measured; 10,000, or full."""
    growth: bool = False
    """Atari, Gymnasium: also measure how an acting step grows with environments, memory and the number of policies."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE.png", help_behavior_hint="")] = None
    """Atari, Gymnasium: draw the rates, and the growth if it is measured."""


def main(argv: list[str]) -> int:
    command, config = read_command("ngu bench", Bench, argv)
    on_the_host = not config.env.on_device
    on_a_cluster = config.run.runner == "ray"
    _check(command, on_the_host and not on_a_cluster)
    from ngu.commands.session import memory_in_words

    with memory_in_words():
        if on_a_cluster:
            from ngu.benchmarks.cluster import measure_cluster

            cluster = measure_cluster(config, command.seconds, say=_say)
            print(json.dumps(cluster.to_dict(), indent=2) if command.json else cluster.table())
        elif command.kernels:
            from ngu.benchmarks.kernels import kernel_table

            print(kernel_table(config, command.fill or 0))
        elif on_the_host:
            _bench_hosted(command, config)
        else:
            from ngu.benchmarks.agent import measure

            benchmark = measure(config, command.seconds)
            print(json.dumps(benchmark.to_dict(), indent=2) if command.json else benchmark.table())
    return 0


def _bench_hosted(command: Bench, config: Config) -> None:
    from ngu.benchmarks.hosted import measure_hosted

    result = measure_hosted(config, command.seconds, command.ratios, fill=command.fill, growth=command.growth, say=_say)
    print(json.dumps(result.to_dict(), indent=2) if command.json else result.table())
    if command.plot is not None:
        from ngu.benchmarks.figure import write_plot

        written = write_plot(result, command.plot)
        if not command.json:
            print(f"\nplot: {written}")


def _check(command: Bench, on_the_host: bool) -> None:
    if not command.seconds > 0:
        raise UserError(f"seconds is {command.seconds:g}; give a number above 0.")
    given = {"ratios": command.ratios, "fill": command.fill is not None, "growth": command.growth, "plot": command.plot}
    for option, value in given.items():
        if value and not on_the_host:
            raise UserError(
                f"--{option} is for environments on the host; choose a preset such as atari-cpu, or leave it out."
            )
    if command.plot is not None:
        if command.plot.suffix != ".png":
            raise UserError(f"the plot is a PNG file; give --plot a name that ends in .png, not {command.plot.name}.")
        if not command.plot.parent.is_dir():
            raise UserError(f"the folder {command.plot.parent} does not exist; make it or choose another --plot.")


def _say(what: str) -> None:
    """Shows somebody who waits what is measured."""
    if sys.stderr.isatty():
        print(f"{what} ...", file=sys.stderr, flush=True)
