"""Looks into a trained agent of Montezuma's Revenge: what places pay, what Q promises, and whether it gets stuck.

    python examples/look_into_a_game_agent.py RUN

RUN is a folder that `ngu train atari-node` has left, or another Atari preset. The most exploratory policy plays with
the evaluation's epsilon, on the CPU; then, with the same novelty, a player that acts at random: an agent to which no
more comes at the same age than to this one has not learned what it is paid for. A table for each, by the age of the
episode (means over all ages would favour who dies early: with a new episode everything is new again). Distances and
RND's errors are measured against the means of the games that are played, so each is paid by the measure of its own.

The first table has

- the places, 4 by 4 pixels of a room, that the episode has come to: what exploring is for, however novelty is measured;
- r_i by how often the place had been visited in the episode: whether novelty points anywhere;
- the share of steps at places that have been visited 30 times and more: whether the agent is stuck;
- Q of the best action against the discounted return of r_e + beta r_i that followed, as far as it was played: a Q far
  above it cannot be true. Of a player that acts at random Q says nothing.

The second one goes by how the player's place has changed since the last step, with alpha's mean: what kind of exploring
is paid. Whoever falls far dies, and lies still for a while before the next life begins.

With --map each room is drawn as well: which share of the episodes has come to each place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from torch import Tensor

from ngu.config_reading import with_overrides
from ngu.envs.atari_game import HAND_CRAFTED_GAME
from ngu.envs.make import make_environment
from ngu.mixture import Mixture
from ngu.novelty.lifelong import clipped_modulator
from ngu.report.playing import Player
from ngu.retrace import ValueTransform

_VISITS = (0, 1, 2, 4, 10, 30)
"""Columns of the first table: from so many visits on."""
_AGES = (0, 100, 300, 700)
"""Rows: from this step of an episode on."""
_PLACE = 4
"""Pixels; positions that near count as one place."""
_MOVES = ("falls", "jumps, climbs fast", "walks, climbs", "still", "next life, room")
"""A drop of 5 pixels and more; 3 and more up or down; any other change; none; more than anybody moves in a step."""

_LETTERS = ".-+#"
_SHARES = (0.05, 0.2, 0.5)
"""Of the episodes that came to a place: from here on the next letter stands."""


@dataclass(frozen=True)
class Settings:
    """Prints what an agent of Montezuma's Revenge does with its episodes."""

    run: tyro.conf.Positional[Path]
    """A run folder."""
    envs: int = 6
    """Games that are played at the same time."""
    steps: int = 1500
    """Of each game; one that ends begins anew."""
    seed: int = 7
    map: bool = False
    """Draws where episodes have come to."""


@dataclass(frozen=True)
class Play:
    """T steps of E games, [T, E] each."""

    novelty: Tensor
    visits: Tensor
    """How often the place had been visited in the episode."""
    places: Tensor
    """How many places the episode has come to so far."""
    age: Tensor
    """Of the episode, in steps."""
    value: Tensor
    """Q of the best action after the step, untransformed."""
    came: Tensor
    """The discounted return after the step, until the episode's or the play's end."""
    rooms: Tensor
    score: Tensor
    alpha: Tensor
    """The factor on the episodic reward."""
    move: Tensor
    """Index into `_MOVES`; -1 where an episode begins."""
    place: Tensor
    """[T, E, 3]: column, row from below, and room."""


def moves(before: Tensor, after: Tensor) -> Tensor:
    """[E, 2] positions before and after a step to [E] indices into `_MOVES`; y is counted from below."""
    across, up = (after - before).unbind(1)
    kinds = (  # where two hold, the later one counts
        (1, up.abs() >= 3),
        (0, up <= -5),
        (3, (across == 0) & (up == 0)),
        (4, (across.abs() > 30) | (up.abs() > 40)),
    )
    move = torch.full_like(across, 2, dtype=torch.int64)
    for index, kind in kinds:
        move = torch.where(kind, index, move)
    return move


