"""How figures look: colours that everybody can tell apart, labels at the lines, and two ways out.

A figure goes to a PNG in light colours, or into a page as inline SVG. In a page its colours are variables of the page's
style sheet, so that the same picture is readable on light and on dark.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter

FONT_SIZE = 9.0
ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
INTRINSIC = "r\N{LATIN SUBSCRIPT SMALL LETTER I}"
"""The symbols of the life-long modulator and of the intrinsic reward."""


@dataclass(frozen=True)
class Theme:
    """The colours of a figure."""

    ink: str
    muted: str
    """Axes and what is there for comparison."""
    grid: str
    series: tuple[str, ...]

    def colour(self, place: int) -> str:
        """The colour of the line with this place; they repeat after eight."""
        return self.series[place % len(self.series)]


# After the palette of Okabe and Ito, which everybody can tell apart: darker on white, lighter on black.
LIGHT = Theme(
    ink="#1f2328",
    muted="#6b7280",
    grid="#e3e6ea",
    series=("#0072b2", "#d55e00", "#009e73", "#b0508c", "#8a6d00", "#3b8fc4", "#5b5f66", "#a0522d"),
)
DARK = Theme(
    ink="#e6e8eb",
    muted="#9aa3ad",
    grid="#30363d",
    series=("#56b4e9", "#ff9d45", "#2fc79b", "#e59bc8", "#e6cf45", "#8fc7ee", "#b9bec6", "#d9a07a"),
)
# Colours that stand for variables until the figure is SVG; no figure uses them otherwise.
PAGE = Theme(ink="#fe0101", muted="#fe0102", grid="#fe0103", series=tuple(f"#fe02{place:02x}" for place in range(8)))

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": FONT_SIZE,
    "axes.titlesize": FONT_SIZE + 1,
    "axes.titlepad": 10,
    "axes.labelsize": FONT_SIZE,
    "xtick.labelsize": FONT_SIZE - 0.5,
    "ytick.labelsize": FONT_SIZE - 0.5,
    "svg.fonttype": "none",  # text stays text: it can be searched, and takes the page's font
    "svg.hashsalt": "ngu",  # the same figure gives the same bytes
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a name with dollar signs is a name
}


@contextmanager
def house_style() -> Iterator[None]:
    """Inside, figures are made and saved in the style of the project; matplotlib's own settings come back after."""
    with matplotlib.rc_context(_STYLE):
        yield


def style_axes(ax: Axes, theme: Theme, *, title: str = "", xlabel: str = "", ylabel: str = "") -> None:
    """Axes with a light grid and without a box."""
    ax.set_title(title, loc="left", color=theme.ink, fontweight="bold")
    ax.set_xlabel(xlabel, color=theme.muted)
    ax.set_ylabel(ylabel, color=theme.muted)
    ax.tick_params(colors=theme.muted, which="both", length=3)
    ax.grid(True, color=theme.grid, linewidth=0.8)
    ax.set_axisbelow(True)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.muted)


def short_number(value: float) -> str:
    """1500000 to '1.5M'."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def steps_axis(ax: Axes, end: float) -> None:
    """The horizontal axis of agent steps."""
    ax.set_xlim(0, max(end, 1.0))
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _position: short_number(value)))


def frames_axis(ax: Axes, frames_per_step: int, theme: Theme) -> None:
    """A second horizontal axis under that of agent steps: the console's frames."""
    both_ways = (lambda steps: np.multiply(steps, frames_per_step), lambda count: np.divide(count, frames_per_step))
    frames = ax.secondary_xaxis(-0.22, functions=both_ways)
    frames.xaxis.set_major_locator(MaxNLocator(5))
    frames.xaxis.set_major_formatter(FuncFormatter(lambda value, _position: short_number(value)))
    frames.set_xlabel(f"frames ({frames_per_step} in a step)", color=theme.muted)
    frames.tick_params(colors=theme.muted, length=3)
    frames.spines["bottom"].set_color(theme.muted)


def log_axis(ax: Axes) -> None:
    """A logarithmic vertical axis with plain numbers."""
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: short_number(value)))
    ax.yaxis.set_minor_formatter(NullFormatter())


