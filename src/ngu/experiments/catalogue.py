"""The experiments: every table of the paper and every figure that shows results, by its label there."""

from __future__ import annotations

from collections.abc import Mapping

from ngu.errors import UserError, unknown_name
from ngu.experiments import agents, paper_numbers, paper_settings
from ngu.experiments.agents import (
    BETA_HIGH,
    BETA_LOW,
    CMR_HALF,
    CMR_QUARTER,
    META_3,
    N2,
    N8,
    N16,
    NGU,
    NGU_N1,
    NGU_N1_NO_RND,
    NGU_NO_RND,
    NO_EXTRINSIC,
    R2D2_RETRACE,
    R2D2_RND,
    R2D2_RND_HIGH,
    R2D2_RND_LOW,
    column,
    game,
)
from ngu.experiments.definition import EXPLORE_SCORE, Arm, Column, Experiment, Panel, Task
from ngu.experiments.ours import COVERAGE, MAZE_PANEL, OURS
from ngu.variants import VARIANTS

ATARI_FRAMES = 35_000_000_000
"""Sec. 4.2: "These methods are all run for 35 billion frames"."""

_ABLATIONS = (
    *(column(arm) for arm in (NGU, N2, N8, N16, CMR_HALF, BETA_LOW, BETA_HIGH)),
    column(NGU_NO_RND, "w/o RND"),
    column(NO_EXTRINSIC),
)
_ABLATION_GAMES = (*agents.DENSE_GAMES, *agents.HARD_ABLATION_GAMES)
_SWEPT_WITH_N_32 = ("NGU(N=32)", "N=2", "N=8", "N=16", "CMR=0.5", "beta=0.2", "beta=0.5")
_WITHOUT_REWARD = "Without extrinsic rewards beta_0 has no reward, so that row is the score of beta_{N-1}."
_BASELINES = tuple(column(arm) for arm in (R2D2_RND, R2D2_RETRACE, NGU_N1_NO_RND, NGU_N1, NGU))
_BOTH_POLICIES = (
    Column("NGU(32) eval beta=0.0", NGU),
    Column("NGU(32) eval beta=0.3", NGU, EXPLORE_SCORE),
)


def _single_policy(
    label: str, place: str, what: str, shows: str, game_title: str, task: Task, arms: tuple[Arm, ...]
) -> Experiment:
    """One of the ablations of NGU(N=1), App. B."""
    return Experiment(
        name=label,
        kind="curves",
        title=f"{what} on {game_title}, N = 1",
        place=place,
        shows=shows,
        tasks=(task,),
        columns=tuple(column(arm) for arm in arms),
        frames=ATARI_FRAMES,
        published={"NGU(N=1)": {task.name: paper_numbers.HARD_EXPLORATION["NGU(N=1)"][task.name]}},
        smoke=((), (arms[0].name,)),
        remarks=("The paper draws these curves and prints no numbers; NGU(N=1) is that of Tab. 1.",),
    )


def _changed(stem: str, values: tuple[int, ...], usual: int) -> tuple[Arm, ...]:
    """NGU(N=1) with other values of a setting; its own value is NGU(N=1) itself, which is trained once."""
    return tuple(NGU_N1 if value == usual else _variant(f"{stem}-{value}") for value in values)


def _variant(name: str) -> Arm:
    return Arm(name, VARIANTS[name].label, name)


_SIZES = _changed("state", (16, 32, 64), 32)
_NEIGHBOURS = _changed("neighbours", (5, 10, 30), 10)
_CLIPS = _changed("max-modulation", (1, 5, 10), 5)

_SINGLE_POLICY = tuple(
    _single_policy(f"ng1_{short}_{end}", f"App. B.{part}", what, shows, title, task, arms)
    for part, short, what, arms, sentences in (
        (
            1,
            "embedding",
            "Size of controllable states (16, 32, 64)",
            _SIZES,
            (
                "Small to no impact of the size, with scores that sometimes reach more than 25,000 points.",
                "32 is consistently better than 64; 16 sometimes solves the level but is less stable.",
            ),
        ),
        (
            2,
            "nn",
            "Nearest neighbours (5, 10, 30)",
            _NEIGHBOURS,
            ("Slight gains from using more neighbours.", "10 neighbours are clearly better than 5 or 30."),
        ),
        (
            3,
            "l",
            "Clipping factor L (1, 5, 10)",
            _CLIPS,
            ("Robust, with marginally worse performance for L = 10.", "The highest value of L works best."),
        ),
    )
    for (end, title, task), shows in zip(
        (("pitfall", "Pitfall!", agents.PITFALL), ("mr", "Montezuma's Revenge", agents.MONTEZUMA)),
        sentences,
        strict=True,
    )
)

