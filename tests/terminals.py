"""A pseudo terminal for tests: what programs write to it, and what a person would see."""

from __future__ import annotations

import os
import pty
import re
import threading
import time
from collections.abc import Callable

_PATIENCE = 180.0
_CODE = re.compile(r"\x1b\[([0-9;?]*)([a-zA-Z])|([\r\n])|([^\x1b\r\n]+)")


class Terminal:
    """`stream` is the end that a program writes to; close it when the program has it."""

    def __init__(self) -> None:
        self._end, self.stream = pty.openpty()
        self._written = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._end, 65536):
                self._written += piece
        except OSError:  # how a terminal says that its other end has closed
            pass

    @property
    def written(self) -> str:
        """All that was written, with the codes that move the cursor."""
        return self._written.decode(errors="ignore")

    @property
    def screen(self) -> list[str]:
        """The lines that can be seen now, without spaces at their ends; codes for colours and the cursor's look count
        for nothing."""
        lines, row, column = [""], 0, 0
        for numbers, letter, move, text in _CODE.findall(self.written):
            if letter == "A":
                row = max(row - int(numbers or 1), 0)
            elif letter == "K":
                lines[row] = "" if numbers == "2" else lines[row][:column]
            elif move == "\r":
                column = 0
            elif move == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif text:
                lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
                column += len(text)
        return [line.rstrip() for line in lines if line.strip()]

    def wait_for(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """The screen, as soon as it is as wanted."""
        deadline = time.monotonic() + _PATIENCE
        while not condition(screen := self.screen):
            assert time.monotonic() < deadline, "\n".join(screen)
            time.sleep(0.02)
        return screen

    def close(self) -> None:
        """To be called when the stream is closed."""
        self._reader.join()
        os.close(self._end)
