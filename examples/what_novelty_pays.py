"""Does f call new what is new? Novelty by learned states beside novelty by the player's place, on the same games.

    python examples/what_novelty_pays.py RUN --others RUN RUN

RUN is a folder that `ngu train atari-node` has left on Montezuma's Revenge, or another Atari preset, with learned
controllable states. Its most exploratory policy plays, a player that acts at random, and those of the other runs, which
may have hand-crafted states. All their games are then paid by Algorithm 1, with one distance scale for all players: by
the place, x, y and room from the console's memory, and by the newest f of RUN with some cluster distances. RND is left
out.

Places are 4 by 4 pixels of a room. Who comes to one has never been there in this episode, or so many times; returns
after less than ten steps are left out, since the pictures are still the same. The table shows what a first visit pays,
what the later ones pay of that, by whether the last one was in this life of the player or in an earlier one, and the
mean over all steps of an age of the episode. If players who explore earn no more than others do, novelty points
elsewhere; if they do and the agent does not, it has not learned what it is paid for. The last column is the rank
correlation with novelty by place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import tyro
from torch import Tensor

from ngu.config_reading import with_overrides
from ngu.envs.atari_game import HAND_CRAFTED_GAME
from ngu.envs.make import make_environment
from ngu.novelty.embedding import Embedding
from ngu.novelty.episodic import DistanceScale, EpisodicMemory, Kernel, episodic_reward, nearest_squared_distances
from ngu.report.playing import Player

_PAPER = 0.008
"""Cluster distance."""
_PLACE = 4
"""Pixels; positions that near count as one place."""
_VISITS = (1, 3, 8)
"""Columns: from so many visits on."""
_AGES = (1, 100, 200, 400)
"""Columns: from this step of an episode on."""
_AWAY = 10
"""Steps that a player must have been away for."""
_LIVES = slice(6, 8)
"""Lines of the picture."""
_JUMP = (30, 40)
"""Nobody moves farther in a step inside a room: the player is in its next life."""


@dataclass(frozen=True)
class Settings:
    """Compares novelty by learned states with novelty by the player's place."""

    run: tyro.conf.Positional[Path]
    """A run folder; its f is looked at."""
    others: tuple[Path, ...] = ()
    """Run folders whose agents play as well."""
    envs: int = 8
    """Games that each player plays at the same time."""
    steps: int = 1200
    """Of each game; one that ends begins anew."""
    cluster_distances: tuple[float, ...] = (0.008, 0.2, 0.5)
    """Of novelty by f; by the place it is the paper's, 0.008."""
    seed: int = 7
    hide_lives: bool = False
    """f sees pictures in which the number of lives is blackened: what it makes of that number is gone then."""


@dataclass(frozen=True)
class Games:
    """T steps of E games, the first of them the reset."""

    learned: Tensor
    """[T, E, p] controllable states, by f"""
    exact: Tensor
    """[T, E, 3] x, y and room"""
    first: Tensor
    """[T, E] bool"""


@dataclass(frozen=True)
class Visits:
    """What each step is to the player's places, [T, E] each."""

    count: Tensor
    """How often the place had been visited in the episode."""
    away: Tensor
    """Steps since the last visit; of a first visit it says nothing."""
    this_life: Tensor
    """bool: the last visit was in this life."""
    age: Tensor
    """Of the episode, in steps."""


def told_player(run: Path) -> Player:
    player = Player.load(run, "explore")
    if player.config.env.name != "atari" or player.config.env.game != HAND_CRAFTED_GAME:
        raise SystemExit(f"{run} was not trained on {HAND_CRAFTED_GAME}; only there is the position known.")
    return player


def newest_f(player: Player) -> Embedding:
    env = make_environment(player.config, 1, torch.device("cpu"))
    snapshots = player.actor(env, 0).novelty.snapshots
    env.close()
    if snapshots is None:
        raise SystemExit(
            "the run's controllable states are not learned; name one that has an f, and this with --others."
        )
    return snapshots.embedding(int(snapshots.newest))


@torch.no_grad()
def play(player: Player, f: Embedding, settings: Settings, at_random: bool) -> Games:
    config = player.config
    changes = {"env.backend": "workers", "env.workers": 1}
    room = "room_and_level"
    if not config.novelty.hand_crafted:
        changes["probe.enabled"], room = True, "room"
    env = make_environment(with_overrides(config, changes), settings.envs, torch.device("cpu"))
    actor = player.actor(env, settings.seed)
    if at_random:
        actor.epsilon.fill_(1.0)
    columns: list[tuple[Tensor, Tensor, Tensor]] = []
    step = actor.reset(settings.seed)
    for played in range(settings.steps + 1):
        if played:
            step = actor.step()
        exact = torch.stack([step.info[name] for name in ("player_x", "player_y", room)], 1)
        picture = step.observation.clone()
        if settings.hide_lives:
            picture[:, :, _LIVES] = 0
        columns.append((f(picture), exact.clone(), step.first.clone()))
    env.close()
    return Games(*(torch.stack(column) for column in zip(*columns, strict=True)))


