"""The tables of docs/results.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ngu.experiments.paper_numbers import ATARI57
from ngu.report.results import Results
from page_tables.kept import (
    COVERAGE,
    MILLION,
    PERCENT,
    PLAIN,
    WHOLE,
    WHOLE_PERCENT,
    Reading,
    Style,
    at,
    best,
    commands,
    commits,
    last,
    markdown,
    millions,
    runs_of,
    seeds,
    steps,
    table,
)

SMALL = [COVERAGE.format(50), COVERAGE.format(100)]
SMALL_FINE = [COVERAGE.format(50), COVERAGE.format(77), COVERAGE.format(100)]
LARGE = [COVERAGE.format(200), COVERAGE.format(500)]
LENGTH = "eval/explore/length"

LAPTOP, NODE = "reproduce/laptop/disco-maze", "reproduce/node/disco-maze"
LATE = "disco-maze-small/late-episode"
AVERAGED = f"{LATE}/average-constant-rate"
SEARCH = "disco-maze/search"


# -------------------------------------------------------------------------------------------------------- readings


def of_seed(seed: int, reading: Reading) -> Reading:
    """What the runs of one seed say."""
    return lambda runs: reading([run for run in runs if run.seed == seed])


def seconds(runs: Sequence[Results]) -> str:
    """Training time at the last measurement."""
    return ", ".join(f"{run.seconds:.0f} s" for run in runs)


def over_runs(metric: str, style: Style = PERCENT) -> Reading:
    """The mean of the runs' last values."""

    def read(runs: Sequence[Results]) -> str:
        values = [value for run in runs if (value := run.last(metric)) is not None]
        return style.cell([style.number(sum(values) / len(values))])

    return read


def evaluated_at(runs: Sequence[Results]) -> str:
    """Agent steps at the last evaluation."""
    return ", ".join(dict.fromkeys(millions(run.last_step(LENGTH)) for run in runs))


def at_the_evaluation(metric: str, style: Style = PERCENT) -> Reading:
    """The value at the last evaluation, which may be earlier than the last value."""
    return lambda runs: style.cell(
        [style.number(row[metric]) for run in runs for row in run.rows if row["step"] == run.last_step(LENGTH)]
    )


def by_policy(runs: Sequence[Results], policy: str, metrics: Mapping[str, Style]) -> list[str]:
    """What one of a family's policies did in the last evaluation."""
    return [last(f"eval/{policy}/{metric}", style=style)(runs) for metric, style in metrics.items()]


# ------------------------------------------------------------------------------------------------- the maze of 9x9


def small_maze() -> str:
    """The preset on the 9x9 maze."""
    return table(
        "seed",
        {str(seed): f"disco-maze-small/ngu-seed{seed}.csv" for seed in range(3)},
        {
            "after 50 steps": last(SMALL[0], style=PERCENT),
            "after 100 steps": last(SMALL[1]),
            "command": commands,
        },
    )


def small_figure() -> str:
    """Learned states, random states, RND alone."""
    return table(
        "agent, seeds 0, 1, 2",
        {
            "learned controllable states": f"{LAPTOP}/ngu-seed*.csv",
            "random projection": f"{LAPTOP}/random-projection-seed*.csv",
            "RND alone": f"{LAPTOP}/rnd-only-seed*.csv",
        },
        {
            "after 50 steps": last(SMALL[0]),
            "after 100 steps": last(SMALL[1]),
            "steps in an episode": last(LENGTH, style=PLAIN),
        },
    )


BY_SEED = {f"seed {seed}": of_seed(seed, last(*SMALL_FINE)) for seed in range(2)}
"""Coverage after 50, 77 and 100 steps, a column for each seed."""


