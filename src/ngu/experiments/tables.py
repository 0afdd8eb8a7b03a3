"""Tables of experiments in the paper's layout: our number with its interval over the paper's, in every place.

Tables of few tasks have a row for each agent, those of many a row for each task. The same cells go to the terminal, to
Markdown and, one to a line, to CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from ngu.experiments.collecting import STATISTICS, Collected, Estimate, published_normalised
from ngu.experiments.definition import Column, Experiment, Panel, Task
from ngu.experiments.figures import LADDERS
from ngu.experiments.listing import frames_in_words
from ngu.experiments.paper_settings import held_by
from ngu.report.style import short_number

HUMAN_NORMALISED = "HNS"
"""Short for human-normalised score, in the heads of tables."""
_MANY = 10
"""From so many tasks on, tasks are rows."""
_FINE = 5
"""Decimals that tell each of the paper's 32 values of beta_i, and of gamma_i, from the next."""
_CSV_HEAD = (
    "task", "agent", "measurement", "ours", "low", "high", "seeds", "frames", "paper", "paper_error", "paper_frames",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """One place of a table."""

    task: str
    agent: str
    measurement: str
    ours: Estimate | None
    paper: str
    """As printed, or reckoned from what is printed."""
    paper_value: float | None = None
    paper_error: float | None = None
    paper_frames: int | None = None
    """None where the paper takes its number from others, or does not say."""
    share: bool = False
    words: str = "not run"
    """What stands where there is no number of ours."""
    digits: int = 1
    """Decimals of ours; the paper prints scores with one."""

    @property
    def budget(self) -> str:
        """Frames, or steps where there are none, that ours were trained for; empty if none was."""
        return short_number(self.ours.frames) if self.ours and self.ours.frames else ""

    def lines(self, *, with_budget: bool = False) -> list[str]:
        """Ours, and the paper's below it."""
        after = " in training" if self.ours and self.ours.training else ""
        after += f" after {self.budget}" if with_budget and self.budget else ""
        papers = f" after {frames_in_words(self.paper_frames)}" if with_budget and self.paper_frames else ""
        return [self._ours() + after, *([f"paper {self.paper}{papers}"] if self.paper else [])]

    def _ours(self) -> str:
        if self.ours is None:
            return self.words
        if self.ours.seeds == 1:
            return self._number(self.ours.value)
        return f"{self._number(self.ours.value)} [{self._number(self.ours.low)}, {self._number(self.ours.high)}]"

    def _number(self, value: float) -> str:
        if self.share:
            return f"{value:.1%}"
        if abs(value) >= 1000:
            return f"{value / 1000:.1f}k"  # as the paper prints them
        return f"{round(value, self.digits) + 0.0:.{self.digits}f}"  # never -0.0


def places(experiment: Experiment, collected: Collected) -> list[Place]:
    """Every number of an experiment: for each agent its tasks, then the statistics over them."""
    if experiment.kind == "ladder":
        _, values = LADDERS[experiment.name]
        return [
            Place(f"i = {index}", experiment.name, "value", Estimate(value, value, value, 1, 0), "", digits=_FINE)
            for index, value in enumerate(values)
        ]
    if experiment.kind == "settings":
        return [
            Place(whose, line.name, "setting", None, "", words=words)
            for line in experiment.lines
            for whose, words in [("paper", line.printed), *((name, held_by(line, name)) for name in experiment.presets)]
        ]
    found = [_quoted(experiment, row, task) for row in experiment.published for task in experiment.tasks]
    for column in experiment.columns:
        for panel in _tabulated(experiment):
            found += [_place(experiment, collected, column, task, panel) for task in experiment.tasks]
        found += _over_tasks(experiment, collected, column)
    return [place for place in found if place is not None]


def _quoted(experiment: Experiment, row: str, task: Task) -> Place | None:
    """A number that the paper takes over from others; nobody runs them here."""
    number = experiment.published[row].get(task.name)
    if number is None or not number.quoted:
        return None
    return Place(task.title, row, _measurement(experiment), None, number.text, number.value, words="")


def _tabulated(experiment: Experiment) -> tuple[Panel, ...]:
    """What a table tells of each run: what the figure shows, or the columns' own metrics."""
    drawn = experiment.panels if experiment.kind == "curves" else ()
    return tuple(panel for panel in drawn if panel.tabulated) or (Panel("score", ""),)


def _measurement(experiment: Experiment) -> str:
    return _tabulated(experiment)[0].title


def _place(experiment: Experiment, collected: Collected, column: Column, task: Task, panel: Panel) -> Place:
    number = experiment.published.get(column.label, {}).get(task.name)
    if panel.title != _measurement(experiment):  # the paper's tables are of scores alone
        number = None
    return Place(
        task.title,
        column.label,
        panel.title,
        collected.estimate(column, task, panel.metrics),
        number.text if number else "",
        number.value if number else None,
        number.error if number else None,
        experiment.frames if number else None,
        share=panel.share,
        words="not measured" if collected.of(column, task) else "not run",
    )


def _over_tasks(experiment: Experiment, collected: Collected, column: Column) -> list[Place]:
    """Mean and median human-normalised scores over each group of games, or over all."""
    groups = experiment.groups or {"": tuple(task.name for task in experiment.tasks)}
    found = []
    for title, names in groups.items():
        tasks = [task for task in experiment.tasks if task.name in names and task.world == "atari"]
        if len(tasks) < 2:
            continue
        for name, statistic in STATISTICS.items():
            ours = collected.normalised(column, tasks, statistic)
            paper = published_normalised(experiment.published.get(column.label, {}), tasks, statistic)
            where = f"{name} {HUMAN_NORMALISED}, %" + (f", {title}" if title else "")
            printed, frames = ("", None) if paper is None else (f"{paper:.1f}", experiment.frames)
            found.append(Place(where, column.label, where, ours, printed, paper, paper_frames=frames))
    return found


# ---------------------------------------------------------------------------------------------------------- layout


def grid(found: Sequence[Place], *, budgets: bool = False) -> tuple[list[str], list[list[str]]]:
    """Head and rows, each cell of one or two lines; where `budgets` differ, or if asked, it says how long runs were.

    The paper's budgets, 35 billion frames on Atari, differ from ours.
    """
    with_numbers = [place for place in found if place.budget]
    unequal = len({place.budget for place in with_numbers}) > 1 or any(place.paper for place in with_numbers)
    told = budgets or unequal
    several = len({place.measurement for place in found if HUMAN_NORMALISED not in place.measurement}) > 1
    tasks = list(dict.fromkeys(_task_label(place, several) for place in found))
    agents = list(dict.fromkeys(place.agent for place in found))
    cells = {
        (place.agent, _task_label(place, several)): "\n".join(filter(None, place.lines(with_budget=told)))
        for place in found
    }
    if len(tasks) >= _MANY:
        return ["", *agents], [[task, *(cells.get((agent, task), "") for agent in agents)] for task in tasks]
    return ["", *tasks], [[agent, *(cells.get((agent, task), "") for task in tasks)] for agent in agents]


def _task_label(place: Place, several: bool) -> str:
    return f"{place.task}, {place.measurement}" if several and place.task != place.measurement else place.task


def terminal(found: Sequence[Place], title: str) -> Table:
    """For people who look on."""
    head, rows = grid(found)
    table = Table(title=title, title_justify="left", show_lines=True)
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def markdown(found: Sequence[Place], *, budgets: bool = False) -> str:
    head, rows = grid(found, budgets=budgets)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_in_cell(cell) for cell in row)} |" for row in lines)


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("\n", "<br>")


def as_csv(experiment: Experiment, found: Sequence[Place]) -> str:
    """A line for each number; of settings, the table as it is."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if experiment.kind == "settings":
        head, rows = grid(found)
        writer.writerows([["setting", *head[1:]], *rows])
        return text.getvalue()
    writer.writerow(_CSV_HEAD)
    for place in found:
        ours = place.ours
        numbers = [ours.value, ours.low, ours.high, ours.seeds, ours.frames] if ours else [""] * 5
        paper = [place.paper_value, place.paper_error, place.paper_frames]
        row = [
            place.task,
            place.agent,
            place.measurement + (" (training)" if ours and ours.training else ""),
            *numbers,
            *("" if entry is None else entry for entry in paper),
        ]
        writer.writerow(row)
    return text.getvalue()
