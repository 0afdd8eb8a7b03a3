"""The tables of docs/tasks.md."""

from __future__ import annotations

from collections.abc import Callable

PARTS: list[Callable[[], str]] = []
"""In the order of their places in the page."""
