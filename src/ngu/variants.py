"""The paper's agents, baselines and ablations as data: each changes a few settings of any preset.

`ngu` changes nothing. A preset's own number N of policies is that of the paper's experiment on its task: 32 on Atari, 1
on the Disco Maze. A variant that the paper ran with one policy alone, such as the sizes of controllable states, sets
N = 1, whatever the preset; `ngu-n1` is what to compare it with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Variant:
    """A few changed settings, and what they are about."""

    label: str
    """What figures call it."""
    what: str
    """One sentence."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Dotted name of a setting -> its value."""
    least: Mapping[str, int] = field(default_factory=dict)
    """What the changes need at least: a preset's smaller number is raised to it."""

    def applied(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """A preset's settings, by dotted name, as this variant has them."""
        changed = {**settings, **self.changes}
        return changed | {name: max(changed[name], least) for name, least in self.least.items()}


_SINGLE = {"mixture.num_mixtures": 1, "mixture.cross_mixture_ratio": 0.0}
_SEVERAL = {"mixture.num_mixtures": 2}
_NO_RND = {"novelty.lifelong": False}
_NO_EXTRINSIC = {"mixture.extrinsic": False}
_RND_ALONE = {"novelty.episodic": False, "novelty.lifelong": True}
_HAND_CRAFTED = {**_SINGLE, "novelty.controllable_states": "hand-crafted", "novelty.memory_episodes": 3}


def _policies(count: int) -> Variant:
    return Variant(
        f"NGU (N={count})",
        f"The agent with {count} policies (table_ablations).",
        {"mixture.num_mixtures": count},
        {"env.num_envs": count},
    )


VARIANTS: Mapping[str, Variant] = {
    "ngu": Variant("NGU", "The agent with the preset's own number of policies, as the paper ran it on that task."),
    "ngu-no-rnd": Variant("NGU-RND", "Without the life-long modulator: alpha is 1 (table_ablations).", _NO_RND),
    "ngu-n1": Variant(
        "NGU (N=1)", "One policy, which explores with beta (table_action_prediction_montezuma).", _SINGLE
    ),
    "ngu-n1-no-rnd": Variant(
        "NGU (N=1)-RND",
        "One policy, without the life-long modulator (table_action_prediction_montezuma).",
        {**_SINGLE, **_NO_RND},
    ),
    "ngu-n2": _policies(2),
    "ngu-n8": _policies(8),
    "ngu-n16": _policies(16),
    "cmr-0.25": Variant(
        "CMR 0.25",
        "A quarter of the sequences are trained as another policy than the one that collected them (App. F.5).",
        {"mixture.cross_mixture_ratio": 0.25},
        _SEVERAL,
    ),
    "cmr-0.5": Variant(
        "CMR 0.5",
        "Half of the sequences are trained as another policy than the one that collected them (table_ablations).",
        {"mixture.cross_mixture_ratio": 0.5},
        _SEVERAL,
    ),
    "beta-0.2": Variant("beta 0.2", "A smaller largest weight of r_i (beta_results).", {"mixture.beta": 0.2}),
    "beta-0.5": Variant("beta 0.5", "A larger largest weight of r_i (beta_results).", {"mixture.beta": 0.5}),
    "no-extrinsic": Variant(
        "without r_e",
        "Learns from beta_i r_i alone; beta_0 then learns nothing, so read the scores of explore (table_ablations).",
        _NO_EXTRINSIC,
    ),
    "random-projection": Variant(
        "random projection",
        "The embedding f stays as it was initialised (fig_disco_maze).",
        {"novelty.controllable_states": "random"},
    ),
    "rnd-only": Variant("RND alone", "The reward is RND's error, not episodic (fig_disco_maze).", _RND_ALONE),
    "r2d2-retrace": Variant(
        "R2D2 (Retrace)",
        "One policy and no intrinsic reward: the agent that NGU builds on.",
        {**_SINGLE, "mixture.beta": 0.0, "novelty.episodic": False, "novelty.lifelong": False},
    ),
    "r2d2-rnd": Variant(
        "R2D2+RND",
        "One policy whose only bonus is RND's error, with beta 0.3 (table_action_prediction_montezuma).",
        {**_SINGLE, "mixture.beta": 0.3, **_RND_ALONE},
    ),
    **{
        f"state-{size}": Variant(
            f"state size {size}",
            f"One policy, controllable states of size {size} (ng1_embedding_mr, ng1_embedding_pitfall).",
            {**_SINGLE, "novelty.embedding_size": size},
        )
        for size in (16, 32, 64)
    },
    **{
        f"neighbours-{count}": Variant(
            f"{count} neighbours",
            f"One policy, the {count} nearest neighbours count (ng1_nn_mr, ng1_nn_pitfall).",
            {**_SINGLE, "novelty.neighbours": count},
        )
        for count in (5, 10, 30)
    },
    **{
        f"max-modulation-{limit}": Variant(
            f"L = {limit}",
            f"One policy, alpha is clipped to [1, {limit}] (ng1_l_mr, ng1_l_pitfall).",
            {**_SINGLE, "novelty.max_modulation": float(limit)},
        )
        for limit in (1, 5, 10)
    },
    "meta-3": Variant(
        "memory over 3 episodes",
        "The episodic memory is wiped after every third episode (App. F.5).",
        {"novelty.memory_episodes": 3},
    ),
    "hand-crafted": Variant(
        "hand-crafted states",
        "One policy, a memory over 3 episodes of states that the environment measures (initial_results).",
        _HAND_CRAFTED,
    ),
    "hand-crafted-no-rnd": Variant(
        "hand-crafted states-RND",
        "The same without the life-long modulator (initial_results).",
        {**_HAND_CRAFTED, **_NO_RND},
    ),
    "hand-crafted-no-extrinsic": Variant(
        "hand-crafted states without r_e",
        "The same, learning from r_i alone (initial_results).",
        {**_HAND_CRAFTED, **_NO_EXTRINSIC},
    ),
}
"""Name -> variant. Names in brackets are labels of the paper's tables and figures."""
