"""The report: one page about one run, or about several that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from ngu.errors import UserError
from ngu.report import markup
from ngu.report.chapter import Chapter, sentence
from ngu.report.groups import Group, full_label, make_groups
from ngu.report.kinds import KINDS
from ngu.report.results import Results, read_sources, write_file
from ngu.report.settings import glossary_section, origin_section, settings_section
from ngu.report.style import LIGHT, add_key, house_style, to_png
from ngu.report.wording import listing


def write_report(sources: Sequence[Path], out: Path) -> Path:
    """Writes one self-contained HTML page about run folders, results files, or folders of them.

    What cannot be drawn (no checkpoint yet, nothing measured yet) is said in the page, and the rest is drawn. Beside a
    page about results files lies its main figure as a PNG of the same name.
    """
    results = read_sources(sources)
    groups = make_groups(results)
    chapters = _chapters(groups)
    out = out / "report.html" if out.is_dir() else out
    with house_style():
        write_file(out, _page(results, groups, chapters).encode())
        if any(run.folder is None for run in results) and len(chapters) == 1:
            figure = chapters[0].figure(LIGHT)
            if figure is not None:
                write_file(out.with_suffix(".png"), to_png(figure))
    return out


def write_figure(sources: Sequence[Path], out_png: Path) -> Path:
    """Draws what runs or results come down to, coverage or scores against agent steps, and writes it as a PNG."""
    groups = make_groups(read_sources(sources))
    chapters = _chapters(groups)
    if len(chapters) > 1:
        raise UserError("one figure cannot show mazes and games; name runs of one kind.")
    with house_style():
        figure = chapters[0].figure(LIGHT)
        if figure is None:
            raise UserError("there is nothing to draw, no evaluation has been made yet; let the runs train on.")
        add_key(figure, _keys(groups), LIGHT)
        write_file(out_png, to_png(figure))
    return out_png


def _chapters(groups: Sequence[Group]) -> list[Chapter]:
    """One for each kind of environments, in the order of `KINDS`."""
    members = {kind: [group for group in groups if KINDS[group.world.kind] is kind] for kind in set(KINDS.values())}
    return [kind.chapter(members[kind]) for kind in dict.fromkeys(KINDS.values()) if members[kind]]


def _page(results: Sequence[Results], groups: Sequence[Group], chapters: Sequence[Chapter]) -> str:
    title = f"Never Give Up on {listing([subject for chapter in chapters for subject in chapter.subjects])}"
    notes = [markup.paragraph(note, "note") for note in _notes(results)]
    if keys := _keys(groups):
        notes.append(markup.definitions(keys))
    parts = [f"<header><h1>{escape(title)}</h1>"]
    for chapter in chapters:
        parts += [markup.paragraph(chapter.lead(), "lead"), *notes, chapter.cards()]
        notes = []
    parts.append("</header>")
    for chapter in chapters:
        parts += chapter.sections()
    parts.append(settings_section(groups))
    parts.append(origin_section(results))
    parts.append(glossary_section(results, [metric for chapter in chapters for metric in chapter.metrics()]))
    return markup.document(title, parts)


def _keys(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """The short labels, and what they stand for."""
    return [(full_label(group, groups), group.key) for group in groups if group.key]


def _notes(results: Sequence[Results]) -> list[str]:
    notes = []
    for run in results:
        notes += [sentence(note) for note in run.notes]
        if run.config and run.rows and run.steps < run.config.run.steps:
            share = run.steps / run.config.run.steps
            notes.append(
                f"The run {run.path.name} has reached {run.steps:,} of its {run.config.run.steps:,} steps "
                f"({share:.0%}): it is still training, or it was stopped."
            )
    return notes
