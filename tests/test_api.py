"""The agent as one object, with environments in worker processes: made, trained, closed, saved and loaded."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from tiny_runs import checkpoint_steps, contents

import ngu
from ngu.checkpoint import put_in_place
from ngu.envs.workers import WorkerEnvironments
from ngu.run_folder import RunFolder

SMALL = {
    "env.id": "CartPole-v1",
    "env.num_envs": 4,
    "env.workers": 2,
    "mixture.num_mixtures": 2,
    "novelty.hidden": (16,),
    "network.hidden": (16,),
    "network.torso_size": 16,
    "network.lstm_size": 16,
    "network.dueling_size": 16,
    "replay.capacity": 4000,
    "replay.min_sequences": 4,
    "learner.batch_size": 4,
    "learner.replay_ratio": 2.0,
    "evaluation.num_envs": 2,
    "evaluation.max_steps": 10,
    "evaluation.period": 0,
}


def workers_of(agent: ngu.NGU) -> list[int]:
    """The processes that hold the agent's environments, those of the evaluation too."""
    training = agent._training
    batches = [actor.env for actor in training.runner.agent.actors]
    if training.evaluator is not None:
        batches.append(training.evaluator.env)
    return [pid for batch in batches if isinstance(batch, WorkerEnvironments) for pid in batch.pids]


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_leaving_the_block_ends_the_worker_processes() -> None:
    with ngu.NGU("gym", overrides=SMALL) as agent:
        agent.learn(400, progress=False)
        result = agent.evaluate()
        pids = workers_of(agent)
        assert len(pids) == 4
        assert all(running(pid) for pid in pids)
    deadline = time.monotonic() + 10
    while any(running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(running(pid) for pid in pids)
    assert agent.steps == 400
    assert {"eval/exploit/score", "eval/explore/score", "eval/exploit/return"} <= set(result)
    agent.close()


def test_a_closed_agent_acts_and_saves_but_does_not_train(tmp_path: Path) -> None:
    agent = ngu.NGU("gym", overrides=SMALL).learn(400, progress=False)
    agent.close()
    action, state = agent.predict(np.zeros(4, dtype=np.float32))
    assert action in (0, 1)
    assert agent.predict(np.zeros(4, dtype=np.float32), state)[0] in (0, 1)
    for call in (agent.learn, agent.evaluate):
        with pytest.raises(ngu.UserError, match="the agent is closed"):
            call()
    with ngu.NGU.load(agent.save(tmp_path / "saved")) as again:
        assert again.steps == 400
        assert again.history == [], "as its docstring says"
        assert again.learn(40, progress=False).steps == 440


PICTURES = {**SMALL, "env.id": "gym_factories:test/Pictures-v0", "env.kwargs": {"shape": (1, 12, 10), "start": 0},
            "network.filters": (4,), "network.kernels": (3,), "network.strides": (2,),
            "novelty.filters": (4,), "novelty.kernels": (3,), "novelty.strides": (2,)}  # fmt: skip


@pytest.fixture(scope="module")
def agent() -> Iterator[ngu.NGU]:
    with ngu.NGU("gym", overrides=SMALL) as agent:
        yield agent


@pytest.fixture(scope="module")
def painter() -> Iterator[ngu.NGU]:
    with ngu.NGU("gym", overrides=PICTURES) as agent:
        yield agent


RIGHT = [0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"observation": (np.zeros(4), {})}, r"is a tuple, as env\.reset\(\) returns it; give the first of its two"),
        ({"observation": {"a": 1}}, "the observation is of the type dict; give an array or tensor of numbers"),
        ({"observation": [[1.0], [1.0, 2.0]]}, "the observation is of the type list"),
        ({"observation": None}, "the observation is of the type NoneType"),
        ({"observation": torch.zeros(4, dtype=torch.complex64)}, "the observation is of the type Tensor"),
        ({"observation": [0.0, np.nan, 0.0, 0.0]}, "the observation holds nan; give finite numbers"),
        ({"observation": torch.tensor([0.0, 0.0, -torch.inf, 0.0])}, "the observation holds -inf"),
        ({"observation": [0.0, 1e40, 0.0, 0.0]}, "the observation holds numbers above 3.40282e+38"),
        ({"observation": np.zeros(5)}, r"shape \(5,\), but this agent was trained on \(4,\)"),
        ({"observation": np.zeros((0, 4))}, "the batch of observations is empty; give one or more"),
        ({"reward": None}, "the reward is of the type NoneType; give an array or tensor of numbers"),
        ({"reward": "much"}, "the reward is of the type str"),
        ({"reward": np.nan}, "the reward holds nan"),
        ({"reward": -1e39}, "the reward is above 3.40282e+38 in size, the largest that float32 knows"),
        ({"reward": [1.0, 2.0]}, r"the reward has shape \(2,\); give one number\.$"),
        ({"observation": [RIGHT] * 3, "reward": [1.0, 2.0]}, "give one number, or 3, one for each observation"),
        ({"epsilon": 5}, "epsilon is 5; give the share of random actions, from 0 to 1"),
        ({"epsilon": -1}, "epsilon is -1; give the share"),
        ({"epsilon": np.nan}, "the epsilon holds nan"),
        ({"epsilon": "little"}, "the epsilon is of the type str"),
        ({"policy": "exploits"}, "the policy 'exploits' does not exist; choose explore or exploit"),
        ({"state": "x"}, "the state is of the type str; give what the last call of predict returned"),
        ({"state": (torch.zeros(1), torch.zeros(1))}, "the state is of the type tuple"),
        ({"controllable_state": "here"}, "the controllable_state is of the type str"),
    ],
)  # fmt: skip
def test_what_no_action_can_be_predicted_from_is_told(agent: ngu.NGU, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ngu.UserError, match=sentence.replace("e+38", r"e\+38")):
        agent.predict(**({"observation": RIGHT} | given))


