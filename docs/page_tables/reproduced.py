"""The paper's experiments, and ours, with the runs that are kept of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ngu.experiments.catalogue import EXPERIMENTS
from ngu.experiments.collecting import Collected, read_collected
from ngu.experiments.definition import Experiment
from ngu.experiments.scales import SCALES
from ngu.experiments.tables import Place, markdown, places
from ngu.report.results import Results
from page_tables.kept import MILLION, RESULTS, runs_of

_REMEDIES = "atari/montezuma_revenge/remedies/{}-seed0.csv"
_REMEDIED = {
    "ngu": "ngu",
    "ngu-probed": "ngu",
    "ngu-n1": "n1-20-frames-xi-0.4",
    "ngu-n1-no-rnd": "n1-no-rnd",
    "r2d2-rnd": "r2d2-rnd",
    "r2d2-retrace": "r2d2-advantage-learning",
    "hand-crafted": "hand-crafted",
}
"""Agents of experiments, and files of the runs with the remedies of docs/montezuma.md, made without `ngu reproduce`."""
_SHOWN_BY_REMEDIED = ("table_action_prediction_montezuma", "predictability_results", "montezuma_training")
"""Not `initial_results`: the memory of that hand-crafted agent is kept over one episode, not over three."""

_SMALL = "atari/montezuma_revenge/small/{}.csv"
_IN_SMALL = {
    "ngu-n1": "learned-keypoints-seed*",
    "r2d2-retrace": "r2d2-kappa-0.01-seed0",
    "hand-crafted": "hand-crafted-narrowed-kappa-0.01-seed*",
}
"""Agents of `montezuma_training`, and files of the small task of docs/montezuma.md."""

_STEPS = {("disco_maze_neighbours", "node"): 20 * MILLION, ("disco_maze_policies", "node"): 20 * MILLION}
"""Experiments whose runs are compared at the steps that all of them have: the agent that they share went on."""


@dataclass(frozen=True)
class Source:
    """Where runs of experiments are kept."""

    title: str
    collected: Callable[[Experiment], Collected]
    remark: str = ""
    """Before its tables."""


def _remedied(entry: Experiment) -> Collected:
    return _kept(entry, _REMEDIES, _REMEDIED if entry.name in _SHOWN_BY_REMEDIED else {})


def _small(entry: Experiment) -> Collected:
    return _kept(entry, _SMALL, _IN_SMALL if entry.name == "montezuma_training" else {})


def _kept(entry: Experiment, files: str, names: Mapping[str, str]) -> Collected:
    kept = [(arm.name, names[arm.name]) for arm in entry.arms if arm.name in names]
    return Collected(entry, {("montezuma_revenge", arm): runs_of(files.format(name)) for arm, name in kept})


def _reproduced(scale: str) -> Source:
    """The files under `results/reproduce/SCALE`."""

    def collected(entry: Experiment) -> Collected:
        found = read_collected(entry, RESULTS / "reproduce" / scale)
        steps = _STEPS.get((entry.name, scale))
        if steps is None:
            return found
        return Collected(entry, {key: [_until(run, steps) for run in runs] for key, runs in found.runs.items()})

    return Source(f"scale {scale}", collected)


def _until(run: Results, steps: int) -> Results:
    return replace(run, rows=[row for row in run.rows if row["step"] < steps * 1.01])


SOURCES = {
    **{name: _reproduced(name) for name in SCALES},
    "remedies": Source(
        "Montezuma's Revenge with the remedies",
        _remedied,
        "The next tables are not by `ngu reproduce`, but from `results/atari/montezuma_revenge/remedies`: training of "
        "runs that were [stopped at different times](montezuma.md#on-the-node-with-the-remedies). NGU has ξ = 0.2; "
        "NGU(N=1) is the run with ξ = 0.4 whose f is trained on 20 transitions at twice the rate; R2D2(Retrace) is the "
        "one with advantage learning and κ = 0.01.",
    ),
    "small": Source(
        "Montezuma's Revenge, the small task",
        _small,
        "The next table is not by `ngu reproduce` either, but from `results/atari/montezuma_revenge/small`: one CPU "
        "core, a tenth of the network; NGU(N=1) has an [f of keypoints](montezuma.md#where-f-has-not-been).",
    ),
}


def reproduced_tables() -> str:
    """The tables of experiments of which runs are kept."""
    parts = []
    for source in SOURCES.values():
        tables = [
            f"### {entry.name}, {source.title}\n\n{markdown(found, budgets=True)}"
            for entry in EXPERIMENTS.values()
            if (collected := source.collected(entry)).runs and (found := _with_runs(places(entry, collected)))
        ]
        parts += [source.remark, *tables] if tables and source.remark else tables
    return (
        "\n\n".join(parts)
        or "None of the paper's experiments has been run by `ngu reproduce` for longer than a toy yet."
    )


def _with_runs(found: list[Place]) -> list[Place]:
    """The part of a table that says something about us: tasks and agents of which there is a run."""
    tasks = {place.task for place in found if place.ours is not None}
    agents = {place.agent for place in found if place.ours is not None}
    return [place for place in found if place.task in tasks and place.agent in agents]
