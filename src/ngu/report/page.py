"""The report: one page about one run, or about several that are compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from ngu.errors import UserError
from ngu.report import markup
from ngu.report.curves import (
    PANELS,
    coverage_figure,
    coverage_metric,
    explore_marks,
    longest_mark,
    panel_figure,
    results_figure,
    scripted_caption,
)
from ngu.report.episode import Episode, play_evaluation
from ngu.report.groups import SCRIPTED_MAZES, Group, common_maze, make_groups, scripted_coverage
from ngu.report.mazes import map_figure, novelty_figure, within_episode_figure
from ngu.report.results import Results, read_sources, write_file
from ngu.report.settings import glossary_section, origin_section, settings_section
from ngu.report.style import LIGHT, PAGE, house_style, to_png, to_svg

_TIMES = "\N{NO-BREAK SPACE}x\N{NO-BREAK SPACE}"


def write_report(sources: Sequence[Path], out: Path) -> Path:
    """Writes one self-contained HTML page about run folders, results files, or folders of them.

    What cannot be drawn (no checkpoint yet, nothing measured yet) is said in the page, and the rest is drawn. Beside a
    page about results files lies its main figure as a PNG of the same name.
    """
    results = read_sources(sources)
    groups = make_groups(results)
    out = out / "report.html" if out.is_dir() else out
    with house_style():
        write_file(out, _page(results, groups).encode())
        if any(run.folder is None for run in results) and explore_marks(groups):
            write_file(out.with_suffix(".png"), to_png(results_figure(groups, LIGHT)))
    return out


def _page(results: Sequence[Results], groups: Sequence[Group]) -> str:
    title = _title(groups)
    parts = [f"<header><h1>{escape(title)}</h1>", markup.paragraph(_lead(groups), "lead")]
    parts += [markup.paragraph(note, "note") for note in _notes(results)]
    parts += [_headline(groups), "</header>"]
    presets = sorted({group.preset for group in groups})
    for preset in presets:
        members = [group for group in groups if group.preset == preset]
        where = f" ({preset})" if len(presets) > 1 else ""
        anchor = re.sub(r"[^\w-]", "-", preset)
        parts.append(_coverage_section(members, f"coverage-{anchor}", where))
        if len(results) == 1:
            parts += _episode_sections(results[0])
        parts.append(_curves_section(members, f"curves-{anchor}", where))
    parts.append(settings_section(groups))
    parts.append(origin_section(results))
    parts.append(glossary_section(results))
    return markup.document(title, parts)


# The head of the page


def _title(groups: Sequence[Group]) -> str:
    sizes = {run.maze[0] for group in groups for run in group.runs if run.maze}
    size = f"{(only := sizes.pop())}{_TIMES}{only} " if len(sizes) == 1 else ""
    return f"Never Give Up on the {size}Random Disco Maze"


def _lead(groups: Sequence[Group]) -> str:
    runs = [run for group in groups for run in group.runs]
    if len(runs) == 1:
        run = runs[0]
        return (
            f"How much of mazes it has never seen the agent explores after {run.steps:,} steps of training, without "
            f"any reward from the maze: preset {run.preset}, variant {run.variant} ({groups[0].label}), seed "
            f"{run.seed}."
        )
    compared = "; ".join(f"{group.label}: {group.seeds}" for group in groups)
    return (
        f"How much of mazes they have never seen {len(runs)} agents explore, without any reward from the maze "
        f"({_presets(groups)}). {compared[0].upper()}{compared[1:]}."
    )


def _presets(groups: Sequence[Group]) -> str:
    names = sorted({group.preset for group in groups})
    return f"preset{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _notes(results: Sequence[Results]) -> list[str]:
    notes = []
    for run in results:
        notes += [note[0].upper() + note[1:] for note in run.notes]
        if run.config and run.rows and run.steps < run.config.run.steps:
            share = run.steps / run.config.run.steps
            notes.append(
                f"The run {run.path.name} has reached {run.steps:,} of its {run.config.run.steps:,} steps "
                f"({share:.0%}): it is still training, or it was stopped."
            )
    return notes


def _headline(groups: Sequence[Group]) -> str:
    entries = []
    if len(groups) == 1 and len(groups[0].runs) == 1:
        run = groups[0].runs[0]
        for mark in run.coverage_marks().get("explore", []):
            coverage = run.last(coverage_metric("explore", mark))
            assert coverage is not None
            entries.append((f"coverage after {mark} steps", percent(coverage), "exploratory policy, held-out mazes"))
        main = len(entries)
        updates = run.last("learner/updates")
        entries.append(("agent steps", f"{run.steps:,}", ""))
        if updates is not None:
            entries.append(("learner updates", f"{updates:,.0f}", ""))
        if run.seconds:
            entries.append(("training time", duration(run.seconds), "evaluation included"))
            entries.append(("speed", f"{run.steps / run.seconds:,.0f}", "agent steps per second, over the whole run"))
        return markup.cards(entries, main)
    for group in groups:
        marks = group.runs[0].coverage_marks().get("explore", [])
        if marks and (values := group.final(coverage_metric("explore", marks[-1]))):
            remark = f"coverage after {marks[-1]} steps, {_spread(values)}"
            entries.append((group.label, percent(sum(values) / len(values)), remark))
    return markup.cards(entries, len(entries))


def _spread(values: Sequence[float]) -> str:
    return (
        f"{percent(min(values))} to {percent(max(values))} over {len(values)} seeds" if len(values) > 1 else "one seed"
    )


# Coverage


def _coverage_section(groups: Sequence[Group], name: str, where: str) -> str:
    title = f"Coverage of held-out mazes{where}"
    marks = {
        policy: sorted(
            {mark for group in groups for run in group.runs for mark in run.coverage_marks().get(policy, [])}
        )
        for policy in ("explore", "exploit")
    }
    if not any(marks.values()):
        return markup.section(name, title, markup.paragraph("No evaluation has been made yet.", "note"))
    pictures = []
    uneven = False
    for policy, policy_marks in marks.items():
        for mark in policy_marks:
            uneven |= any(curve.tails for group in groups if (curve := group.curve(coverage_metric(policy, mark))))
            description = f"Coverage after {mark} steps of an episode against agent steps, policy {policy}"
            drawn = coverage_figure(groups, policy, mark, PAGE)
            pictures.append(markup.figure(to_svg(drawn, f"{name}-{policy}-{mark}", description)))
    several = any(len(group.runs) > 1 for group in groups)
    bands = " Lines are means over seeds, bands go from the lowest to the highest seed." if several else ""
    if uneven:
        bands += " They end where the shortest run ends; thin lines show how the others went on."
    caption = (
        "Share of the open cells that an episode has visited, in mazes that the agent was not trained on, evaluated "
        f"during training.{bands} {scripted_caption()}"
    )
    return markup.section(
        name,
        title,
        markup.figures(pictures),
        markup.paragraph(caption, "quiet"),
        _coverage_table(groups, marks),
    )


def _coverage_table(groups: Sequence[Group], marks: dict[str, list[int]]) -> str:
    """The last evaluations beside the scripted policies, the best first."""
    columns = sorted({mark for policy_marks in marks.values() for mark in policy_marks})
    entries: list[tuple[float, str]] = []
    for group in groups:
        for policy in (policy for policy, policy_marks in marks.items() if policy_marks):
            finals = {mark: group.final(coverage_metric(policy, mark)) for mark in columns}
            if not any(finals.values()):
                continue
            means = {mark: sum(values) / len(values) if values else None for mark, values in finals.items()}
            label = (group.label if len(groups) > 1 else "agent") + ("" if policy == "explore" else f", {policy}")
            cells = [markup.text(label)]
            for mark, values in finals.items():
                spread = f" ({percent(min(values))} to {percent(max(values))})" if len(values) > 1 else ""
                cells.append(markup.bar(means[mark], percent(means[mark] or 0.0) + spread))
            cells.append(markup.text(f"{group.seeds}, {_trained(group)}"))
            entries.append((means[columns[-1]] or 0.0, markup.row(cells, "agent")))
    maze = common_maze(groups)
    if maze:
        for policy, coverage in scripted_coverage(maze, longest_mark(groups)).items():
            values = [float(coverage[mark - 1]) for mark in columns]
            bars = [markup.bar(value, percent(value)) for value in values]
            cells = [markup.text(policy), *bars, markup.text(f"scripted, {SCRIPTED_MAZES} mazes")]
            entries.append((values[-1], markup.row(cells)))
    entries.sort(key=lambda entry: -entry[0])
    head = ["policy", *(f"after {mark} steps" for mark in columns), "over"]
    return markup.table(head, [row for _, row in entries])


def _trained(group: Group) -> str:
    """How long the runs of a group trained: '400 steps in 1.2 s to 1.4 s'."""
    steps = sorted({run.steps for run in group.runs})
    times = list(dict.fromkeys(duration(seconds) for seconds in sorted(run.seconds for run in group.runs)))
    words = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    return f"{words} steps in {times[0]}" + (f" to {times[-1]}" if len(times) > 1 else "")


# Episodes


def _episode_sections(run: Results) -> list[str]:
    """What a trained policy does in its mazes; only a run's folder has the weights to play with."""
    config = run.config
    if config is None or run.maze is None:
        return []
    title = "One episode"
    try:
        played = play_evaluation(run.path)
    except UserError as error:
        return [markup.section("episode", title, markup.paragraph(f"No episode can be drawn: {error}", "note"))]
    episode, count = played.typical, len(played.episodes)
    end = "ended in a wall, at the cross" if episode.hit_wall else "was cut, at the square"
    weights = f"the weights of step {played.checkpoint_step:,}"
    map_caption = (
        f"The episode of median coverage among {count} on held-out mazes, with {weights}. It began at the circle and "
        f"{end}, after {episode.length} steps. Wall colours change at every step."
    )
    within_caption = (
        f"Means over {count} held-out mazes with {weights}; an episode that has ended keeps its coverage. "
        + scripted_caption()
    )
    return [
        markup.section(
            "episode",
            title,
            *(markup.paragraph(note[0].upper() + note[1:], "note") for note in played.notes),
            _wide_figure(
                map_figure(episode, PAGE), "map", "A maze as the agent sees it, and its way through it", map_caption
            ),
            _wide_figure(
                within_episode_figure(played, run.maze, PAGE),
                "within",
                "Mean coverage against the step in the episode",
                within_caption,
            ),
        ),
        markup.section(
            "novelty",
            "Novelty over the episode",
            _wide_figure(
                novelty_figure(episode, config.novelty.max_modulation, PAGE),
                "novelty",
                "Intrinsic reward, its episodic part and the life-long modulator at each step",
                _novelty_caption(episode),
            ),
        ),
    ]