def visits(games: Games) -> Visits:
    count, away, age = (torch.zeros(games.first.shape, dtype=torch.int64) for _ in range(3))
    this_life = torch.zeros_like(games.first)
    for e in range(games.first.shape[1]):
        seen: dict[tuple[int, ...], tuple[int, int, int]] = {}
        before, life, began = (0, 0, 0), 0, 0
        for t, (x, y, room) in enumerate(games.exact[:, e].int().tolist()):
            if games.first[t, e]:
                seen, began = {}, t
            elif room == before[2] and (abs(x - before[0]) > _JUMP[0] or abs(y - before[1]) > _JUMP[1]):
                life += 1
            place = (x // _PLACE, y // _PLACE, room)
            times, when, which = seen.get(place, (0, t, life))
            count[t, e], away[t, e], age[t, e], this_life[t, e] = times, t - when, t - began, which == life
            seen[place], before = (times + 1, t, life), (x, y, room)
    return Visits(count, away, this_life, age)


def novelty(states: Tensor, first: Tensor, kernel: Kernel) -> Tensor:
    """Algorithm 1 over [T, E, D] states of games that begin where `first` [T, E] says: [T, E]."""
    steps, envs, size = states.shape
    memory = EpisodicMemory(envs, steps, size, states.device)
    scale = DistanceScale(0.999, states.device)
    paid = []
    for state, begins in zip(states, first, strict=True):
        memory.wipe(begins)
        longest = int(memory.filled.max()) or 1
        distance = nearest_squared_distances(state, memory.entries[:, :longest], memory.filled, kernel.neighbours)
        reward = episodic_reward(distance, scale.update(distance), kernel)
        memory.append(state)
        paid.append(torch.where(begins, 0.0, reward))
    return torch.stack(paid)


def rank_correlation(one: Tensor, other: Tensor) -> float:
    ranks = torch.stack([values.argsort().argsort().float() for values in (one, other)])
    return torch.corrcoef(ranks)[0, 1].item()


def between(values: Tensor, borders: Sequence[int]) -> list[Tensor]:
    """Where values are at least one border and below the next."""
    ends = [*borders[1:], float("inf")]
    return [(values >= low) & (values < high) for low, high in zip(borders, ends, strict=True)]


def mean(values: Tensor, where: Tensor) -> float:
    """Not a number where there is nothing."""
    return values[where].mean().item()


def report(paid: Tensor, exact: Tensor, seen: Visits) -> dict[str, list[float]]:
    """One player's numbers: [T, E] by one measure, and by the exact one."""
    new = mean(paid, (seen.count == 0) & (seen.age > 0))
    known = [(seen.away >= _AWAY) & part for part in between(seen.count, _VISITS)]
    return {
        "new": [new],
        "in this life": [mean(paid, part & seen.this_life) / new for part in known],
        "in an earlier one": [mean(paid, part & ~seen.this_life) / new for part in known],
        "by age": [mean(paid, part) for part in between(seen.age, _AGES)],
        "rank": [rank_correlation(paid[seen.age > 0], exact[seen.age > 0])],
    }


def main(settings: Settings) -> dict[tuple[str, str], dict[str, list[float]]]:
    torch.set_num_threads(1)
    player = told_player(settings.run)
    f = newest_f(player)
    games = {"the agent": play(player, f, settings, False), "at random": play(player, f, settings, True)}
    for run in settings.others:
        games[str(run)] = play(told_player(run), f, settings, False)
    seen = {name: visits(each) for name, each in games.items()}
    first = torch.cat([each.first for each in games.values()], 1)
    kernels = {
        f"f, xi {xi:g}": Kernel.create(replace(player.config.novelty, cluster_distance=xi))
        for xi in settings.cluster_distances
    }
    kernels = {"place": Kernel.create(replace(player.config.novelty, cluster_distance=_PAPER))} | kernels
    told: dict[tuple[str, str], dict[str, list[float]]] = {}
    print(
        f"{'measured by':12}{'player':24}{'new':>6}  again, last in this life / in an earlier one, after "
        f"{', '.join(map(str, _VISITS))} visits   mean from age {', '.join(map(str, _AGES))} on   rank"
    )
    exact = torch.empty(0)
    for measure, kernel in kernels.items():
        states = torch.cat([each.exact if measure == "place" else each.learned for each in games.values()], 1)
        paid = novelty(states, first, kernel)
        exact = paid if measure == "place" else exact
        for index, (name, each) in enumerate(seen.items()):
            columns = slice(index * settings.envs, (index + 1) * settings.envs)
            numbers = report(paid[:, columns], exact[:, columns], each)
            told[measure, name] = numbers
            again = "  ".join(
                f"{one:4.0%} / {other:4.0%}"
                for one, other in zip(numbers["in this life"], numbers["in an earlier one"], strict=True)
            )
            ages = "  ".join(f"{value:5.1f}" for value in numbers["by age"])
            print(f"{measure:12}{name:24}{numbers['new'][0]:6.1f}  {again}   {ages}   {numbers['rank'][0]:5.2f}")
    return told


if __name__ == "__main__":
    main(tyro.cli(Settings))
