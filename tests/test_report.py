"""The report page, the results files and the figures, made from runs of seconds."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_tiny_config
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from PIL import Image

from ngu.config import Config
from ngu.envs.disco_maze import PALETTE
from ngu.envs.scripted import SCRIPTED_POLICIES, run_scripted
from ngu.errors import UserError
from ngu.report import read_results, write_figure, write_report, write_results_csv
from ngu.report.curves import Line, Panel, panel_figure
from ngu.report.groups import Group, flat_settings, make_groups
from ngu.report.mazes.coverage import SCRIPTED_MAZES, SCRIPTED_SEED
from ngu.report.results import Results, read_run, read_sources
from ngu.report.settings import explanations
from ngu.report.style import LIGHT, Label, label_ends, spread
from ngu.report.wording import duration, listing, percent, plain_number
from ngu.training import Training

VOID_TAGS = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """A parsed page: its text, tags and attributes, and whether every tag is closed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(self.source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]

    @property
    def sections(self) -> list[str]:
        return [attributes["id"] for tag, attributes in self.tags if tag == "section"]

    @property
    def pictures(self) -> list[Image.Image]:
        """The embedded pixel images."""
        links = [attributes.get("href", "") for _, attributes in self.tags]
        prefix = "data:image/png;base64,"
        encoded = [link.removeprefix(prefix) for link in links if link.startswith(prefix)]
        return [Image.open(io.BytesIO(base64.b64decode(code))) for code in encoded]

    def cells(self, first: str) -> list[str]:
        """The texts of the table row whose first cell reads so."""
        for row in re.findall(r"<tr.*?</tr>", self.source):
            cells = [re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", row)]
            if cells and cells[0] == first:
                return cells
        raise AssertionError(f"no row {first}")


def train(folder: Path, name: str, **overrides: Any) -> Path:
    """A tiny run of 400 steps with two evaluations after the first."""
    settings = {
        "run__folder": str(folder),
        "run__name": name,
        "run__steps": 400,
        "run__log_period": 80,
        "run__checkpoint_period": 200,
        "run__tensorboard": False,
        "evaluation__period": 200,
    }
    config = make_tiny_config(**{**settings, **overrides})
    Training.start(config).run(show_progress=False)
    return folder / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of the agent, one of RND alone, in one folder."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        train(folder, f"ngu-{seed}", run__seed=seed)
    train(folder, "rnd-0", variant="rnd-only", novelty__episodic=False)
    return folder


@pytest.fixture(scope="module")
def page(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page about one of the runs."""
    return Page(write_report([runs / "ngu-0"], tmp_path_factory.mktemp("page") / "page.html"))


@pytest.fixture
def run(runs: Path, tmp_path: Path) -> Path:
    """A copy of one run, to be damaged."""
    return shutil.copytree(runs / "ngu-0", tmp_path / "ngu-0")


def last_values(run: Path) -> dict[str, float]:
    values: dict[str, float] = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        values |= json.loads(line)
    return values


# One run


def test_page_of_a_run_has_every_part_and_needs_nothing_else(page: Page) -> None:
    assert page.sections == [
        "coverage-disco-maze-small", "episode", "novelty", "curves-disco-maze-small", "settings", "origin", "glossary",
    ]  # fmt: skip
    assert "note" not in {attributes.get("class") for _, attributes in page.tags}
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert "http" not in page.source
    assert "@import" not in page.source
    assert "prefers-color-scheme: dark" in page.source
    for _, attributes in page.tags:
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,"))


def test_ids_are_unique_and_every_reference_leads_to_one(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))
    references = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page.source)
    assert references
    assert {first or second for first, second in references} <= set(page.ids)


def test_page_shows_the_numbers_of_the_metrics(runs: Path, page: Page) -> None:
    values = last_values(runs / "ngu-0")
    cards = re.findall(r'<div class="card[^"]*"><span>(.*?)</span><b>(.*?)</b>', page.source)
    assert dict(cards) == {
        "coverage after 3 steps": percent(values["eval/explore/coverage@3"]),
        "coverage after 12 steps": percent(values["eval/explore/coverage@12"]),
        "agent steps": "400",
        "learner updates": f"{values['learner/updates']:,.0f}",
        "training time": duration(values["time"]),
        "speed": f"{400 / values['time']:,.0f}",
    }
    agent = page.cells("agent")
    assert agent[1:3] == [percent(values[f"eval/explore/coverage@{mark}"]) for mark in (3, 12)]
    assert agent[3] == f"seed 0, 400 steps in {duration(values['time'])}"


def test_scripted_policies_stand_beside_the_agent(page: Page) -> None:
    for name in SCRIPTED_POLICIES:
        coverage = run_scripted(name, 7, 12, SCRIPTED_MAZES, SCRIPTED_SEED, (3, 12))
        assert page.cells(name)[1:3] == [percent(coverage[3]), percent(coverage[12])]
        # In both figures of coverage against training, and in that of coverage within an episode.
        assert len(re.findall(rf"{name} \d+%", page.text)) == 3


def test_pictures_show_a_maze_and_a_map(page: Page) -> None:
    observation, coverage_map = page.pictures[:2]
    assert observation.size == coverage_map.size == (7, 7)
    seen, drawn = np.asarray(observation.convert("RGB")), np.asarray(coverage_map.convert("RGB"))
    colours = {tuple(colour) for colour in seen.reshape(-1, 3).tolist()}
    assert {PALETTE[5], PALETTE[6]} < colours <= set(PALETTE)
    # Where the agent sees a path or itself, the map has no wall, and everywhere else it has.
    open_cells = (seen == PALETTE[5]).all(-1) | (seen == PALETTE[6]).all(-1)
    assert ((drawn == drawn[0, 0]).all(-1) == ~open_cells).all()
    start = drawn[(seen == PALETTE[6]).all(-1)]
    assert start.tolist() == [[68, 1, 84]]  # the first of viridis


def test_no_label_is_left_in_the_language_of_formulas(page: Page) -> None:
    """Losses fall by orders of magnitude, so their axes are logarithmic, with plain numbers."""
    assert "mathdefault" not in page.source
    assert "$" not in page.text


def test_settings_are_explained_and_changes_are_marked(runs: Path, page: Page) -> None:
    for name, value in flat_settings(read_run(runs / "ngu-0").config or Config()).items():
        cells = page.cells(name)
        words = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value).strip("()")
        assert cells[1].replace(",", "") == words.replace(",", "")
        assert unescape(cells[3]) == explanations()[name]
    assert page.cells("env.maze_size")[1:3] == ["7", "9"]
    assert page.cells("mixture.beta")[1:3] == ["0.5", ""]


def test_every_setting_has_an_explanation() -> None:
    assert set(explanations()) == set(flat_settings(Config()))
    assert explanations()["novelty.neighbours"] == "k, the number of nearest neighbours."
    assert explanations()["variant"].startswith("The variant that was applied")


def test_a_run_of_two_policies_shows_both(tmp_path: Path) -> None:
    run = train(tmp_path, "two", mixture__num_mixtures=2)
    page = Page(write_report([run], tmp_path / "page.html"))
    values = last_values(run)
    assert page.cells("agent")[2] == percent(values["eval/explore/coverage@12"])
    assert page.cells("agent, exploit")[2] == percent(values["eval/exploit/coverage@12"])
    assert "Coverage after 12 steps, policy exploit" in page.text


# Runs that did not end well


def test_a_killed_run_still_gives_a_report(run: Path, tmp_path: Path) -> None:
    content = (run / "metrics.jsonl").read_bytes()
    lines = content.splitlines(keepends=True)
    half = len(lines) // 2
    (run / "metrics.jsonl").write_bytes(b"".join(lines[:half]) + lines[half][: len(lines[half]) // 2])
    shutil.rmtree(run / "checkpoints")
    page = Page(write_report([run], tmp_path / "page.html"))
    reached = max(json.loads(line)["step"] for line in lines[:half])
    assert f"has reached {reached:,} of its 400 steps" in page.text
    assert "No episode can be drawn: there is no checkpoint" in page.text
    assert "novelty" not in page.sections
    assert "Coverage after 12 steps" in page.text
    assert page.cells("run.steps")


def test_a_run_that_measured_nothing_gives_a_report(run: Path, tmp_path: Path) -> None:
    (run / "metrics.jsonl").unlink()
    page = Page(write_report([run], tmp_path / "page.html"))
    assert "There are no metrics at" in page.text
    assert "No evaluation has been made yet." in page.text
    assert "Nothing has been logged yet." in page.text
    assert "episode" in page.sections
    (run / "metrics.jsonl").write_bytes(b"")
    assert "has measured nothing yet" in Page(write_report([run], tmp_path / "page.html")).text


def test_a_damaged_newest_checkpoint_is_said_and_the_older_one_drawn(run: Path, tmp_path: Path) -> None:
    older, newest = sorted((run / "checkpoints").iterdir())
    file = newest / "learner.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    page = Page(write_report([run], tmp_path / "page.html"))
    assert f"the older {older.name} is used instead" in page.text
    assert f"the weights of step {int(older.name[5:]):,}" in page.text


# Several runs


def test_runs_that_share_preset_and_variant_are_one_line_with_a_band(runs: Path, tmp_path: Path) -> None:
    page = Page(write_report([runs], tmp_path / "page.html"))
    assert "episode" not in page.sections
    values = [last_values(runs / f"ngu-{seed}")["eval/explore/coverage@12"] for seed in range(3)]
    cells = page.cells("learned controllable states")
    assert cells[2] == f"{percent(float(np.mean(values)))} ({percent(min(values))} to {percent(max(values))})"
    times = sorted(last_values(runs / f"ngu-{seed}")["time"] for seed in range(3))
    assert cells[3].startswith(f"3 seeds (0, 1, 2), 400 steps in {duration(times[0])}")
    assert cells[3].endswith(duration(times[-1]))
    assert page.cells("RND alone")[3].startswith("seed 0, 400 steps in ")
    for seed in range(3):
        assert page.cells(f"ngu-{seed}")[1] == f"ngu, seed {seed}"


def test_runs_with_different_settings_are_different_lines(runs: Path, tmp_path: Path) -> None:
    for rate in (0.001, 0.01):
        shutil.copytree(runs / "ngu-0", tmp_path / f"rate-{rate}")
        path = tmp_path / f"rate-{rate}" / "config.json"
        content = json.loads(path.read_text())
        content["config"]["learner"]["learning_rate"] = rate
        path.write_text(json.dumps(content))
    groups = make_groups(read_sources([tmp_path]))
    assert [group.label for group in groups] == [f"rate-{rate}" for rate in (0.001, 0.01)]
    assert [group.key for group in groups] == [
        f"learned controllable states, learner.learning_rate {rate}" for rate in (0.001, 0.01)
    ]


def with_settings(run: Path, copy: Path, **settings: Any) -> Path:
    """A copy of a run that says that it was made with other settings."""
    shutil.copytree(run, copy)
    content = json.loads((copy / "config.json").read_text())
    for name, value in settings.items():
        group, _, field = name.partition("__")
        content["config"][group][field] = value
    (copy / "config.json").write_text(json.dumps(content))
    return copy


def test_runs_that_differ_in_many_settings_have_short_labels_and_a_key(runs: Path, tmp_path: Path) -> None:
    """Warnings are errors here: a figure whose labels leave no room to its lines is one."""
    changes = {"learner__learning_rate": 0.001, "network__lstm_size": 32, "novelty__filters": [4, 9]}
    for seed in range(2):
        with_settings(runs / f"ngu-{seed}", tmp_path / f"first-{seed}")
        with_settings(runs / f"ngu-{seed}", tmp_path / f"second-{seed}", **changes)
    shutil.copytree(runs / "rnd-0", tmp_path / "rnd-0")
    groups = make_groups(read_sources([tmp_path]))
    assert [(group.label, len(group.runs)) for group in groups] == [("A", 2), ("B", 2), ("RND alone", 1)]
    key = "learned controllable states, learner.learning_rate 0.001, network.lstm_size 32, novelty.filters 4 9"
    assert [group.key for group in groups if group.runs[0].path.name.startswith("second")] == [key]
    assert groups[-1].key == ""
    page = Page(write_report([tmp_path], tmp_path / "page.html"))
    for group in groups[:2]:
        assert f"<dt><code>{group.label}</code></dt><dd>{group.key}</dd>" in page.source
    assert page.cells("A")[-1].startswith("2 seeds (0, 1), ")
    with (
        Image.open(write_figure([runs], tmp_path / "plain.png")) as plain,
        Image.open(write_figure([tmp_path], tmp_path / "keyed.png")) as keyed,
    ):
        assert keyed.width == plain.width
        assert keyed.height > plain.height, "the key stands below"


def test_runs_alone_are_called_by_their_names_if_these_are_short(runs: Path, tmp_path: Path) -> None:
    for name in ("small", "large"):
        with_settings(runs / "ngu-0", tmp_path / name, network__lstm_size=len(name), network__torso_size=ord(name[0]))
    assert {group.label for group in make_groups(read_sources([tmp_path]))} == {"small", "large"}
    with_settings(runs / "ngu-0", tmp_path / f"{'very-' * 8}large", network__lstm_size=99)
    assert {group.label for group in make_groups(read_sources([tmp_path]))} == {"A", "B", "C"}


def test_results_of_one_variant_are_told_apart_by_the_names_of_their_files(runs: Path, tmp_path: Path) -> None:
    """As `ngu reproduce` names them: they do not hold the settings in which their agents differ."""
    for run, name in (("ngu-0", "ngu-seed0"), ("ngu-1", "ngu-seed1-40M"), ("ngu-2", "epsilon-0.1-seed0")):
        write_results_csv(runs / run, tmp_path / f"{name}.csv")
    groups = {group.label: len(group.runs) for group in make_groups(read_sources([tmp_path]))}
    assert groups == {"learned controllable states": 2, "epsilon-0.1": 1}


def test_settings_that_change_no_learning_make_no_other_agent(runs: Path, tmp_path: Path) -> None:
    """How often it was evaluated, how it was run, and what belongs to environments that it did not play in."""
    changes = {
        "evaluation__period": 0, "env__workers": 3, "env__max_restarts": 7, "env__worker_timeout": 9.0,
        "env__threads": 2, "env__game": "pong", "env__noops": 4, "env__id": "CartPole-v1", "env__sea_size": 12,
        "env__coin_size": 9, "env__level": "DoorKey-5x5", "run__threads": 2, "run__log_period": 40,
        "run__precision": "bf16", "replay__max_memory_share": 0.5, "ray__timeout": 9.0,
    }  # fmt: skip
    copies = [with_settings(runs / "ngu-0", tmp_path / name, **{name: value}) for name, value in changes.items()]
    sources = [*copies, runs / "ngu-1", write_results_csv(runs / "ngu-2", tmp_path / "ngu-2.csv")]
    (together,) = make_groups(read_sources(sources))
    assert (together.label, together.key) == ("learned controllable states", "")
    maze = with_settings(runs / "ngu-0", tmp_path / "maze", env__maze_pool=65)
    assert len(make_groups(read_sources([*copies, maze]))) == 2, "a maze is what it plays in"


def test_what_one_run_measured_before_the_others_is_drawn() -> None:
    """One was evaluated all along, one at its end alone."""
    runs = [
        Results(Path(), "p", "v", seed, {}, [{"step": step, "m": float(seed)} for step in steps])
        for seed, steps in enumerate(((0, 10, 20), (20,)))
    ]
    figure = panel_figure(Panel("title", "unit", (Line("m", "m"),)), [Group("v", "p", "v", runs, 0)], LIGHT)
    assert figure is not None
    drawn = {tuple(line.get_xdata()): list(line.get_ydata()) for line in figure.axes[0].lines}
    assert drawn == {(20.0,): [0.5], (0.0, 10.0, 20.0): [0.0, 0.0, 0.0]}


series = st.dictionaries(st.integers(0, 50), st.floats(-5, 5), min_size=1, max_size=8)


@given(st.lists(series, min_size=1, max_size=4))
def test_a_curve_is_the_mean_over_the_range_that_all_runs_have(measured: list[dict[int, float]]) -> None:
    runs = [
        Results(Path(), "p", "v", seed, {}, [{"step": step, "m": points[step]} for step in sorted(points)])
        for seed, points in enumerate(measured)
    ]
    curve = Group("v", "p", "v", runs, 0).curve("m")
    assert curve is not None
    begin, end = max(min(points) for points in measured), min(max(points) for points in measured)
    grid = sorted({step for points in measured for step in points if begin <= step <= end})
    assert curve.steps.tolist() == grid
    for index, step in enumerate(grid):
        values = [between(points, step) for points in measured]
        assert curve.mean[index] == pytest.approx(sum(values) / len(values), abs=1e-9)
        assert (curve.low[index], curve.high[index]) == pytest.approx((min(values), max(values)), abs=1e-9)
    longer = [points for points in measured if max(points) > end]
    assert [tail[1][-1] for tail in curve.tails] == [points[max(points)] for points in longer]


def between(points: dict[int, float], step: int) -> float:
    """Linear between the two measurements around a step."""
    left = max(place for place in points if place <= step)
    right = min(place for place in points if place >= step)
    share = (step - left) / (right - left) if right > left else 0.0
    return points[left] + share * (points[right] - points[left])


def test_runs_that_never_measured_at_the_same_steps_are_drawn_as_lines_of_their_own() -> None:
    """One was evaluated at its start alone, one at its end alone: there is no mean, and there is a figure."""
    runs = [
        Results(Path(), "p", "v", seed, {}, [{"step": step, "m": float(seed)} for step in steps])
        for seed, steps in enumerate(((0, 5), (10, 20)))
    ]
    group = Group("v", "p", "v", runs, 0)
    figure = panel_figure(Panel("title", "unit", (Line("m", "m"),)), [group], LIGHT)
    assert figure is not None
    drawn = {tuple(line.get_xdata()): set(line.get_ydata()) for line in figure.axes[0].lines}
    assert drawn[(10.0, 20.0)] == {1.0}


def test_a_group_without_the_metric_has_no_curve() -> None:
    group = Group("v", "p", "v", [Results(Path(), "p", "v", 0, {}, [{"step": 0.0}])], 0)
    assert group.curve("m") is None
    assert group.final("m") == []


# Results files


def test_results_come_back_from_a_csv_as_they_were(runs: Path, tmp_path: Path) -> None:
    out = write_results_csv(runs / "ngu-1", tmp_path / "results" / "ngu-1.csv", machine="a laptop, 2 cores")
    run, results = read_run(runs / "ngu-1"), read_results(out)
    assert (results.preset, results.variant, results.seed) == ("disco-maze-small", "ngu", 1)
    assert results.world.maze == (7, 12)
    assert results.origin["machine"] == "a laptop, 2 cores"
    assert results.origin["command"] == run.origin["command"]
    assert {"eval/explore/coverage@12", "inverse/accuracy", "learner/updates"} <= results.names()
    kept = results.names() | {"step", "time"}
    expected = [{name: value for name, value in row.items() if name in kept} for row in run.rows]
    assert results.rows == expected
    lines = out.read_text().splitlines()
    assert lines[:3] == ["# preset: disco-maze-small", "# variant: ngu", "# seed: 1"]
    assert next(line for line in lines if not line.startswith("#")).startswith("step,time,")


def test_a_second_line_at_a_step_does_not_lose_the_episodes_of_the_first(runs: Path, tmp_path: Path) -> None:
    """A run that ends at a line of its log writes another one there, since which no episode has ended."""
    shutil.copytree(runs / "ngu-1", tmp_path / "run")
    log = tmp_path / "run" / "metrics.jsonl"
    lines = [
        {"step": 10, "time": 1.0, "env/episodes": 3, "env/score": 4.0},
        {"step": 10, "time": 1.1, "env/episodes": 0},
    ]
    lines += [
        {"step": 20, "time": 2.0, "env/episodes": 1, "env/score": 8.0},
        {"step": 30, "time": 3.0, "env/episodes": 0},
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read_run(tmp_path / "run")
    assert [row["env/episodes"] for row in run.rows] == [3.0, 1.0, 0.0]
    assert run.mean("env/score", 100) == 5.0


def test_a_line_that_lost_its_episodes_counts_as_one() -> None:
    rows = [
        {"step": 10.0, "env/episodes": 0.0, "env/score": 2.0},
        {"step": 20.0, "env/episodes": 3.0, "env/score": 6.0},
    ]
    results = Results(Path(), "p", "v", 0, {}, rows)
    assert results.mean("env/score", 100) == 5.0
    assert results.mean("env/score", 10, until=10) == 2.0


def test_chosen_metrics_are_exported_alone(runs: Path, tmp_path: Path) -> None:
    out = write_results_csv(runs / "ngu-1", tmp_path / "some.csv", ["loss/retrace", "eval/explore/cov*"])
    assert read_results(out).names() == {"loss/retrace", "eval/explore/coverage@3", "eval/explore/coverage@12"}
    with pytest.raises(UserError, match="measured none of nothing/such"):
        write_results_csv(runs / "ngu-1", tmp_path / "none.csv", ["nothing/such"])


def test_a_folder_of_results_gives_a_page_and_a_figure(runs: Path, tmp_path: Path) -> None:
    for name in ("ngu-0", "ngu-1", "rnd-0"):
        write_results_csv(runs / name, tmp_path / "results" / f"{name}.csv")
    page = Page(write_report([tmp_path / "results"], tmp_path / "results.html"))
    values = [last_values(runs / f"ngu-{seed}")["eval/explore/coverage@12"] for seed in range(2)]
    assert page.cells("learned controllable states")[2].startswith(percent(float(np.mean(values))))
    assert page.cells("wall-follower")
    with Image.open(tmp_path / "results.png") as beside:
        drawn = np.asarray(beside.convert("RGB"))
    # A panel for each of two marks, side by side.
    assert drawn.shape[1] > 2 * drawn.shape[0]
    write_figure([tmp_path / "results"], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes() == (tmp_path / "results.png").read_bytes()
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):  # both groups have their line
        assert (drawn == colour).all(-1).sum() > 50


def test_a_preset_gives_the_maze_that_a_results_file_does_not_name(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("# preset: disco-maze\n# variant: ngu\n# seed: 4\nstep,time,a\n0,0.5,\n8,1,nan\n")
    results = read_results(tmp_path / "old.csv")
    assert results.world.maze == (21, 500)
    assert results.rows == [{"step": 0.0, "time": 0.5}, {"step": 8.0, "time": 1.0}]
    (tmp_path / "old.csv").write_text("# preset: other\n# variant: ngu\n# seed: 4\nstep,time\n")
    assert read_results(tmp_path / "old.csv").world.maze is None


def test_names_in_results_cannot_become_markup(tmp_path: Path) -> None:
    head = "# preset: <b>&$x$\n# variant: <script>alert(1)</script>\n# seed: 0\n# command: </code><i>\n"
    (tmp_path / "odd.csv").write_text(f"{head}step,time,eval/explore/coverage@3,loss/<u>\n0,1,0.5,1\n9,2,0.75,1\n")
    page = Page(write_report([tmp_path / "odd.csv"], tmp_path / "page.html"))
    assert not {"script", "i", "u"} & {tag for tag, _ in page.tags}
    assert "<script>alert(1)</script>" in page.text
    assert page.cells("agent")[1] == percent(0.75)


HEAD = "# preset: disco-maze\n# variant: ngu\n# seed: 0\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("step,time\n0,1\n", "lacks a line '# preset: ...'"),
        (HEAD + "time,step\n", "lacks a header that begins with 'step'"),
        (HEAD, "lacks a header that begins with 'step'"),
        (HEAD + "step,time\n0\n", "row 1 of the results file .* is damaged"),
        (HEAD + "step,time\n0,1\n,2\n", "row 2 of the results file .* is damaged"),
        (HEAD + "step,time\n0,x\n", "row 1 of the results file .* is damaged"),
        (HEAD.replace("0", "zero") + "step,time\n", "is not a whole number"),
    ],
)
def test_a_file_that_holds_no_results_is_refused(content: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(content)
    with pytest.raises(UserError, match=sentence):
        write_report([tmp_path / "bad.csv"], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_sources_and_places_that_do_not_exist_are_refused(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run folder or results file"):
        write_report([tmp_path / "nowhere"], tmp_path / "page.html")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds neither runs nor results"):
        write_report([tmp_path / "empty"], tmp_path / "page.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        write_report([runs / "ngu-0"], tmp_path / "file" / "page.html")
    untrained = make_tiny_config(run__folder=str(tmp_path), run__name="new")
    assert Training.start(untrained).folder
    with pytest.raises(UserError, match="no evaluation has been made yet"):
        write_figure([tmp_path / "new"], tmp_path / "figure.png")


# Labels


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.01, 0.12))
def test_labels_are_moved_apart_and_no_farther(wanted: list[float], gap: float) -> None:
    wanted = sorted(wanted)
    places = spread(wanted, gap)
    steps = np.diff(places)
    assert (steps >= gap - 1e-9).all()
    assert min(places) >= -1e-9
    assert max(places) <= 1 + 1e-9
    if (np.diff(wanted) >= gap + 1e-9).all():
        assert places == pytest.approx(wanted)


def test_only_lines_that_reach_the_edge_are_linked_to_their_labels() -> None:
    """A link from the middle of the axes would look as if the line went on."""
    figure = Figure()
    ax = figure.subplots()
    ax.set(xlim=(0, 40), ylim=(0, 1))
    label_ends(ax, [Label(13, 0.1, "short", "red"), Label(40, 0.9, "long", "blue")], 2.0)
    linked = {text.get_text(): text.arrow_patch is not None for text in ax.texts if isinstance(text, Annotation)}
    assert linked == {"short": False, "long": True}


def test_numbers_in_words() -> None:
    assert percent(0.77345) == "77.3\N{NO-BREAK SPACE}%"
    assert [duration(seconds) for seconds in (5.25, 59.96, 683.4, 7260)] == [
        "5.2 s",
        "60.0 s",
        "11 min 23 s",
        "2 h 1 min",
    ]
    numbers = (0.0, -0.04, 400.0, 12.34, -20.75, 1234.56, -17098.1)
    assert [plain_number(value) for value in numbers] == ["0", "0", "400", "12.3", "-20.8", "1,235", "-17,098"]
    assert [listing(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


def test_the_same_run_gives_the_same_page_and_keeps_its_folder(runs: Path, page: Page, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in (runs / "ngu-0").rglob("*") if path.is_file()}
    out = write_report([runs / "ngu-0"], tmp_path)
    assert out == tmp_path / "report.html"
    assert out.read_text(encoding="utf-8") == page.source
    assert {path: path.read_bytes() for path in (runs / "ngu-0").rglob("*") if path.is_file()} == before
