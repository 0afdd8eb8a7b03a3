"""The paper's figures and tables as experiments: their data, numbers, statistics and plans. Nothing is trained here."""

from __future__ import annotations

import ast
import csv
import itertools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngu.commands.train import read_config
from ngu.config import Config
from ngu.envs.atari_games import ATARI_GAMES, human_normalised
from ngu.errors import UserError
from ngu.experiments import paper_numbers
from ngu.experiments.catalogue import EXPERIMENTS, experiment
from ngu.experiments.claims import CLAIMS
from ngu.experiments.collecting import in_training, read_collected
from ngu.experiments.definition import SCORE, Experiment, Published, printed_number
from ngu.experiments.evidence import Evidence
from ngu.experiments.figures import draw
from ngu.experiments.listing import entries, frames_in_words, in_lines
from ngu.experiments.paper_settings import held_by
from ngu.experiments.plan import Plan, cost, paper_cost, smoke_part
from ngu.experiments.running import command_of
from ngu.experiments.scales import RATES, SCALES, scale
from ngu.experiments.statistics import bootstrap_bands, bootstrap_interval, mean_over_tasks, median_over_tasks
from ngu.experiments.tables import as_csv, markdown, places
from ngu.experiments.writing import write
from ngu.metrics import explain
from ngu.presets import PRESETS, preset
from ngu.report.groups import flat_settings
from ngu.report.results import Results
from ngu.report.style import LIGHT

ROOT = Path(__file__).parent.parent

LABELS = re.findall(
    r"\w+",
    """
fig_disco_maze fig_ablations table_ablations table_action_prediction_montezuma hard_explore_hns_graph ap_mr_graph
table_single_mixture_dense_games ngu_evals_graph beta_distrib gamma_distrib ng1_embedding_pitfall ng1_embedding_mr
ng1_nn_pitfall ng1_nn_mr ng1_l_pitfall ng1_l_mr beta_results table_computation_comparison
table_hyper_montezuma_common table_hyper_discomaze table_hyper_atari table_hyper_ranges table_atari57 atari57
predictability_results initial_results
""",
)
"""Every table of the paper, and every figure but the drawings of networks."""

TRAINED = [entry for entry in EXPERIMENTS.values() if entry.tasks]


def plan_of(name: str, size: str = "paper", folder: Path = Path("runs"), **options: Any) -> Plan:
    return Plan(experiment(name), scale(size), folder, **options)


# ------------------------------------------------------------------------------------------------- the paper's numbers


@pytest.mark.parametrize(
    ("text", "value", "error"),
    [("465.8k±84.9k", 465_800.0, 84_900.0), ("-8.1±1.7", -8.1, 1.7), ("11k", 11_000.0, None), ("-3", -3.0, None)],
)
def test_numbers_are_read_as_printed(text: str, value: float, error: float | None) -> None:
    number = Published(text)
    assert math.isclose(number.value, value)
    assert number.error == error or math.isclose(number.error or 0, error or 0)