def test_a_state_belongs_to_its_agent_and_its_batch(agent: ngu.NGU, painter: ngu.NGU) -> None:
    _, state = agent.predict(RIGHT)
    with pytest.raises(ngu.UserError, match=r"the state belongs to 1 observations, but 2 were given"):
        agent.predict([RIGHT, RIGHT], state)
    with pytest.raises(ngu.UserError, match=r"the state is that of another agent; give None at the start"):
        painter.predict(np.zeros((1, 12, 10), np.uint8), state)


@pytest.mark.parametrize(
    ("dtype", "scale", "sentence"),
    [
        (np.float32, 1 / 238, "is float32 from 0 to 1, but .* pictures of whole numbers; give uint8, from 0 to 255"),
        (np.float64, 1, "is float64 from 0 to 238"),
        (np.int64, 2, "is int64 from 0 to 476"),
        (np.int16, -1, "is int16 from -238 to 0"),
        (np.bool_, 1, "is bool"),
    ],
)  # fmt: skip
def test_pictures_that_the_agent_would_see_as_others_are_told(
    painter: ngu.NGU, dtype: Any, scale: float, sentence: str
) -> None:
    picture = (np.arange(120).reshape(1, 12, 10) % 128 * 2 * scale).astype(dtype)
    with pytest.raises(ngu.UserError, match=sentence):
        painter.predict(picture)


def test_an_observation_may_come_in_many_forms(agent: ngu.NGU, painter: ngu.NGU) -> None:
    def values(observation: Any, actor: ngu.NGU) -> list[float]:
        state = actor.predict(observation)[1]
        return state.recurrent.hidden.flatten().tolist()

    one = np.array(RIGHT, np.float32)
    one.flags.writeable = False
    alike = [RIGHT, one, one.astype(np.float64), one.astype(int), torch.tensor(RIGHT, dtype=torch.bfloat16), one[None]]
    assert all(values(form, agent) == values(RIGHT, agent) for form in alike)
    picture = (np.arange(120).reshape(1, 12, 10) % 256).astype(np.uint8)
    alike = [picture, picture.astype(int), picture.transpose(1, 2, 0), torch.from_numpy(picture), picture[None]]
    assert all(values(form, painter) == values(picture, painter) for form in alike)
    assert values(255 - picture, painter) != values(picture, painter)


def test_saving_over_an_agent_has_to_be_asked_for_and_leaves_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    with ngu.NGU("gym", overrides=SMALL) as agent:
        agent.learn(40, progress=False).save(path)
        agent.learn(40, progress=False)
        before = contents(path)
        with pytest.raises(
            ngu.UserError, match=r"saved is there already; save to another path, or pass overwrite=True\.$"
        ):
            agent.save(path)
        assert contents(path) == before
        assert agent.save(path, overwrite=True) == path
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]
    assert checkpoint_steps(path) == [80]
    config = RunFolder.open(path).config
    assert (config.run.folder, config.run.name) == (str(tmp_path), "saved")
    with ngu.NGU.load(path) as again:
        assert again.steps == 80
    path.rename(tmp_path / ".replaced-saved")  # where a process dies between the two renames
    with ngu.NGU.load(path) as again:
        assert again.steps == 80
        path.rename(tmp_path / ".replaced-saved")
        with pytest.raises(ngu.UserError, match="saved is there already"):
            again.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]
    assert checkpoint_steps(path) == [80]