def share_axis(ax: Axes, top: float = 1.0) -> None:
    """The vertical axis of a share, in percent."""
    ax.set_ylim(0, top * 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


_NEAR_THE_EDGE = 0.9
"""From here on, as a share of the axes' width, a line's end is linked to its label."""


@dataclass(frozen=True)
class Label:
    """A text that belongs to the point (x, y) where a line ends."""

    x: float
    y: float
    text: str
    colour: str
    bold: bool = False


def label_ends(ax: Axes, labels: Sequence[Label], height: float) -> None:
    """Writes labels to the right of the axes beside the ends of their lines, moved apart where they would overlap.

    A line that ends well before the others is known by its colour: a link across the axes would look like its
    continuation. `height` is about that of the axes, in inches; lines and limits must be there before.
    """
    ax.autoscale_view()
    to_axes = ax.transData + ax.transAxes.inverted()
    ordered = sorted(labels, key=lambda label: label.y)
    ends = [to_axes.transform((label.x, label.y)) for label in ordered]
    gap = FONT_SIZE * 1.25 / (72 * height)
    for label, end, place in zip(ordered, ends, spread([float(y) for _, y in ends], gap), strict=True):
        link = {
            "arrowstyle": "-",
            "color": label.colour,
            "linewidth": 0.6,
            "shrinkA": 1,
            "shrinkB": 0,
            "relpos": (0, 0.5),
        }
        ax.annotate(
            label.text,
            xy=(label.x, label.y),
            xytext=(1.03, place),
            textcoords="axes fraction",
            color=label.colour,
            fontsize=FONT_SIZE - 0.5,
            fontweight="bold" if label.bold else "normal",
            va="center",
            ha="left",
            annotation_clip=False,
            arrowprops=link if end[0] > _NEAR_THE_EDGE else None,
        )


def add_key(figure: Figure, keys: Sequence[tuple[str, str]], theme: Theme) -> None:
    """Writes below a figure what its short labels stand for; it grows by as much."""
    width, height = figure.get_size_inches()
    letters = int(width * 72 / (0.6 * FONT_SIZE))
    lines = [line for label, meaning in keys for line in textwrap.wrap(f"{label}: {meaning}", letters)]
    if lines:
        figure.set_size_inches(width, height + (len(lines) + 1) * 1.25 * FONT_SIZE / 72)
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=FONT_SIZE - 0.5, color=theme.muted)


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Places around the sorted `wanted` ones that are at least `gap` apart, in [0, 1] if there is room for all.

    Labels that touch form a block, which stays centred on where its members wanted to be.
    """
    blocks: list[list[float]] = []
    for place in wanted:
        blocks.append([place])
        while len(blocks) > 1 and _bottom(blocks[-1], gap) < _bottom(blocks[-2], gap) + len(blocks[-2]) * gap:
            upper = blocks.pop()
            blocks[-1] += upper
    return [_bottom(block, gap) + index * gap for block in blocks for index in range(len(block))]


def _bottom(block: Sequence[float], gap: float) -> float:
    """Where the lowest label of a block goes."""
    height = (len(block) - 1) * gap
    return max(0.0, min(sum(block) / len(block) - height / 2, 1.0 - height))


def to_png(figure: Figure, dpi: int = 160) -> bytes:
    """The figure as a PNG file on white."""
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
        return file.getvalue()


def to_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an SVG element for a page; `name` keeps its ids apart from those of other figures."""
    with io.StringIO() as file:
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        text = file.getvalue()
    width, height = figure.get_size_inches() * 72
    body = text[text.index("<defs>") : text.rindex("</svg>")]
    body = body.replace("xlink:href=", "href=")
    body = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", body)
    for variable, placeholder in page_variables(PAGE).items():
        body = body.replace(placeholder, f"var({variable})")
    return (
        f'<svg class="figure" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(description)}">'
        f"{body}</svg>"
    )


def page_variables(theme: Theme) -> dict[str, str]:
    """The variables of the page's style sheet, with a theme's values."""
    series = {f"--series-{place}": colour for place, colour in enumerate(theme.series)}
    return {"--ink": theme.ink, "--muted": theme.muted, "--grid": theme.grid, **series}
