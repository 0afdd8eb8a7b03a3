"""On a GPU: recorded graphs compute what plain calls compute, which is what the CPU computes, and runs resume.

Skipped where there is no GPU. Floats are compared with a tolerance: kernels of another shape add in another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_tiny_config
from oracles import difference
from tiny_runs import checkpoint_steps, ngu, train_command

from ngu.agent import Agent
from ngu.config import NoveltyConfig, Precision
from ngu.envs.protocol import EnvironmentSpec
from ngu.graphs import Graphed
from ngu.learner import Learner
from ngu.metrics import read_metrics
from ngu.networks import AgentInput, RecurrentState
from ngu.novelty.embedding import Embedding
from ngu.novelty.snapshots import EmbeddingSnapshots
from ngu.precision import autocast, storage_dtype
from ngu.runners.local import LocalRunner
from ngu.sequences import Batch, BurnIn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

CUDA = torch.device("cuda")
NEVER = 10**9


def make_runner(*, graphs: bool, monkeypatch: pytest.MonkeyPatch, **overrides: Any) -> LocalRunner:
    """A runner that records its graphs soon, or never; the setting is read at each call, so use one at a time."""
    monkeypatch.setattr(Graphed, "warmup_calls", 4 if graphs else NEVER)
    return LocalRunner(make_tiny_config(run__device="cuda", **overrides), CUDA)


def tensors(tree: Mapping[str, Any], prefix: str = "") -> dict[str, torch.Tensor]:
    """All tensors of a nested state by their path, copied to the CPU."""
    found: dict[str, torch.Tensor] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found |= tensors(value, f"{prefix}{name}.")
        elif isinstance(value, torch.Tensor):
            found[prefix + name] = value.detach().cpu().clone()
    return found


def assert_close(one: Mapping[str, Any], other: Mapping[str, Any], tolerance: float = 1e-3) -> None:
    mine, theirs = tensors(one), tensors(other)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        if value.is_floating_point():
            close = torch.allclose(value, theirs[name], rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            close = torch.equal(value, theirs[name])
        assert close, name


def test_recorded_acting_equals_plain_acting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers (mazes, actions, episode starts, generators) are equal after 60 steps, floats close."""
    states = []
    for graphs in (True, False):
        # With min_sequences out of reach nothing is learned.
        runner = make_runner(graphs=graphs, monkeypatch=monkeypatch, replay__min_sequences=190)
        for _ in range(60):
            runner.advance()
        assert runner.agent.learner.updates == 0
        assert (runner.agent.actors[0]._step._graph is not None) == graphs
        states.append(tensors(runner.state_dict()))
    assert_close(states[0], states[1])


AROUND = {
    "replay__trace_length": 3,
    "replay__period": 2,
    "replay__burn_in": 2,
    "replay__lookahead": 6,
    "replay__cut_margin": 4,
}
"""What lies before and behind sequences is drawn with them."""

BALANCED = {"mixture__num_mixtures": 2, "mixture__balanced": True}
"""Each policy's errors in a unit of their own."""