_HAND_CRAFTED = tuple(map(_variant, ("hand-crafted", "hand-crafted-no-rnd", "hand-crafted-no-extrinsic")))
_PROBED = Arm("ngu-probed", "learned controllable states", "ngu", {**NGU.settings, "probe.enabled": True})

_ALL: tuple[Experiment, ...] = (
    Experiment(
        name="fig_disco_maze",
        kind="curves",
        title="Random Disco Maze: learned controllable states, random projections, RND",
        place="Fig. 2, Sec. 4.1",
        shows="NGU with learned controllable states learns to explore any maze; with a random projection for f, and "
        "with RND alone, it only learns not to walk into walls.",
        tasks=(agents.DISCO_MAZE,),
        columns=tuple(
            Column(arm.label, arm, COVERAGE)
            for arm in (agents.LEARNED_STATES, agents.RANDOM_PROJECTION, agents.RND_ONLY)
        ),
        panels=(MAZE_PANEL,),
        remarks=(
            "The paper does not say how long it trained, and its curves are printed without numbers.",
            "Coverage is that of an evaluation episode of 500 steps (100 at the scale laptop, on smaller mazes).",
        ),
        smoke=((), ("ngu", "random-projection", "rnd-only")),
    ),
    Experiment(
        name="fig_ablations",
        kind="bars",
        title="Ablations of NGU(N=32): mean human-normalised scores",
        place="Fig. 3, Sec. 4.2",
        shows="On hard exploration games N = 32, beta = 0.3, RND and a cross mixture ratio of 0 are best on average; "
        "on dense rewards all but the agent without extrinsic rewards are alike.",
        tasks=_ABLATION_GAMES,
        columns=_ABLATIONS,
        groups={
            "dense reward games": tuple(task.name for task in agents.DENSE_GAMES),
            "hard exploration games": tuple(task.name for task in agents.HARD_ABLATION_GAMES),
        },
        frames=ATARI_FRAMES,
        published=paper_numbers.ABLATIONS,
        remarks=(_WITHOUT_REWARD,),
        smoke=(("pong", "pitfall"), ("ngu",)),
    ),
    Experiment(
        name="table_ablations",
        kind="table",
        title="Ablation results on 8 Atari games",
        place="Tab. 3, App. C.1",
        shows="Every ablation of NGU(N=32) on 5 dense reward and 3 hard exploration games.",
        tasks=_ABLATION_GAMES,
        columns=_ABLATIONS,
        frames=ATARI_FRAMES,
        published=paper_numbers.ABLATIONS,
        remarks=(_WITHOUT_REWARD,),
        smoke=(("pong",), ("cmr-0.5", "no-extrinsic")),
    ),
    Experiment(
        name="table_action_prediction_montezuma",
        kind="table",
        title="Hard exploration games against baselines",
        place="Tab. 1, Sec. 4.2",
        shows="NGU reaches similar or higher scores than the baselines on all six hard exploration games, and the "
        "first positive scores on Pitfall! without privileged information.",
        tasks=agents.HARD_GAMES,
        columns=_BASELINES,
        frames=ATARI_FRAMES,
        published=paper_numbers.HARD_EXPLORATION,
        smoke=(("gravitar",), ("r2d2-rnd", "ngu-n1-no-rnd", "ngu")),
    ),
    Experiment(
        name="hard_explore_hns_graph",
        kind="bars",
        title="Human-normalised scores on the 6 hard exploration games",
        place="Fig. 4, Sec. 4.2",
        shows="In mean and median human-normalised scores NGU greatly improves upon existing algorithms.",
        tasks=agents.HARD_GAMES,
        columns=_BASELINES,
        groups={"hard exploration games": tuple(task.name for task in agents.HARD_GAMES)},
        frames=ATARI_FRAMES,
        published=paper_numbers.HARD_EXPLORATION,
        smoke=(("gravitar",), ("r2d2-retrace", "ngu")),
    ),
    Experiment(
        name="ap_mr_graph",
        kind="curves",
        title="Learning curves on Pitfall! and Montezuma's Revenge, with and without RND",
        place="Fig. 5, Sec. 4.2",
        shows="On Pitfall! RND makes NGU less data efficient; on Montezuma's Revenge it greatly improves the results.",
        tasks=(agents.PITFALL, agents.MONTEZUMA),
        columns=tuple(column(arm) for arm in (NGU, NGU_NO_RND, NGU_N1, NGU_N1_NO_RND)),
        panels=(
            Panel("score in evaluation", "score"),
            # The paper speaks of the exploratory policy's.
            Panel("rooms in an episode", "rooms", ("eval/explore/rooms", "eval/exploit/rooms")),
        ),
        frames=ATARI_FRAMES,
        published={
            **paper_numbers.HARD_EXPLORATION,
            "NGU(N=32)-RND": paper_numbers.ABLATIONS["w/o RND"],
        },
        said=(
            "NGU(N=32) explores an average of 46 rooms of Pitfall! per episode and crosses 14 before the first "
            "extrinsic reward.",
        ),
        smoke=(("pitfall",), ("ngu", "ngu-no-rnd")),
    ),
    Experiment(
        name="table_single_mixture_dense_games",
        kind="table",
        title="Dense reward games against baselines",
        place="Tab. 2, Sec. 4.2",
        shows="NGU(N=1) underperforms R2D2 on most games and fails on Pong; NGU(N=32) plays Pong, but does not match "
        "R2D2 on Breakout and Beam Rider.",
        tasks=agents.DENSE_GAMES,
        columns=_BASELINES,
        frames=ATARI_FRAMES,
        published=paper_numbers.DENSE_REWARDS,
        smoke=(("pong",), ("r2d2-retrace", "ngu")),
    ),
    Experiment(
        name="ngu_evals_graph",
        kind="curves",
        title="NGU(N=32) evaluated with beta_0 and with beta_31",
        place="Fig. 6, Sec. 4.2",
        shows="On Q*bert both policies behave alike, on Pitfall! and Beam Rider differently, and on Montezuma's "
        "Revenge the exploratory policy has the higher score.",
        tasks=tuple(map(game, ("pitfall", "montezuma_revenge", "qbert", "beam_rider"))),
        columns=_BOTH_POLICIES,
        frames=ATARI_FRAMES,
        published=paper_numbers.ATARI57,
        remarks=("Which games the figure shows is taken from the text; the numbers are those of table_atari57.",),
    ),
    Experiment(
        name="beta_distrib",
        kind="ladder",
        title="Values taken by the beta_i, N = 32 and beta = 0.3",
        place="Fig. 7 (a), App. A",
        shows="The ladder of weights focuses on its two ends, the exploitative and the very exploratory policies.",
        seeds=0,
    ),
    Experiment(
        name="gamma_distrib",
        kind="ladder",
        title="Values taken by the gamma_i, N = 32, from 0.997 to 0.99",
        place="Fig. 7 (b), App. A",
        shows="The discounts are evenly spaced in the logarithm of 1 - gamma.",
        seeds=0,
    ),
    *_SINGLE_POLICY,
    Experiment(
        name="beta_results",
        kind="table",
        title="Further ablation results on hard exploration games",
        place="Tab. 4, App. C.2",
        shows="On Gravitar, Solaris and Venture beta = 0.2 and 0.5 differ little from 0.3.",
        tasks=tuple(map(game, ("gravitar", "solaris", "venture"))),
        columns=tuple(column(arm) for arm in (NGU, BETA_LOW, BETA_HIGH)),
        frames=ATARI_FRAMES,
        published=paper_numbers.FURTHER_ABLATIONS,
        smoke=(("gravitar",), ("ngu", "beta-0.5")),
    ),
    *paper_settings.TABLES,
    Experiment(
        name="table_hyper_ranges",
        kind="table",
        title="What the paper swept over: beta, N, cross mixture ratio, episodes between wiping the memory",
        place="Tab. 9, App. F.5 and F.1",
        shows="The settings of NGU(N=32) are those with which most of 8 games had superhuman scores; the best beta of "
        "R2D2+RND was 0.3 of 0.1, 0.3 and 0.5.",
        tasks=_ABLATION_GAMES,
        columns=tuple(
            column(arm)
            for arm in (
                NGU,
                NGU_N1,
                N2,
                N8,
                N16,
                CMR_QUARTER,
                CMR_HALF,
                BETA_LOW,
                BETA_HIGH,
                META_3,
                R2D2_RND_LOW,
                R2D2_RND,
                R2D2_RND_HIGH,
            )
        ),
        frames=ATARI_FRAMES,
        frames_said=False,
        published={
            **{row: paper_numbers.ABLATIONS[row] for row in ("Human", *_SWEPT_WITH_N_32)},
            **{
                row: {**paper_numbers.DENSE_REWARDS[row], **paper_numbers.HARD_EXPLORATION[row]}
                for row in (NGU_N1.label, R2D2_RND.label)
            },
        },
        remarks=(
            "The paper swept over combinations, and prints neither their scores nor their frames; here one value at a "
            "time differs from NGU(N=32), and beta alone from R2D2+RND. The numbers beside ours are those of its other "
            "tables, after 35 billion frames.",
        ),
        smoke=(("pong",), ("cmr-0.25", "meta-3", "r2d2-rnd-beta-0.1")),
    ),
    Experiment(
        name="table_atari57",
        kind="table",
        title="Scores over all 57 Atari games",
        place="Tab. 10, App. G",
        shows="NGU(N=32) is above human level on 51 of 57 games.",
        tasks=agents.ALL_GAMES,
        columns=(column(R2D2_RETRACE), *_BOTH_POLICIES),
        frames=ATARI_FRAMES,
        published=paper_numbers.ATARI57,
        said=(
            "Median human-normalised scores: NGU 1354.4 % (1344.0 % in the abstract), R2D2 1920.6 %, R2D2(Retrace) "
            "1451.8 %, IMPALA 191.8 %, DQN 95 %.",
        ),
        smoke=(("gravitar", "pong"), ()),
    ),
    Experiment(
        name="atari57",
        kind="curves",
        title="Learning curves on all 57 Atari games",
        place="Fig. 14, App. G",
        shows="R2D2(Retrace), and NGU(N=32) evaluated with beta = 0 and with beta = 0.3.",
        tasks=agents.ALL_GAMES,
        columns=(column(R2D2_RETRACE), *_BOTH_POLICIES),
        frames=ATARI_FRAMES,
        published=paper_numbers.ATARI57,
        smoke=(("gravitar", "pong"), ()),
    ),
    Experiment(
        name="predictability_results",
        kind="curves",
        title="What linear probes read from controllable states on Montezuma's Revenge",
        place="Fig. 18, App. I.1",
        shows="The position can be read from the learned controllable state with an error that does not grow as new "
        "rooms are found; the room can be read in about four of five cases.",
        tasks=(agents.MONTEZUMA,),
        columns=(Column(_PROBED.label, _PROBED, ("probe/position/squared_error",)),),
        panels=(
            Panel("position, squared error", "units squared", ("probe/position/squared_error",)),
            Panel("room, error rate", "share of steps", ("probe/room/error_rate",), share=True),
        ),
        frames=ATARI_FRAMES,
        said=(
            "The magnitude of the error in (x, y) is of the order of 12 units, less than 10 % of the range; the error "
            "in the room settles slightly above 20 %, where chance is 96 %.",
        ),
        remarks=("The paper draws the errors against minibatch updates; here they stand against agent steps.",),
    ),
    Experiment(
        name="initial_results",
        kind="curves",
        title="Montezuma's Revenge with hand-crafted controllable states and meta-episodes of 3 episodes",
        place="Fig. 19, App. I.2",
        shows="With the true position, room and keys as controllable state NGU(N=1) scores higher than with learned "
        "ones, RND helps, and without extrinsic rewards it still scores highly and visits more than 20 rooms.",
        tasks=(agents.MONTEZUMA,),
        columns=tuple(column(arm) for arm in _HAND_CRAFTED),
        panels=(
            Panel("score in evaluation", "score"),
            Panel("rooms in an episode", "rooms", ("eval/exploit/rooms", "eval/explore/rooms")),
            *(
                Panel(f"{place} episode of a meta-episode, {what}", unit, (f"eval/explore/{unit}/episode_{number}",))
                for number, place in enumerate(("first", "second", "third"), 1)
                for what, unit in (("score", "score"), ("rooms", "rooms"))
            ),
        ),
        frames=ATARI_FRAMES,
        frames_said=False,
        seeds=5,
        said=(
            "With RND close to 15,000 average return and an average of 25 rooms per episode; three out of five seeds "
            "reach the second level, one the third with an average of fifty rooms.",
            "The first episode after wiping the memory scores 14,660 ± 196, the third 34,040 ± 9,835 with over 30 "
            "rooms on average.",
            "Without extrinsic rewards more than 20 rooms.",
        ),
        remarks=("The paper does not say how many frames these runs had; those of its other runs are taken.",),
        smoke=((), ("hand-crafted", "hand-crafted-no-extrinsic")),
    ),
)

EXPERIMENTS: Mapping[str, Experiment] = {entry.name: entry for entry in (*_ALL, *OURS)}
"""By label; those of the paper first."""


def experiment(name: str) -> Experiment:
    """The experiment of a label."""
    if name not in EXPERIMENTS:
        raise UserError(unknown_name(f"the experiment {name}", name, EXPERIMENTS))
    return EXPERIMENTS[name]
