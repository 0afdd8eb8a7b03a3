r"""How far into the first room of Montezuma's Revenge do an agent's games come while it is trained?

    python examples/where_games_come_to.py atari-node --variant ngu-n1 --config examples/small_montezuma.toml \
        --probe.enabled

Trains as `ngu train` does with the same arguments, but leaves no folder. For each stretch of agent steps it tells which
share of the games that were under way came to the ladder at the right, which leads down from the upper half of the
room, to the ladder at the left, which leads up from the floor to the key, and to a first reward, the key. Players who
act at random come to the right ladder in three of ten games.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from ngu.actor import Actor
from ngu.commands.train import read_config
from ngu.config import Config
from ngu.config_reading import with_overrides
from ngu.envs.atari_game import HAND_CRAFTED_GAME
from ngu.envs.protocol import Step
from ngu.runners.local import LocalRunner
from ngu.training import Training

_STRETCH = 100_000
"""Agent steps that are told together."""
_GOALS = ("right ladder", "left ladder", "key")
_FLOOR, _UPPER = 152, 188
"""y between which the ladders are."""
_LEFT, _RIGHT = 30, 128
"""x of the ladders: below the first, from the second on."""


class Watched:
    """The goals that the games of an actor have come to since the last look, [E, 3] bool for each of its games."""

    def __init__(self, actor: Actor) -> None:
        self._receive = actor.receive
        self._games = torch.zeros(actor.env.num_envs, len(_GOALS), dtype=torch.bool)
        self._ended: list[Tensor] = []
        actor.receive = self.receive  # type: ignore[method-assign]

    def receive(self) -> Step:
        step = self._receive()
        x, y, rooms = (step.info[name].cpu() for name in ("player_x", "player_y", "rooms"))
        first, reward = step.first.cpu(), step.reward.cpu()
        self._ended += self._games[first].unbind(0)
        self._games[first] = False
        # Who has seen another room has been on the ladders before.
        on_ladder = (rooms == 1) & (y > _FLOOR) & (y < _UPPER)
        self._games |= torch.stack([on_ladder & (x >= _RIGHT), on_ladder & (x < _LEFT), reward > 0], 1)
        return step

    def pop(self) -> Tensor:
        """[G, 3], the games that ended and those that go on."""
        games = torch.stack([*self._ended, *self._games])
        self._ended.clear()
        self._games.zero_()
        return games


def main(arguments: Sequence[str]) -> list[tuple[int, list[float]]]:
    config = with_overrides(read_config(list(arguments)), {"evaluation.period": 0})
    check(config)
    training = Training(config)
    runner = training.runner
    assert isinstance(runner, LocalRunner)
    watched = [Watched(actor) for actor in runner.agent.actors]
    told: list[tuple[int, list[float]]] = []
    print("agent steps  games" + "".join(f"{goal:>14}" for goal in _GOALS), flush=True)
    while runner.steps < config.run.steps:
        before = runner.steps
        runner.advance()
        steps = runner.steps
        if before // _STRETCH != steps // _STRETCH or steps >= config.run.steps:
            games = torch.cat([each.pop() for each in watched])
            told.append((steps, games.float().mean(0).tolist()))
            print(f"{steps:11,}{len(games):7}" + "".join(f"{share:14.1%}" for share in told[-1][1]), flush=True)
    training.close()
    return told


def check(config: Config) -> None:
    measured = config.probe.enabled or config.novelty.hand_crafted
    if config.env.name != "atari" or config.env.game != HAND_CRAFTED_GAME or config.env.backend != "workers":
        raise SystemExit(f"only {HAND_CRAFTED_GAME} is known here, with --env.backend workers, which read its memory.")
    if config.run.runner != "local":
        raise SystemExit("only actors of this process can be watched; leave run.runner local.")
    if not measured:
        raise SystemExit("the player's place is measured for probes and hand-crafted states; add --probe.enabled.")


if __name__ == "__main__":
    main(sys.argv[1:])