@pytest.mark.parametrize("settings", [{}, AROUND, BALANCED], ids=["plain", "around", "balanced"])
def test_recorded_samples_are_the_samples_of_plain_calls(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = make_runner(graphs=True, monkeypatch=monkeypatch, replay__min_sequences=190, **settings)
    for _ in range(60):
        runner.advance()
    replay = runner.agent.replay
    state = replay.generator.get_state()
    plain = [on(CUDA, replay.sample(8)) for _ in range(12)]
    replay.generator.set_state(state)
    recorded = [on(CUDA, runner._sample()) for _ in range(12)]
    assert runner._sample._graph is not None
    for one, other in zip(plain, recorded, strict=True):
        for mine, theirs in ((one, other), (one.inputs, other.inputs), (one.burn_in, other.burn_in)):
            if mine is not None:
                assert not difference(tensors(vars(mine)), tensors(vars(theirs)))
    assert len({tuple(batch.place.tolist()) for batch in plain}) > 1


def test_a_replay_on_the_host_holds_what_one_on_the_gpu_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acting alone is equal; then both learn, each from draws of its own."""
    states = []
    for place in ("device", "host"):
        runner = make_runner(graphs=True, monkeypatch=monkeypatch, replay__place=place, replay__min_sequences=60)
        while runner.agent.learner.updates == 0:
            runner.advance()
            if runner.agent.learner.updates == 0:
                last = tensors(runner.agent.replay.state_dict())
        states.append(last)
        for _ in range(40):
            runner.advance()
        runner.settle()
        assert runner.agent.learner.updates > 4
        assert runner.agent.replay.device.type == ("cuda" if place == "device" else "cpu")
        assert int(runner.agent.learner.skipped[0]) == 0
    assert_close(states[0], states[1])


@pytest.mark.parametrize("place", ["device", "host"])
def test_environments_on_the_host_are_stepped_through_graphs(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of CartPole: with recorded graphs and without the same episodes, until learning begins."""
    states = []
    for graphs in (True, False):
        runner = make_runner(
            graphs=graphs, monkeypatch=monkeypatch, env__name="gym", env__id="CartPole-v1", env__groups=2,
            env__workers=2, replay__place=place, replay__min_sequences=190, evaluation__marks=(),
        )  # fmt: skip
        try:
            for _ in range(60):
                runner.advance()
            states.append(tensors(runner.agent.replay.state_dict()))
            assert (runner.agent.actors[1]._step._graph is not None) == graphs
        finally:
            runner.close()
    assert_close(states[0], states[1])


def test_hand_crafted_states_go_through_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers come with the steps of the host; recorded graphs or not, the same memories and rewards."""
    states = []
    for graphs in (True, False):
        runner = make_runner(
            graphs=graphs, monkeypatch=monkeypatch, env__name="gym", env__id="gym_factories:test/Walk-v0",
            env__workers=2, novelty__controllable_states="hand-crafted", novelty__memory_episodes=2,
            replay__min_sequences=190, evaluation__marks=(),
        )  # fmt: skip
        try:
            for _ in range(60):
                runner.advance()
            (actor,) = runner.agent.actors
            assert (actor._step._graph is not None) == graphs
            assert actor.novelty.memory is not None
            assert actor.novelty.memory.entries.shape[2] == 2
            states.append({"novelty": actor.novelty.state_dict(), "replay": runner.agent.replay.state_dict()})
            states[-1] = tensors(states[-1])
        finally:
            runner.close()
    assert_close(states[0], states[1])


def test_probes_go_through_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded graphs or not, the same probe and the same places in meta-episodes."""
    states = []
    for graphs in (True, False):
        runner = make_runner(
            graphs=graphs, monkeypatch=monkeypatch, probe__enabled=True, novelty__memory_episodes=3,
            replay__min_sequences=190,
        )  # fmt: skip
        for _ in range(60):
            runner.advance()
        (actor,) = runner.agent.actors
        assert (actor._step._graph is not None) == graphs
        assert actor.probe is not None
        states.append(tensors({"probe": actor.probe.state_dict(), "sums": actor.sums}))
        metrics = runner.pop_statistics()
        assert metrics["probe/position/squared_error"] > 0
        assert metrics["env/episodes/episode_3"] > 0
    assert_close(states[0], states[1])


@pytest.mark.parametrize("copies", [3, 9], ids=["all copies for all", "weights for each"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("whiten", [False, True], ids=["scaled", "whitened"])
@pytest.mark.parametrize("by_keypoints", [False, True], ids=["all numbers", "keypoints"])
def test_each_environment_goes_through_its_own_f(
    copies: int, precision: Precision, whiten: bool, by_keypoints: bool
) -> None:
    """Frozen copies of f of Atari's size give on a GPU, recorded as a graph, what they give on the CPU; renewed too."""
    spec = EnvironmentSpec((1, 84, 84), torch.uint8, 18)
    config = NoveltyConfig(
        filters=(32, 64, 64), kernels=(8, 4, 3), strides=(4, 2, 1), embedding_whiten=whiten,
        embedding_keypoints=by_keypoints,
    )  # fmt: skip
    torch.manual_seed(0)
    first, *later = (Embedding(spec, config) for _ in range(4))
    observation = torch.randint(256, (8, 1, 84, 84)).to(torch.uint8)
    for number, embedding in enumerate(later):
        embedding.observe(observation // (number + 1), torch.ones(8, dtype=torch.bool))
    found = []
    for device in (torch.device("cpu"), CUDA):
        stored = storage_dtype(device, precision)
        snapshots = EmbeddingSnapshots(first, 8, copies, device, stored)
        seen = observation.to(device)
        step = Graphed(lambda snapshots=snapshots, seen=seen: snapshots(seen), device)
        states = []
        for number, embedding in enumerate(later):
            snapshots.renew(embedding.to(device))
            snapshots.begin((torch.arange(8) % 3 == number % 3).to(device))
            with torch.no_grad(), autocast(device, precision):
                states += [step().clone() for _ in range(Graphed.warmup_calls + 2)]
        found.append(torch.stack(states).cpu())
        assert (step._graph is not None) == (device.type == "cuda")
    # Convolutions in fp32 run in TF32, with the mantissa of fp16; whitened pictures are larger numbers.
    tolerance = 1e-2 if precision == "fp16" else 2e-3 if whiten else 1e-4
    assert torch.allclose(*found, rtol=tolerance, atol=tolerance)
    assert len({tuple(state.flatten().tolist()) for state in found[0]}) > 1


def on(device: torch.device, batch: Batch) -> Batch:
    """A copy of a batch on another device."""

    def move(holder: Any) -> dict[str, torch.Tensor]:
        return {name: value.clone().to(device) for name, value in vars(holder).items() if torch.is_tensor(value)}

    def seen(holder: Batch | BurnIn) -> dict[str, Any]:
        return {"inputs": AgentInput(**move(holder.inputs)), "state": RecurrentState(**move(holder.state))}

    before = batch.burn_in
    burn_in = None if before is None else BurnIn(**seen(before), **move(before))
    return Batch(**seen(batch), **move(batch), burn_in=burn_in)


def learned(device: torch.device, batch: Batch, updates: int, **overrides: Any) -> Learner:
    learner = Agent.create(make_tiny_config(**overrides), device).learner
    own = on(device, batch)
    for _ in range(updates):
        learner.update(own, 1_000)
    return learner


def weights(learner: Learner) -> dict[str, Any]:
    return {
        "network": dict(learner.network.state_dict()),
        "target": dict(learner.target.state_dict()),
        "novelty": dict(learner.novelty.state_dict()),
    }


KEYPOINTS = {"novelty__embedding_keypoints": True, "novelty__train_frames": 1000}

WHITENED = {
    "network__whiten": True,
    "novelty__embedding_whiten": True,
    "novelty__balance_actions": True,
    "novelty__train_frames": 1000,
}
"""Networks whose inputs have running statistics, which change inside the recorded update, and an f that weighs them:
all transitions, since the CPU would draw others."""


@pytest.mark.parametrize(
    "change",
    [{}, AROUND, BALANCED, WHITENED, KEYPOINTS],
    ids=["plain", "around", "balanced", "whitened", "keypoints"],
)
def test_recorded_updates_equal_plain_ones_and_those_of_the_cpu(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same batch twelve times: with graphs, without, and on the CPU."""
    runner = make_runner(graphs=False, monkeypatch=monkeypatch, replay__min_sequences=190, **change)
    for _ in range(60):
        runner.advance()
    batch = runner.agent.replay.sample(32)
    assert (batch.burn_in is not None and bool(batch.burn_in.exists.any())) == ("replay__burn_in" in change)
    torch.backends.cudnn.allow_tf32, before = False, torch.backends.cudnn.allow_tf32
    try:
        settings = {"mixture__num_mixtures": 1, "learner__learning_rate": 1e-3, **change}
        plain = learned(CUDA, batch, 12, **settings)
        monkeypatch.setattr(Graphed, "warmup_calls", 4)
        recorded = learned(CUDA, batch, 12, **settings)
        on_cpu = learned(torch.device("cpu"), batch, 12, **settings)
    finally:
        torch.backends.cudnn.allow_tf32 = before
    assert recorded._update._graph is not None
    assert plain._update._graph is None
    assert_close(weights(plain), weights(recorded))
    assert_close(weights(plain), weights(on_cpu), tolerance=5e-3)
    assert_close(plain.policies.state_dict(), on_cpu.policies.state_dict(), tolerance=5e-3)
    fresh = Agent.create(make_tiny_config(**settings), CUDA).learner
    moved = [
        (one - other).abs().max()
        for one, other in zip(fresh.network.parameters(), recorded.network.parameters(), strict=True)
    ]
    assert max(moved) > 5e-3


def test_a_recorded_warm_up_equals_a_plain_one_and_that_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """With updates of everything after it: two graphs of one learner, with one generator."""
    runner = make_runner(graphs=False, monkeypatch=monkeypatch, replay__min_sequences=190, **WHITENED)
    for _ in range(60):
        runner.advance()
    batch = runner.agent.replay.sample(32)

    def warmed(device: torch.device) -> Learner:
        warm_up = {"novelty__warm_up_steps": 10_000, "novelty__warm_up_updates": 12}
        settings = {"mixture__num_mixtures": 1, "learner__learning_rate": 1e-3, **warm_up, **WHITENED}
        learner = Agent.create(make_tiny_config(**settings), device).learner
        own = on(device, batch)
        for _ in range(12):
            assert torch.isnan(learner.update_novelty(own).priority).all()
        for _ in range(12):
            learner.update(own, 1_000)
        return learner

    torch.backends.cudnn.allow_tf32, before = False, torch.backends.cudnn.allow_tf32
    try:
        plain = warmed(CUDA)
        monkeypatch.setattr(Graphed, "warmup_calls", 4)
        recorded, on_cpu = warmed(CUDA), warmed(torch.device("cpu"))
    finally:
        torch.backends.cudnn.allow_tf32 = before
    assert recorded._update_novelty._graph is not None
    assert plain._update_novelty._graph is None
    assert_close(weights(plain), weights(recorded))
    assert_close(weights(plain), weights(on_cpu), tolerance=5e-3)


def test_a_recorded_update_draws_random_steps_for_f(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of each sequence is random, and as many are drawn: what lies elsewhere says nothing to f."""
    runner = make_runner(graphs=False, monkeypatch=monkeypatch, replay__min_sequences=190)
    for _ in range(60):
        runner.advance()
    batch = runner.agent.replay.sample(32)
    batch.behaviour[:] = 0.999_999
    batch.behaviour[2] = 1e-6
    monkeypatch.setattr(Graphed, "warmup_calls", 4)

    def f_after(change: int | None) -> dict[str, Any]:
        changed = on(CUDA, batch)
        if change is not None:
            changed.inputs.observation[change] = 255 - changed.inputs.observation[change]
        learner = learned(CUDA, changed, 12, novelty__balance_actions=True, novelty__train_frames=1)
        assert learner._update._graph is not None
        assert learner.novelty.inverse is not None
        return dict(learner.novelty.inverse.state_dict())

    unchanged = f_after(None)
    assert_close(unchanged, f_after(5))
    with pytest.raises(AssertionError):
        assert_close(unchanged, f_after(2))


@pytest.mark.parametrize("around", [{}, AROUND], ids=["plain", "around"])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_run_learns_to_predict_one_batch_in_every_precision(
    precision: str, around: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss on one batch falls far below its start, no weight becomes non-finite, and fp16 finds its scale."""
    runner = make_runner(
        graphs=True, monkeypatch=monkeypatch, run__precision=precision, replay__min_sequences=190, **around
    )
    for _ in range(60):
        runner.advance()
    learner = runner.agent.learner
    batch = runner.agent.replay.sample(8)
    losses = []
    for _ in range(12):
        for _ in range(20):
            learner.update(batch, 2_000)
        losses.append(learner.pop_statistics()["loss/retrace"])
    assert losses[-1] < 0.5 * losses[0]
    assert all(torch.isfinite(value).all() for value in tensors(weights(learner)).values() if value.is_floating_point())
    assert int(learner.skipped[0]) == 0
    assert all(parameter.grad is not None for parameter in learner.network.parameters())
    if precision == "fp16":
        assert float(learner.optimiser.scale) > 1


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_resumed_run_goes_on_as_one_that_was_not_stopped(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mazes and generators are equal, weights close: some of the GPU's kernels add in no fixed order."""
    settings = {"run__precision": precision, "learner__average_share": 0.3}
    runner = make_runner(graphs=True, monkeypatch=monkeypatch, **settings)
    while runner.agent.learner.updates < 10:
        runner.advance()
    state = {name: clone(part) for name, part in runner.state_dict().items()}
    other = make_runner(graphs=True, monkeypatch=monkeypatch, **settings)
    other.load_state_dict(state)
    assert_close(runner.state_dict(), other.state_dict(), 0.0)
    for _ in range(8):
        runner.advance()
        other.advance()
    assert runner.agent.learner.updates == other.agent.learner.updates > 10
    assert runner.steps == other.steps
    assert_close({"mazes": runner.agent.actors[0].env.state_dict()}, {"mazes": other.agent.actors[0].env.state_dict()})
    assert_close(weights(runner.agent.learner), weights(other.agent.learner), 2e-2)


def clone(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {name: clone(value) for name, value in node.items()}
    return node.clone() if isinstance(node, torch.Tensor) else node


def test_the_command_trains_and_resumes(tmp_path: Path) -> None:
    done = ngu(*train_command(tmp_path, "run", run__device="cuda", run__precision="fp16", run__compile=False))
    assert done.returncode == 0, done.stderr
    assert checkpoint_steps(tmp_path / "run")[-1] == 600
    more = ngu("resume", str(tmp_path / "run"), "--steps", "1200")
    assert more.returncode == 0, more.stderr
    assert checkpoint_steps(tmp_path / "run")[-1] == 1200
    rows = list(read_metrics(tmp_path / "run" / "metrics.jsonl"))
    assert rows[-1]["step"] == 1200
    assert max(row.get("learner/updates", 0) for row in rows) > 0
