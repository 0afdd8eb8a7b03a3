"""The tables of docs/tasks.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ngu.report.results import Results
from page_tables.kept import WHOLE_PERCENT, Reading, Style, at, last, millions, table

LAPTOP = "reproduce/laptop"
EXPLOIT, EXPLORE = "eval/exploit/solved", "eval/explore/solved"
LENGTH = Style(0, unit=" steps")


# -------------------------------------------------------------------------------------------------------- readings


def first_solved(runs: Sequence[Results]) -> str:
    """The first line of the log that tells of a training episode that was solved."""

    def told(run: Results) -> str:
        step = next((row["step"] for row in run.rows if row.get("env/solved")), None)
        return "never" if step is None else f"by {millions(step)} steps"

    return _said(runs, told)


def solved_since(metric: str, over: float) -> Reading:
    """The evaluation from which on a larger share was solved in all."""

    def told(run: Results) -> str:
        steps, shares = run.series(metric)
        if not len(steps):
            return "no such policy"
        lasting = next((place for place in range(len(shares)) if all(shares[place:] > over)), None)
        return "never" if lasting is None else f"from {millions(steps[lasting])} on"

    return lambda runs: _said(runs, told)


def balanced(reading: Reading, *, are: bool = True) -> Reading:
    """What the runs with balanced errors say, or those without."""
    return lambda runs: reading([run for run in runs if ("balanced" in run.path.stem) == are])


def _said(runs: Sequence[Results], told: Callable[[Results], str]) -> str:
    """What runs say, once if they say the same."""
    return ", ".join(dict.fromkeys(map(told, runs)))


# ---------------------------------------------------------------------------------------------------------- tables


def deep_sea() -> str:
    """NGU and R2D2 on Deep Sea."""
    return table(
        "run",
        _runs("deep-sea", f"{LAPTOP}/deep-sea-20"),
        {
            "treasure first found in training": first_solved,
            "`exploit` solved": solved_since(EXPLOIT, 0.99),
            "`explore` solved": solved_since(EXPLORE, 0.99),
            "at 400,000 steps: `exploit` / `explore`": at(400_000, EXPLOIT, EXPLORE, style=WHOLE_PERCENT),
        },
    )


def minigrid() -> str:
    """NGU and R2D2 on the preset's level."""
    return table(
        "run",
        _runs("minigrid", f"{LAPTOP}/minigrid-MultiRoom-N4-S5"),
        {
            "goal first reached in training": first_solved,
            "`exploit` solves over 80 %": solved_since(EXPLOIT, 0.8),
            "`explore` solves over 80 %": solved_since(EXPLORE, 0.8),
            "at 300,000 steps: `exploit` / `explore`": at(300_000, EXPLOIT, EXPLORE, style=WHOLE_PERCENT),
        },
    )


def _runs(name: str, folder: str) -> dict[str, str]:
    """A row for each seed of NGU, and one for all of R2D2."""
    return {
        **{f"`ngu train {name} --seed {seed}`": f"{folder}/ngu-seed{seed}.csv" for seed in range(3)},
        f"`ngu train {name} --variant r2d2-retrace`, seeds 0, 1 and 2": f"{folder}/r2d2-retrace-seed*.csv",
    }


_COIN = {
    "`exploit` solved, seeds 0, 1, 2": last(EXPLOIT, style=WHOLE_PERCENT),
    "mean length of `exploit`": last("eval/exploit/length", style=LENGTH),
    "`explore` solved": last(EXPLORE, style=WHOLE_PERCENT),
    "mean length of `explore`": last("eval/explore/length", style=LENGTH),
}


def random_coin() -> str:
    """Both ends of the family at the end, for each beta."""
    betas = ("0", "0.01", "0.05", "0.1", "0.3", "1")
    return table("`mixture.beta`", {beta: f"{LAPTOP}/random-coin/beta-{beta}-seed*.csv" for beta in betas}, _COIN)


def random_coin_balanced() -> str:
    """The same with errors in units of their policy."""
    files = f"{LAPTOP}/random-coin/beta-{{}}-seed*.csv"
    return table(
        "`mixture.beta`",
        {beta: (files.format(f"{beta}-balanced"), files.format(beta)) for beta in ("0.05", "0.3", "1")},
        {
            **{head: balanced(reading) for head, reading in _COIN.items()},
            "`exploit` solved, not balanced": balanced(last(EXPLOIT, style=WHOLE_PERCENT), are=False),
        },
    )


PARTS = [deep_sea, random_coin, random_coin_balanced, minigrid]
"""In the order of their places in the page."""
