"""The display of a plan's runs: lines that change in place on a real terminal, plain ones in a log."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from terminals import Terminal

from ngu.experiments.catalogue import experiment
from ngu.experiments.plan import Cell, Plan
from ngu.experiments.scales import scale
from ngu.experiments.watching import Watch, last_progress


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    found = Plan(experiment("fig_disco_maze"), scale("smoke"), tmp_path).cells()
    assert [cell.arm.name for cell in found] == ["ngu", "random-projection", "rnd-only"]
    return found


def log(cell: Cell, text: str) -> None:
    cell.log.parent.mkdir(parents=True, exist_ok=True)
    with cell.log.open("a") as file:
        file.write(text)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    shown = Terminal()
    yield shown
    shown.close()


def test_on_a_terminal_every_run_has_a_line_that_changes_in_place(cells: list[Cell], terminal: Terminal) -> None:
    first, second, third = cells
    clock = Clock()
    with os.fdopen(terminal.stream, "w") as stream:
        console = Console(file=stream, force_terminal=True, width=100, color_system=None)
        with Watch(4, 1, console, clock) as watch:
            watch.begin(first)
            watch.begin(second, "node-7")
            log(first, "run: a, from step 0\n 12.5%, 8 of 64 steps, no progress line\n")
            watch.show()
            begun = ["1 of 4 runs were done before", first.name, f"{second.name} on node-7", "1 of 4 runs"]
            screen = terminal.wait_for(lambda lines: len(lines) == 4 and lines[1].startswith(first.name))
            assert [line.split("  ")[0] for line in screen] == begun
            assert [line.split("  ")[-1] for line in screen[1:3]] == [" starting".strip()] * 2

            log(first, "12.5%, 8 of 64 steps, 3 s left\nevaluation at 8 steps: [bold]x 1[/bold]\n")
            log(second, "25.0%, 16 of 64 steps, " + "very long " * 20 + "\n")
            watch.show()  # too early: nothing is redrawn
            clock.now += 1.1
            watch.show()
            # Four lines, as before: drawn over the last picture.
            screen = terminal.wait_for(lambda lines: len(lines) == 4 and "12.5%" in lines[1] and "25.0%" in lines[2])
            assert screen[1].endswith("12.5%, 8 of 64 steps, 3 s left")
            assert "25.0%, 16 of 64 steps, very long" in screen[2]
            assert len(screen[2]) <= 100
            assert screen[2].endswith("…")

            watch.pause(second, "its process died")
            watch.end(first, "done")
            watch.begin(third)
            watch.end(third, "failed: a [reason]")
            watch.note("a note")
        expected = [
            "1 of 4 runs were done before",
            f"{second.name}: its process died",
            f"{first.name}: done (2 of 4)",
            f"{third.name}: failed: a [reason] (3 of 4)",
            "a note",
            "3 of 4 runs",
        ]
        assert terminal.wait_for(lambda lines: lines[-1] == "3 of 4 runs" and len(lines) == 6) == expected
        terminal.wait_for(lambda _: "\x1b[?25h" in terminal.written.rsplit("\x1b[?25l", maxsplit=1)[1])


def test_a_log_gets_plain_lines_now_and_then(cells: list[Cell]) -> None:
    first, second, _ = cells
    clock, file = Clock(), io.StringIO()
    with Watch(2, 0, Console(file=file, force_terminal=True), clock) as watch:
        watch.begin(first)
        watch.begin(second, "node-7")
        watch.show()
        log(first, "12.5%, 8 of 64 steps, 3 s left\n")
        for _ in range(100):  # it is asked often
            clock.now += 0.7
            watch.show()
        watch.end(first, "done")
        clock.now += 60
        watch.show()
        watch.end(second, "stopped")
    assert file.getvalue().splitlines() == [
        f"{first.name}: begins",
        f"{second.name}: begins on node-7",
        f"{first.name}: 12.5%, 8 of 64 steps, 3 s left",
        f"{second.name}: starting",
        f"{first.name}: done (1 of 2)",
        f"{second.name}: starting",
        f"{second.name}: stopped (2 of 2)",
    ]


def test_the_newest_line_of_progress_is_found_in_a_long_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert last_progress(path) == "starting"
    path.write_bytes(
        b"\xff\xfe\n" + b"1.0%, 1 of 100 steps, a\n" * 10_000 + b"2.0%, 1,002 of 50,100 steps, b\nno line\n"
    )
    assert last_progress(path) == "2.0%, 1,002 of 50,100 steps, b"
