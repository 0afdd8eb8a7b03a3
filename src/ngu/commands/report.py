"""`ngu report`: one page about runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ngu.commands.arguments import parse, take_apart
from ngu.errors import UserError

_PROG = "ngu report"


@dataclass(frozen=True)
class Report:
    """Writes one self-contained HTML page about one or more runs: curves, coverage or scores, novelty, settings."""

    paths: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)")
    ]
    """Folders of runs, CSV files of results, or folders of such files."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE.html", help_behavior_hint="")] = None
    """Where to write the page; report.html in the folder of a single run, else here, if not given."""


def main(argv: list[str]) -> int:
    command = parse(_PROG, Report, take_apart(_PROG, Report, argv))
    for path in command.paths:
        if not path.exists():
            raise UserError(f"there is no run folder or results file {path}; check the name.")
    alone = len(command.paths) == 1 and (command.paths[0] / "config.json").is_file()
    out = command.out or (command.paths[0] if alone else Path()) / "report.html"
    require_place(out)
    from ngu.machine import use_threads
    from ngu.report import write_report

    use_threads(1)
    print(write_report(command.paths, out))
    return 0


def require_place(out: Path) -> None:
    """Refuses a file that cannot be written, before the work is done."""
    if not out.parent.is_dir():
        raise UserError(f"the folder {out.parent} does not exist; make it or choose another --out.")
    if out.is_dir():
        raise UserError(f"{out} is a folder; give the name of a file with --out.")