def late_episode() -> str:
    """What was tried against steps lost late in an episode."""
    return table(
        "settings",
        {
            "the preset, 4M steps": f"{LATE}/long-seed0.csv",
            "rescaled": f"{LATE}/rescale-seed0.csv",
            "rescaled, cap 200": f"{LATE}/rescale-cap200-seed*.csv",
            "rescaled, cap 200, a lower rate in the second half": f"{LATE}/rescale-cap200-low-rate-seed1.csv",
            "rescaled, cap 200, `network.forget_bias` 1": f"{LATE}/rescale-cap200-forget1-seed*.csv",
            "rescaled, cap 200, `network.forget_bias` 3; seed 1 took off late": (
                f"{LATE}/rescale-cap200-forget3-seed*.csv"
            ),
            "rescaled, sequences of 40 steps, half as many": f"{LATE}/rescale-trace40-seed0.csv",
        },
        BY_SEED,
    )


def continued() -> str:
    """How far targets look, from one set of weights for each seed."""
    return table(
        "from 2M steps on",
        {
            "as before: sequences of 20 steps": f"{LATE}/continued-nothing-seed*.csv",
            "targets look 20 steps past the end: `replay.lookahead` 20": f"{LATE}/continued-lookahead20-seed*.csv",
            "recurrent states renewed by the 20 steps before: `replay.burn_in` 20": (
                f"{LATE}/continued-burn-in20-seed*.csv"
            ),
            "both": f"{LATE}/continued-burn-in20-lookahead20-seed*.csv",
            "sequences of 40 steps": f"{LATE}/continued-trace40-seed*.csv",
        },
        BY_SEED,
    )


def from_scratch() -> str:
    """How far targets look, from scratch, with averaged weights and a constant rate."""
    late = "took off late and {} still rising"
    return table(
        "2M steps from scratch",
        {
            "sequences of 20 steps, as in the preset": f"{AVERAGED}-seed[01].csv",
            f"the same, `replay.lookahead` 20; both {late.format('were')}": f"{AVERAGED}-lookahead20-seed[01].csv",
            "the same, `replay.burn_in` 20": f"{AVERAGED}-burn-in20-seed*.csv",
            "the same, both": f"{AVERAGED}-burn-in20-lookahead20-seed*.csv",
            f"40 steps; seed 1 {late.format('was')}": f"{AVERAGED}-trace40-seed*.csv",
            "80 steps": f"{AVERAGED}-trace80-seed0.csv",
            "20 steps, four times as many steps collected for as many updates": (
                f"{AVERAGED}-four-times-the-steps-seed0.csv"
            ),
        },
        BY_SEED,
    )


def cut_margin() -> str:
    """The last steps before a cut."""
    return table(
        "2M steps from scratch",
        {
            "neither": f"{AVERAGED}-seed*.csv",
            "`replay.cut_margin` 20": f"{AVERAGED}-cut-margin20-seed*.csv",
            "`replay.lookahead` 20": f"{AVERAGED}-lookahead20-seed*.csv",
            "both": f"{AVERAGED}-lookahead20-cut-margin20-seed*.csv",
        },
        {"seeds 0, 1, 2, 3": last(SMALL[1]), "mean": over_runs(SMALL[1])},
    )


def on_a_cluster() -> str:
    """The same maze on Ray, where actors, a node and the evaluator are killed."""
    folder, lost = "disco-maze-small/ray", "actors, a node and the evaluator replaced"
    return table(
        "runner, seed 0",
        {
            "ray, actors killed 43 times": f"{folder}/ngu-ray-seed0.csv",
            f"ray on three nodes: 100 {lost}": f"{folder}/ngu-ray-three-nodes-seed0.csv",
            f"the same again: 88 {lost}": f"{folder}/ngu-ray-three-nodes-again-seed0.csv",
            "local": "disco-maze-small/ngu-seed0.csv",
            "local, seeds 1 and 2": "disco-maze-small/ngu-seed[12].csv",
        },
        {
            "after 50 steps": last(SMALL[0]),
            "after 100 steps": last(SMALL[1]),
            "updates": last("learner/updates", style=WHOLE),
        },
    )


def family() -> str:
    """The ends of a family of four on the small maze."""
    runs = runs_of("disco-maze-small/family/ngu-n4-seed0.csv")
    metrics = {"coverage@50": PERCENT, "coverage@100": PERCENT, "length": PLAIN}
    policies = {
        "β_3 = 0.5, exploratory": "explore",
        "β_0 = 0, exploitative: nothing is worth anything": "exploit",
    }
    return markdown(
        ["policy", "after 50 steps", "after 100 steps", "steps in an episode"],
        [[label, *by_policy(runs, policy, metrics)] for label, policy in policies.items()],
    )