@pytest.mark.parametrize("text", ["", "k", "1.5m", "a", "1e3"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        printed_number(text)


def test_the_table_of_57_games_agrees_with_what_the_text_says_of_it() -> None:
    """Sec. 4.2: above human level on 51 of 57 games; a slip in a score or a name would most likely change that."""
    ngu = paper_numbers.ATARI57["NGU(32) eval beta=0.0"]
    assert set(ngu) == set(ATARI_GAMES)
    assert sum(human_normalised(game, number.value) > 100 for game, number in ngu.items()) == 51


def test_tables_agree_where_they_print_the_same_runs() -> None:
    hard, dense = paper_numbers.HARD_EXPLORATION["NGU(N=32)"], paper_numbers.DENSE_REWARDS["NGU(N=32)"]
    for game, number in paper_numbers.ABLATIONS["NGU(N=32)"].items():
        assert number == (hard | dense)[game]
    assert paper_numbers.FURTHER_ABLATIONS["NGU(N=32)"] == {
        game: hard[game] for game in ("gravitar", "solaris", "venture")
    }
    assert paper_numbers.HARD_EXPLORATION["NGU(N=1)-RND"]["pitfall"].text == "15.2k±9.4k"


def test_rows_of_humans_are_the_scores_that_are_normalised_with() -> None:
    for table in (paper_numbers.HARD_EXPLORATION, paper_numbers.DENSE_REWARDS, paper_numbers.ABLATIONS):
        for game, number in table["Human"].items():
            assert math.isclose(number.value, ATARI_GAMES[game].human, rel_tol=0.05)


# --------------------------------------------------------------------------------------------------------- experiments


def test_every_label_is_there() -> None:
    assert [name for name, entry in EXPERIMENTS.items() if not entry.ours] == LABELS


@pytest.mark.parametrize("entry", TRAINED, ids=lambda entry: entry.name)
def test_every_preset_and_variant_exists_and_every_command_means_what_it_says(entry: Experiment) -> None:
    """At every scale; the command line makes the same settings as the plan. Games differ in their name alone."""
    entry = entry.only(tuple(task.name for task in entry.tasks[:3]), ())
    for name, size in SCALES.items():
        plan = Plan(entry, size, Path("runs"), seeds=1)
        cells = plan.cells()
        configs = [cell.config() for cell in cells]
        assert all(isinstance(config, Config) for config in configs)
        assert read_config(cells[-1].train[1:]) == configs[-1], name


def test_runs_that_share_a_folder_share_their_settings() -> None:
    known: dict[tuple[str, str], tuple[str, dict[str, object]]] = {}
    for entry in TRAINED:
        for task, arm in itertools.product(entry.tasks, entry.arms):
            settings = (arm.variant, {**task.settings, **arm.settings})
            assert known.setdefault((task.name, arm.name), settings) == settings, entry.name


@pytest.mark.parametrize("entry", TRAINED, ids=lambda entry: entry.name)
def test_what_is_read_can_be_measured_and_what_the_paper_prints_has_a_place(entry: Experiment) -> None:
    metrics = {name for column in entry.columns for name in column.metrics}
    metrics |= {name for panel in entry.panels for name in panel.metrics}
    assert all(explain(name) for name in metrics)
    labels = {column.label for column in entry.columns}
    if entry.kind in ("table", "bars"):
        assert set(entry.published) - labels <= {"Human", "Best baseline", "RND", "R2D2"}
    for numbers in entry.published.values():
        assert {task.name for task in entry.tasks} & set(numbers)
    assert smoke_part(entry).arms


def test_fewer_tasks_and_variants() -> None:
    part = experiment("table_ablations").only(("pitfall",), ("ngu", "cmr-0.5"))
    assert [cell.name for cell in Plan(part, scale("paper"), Path("x"), seeds=2).cells()] == [
        "pitfall/ngu/seed-0",
        "pitfall/cmr-0.5/seed-0",
        "pitfall/ngu/seed-1",
        "pitfall/cmr-0.5/seed-1",
    ]
    with pytest.raises(UserError, match="the task pitfal of table_ablations does not exist; the nearest is pitfall"):
        experiment("table_ablations").only(("pitfal",), ())
    with pytest.raises(UserError, match="the experiment fig_disco does not exist; the nearest"):
        experiment("fig_disco")


def test_the_papers_budget_is_reckoned_by_hand() -> None:
    """342 runs of 35 billion frames at 16,540 agent steps of four frames a second."""
    spent = paper_cost(experiment("table_atari57"))
    assert spent.cells == 57 * 2 * 3
    assert spent.frames == 342 * 35_000_000_000
    assert spent.gpu_hours is not None
    assert math.isclose(spent.gpu_hours, 342 * 35e9 / 4 / 16_540 / 3600)
    here = cost(plan_of("table_atari57", budget=1000, seeds=1).cells())
    assert (here.cells, here.frames) == (114, 114 * 4000)
    assert frames_in_words(spent.frames) == "11,970 B"
    assert len(entries([plan_of(name) for name in LABELS])) == len(LABELS)


def test_gpu_hours_are_not_reckoned_for_runs_on_a_cpu() -> None:
    """Each preset has a rate of its own, and those for a CPU tell hours of a core."""
    for name, laptop in (("fig_disco_maze", "0.95 core"), ("pong_family", "1.1 core"), ("minigrid", "1.0 core")):
        hours = {size: cost(plan_of(name, size).cells()).gpu_hours for size in SCALES}
        assert [size for size in hours if hours[size] is None][-2:] == ["laptop", "smoke"]
        told = {size: entries([plan_of(name, size)])[0] for size in ("laptop", "smoke")}
        assert told["laptop"][-3].endswith(" core" if name == "minigrid" else " GPU"), "the paper's"
        assert told["laptop"][-1] == laptop
        assert told["smoke"][-1] == "not measured"


def test_hours_are_those_of_the_preset_that_is_trained() -> None:
    (node, papers) = (cost(plan_of("ngu_evals_graph", size, budget=1_000_000).cells()) for size in ("node", "paper"))
    assert (node.machine, papers.machine) == ("GPU", "GPU")
    assert node.hours == pytest.approx(12e6 / 13_200 / 3600)
    assert papers.hours == pytest.approx(12e6 / 16_540 / 3600)
    assert set(RATES) <= set(PRESETS)


def test_the_list_has_the_grid_that_it_tells_the_cost_of() -> None:
    plans = [
        plan_of("fig_disco_maze"),
        plan_of("fig_disco_maze", "laptop", seeds=1),
        Plan(smoke_part(experiment("fig_ablations")), scale("smoke"), Path("runs")),
        plan_of("beta_distrib"),
    ]
    grids = [grid for _, _, grid, *_ in entries(plans)]
    assert grids == ["1 x 3 x 3", "1 x 3 x 1", "2 x 1 x 1", "none"]
    for plan, grid in zip(plans[:3], grids, strict=False):
        assert len(plan.cells()) == math.prod(map(int, grid.split(" x ")))


@pytest.mark.parametrize("columns", [80, 120])
def test_no_name_of_the_list_is_broken_and_no_line_is_too_long(columns: int) -> None:
    for size in SCALES:
        head, units, _, *lines = in_lines([plan_of(name, size) for name in EXPERIMENTS], columns).splitlines()
        assert (head.split(), units.split()[:2]) == (["paper:", "paper:", "here:", "here:"], ["name", "frames"])
        assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(EXPERIMENTS)
        assert max(map(len, (head, units, *lines))) <= columns
        assert len(lines) < 3 * len(EXPERIMENTS)


def test_devices_threads_and_a_cluster_are_passed_on(tmp_path: Path) -> None:
    (cell, *_) = plan_of("table_action_prediction_montezuma", "laptop", tmp_path).cells()
    command = command_of(cell, "cpu", 1, ["--runner=ray", "--address=auto"])
    config = read_config(command[1:])
    assert (config.run.runner, config.ray.address, config.run.device) == ("ray", "auto", "cpu")
    assert (config.run.threads, config.env.threads, config.env.workers) == (1, 1, 1)
    assert Path(config.run.folder) / config.run.name == cell.path == tmp_path / "gravitar" / "r2d2-rnd" / "seed-0"


def test_a_scale_does_not_change_what_an_experiment_is_about() -> None:
    sizes = {
        cell.arm.name: cell.config().novelty.embedding_size for cell in plan_of("disco_maze_sizes", "smoke").cells()
    }
    assert sizes == {"state-16": 16, "state-32": 32, "state-64": 64}
    for cell in plan_of("deep_sea", "smoke").cells():
        assert cell.config().evaluation.max_steps == cell.config().env.sea_size


@pytest.mark.parametrize(
    ("name", "size", "settings", "told", "silent"),
    [
        ("table_ablations", "node", {}, ("learner.advantage_learning", "network.whiten"), ("mixture.num_mixtures",)),
        ("table_ablations", "laptop", {}, ("env.num_envs", "network.lstm_size"), ("mixture.num_mixtures",)),
        ("fig_disco_maze", "paper", {"learner.batch_size": 8}, ("learner.batch_size",), ("replay.lookahead",)),
        ("fig_disco_maze", "node", {}, (), ("Runs differ",)),
        ("fig_disco_maze", "smoke", {}, (), ("Runs differ",)),
    ],
)
def test_captions_tell_where_a_scale_trains_another_agent(
    name: str, size: str, settings: dict[str, Any], told: tuple[str, ...], silent: tuple[str, ...], tmp_path: Path
) -> None:
    plan = plan_of(name, size, tmp_path, settings=settings)
    caption = write(plan, read_collected(plan.experiment, tmp_path), "ngu reproduce").caption
    sentence = next((part for part in caption.split(". ") if part.startswith("Runs differ")), "")
    assert all(setting in sentence for setting in told)
    assert not any(setting in sentence for setting in silent)


def test_a_small_budget_still_has_a_curve() -> None:
    (cell, *_) = plan_of("ngu_evals_graph", "node", budget=1_000_000).cells()
    assert cell.config().evaluation.period == 100_000
    (cell, *_) = plan_of("ngu_evals_graph", "node").cells()
    assert cell.config().evaluation.period == 5_000_000, "the preset's, where no budget is given"


def test_every_claim_belongs_to_an_experiment_and_a_verdict_to_runs() -> None:
    for claim in CLAIMS:
        assert claim.experiment in EXPERIMENTS
        assert bool(claim.evidence) == (claim.verdict != "not yet tested")
        for evidence in claim.evidence:
            assert evidence.runs(ROOT / "results")
    with_claims = {name for name in LABELS if EXPERIMENTS[name].tasks} - {"atari57"}
    assert {claim.experiment for claim in CLAIMS} >= with_claims


def test_medians_that_a_claim_tells_follow_from_the_papers_table() -> None:
    told = next(claim.saw for claim in CLAIMS if "overall median" in claim.says)
    for column in ("NGU(32) eval beta=0.0", "R2D2(Retrace)"):
        scores = [human_normalised(game, number.value) for game, number in paper_numbers.ATARI57[column].items()]
        assert f"{np.median(scores):.1f} %" in told


def test_a_claim_can_rest_on_the_last_stretch_of_a_run(tmp_path: Path) -> None:
    values = [(100, 8.0), (200, None), (300, 2.0), (400, 3.0), (500, None)]
    rows = [{"step": step, "time": 1.0} | ({} if value is None else {"env/score": value}) for step, value in values]
    run = Results(tmp_path, "atari", "ngu", 0, {}, rows)
    told = {over: Evidence("*", "env/score", "score", over=over).value(run) for over in (0, 250, 101, 100, 1000)}
    assert told == {0: 3.0, 250: 2.5, 101: 3.0, 100: None, 1000: pytest.approx(13 / 3)}
    rows[2]["env/episodes"], rows[3]["env/episodes"] = 3, 1
    assert Evidence("*", "env/score", "score", over=250).value(run) == 2.25, "of four episodes"


# ---------------------------------------------------------------------------------------------------------- statistics


def all_resampled_means(values: np.ndarray) -> list[float]:
    """The naive twin: the mean of every one of the S^S resamples."""
    return [float(np.mean(drawn)) for drawn in itertools.product(values, repeat=len(values))]


@given(st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=5))
def test_an_interval_is_that_of_all_resamples(numbers: list[float]) -> None:
    values = np.array(numbers)
    low, high = bootstrap_interval([values], mean_over_tasks)
    means = np.sort(all_resampled_means(values))
    # Random resamples of a discrete distribution: a quantile may be off by what one percent of the mass spans.
    bounds = [np.quantile(means, share, method=side) for share, side in
              ((0.015, "lower"), (0.035, "higher"), (0.965, "lower"), (0.985, "higher"))]  # fmt: skip
    slack = 1e-9 * (1 + np.abs(values).max())
    assert bounds[0] - slack <= low <= bounds[1] + slack
    assert bounds[2] - slack <= high <= bounds[3] + slack


def test_an_interval_of_many_normal_values_is_the_known_one() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, 100)
    low, high = bootstrap_interval([values], mean_over_tasks)
    half = 1.96 * values.std() / 10
    assert math.isclose(low, values.mean() - half, abs_tol=0.05)
    assert math.isclose(high, values.mean() + half, abs_tol=0.05)


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        low, high = bootstrap_interval([generator.normal(0.0, 1.0, 30)], mean_over_tasks, resamples=500)
        hits += low <= 0.0 <= high
    assert 0.88 <= hits / 200 <= 0.99


