"""The documentation builds strictly, and what it says of the code is so: names, values, generated parts, examples."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import shlex
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_presets import ATARI_TABLE, COMMON_TABLE, DISCO_MAZE_TABLE

from ngu import doctor
from ngu.checkpoint import SCHEMA_VERSION
from ngu.cli import COMMANDS
from ngu.commands.arguments import take_apart
from ngu.commands.train import Train, _spelt_out
from ngu.config import Config
from ngu.config_reading import read_config_file
from ngu.errors import UserError
from ngu.metrics import GLOSSARY
from ngu.presets import PRESETS, preset

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
GROUPS = [name for name in Config.__dataclass_fields__ if name not in ("preset", "variant")]

REFERENCE = re.compile(r"`((?:src|tests|docs|examples)/[\w/.]+?\.py)(?:::([\w.]+))?`")
FIELD = re.compile(rf"`((?:{'|'.join(GROUPS)})\.\w+)`(?: = `([^`]+)`)?")
CELL = re.compile(r"(?<!\\)\|")
PRESET = re.compile(r"preset `([\w-]+)`")
PRESETS_OF_PAGES = {"atari": "atari", "your-environment": "gym"}
"""Page -> the preset whose values it names; the others name those of `disco-maze`."""
BLOCK = re.compile(r"^```(\w+)( title=\"[^\"]+\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def load_generator() -> ModuleType:
    sys.path.insert(0, str(DOCS))  # as when it is run as a script: it imports docs/page_tables
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page: Path, language: str) -> list[tuple[str, str]]:
    """(title, code) of a page's blocks in a language; the title is empty where there is none."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(title[len(' title="') : -1], code) for kind, title, code in found if kind == language]


@functools.cache
def names_in(path: Path) -> set[str]:
    """Functions, classes, methods and assigned names of a module; methods as `Class.method`."""
    names: set[str] = set()

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                collect(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(prefix + node.target.id)
            elif isinstance(node, ast.Assign):
                names.update(prefix + target.id for target in node.targets if isinstance(target, ast.Name))

    collect(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return names


def test_options_in_the_pages_exist() -> None:
    shown, unknown = 0, []
    for page in (*DOCS.glob("*.md"), DOCS.parent / "README.md"):
        for command in re.findall(r"(?m)^(?:\$ )?ngu train( [^#\n\\]*)", page.read_text()):
            words = [_spelt_out(word) for word in shlex.split(command)]
            try:
                take_apart("ngu train", Train, words, positional="PRESET")
            except UserError as error:  # it may be what the page shows
                unknown += [command] * (f"ngu: {error}\n" not in page.read_text())
            shown += 1
    assert unknown == []
    assert shown > 20


def test_names_in_the_pages_can_be_reached_after_import_ngu() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (*PAGES, ROOT / "README.md"))
    names = sorted(set(re.findall(r"(?<!import )(?<!from )\b(ngu(?:\.\w+)+)(?![\w:/])", text)))
    assert "ngu.envs.gym.make_gymnasium_spec" in names
    # Each in a process of its own, for a submodule that something else has imported can be reached anyway.
    script = (
        "import multiprocessing, operator, sys, ngu\n"
        "for name in sys.argv[1:]:\n"
        "    child = multiprocessing.get_context('fork').Process(\n"
        "        target=operator.attrgetter(name.removeprefix('ngu.')), args=(ngu,), name=name)\n"
        "    child.start(); child.join()\n"
        "    assert child.exitcode == 0, name"
    )
    subprocess.run([sys.executable, "-c", script, *names], check=True)


def test_checkpoints_are_of_the_schema_that_the_page_says() -> None:
    text = (DOCS / "checkpoints.md").read_text()
    assert f'{{"schema": {SCHEMA_VERSION}, "step"' in text
    assert f"and {SCHEMA_VERSION} in `meta.json`" in text


def test_it_builds_strictly_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    for page in PAGES:
        name = "index.html" if page.stem == "index" else f"{page.stem}/index.html"
        html = (tmp_path / "site" / name).read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=\"?(https?:[^\s\">]+)", html)
        assert not loaded, f"{page.name} loads {loaded}"
    assert not list((tmp_path / "site").rglob("*.py"))


def test_generated_parts_are_current() -> None:
    for path, content in load_generator().generated().items():
        assert path.read_text(encoding="utf-8") == content, f"{path.name} is old; run `python docs/generate.py`"


def test_every_metric_and_every_setting_has_its_line() -> None:
    metrics = (DOCS / "metrics.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` | {sentence} |" in metrics for name, sentence in GLOSSARY.items())
    settings = (DOCS / "configuration.md").read_text(encoding="utf-8")
    for group in GROUPS:
        for name in getattr(Config(), group).__dataclass_fields__:
            assert f"| `{group}.{name}` |" in settings


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_place_in_the_code_that_is_named_exists(page: Path) -> None:
    for file, name in REFERENCE.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / file).is_file(), file
        assert not name or name in names_in(ROOT / file), f"{file}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_setting_that_is_named_exists_and_has_that_value(page: Path) -> None:
    usual = PRESETS_OF_PAGES.get(page.stem, "disco-maze")
    for name, value, chosen in settings_named(page.read_text(encoding="utf-8"), usual):
        if name.endswith(".py"):
            continue
        config = preset(chosen)
        group, _, field = name.partition(".")
        assert field in getattr(config, group).__dataclass_fields__, name
        assert not value or value == in_words(getattr(getattr(config, group), field)), f"{name} of {chosen}"


