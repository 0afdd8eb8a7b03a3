"""Experiments that are not of the paper: its questions asked where an answer takes minutes.

Ablations and probes on the Disco Maze, and tasks with known answers: Deep Sea, MiniGrid, and the random-coin grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ngu.experiments.agents import (
    DISCO_MAZE,
    LEARNED_STATES,
    MONTEZUMA,
    NGU,
    NGU_N1,
    R2D2_RETRACE,
    R2D2_RND,
    RANDOM_PROJECTION,
)
from ngu.experiments.definition import Arm, Column, Experiment, Panel, Task

COVERAGE = ("eval/explore/coverage@500", "eval/explore/coverage@100", "eval/explore/coverage@12")
"""Coverage at the end of an evaluation episode, of the maze's presets and of the scale smoke."""
MAZE_PANEL = Panel("unique states visited", "share of open cells", share=True)

SOLVED = ("eval/exploit/solved", "eval/explore/solved")
_SOLVED_PANELS = (
    Panel("solved in evaluation", "share of episodes", SOLVED, share=True),
    Panel("return in evaluation", "return", ("eval/exploit/return", "eval/explore/return")),
)
_TRAINING_SCORE = ("env/score/exploit", "env/score", "eval/exploit/score")
"""Evaluations come too seldom for a curve; they stand in while no episode of training has ended."""
_EXPLORERS_SCORE = ("env/score/explore", "eval/explore/score")
_AGENT = Arm("ngu", "NGU", "ngu")
_REMARK = "Not of the paper."


def maze_ablation(name: str, title: str, shows: str, arms: tuple[Arm, ...]) -> Experiment:
    return Experiment(
        name=name,
        kind="curves",
        title=title,
        place="Ours, after App. B",
        shows=shows,
        tasks=(DISCO_MAZE,),
        columns=tuple(Column(arm.label, arm, COVERAGE) for arm in arms),
        panels=(MAZE_PANEL,),
        remarks=(_REMARK,),
        smoke=((), (arms[0].name,)),
        ours=True,
    )


def _maze_arm(name: str, label: str, settings: Mapping[str, Any]) -> Arm:
    """NGU on the maze with a changed setting; the maze's presets have one policy already."""
    return Arm(name, label, "ngu", settings)


def _probed(arm: Arm) -> Arm:
    return Arm(f"{arm.name}-probed", arm.label, arm.variant, {**arm.settings, "probe.enabled": True})


def _changed(arm: Arm, name: str, label: str, settings: Mapping[str, Any]) -> Arm:
    return Arm(name, f"{arm.label}, {label}", arm.variant, {**arm.settings, **settings})


def _deep_sea(size: int) -> Task:
    return Task(f"deep-sea-{size}", f"Deep Sea, {size} x {size}", "deep-sea",
                {"env.sea_size": size, "evaluation.max_steps": size})  # fmt: skip


def _weighing(beta: float) -> Arm:
    return Arm(f"beta-{beta:g}", f"beta {beta:g}", "ngu", {"mixture.beta": beta})


def _balanced(beta: float) -> Arm:
    plain = _weighing(beta)
    return _changed(plain, f"{plain.name}-balanced", "balanced", {"mixture.balanced": True})


def _coin_experiment(name: str, title: str, place: str, shows: str, arms: tuple[Arm, ...]) -> Experiment:
    return Experiment(
        name=name,
        kind="curves",
        title=title,
        place=place,
        shows=shows,
        tasks=(Task("random-coin", "Random-coin grid", "random-coin"),),
        columns=tuple(Column(arm.label, arm, ("eval/exploit/solved",)) for arm in arms),
        panels=(
            Panel("beta_0: solved in evaluation", "share of episodes", ("eval/exploit/solved",), share=True),
            Panel("beta_0: return in evaluation", "return", ("eval/exploit/return",)),
            Panel("beta_{N-1}: solved in evaluation", "share of episodes", ("eval/explore/solved",), share=True),
        ),
        remarks=(_REMARK,),
        ours=True,
    )


COIN_BETAS = (0.0, 0.01, 0.05, 0.1, 0.3, 1.0)
"""Weights of the intrinsic reward in the random-coin grid."""
_LARGE_BETAS = (0.05, 0.3, 1.0)

_PROBED_MAZE = tuple(_probed(arm) for arm in (LEARNED_STATES, RANDOM_PROJECTION))