def test_tasks_are_resampled_each_among_its_own() -> None:
    """Constant tasks have no spread, however different they are from each other."""
    strata = [np.full(3, 1.0), np.full(2, 10.0), np.full(4, 40.0)]
    assert bootstrap_interval(strata, mean_over_tasks) == (17.0, 17.0)
    assert bootstrap_interval(strata, median_over_tasks) == (10.0, 10.0)


def test_one_seed_has_no_interval_and_bands_are_intervals_at_each_point() -> None:
    assert bootstrap_interval([np.array([7.0])], mean_over_tasks) == (7.0, 7.0)
    values = np.random.default_rng(3).normal(size=(4, 6))
    low, high = bootstrap_bands(values, resamples=10_000)
    for place in range(6):
        assert np.allclose((low[place], high[place]), bootstrap_interval([values[:, place]], mean_over_tasks))


# ------------------------------------------------------------------------------------------------- tables and figures


def write_run(folder: Path, task: str, arm: str, seed: int, values: dict[str, tuple[float, ...]]) -> None:
    """A results file with evaluations at 0, 100, 200, ... steps."""
    path = folder / task / f"{arm}-seed{seed}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    header = f"# preset: atari\n# variant: {arm}\n# seed: {seed}\n# machine: a test\n# game: {task}\n"
    rows = [
        f"{100 * place},1.0,{','.join(map(str, row))}" for place, row in enumerate(zip(*values.values(), strict=True))
    ]
    path.write_text("\n".join([f"{header}step,time,{','.join(values)}", *rows]) + "\n")


