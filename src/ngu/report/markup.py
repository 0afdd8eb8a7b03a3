"""The page itself: one HTML document that needs nothing but a browser, on light and on dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ngu.report.style import DARK, LIGHT, Theme, page_variables

_LIGHT_SURFACES = {"--page": "#ffffff", "--card": "#f5f6f8", "--note": "#fff6df"}
_DARK_SURFACES = {"--page": "#14171b", "--card": "#1d2127", "--note": "#3a3015"}

_STYLE_SHEET = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 var(--font); }
main { max-width: 1120px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; text-wrap: balance; }
h2 { font-size: 1.3rem; margin: 2.75rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--grid); }
p { max-width: 75ch; margin: .5rem 0; }
.lead { font-size: 1.1rem; }
.quiet, figcaption, .card span, .card small { color: var(--muted); }
.note { background: var(--note); border-radius: 6px; padding: .6rem .9rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: .75rem; margin: 1.25rem 0; }
.card { background: var(--card); border-radius: 8px; padding: .8rem 1rem; }
.card b { display: block; white-space: nowrap; font-size: 1.45rem; line-height: 1.25; }
.card b, td.value { font-variant-numeric: tabular-nums; }
.card span, .card small { display: block; font-size: .85rem; }
.card.main b { color: var(--series-0); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 1rem 1.5rem; }
figure { margin: 1rem 0; min-width: 0; }
figcaption { font-size: .88rem; max-width: 75ch; }
svg.figure { display: block; width: 100%; height: auto; max-width: 1000px; }
svg.figure text { font-family: var(--font) !important; }
.scroll { overflow-x: auto; }
.wide svg { min-width: 640px; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; margin: .75rem 0; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
th { color: var(--muted); font-weight: 600; }
td.value { white-space: nowrap; }
td.long { min-width: 20rem; }
tr.agent td { font-weight: 600; }
tr.changed td { color: var(--series-1); }
.bar { position: relative; min-width: 9rem; padding-left: .5rem; }
.bar::before { content: ""; position: absolute; inset: 0 auto 0 0; width: var(--share); border-radius: 3px;
  background: var(--muted); opacity: .22; }
tr.agent .bar::before { background: var(--series-0); opacity: .35; }
code { font: .88em/1.4 ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
details { margin: .5rem 0; }
summary { cursor: pointer; font-weight: 600; }
dt { font-weight: 600; margin-top: .6rem; }
dd { margin: 0; max-width: 75ch; }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """The whole page."""
    body = "\n".join(parts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
:root {{ --font: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }}
:root {{ {_declarations(LIGHT, _LIGHT_SURFACES)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_declarations(DARK, _DARK_SURFACES)} }} }}
{_STYLE_SHEET}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def _declarations(theme: Theme, surfaces: dict[str, str]) -> str:
    return " ".join(f"{name}: {value};" for name, value in (page_variables(theme) | surfaces).items())


def section(name: str, title: str, *parts: str) -> str:
    """A part of the page with a heading; `name` is its anchor."""
    return f'<section id="{name}">\n<h2>{escape(title)}</h2>\n' + "\n".join(parts) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def figure(svg: str, caption: str = "", *, wide: bool = False) -> str:
    """A picture with what it shows; a wide one is not made narrower than it can be read, but scrolls."""
    picture = f'<div class="scroll wide">{svg}</div>' if wide else svg
    return f"<figure>{picture}" + (f"<figcaption>{escape(caption)}</figcaption>" if caption else "") + "</figure>"


def figures(entries: Sequence[str]) -> str:
    """Pictures side by side where there is room."""
    return '<div class="figures">' + "\n".join(entries) + "</div>"


def cards(entries: Sequence[tuple[str, str, str]], main: int) -> str:
    """Headline numbers: (what, number, remark); the first `main` of them stand out."""
    shown = []
    for index, (what, number, remark) in enumerate(entries):
        kind = "card main" if index < main else "card"
        small = f"<small>{escape(remark)}</small>" if remark else ""
        shown.append(f'<div class="{kind}"><span>{escape(what)}</span><b>{escape(number)}</b>{small}</div>')
    return '<div class="cards">' + "\n".join(shown) + "</div>"


def table(head: Sequence[str], rows: Iterable[str]) -> str:
    """Rows made by `row`, under a head."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def row(cells: Iterable[str], kind: str = "") -> str:
    """A table's row of cells made by `text`, `code`, `number` or `bar`."""
    return f'<tr class="{kind}">{"".join(cells)}</tr>' if kind else f"<tr>{''.join(cells)}</tr>"


def text(content: str) -> str:
    return f"<td>{escape(content)}</td>"


def code(content: str, *, wraps: bool = False) -> str:
    kind = "long" if wraps else "value"
    return f'<td class="{kind}"><code>{escape(content)}</code></td>'


def number(content: str) -> str:
    return f'<td class="value">{escape(content)}</td>'


def bar(share: float | None, content: str) -> str:
    """A number with a bar of its size behind it; nothing was measured where the share is None."""
    if share is None:
        return "<td></td>"
    width = 100 * min(max(share, 0.0), 1.0)
    return f'<td class="value"><div class="bar" style="--share: {width:.2f}%">{escape(content)}</div></td>'


def definitions(entries: Iterable[tuple[str, str]]) -> str:
    """Terms and what they mean."""
    shown = (f"<dt><code>{escape(term)}</code></dt><dd>{escape(meaning)}</dd>" for term, meaning in entries)
    return f"<dl>{''.join(shown)}</dl>"


def folded(summary: str, *parts: str) -> str:
    """A part that opens on a click."""
    return f"<details><summary>{escape(summary)}</summary>\n" + "\n".join(parts) + "</details>"
