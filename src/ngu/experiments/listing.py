"""The plan of every experiment and what it costs, for `ngu reproduce --list` and for the docs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from ngu.experiments.plan import Cost, Plan, cost, paper_cost
from ngu.experiments.scales import RATES
from ngu.report.style import short_number

_BILLION = 1e9


HEAD = (
    "name",
    "what",
    "tasks x agents x seeds",
    "paper: frames",
    "paper: hours",
    "here: frames",
    "here: hours",
)


def entries(plans: Sequence[Plan]) -> list[list[str]]:
    """A line for each, under `HEAD`: the grid is the plan's own, as the cost behind it is."""
    return [_entry(plan) for plan in plans]


def in_lines(plans: Sequence[Plan], width: int) -> str:
    """The list for a terminal of 80 columns or more: name and cost on a line that is never broken, the rest below."""
    units = [head.split(" ") for head in HEAD[3:]]  # "paper:" stands above "frames"
    table = [["", *(whose for whose, _ in units)], [HEAD[0], *(unit for _, unit in units)]]
    below = [f"{HEAD[2]}: {HEAD[1]}"]
    for name, what, grid, *costs in entries(plans):
        table.append([name, *costs])
        below.append(f"{grid}: {what}")
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rows = [
        " ".join([name.ljust(widths[0]), *(cost.rjust(size) for cost, size in zip(costs, widths[1:], strict=True))])
        for name, *costs in table
    ]
    indented = [textwrap.fill(text, width, initial_indent="    ", subsequent_indent="    ") for text in below]
    return "\n".join([rows[0], *(line for pair in zip(rows[1:], indented, strict=True) for line in pair)])


def _entry(plan: Plan) -> list[str]:
    experiment, here = plan.experiment, cost(plan.cells())
    if plan.scale.smoke:
        here = replace(here, hours=None)  # the rates are those of presets with their own networks
    return [
        experiment.name,
        f"{experiment.place}: {experiment.title}",
        " x ".join(map(str, plan.grid)) if here.cells else "none",
        *_words(paper_cost(experiment)),
        *_words(here),
    ]


def _words(spent: Cost) -> tuple[str, str]:
    if not spent.cells:
        return "none", "none"
    hours = "not measured" if spent.hours is None else f"{hours_in_words(spent.hours)} {spent.machine}"
    return frames_in_words(spent.frames), hours


def frames_in_words(frames: float) -> str:
    """35 B, as the paper writes it; 540M."""
    if frames < _BILLION:
        return short_number(frames)
    billions = frames / _BILLION
    return f"{billions:,.0f} B" if billions >= 100 else f"{billions:.4g} B"


def hours_in_words(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}" if hours >= 1 else f"{hours:.2g}"


def sources() -> str:
    """Where the hours come from."""
    rates = "; ".join(
        f"{name}: {rate.steps_per_second:,.0f} agent steps/s ({rate.source})" for name, rate in RATES.items()
    )
    return (
        "Hours are reckoned from measured rates, without evaluations, of one H200 with 16 cores (GPU) or of one core "
        f"of a CPU (core): {rates}. "
        "An agent step of Atari is 4 frames. Where the paper does not say its frames, those of its other runs on Atari "
        "are taken, and the preset's steps elsewhere. "
        "Experiments share runs: what one has trained, another takes over."
    )