def test_what_was_to_be_replaced_is_put_back_if_its_successor_is_gone(tmp_path: Path) -> None:
    old = tmp_path / "saved"
    old.mkdir()
    (old / "content").write_text("old")
    with pytest.raises(FileNotFoundError):
        put_in_place(tmp_path / ".writing-saved", old)
    assert (old / "content").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


def test_what_cannot_be_overwritten_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, folder, file = tmp_path / "saved", tmp_path / "thesis", tmp_path / "letter"
    folder.mkdir()
    (folder / "chapter.tex").write_text("precious")
    file.write_text("dear")
    with ngu.NGU("gym", overrides=SMALL) as agent:
        agent.learn(40, progress=False).save(path)
        before = contents(tmp_path)
        for other, sentence in ((folder, "is not a run folder"), (file, "there is no run folder")):
            with pytest.raises(ngu.UserError, match=sentence):
                agent.save(other, overwrite=True)
        with RunFolder.open(path, lock=True), pytest.raises(ngu.UserError, match="another process"):
            agent.save(path, overwrite=True)

        def fill_the_disk(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("ngu.checkpoint.write_bytes", fill_the_disk)
        for overwrite, name in ((True, "saved"), (False, "new")):
            with pytest.raises(ngu.UserError, match="no room for the checkpoint"):
                agent.save(tmp_path / name, overwrite=overwrite)
    after = contents(tmp_path)
    assert after == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["letter", "saved", "thesis"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (gymnasium.make("MountainCar-v0"), 'not TimeLimit; .* NGU("gym", overrides={"env.id": "MountainCar-v0"}).'),
        (gymnasium.Env, 'not type; .* NGU("gym", overrides={"env.id": "CartPole-v1"}).'),
        (None, 'not NoneType; .* NGU("gym", overrides={"env.id": "CartPole-v1"}).'),
    ],
)
def test_what_is_neither_preset_nor_config_is_answered_with_what_to_write(given: Any, sentence: str) -> None:
    pattern = ".*".join(map(re.escape, sentence.split(".*")))
    with pytest.raises(ngu.UserError, match=f"^NGU takes the name of a preset or a Config, {pattern}$"):
        ngu.NGU(given)


def test_settings_may_be_numpys_numbers_ranges_and_paths(tmp_path: Path) -> None:
    settings = {"env.maze_size": np.int64(7), "run.folder": tmp_path, "evaluation.marks": range(10, 40, 10)}
    settings |= {"mixture.beta": np.float32(0.5), "novelty.hidden": np.array([8, 4])}
    config = ngu.preset("disco-maze-small", overrides=settings)
    assert (config.env.maze_size, config.run.folder, config.evaluation.marks) == (7, str(tmp_path), (10, 20, 30))
    assert (config.mixture.beta, config.novelty.hidden) == (0.5, (8, 4))
    assert type(config.env.maze_size) is int
    assert type(config.mixture.beta) is float


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ngu.NGU(overrides=[("env.maze_size", 7)]), "the overrides are .*; give a dictionary of dotted names"),  # type: ignore[arg-type]
        (lambda: ngu.NGU(overrides=[]), "the overrides are .*; give a dictionary"),  # type: ignore[arg-type]
        (lambda: ngu.NGU(overrides={7: 1}), "the overrides are {7: 1}; give a dictionary"),  # type: ignore[dict-item]
        (lambda: ngu.NGU(variant=None), "the variant is None; give the name of one, such as ngu"),  # type: ignore[arg-type]
        (lambda: ngu.preset(None), "the preset is None; give the name of one, such as disco-maze-small"),  # type: ignore[arg-type]
        (lambda: ngu.NGU(overrides={"env.maze_size": np.float32(7.5)}), "env.maze_size is 7.5; give a whole number"),
    ],
)  # fmt: skip
def test_what_is_no_name_and_no_dictionary_is_told(make: Any, sentence: str) -> None:
    with pytest.raises(ngu.UserError, match=sentence):
        make()


def test_numbers_of_steps_and_places_that_are_none_are_told(agent: ngu.NGU) -> None:
    for steps in ("5", 5.5):
        with pytest.raises(ngu.UserError, match=f"steps is {steps!r}; give a whole number"):
            agent.learn(steps)  # type: ignore[arg-type]
    for path in ("/", "."):
        with pytest.raises(ngu.UserError, match=r"cannot save to \S+, which has no name of its own; name a new folder"):
            agent.save(path)


def test_an_agent_does_not_learn_for_no_steps() -> None:
    with ngu.NGU("gym", overrides=SMALL) as agent:
        for steps in (-5, 0):
            with pytest.raises(ngu.UserError, match=f"the agent cannot learn for {steps} steps; give 1 or more"):
                agent.learn(steps)
        assert agent.steps == 0