def test_a_table_holds_what_was_measured_beside_what_the_paper_prints(tmp_path: Path) -> None:
    """Means over seeds of the last evaluation; beta_0 for a family, the only policy otherwise."""
    for seed, score in enumerate((1000.0, 3000.0)):
        family = {"eval/exploit/score": (0.0, score), "eval/explore/score": (0.0, 9.0)}
        for game in ("montezuma_revenge", "pitfall"):
            write_run(tmp_path, game, "ngu", seed, family)
    write_run(tmp_path, "pitfall", "r2d2-retrace", 0, {"eval/explore/score": (0.0, -5.0)})
    write_run(tmp_path, "montezuma_revenge", "r2d2-rnd", 0, {"eval/explore/score": (0.0, -0.01)})
    entry = experiment("table_action_prediction_montezuma").only(
        ("montezuma_revenge", "pitfall"), ("ngu", "r2d2-retrace", "r2d2-rnd")
    )
    found = {(place.agent, place.task): place for place in places(entry, read_collected(entry, tmp_path))}
    place = found["NGU(N=32)", "Montezuma's Revenge"]
    assert place.ours is not None
    assert (place.ours.value, place.ours.low, place.ours.high) == (2000.0, 1000.0, 3000.0)
    assert (place.ours.seeds, place.ours.frames) == (2, 400)
    assert place.lines() == ["2.0k [1.0k, 3.0k]", "paper 10.4k±1.6k"]
    assert found["R2D2(Retrace)", "Pitfall!"].lines() == ["-5.0", "paper -3.5±1.2"]
    assert found["R2D2(Retrace)", "Montezuma's Revenge"].lines() == ["not run", "paper 2.3k±0.4k"]
    assert found["Human", "Pitfall!"].lines() == ["", "paper 6.5k"]
    assert found["R2D2+RND", "Montezuma's Revenge"].lines()[0] == "0.0", "not -0.0"
    mean = found["NGU(N=32)", "mean HNS, %"]
    assert mean.ours is not None
    by_hand = [100 * 2000 / 4753.3, 100 * (2000 + 229.4) / (6463.7 + 229.4)]
    assert math.isclose(mean.ours.value, sum(by_hand) / 2)
    assert mean.paper == f"{(100 * 10_400 / 4753.3 + 100 * (8400 + 229.4) / (6463.7 + 229.4)) / 2:.1f}"
    assert found["R2D2(Retrace)", "mean HNS, %"].ours is None, "a game is missing"


