"""What `ngu train` and `ngu resume` share: train to the end, then write the report and say what came out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ngu.errors import UserError
from ngu.metrics import by_policy
from ngu.training import Training

INTERRUPTED = 130
"""Exit code of a run that Ctrl-C or SIGTERM stopped; shells use the same."""


def train_and_report(training: Training) -> int:
    """Trains until run.steps or a signal; returns the exit code."""
    folder = training.folder
    assert folder is not None
    print(f"run: {folder.path}, from step {training.runner.steps:,}", flush=True)
    try:
        outcome = training.run(handle_signals=True)
    finally:
        training.close()
    if outcome.interrupted:
        print(
            f"stopped at {outcome.steps:,} steps; resume with: ngu resume {shlex.quote(str(folder.path))}", flush=True
        )
        return INTERRUPTED
    for line in final_results(outcome.evaluation):
        print(line)
    from ngu.report import write_report  # draws with matplotlib, which is slow to import

    print(f"report: {write_report([folder.path], folder.report_path)}")
    return 0


def final_results(evaluation: Mapping[str, float]) -> list[str]:
    """One line for each policy: the share of open cells it visited on held-out mazes, or its score."""
    policies = by_policy(evaluation).items()
    lines = (_final_coverage(policy, found) or _final_score(policy, found) for policy, found in policies)
    return [line for line in lines if line]


def _final_coverage(policy: str, found: Mapping[str, float]) -> str:
    marks = [
        f"{value:.1%} after {name.removeprefix('coverage@')} steps"
        for name, value in found.items()
        if name.startswith("coverage@")
    ]
    return f"coverage of held-out mazes, {policy}: {', '.join(marks)}" if marks else ""


def _final_score(policy: str, found: Mapping[str, float]) -> str:
    if "score" not in found and "solved" not in found:
        return ""
    parts = [f"{found.get('score', found.get('return', 0.0)):,.6g}"]
    if "solved" in found:
        parts.append(f"solved {found['solved']:.1%}")
    if "human_normalised" in found:
        parts.append(f"human-normalised {found['human_normalised']:.1f}%")
    if "rooms" in found:
        parts.append(f"rooms visited {found['rooms']:.3g}")
    return f"score in evaluation, {policy}: {', '.join(parts)}"


@contextmanager
def memory_in_words() -> Iterator[None]:
    """Turns a failed allocation into a sentence; the replay, the largest part, is checked beforehand."""
    try:
        yield
    except RuntimeError as error:  # PyTorch has a class of its own for GPUs alone
        text = str(error)
        if not any(part in text for part in ("out of memory", "can't allocate memory", "Storage size calculation")):
            raise
        raise UserError(
            "there is not enough memory for these sizes; lower env.num_envs, learner.batch_size, replay.capacity or "
            "the sizes of the networks."
        ) from None