@torch.no_grad()
def play(player: Player, settings: Settings, at_random: bool) -> Play:
    config = player.config
    changes = {"env.backend": "workers", "env.workers": 1, "probe.enabled": True}
    if config.novelty.hand_crafted:
        del changes["probe.enabled"]  # positions are measured already
    env = make_environment(with_overrides(config, changes), settings.envs, torch.device("cpu"))
    actor = player.actor(env, settings.seed)
    if at_random:
        actor.epsilon.fill_(1.0)
    room = "room_and_level" if config.novelty.hand_crafted else "room"
    family = Mixture.create(config.mixture, torch.device("cpu"))
    beta, discount = family.beta[player.mixture].item(), family.discount[player.mixture].item()
    transform = ValueTransform.create(config.learner)
    visited: list[dict[tuple[int, ...], int]] = [{} for _ in range(settings.envs)]
    columns: dict[str, list[Tensor]] = {}
    rewards, ends, age = [], [], torch.zeros(settings.envs)

    def position(info: Mapping[str, Tensor]) -> Tensor:
        return torch.stack([info["player_x"], info["player_y"]], 1)

    before = position(actor.reset(settings.seed).info)
    for _ in range(settings.steps):
        step = actor.step()
        age = torch.where(step.first, 0.0, age + 1)
        counts, here = [], []
        for e, seen in enumerate(visited):
            if step.first[e]:
                seen.clear()
            x, y = (int(step.info[name][e]) // _PLACE for name in ("player_x", "player_y"))
            place = (x, y, int(step.info[room][e]))
            counts.append(seen.get(place, 0))
            seen[place] = counts[-1] + 1
            here.append(place)
        newest = {
            "novelty": actor.intrinsic,
            "visits": torch.tensor(counts),
            "places": torch.tensor([len(seen) for seen in visited]),
            "age": age,
            "value": transform.expand(actor.q.max(-1).values),
            "rooms": step.info["rooms"],
            "score": step.info["score"],
            "alpha": clipped_modulator(actor.alpha, config.novelty.max_modulation),
            "move": torch.where(step.first, -1, moves(before, position(step.info))),
            "place": torch.tensor(here),
        }
        before = position(step.info)
        for name, value in newest.items():
            columns.setdefault(name, []).append(value.clone())
        rewards.append(step.reward + beta * actor.intrinsic)
        ends.append(step.first.clone())
    env.close()
    came, later = [], torch.zeros(settings.envs)
    for reward, first in zip(rewards[::-1], ends[::-1], strict=True):
        came.append(later)
        later = torch.where(first, 0.0, reward + discount * later)
    return Play(**{name: torch.stack(values) for name, values in columns.items()}, came=torch.stack(came[::-1]))


def between(values: Tensor, borders: Sequence[int]) -> list[Tensor]:
    """Where values are at least one border and below the next."""
    ends = [*borders[1:], float("inf")]
    return [(values >= low) & (values < high) for low, high in zip(borders, ends, strict=True)]


def mean(values: Tensor, where: Tensor) -> float:
    """0 where there is nothing."""
    return values[where].float().mean().item() if where.any() else 0.0


def report(name: str, played: Play) -> dict[str, list[float]]:
    """Prints the tables, and returns those of them that are a column each."""
    print(f"{name}: rooms in a game up to {played.rooms.max():.0f}, score up to {played.score.max():g}")
    visits = between(played.visits, _VISITS)
    print(
        f"age        {'places':>8}"
        + "".join(f"{f'r_i, {low}+ visits':>18}" for low in _VISITS)
        + f"{'stuck':>8}{'Q':>8}{'came':>8}"
    )
    # Of the last steps too little of what came was seen.
    known = (torch.arange(len(played.age)) < 2 / 3 * len(played.age)).unsqueeze(1)
    told: dict[str, list[float]] = {"places": [], "stuck": [], "value": [], "came": []}
    for low, rows in zip(_AGES, between(played.age, _AGES), strict=True):
        told["places"].append(mean(played.places, rows))
        told["stuck"].append(mean(visits[-1], rows))
        told["value"].append(mean(played.value, rows & known))
        told["came"].append(mean(played.came, rows & known))
        paid = "".join(f"{mean(played.novelty, rows & part):18.1f}" for part in visits)
        places, stuck, value, came = (column[-1] for column in told.values())
        print(f"from {low:<6}{places:8.1f}{paid}{stuck:8.1%}{value:8.0f}{came:8.0f}")
    print(f"{'move':20}{'steps':>8}{'r_i':>8}{'alpha':>8}{'of all r_i':>12}")
    told |= {"moved": [], "paid": []}
    for index, move in enumerate(_MOVES):
        rows = played.move == index
        told["moved"].append(rows.float().mean().item())
        told["paid"].append((played.novelty[rows].sum() / played.novelty.sum()).item())
        share, earned = told["moved"][-1], told["paid"][-1]
        print(f"{move:20}{share:8.1%}{mean(played.novelty, rows):8.1f}{mean(played.alpha, rows):8.2f}{earned:12.1%}")
    return told


def drawn(played: Play) -> list[str]:
    """Every room that was seen, a letter for each place: `.` for less than 5 % of the episodes, # for half and more."""
    episode = (played.move == -1).long().cumsum(0) * played.place.shape[1] + torch.arange(played.place.shape[1])
    came = torch.cat([played.place, episode.unsqueeze(-1)], -1).flatten(0, 1).unique(dim=0)
    places, counts = came[:, :3].unique(dim=0, return_counts=True)
    shares = {
        tuple(place): count / len(episode.unique())
        for place, count in zip(*map(Tensor.tolist, (places, counts)), strict=True)
    }
    lines = []
    for room in sorted({room for _, _, room in shares}):
        lines.append(f"room {room}")
        rows = [row for _, row, place in shares if place == room]
        columns = range(max(column for column, _, place in shares if place == room) + 1)
        for row in range(max(rows), min(rows) - 1, -1):
            letters = (_letter(shares.get((column, row, room))) for column in columns)
            lines.append(f"{row * _PLACE:4} {''.join(letters)}".rstrip())
    return lines


def _letter(share: float | None) -> str:
    return " " if share is None else _LETTERS[sum(share >= border for border in _SHARES)]


def main(settings: Settings) -> dict[str, dict[str, list[float]]]:
    torch.set_num_threads(1)
    player = Player.load(settings.run, "explore")
    if player.config.env.name != "atari" or player.config.env.game != HAND_CRAFTED_GAME:
        raise SystemExit(f"{settings.run} was not trained on {HAND_CRAFTED_GAME}; only there is the position known.")
    told = {}
    for name, at_random in (("the agent", False), ("at random", True)):
        played = play(player, settings, at_random)
        told[name] = report(name, played)
        if settings.map:
            print("\n".join(drawn(played)))
    return told


if __name__ == "__main__":
    main(tyro.cli(Settings))
