"""Draws the pages' figures of what was run, from the files under `results/`.

    python docs/figures.py

Pictures of single episodes are films' frames (`ngu record`, `ngu report`) and not drawn here. Unlike the tables, which
the tests hold to be current, pictures differ by the versions of what draws them, so they are drawn anew when their
files change.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ngu.experiments.catalogue import experiment
from ngu.experiments.figures import draw
from ngu.machine import use_threads
from ngu.report.page import write_figure
from ngu.report.style import LIGHT, house_style, to_png
from page_tables.kept import RESULTS
from page_tables.reproduced import SOURCES

IMAGES = Path(__file__).parent / "images"


@dataclass(frozen=True)
class Drawn:
    """The figure of an experiment."""

    experiment: str
    source: str
    """One of `page_tables.reproduced.SOURCES`."""
    tasks: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reported:
    """What `ngu report` draws of files, scripted players beside them."""

    files: tuple[str, ...]
    """Patterns under `results/`."""


FIGURES: dict[str, Drawn | Reported] = {
    "deep-sea": Drawn("deep_sea", "laptop", ("deep-sea-20",)),
    "minigrid": Drawn("minigrid", "laptop", ("minigrid-MultiRoom-N4-S5",)),
    "random-coin": Drawn("random_coin", "laptop"),
    "random-coin-balanced": Drawn("random_coin_balanced", "laptop"),
    "disco-maze": Reported(
        tuple(f"reproduce/node/disco-maze/{agent}-seed*.csv" for agent in ("ngu", "random-projection", "rnd-only"))
    ),
    "disco-maze-small": Drawn("fig_disco_maze", "laptop"),
    "pong": Drawn("pong_family", "node"),
    "montezuma": Drawn("montezuma_training", "node"),
    "montezuma-remedies": Drawn("montezuma_training", "remedies"),
    "montezuma-keypoints": Drawn("montezuma_training", "small"),
}
"""Name of a picture in docs/images -> what it shows."""


def write(drawn: Drawn | Reported, path: Path) -> None:
    """As a PNG file."""
    if isinstance(drawn, Reported):
        write_figure([file for pattern in drawn.files for file in sorted(RESULTS.glob(pattern))], path)
        return
    entry = experiment(drawn.experiment).only(drawn.tasks, drawn.variants)
    with house_style():
        figure = draw(entry, SOURCES[drawn.source].collected(entry), LIGHT)
    if figure is None:
        raise ValueError(f"nothing is kept of {drawn.experiment} in {SOURCES[drawn.source].title}")
    path.write_bytes(to_png(figure))


if __name__ == "__main__":
    use_threads(1)
    for name, drawn in FIGURES.items():
        path = IMAGES / f"{name}.png"
        write(drawn, path)
        print(path)
