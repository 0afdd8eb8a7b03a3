"""The vector environment against a plain emulator, step for step; the 57 games and their scores."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from atari_oracle import PlainAtari
from worker_checks import wait_until

from ngu.envs.atari import AtariVector, _made_by_a_thread_that_steps_back, emulator_seeds
from ngu.envs.atari_games import ATARI_GAMES, check_game, human_normalised
from ngu.envs.priority import EMULATOR_NICENESS
from ngu.errors import UserError

ENVS = 3

# Games that end often under random play; truncation at each of the 4 repeated frames; one game that forbids half of the
# actions; one whose memory outlives a reset.
PLAYED = [
    ("breakout", 108_000, 500, "terminated"),
    ("seaquest", 108_000, 500, "terminated"),
    ("montezuma_revenge", 1_003, 510, "truncated"),
    ("pong", 400, 310, "truncated"),
    ("skiing", 198, 150, "truncated"),
    ("beam_rider", 333, 250, "truncated"),
]


@pytest.mark.parametrize(("game", "max_frames", "steps", "ends"), PLAYED)
def test_equals_a_plain_emulator_step_for_step(game: str, max_frames: int, steps: int, ends: str) -> None:
    batch = AtariVector(game, ENVS, threads=2, max_frames=max_frames)
    oracles = [PlainAtari(game, max_frames) for _ in range(ENVS)]
    random = np.random.default_rng(7)
    step = batch.reset(seed=5)
    ended = {"terminated": 0, "truncated": 0}
    for time_step in range(steps + 1):
        if time_step:
            action = random.integers(18, size=ENVS)
            batch.send(torch.from_numpy(action))
            step = batch.recv()
        for env, oracle in enumerate(oracles):
            first = oracle.over
            if first:
                expected = (oracle.reset(frames=int(batch.episode_frames[env])), 0, False, False)
            else:
                expected = oracle.step(int(action[env]))
            place = f"{game}, step {time_step}, environment {env}"
            np.testing.assert_array_equal(step.observation[env, 0].numpy(), expected[0], err_msg=place)
            signals = (step.reward[env].item(), step.terminated[env].item(), step.truncated[env].item())
            assert signals == expected[1:], place
            assert step.first[env].item() == first, place
            assert step.info["score"][env].item() == oracle.score, place
            ended["terminated"] += expected[2]
            ended["truncated"] += expected[3]
            if expected[3]:
                assert oracle.steps == batch.spec.max_episode_steps
    batch.close()
    for kind, times in ended.items():
        assert times >= 3 or kind != ends, f"{times} episodes of {game} were {kind}"


def test_the_step_after_an_end_begins_an_episode_and_brings_no_reward() -> None:
    batch = AtariVector("pong", 2, max_frames=40, noops=5)
    step = batch.reset(seed=0)
    assert step.first.all()
    assert not step.ended.any()
    was_over = step.ended
    episodes = 0
    for _ in range(40):
        batch.send(torch.full((2,), 3))
        step = batch.recv()
        assert torch.equal(step.first, was_over)
        assert (step.reward[step.first] == 0).all()
        assert (step.info["score"][step.first] == 0).all()
        assert not step.ended[step.first].any()
        was_over = step.ended
        episodes += int(step.first.sum())
    assert episodes >= 6
    batch.close()


@pytest.mark.parametrize("noops", [0, 3, 30])
def test_an_episode_begins_with_none_to_all_of_the_no_ops(noops: int) -> None:
    batch = AtariVector("pong", 4, max_frames=1, noops=noops)
    batch.reset(seed=1)
    seen = set(batch.episode_frames.tolist())
    for _ in range(2 * (1 + 2 * noops)):
        batch.send(torch.zeros(4, dtype=torch.int64))
        step = batch.recv()
        seen |= set(batch.episode_frames[step.first.numpy()].tolist())
    batch.close()
    assert min(seen) == 0
    assert max(seen) == noops
    assert len(seen) > 2 / 3 * noops


def test_a_seed_decides_everything() -> None:
    def play(batch: AtariVector, seed: int) -> list[torch.Tensor]:
        random = np.random.default_rng(3)
        step = batch.reset(seed)
        seen = [step.observation.clone(), torch.from_numpy(batch.episode_frames)]
        for _ in range(60):
            batch.send(torch.from_numpy(random.integers(18, size=ENVS)))
            step = batch.recv()
            seen += [step.observation.clone(), step.reward.clone(), step.first.clone()]
        return seen

    def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
        return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))

    batch = AtariVector("beam_rider", ENVS, threads=1, max_frames=100)
    other = AtariVector("beam_rider", ENVS, threads=2, max_frames=100)
    episodes = play(batch, 4)
    assert same(episodes, play(other, 4))
    assert same(episodes, play(batch, 4))
    assert not same(episodes, play(batch, 5))
    batch.close()
    other.close()


def test_seeds_of_groups_are_unrelated() -> None:
    seeds = [emulator_seeds(seed, 128) for seed in range(8)]
    drawn = np.concatenate(seeds)
    assert len(set(drawn.tolist())) == len(drawn)
    assert drawn.min() >= 0
    assert drawn.max() < 2**31
    np.testing.assert_array_equal(seeds[0], emulator_seeds(0, 128))


def test_a_step_stays_as_it_is_while_the_next_one_runs() -> None:
    batch = AtariVector("breakout", 2)
    batch.reset(seed=0)
    for _ in range(20):
        batch.send(torch.ones(2, dtype=torch.int64))
        step = batch.recv()
        assert batch.recv() is step
        before = [step.observation.clone(), step.reward.clone(), step.info["score"].clone()]
        batch.send(torch.full((2,), 3))
        time.sleep(0.002)
        after = [step.observation, step.reward, step.info["score"]]
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        batch.recv()
    batch.close()


def test_a_reset_waits_for_the_running_step() -> None:
    batch = AtariVector("pong", 2)
    begun = batch.reset(seed=0).observation.clone()
    batch.send(torch.ones(2, dtype=torch.int64))
    assert torch.equal(batch.reset(seed=0).observation, begun)
    batch.send(torch.ones(2, dtype=torch.int64))
    assert not batch.recv().first.any()
    batch.close()


def test_what_the_agent_is_told() -> None:
    batch = AtariVector("Montezuma's Revenge", 2)
    assert batch.game == "montezuma_revenge"
    assert batch.spec.observation_shape == (1, 84, 84)
    assert batch.spec.observation_dtype == torch.uint8
    assert batch.spec.num_actions == 18
    assert batch.spec.max_episode_steps == 27_000
    assert batch.spec.measurements == ("score",)
    assert not batch.graph_safe
    assert not batch.restores
    step = batch.reset(seed=0)
    assert step.observation.shape == (2, 1, 84, 84)
    assert step.observation.dtype == torch.uint8
    assert step.reward.dtype == step.info["score"].dtype == torch.float32
    assert step.terminated.dtype == step.truncated.dtype == step.first.dtype == torch.bool
    assert batch.state_dict() == {}
    batch.load_state_dict({})
    batch.maintain()
    assert torch.equal(batch.recv().observation, step.observation)
    batch.close()


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_closing_ends_the_threads() -> None:
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before = threads()
    batch = AtariVector("pong", 2, threads=2)
    batch.reset(seed=0)
    batch.send(torch.zeros(2, dtype=torch.int64))
    assert threads() > before
    batch.close()
    batch.close()
    wait_until(lambda: threads() == before)  # one that has ended may be listed for a moment
    with pytest.raises(RuntimeError, match="closed"):
        batch.reset(seed=0)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux alone")
def test_emulators_step_back_for_the_thread_that_acts() -> None:
    def priorities() -> dict[int, tuple[int, int]]:
        """Niceness and scheduling policy of every thread; see proc(5)."""
        found = {}
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # a thread of another test that is just ending
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                found[int(task.name)] = int(fields[16]), int(fields[38])
        return found

    def policy_that_a_thread_may_take() -> int:
        with contextlib.suppress(OSError):  # some sandboxes know one policy alone
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        return os.sched_getscheduler(0)

    before = priorities()
    own, own_policy = before[threading.get_native_id()]
    batch = AtariVector("pong", 4, threads=2)
    batch.reset(seed=0)
    after = priorities()
    emulators = [after[thread] for thread in after.keys() - before.keys()]
    with ThreadPoolExecutor(1) as thread:
        policy = thread.submit(policy_that_a_thread_may_take).result()
    lowered = min(own + EMULATOR_NICENESS, 19), policy if own_policy == os.SCHED_OTHER else own_policy
    assert set(emulators) == {lowered}
    both = before.keys() & after.keys()
    assert threading.get_native_id() in both
    assert {thread: after[thread] for thread in both} == {thread: before[thread] for thread in both}
    batch.close()


def test_what_fails_in_the_thread_that_makes_emulators_reaches_the_caller() -> None:
    error = KeyError("what the emulator says")

    def fail() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        _made_by_a_thread_that_steps_back(fail)
    assert caught.value is error


def test_wrong_calls_are_refused() -> None:
    batch = AtariVector("pong", 2)
    with pytest.raises(RuntimeError, match="reset"):
        batch.recv()
    with pytest.raises(RuntimeError, match="reset"):
        batch.send(torch.zeros(2, dtype=torch.int64))
    batch.reset(seed=0)
    for wrong in ([0, 18], [-1, 0], [0, 0, 0]):
        with pytest.raises(ValueError, match="from 0 to 17"):
            batch.send(torch.tensor(wrong))
    batch.send(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="recv"):
        batch.send(torch.zeros(2, dtype=torch.int64))
    batch.close()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"num_envs": 0}, "environments"),
        ({"threads": -1}, "threads"),
        ({"noops": -1}, "no-ops"),
        ({"max_frames": 0}, "frames"),
        ({"game": "montezuma"}, "montezuma_revenge"),
    ],
)
def test_wrong_settings_are_refused_with_a_sentence(settings: dict[str, object], word: str) -> None:
    with pytest.raises(UserError, match=word):
        AtariVector(**({"game": "pong", "num_envs": 1} | settings))  # type: ignore[arg-type]


def test_a_missing_emulator_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)  # what Python keeps for a package that is not there
    with pytest.raises(UserError, match=r"pip install -e '\.\[atari\]'"):
        AtariVector("pong", 1)


def test_importing_loads_no_emulator() -> None:
    code = (
        "import sys, ngu, ngu.envs.atari, ngu.envs.atari_game, ngu.envs.atari_games; sys.exit('ale_py' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_57_games_are_in_the_emulator() -> None:
    from ale_py import roms

    assert len(ATARI_GAMES) == 57
    for game in ATARI_GAMES:
        path = roms.get_rom_path(game)
        assert path is not None, game
        assert Path(path).is_file(), game


@pytest.mark.parametrize(
    ("spelling", "game"),
    [
        ("montezuma_revenge", "montezuma_revenge"),
        ("MontezumaRevenge", "montezuma_revenge"),
        ("montezuma-revenge", "montezuma_revenge"),
        ("Montezuma's Revenge", "montezuma_revenge"),
        ("Pitfall!", "pitfall"),
        ("Q*bert", "qbert"),
        ("Ms. Pac-Man", "ms_pacman"),
        ("UpNDown", "up_n_down"),
        ("River Raid", "riverraid"),
    ],
)
def test_a_game_is_known_by_its_spellings(spelling: str, game: str) -> None:
    assert check_game(spelling) == game


@pytest.mark.parametrize(
    ("spelling", "nearest"),
    [
        ("MontezumaRevnge", "montezuma_revenge"),
        ("Space Invader", "space_invaders"),
        ("FrostByte", "frostbite"),
        ("pacman", "ms_pacman"),
    ],
)
def test_a_wrong_name_gets_the_nearest(spelling: str, nearest: str) -> None:
    with pytest.raises(UserError, match=f"nearest (is|are) .*{nearest}"):
        check_game(spelling)


def test_every_game_is_known_by_its_name_and_title() -> None:
    for game, facts in ATARI_GAMES.items():
        assert check_game(game) == check_game(facts.title) == game


def test_human_normalised_scores_are_percent() -> None:
    for game, facts in ATARI_GAMES.items():
        assert facts.human > facts.random, game
        assert human_normalised(game, facts.random) == 0
        assert human_normalised(game, facts.human) == pytest.approx(100)
    assert human_normalised("Montezuma's Revenge", 10_400) == pytest.approx(218.8, abs=0.05)
    assert human_normalised("pong", 20.7) == pytest.approx(117.3, abs=0.05)


def test_scores_agree_with_what_the_paper_prints() -> None:
    human = {  # the paper's tables of hard exploration and dense reward games
        "gravitar": "3.4k", "montezuma_revenge": "4.8k", "pitfall": "6.5k", "private_eye": "69.6k", "solaris": "12.3k",
        "venture": "1.2k", "pong": "14.6", "qbert": "13.4k", "breakout": "30.5", "space_invaders": "1.6k",
        "beam_rider": "16.9k",
    }  # fmt: skip
    for game, printed in human.items():
        size = 1000 if printed.endswith("k") else 1
        assert abs(ATARI_GAMES[game].human / size - float(printed.rstrip("k"))) < 0.1, game