# ----------------------------------------------------------------------------------------------- the maze of 21x21


def large_maze() -> str:
    """The paper's fig_disco_maze (right)."""
    without = "disco-maze/without-lookahead"
    return table(
        "agent, seeds 0, 1, 2",
        {
            "learned controllable states": f"{NODE}/ngu-seed*.csv",
            "random projection": f"{NODE}/random-projection-seed*.csv",
            "RND alone": f"{NODE}/rnd-only-seed*.csv",
            "random projection, no lookahead (406ac80)": f"{without}/random-projection-seed*.csv",
            "RND alone, no lookahead (406ac80)": f"{without}/rnd-only-seed*.csv",
        },
        {
            "steps": steps,
            "after 200 steps": last(LARGE[0]),
            "after 500 steps": last(LARGE[1]),
            "steps in an episode": last(LENGTH, style=WHOLE),
        },
    )


def ablations() -> str:
    """Neighbours, sizes, kernels and families on the large maze."""
    preset = "the preset: 10 neighbours, size 32, kernel ε 0.01, N = 1; seeds 0, 1, 2 at 5f387d3"
    again = "the preset three times over, seed 0 at 061d5b5: to 40M steps; as size 32; as kernel ε 0.01"
    longer = "disco-maze/one-distance/ngu-seed0-40M.csv"
    return table(
        "",
        {
            preset: f"{NODE}/ngu-seed*.csv",
            again: (longer, f"{NODE}/state-32-seed0.csv", f"{NODE}/epsilon-0.01-seed0.csv"),
            "the preset with a probe, which changes nothing for the agent": f"{NODE}/ngu-probed-seed0.csv",
            "5 neighbours": f"{NODE}/neighbours-5-seed0.csv",
            "30 neighbours": f"{NODE}/neighbours-30-seed0.csv",
            "size 16": f"{NODE}/state-16-seed0.csv",
            "size 64 (061d5b5)": f"{NODE}/state-64-seed0.csv",
            "kernel ε 0.0001": f"{NODE}/epsilon-0.0001-seed0.csv",
            "kernel ε 0.001 (061d5b5)": f"{NODE}/epsilon-0.001-seed0.csv",
            "kernel ε 0.1": f"{NODE}/epsilon-0.1-seed0.csv",
            "N = 2, its policy β_1": f"{NODE}/ngu-n2-seed0.csv",
            "N = 8, its policy β_7": f"{NODE}/ngu-n8-seed0.csv",
        },
        {
            f"{mark} steps, at {step}M": at(step * MILLION, COVERAGE.format(mark))
            for mark in (200, 500)
            for step in (12, 16, 20)
        },
    )


def lookahead() -> str:
    """A lookahead and a burn-in on the large maze."""
    return table(
        "targets and states",
        {
            "to the end of the sequence, stored states (406ac80)": "disco-maze/without-lookahead/ngu-seed*.csv",
            "**lookahead 50, stored states: the preset (5f387d3)**": f"{NODE}/ngu-seed*.csv",
            "lookahead 50, states renewed by a burn-in of 50 (b5e74b6)": f"{SEARCH}/burn-in50-lookahead50-seed*.csv",
        },
        {f"at {step}M": at(step * MILLION, LARGE[1]) for step in (16, 24, 28, 40, 60)},
    )


def averaged() -> str:
    """Averaged weights and longer sequences on the large maze."""
    files = f"{SEARCH}/average-falling-rate"
    return table(
        "run",
        {
            "the paper's table, cap 500": f"{files}-seed0-60M.csv",
            "cap 1,000, partly filled memories rescaled": f"{files}-rescaled-cap1000-seed0-60M.csv",
            "the same, forget bias 3": f"{files}-rescaled-cap1000-forget3-seed0-60M.csv",
            "cap 1,000, rescaled, sequences of 100 steps instead of 50": (
                f"{files}-rescaled-cap1000-trace100-seed0-60M.csv"
            ),
        },
        {f"at {step}M": at(step * MILLION, *LARGE) for step in (28, 36, 44, 52, 60)},
    )


