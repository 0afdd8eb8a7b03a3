"""The tables of docs/montezuma.md."""

# ruff: noqa: RUF001, the paper's Greek letters belong in its tables

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch

from ngu.presets import preset
from ngu.report.results import Results
from ngu.retrace import ValueTransform
from page_tables.kept import (
    MILLION,
    PERCENT,
    PLAIN,
    WHOLE,
    Reading,
    Style,
    between,
    during,
    from_command,
    markdown,
    mean,
    millions,
    runs_of,
    seeds,
    steps,
    stretch,
    table,
)

GAME = "atari/montezuma_revenge"
ROOMS = Style(2)
FRAMES_OF_A_STEP = 4


# -------------------------------------------------------------------------------------------------------- readings


def games(start: float = 0, end: float = float("inf")) -> Reading:
    """Training episodes that ended, from the start or in a stretch of agent steps."""
    return lambda runs: ", ".join(WHOLE.number(_games(run, start, end)) for run in runs)


def _games(run: Results, start: float, end: float) -> float:
    return sum(row.get("env/episodes", 0) for row in run.rows if start < row["step"] <= end)


def _mean(run: Results, metric: str, start: float, end: float, style: Style) -> str:
    return style.one(between(run, metric, start, end))


# ---------------------------------------------------------------------------------------------------------- tables


_REMEDIES = {
    "hand-crafted": "hand-crafted states, N = 1",
    "r2d2-rnd": "R2D2+RND",
    "r2d2-advantage-learning": "R2D2, advantage learning, κ = 0.01",
    "r2d2": "R2D2, neither",
    "ngu": "NGU, N = 32, ξ = 0.2",
    "n1": "NGU, N = 1, ξ = 0.2",
    "n1-no-rnd": "the same without RND",
    "n1-20-frames-xi-0.4": "N = 1, ξ = 0.4, f trained on 20 transitions of a sequence instead of 5, at twice the rate",
    "n1-20-frames-xi-1": "the same with ξ = 1",
    "n1-20-frames-size-8": "the same with states of 8 numbers, ξ = 0.2",
}
"""Files of Montezuma's Revenge on the node with the remedies, and what their agents are."""


def remedies_table() -> str:
    """Mean scores of training episodes for each million agent steps, and rooms of the last half million."""
    spans = [(n * MILLION, (n + 1) * MILLION) for n in range(4)]
    return table(
        "agent",
        {agent: f"{GAME}/remedies/{name}-seed0.csv" for name, agent in _REMEDIES.items()},
        {
            **{stretch(*span): during("env/score", *span) for span in spans},
            "games": games(),
            "steps": steps,
            "rooms at the end": mean("env/rooms", MILLION / 2, style=ROOMS),
        },
        right=True,
    )


_SAME = 2_550_000
"""Agent steps that NGU, R2D2+RND and R2D2 have in common."""


def _cluster_distance(runs: Sequence[Results]) -> str:
    """Nothing where there is no episodic memory."""
    if not any(preset("atari-node", run.variant).novelty.episodic for run in runs):
        return ""
    return from_command("--novelty.cluster-distance", str(preset("atari-node").novelty.cluster_distance))(runs)


def same_frames_table() -> str:
    """The paper's agents after the same frames, by training episodes."""
    names = ("hand-crafted", "r2d2-rnd", "r2d2-advantage-learning", "ngu", "n1-20-frames-xi-0.4")
    last_million = (_SAME - MILLION, _SAME)
    return table(
        f"agent, until {millions(FRAMES_OF_A_STEP * _SAME)} frames",
        {_REMEDIES[name]: f"{GAME}/remedies/{name}-seed0.csv" for name in names},
        {
            "largest γ": from_command("--mixture.discount-max", str(preset("atari-node").mixture.discount_max)),
            "ξ": _cluster_distance,
            "games": games(0, _SAME),
            "score": during("env/score", 0, _SAME, style=Style(2)),
            "score, last 4M frames": during("env/score", *last_million),
            "rooms, last 4M frames": during("env/rooms", *last_million, style=ROOMS),
        },
        right=True,
    )


def whitening_table() -> str:
    """What f learns from whitened pictures and from others, after 150,000 steps of random play."""
    inputs = {"from 0 to 1": "scaled", "whitened": "whitened"}
    rows = []
    for start, end in ((200_000, 300_000), (300_000, 400_000), (400_000, 500_000)):
        for label, name in inputs.items():
            (run,) = runs_of(f"{GAME}/small/random-150k-{name}-seed0.csv")
            told = [_mean(run, f"inverse/{what}", start, end, style) for what, style in _INVERSE.items()]
            rows.append([stretch(start, end), label, *told])
    return markdown(["agent steps", "inputs", "h right", "commonest action", "directions in which states differ"], rows)


