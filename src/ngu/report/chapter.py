"""What a page says about one kind of environments, and the pieces that all kinds share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from matplotlib.figure import Figure

from ngu.report import markup
from ngu.report.curves import Panel, panel_figure
from ngu.report.groups import Group
from ngu.report.results import Results
from ngu.report.style import PAGE, Theme, to_svg
from ngu.report.wording import duration

Card = tuple[str, str, str]
"""What, number, remark."""


class Chapter(Protocol):
    """The part of a page about runs in environments of one kind."""

    @property
    def subjects(self) -> list[str]:
        """What the agents play, for the page's title."""
        ...

    def lead(self) -> str:
        """What this is about, in a sentence or two."""
        ...

    def cards(self) -> str:
        """The headline numbers."""
        ...

    def sections(self) -> list[str]: ...

    def metrics(self) -> list[str]:
        """The metrics that it shows, for the glossary."""
        ...

    def figure(self, theme: Theme) -> Figure | None:
        """The figure that the chapter comes down to; None before the first evaluation."""
        ...


def anchor(topic: str) -> str:
    """A topic's name as part of a section's anchor."""
    return re.sub(r"[^\w-]", "-", topic)


def only_run(groups: Sequence[Group]) -> Results | None:
    """The run, if there is one alone."""
    runs = [run for group in groups for run in group.runs]
    return runs[0] if len(runs) == 1 else None


def training_cards(run: Results) -> list[Card]:
    """How long a run has trained, and how fast."""
    frames = run.world.frames_per_step
    cards: list[Card] = [("agent steps", f"{run.steps:,}", f"{run.steps * frames:,} frames" if frames else "")]
    updates = run.last("learner/updates")
    if updates is not None:
        cards.append(("learner updates", f"{updates:,.0f}", ""))
    if run.seconds:
        cards.append(("training time", duration(run.seconds), "evaluation included"))
        cards.append(("speed", f"{run.steps / run.seconds:,.0f}", "agent steps per second, over the whole run"))
    return cards


def spread(values: Sequence[float], in_words: Callable[[float], str]) -> str:
    """'0.5 to 0.7 over 3 seeds'."""
    return (
        f"{in_words(min(values))} to {in_words(max(values))} over {len(values)} seeds"
        if len(values) > 1
        else "one seed"
    )


def trained(group: Group) -> str:
    """How long the runs of a group trained: '400 steps in 1.2 s to 1.4 s'."""
    steps = sorted({run.steps for run in group.runs})
    times = list(dict.fromkeys(duration(seconds) for seconds in sorted(run.seconds for run in group.runs)))
    words = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    return f"{words} steps in {times[0]}" + (f" to {times[-1]}" if len(times) > 1 else "")


def presets(groups: Sequence[Group]) -> str:
    """'presets atari, atari-node'."""
    names = sorted({group.preset for group in groups})
    return f"preset{'s' if len(names) > 1 else ''} {', '.join(names)}"


def bands_caption(groups: Sequence[Group], metrics: Iterable[str]) -> str:
    """What lines and bands are, where there are several seeds."""
    caption = ""
    if any(len(group.runs) > 1 for group in groups):
        caption = " Lines are means over seeds, bands go from the lowest to the highest seed."
    curves = [curve for metric in metrics for group in groups if (curve := group.curve(metric))]
    if any(curve.tails for curve in curves):
        caption += " They end where the shortest run ends; thin lines show how the others went on."
    if any(curve.heads for curve in curves):
        caption += " They begin where all runs have been measured; thin lines show the others before."
    return caption


def panel_pictures(panels: Sequence[Panel], groups: Sequence[Group], name: str) -> list[str]:
    """The panels that have something to show, as figures of the page."""
    pictures = []
    for index, panel in enumerate(panels):
        drawn = panel_figure(panel, groups, PAGE)
        if drawn is not None:
            description = f"{panel.title} against agent steps"
            pictures.append(markup.figure(to_svg(drawn, f"{name}-{index}", description)))
    return pictures


def learning_section(panels: Sequence[Panel], groups: Sequence[Group], name: str, where: str) -> str:
    pictures = panel_pictures(panels, groups, name)
    content = markup.figures(pictures) if pictures else markup.paragraph("Nothing has been logged yet.", "note")
    return markup.section(name, f"Learning{where}", content)


def wide_figure(drawn: Figure, name: str, description: str, caption: str) -> str:
    return markup.figure(to_svg(drawn, name, description), caption, wide=True)


def sentence(note: str) -> str:
    """A note that begins a paragraph."""
    return note[0].upper() + note[1:]
