"""Progress: right numbers, one changing line on a terminal, plain lines in a log, and no touch on training."""

from __future__ import annotations

import io
import os
import pty
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from ngu.progress import Progress


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Log:
    """Progress into a file, with a clock to turn."""

    def __init__(self, total_steps: int, start_step: int = 0) -> None:
        self.file = io.StringIO()
        self.clock = Clock()
        self.progress = Progress(total_steps, start_step, console=Console(file=self.file), clock=self.clock)

    @property
    def lines(self) -> list[str]:
        return self.file.getvalue().splitlines()


def test_a_log_gets_a_line_every_ten_seconds_and_one_at_the_end() -> None:
    log = Log(100_000)
    with log.progress as progress:
        for tick in range(1, 351):  # 35 seconds
            log.clock.now += 0.1
            progress.update(tick * 100, tick * 2)
            assert len(log.lines) == pytest.approx(tick / 100, abs=1.1)
        assert len(log.lines) == 3
    assert len(log.lines) == 4
    assert log.lines[-1].startswith("35.0%, 35,000 of 100,000 steps, 1 min 05 s left, 1,000 steps/s, 20 updates/s")


def test_a_line_holds_what_is_being_learned() -> None:
    log = Log(2_000_000, start_step=1_000_000)
    with log.progress as progress:
        assert progress.line() == ("50.0%, 1,000,000 of 2,000,000 steps, time left unknown, 0 steps/s, 0 updates/s")
        progress.update(1_000_000, 0)
        log.clock.now += 10
        values = {
            "env/coverage": 0.634,
            "loss/retrace": 0.012345,
            "inverse/accuracy": 0.98,
            "learner/skipped_updates": 0,
        }
        progress.update(1_001_000, 35, values)
        log.clock.now += 0.01
        progress.update(1_001_100, 36)  # values stay until newer ones come
    assert log.lines == [
        "50.0%, 1,001,000 of 2,000,000 steps, 2 h 46 min left, 100 steps/s, 3.5 updates/s, "
        "coverage 63.4%, loss 0.01235, inverse accuracy 98.0%",
        "50.1%, 1,001,100 of 2,000,000 steps, 2 h 46 min left, 100 steps/s, 3.5 updates/s, "
        "coverage 63.4%, loss 0.01235, inverse accuracy 98.0%",
    ]
    progress.update(2_000_000, 40, {"learner/skipped_updates": 3, "loss/retrace": float("nan")})
    assert "100.0%, 2,000,000 of 2,000,000 steps, done" in progress.line()
    assert "loss nan" in progress.line()
    assert progress.line().endswith("3 skipped updates")


def test_a_game_shows_its_score_in_place_of_coverage() -> None:
    log = Log(1000)
    log.progress.update(500, 3, {"env/score": 12345.6, "env/rooms": 2.5, "loss/retrace": 0.5, "eval/exploit/score": 7})
    assert log.progress.line().endswith("0 updates/s, score 12,346, rooms 2.5, loss 0.5")
    log.progress.update(600, 4, {"env/score": -20.75})
    assert "score -20.75, rooms 2.5" in log.progress.line()


def test_rates_are_those_of_the_last_half_minute() -> None:
    log = Log(10**9)
    step = 0
    for rate, seconds in ((1000, 100), (10, 40)):
        for _ in range(seconds):
            log.clock.now += 1
            step += rate
            log.progress.update(step, step // 10)
    assert log.progress.steps_per_second == pytest.approx(10)
    assert log.progress.updates_per_second == pytest.approx(1)


def test_one_slow_step_has_a_rate_too() -> None:
    log = Log(1000)
    for step in range(3):
        log.progress.update(step * 50, step)
        log.clock.now += 100
    assert log.progress.steps_per_second == pytest.approx(0.5)


def test_many_updates_keep_few_samples() -> None:
    log = Log(10**9)
    for step in range(100_000):
        log.clock.now += 0.001
        log.progress.update(step * 64, step)
    assert len(log.progress._samples) <= 122
    assert log.progress.steps_per_second == pytest.approx(64_000, rel=0.01)


def test_notes_are_printed_as_they_are() -> None:
    log = Log(100)
    text = "checkpoint [bold]runs/a[/bold] at 10 steps " + "x" * 200
    with log.progress as progress:
        progress.note(text)
    assert log.lines[0] == text


def test_the_last_line_comes_even_when_training_fails() -> None:
    log = Log(100)

    def fail() -> None:
        with log.progress as progress:
            progress.update(7, 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert log.lines[-1].startswith("7.0%, 7 of 100 steps")


def test_no_random_number_is_drawn() -> None:
    before = (random.getstate(), torch.get_rng_state())
    log = Log(100)
    values = {"env/coverage": 0.5}
    with log.progress as progress:
        progress.update(50, 1, values)
        progress.note("x")
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert values == {"env/coverage": 0.5}


# The real streams

TRAINING = """
import time
from ngu.progress import Progress
with Progress(1000) as progress:
    for step in range(0, 1001, 100):
        progress.update(step, step // 10, {"env/coverage": step / 2000, "loss/retrace": 0.5})
        time.sleep(0.06)
        if step == 500:
            progress.note("a [note] in between")
"""


def run_on_terminal(environment: dict[str, str]) -> str:
    """The output of the script when its standard error is a terminal of 100 columns."""
    terminal, stream = pty.openpty()
    variables = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment}
    script = subprocess.Popen([sys.executable, "-c", TRAINING], stdout=subprocess.DEVNULL, stderr=stream, env=variables)
    os.close(stream)
    output = b""
    with script:
        try:
            while piece := os.read(terminal, 65536):
                output += piece
        except OSError:  # how a terminal says that its other end has closed
            pass
    os.close(terminal)
    assert script.returncode == 0, output
    return output.decode()


def test_on_a_terminal_one_line_changes_in_place() -> None:
    output = run_on_terminal({})
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output)
    assert output.count("\x1b[1A") >= 2  # the cursor goes up to draw over the last picture
    assert shown.count("a [note] in between") == 1
    last_picture = shown.rsplit("━", maxsplit=1)[1]
    assert "100.0%" in last_picture
    assert "1,000 of 1,000 steps  done" in last_picture
    assert re.search(r"steps/s +[\d.,]+ updates/s +coverage 50\.0% +loss 0\.5", last_picture)
    assert "\x1b[?25h" in output.rsplit("\x1b[?25l", maxsplit=1)[1]  # the cursor is shown again


def test_a_dumb_terminal_gets_plain_lines() -> None:
    output = run_on_terminal({"TERM": "dumb"})
    assert "\x1b" not in output
    assert "100.0%, 1,000 of 1,000 steps, done" in output


def test_a_log_is_plain_even_where_colours_are_forced(tmp_path: Path) -> None:
    variables = {**os.environ, "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}
    with (tmp_path / "log").open("wb") as log:
        subprocess.run([sys.executable, "-c", TRAINING], stdout=log, stderr=log, env=variables, check=True)
    note, last = (tmp_path / "log").read_text().splitlines()
    assert note == "a [note] in between"
    assert last.startswith("100.0%, 1,000 of 1,000 steps, done")
