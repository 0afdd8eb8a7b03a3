"""Shows how far the cells of a plan are: a line for each that runs on a terminal, plain lines now and then in a log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ngu.experiments.plan import Cell

_SHOW_PERIOD = 1.0
_LOG_PERIOD = 60.0
_PROGRESS = re.compile(r"\d+\.\d%, [\d,]+ of [\d,]+ steps")
_TAIL = 4096
"""Bytes of a log that hold its last line."""


class Watch:
    """`with Watch(cells, done before) as watch:` on the standard error stream."""

    def __init__(
        self,
        total: int,
        done: int,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._ended = done
        self._running: dict[str, tuple[Cell, str]] = {}
        """By name: the cell, and the machine it is on."""
        self._clock = clock
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._next = 0.0

    def __enter__(self) -> Self:
        if self._console.file.isatty() and self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(self._table(), console=self._console, auto_refresh=False)
            self._live.start(refresh=True)
        if self._ended:
            self._say(f"{self._ended} of {self._total} runs were done before")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            self._live.stop()
            self._live = None

    def begin(self, cell: Cell, machine: str = "") -> None:
        """`machine` is where it runs, if that is not here."""
        self._running[cell.name] = (cell, machine)
        if self._live is None:
            self._say(f"{cell.name}: begins{f' on {machine}' if machine else ''}")

    def pause(self, cell: Cell, why: str) -> None:
        """It does not run for now, and will begin again."""
        self._running.pop(cell.name, None)
        self._say(f"{cell.name}: {why}")

    def end(self, cell: Cell, how: str) -> None:
        """`how` is done, stopped, or failed with a reason."""
        self._running.pop(cell.name, None)  # one that failed may not have begun
        self._ended += 1
        self._say(f"{cell.name}: {how} ({self._ended} of {self._total})")

    def note(self, text: str) -> None:
        """Something about all of them."""
        self._say(text)

    def show(self) -> None:
        """To be called often; looks at the runs' logs when it is time."""
        now = self._clock()
        if now < self._next:
            return
        if self._live is not None:
            self._next = now + _SHOW_PERIOD
            self._live.update(self._table(), refresh=True)
            return
        if self._next:  # not at once: a run that has just begun has nothing to tell
            for cell, _ in self._running.values():
                self._say(f"{cell.name}: {last_progress(cell.log)}")
        self._next = now + _LOG_PERIOD

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for cell, machine in self._running.values():
            where = f"{cell.name} on {machine}" if machine else cell.name
            table.add_row(Text(where), Text(last_progress(cell.log), no_wrap=True, overflow="ellipsis"))
        table.add_row(Text(f"{self._ended} of {self._total} runs", style="bold"), Text(""))
        return table

    def _say(self, text: str) -> None:
        if self._live is not None:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=self._console.file, flush=True)


def last_progress(log: Path) -> str:
    """The newest progress line of a run: `24.1%, 481,792 of 2,000,000 steps, ...`."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - _TAIL, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    return next((line for line in reversed(lines) if _PROGRESS.match(line)), "starting")