def test_every_rung_of_a_ladder_has_a_number_of_its_own(tmp_path: Path) -> None:
    for name, first, last in (("beta_distrib", "0.00000", "0.30000"), ("gamma_distrib", "0.99700", "0.99000")):
        entry = experiment(name)
        found = places(entry, read_collected(entry, tmp_path))
        printed = [line for place in found for line in place.lines()]
        assert (printed[0], printed[-1]) == (first, last)
        assert len(set(printed)) == 32
        assert f"| i = 31 | {last} |" in markdown(found)


# ------------------------------------------------------------------------------------------------- tables of settings

SETTINGS = [entry for entry in EXPERIMENTS.values() if entry.kind == "settings"]


@pytest.mark.parametrize(
    ("name", "preset_name", "numbers"),
    [("table_hyper_montezuma_common", "atari", 31), ("table_hyper_discomaze", "disco-maze", 17),
     ("table_hyper_atari", "atari", 1)],
)  # fmt: skip
def test_settings_are_what_the_paper_prints(name: str, preset_name: str, numbers: int) -> None:
    """Read from the printed line, not from the other transcription in `test_presets.py`."""
    held, compared = flat_settings(preset(preset_name)), 0
    for line in EXPERIMENTS[name].lines:
        assert bool(line.settings) or line.built
        if not line.settings or line.built:
            continue
        values = [held[setting] for setting in line.settings]
        try:
            printed = ast.literal_eval(line.printed)
        except (SyntaxError, ValueError):
            continue
        compared += len(values)
        assert all((tuple(value) if isinstance(value, list) else value) == printed for value in values), line.name
    assert compared == numbers, "a line is compared with what it prints, or says how it is built"


