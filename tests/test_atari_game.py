"""The single game against the plain emulator and the vector environment; what it reads from the game's memory."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
import torch
from atari_oracle import PlainAtari, shrink
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from ngu.envs.atari import AtariVector
from ngu.envs.atari_game import HAND_CRAFTED_STATE, AreaResize, AtariGame, montezuma_state
from ngu.envs.atari_games import ATARI_GAMES
from ngu.errors import UserError

NOOP, FIRE, UP, RIGHT, LEFT, DOWN, RIGHT_FIRE, LEFT_FIRE = 0, 1, 2, 3, 4, 5, 11, 12

TO_THE_KEY_AND_OUT = (
    (RIGHT_FIRE, 7), (DOWN, 2), (LEFT, 2), (RIGHT_FIRE, 7), (DOWN, 8), (LEFT_FIRE, 2), (DOWN, 4), (LEFT, 5), (DOWN, 6),
    (RIGHT, 1), (FIRE, 9), (LEFT, 1), (NOOP, 1), (LEFT, 1), (LEFT_FIRE, 17), (LEFT, 2), (UP, 9), (NOOP, 7),
    (LEFT_FIRE, 6), (RIGHT_FIRE, 3), (FIRE, 6), (DOWN, 9), (RIGHT, 9), (RIGHT_FIRE, 3), (UP, 9), (RIGHT_FIRE, 22),
    (UP, 12), (RIGHT, 6), (LEFT, 6), (LEFT_FIRE, 1), (DOWN, 5), (LEFT_FIRE, 8), (UP, 18), (RIGHT, 1), (RIGHT_FIRE, 1),
    (RIGHT, 10), (FIRE, 13), (DOWN, 9), (FIRE, 7), (DOWN, 4), (RIGHT, 8),
)  # fmt: skip
"""Montezuma's Revenge from its first frame: take the key, open the door on the right, enter the next room."""


@pytest.mark.parametrize(
    ("game", "max_frames", "steps"),
    [("breakout", 108_000, 700), ("montezuma_revenge", 1_003, 600), ("pong", 400, 300), ("skiing", 198, 150)],
)
def test_equals_a_plain_emulator_step_for_step(game: str, max_frames: int, steps: int) -> None:
    env, oracle = AtariGame(game, max_frames=max_frames), PlainAtari(game, max_frames)
    random = np.random.default_rng(11)
    ends = 0
    seed: int | None = 3
    for time_step in range(steps):
        if oracle.over:
            noops = int(random.integers(31))
            observation, info = env.reset(seed=seed, options={"noops": noops})
            seed = None
            np.testing.assert_array_equal(observation[0], oracle.reset(noops))
        else:
            action = int(random.integers(18))
            observation, reward, terminated, truncated, info = env.step(action)
            expected = oracle.step(action)
            np.testing.assert_array_equal(observation[0], expected[0], err_msg=f"{game}, step {time_step}")
            assert (reward, terminated, truncated) == expected[1:]
            ends += oracle.over
        assert info["score"] == oracle.score
    assert ends >= 2


@pytest.mark.parametrize("game", ATARI_GAMES)
def test_equals_the_vector_environment_in_every_game(game: str) -> None:
    batch, env = AtariVector(game, 1, threads=1, noops=0), AtariGame(game, noops=0)
    step = batch.reset(seed=1)
    observation, _ = env.reset(seed=2)
    random = np.random.default_rng(0)
    for _ in range(8):
        np.testing.assert_array_equal(observation, step.observation[0].numpy())
        action = random.integers(18, size=1)
        batch.send(torch.from_numpy(action))
        step = batch.recv()
        observation, reward, terminated, truncated, info = env.step(action[0])
        assert (reward, terminated, truncated) == (step.reward.item(), step.terminated.item(), step.truncated.item())
        assert info["score"] == step.info["score"].item()
    batch.close()
    env.close()


@given(seed=st.integers(0, 2**32 - 1), shades=st.integers(1, 256))
@settings(max_examples=25, deadline=None)
def test_shrinking_rounds_as_the_oracle_does(seed: int, shades: int) -> None:
    random = np.random.default_rng(seed)
    palette = random.integers(256, size=shades, dtype=np.uint8)  # few shades make many ties
    screen = palette[random.integers(shades, size=(210, 160))]
    np.testing.assert_array_equal(AreaResize(210, 160)(screen), shrink(screen))


def test_shrinking_takes_means_over_areas() -> None:
    resize = AreaResize(210, 160)
    np.testing.assert_array_equal(resize(np.full((210, 160), 77, dtype=np.uint8)), np.full((84, 84), 77))
    random = np.random.default_rng(0).integers(256, size=(210, 160), dtype=np.uint8)
    # Exactly: each old pixel split into 21 columns and 2 rows, each new pixel the mean of 40 x 5 of these.
    exact = random.repeat(2, axis=0).repeat(21, axis=1).reshape(84, 5, 84, 40).mean(axis=(1, 3))
    assert np.abs(resize(random) - exact).max() <= 0.5


