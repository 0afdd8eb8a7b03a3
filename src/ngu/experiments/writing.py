"""The outcome of an experiment as files: figure, table, each run's results, and the exact commands."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from ngu.experiments.collecting import TRAINING_STRETCH, Collected
from ngu.experiments.definition import Experiment
from ngu.experiments.figures import draw
from ngu.experiments.listing import frames_in_words
from ngu.experiments.plan import Plan, frames_per_step
from ngu.experiments.scales import SCALES
from ngu.experiments.tables import Place, as_csv, markdown, places
from ngu.report.groups import learning_settings
from ngu.report.results import write_file
from ngu.report.style import LIGHT, house_style, short_number, to_png


@dataclass(frozen=True)
class Written:
    """What came out, and where it lies."""

    found: list[Place]
    caption: str
    files: list[Path]


def write(plan: Plan, collected: Collected, command: str) -> Written:
    """Writes everything to the folder of results. `command` is the command line of `ngu reproduce`."""
    experiment, folder = plan.experiment, plan.output
    found = places(experiment, collected)
    caption = " ".join(_caption(plan, collected, found))
    files: list[Path] = []

    def keep(name: str, content: bytes) -> None:
        write_file(folder / name, content)
        files.append(folder / name)

    with house_style():
        figure = draw(experiment, collected, LIGHT)
        if figure is not None:
            keep("figure.png", to_png(figure))
            keep("figure.svg", _svg(figure))
    keep("table.md", _page(experiment, found, caption, drawn=figure is not None).encode())
    keep("table.csv", as_csv(experiment, found).encode())
    commands = [f"# {command}", *(cell.command() for cell in plan.cells())]
    keep("commands.txt", ("\n".join(commands) + "\n").encode())
    return Written(found, caption, files)


def _svg(figure: Figure) -> bytes:
    """The figure as a file of its own, in light colours."""
    with io.BytesIO() as file:
        figure.savefig(file, format="svg", facecolor="white", metadata={"Date": None})
        return file.getvalue()


def _page(experiment: Experiment, found: list[Place], caption: str, *, drawn: bool) -> str:
    parts = [f"# {experiment.name}: {experiment.title}", f"{experiment.place}. {experiment.shows}"]
    if drawn:
        parts.append("![](figure.png)")
    parts += [markdown(found), caption]
    return "\n\n".join(parts) + "\n"


def _caption(plan: Plan, collected: Collected, found: list[Place]) -> list[str]:
    """What the numbers are: frames beside frames, seeds, and what the paper says besides."""
    experiment = plan.experiment
    sentences = []
    if experiment.tasks:
        sentences += [
            _trained(plan, collected),
            f"Ours: {_what_is_told(experiment)}, mean over seeds with its 95 % bootstrap interval (none for one seed).",
            *_in_training(found),
            *_other_settings(plan),
            *_cut_short(plan),
        ]
    if experiment.published:
        sentences.append(
            "HNS: human-normalised score, 0 for a random player and 100 for a human one; the paper's means and medians "
            "of it are reckoned here from the scores that it prints."
        )
    sentences += [f"The paper's text: {said}" for said in experiment.said]
    return [*sentences, *experiment.remarks]


def _what_is_told(experiment: Experiment) -> str:
    if experiment.evaluated:
        return "the last evaluation"
    return f"the mean over the last {TRAINING_STRETCH:,} agent steps (over the last half of shorter runs)"


def _in_training(found: list[Place]) -> list[str]:
    """Where runs were not evaluated."""
    if not any(place.ours and place.ours.training for place in found):
        return []
    return [
        f"In training: no evaluation was made; the episodes of the last {TRAINING_STRETCH:,} agent steps (of the last "
        "half of shorter runs), with the actors' epsilons, speak for the run."
    ]


def _other_settings(plan: Plan) -> list[str]:
    """Where runs differ from those of the scale `paper` in more than their budget; toys need not say so."""
    if plan.scale.smoke:
        return []
    one_seed = replace(plan, seeds=1)
    papers = replace(one_seed, scale=SCALES["paper"], settings={})
    changed: dict[str, None] = {}
    for here, paper in zip(one_seed.cells(), papers.cells(), strict=True):
        ours, theirs = learning_settings(here.config()), learning_settings(paper.config())
        changed |= dict.fromkeys(name for name in ours if ours[name] != theirs[name])
    named = [name for name in changed if not name.startswith("evaluation.")]
    return [f"Runs differ from those of the scale paper in {', '.join(named)}."] if named else []


def _cut_short(plan: Plan) -> list[str]:
    """Where games are evaluated for a shorter time than the paper's."""
    game = next((cell for cell in plan.cells() if cell.task.world == "atari"), None)  # all are evaluated alike
    if game is None:
        return []
    config = game.config()
    ours, papers = config.evaluation.max_steps * frames_per_step(game.task), config.env.max_frames
    return [f"Our evaluations end a game after {ours:,} frames, the paper's after {papers:,}."] if ours < papers else []


def _trained(plan: Plan, collected: Collected) -> str:
    experiment = plan.experiment
    runs = [(task, run) for task in experiment.tasks for arm in experiment.arms
            for run in collected.runs.get((task.name, arm.name), ())]  # fmt: skip
    paper = "a number of frames or steps that it does not say"
    if experiment.frames and experiment.frames_said:
        paper = f"{frames_in_words(experiment.frames)} frames"
    if not runs:
        return "Nothing has been run yet" + ("." if experiment.ours else f"; the paper trained for {paper}.")
    counts = sorted(run.steps * frames_per_step(task) for task, run in runs)
    unit = "frames" if all(task.world == "atari" for task, _ in runs) else "steps"
    span = " to ".join(dict.fromkeys(short_number(count) for count in (counts[0], counts[-1])))
    machines = ", ".join(sorted({run.origin.get("machine", "an unknown machine") for _, run in runs}))
    told = f"{len(runs)} of {len(plan.cells())} runs, each of {span} {unit} ({machines})"
    return told + ("." if experiment.ours else f"; the paper's had {paper}.")
