"""An environment of your own: a car that is paid for nothing but the hilltop, which random actions hardly ever reach.

    python examples/goal_mountain_car.py

Gymnasium's MountainCar with a reward of 100 at the goal and 0 before, and observations scaled to [-1, 1]. It is
registered under an id, and the agent makes and steps it in worker processes. The same from the command line, with
metrics, checkpoints and a report:

    PYTHONPATH=examples ngu train gym --env goal_mountain_car:GoalMountainCar-v0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import tyro

import ngu


class PaidAtTheGoal(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A reward where the episode ends at the goal, 0 everywhere else; measures how far right the car has been."""

    # Worth about as much as the novelty ahead: 0.3 (beta) x 5 (a usual r_i) x 100 (steps that a discount of 0.99 sees).
    PRIZE = 100.0

    # The agent reports these names of `info` beside the score: env/farthest, eval/exploit/farthest.
    measurements = ("farthest",)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        self.farthest = float(observation[0])
        return observation, {**info, "farthest": self.farthest}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super().step(action)
        self.farthest = max(self.farthest, float(observation[0]))
        return observation, self.PRIZE * terminated, terminated, truncated, {**info, "farthest": self.farthest}


def make_environment(render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """The embedding f sees vectors as they are, so they should be of order 1; the car's speed is at most 0.07."""
    car = gymnasium.make("MountainCar-v0", render_mode=render_mode)  # `ngu record` asks for pictures
    return PaidAtTheGoal(gymnasium.wrappers.RescaleObservation(car, np.float32(-1), np.float32(1)))


gymnasium.register("GoalMountainCar-v0", entry_point=make_environment)


@dataclass(frozen=True)
class Settings:
    """Learns to drive up the hill and plays one episode."""

    steps: int = 150_000
    """Agent steps to learn for."""
    variant: str = "ngu"
    """r2d2-retrace shows what becomes of the agent without the intrinsic reward."""
    num_envs: int = 16
    """Environments that act at the same time, spread over worker processes."""
    seed: int = 0
    """Seed of training and of the episode that is played."""


def main(settings: Settings) -> None:
    overrides = {
        "env.id": "GoalMountainCar-v0",
        "env.num_envs": settings.num_envs,
        "evaluation.period": 0,
        "run.seed": settings.seed,
    }
    # Leaving the block ends the worker processes.
    with ngu.NGU("gym", variant=settings.variant, overrides=overrides) as agent:
        agent.learn(settings.steps)
        for name, value in agent.evaluate().items():
            print(f"{name}: {value:.2f}")

        env = make_environment()
        observation, info = env.reset(seed=settings.seed)
        state, reward, over, steps = None, 0.0, False, 0
        while not over:
            # Policy beta_0 goes for the reward alone; "explore" would go for novelty.
            action, state = agent.predict(observation, state, reward=reward, policy="exploit")
            observation, reward, terminated, truncated, info = env.step(action)
            over, steps = terminated or truncated, steps + 1
        where = "at the goal" if terminated else f"out of time; it came to {info['farthest']:.2f}, the goal is at 0.89"
        print(f"after {steps} steps: {where}")


if __name__ == "__main__":
    main(tyro.cli(Settings))
