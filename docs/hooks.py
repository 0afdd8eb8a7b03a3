"""Lets long names in tables break after `_`, `/`, `.` and `::` instead of anywhere."""

from __future__ import annotations

import re
from typing import Any

_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_CODE = re.compile(r"(<code>)(.*?)(</code>)", re.DOTALL)
_JOINT = re.compile(r"(?<=\w)(::|[_/.])(?=\w)")


def on_page_content(html: str, **_: Any) -> str:
    """Called by MkDocs with the HTML of each page."""
    return _CELL.sub(lambda cell: _CODE.sub(_with_joints, cell.group()), html)


def _with_joints(code: re.Match[str]) -> str:
    start, text, end = code.groups()
    return start + _JOINT.sub(r"\1<wbr>", text) + end