_INVERSE = {"accuracy": PERCENT, "majority": PERCENT, "dimensions": PLAIN}
_SMALL_STRETCH = (440_000, 500_000)
"""All runs lasted for it, and no run was evaluated in it: where one was, its file has lost how many episodes ended."""


def small_hand_crafted_table() -> str:
    """Hand-crafted states on the small task."""
    return _small_table(
        "hand-crafted states",
        {
            "rate 0.001": "hand-crafted-rate-0.001-seed0",
            "rate 0.003": "hand-crafted-rate-0.003-seed0",
            "rate 0.003, pictures from 0 to 1": "hand-crafted-rate-0.003-scaled-seed0",
            "advantage learning 0.9 as it was first": "hand-crafted-advantage-0.9-seed*",
            "the same, 0.97": "hand-crafted-advantage-0.97-seed1",
            "advantage learning 0.9 as it is": "hand-crafted-narrowed-seed*",
            "**advantage learning 0.9 as it is, κ = 0.01**": "hand-crafted-narrowed-kappa-0.01-seed*",
            "the same without RND": "hand-crafted-no-rnd-narrowed-kappa-0.01-seed*",
        },
    )


def small_learned_table() -> str:
    """Learned states on the small task."""
    return _small_table(
        "learned states",
        {
            "without advantage learning": "learned-rate-0.003-seed0",
            "advantage learning 0.9 as it was first": "learned-advantage-0.9-seed0",
            "as it is, κ = 0.01": "learned-narrowed-kappa-0.01-seed0",
            "as it is, cluster distance ξ = 0.2": "learned-narrowed-xi-0.2-seed0",
            "**as it is, κ = 0.01, cluster distance ξ = 0.2**": "learned-narrowed-kappa-0.01-xi-0.2-seed0",
            "the same without RND": "learned-no-rnd-narrowed-kappa-0.01-xi-0.2-seed0",
            "κ = 0.01, ξ = 0.5, [drawn random steps](#what-f-can-know)": "learned-drawn-xi-0.5-seed0",
        },
    )


def _small_table(head: str, names: Mapping[str, str]) -> str:
    return table(
        head,
        {label: f"{GAME}/small/{name}.csv" for label, name in names.items()},
        {
            "seed": seeds,
            "episodes": games(*_SMALL_STRETCH),
            "score": during("env/score", *_SMALL_STRETCH),
            "rooms": during("env/rooms", *_SMALL_STRETCH, style=ROOMS),
        },
        right=True,
    )


def small_longer_table() -> str:
    """The small agent that leaves the first room, to its end."""
    (run,) = runs_of(f"{GAME}/small/hand-crafted-narrowed-kappa-0.01-seed0.csv")
    bounds = (0, 400_000, 520_000, 600_000, 700_000, 800_000, 900_000, 1_000_000)
    rows = [
        [
            stretch(start, end),
            WHOLE.one(_games(run, start, end)),
            _mean(run, "env/score", start, end, PLAIN),
            _mean(run, "env/rooms", start, end, ROOMS),
        ]
        for start, end in pairwise(bounds)
    ]
    head = ["seed 0, longer (`ngu resume RUN --steps 1000000`); agent steps", "episodes", "score", "rooms"]
    return markdown(head, rows, right=True)


_RND = {
    "hand-crafted states": ("hand-crafted-narrowed-kappa-0.01", "hand-crafted-no-rnd-narrowed-kappa-0.01"),
    "learned states, ξ = 0.5, drawn random steps": ("learned-drawn-xi-0.5", "learned-drawn-no-rnd-xi-0.5"),
}
"""Files of the small task with RND and without it."""


_LEARNED = {
    "warm-up": ("learned-warm-up", "learned-warm-up-no-rnd"),
    "warm-up and keypoints": ("learned-keypoints", "learned-keypoints-no-rnd"),
}
"""The same, with the remedies for learned states, ξ = 0.2."""


def without_rnd_table() -> str:
    """What RND does to the small agent."""
    return _scores_table("states", _RND)


def keypoints_table() -> str:
    """What a warm-up and keypoints do to it."""
    return _scores_table("learned states, ξ = 0.2", _LEARNED)


def _scores_table(head: str, files: Mapping[str, tuple[str, str]]) -> str:
    """Scores in training with RND and without it, a row for each run; empty where it had been stopped."""
    spans = list(pairwise((0, 400_000, 500_000, 600_000, 700_000, 800_000, 900_000, 1_000_000)))
    rows = []
    for states, names in files.items():
        for whether, name in zip(("with", "without"), names, strict=True):
            for run in runs_of(f"{GAME}/small/{name}-seed*.csv"):
                scores = [_mean(run, "env/score", start, end, PLAIN) for start, end in spans]
                rooms = run.mean("env/rooms", 100_000)
                rows.append([states, whether, str(run.seed), *scores, ROOMS.one(rooms), millions(run.steps)])
    names = [head, "RND", "seed", *(stretch(*span) for span in spans), "rooms at the end", "steps"]
    return markdown(names, rows, right=True)


