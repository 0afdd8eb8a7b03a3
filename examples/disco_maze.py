"""The whole agent from Python: learn a maze, evaluate, save, load, and walk through one maze step by step.

    python examples/disco_maze.py

The preset learns for 2,000,000 steps. `--steps 20000` goes through the same in seconds, with an agent that has learned
little yet. `ngu train` does this from the command line, with metrics, checkpoints and a report.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gymnasium
import tyro

import ngu


@dataclass(frozen=True)
class Settings:
    """Learns the small Disco Maze and plays one episode."""

    steps: int | None = None
    """Agent steps to learn for; the preset's run.steps if not given."""
    out: Path = Path("runs/disco-maze-example")
    """Where the agent is saved: a folder that does not exist yet."""
    seed: int = 0
    """Seed of training and of the maze that is played."""


def main(settings: Settings) -> float:
    """Returns the share of the open cells that the played episode visited."""
    if settings.out.exists():
        raise SystemExit(f"{settings.out} exists already; choose another folder with --out.")

    # A preset, with any setting changed by its dotted name.
    agent = ngu.NGU("disco-maze-small", overrides={"run.seed": settings.seed})
    agent.learn(settings.steps)
    for name, value in agent.evaluate().items():
        print(f"{name}: {value:.3f}")

    agent.save(settings.out)
    agent = ngu.NGU.load(settings.out)
    print(f"saved to {settings.out} and loaded at {agent.steps:,} steps")

    # The agent plays any environment with observations of the shape it was trained on.
    maze = agent.config.env
    env = gymnasium.make("ngu/DiscoMaze-v0", size=maze.maze_size, step_cap=maze.maze_step_cap, render_mode="ansi")
    observation, info = env.reset(seed=settings.seed)
    state, reward, over = None, 0.0, False
    while not over:
        # `state` carries the recurrent state, the last action and the episode's novelty; None begins an episode.
        action, state = agent.predict(observation, state, reward=reward)
        observation, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
    print(env.render())
    return float(info["coverage"])


if __name__ == "__main__":
    main(tyro.cli(Settings))
