"""The agents and tasks that experiments are made of, as the paper calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ngu.envs.atari_games import ATARI_GAMES
from ngu.experiments.definition import EXPLORE_SCORE, Arm, Column, Task


def game(name: str) -> Task:
    return Task(name, ATARI_GAMES[name].title, "atari", {"env.game": name})


DENSE_GAMES = tuple(map(game, ("pong", "qbert", "breakout", "space_invaders", "beam_rider")))
"""The games that Mnih et al. (2015) chose their hyperparameters on (Sec. 4.2)."""
HARD_GAMES = tuple(map(game, ("gravitar", "montezuma_revenge", "pitfall", "private_eye", "solaris", "venture")))
"""The hard exploration games of Bellemare et al. (2016)."""
HARD_ABLATION_GAMES = tuple(map(game, ("montezuma_revenge", "pitfall", "private_eye")))
ALL_GAMES = tuple(map(game, ATARI_GAMES))
MONTEZUMA, PITFALL = game("montezuma_revenge"), game("pitfall")
DISCO_MAZE = Task("disco-maze", "Random Disco Maze", "disco-maze")


def _full(name: str, label: str, settings: Mapping[str, Any] | None = None) -> Arm:
    """A variant of the agent with 32 policies; small presets have fewer, so the number is said."""
    return Arm(name, label, name, {"mixture.num_mixtures": 32, **(settings or {})})


NGU = _full("ngu", "NGU(N=32)")
NGU_NO_RND = _full("ngu-no-rnd", "NGU(N=32)-RND")
NGU_N1 = Arm("ngu-n1", "NGU(N=1)", "ngu-n1")
NGU_N1_NO_RND = Arm("ngu-n1-no-rnd", "NGU(N=1)-RND", "ngu-n1-no-rnd")
R2D2_RETRACE = Arm("r2d2-retrace", "R2D2(Retrace)", "r2d2-retrace")
R2D2_RND = Arm("r2d2-rnd", "R2D2+RND", "r2d2-rnd")
R2D2_RND_LOW, R2D2_RND_HIGH = (
    Arm(f"r2d2-rnd-beta-{beta}", f"R2D2+RND, beta={beta}", "r2d2-rnd", {"mixture.beta": beta}) for beta in (0.1, 0.5)
)

N2 = Arm("ngu-n2", "N=2", "ngu-n2")
N8 = Arm("ngu-n8", "N=8", "ngu-n8")
N16 = Arm("ngu-n16", "N=16", "ngu-n16")
CMR_QUARTER = _full("cmr-0.25", "CMR=0.25")
CMR_HALF = _full("cmr-0.5", "CMR=0.5")
META_3 = _full("meta-3", "memory over 3 episodes")
BETA_LOW = _full("beta-0.2", "beta=0.2")
BETA_HIGH = _full("beta-0.5", "beta=0.5")
NO_EXTRINSIC = _full("no-extrinsic", "w/o r_e")

RANDOM_PROJECTION = Arm("random-projection", "random projection", "random-projection")
RND_ONLY = Arm("rnd-only", "RND", "rnd-only")
LEARNED_STATES = Arm("ngu", "learned controllable states", "ngu")
"""NGU on the Disco Maze, where one policy alone explores."""


def column(arm: Arm, label: str = "") -> Column:
    """The score that the paper reports of an agent. Without extrinsic rewards beta_0 has no reward at all, so there it
    is that of beta_{N-1}; the paper does not say which policy it evaluated."""
    return Column(label or arm.label, arm, EXPLORE_SCORE) if arm is NO_EXTRINSIC else Column(label or arm.label, arm)