_BEFORE = [
    ("hand-crafted states, N = 1, memory over 3 episodes", "hand-crafted", 5_000_000, 5_500_000),
    ("the same, until it was stopped", "hand-crafted", 5_500_000, 6_000_000),
    ("NGU, N = 32, learned states, until it was stopped", "ngu", 8_000_000, 9_000_000),
]
"""Agents, files and stretches of the runs before the remedies."""


def before_table() -> str:
    """Hand-crafted states and learned ones before the remedies; their files do not tell how many episodes ended."""
    rows = []
    for agent, name, start, end in _BEFORE:
        (run,) = runs_of(f"reproduce/node/montezuma_revenge/{name}-seed0.csv")
        until = min(end, run.steps)
        score, rooms = _mean(run, "env/score", start, end, WHOLE), _mean(run, "env/rooms", start, end, ROOMS)
        frames = millions(FRAMES_OF_A_STEP * until)
        rows.append([agent, stretch(start, until), frames, score, rooms, _rooms_when_evaluated(run)])
    return markdown(["agent", "agent steps", "frames", "score", "rooms", "rooms in its last evaluation"], rows)


def _rooms_when_evaluated(run: Results) -> str:
    rooms = "eval/explore/rooms"
    value = run.last(rooms)
    return "" if value is None else f"{ROOMS.one(value)} at {millions(run.last_step(rooms))}"


_VALUES = [
    ("N = 1", "n1-target-50", 0.99, 1.0, 1.5),
    ("", "n1-target-50", 0.99, 1.5, 1.95),
    ("N = 1, κ = 0.01", "n1-target-50-tolerance-0.01", 0.99, 1.0, 1.5),
    ("", "n1-target-50-tolerance-0.01", 0.99, 1.5, 1.95),
    ("", "n1-target-50-tolerance-0.01", 0.99, 2.0, 4.0),
    ("the same, a quarter of the rate from 4.0M on", "n1-target-50-tolerance-0.01", 0.99, 4.5, 5.75),
    ("N = 32", "ngu-target-50", 0.99, 1.5, 2.0),
    ("", "ngu-target-50", 0.99, 2.0, 4.0),
    ("the same, κ = 0.01 and a quarter of the rate from 4.0M on", "ngu-target-50", 0.99, 4.5, 5.8),
    ("N = 1, κ = 0.01, γ = 0.997, memory over 3 episodes", "n1-meta-3-tolerance-0.01", 0.997, 1.0, 1.75),
    ("N = 1, γ = 0.96", "n1-discount-0.96", 0.96, 1.5, 2.1),
]
"""Agents, files, γ of the most exploratory policy, and stretches in millions."""


def values_table() -> str:
    """Q of the most exploratory policy, next to what its reward would be worth if it came forever."""
    rows = []
    for agent, name, discount, *bounds in _VALUES:
        (run,) = runs_of(f"{GAME}/values/{name}-seed0.csv")
        start, end = (int(bound * MILLION) for bound in bounds)
        value = _untransformed(_explored(run, "actor/q_max", start, end))
        reward = _explored(run, "novelty/reward", start, end)
        forever = preset("atari-node").mixture.beta * reward / (1 - discount)
        told = [WHOLE.one(value), WHOLE.one(forever), Style(2).one(value / forever)]
        told += [_mean(run, "learner/followed", start, end, Style(2)), PLAIN.one(reward)]
        told += [_mean(run, f"env/{word}", start, end, style) for word, style in _EPISODES.items()]
        rows.append([agent, stretch(start, end), *told])
    head = ["agent", "agent steps", "Q", "β r_i / (1 − γ)", "ratio", "followed", "r_i", "episode, steps", "score"]
    return markdown([*head, "rooms"], rows)


_EPISODES = {"episode_length": WHOLE, "score": Style(2), "rooms": Style(3)}


def _explored(run: Results, metric: str, start: float, end: float) -> float:
    """A mean of the most exploratory policy's; where there is but one policy, it is that one."""
    value = between(run, f"{metric}/explore" if f"{metric}/explore" in run.names() else metric, start, end)
    if value is None:
        raise ValueError(f"{run.path} has no {metric} from {start} to {end}")
    return value


def _untransformed(value: float) -> float:
    transform = ValueTransform.create(preset("atari-node").learner)
    return float(transform.expand(torch.tensor(value, dtype=torch.float64)))


PARTS = [
    remedies_table,
    same_frames_table,
    without_rnd_table,
    keypoints_table,
    whitening_table,
    small_hand_crafted_table,
    small_learned_table,
    small_longer_table,
    before_table,
    values_table,
]
"""In the order of their places in the page."""
