"""The one error that a person, not a programmer, is meant to read, and the sentences that several places share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can change.

    The message is one sentence that says what is wrong and what to do about it. The command line prints it
    without a traceback and exits with code 2.
    """


def needs_extra(what: str, extra: str) -> str:
    """The sentence for a part of the installation that is not there; `what` says who needs which package."""
    # Not from the package index, which knows another project of this name.
    return f"{what}; install it with: pip install -e '.[{extra}]' in your clone of ngu."


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that does not exist, with the nearest that do."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = (
        f"the nearest {'is' if len(near) == 1 else 'are'} {', '.join(near)}" if near else "known: " + ", ".join(known)
    )
    return f"{what} does not exist; {hint}."