def test_every_value_of_the_ranges_is_run() -> None:
    """table_hyper_ranges and, of R2D2+RND, App. F.1."""
    tried: dict[str, set[float]] = {}
    entry = experiment("table_hyper_ranges").only(("pong",), ())
    for cell in Plan(entry, scale("paper"), Path("runs"), seeds=1).cells():
        config = cell.config()
        family = "R2D2+RND" if config.variant == "r2d2-rnd" else "NGU"
        tried.setdefault(f"{family} beta", set()).add(config.mixture.beta)
        if family == "NGU":
            tried.setdefault("N", set()).add(config.mixture.num_mixtures)
            tried.setdefault("ratio", set()).add(config.mixture.cross_mixture_ratio)
            tried.setdefault("episodes", set()).add(config.novelty.memory_episodes)
    assert tried == {
        "NGU beta": {0.2, 0.3, 0.5}, "N": {1, 2, 8, 16, 32}, "ratio": {0.0, 0.25, 0.5}, "episodes": {1, 3},
        "R2D2+RND beta": {0.1, 0.3, 0.5},
    }  # fmt: skip


def test_the_agents_of_the_paper_have_its_actors_and_frames() -> None:
    lines = EXPERIMENTS["table_computation_comparison"].lines
    told = {line.name: (line.printed, held_by(line, "atari")) for line in lines}
    assert len(told) == 10
    for name, (printed, here) in told.items():
        if here == "not part of ngu":
            continue
        actors, frames = 256, 35_000_000_000
        assert printed == f"{actors} actors, {frames // 1_000_000_000} B frames", name
        assert here == f"env.num_envs {actors}; run.steps {frames // 4:,}; 4 frames a step"


@pytest.mark.parametrize("entry", SETTINGS, ids=lambda entry: entry.name)
def test_a_table_of_settings_has_the_papers_column_and_one_for_each_preset(entry: Experiment, tmp_path: Path) -> None:
    found = places(entry, read_collected(entry, tmp_path))
    rows = list(csv.DictReader(as_csv(entry, found).splitlines()))
    assert [row["setting"] for row in rows] == [line.name for line in entry.lines]
    assert [row["paper"] for row in rows] == [line.printed for line in entry.lines]
    assert list(rows[0]) == ["setting", "paper", *entry.presets]
    assert all(all(row.values()) for row in rows)


def test_unequal_budgets_are_told(tmp_path: Path) -> None:
    write_run(tmp_path, "pitfall", "ngu", 0, {"eval/exploit/score": (0.0, 10.0, 20.0)})
    write_run(tmp_path, "pitfall", "r2d2-retrace", 0, {"eval/explore/score": (0.0, -5.0)})
    entry = experiment("table_action_prediction_montezuma").only(("pitfall",), ("ngu", "r2d2-retrace"))
    table = markdown(places(entry, read_collected(entry, tmp_path)))
    assert "20.0 after 800<br>paper" in table
    assert "-5.0 after 400<br>paper" in table
    # Equal ones differ from the paper's still.
    write_run(tmp_path, "pitfall", "ngu", 0, {"eval/exploit/score": (0.0, 20.0)})
    assert "20.0 after 400<br>paper" in markdown(places(entry, read_collected(entry, tmp_path)))