def test_settings_of_another_world_are_refused() -> None:
    with pytest.raises(
        ngu.UserError, match=r"env\.id is for a Gymnasium environment, but .*; .* take the preset gym\."
    ):
        ngu.NGU(overrides={"env.id": "CartPole-v1"})
    with pytest.raises(ngu.UserError, match=r"env\.kwargs is for a Gymnasium environment, but this run plays the"):
        ngu.NGU(overrides={"env.kwargs": {"size": 5}})
    with pytest.raises(ngu.UserError, match=r"env\.maze_size is for the Disco Maze, but this run plays a Gymnasium"):
        ngu.NGU("gym", overrides={"env.id": "CartPole-v1", "env.maze-size": 7})


def test_an_agent_that_cannot_be_made_leaves_no_process() -> None:
    before = set(Path("/proc").glob("[0-9]*"))
    with pytest.raises(ngu.UserError, match="needs"):
        ngu.NGU("gym", overrides={**SMALL, "replay.max_memory_share": 1e-9})
    children = [path for path in set(Path("/proc").glob("[0-9]*")) - before if parent_of(path) == os.getpid()]
    assert not children


def parent_of(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return None


def make_corridor() -> type[gymnasium.Env[Any, Any]]:
    """A class that workers can only be sent by value, as that of a script."""

    class Corridor(gymnasium.Env[np.ndarray, np.int64]):
        """Five cells; the reward lies at the far end. It measures how far the episode got."""

        observation_space = gymnasium.spaces.Box(0.0, 1.0, (5,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)
        measurements = ("farthest",)

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[np.ndarray, dict[str, Any]]:
            super().reset(seed=seed, options=options)
            self.place = self.farthest = 0
            return self.look(), {"farthest": 0}

        def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            self.place = max(self.place + (1 if action else -1), 0)
            self.farthest = max(self.farthest, self.place)
            there = self.place == 4
            return self.look(), float(there), there, False, {"farthest": self.farthest}

        def look(self) -> np.ndarray:
            return np.eye(5, dtype=np.float32)[self.place]

    return Corridor


def test_an_environment_registered_in_the_script_reaches_the_workers() -> None:
    gymnasium.register("test/Corridor-v0", entry_point=make_corridor(), max_episode_steps=20)
    try:
        with ngu.NGU("gym", overrides={**SMALL, "env.id": "test/Corridor-v0"}) as agent:
            agent.learn(400, progress=False)
            result = agent.evaluate()
            (line,) = (line for line in agent.history if "env/farthest" in line)
        assert 0 <= result["eval/exploit/farthest"] <= 4
        assert 0 < line["env/farthest"] <= 4
        assert line["env/restarts"] == 0
    finally:
        del gymnasium.registry["test/Corridor-v0"]


def test_groups_have_statistics_of_their_own() -> None:
    """Each group's actor has its own memories, copies of f and running averages, of its own environments alone."""
    with ngu.NGU("gym", overrides={**SMALL, "env.groups": 2}) as agent:
        agent.learn(200, progress=False)
        groups = [actor.novelty for actor in agent._training.runner.agent.actors]
        assert [group.num_envs for group in groups] == [2, 2]
        assert groups[0].snapshots is not groups[1].snapshots
        weights, means = zip(
            *((group.moments.weight.item(), group.moments.mean.item()) for group in groups), strict=True
        )
        assert 0 < weights[0] == weights[1] < 100 + 2  # those before RND was first trained do not count
        assert means[0] != means[1] > 0
        before = [(*weights, *means)]
        agent.evaluate()
        assert before == [(*weights, *(group.moments.mean.item() for group in groups))]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gym", {"env.id": "CartPole-v1", "env.groups": 2}),
        ("atari-cpu", {"env.game": "breakout", "env.max_frames": 100, "env.num_envs": 2, "replay.trace_length": 10,
                       "replay.period": 5, "replay.capacity": 1000, "network.filters": (4, 4, 4),
                       "novelty.filters": (4, 4, 4), "learner.replay_ratio": 0.5}),
    ],
)  # fmt: skip
def test_the_same_seed_gives_the_same_weights_with_environments_on_the_host(
    name: str, settings: dict[str, Any]
) -> None:
    def weights(seed: int) -> list[torch.Tensor]:
        sizes = {field: value for field, value in SMALL.items() if field != "env.id"}
        with ngu.NGU(name, overrides={**sizes, **settings, "run.seed": seed}) as agent:
            agent.learn(160, progress=False)
            learner = agent._training.runner.agent.learner
            assert learner.updates > 0
            return [*learner.network.parameters(), *learner.novelty.parameters()]

    one, again, other = weights(3), weights(3), weights(4)
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
