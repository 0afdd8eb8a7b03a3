"""Scripted policies for the Disco Maze: what to compare a learned policy with.

Each is a rule of preference over the four directions, given the direction of the last step. They may look at the walls
around the player, which the agent has to learn to see.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ngu.envs.disco_maze import ACTIONS, DiscoMaze
from ngu.envs.protocol import Step
from ngu.errors import UserError, unknown_name

LEFT, RIGHT, UP, DOWN = range(len(ACTIONS))
REVERSE = {LEFT: RIGHT, RIGHT: LEFT, UP: DOWN, DOWN: UP}
TURN_LEFT = {LEFT: DOWN, RIGHT: UP, UP: LEFT, DOWN: RIGHT}
NO_STEP = len(ACTIONS)
"""Stands for the direction of the last step where there was none."""


@dataclass(frozen=True)
class Rule:
    """What a scripted policy likes best; equals are chosen among at random."""

    sees_walls: bool
    """Never steps into a wall."""
    straight: int = 0
    """Preference for the direction of the last step."""
    left: int = 0
    """Preference for turning left."""
    right: int = 0
    """Preference for turning right."""
    back: int = 0
    """Preference for turning back."""

    def preferences(self) -> list[list[int]]:
        """[5][4]: the preference for each action after each direction of the last step (or none)."""
        table = [[0] * len(ACTIONS) for _ in range(NO_STEP + 1)]
        for heading in range(len(ACTIONS)):
            table[heading][heading] = self.straight
            table[heading][TURN_LEFT[heading]] = self.left
            table[heading][REVERSE[TURN_LEFT[heading]]] = self.right
            table[heading][REVERSE[heading]] = self.back
        return table


SCRIPTED_POLICIES = {
    "random": Rule(sees_walls=False),
    "oscillating": Rule(sees_walls=True, back=1),
    "wall-avoiding": Rule(sees_walls=True),
    "non-reversing": Rule(sees_walls=True, back=-1),
    "wall-follower": Rule(sees_walls=True, left=2, straight=1, right=0, back=-1),
}
"""Random; to and fro between two cells; a random walk that avoids walls; one that turns back in dead ends alone; the
left hand on the wall."""


class ScriptedPolicy:
    """One of `SCRIPTED_POLICIES`, playing all environments of a `DiscoMaze`."""

    def __init__(self, name: str, env: DiscoMaze, seed: int) -> None:
        if name not in SCRIPTED_POLICIES:
            raise UserError(unknown_name(f"the scripted policy {name}", name, SCRIPTED_POLICIES))
        rule = SCRIPTED_POLICIES[name]
        self._env = env
        self._sees_walls = rule.sees_walls
        self._preferences = torch.tensor(rule.preferences(), dtype=torch.float32, device=env.device)
        self._moves = torch.tensor([-1, 1, -env.size, env.size], device=env.device)
        self._last = torch.full((env.num_envs,), NO_STEP, device=env.device)
        self._generator = torch.Generator(env.device).manual_seed(seed)

    def act(self, step: Step) -> Tensor:
        """[E] int64: the next actions, after `step` of the environments."""
        last = torch.where(step.first, NO_STEP, self._last)
        # Whole preferences plus a fraction: the fraction decides among equals, each with the same chance.
        score = torch.rand((self._env.num_envs, len(ACTIONS)), generator=self._generator, device=self._env.device)
        score += self._preferences[last]
        if self._sees_walls:
            score = score.masked_fill(self._wall_ahead(), -torch.inf)
        self._last = score.argmax(1)
        return self._last

    def _wall_ahead(self) -> Tensor:
        """[E, 4] bool: whether each action would lead into a wall."""
        walls = self._env.walls.flatten(1)
        ahead = self._env.position[:, None] + self._moves
        # A player that has run into the border may look out of the maze; its action is ignored.
        return walls.gather(1, ahead.clamp(0, walls.shape[1] - 1))


def run_scripted(
    name: str,
    size: int,
    step_cap: int,
    num_envs: int,
    seed: int,
    marks: Iterable[int],
    device: torch.device | str = "cpu",
) -> dict[int, float]:
    """Mean coverage of a scripted policy after so many steps (`marks`), over one episode in each of `num_envs` mazes.

    An episode that has ended keeps the coverage it ended with.
    """
    marks = sorted(set(marks))
    if not marks or marks[0] < 1:
        raise UserError(f"the marks are {marks}; give one or more numbers of steps, each 1 or more.")
    env = DiscoMaze(num_envs, size, step_cap, num_envs, device)
    step = env.reset(seed)
    policy = ScriptedPolicy(name, env, seed)
    coverage = step.info["coverage"].clone()
    running = torch.ones_like(step.first)
    means = {}
    for count in range(1, marks[-1] + 1):
        env.send(policy.act(step))
        step = env.recv()
        env.maintain()
        coverage = torch.where(running, step.info["coverage"], coverage)
        running &= ~step.ended
        if count in marks:
            means[count] = coverage.mean().item()
    return means