def first_runs() -> str:
    """The first runs on the large maze."""
    folder = "disco-maze/first-runs"
    return table(
        "run",
        {
            "seed 0": f"{folder}/ngu-seed0-60M.csv",
            "seed 1": f"{folder}/ngu-seed1-40M.csv",
            "seed 2": f"{folder}/ngu-seed2-40M.csv",
            "seed 1, partly filled memories rescaled": f"{folder}/ngu-rescaled-seed1-36M.csv",
        },
        {
            "commit": commits,
            "steps": steps,
            "time": seconds,
            "coverage after 200 steps": last(LARGE[0]),
            "after 500 steps": last(LARGE[1]),
            "best evaluation (200 / 500)": best(LARGE[1], LARGE[0]),
        },
    )


def search() -> str:
    """What was tried to get past 90 %."""
    largest, epsilon = f"{SEARCH}/width256-newcomers-largest", "actors' epsilon from 0.1 to 0.001"
    return table(
        "run",
        {
            "256 units, newcomers at the largest priority": f"{largest}-seed0-36M.csv",
            "the same, learning rate 2e-3": f"{largest}-rate2e-3-seed0-36M.csv",
            "the same, learning rate 3e-3": f"{largest}-rate3e-3-seed0-36M.csv",
            "the same, partly filled memories rescaled": f"{largest}-rescaled-seed0-36M.csv",
            "256 units, newcomers by their TD errors": f"{SEARCH}/width256-seed0-30M.csv",
            f"the same, {epsilon}, rate down to 2e-5": f"{SEARCH}/width256-epsilon-seed0-50M.csv",
            "**512 units, newcomers by their TD errors, rate down to 2e-5**": f"{SEARCH}/width512-seed0-50M.csv",
            f"the same, {epsilon}": f"{SEARCH}/width512-epsilon-seed0-50M.csv",
            "512 units, to 60M steps, alone on the GPU": f"{SEARCH}/width512-seed0-60M.csv",
            "512 units, the rate falls geometrically from 12M on": f"{SEARCH}/width512-geometric-seed*.csv",
            "the same, f's rate with it": f"{SEARCH}/width512-geometric-f-too-seed0-49M.csv",
            "the same, f's rate with it, a torso of 1,024 units": f"{SEARCH}/torso1024-geometric-f-too-seed0-49M.csv",
            "an LSTM of 1,024 units, to 80M steps, alone on the GPU": f"{SEARCH}/lstm1024-seed0-80M.csv",
        },
        {
            "seed": seeds,
            "steps": evaluated_at,
            "coverage": last(*LARGE),
            "trained steps that are no padding": at_the_evaluation("learner/valid_share", WHOLE_PERCENT),
        },
    )


# ------------------------------------------------------------------------------------------------------------- Pong


def pong() -> str:
    """The ends of a family of 32 on Pong, beside the paper's."""
    runs = runs_of("reproduce/node/pong/ngu-seed0.csv")
    metrics = {"score": PLAIN, "human_normalised": Style(0, unit=" %"), "length": WHOLE}
    policies = {
        "β_0, which exploits": ("exploit", ATARI57["NGU(32) eval beta=0.0"]["pong"]),
        "β_31, which explores": ("explore", ATARI57["NGU(32) eval beta=0.3"]["pong"]),
    }
    return markdown(
        ["policy", "score, 56 million frames", "human-normalised", "steps in a game", "the paper, 35 billion frames"],
        [
            [label, *by_policy(runs, policy, metrics), paper.text.replace("±", " ± ")]
            for label, (policy, paper) in policies.items()
        ],
    )


PARTS = [
    small_maze,
    small_figure,
    late_episode,
    continued,
    from_scratch,
    cut_margin,
    on_a_cluster,
    family,
    large_maze,
    ablations,
    lookahead,
    averaged,
    first_runs,
    search,
    pong,
]
"""In the order of their places in the page."""
