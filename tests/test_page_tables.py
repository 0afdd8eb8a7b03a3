"""The helpers that make the pages' tables and figures of files under results/."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))  # as for `python docs/generate.py`

import figures  # noqa: E402
from page_tables import kept  # noqa: E402


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seeds of an agent that is measured every million steps, and one of another that is not evaluated."""
    for seed, values in enumerate(((0.1, 0.5, 0.4), (0.2, 0.25, 0.75))):
        rows = [f"{place * 1_000_000 + 64},{value},{100 * value}" for place, value in enumerate(values)]
        write(tmp_path / f"maze/ngu-seed{seed}.csv", "step,eval/a,eval/b", rows)
    write(tmp_path / "maze/other-seed0.csv", "step,env/score,env/episodes", ["500,-0.01,3", "1000,4,1", "1500,8,3"])
    monkeypatch.setattr(kept, "RESULTS", tmp_path)


def write(path: Path, head: str, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = "# preset: atari\n# variant: ngu\n# seed: 0\n# commit: 0123abc\n# command: ngu train atari\n# game: pong\n"
    path.write_text("\n".join([header + head, *rows, ""]))


@pytest.mark.usefixtures("results")
def test_a_table_has_a_row_for_each_agent_and_a_number_for_each_seed() -> None:
    told = kept.table(
        "agent",
        {"ngu": "maze/ngu-seed*.csv", "other": "maze/other-seed0.csv", "both": ("maze/o*.csv", "maze/ngu-seed1.csv")},
        {
            "at the end": kept.last("eval/a", "eval/b"),
            "at 1M": kept.at(1e6, "eval/a", style=kept.WHOLE_PERCENT),
            "score": kept.mean("env/score", 1000),
            "steps": kept.steps,
            "commit": kept.commits,
        },
    )
    assert told.splitlines() == [
        "| agent | at the end | at 1M | score | steps | commit |",
        "| --- | --- | --- | --- | --- | --- |",
        "| ngu | 40.0 / 4,000.0, 75.0 / 7,500.0 % | 50, 25 % |  | 2M | 0123abc |",
        "| other |  |  | 7.0 | 2,000 | 0123abc |",
        "| both | 75.0 / 7,500.0 % | 25 % | 7.0 | 2,000, 2M | 0123abc |",
    ]


@pytest.mark.usefixtures("results")
def test_what_is_not_there_is_no_empty_place() -> None:
    with pytest.raises(ValueError, match=r"no file results/maze/nobody-seed\*\.csv"):
        kept.table("agent", {"nobody": "maze/nobody-seed*.csv"}, {"steps": kept.steps})
    with pytest.raises(ValueError, match="no row of the table 'agent' has anything to say in the column 'wrong name'"):
        kept.table("agent", {"ngu": "maze/ngu-seed0.csv"}, {"wrong name": kept.last("eval/c")})


@pytest.mark.usefixtures("results")
def test_a_measurement_far_from_a_step_is_none_at_it() -> None:
    (run,) = kept.runs_of("maze/ngu-seed0.csv")
    assert kept.value_at(run, "eval/a", 1_010_000) == 0.5
    assert kept.value_at(run, "eval/a", 1_500_000) is None


@pytest.mark.usefixtures("results")
def test_a_mean_that_a_run_did_not_last_for_is_left_out() -> None:
    runs = kept.runs_of("maze/ngu-seed*.csv")
    assert kept.mean("eval/a", 2e6, 3e6, style=kept.PERCENT)(runs) == ""
    assert kept.mean("eval/a", 2e6, 2e6, style=kept.PERCENT)(runs) == "30.0, 22.5 %"


@pytest.mark.usefixtures("results")
def test_the_best_evaluation_is_told_with_its_step() -> None:
    assert (
        kept.best("eval/a", "eval/b")(kept.runs_of("maze/ngu-seed*.csv"))
        == "5,000.0 / 50.0 % at 1M, 7,500.0 / 75.0 % at 2M"
    )


def test_zero_has_no_sign() -> None:
    assert (kept.PLAIN.number(-0.01), kept.PLAIN.number(-0.1), kept.WHOLE.number(1234.5)) == ("0.0", "-0.1", "1,234")


@pytest.mark.parametrize("name", figures.FIGURES)
def test_figures_are_drawn_from_the_kept_files_and_shown(name: str, tmp_path: Path) -> None:
    """Fonts differ between machines, so a drawing is not compared to the last dot: its size and its colours are."""
    figures.write(figures.FIGURES[name], tmp_path / "new.png")
    new, old = imread(tmp_path / "new.png"), imread(figures.IMAGES / f"{name}.png")
    assert new.shape == old.shape
    shares = [np.asarray([(image[..., channel] < 0.9).mean() for channel in range(3)]) for image in (new, old)]
    assert np.allclose(*shares, rtol=0.1), f"images/{name}.png is old; run `python docs/figures.py`"
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert re.search(rf"!\[[^\]]+\]\(images/{name}\.png\)", pages)


def test_what_was_not_run_has_no_figure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing is kept of beta_results in scale node"):
        figures.write(figures.Drawn("beta_results", "node"), tmp_path / "none.png")