def _novelty_caption(episode: Episode) -> str:
    """What the episode's rewards are on average, at cells that are new and at others."""
    reward, new = episode.reward[1:], episode.new_cell[1:]
    means = [
        f"{reward[chosen].mean():.2f} at {words} ({chosen.sum()} steps)"
        for chosen, words in ((new, "the first visit to a cell"), (~new, "a cell seen before or in a wall"))
        if chosen.any()
    ]
    return f"The same episode. Mean reward: {' and '.join(means)}." if means else "The same episode."


def _wide_figure(drawn: Figure, name: str, description: str, caption: str) -> str:
    return markup.figure(to_svg(drawn, name, description), caption, wide=True)


# Learning


def _curves_section(groups: Sequence[Group], name: str, where: str) -> str:
    pictures = []
    for index, panel in enumerate(PANELS):
        drawn = panel_figure(panel, groups, PAGE)
        if drawn is not None:
            description = f"{panel.title} against agent steps"
            pictures.append(markup.figure(to_svg(drawn, f"{name}-{index}", description)))
    content = markup.figures(pictures) if pictures else markup.paragraph("Nothing has been logged yet.", "note")
    return markup.section(name, f"Learning{where}", content)


# Numbers in words


def percent(share: float) -> str:
    """0.7734 to '77.3 %'."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def duration(seconds: float) -> str:
    """683 to '11 min 23 s'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
