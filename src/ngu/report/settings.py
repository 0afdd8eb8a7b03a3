"""The end of the page: every setting with its explanation, where the numbers come from, what the metrics mean."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import ngu.config
from ngu.config import Config
from ngu.metrics import explain
from ngu.presets import PRESETS, preset
from ngu.report import markup
from ngu.report.groups import Group, flat_settings, full_label
from ngu.report.results import Results
from ngu.variants import VARIANTS

_ORIGIN_COLUMNS = ("command", "commit", "machine", "ngu", "torch", "python", "created")
_OWN_TO_A_RUN = ("run.seed", "run.name", "run.folder")
_SHOWN_BESIDE_PANELS = ("learner/updates",)


@cache
def explanations() -> Mapping[str, str]:
    """Dotted name of a setting -> the sentence that stands under it in `ngu.config`."""
    groups = {entry.name: entry.type for entry in dataclasses.fields(Config)}
    prefixes = {str(kind): f"{name}." for name, kind in groups.items()} | {"Config": ""}
    sentences: dict[str, str] = {}
    for node in ast.parse(inspect.getsource(ngu.config)).body:
        if not isinstance(node, ast.ClassDef) or node.name not in prefixes:
            continue
        for statement, following in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
            ):
                sentences[prefixes[node.name] + statement.target.id] = inspect.cleandoc(str(following.value.value))
    return sentences


def settings_section(groups: Sequence[Group]) -> str:
    """The resolved settings of each group; results files do not carry them."""
    configs = [(group, config) for group in groups if (config := group.runs[0].config) is not None]
    if not configs:
        return markup.section("settings", "Settings", markup.paragraph("Results files do not hold the settings."))
    parts = []
    for group, config in configs:
        rows, changed = _settings_rows(config)
        count = f"{changed} changed from the preset" if changed else "as in the preset"
        title = f"All settings{f' of {full_label(group, groups)}' if len(configs) > 1 else ''} ({count})"
        parts.append(markup.folded(title, markup.table(["setting", "value", "preset", "what it does"], rows)))
    return markup.section("settings", "Settings", *parts)


def _settings_rows(config: Config) -> tuple[list[str], int]:
    """The rows of the table, and how many settings differ from the preset's."""
    known = config.preset in PRESETS and config.variant in VARIANTS
    usual = flat_settings(preset(config.preset, config.variant)) if known else {}
    rows, changed = [], 0
    for name, value in flat_settings(config).items():
        differs = name in usual and usual[name] != value and name not in _OWN_TO_A_RUN
        changed += differs
        cells = [
            markup.code(name),
            markup.code(value_in_words(value)),
            markup.code(value_in_words(usual[name])) if differs else markup.text(""),
            markup.text(explanations().get(name, "")),
        ]
        rows.append(markup.row(cells, "changed" if differs else ""))
    return rows, changed


def value_in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def origin_section(results: Sequence[Results]) -> str:
    """The command, code and machine behind each run."""
    columns = [name for name in _ORIGIN_COLUMNS if any(name in run.origin for run in results)]
    rows = [
        markup.row(
            [
                markup.text(run.path.name),
                markup.text(f"{run.variant}, seed {run.seed}"),
                *(markup.code(run.origin.get(name, ""), wraps=name == "command") for name in columns),
            ]
        )
        for run in results
    ]
    head = ["run", "variant", *columns]
    return markup.section("origin", "Where the numbers come from", markup.table(head, rows))


def glossary_section(results: Sequence[Results], shown: Sequence[str]) -> str:
    """The sentence for every metric that the page shows."""
    measured = set().union(*(run.names() for run in results))
    entries: dict[str, list[str]] = {}
    for name in dict.fromkeys((*shown, *_SHOWN_BESIDE_PANELS)):
        if name not in measured:
            continue
        try:
            entries.setdefault(explain(name), []).append(name)
        except ValueError:  # a results file may hold a metric that this version does not know
            entries.setdefault("A metric of another version.", []).append(name)
    definitions = markup.definitions((", ".join(names), sentence) for sentence, names in entries.items())
    return markup.section("glossary", "What the metrics mean", definitions)
