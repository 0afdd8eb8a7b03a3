"""The command `ngu`: finds the subcommand and turns errors into one sentence and an exit code.

Exit codes: 0 done, 1 something is missing on this machine (`ngu doctor`), 2 the user can put it right (one sentence on
standard error), 130 interrupted. Any other exception is a bug and shows its traceback.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence

from ngu.errors import UserError, unknown_name

COMMANDS = {
    "train": ("ngu.commands.train", "train an agent, then write its report"),
    "resume": ("ngu.commands.resume", "go on with a run that was stopped, or for longer"),
    "status": ("ngu.commands.status", "what the actors of a run on a Ray cluster are doing"),
    "eval": ("ngu.commands.eval", "play the newest checkpoint on held-out environments"),
    "record": ("ngu.commands.record", "draw one episode as an animation"),
    "report": ("ngu.commands.report", "one HTML page about one or more runs"),
    "reproduce": ("ngu.commands.reproduce", "run a figure or table of the paper by its name"),
    "doctor": ("ngu.doctor", "what is installed, which device is used, what fits"),
    "bench": ("ngu.commands.bench", "measure the speed of the agent and its parts"),
}
"""Subcommand -> its module, imported when it is called, and what it does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; returns the exit code."""
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"ngu: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ngu: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output, such as `head`, has gone
        _drop_output()
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"ngu: the disk is full, writing to {error.filename or 'standard output'}; make room.", file=sys.stderr)
        _drop_output()
        return 2


def _drop_output() -> None:
    """What is still to be printed goes nowhere, so that Python does not fail once more at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    name, rest = argv[0], argv[1:]
    if name == "--version":
        from ngu import __version__

        print(f"ngu {__version__}")
        return 0
    if name not in COMMANDS:
        raise UserError(unknown_name(f"the command {name}", name, COMMANDS))
    module, _ = COMMANDS[name]
    code: int = importlib.import_module(module).main(rest)
    return code


def usage() -> str:
    """The text of `ngu --help`."""
    lines = [f"  {name:<9} {sentence}" for name, (_, sentence) in COMMANDS.items()]
    return "\n".join(
        [
            "Never Give Up: an agent that explores by episodic and life-long novelty.",
            "",
            "usage: ngu COMMAND [OPTIONS]",
            "",
            *lines,
            "",
            "Begin with `ngu train`, which learns a small maze in minutes on a CPU.",
            "`ngu COMMAND --help` explains a command and every setting it takes; `ngu --version` prints the version.",
        ]
    )