def settings_named(text: str, usual: str) -> Iterator[tuple[str, str, str]]:
    """Setting, value and preset: values stand as `group.field` = `value`, or only the setting is named.

    They are the usual preset's, or, in a column of a table whose head names a preset, that one's.
    """
    columns: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = []
            yield from ((name, value, usual) for name, value in FIELD.findall(line))
            continue
        cells = CELL.split(line)
        if not columns:
            columns = [found.group(1) if (found := PRESET.search(cell)) else usual for cell in cells]
        for cell, chosen in zip(cells, columns, strict=True):
            yield from ((name, value, chosen) for name, value in FIELD.findall(cell))


def in_words(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)


def test_the_check_of_names_can_fail() -> None:
    assert "retrace_targets" in names_in(ROOT / "src/ngu/retrace.py")
    assert "ValueTransform.squash" in names_in(ROOT / "src/ngu/retrace.py")
    assert "retrace_target" not in names_in(ROOT / "src/ngu/retrace.py")
    assert REFERENCE.findall("see `src/ngu/retrace.py::reverse_scan`") == [("src/ngu/retrace.py", "reverse_scan")]
    assert FIELD.findall("`replay.period` = `50`, `run.seed`") == [("replay.period", "50"), ("run.seed", "")]
    table = "`run.seed`\n| a \\| b | preset `atari` |\n| --- | --- |\n| `run.seed` | `run.seed` = `0` |\n\n`run.seed`"
    named = [("run.seed", value, chosen) for value, chosen in [("", "gym"), ("", "gym"), ("0", "atari"), ("", "gym")]]
    assert list(settings_named(table, "gym")) == named


def test_the_paper_is_mapped_whole() -> None:
    """Every section that the map promises, and every line of the tables, with the setting that holds it."""
    page = (DOCS / "paper-map.md").read_text(encoding="utf-8")
    for heading in ("Section 2", "Section 3", "Appendix A", "Appendix E", "Appendix F", "F.2", "F.3", "F.4"):
        assert re.search(rf"^##+ {re.escape(heading)}", page, re.MULTILINE), heading
    for setting, printed in [*DISCO_MAZE_TABLE.values(), *COMMON_TABLE.values(), *ATARI_TABLE.values()]:
        if not isinstance(printed, tuple | str):
            assert re.search(rf"`{re.escape(setting)}` = `", page), setting
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    assert len(rows) > 180


def test_every_row_of_the_decisions_names_its_test() -> None:
    page = (DOCS / "decisions.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| point"))]
    assert len(rows) > 40
    for row in rows:
        assert "`tests/test_" in row.rsplit(" | ", 1)[1], row


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_python_in_the_pages_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks with a title are quotations of that file; each of the others runs as it is printed, on its own."""
    monkeypatch.chdir(tmp_path)
    for title, code in blocks(page, "python"):
        if title:
            assert code in (ROOT / title).read_text(encoding="utf-8"), f"{page.name} quotes what {title} no longer says"
        else:
            exec(compile(textwrap.dedent(code), page.name, "exec"), {"__name__": "page"})  # nothing a user gives


def test_the_config_file_in_the_pages_says_what_the_page_says(tmp_path: Path) -> None:
    ((_, content),) = blocks(DOCS / "configuration.md", "toml")
    path = tmp_path / "my.toml"
    path.write_text(content, encoding="utf-8")
    config = read_config_file(path, preset("disco-maze-small"))
    assert (config.mixture.num_mixtures, config.env.maze_size, config.run.steps) == (4, 11, 500_000)
    assert config.novelty == preset("disco-maze-small").novelty


def test_every_command_has_a_section_and_every_command_that_is_shown_exists() -> None:
    page = (DOCS / "command-line.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"## ngu {command}\n" in page
    for path in PAGES:
        for command in re.findall(r"^\$ ngu (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert command in COMMANDS, f"{path.name}: ngu {command}"


def test_the_doctors_words_that_are_shown_are_of_every_package_and_preset() -> None:
    (shown,) = (code for _, code in blocks(DOCS / "command-line.md", "console") if code.startswith("$ ngu doctor\n"))
    names = [line[:16].rstrip() for line in shown.splitlines()[1:-1]]
    expected = ["python", *doctor.REQUIRED, *doctor.OPTIONAL, *PRESETS]
    assert [name for name in names if name in expected] == expected


@pytest.mark.parametrize("path", sorted((DOCS / "images").glob("*.svg")), ids=lambda path: path.stem)
def test_pictures_are_whole_used_and_readable_in_the_dark(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert "prefers-color-scheme: dark" in text
    assert "<script" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert any(f"images/{path.name}" in page.read_text(encoding="utf-8") for page in PAGES)