def test_equal_budgets_are_not_told_where_the_paper_has_no_number_unless_asked(tmp_path: Path) -> None:
    entry = experiment("pong_family")
    for name, steps in (("raw-rewards", 2), ("unbalanced", 2), ("unbalanced", 3)):
        write_run(tmp_path, "pong", name, 0, {"eval/exploit/score": (1.0, 2.0, 3.0)[:steps]})
        found = places(entry, read_collected(entry, tmp_path))
        assert ("after" in markdown(found)) == (steps == 3)
        assert "after" in markdown(found, budgets=True)


def test_a_run_that_lacks_a_measurement_is_not_called_one_that_was_not_run(tmp_path: Path) -> None:
    write_run(tmp_path, "pong", "r2d2-retrace", 0, {"loss/retrace": (0.0, 5.0)})
    entry = experiment("pong_family").only(("pong",), ("r2d2-retrace", "raw-rewards"))
    collected = read_collected(entry, tmp_path)
    table = markdown(places(entry, collected))
    assert "| R2D2(Retrace) | not measured |" in table
    assert table.count("not run") == 1
    assert draw(entry, collected, LIGHT) is None


def test_training_episodes_speak_for_runs_without_an_evaluation_and_are_called_so(tmp_path: Path) -> None:
    """The mean over the last half of a short run, each line with the weight of its episodes."""
    scores = {"env/score": (90.0, 90.0, 10.0, 40.0), "env/score/exploit": (0.0, 0.0, 1.0, 4.0)}
    write_run(tmp_path, "pitfall", "ngu", 0, {**scores, "env/episodes": (9.0, 9.0, 2.0, 1.0)})
    write_run(tmp_path, "pitfall", "r2d2-retrace", 0, {"env/score": (9.0, 9.0, 10.0, 40.0)})
    write_run(tmp_path, "pitfall", "ngu-n1", 0, {"eval/explore/score": (1.0, 7.0), "env/score": (9.0, 9.0)})
    entry = experiment("table_action_prediction_montezuma").only(("pitfall",), ("ngu", "r2d2-retrace", "ngu-n1"))
    collected = read_collected(entry, tmp_path)
    found = {place.agent: place for place in places(entry, collected) if place.task == "Pitfall!"}
    assert found["NGU(N=32)"].lines(with_budget=True) == ["2.0 in training after 1.2k", "paper 8.4k±4.5k after 35 B"]
    assert found["R2D2(Retrace)"].lines()[0] == "25.0 in training"
    assert found["NGU(N=1)"].lines()[0] == "7.0"
    assert "Pitfall!,NGU(N=32),score (training),2.0" in as_csv(entry, list(found.values()))
    plan = plan_of(entry.name, "laptop", tmp_path)
    assert "In training: no evaluation was made" in write(plan, collected, "ngu reproduce").caption
    curves = experiment("ap_mr_graph").only(("pitfall",), ("ngu", "ngu-n1"))
    figure = draw(curves, read_collected(curves, tmp_path), LIGHT)
    assert figure is not None
    written = {text.get_text() for text in figure.axes[0].texts}
    assert {"NGU(N=32), in training", "NGU(N=1)"} <= written


def test_what_stands_for_an_evaluation() -> None:
    assert in_training(SCORE) == ("env/score/exploit", "env/score", "env/score/explore")
    assert in_training(("eval/explore/score/episode_3",)) == ("env/score/explore/episode_3", "env/score/episode_3")
    assert in_training(("probe/position/squared_error",)) == ()
    assert in_training(("env/score/explore", "eval/explore/score")) == ()


def test_an_agent_of_ours_that_is_not_run_says_so_whatever_others_are_called(tmp_path: Path) -> None:
    """RND is an agent of ours on the maze, and a row of others in the paper's tables of games."""
    plan = plan_of("fig_disco_maze", "laptop", tmp_path)
    collected = read_collected(plan.experiment, tmp_path)
    assert [place.lines() for place in places(plan.experiment, collected)] == [["not run"]] * 3
    entry = experiment("table_action_prediction_montezuma")
    by_others = {place.agent for place in places(entry, read_collected(entry, tmp_path)) if place.lines()[0] == ""}
    assert by_others == {"Human", "Best baseline", "RND"}
    numbers = [(row, number) for entry in TRAINED for row, line in entry.published.items() for number in line.values()]
    assert {row for row, number in numbers if number.quoted} == {"Human", "Best baseline", "RND", "R2D2"}
    assert not {row for row, number in numbers if number.quoted} & {row for row, number in numbers if not number.quoted}


