"""An episode as an animation, and one wide picture that says what the agent does."""

from __future__ import annotations

from pathlib import Path

from ngu.report.film import check_name, write_film
from ngu.report.kinds import KINDS
from ngu.report.results import write_file
from ngu.report.style import LIGHT, house_style, to_png
from ngu.run_folder import RunFolder


def record_episode(run: Path, out: Path, seed: int = 0, policy: str = "explore", steps: int | None = None) -> Path:
    """Plays one episode with the newest checkpoint and writes it as an animation.

    Args:
        run: the run's folder.
        out: a file that ends in .gif, or in .mp4 where ffmpeg is installed.
        seed: of the environment.
        policy: "explore" (beta_{N-1}) or "exploit" (beta_0); the same when N = 1.
        steps: the animation ends after so many steps; None for an episode of a maze, and for the first 1,000 steps of
            other environments.
    """
    check_name(out)
    kind = KINDS[RunFolder.open(run).config.env.name]
    write_film(kind.film(run, seed, policy, steps), out)
    return out


def poster(run: Path, out_png: Path) -> Path:
    """Draws a maze, the agent's way through it and its coverage; or what an agent sees of its game, and its novelty."""
    kind = KINDS[RunFolder.open(run).config.env.name]
    with house_style():
        write_file(out_png, to_png(kind.poster(run, LIGHT)))
    return out_png
