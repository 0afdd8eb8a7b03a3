"""Which Gymnasium spaces fit the agent, how observations and actions are turned, and the sentences for the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gym_factories import Ledger, Pictures, Trivial, Walk
from gymnasium import spaces
from gymnasium.wrappers import (
    DiscretizeAction,
    FlattenObservation,
    FrameStackObservation,
    TimeLimit,
    TransformAction,
    TransformObservation,
)
from hypothesis import given
from hypothesis import strategies as st

from ngu.envs.gym import GymEnvironments, GymFactory, Interface, make_gymnasium_spec, read_interface
from ngu.envs.make import single_environment
from ngu.errors import UserError
from ngu.presets import preset


class Spaces(Trivial):
    """An environment with the given spaces, which cannot be played."""

    def __init__(self, observation: spaces.Space[Any] | None = None, action: spaces.Space[Any] | None = None) -> None:
        self.observation_space = observation or Trivial.observation_space  # type: ignore[assignment]
        self.action_space = action or Trivial.action_space  # type: ignore[assignment]


def box(*shape: int, dtype: Any = np.uint8, low: float = 0, high: float = 255) -> spaces.Box:
    return spaces.Box(low, high, shape, dtype)


@pytest.mark.parametrize(
    ("space", "shape", "order"),
    [
        (box(210, 160, 3), (3, 210, 160), "last"),
        (box(84, 84, 1), (1, 84, 84), "last"),
        (box(4, 84, 84), (4, 84, 84), "first"),
        (box(12, 96, 64), (12, 96, 64), "first"),
        (box(64, 96, 12), (12, 64, 96), "last"),
        (box(7, 7, 3), (3, 7, 7), "last"),
        (box(5, 9, 5), (5, 5, 9), "last"),
        (box(84, 80), (1, 84, 80), "none"),
    ],
)
def test_pictures(space: spaces.Box, shape: tuple[int, ...], order: str) -> None:
    interface = read_interface(Spaces(space))
    spec = make_gymnasium_spec(Spaces(space))
    assert (spec.observation_shape, spec.observation_dtype) == (shape, torch.uint8)
    space.seed(0)
    observation = space.sample()
    converted = interface.convert(observation)
    assert converted.shape == shape
    for channel in range(shape[0]):
        plain = {"last": observation[..., channel : channel + 1], "first": observation[channel], "none": observation}
        assert np.array_equal(converted[channel], plain[order].reshape(shape[1:]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int64])
@pytest.mark.parametrize("shape", [(), (1,), (9,), (3, 4)])
def test_vectors(dtype: Any, shape: tuple[int, ...]) -> None:
    space = box(*shape, dtype=dtype, high=100)
    if dtype == np.uint8 and len(shape) == 2:
        return  # a picture
    spec = make_gymnasium_spec(Spaces(space))
    size = int(np.prod(shape))
    assert (spec.observation_shape, spec.observation_dtype) == ((size,), torch.float32)
    space.seed(0)
    observation = space.sample()
    converted = read_interface(Spaces(space)).convert(observation)
    assert np.array_equal(converted, np.array(observation).ravel())


@given(st.integers(-5, 5), st.integers(1, 20))
def test_actions_count_from_0(start: int, count: int) -> None:
    interface = read_interface(Spaces(action=spaces.Discrete(count, start=start)))
    assert (interface.num_actions, interface.first_action) == (count, start)


def test_actions_and_pictures_through_a_worker() -> None:
    env = GymEnvironments(Pictures, 2, workers=1, kwargs={"shape": (6, 5, 3), "start": -1})
    try:
        observation = env.reset(0).observation.clone()
        assert observation.shape == (2, 3, 6, 5)
        assert observation.dtype == torch.uint8
        oracle = Pictures((6, 5, 3), -1)
        picture, _ = oracle.reset(seed=int(np.random.SeedSequence(0, spawn_key=(1, 0)).generate_state(1)[0] // 2))
        assert np.array_equal(observation[1].numpy(), picture.transpose(2, 0, 1))
        assert not torch.equal(observation[0], observation[1])
        env.send(torch.tensor([0, 2]))
        step = env.recv()
        assert step.reward.tolist() == [-1.0, 1.0]
        assert np.array_equal(step.observation[1].numpy(), oracle.step(1)[0].transpose(2, 0, 1))
        assert env.restarts == 0
    finally:
        env.close()


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (Spaces(action=spaces.Box(-1, 1, (2,))), "DiscretizeAction"),
        (Spaces(action=spaces.MultiDiscrete([2, 3])), "MultiDiscrete space, .* TransformAction with a Discrete"),
        (Spaces(action=spaces.MultiBinary(3)), "MultiBinary space, .* TransformAction with a Discrete"),
        (Spaces(action=spaces.Dict({"a": spaces.Discrete(2)})), "Dict space, .* TransformAction with a Discrete"),
        (Spaces(spaces.Dict({"a": box(3), "b": box(4)})), "a Dict space, .* FlattenObservation, or choose one with"),
        (Spaces(spaces.Tuple([box(3), box(4)])), "a Tuple space, .* FlattenObservation"),
        (Spaces(spaces.Discrete(16)), "a Discrete space, .* FlattenObservation"),
        (Spaces(spaces.MultiBinary(4)), "a MultiBinary space, .* FlattenObservation"),
        (Spaces(spaces.Text(5)), "a Text space, .* TransformObservation"),
        (Spaces(box(84, 84, 3, dtype=np.float32, high=1)), "make a picture uint8 .* or a vector with"),
        (Spaces(box(4, 84, 84, 3)), r"\(4, 84, 84, 3\) and uint8, .* join their axes to \[height, width, channels\]"),
        (Spaces(box(0)), "holds no number"),
        ("CartPole-v1", "'str', which is no gymnasium.Env"),
    ],
)
def test_spaces_that_do_not_fit(env: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence.replace(" .* ", ".*")) as caught:
        make_gymnasium_spec(env)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("env", "shape"),
    [
        (FlattenObservation(Spaces(spaces.Discrete(16))), (16,)),
        (FlattenObservation(Spaces(spaces.Dict({"a": box(3), "b": spaces.Discrete(4)}))), (7,)),
        (FlattenObservation(Spaces(spaces.Tuple([box(3), spaces.MultiBinary(2)]))), (5,)),
        (FlattenObservation(Spaces(box(2, 3, 4, dtype=np.float32))), (24,)),
        (FrameStackObservation(gymnasium.make("CartPole-v1"), 4), (16,)),
        (
            TransformObservation(
                Spaces(box(9, 8, 3, dtype=np.float32, high=1)), lambda o: np.uint8(o * 255), box(9, 8, 3)
            ),
            (3, 9, 8),
        ),
        (DiscretizeAction(Spaces(action=spaces.Box(-1, 1, (1,))), 5), (4,)),
        (
            TransformAction(
                Spaces(action=spaces.MultiDiscrete([2, 3])), lambda a: np.array(divmod(a, 3)), spaces.Discrete(6)
            ),
            (4,),
        ),
    ],
)
def test_what_the_sentences_advise_helps(env: Any, shape: tuple[int, ...]) -> None:
    assert make_gymnasium_spec(env).observation_shape == shape


def test_the_longest_episode() -> None:
    assert make_gymnasium_spec(gymnasium.make("CartPole-v1")).max_episode_steps == 500
    assert make_gymnasium_spec(gymnasium.make("CartPole-v1", max_episode_steps=7)).max_episode_steps == 7
    assert make_gymnasium_spec(gymnasium.make("CartPole-v1", max_episode_steps=-1)).max_episode_steps is None
    assert make_gymnasium_spec(Trivial()).max_episode_steps is None


def test_measurements() -> None:
    assert read_interface(Trivial()).all_measurements == ("score",)
    interface = read_interface(TimeLimit(Ledger(0), 5))  # found beneath a wrapper
    assert interface.all_measurements == ("score", "progress")
    assert interface.measure(2.5, {"progress": np.int64(4), "other": "ignored"}) == [2.5, 4.0]
    with pytest.raises(ValueError, match="its info lacks the measurement 'progress'"):
        interface.measure(2.5, {})

    own = Trivial()
    own.measurements = ("rooms", "score")  # type: ignore[attr-defined]
    assert read_interface(own).all_measurements == ("rooms", "score")
    assert read_interface(own).measure(1.0, {"rooms": 3, "score": 400}) == [3.0, 400.0]

    sensors = Trivial()
    sensors.measurements = {"voltage": 3}  # type: ignore[attr-defined]
    assert read_interface(sensors).all_measurements == ("score",)


@pytest.mark.parametrize("attribute", ["measurements", "controllable_state", "probed_position"])
@pytest.mark.parametrize("names", ["doors", {"doors"}, ("doors", 3), [None]])
def test_names_that_would_be_overlooked(attribute: str, names: Any) -> None:
    env = Walk()
    setattr(env, attribute, names)
    with pytest.raises(
        UserError, match=rf"^the environment's {attribute} is .*; give a tuple of names, such as \('doors'"
    ):
        read_interface(env)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("length", "is what a metric of ngu itself is called"),
        ("return", "is what a metric"),
        ("restarts", "is what a metric"),
        ("", "cannot be a metric's name"),
        (" ", "cannot be"),
        ("a\nb", "cannot be"),
        ("return/exploit", "cannot be"),
        ("score@5", "cannot be"),
    ],
)
def test_measurements_that_no_metric_can_be_called(name: str, why: str) -> None:
    env = Trivial()
    env.measurements = ("doors", name)  # type: ignore[attr-defined]
    with pytest.raises(UserError) as caught:
        read_interface(env)
    assert str(caught.value).startswith(f"the environment's measurements name {name!r}, which {why}")
    assert str(caught.value).endswith("; choose another name.")


def test_a_measurement_is_named_once() -> None:
    env = Trivial()
    env.measurements = ("doors", "keys", "doors")  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="the environment's measurements name 'doors' twice; name it once"):
        read_interface(env)


def test_a_controllable_state_is_made_of_measurements() -> None:
    spec = make_gymnasium_spec(TimeLimit(Walk(), 5))
    assert spec.measurements == ("score", "farthest", "x", "y")
    assert spec.controllable_state == ("x", "y")
    assert spec.reported == ("score", "farthest")
    assert make_gymnasium_spec(Ledger(0)).controllable_state == ()

    astray = Walk()
    astray.controllable_state = ("x", "z")  # type: ignore[assignment]
    with pytest.raises(UserError, match="names 'z', which its measurements do not; add it to them"):
        read_interface(astray)


def test_observations_that_break_their_word() -> None:
    picture, vector = read_interface(Spaces(box(9, 8, 3))), read_interface(Trivial())
    with pytest.raises(ValueError, match=r"shape \(3, 9, 8\), but its space says \(9, 8, 3\)"):
        picture.convert(np.zeros((3, 9, 8), dtype=np.uint8))
    with pytest.raises(ValueError, match="float64, but its space says uint8"):
        picture.convert(np.zeros((9, 8, 3)))
    with pytest.raises(ValueError, match=r"shape \(\), but its space says \(4,\)"):
        vector.convert(0.5)  # would be spread over all four
    with pytest.raises(ValueError, match="its observation holds nan"):
        vector.convert([0.0, np.nan, 0.0, np.inf])
    with pytest.raises(ValueError, match="its observation holds inf"):
        read_interface(Spaces(box(dtype=np.float16))).convert(np.float16(np.inf))


def test_an_interface_survives_json() -> None:
    import dataclasses
    import json

    interface = read_interface(Ledger(0))
    assert Interface.from_plain(json.loads(json.dumps(dataclasses.asdict(interface)))) == interface


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("CartPol-v1", "the Gymnasium environment CartPol-v1 does not exist; the nearest"),
        ("CartPole-v7", "CartPole-v1"),
        ("Somebody/Thing-v0", "put the package's name before it, as in my_package:MyEnv-v0"),
        ("no_such_module:Thing-v0", "No module named 'no_such_module'; install it, or put its folder into PYTHONPATH"),
        ("needy_module:Thing-v0", r"cannot be made: No module named 'missing_from_needy'\. [^`]*$"),
        ("what is this?", "cannot be made: Malformed environment ID"),
    ],
)
def test_names_that_do_not_exist(name: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needy_module.py").write_text("import missing_from_needy")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=sentence) as caught:
        GymFactory(name)(0)
    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 500


def test_names_that_exist() -> None:
    assert isinstance(GymFactory("CartPole-v1")(0).unwrapped, gymnasium.envs.classic_control.CartPoleEnv)
    assert GymFactory("ngu.envs:ngu/DiscoMaze-v0", {"size": 7})(1).observation_space.shape == (7, 7, 3)
    assert GymFactory("gym_factories:test/Ledger-v0", {"longest": 3})(1).unwrapped.longest == 3  # type: ignore[attr-defined]
    assert GymFactory(Ledger, {"longest": 3})(1).longest == 3  # type: ignore[attr-defined]


def test_arguments_from_the_settings_reach_the_constructor() -> None:
    settings = {"env.id": "gym_factories:test/Ledger-v0", "env.kwargs": {"longest": 3, "max_episode_steps": 2}}
    env = single_environment(preset("gym", overrides=settings))(0)
    assert env.unwrapped.longest == 3  # type: ignore[attr-defined]
    assert make_gymnasium_spec(env).max_episode_steps == 2


@pytest.mark.parametrize("module", ["gym", "worker_process", "worker_handle"])
def test_the_import_is_cheap(module: str) -> None:
    """Workers import these: beyond the package that holds them, nothing large may be needed."""
    script = (
        "import sys, ngu.envs; before = set(sys.modules)\n"
        f"import ngu.envs.{module}\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "assert not new & {'torch', 'ale_py', 'matplotlib', 'cloudpickle', 'tyro', 'rich', 'pandas', 'cv2'}, new\n"
        "assert len(new) < 40, new"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
