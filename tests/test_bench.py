"""`ngu bench`: clocks that are right about known times, and measurements that agree with each other."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY, make_tiny_config
from test_bad_input import check_sentence
from tiny_runs import options
from toy_environments import ScriptedEpisodes

from ngu.benchmarks import Benchmark, HostedBenchmark, measure_hosted
from ngu.benchmarks.acting import StillEnvironment, acting_times, still_actor
from ngu.benchmarks.emulators import BareEmulators
from ngu.benchmarks.table import PARTS
from ngu.benchmarks.timing import CallTimes, kernels, milliseconds
from ngu.benchmarks.whole import WholeAgent
from ngu.cli import main
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.envs.protocol import EnvironmentSpec, Step
from ngu.presets import preset

CPU = torch.device("cpu")

ATARI = {
    **{name: value for name, value in TINY.items() if not name.startswith(("env.", "evaluation."))},
    "env.num_envs": 4,
    "mixture.num_mixtures": 2,
    "novelty.filters": (4, 8, 8),
    "novelty.memory_capacity": 1500,
    "network.filters": (4, 8, 8),
}
CARTPOLE = {
    "env__name": "gym",
    "env__id": "CartPole-v1",
    "env__num_envs": 4,
    "env__workers": 1,
    "evaluation__marks": (),
    "mixture__num_mixtures": 2,
}


def atari(**changes: Any) -> Config:
    return with_overrides(preset("atari-cpu"), ATARI | {name.replace("__", "."): v for name, v in changes.items()})


# ------------------------------------------------------------------------------------------------------- the clocks


@pytest.fixture
def known_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A clock that stands still but in `time.sleep`, so that times are known whatever else the machine does."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: now[0])
        patch.setattr(time, "sleep", sleep)
        yield


@pytest.mark.usefixtures("known_time")
def test_a_call_is_timed_without_what_prepares_it() -> None:
    prepared = []

    def prepare() -> None:
        prepared.append(len(prepared))
        time.sleep(0.05)

    measured = milliseconds(lambda: time.sleep(0.005), CPU, 0.018, before=prepare)
    assert measured == pytest.approx(5)
    assert len(prepared) == 5, "ahead of the warm-up and of each of four calls"


@pytest.mark.usefixtures("known_time")
def test_a_slow_call_is_timed_three_times() -> None:
    calls = []
    milliseconds(lambda: calls.append(time.sleep(0.01)), CPU, 0.001)
    assert len(calls) == 4, "one of them to warm up"


def test_kernels_are_counted_on_a_gpu_alone() -> None:
    assert kernels(lambda: None, CPU) is None


class Nested:
    """Calls inside of calls, of known length."""

    def __init__(self) -> None:
        self.lookup = lambda: time.sleep(0.01)

    def outer(self) -> str:
        time.sleep(0.02)
        self.inner()
        self.inner()
        return "result"

    def inner(self) -> None:
        time.sleep(0.03)
        self.lookup()


@pytest.mark.usefixtures("known_time")
def test_time_belongs_to_the_innermost_named_call() -> None:
    nested, times = Nested(), CallTimes()
    own = nested.lookup
    with times.watching([("outer", nested, "outer"), ("inner", nested, "inner"), ("lookup", nested, "lookup")]):
        assert nested.outer() == "result"
    assert times.seconds == pytest.approx({"outer": 0.02, "inner": 0.06, "lookup": 0.02})
    assert vars(nested) == {"lookup": own}, "the object is as it was"


@pytest.mark.usefixtures("known_time")
def test_calls_may_share_a_name_and_may_fail() -> None:
    nested, times = Nested(), CallTimes()
    nested.lookup = lambda: 1 // 0
    with pytest.raises(ZeroDivisionError), times.watching([("all", nested, "inner"), ("all", nested, "lookup")]):
        nested.inner()
    assert times.seconds["all"] == pytest.approx(0.03)
    assert "inner" not in vars(nested)
    with times.watching([("all", nested, "inner")]):
        nested.lookup = lambda: None
        nested.inner()
    assert times.seconds["all"] == pytest.approx(0.06)


# ------------------------------------------------------------------------------------------------- the bare emulator


class Paced(ScriptedEpisodes):
    """Environments whose steps take known times, in turn, beside the process that waits for them.

    Episodes have three transitions, so every fourth step is an automatic reset.
    """

    def __init__(self, seconds: list[float]) -> None:
        super().__init__([[(3, "terminated")]] * 2)
        self.seconds = seconds
        self.count = 0
        self.ready: float | None = None
        self.reset(0)

    def send(self, action: torch.Tensor) -> None:
        assert self.ready is None, "a step is under way already"
        super().send(action)
        self.ready = time.perf_counter() + self.seconds[self.count % len(self.seconds)]
        self.count += 1

    def recv(self) -> Step:
        if self.ready is not None:
            time.sleep(max(self.ready - time.perf_counter(), 0))
            self.ready = None
        return super().recv()


@pytest.mark.usefixtures("known_time")
def test_groups_that_overlap_hide_each_others_slow_steps() -> None:
    """Steps take 30 and 90 ms in turn, in one group when they do not in the other.

    In lock step every round takes 90 ms; overlapped, two rounds take 120.
    """
    groups = [Paced([0.03, 0.09]), Paced([0.09, 0.03])]
    for group in groups:
        group.send(torch.zeros(2, dtype=torch.int64))
    bare = BareEmulators(groups)
    lock_step, overlapped = bare.lock_step(1.5), bare.overlapped(1.5)
    assert lock_step.env_steps_per_second == pytest.approx(4 / 0.09)
    assert overlapped.env_steps_per_second == pytest.approx(4 / 0.06, rel=0.05)  # it may end in the middle of the 120
    for rate in (lock_step, overlapped):
        assert rate.reset_share == pytest.approx(0.25, abs=0.1)
        assert 1.5 <= rate.seconds < 1.6
    assert all(group.ready is not None for group in groups), "a step is under way, as a runner expects"
    actions = torch.cat([action for group in groups for action in group.received])
    assert set(actions.tolist()) == {0, 1, 2}, "all actions are tried"


# ------------------------------------------------------------------------------------------------------- the agent


@pytest.fixture
def cartpole() -> Iterator[WholeAgent]:
    """Episodes of some twenty steps in four environments of two groups; memories are never wiped."""
    config = make_tiny_config(**CARTPOLE, env__groups=2, novelty__memory_episodes=10**6)
    agent = WholeAgent(config)
    agent.begin()
    agent.warm_up()
    yield agent
    agent.close()


@pytest.mark.parametrize("ratio", [0.0, 1.5, 40.0])
def test_the_agent_does_what_it_is_counted_for(cartpole: WholeAgent, ratio: float) -> None:
    replay, learner = cartpole.agent.replay, cartpole.agent.learner
    rows, updates = replay.rows_written.clone(), learner.updates
    run = cartpole.measure(ratio, 0.3, fill=100)
    written = replay.rows_written - rows
    assert written.unique().numel() == 1
    settling = int(written[0]) - run.steps // 4
    assert 0 < settling < 10
    assert run.group_steps == run.steps // 2
    assert run.updates == learner.updates - updates == int(run.steps * ratio / (8 * 8))
    assert run.seconds >= 0.3
    assert run.memory_filled == (100, 100 + int(written[0])), "entries are added and none is lost"
    assert 0.02 < run.reset_share < 0.2
    assert set(run.call_seconds) == set(PARTS) - {"replay"}, "that is for a replay apart from the actor"
    assert sum(run.call_seconds.values()) == pytest.approx(run.seconds)
    assert min(run.call_seconds.values()) >= 0
    assert (run.call_seconds["learner"] > 0) == (ratio > 0)


def test_a_measurement_ends_with_an_update(cartpole: WholeAgent) -> None:
    """64 steps belong to an update; a measurement of no time at all still collects them."""
    run = cartpole.measure(1.0, 1e-9, fill=0)
    assert (run.steps, run.updates) == (64, 1)


def test_agent_and_bare_emulator_take_turns(cartpole: WholeAgent) -> None:
    bare = BareEmulators([actor.env for actor in cartpole.agent.actors])
    for ratio in (0.0, 2.0):
        assert bare.overlapped(0.05).env_steps_per_second > 0
        assert cartpole.measure(ratio, 0.1, fill=0).steps > 0
        assert 0 < bare.lock_step(1.0).reset_share < 1  # long enough for episodes to end on a busy machine


def test_environments_that_stand_still_look_like_others() -> None:
    picture = EnvironmentSpec((1, 6, 5), torch.uint8, 3, measurements=("score",))
    for spec in (picture, EnvironmentSpec((4,), torch.float32, 2)):
        env = StillEnvironment(spec, 7)
        step = env.reset(0)
        assert step.observation.shape == (7, *spec.observation_shape)
        assert step.observation.dtype == spec.observation_dtype
        assert step.observation.unique().numel() > 10
        assert step.first.all()
        env.send(torch.zeros(7, dtype=torch.int64))
        assert not env.recv().first.any()
        assert list(env.recv().info) == list(spec.measurements)


def test_acting_is_timed_with_memories_as_full_as_stated(cartpole: WholeAgent) -> None:
    spec = cartpole.agent.actors[0].env.spec
    actor = still_actor(cartpole.config, spec, 6, cartpole.agent.learner)
    memory = actor.novelty.memory
    assert memory is not None
    empty, full = acting_times(actor, [0, memory.capacity])
    assert (empty.num_envs, empty.num_mixtures, empty.memory_filled) == (6, 2, 0)
    assert full.memory_filled == memory.capacity
    for measured in (empty, full):
        assert measured.knn_ms is not None
        assert 0 < measured.knn_ms < measured.step_ms
        assert measured.compute_ms > 0
    assert full.knn_ms > empty.knn_ms
    assert memory.entries.std() > 0.2, "random states, not zeros"


# ------------------------------------------------------------------------------------------------- the whole command


@pytest.fixture(scope="module")
def result() -> HostedBenchmark:
    return measure_hosted(atari(env__groups=2), 0.2, fill=1000, growth=True)


def numbers(tree: Any) -> Iterator[float]:
    """All numbers of nested data."""
    if isinstance(tree, dict | list | tuple):
        for entry in tree.values() if isinstance(tree, dict) else tree:
            yield from numbers(entry)
    elif isinstance(tree, int | float) and not isinstance(tree, bool):
        yield tree


def test_the_measurements_agree_with_each_other(result: HostedBenchmark) -> None:
    assert [rate.replay_ratio for rate in result.agent] == [0, 1.25, 1.5, 8, 16], "the usual ones and the config's own"
    assert len(result.bare_overlapped) == 6
    rates = [rate.env_steps_per_second for rate in result.bare_overlapped]
    assert result.bare_env_steps_per_second == pytest.approx(sum(rates) / 6)
    for place, rate in enumerate(result.agent):
        assert rate.bare_env_steps_per_second == pytest.approx((rates[place] + rates[place + 1]) / 2)
        assert rate.ratio_to_bare == pytest.approx(rate.env_steps_per_second / rate.bare_env_steps_per_second)
        assert 0 < rate.ratio_to_bare < 1
        assert rate.frames_per_second == 4 * rate.env_steps_per_second
        assert (rate.updates_per_second > 0) == (rate.replay_ratio > 0)
        # A group of two steps is the grain of the count, and an update belongs to at least four steps.
        assert 0.6 * rate.replay_ratio <= rate.trained_per_collected <= rate.replay_ratio
        trained = rate.updates_per_second * 8 * 8 / rate.env_steps_per_second
        assert trained == pytest.approx(rate.trained_per_collected)
        assert rate.memory_filled_at_start == 1000 < rate.memory_filled_at_end
        group_steps_per_second = rate.env_steps_per_second / 2
        assert sum(rate.group_step_ms.values()) == pytest.approx(1e3 / group_steps_per_second)
    assert result.agent[0].updates_per_second < result.agent[-1].updates_per_second
    assert all(number >= 0 for number in numbers(result.to_dict()))


def test_the_parts_are_measured_alone(result: HostedBenchmark) -> None:
    learner = dataclasses.asdict(result.learner)
    assert (learner.pop("batch_size"), learner.pop("trace_length")) == (8, 8)
    assert learner["update_ms"] > learner["sampling_ms"] > 0
    assert [(time.num_envs, time.memory_filled) for time in result.acting] == [(2, 0), (2, 1500), (4, 0), (4, 1500)]
    growth = result.growth
    assert growth is not None
    sizes = [(time.num_envs, time.memory_filled) for time in growth.environments]
    assert sizes == [(envs, fill) for envs in (1, 2, 4, 8) for fill in (0, 1500)]
    assert [time.memory_filled for time in growth.memory_filled] == [0, 1000, 1500]
    assert [(time.num_mixtures, time.memory_filled) for time in growth.mixtures] == [(1, 1000), (2, 1000)]
    assert growth.too_large == []
    for time_ in [*result.acting, *growth.environments, *growth.memory_filled, *growth.mixtures]:
        assert time_.knn_ms is not None
        assert 0 < time_.knn_ms < time_.step_ms
        assert time_.compute_ms > 0


def test_what_is_occupied_and_what_was_changed(result: HostedBenchmark) -> None:
    memory = result.memory
    assert (
        0 < memory.resident_at_start < memory.resident_when_warm + 64 * 2**20
    )  # what other tests left may go meanwhile
    assert memory.resident_at_end == pytest.approx(memory.resident_when_warm, rel=0.2)
    assert (memory.gpu_allocated, memory.gpu_peak) == (None, None)
    assert memory.replay_capacity == 1600
    assert 1600 * 84 * 84 < memory.replay < 2 * 1600 * 84 * 84
    assert memory.episodic_memories >= 4 * 4 * 1500 * 8
    assert result.changed_settings == {
        "replay.min_sequences": (20, 8),
        "novelty.memory_episodes": (1, 1_000_000),
    }
    assert (result.memory_slots, result.memory_fill) == (1500, 1000)
    assert result.kernels is None
    assert result.build_seconds > 0
    assert result.reset_seconds > 0


def test_the_table_shows_all_of_it(result: HostedBenchmark) -> None:
    text = result.table()
    title = text.splitlines()[0]
    for part in ("atari-cpu", "pong", "CPU", "fp32", "cores", "4 environments in 2 groups", "emulator threads"):
        assert part in title
    for rate in result.agent:
        assert f"{rate.env_steps_per_second:,.0f}" in text
        assert f"{rate.frames_per_second:,.0f}" in text
        assert f"{rate.ratio_to_bare:.1%}" in text
    for bare in (result.bare_lock_step, *result.bare_overlapped):
        assert f"{bare.env_steps_per_second:,.0f}" in text
    for name in result.agent[0].group_step_ms:
        assert PARTS[name] in text
    for word in ("acting alone", "frames/s", "k-NN", "over environments", "over memory", "over N", "resident"):
        assert word in text
    for block in text.split("\n\n"):
        assert block.strip()
        assert all(line == line.rstrip() for line in block.splitlines())


def test_the_plot(result: HostedBenchmark, tmp_path: Path) -> None:
    from ngu.benchmarks.figure import draw, write_plot
    from ngu.report.style import LIGHT

    assert len(draw(result, LIGHT).axes) == 4
    rates = draw(dataclasses.replace(result, growth=None), LIGHT).axes
    assert len(rates) == 1
    agent, bare = rates[0].get_lines()
    assert list(agent.get_xdata()) == [0, 1.25, 1.5, 8, 16]
    assert list(agent.get_ydata()) == [rate.env_steps_per_second for rate in result.agent]
    assert list(bare.get_ydata()) == [rate.bare_env_steps_per_second for rate in result.agent]
    written = write_plot(result, tmp_path / "growth.png")
    assert written.read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_benchmark_on_a_gpu() -> None:
    changes = {"run__device": "cuda", "run__precision": "fp16", "run__compile": False}
    found = measure_hosted(atari(env__groups=2, **changes), 0.5, (0, 2), fill=1000)
    assert found.device == torch.cuda.get_device_name()
    assert found.kernels is not None
    assert found.kernels["update"] > found.kernels["sampling"] > 1
    assert found.kernels["acting"] > 1
    assert found.memory.gpu_allocated is not None
    assert found.memory.replay_place == "cuda"
    assert found.memory.replay < found.memory.gpu_allocated
    for rate in found.agent:
        assert rate.ratio_to_bare == pytest.approx(rate.env_steps_per_second / rate.bare_env_steps_per_second)
        assert (rate.updates_per_second > 0) == (rate.replay_ratio > 0)
        assert rate.memory_filled_at_end > 1000


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    line = ["bench", "atari-cpu", *options(ATARI), "--seconds", "0.2", "--ratios", "2", "0", "--json"]
    assert main([*line, "--plot", str(plot)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [rate["replay_ratio"] for rate in found["agent"]] == [0, 2]
    assert found["memory_fill"] == 1500, "full, where fewer than 10,000 fit"
    assert found["growth"] is None
    assert found["environment"] == "pong"
    assert plot.is_file()


def test_the_command_serves_gymnasium_and_variants_without_a_memory(capsys: pytest.CaptureFixture[str]) -> None:
    changes = {name.replace("__", "."): value for name, value in CARTPOLE.items() if value != ()}
    settings = {**ATARI, "replay.min_sequences": 4, **changes}
    line = ["bench", "gym", "--variant", "rnd-only", *options(settings), "--seconds", "0.1", "--ratios", "0", "1"]
    assert main(line) == 0
    text = capsys.readouterr().out
    assert "CartPole-v1" in text.splitlines()[0]
    assert "frames/s" not in text
    assert "memory_episodes" not in text


def test_the_kernels_of_an_atari_agent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "atari-cpu", *options(ATARI), "--kernels", "--fill", "1000"]) == 0
    text = capsys.readouterr().out
    for part in ("acting", "sampling", "update"):
        assert f"{part}: " in text
    assert "aten::" in text


def test_the_disco_maze_has_its_own_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *options(TINY), "--seconds", "0.2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ratio_to_bare"] == pytest.approx(found["env_steps_per_second"] / found["bare_env_steps_per_second"])
    assert 0.3 < found["experience_share"] < 1, "episodes of at most twelve steps"
    assert all(number > 0 for number in numbers(found))
    title, *rows = Benchmark(**found).table().splitlines()
    assert title.startswith("disco-maze-small, ngu, CPU")
    assert f"{found['env_steps_per_second']:,.0f}" in rows[0]
    assert len(rows) == 10


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--seconds", "0"], "seconds is 0; give a number above 0."),
        (["--seconds", "-3"], "seconds is -3; give a number above 0."),
        (["--seconds", "nan"], "seconds is nan; give a number above 0."),
        (
            ["--ratios", "4", "-1"],
            "the ratio -1 of trained to collected steps cannot be measured; give 0 (acting alone)",
        ),
        (["--ratios", "0.001"], "the ratio 0.001 of trained to collected steps cannot be measured; give 0 (acting"),
        (["--ratios", "nan"], "the ratio nan of trained to collected steps cannot be measured; give 0 (acting alone)"),
        (["--ratios", "1e6"], "or numbers from 0.1 to 1000."),
        (["--ratios", "many"], "ratios is 'many'; give "),
        (["--ratios"], "--ratios needs a value; give "),
        (
            ["--fill", "5001"],
            "memories cannot be filled to 5,001 entries; give a number from 0 to 5,000 (novelty.memory",
        ),
        (["--fill", "-1"], "memories cannot be filled to -1 entries; give a number from 0 to 5,000"),
        (["--fill", "1", "--variant", "rnd-only"], "give a number from 0 to 0 (this variant has no episodic memory)."),
        (["--plot", "plot.svg"], "the plot is a PNG file; give --plot a name that ends in .png, not plot.svg."),
        (["--plot", "/nowhere/plot.png"], "the folder /nowhere does not exist; make it or choose another --plot."),
        (["--env.game", "pongg"], "pong"),
    ],
)
def test_mistakes_are_told_in_one_sentence(argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "atari-cpu", *argv]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert sentence in check_sentence(printed.err)


@pytest.mark.parametrize("argv", [["--ratios", "1"], ["--fill", "0"], ["--growth"], ["--plot", "plot.png"]])
def test_what_needs_environments_on_the_host_says_so(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "disco-maze-small", *argv]) == 2
    sentence = check_sentence(capsys.readouterr().err)
    assert sentence.startswith(f"{argv[0]} is for environments on the host; choose a preset such as atari-cpu")