OURS: tuple[Experiment, ...] = (
    maze_ablation(
        "disco_maze_neighbours",
        "Disco Maze: 5, 10 and 30 nearest neighbours",
        "Whether the number of neighbours matters, as App. B.2 asks on Atari.",
        (
            _maze_arm("neighbours-5", "5 neighbours", {"novelty.neighbours": 5}),
            LEARNED_STATES,
            _maze_arm("neighbours-30", "30 neighbours", {"novelty.neighbours": 30}),
        ),
    ),
    maze_ablation(
        "disco_maze_sizes",
        "Disco Maze: controllable states of size 16, 32 and 64",
        "Whether the size of controllable states matters, as App. B.1 asks on Atari.",
        tuple(_maze_arm(f"state-{size}", f"size {size}", {"novelty.embedding_size": size}) for size in (16, 32, 64)),
    ),
    maze_ablation(
        "disco_maze_epsilon",
        "Disco Maze: kernel epsilon 0.0001, 0.001, 0.01 and 0.1",
        "Whether the kernel's epsilon matters, of which the paper prints three values.",
        tuple(
            _maze_arm(f"epsilon-{value:g}", f"epsilon {value:g}", {"novelty.kernel_epsilon": value})
            for value in (1e-4, 1e-3, 1e-2, 1e-1)
        ),
    ),
    maze_ablation(
        "disco_maze_policies",
        "Disco Maze: N = 1, 2 and 8 policies",
        "What a family costs its most exploratory policy where there is nothing to exploit.",
        (
            LEARNED_STATES,
            *(_maze_arm(f"ngu-n{count}", f"N={count}", {"mixture.num_mixtures": count}) for count in (2, 8)),
        ),
    ),
    Experiment(
        name="disco_maze_probes",
        kind="curves",
        title="Disco Maze: what a linear probe reads from learned and from random controllable states",
        place="Ours, after App. I.1",
        shows="How well the agent's position can be read off f, learned against random.",
        tasks=(DISCO_MAZE,),
        columns=tuple(Column(arm.label, arm, ("probe/position/squared_error",)) for arm in _PROBED_MAZE),
        panels=(
            Panel("position, squared error", "cells squared", ("probe/position/squared_error",)),
            Panel("position, one constant answer", "cells squared", ("probe/position/baseline",)),
        ),
        remarks=(_REMARK,),
        ours=True,
    ),
    Experiment(
        name="deep_sea",
        kind="curves",
        title="Deep Sea: NGU against R2D2 without intrinsic reward",
        place="Ours",
        shows="Whether NGU finds a treasure that undirected exploration finds once in 2^size episodes.",
        tasks=tuple(map(_deep_sea, (10, 20, 30))),
        columns=tuple(Column(arm.label, arm, SOLVED) for arm in (_AGENT, R2D2_RETRACE)),
        panels=_SOLVED_PANELS,
        remarks=(_REMARK,),
        ours=True,
    ),
    Experiment(
        name="minigrid",
        kind="curves",
        title="MiniGrid levels: NGU against R2D2 without intrinsic reward",
        place="Ours",
        shows="Whether NGU solves levels whose only reward lies behind a key, a corridor or many rooms.",
        tasks=tuple(
            Task(f"minigrid-{level}", f"MiniGrid {level}", "minigrid", {"env.level": level})
            for level in ("MultiRoom-N4-S5", "DoorKey-8x8", "KeyCorridorS3R3")
        ),
        columns=tuple(Column(arm.label, arm, SOLVED) for arm in (_AGENT, R2D2_RETRACE)),
        panels=_SOLVED_PANELS,
        remarks=(_REMARK,),
        ours=True,
    ),
    _coin_experiment(
        "random_coin",
        "Random-coin grid: the exploitative policy beside more and less exploratory ones",
        "Ours, after Agent57",
        "What sharing a network costs beta_0 where exploring and exploiting are opposed, for several betas.",
        tuple(map(_weighing, COIN_BETAS)),
    ),
    _coin_experiment(
        "random_coin_balanced",
        "Random-coin grid: TD errors as they are, and in units of their policy",
        "Ours",
        "Whether one network can serve both ends of the family when each policy has the same share of the loss.",
        tuple(arm for beta in _LARGE_BETAS for arm in (_weighing(beta), _balanced(beta))),
    ),
    Experiment(
        name="pong_family",
        kind="curves",
        title="Pong: what beta_0 needs in a family of 32 policies",
        place="Ours",
        shows="Whether beta_0 learns beside novelty: with errors in units of their policy and logarithms of rewards as "
        "inputs, without one of them, and alone.",
        tasks=(Task("pong", "Pong", "atari", {"env.game": "pong"}),),
        columns=tuple(
            Column(arm.label, arm)
            for arm in (
                NGU,
                _changed(NGU, "raw-rewards", "rewards as they are", {"network.log_rewards": False}),
                _changed(NGU, "unbalanced", "errors as they are", {"mixture.balanced": False}),
                R2D2_RETRACE,
            )
        ),
        panels=(
            Panel("beta_0: score while training", "score", _TRAINING_SCORE, tabulated=False),
            Panel("beta_{N-1}: score while training", "score", _EXPLORERS_SCORE, tabulated=False),
        ),
        remarks=(
            _REMARK,
            "The figure shows the episodes that are learned from, with the actors' epsilons, the table evaluations.",
            "At the scale paper the agent is the paper's, whose errors are as they are: there the first and the third "
            "are the same.",
        ),
        ours=True,
    ),
    Experiment(
        name="montezuma_training",
        kind="curves",
        title="Montezuma's Revenge: scores and rooms of the episodes that are learned from",
        place="Ours, after Tab. 1 and Fig. 19",
        shows="When agents first find rewards and other rooms: NGU with learned and with hand-crafted states, R2D2 "
        "with RND's bonus and without any.",
        tasks=(MONTEZUMA,),
        columns=tuple(
            Column(arm.label, arm)
            for arm in (
                NGU,
                NGU_N1,
                Arm("hand-crafted", "hand-crafted states", "hand-crafted"),
                R2D2_RETRACE,
                R2D2_RND,
            )
        ),
        panels=(
            Panel("score while training, all actors", "score", ("env/score", "eval/exploit/score"), tabulated=False),
            Panel("rooms in an episode of training", "rooms", ("env/rooms", "eval/explore/rooms"), tabulated=False),
        ),
        smoke=((), ("ngu-n1", "hand-crafted")),
        remarks=(
            _REMARK,
            "The figure shows the episodes that are learned from, with the actors' epsilons, the table evaluations. "
            "Rooms of training are known where emulators run in worker processes.",
        ),
        ours=True,
    ),
)
"""After those of the paper in every list."""