def test_a_page_shows_the_figure_that_was_drawn_and_no_other(tmp_path: Path) -> None:
    plan = plan_of("pong_family", "laptop", tmp_path)
    for drawn in (False, True):
        if drawn:
            write_run(tmp_path, "pong", "unbalanced", 0, {"env/score": (0.0, 5.0)})
        write(plan, read_collected(plan.experiment, tmp_path), "ngu reproduce")
        assert (plan.output / "figure.png").is_file() == drawn
        assert ("figure.png" in (plan.output / "table.md").read_text()) == drawn


def test_what_the_paper_did_is_not_told_of_experiments_that_are_not_of_it(tmp_path: Path) -> None:
    for name, of_the_paper in (("pong_family", False), ("ng1_l_pitfall", True)):
        plan = plan_of(name, "laptop", tmp_path)
        for begun in (False, True):
            if begun:
                write_run(
                    tmp_path, plan.experiment.tasks[0].name, plan.experiment.arms[0].name, 0, {"env/score": (1.0,)}
                )
            caption = write(plan, read_collected(plan.experiment, tmp_path), "ngu reproduce").caption
            assert ("runs, each of" in caption) == begun
            assert ("35 B frames" in caption) == of_the_paper
            assert ("that it does not say" in caption) is False
            assert ("Not of the paper." in caption) != of_the_paper


def test_evaluations_that_cut_games_short_are_told(tmp_path: Path) -> None:
    captions = {}
    for size in ("node", "paper"):
        plan = plan_of("table_action_prediction_montezuma", size, tmp_path)
        captions[size] = write(plan, read_collected(plan.experiment, tmp_path), "ngu reproduce").caption
    assert "Our evaluations end a game after 18,000 frames, the paper's after 108,000." in captions["node"]
    assert "end a game" not in captions["paper"]


def test_a_curve_has_the_mean_over_seeds_where_all_have_values(tmp_path: Path) -> None:
    write_run(tmp_path, "pitfall", "ngu", 0, {"eval/exploit/score": (0.0, 10.0, 20.0)})
    write_run(tmp_path, "pitfall", "ngu", 1, {"eval/exploit/score": (0.0, 30.0)})
    entry = experiment("ap_mr_graph").only(("pitfall",), ("ngu",))
    collected = read_collected(entry, tmp_path)
    curve = collected.curve(entry.columns[0], entry.tasks[0])
    assert curve is not None
    assert curve.steps.tolist() == [0.0, 100.0]
    assert curve.mean.tolist() == [0.0, 20.0]
    assert (curve.low[-1], curve.high[-1]) == (10.0, 30.0)
    assert [steps.tolist() for steps, _ in curve.tails] == [[100.0, 200.0]]
    figure = draw(entry, collected, LIGHT)
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Pitfall!: score in evaluation"]
    assert draw(entry, read_collected(entry, tmp_path / "none"), LIGHT) is None


def test_a_preset_that_wants_one_thread_gets_one_and_others_all(tmp_path: Path) -> None:
    (maze, *_) = plan_of("fig_disco_maze", "laptop", tmp_path).cells()
    assert read_config(command_of(maze, "cpu", 2)[1:]).run.threads == 1
    (level, *_) = plan_of("minigrid", "laptop", tmp_path).cells()
    config = read_config(command_of(level, "cpu", 2)[1:])
    assert (config.run.threads, config.env.workers) == (1, 2)
    (game, *_) = plan_of("pong_family", "laptop", tmp_path).cells()
    config = read_config(command_of(game, "cpu", 2)[1:])
    assert (config.run.threads, config.env.threads) == (2, 2)
    (game, *_) = plan_of("pong_family", "laptop", tmp_path, settings={"env.threads": 1}).cells()
    config = read_config(command_of(game, "cpu", 2)[1:])
    assert (config.run.threads, config.env.threads) == (2, 1), "as it was asked for"
    (game, *_) = plan_of("pong_family", "laptop", tmp_path, settings={"run.threads": 3}).cells()
    assert read_config(command_of(game, "cpu", 2)[1:]).run.threads == 3, "as it was asked for"