def test_passes_gymnasiums_checker() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not having a spec.*")  # it is not registered under an id
        check_env(AtariGame("pong", render_mode="rgb_array"))


def test_a_seed_decides_everything() -> None:
    def play(env: AtariGame, seed: int) -> list[np.ndarray]:
        random = np.random.default_rng(5)
        seen = [env.reset(seed=seed)[0]]
        for _ in range(60):
            observation, _, terminated, truncated, _ = env.step(int(random.integers(18)))
            seen.append(observation)
            if terminated or truncated:
                seen.append(env.reset()[0])
        return seen

    env = AtariGame("beam_rider", max_frames=40)
    episodes = play(env, 1)
    np.testing.assert_array_equal(episodes, play(AtariGame("beam_rider", max_frames=40), 1))
    np.testing.assert_array_equal(episodes, play(env, 1))
    assert not np.array_equal(episodes, play(env, 2))


def test_no_ops_are_drawn_from_none_to_all() -> None:
    env = AtariGame("pong", noops=4, max_frames=4)
    env.reset(seed=0)
    begun = {PlainAtari("pong").reset(noops).tobytes(): noops for noops in (0, 4)}
    seen = {begun.get(env.reset()[0].tobytes()) for _ in range(40)}
    assert {0, 4} <= seen


def test_montezumas_revenge_to_the_key_and_out_of_the_door() -> None:
    env = AtariGame("montezuma_revenge", hand_crafted=True)
    assert env.measurements == ("score", "rooms", *HAND_CRAFTED_STATE)
    _, info = env.reset(seed=0, options={"noops": 0})
    assert info == {
        "score": 0, "rooms": 1, "player_x": 77, "player_y": 235, "room_and_level": 1, "keys": 0
    }  # fmt: skip
    rewards = []
    keys = []
    for action, times in TO_THE_KEY_AND_OUT:
        for _ in range(times):
            _, reward, terminated, truncated, info = env.step(action)
            assert not terminated
            assert not truncated
            assert tuple(info) == env.measurements
            assert all(isinstance(value, float) for value in info.values())
            np.testing.assert_array_equal([info[name] for name in HAND_CRAFTED_STATE], env.hand_crafted_state())
            if reward:
                rewards.append(reward)
                keys.append(info["keys"])
    assert rewards == [100, 300]
    assert keys == [1, 0]
    assert info["score"] == 400
    assert info["rooms"] == 2
    assert env.room == info["room_and_level"] == 2
    assert env.reset()[1]["rooms"] == 1


def test_hand_crafted_state_reads_the_papers_bytes() -> None:
    ram = np.zeros(128, dtype=np.uint8)
    ram[[0xAA - 0x80, 0xAB - 0x80, 0x83 - 0x80, 0xB9 - 0x80]] = 153, 122, 23, 2
    for inventory, keys in ((0b00000001, 0), (0b00000010, 1), (0b00011110, 4), (0b11100001, 0), (0b00010100, 2)):
        ram[0xC1 - 0x80] = inventory
        np.testing.assert_array_equal(montezuma_state(ram), [153, 122, 23 + 24 * 2, keys])


def test_pitfalls_rooms_are_counted() -> None:
    env = AtariGame("pitfall")
    assert env.measurements == ("score", "rooms")
    _, info = env.reset(seed=0, options={"noops": 0})
    assert info["rooms"] == 1
    assert env.room == 0xC4  # where every game begins
    visited = [env.room]
    for action in [LEFT] * 8 + [RIGHT] * 12:
        _, _, _, _, info = env.step(action)
        if env.room != visited[-1]:
            visited.append(env.room)
    assert visited == [0xC4, 0xE2, 0xC4]  # out on the left and back again: two rooms, not three
    assert info["rooms"] == 2


def test_other_games_have_no_rooms_and_no_hand_crafted_state() -> None:
    env = AtariGame("pong")
    assert env.measurements == ("score",)
    env.reset(seed=0)
    assert env.room is None
    with pytest.raises(UserError, match="montezuma_revenge"):
        env.hand_crafted_state()
    with pytest.raises(UserError, match="montezuma_revenge"):
        AtariGame("pong", hand_crafted=True)


def test_the_screen_is_rendered_in_colour() -> None:
    env = AtariGame("breakout", render_mode="rgb_array")
    env.reset(seed=0)
    screen = env.render()
    assert screen is not None
    assert screen.shape == (210, 160, 3)
    assert screen.dtype == np.uint8
    assert len(np.unique(screen.reshape(-1, 3), axis=0)) > 4
    assert AtariGame("breakout").render() is None


def test_wrong_calls_are_refused() -> None:
    env = AtariGame("pong", max_frames=4)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        _ = env.ram
    env.reset(seed=0)
    for action in (-1, 18):
        with pytest.raises(ValueError, match="0 to 17"):
            env.step(action)
    assert env.step(0)[3]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.close()
    for wrong in ({"noops": -1}, {"max_frames": 0}, {"render_mode": "human"}, {"game": "pung"}):
        with pytest.raises(UserError):
            AtariGame(**({"game": "pong"} | wrong))  # type: ignore[arg-type]
