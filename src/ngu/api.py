"""The agent as one object: make it, let it learn, ask it for actions, save it, load it."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import torch

from ngu.checkpoint import load_newest, put_in_place, recover, save_checkpoint
from ngu.config import Config
from ngu.config_reading import coerce, with_overrides
from ngu.errors import UserError
from ngu.policy import Policy, PolicyState
from ngu.policy_inputs import as_epsilon, as_numbers, as_observations, as_rewards
from ngu.presets import preset
from ngu.run_folder import RunFolder, is_taken
from ngu.training import Training
from ngu.worlds import check_world


class NGU:
    """The Never Give Up agent.

    Environments outside the device (Atari, Gymnasium) live in threads or worker processes. `close` ends them; so does
    leaving a `with` block, and, at the latest, the end of the program. A closed agent still acts and saves.

    Args:
        preset_or_config: a preset's name, such as "disco-maze-small", or a whole `Config`.
        variant: a variant of the preset, such as "random-projection".
        overrides: fields to change, by dotted name: `{"env.maze_size": 7}`, or `{"env.id": "CartPole-v1"}` of `gym`.
    """

    def __init__(
        self,
        preset_or_config: str | Config = "disco-maze-small",
        *,
        variant: str = "ngu",
        overrides: dict[str, Any] | None = None,
    ) -> None:
        _check_kind(preset_or_config)
        if isinstance(preset_or_config, str):
            base = preset(preset_or_config, variant)
        elif variant == "ngu":
            base = preset_or_config
        else:
            raise UserError("a variant changes a preset; give the preset's name, or the finished config without one.")
        self.config = with_overrides(base, {} if overrides is None else overrides)
        given = [name.replace("-", "_") for name in overrides or {}]
        check_world(self.config, {name.removeprefix("env."): name for name in given if name.startswith("env.")})
        self._training = Training(self.config)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the environments' threads and processes; a second call changes nothing."""
        if not self._closed:
            self._closed = True
            self._training.close()

    @property
    def steps(self) -> int:
        """Agent steps trained so far."""
        return self._training.runner.steps

    @property
    def history(self) -> list[dict[str, float]]:
        """Every line of metrics since this agent was made or loaded, each with its `step`.

        Those of a run from before stand in its folder: `ngu.metrics.read_metrics(folder / "metrics.jsonl")`.
        """
        return self._training.history

    def learn(self, steps: int | None = None, *, progress: bool = True) -> Self:
        """Trains for `steps` more agent steps (default: up to the config's run.steps). Nothing is written to disk."""
        self._check_open()
        if steps is not None and (steps := coerce(steps, int, "steps")) < 1:
            raise UserError(f"the agent cannot learn for {steps} steps; give 1 or more.")
        until = self.config.run.steps if steps is None else self.steps + steps
        self._training.run(until, show_progress=progress)
        return self

    def evaluate(self) -> dict[str, float]:
        """Plays the exploratory policy, and the exploitative one if there are several, on held-out environments."""
        self._check_open()
        return self._training.evaluate()

    def predict(
        self,
        observation: Any,
        state: PolicyState | None = None,
        *,
        reward: Any = 0.0,
        policy: Literal["explore", "exploit"] = "explore",
        epsilon: float | None = None,
        controllable_state: Any = None,
    ) -> tuple[Any, PolicyState]:
        """An action for an observation.

        Args:
            observation: one observation or a batch, as a NumPy array or tensor; images channels first or last, uint8 as
                the agent was trained on them.
            state: what the last call returned; None at the start of an episode.
            reward: the extrinsic reward that the last action brought.
            policy: act with beta_{N-1} ("explore") or beta_0 ("exploit"); the same when N = 1.
            epsilon: share of random actions; None for the evaluation's.
            controllable_state: the numbers of the observation's hand-crafted state, or a batch of such rows; for agents
                that were trained with them alone, since r_i is an input of the network.

        Returns:
            The action (an int for one observation, an array for a batch) and the state for the next call.
        """
        runner = self._training.runner
        runner.settle()
        actor = Policy(self.config, runner.spec, runner.learner, runner.novelty)
        observations, single = as_observations(observation, runner.spec)
        batch = observations.to(actor.device)
        if policy not in ("explore", "exploit"):
            raise UserError(f"the policy {policy!r} does not exist; choose explore or exploit.")
        mixture = self.config.mixture.num_mixtures - 1 if policy == "explore" else 0
        chosen = as_epsilon(self.config.evaluation.epsilon if epsilon is None else epsilon)
        rewards = as_rewards(reward, len(batch)).to(actor.device)
        measured = None
        if controllable_state is not None:
            numbers = as_numbers("controllable_state", controllable_state)
            measured = torch.from_numpy(numbers.astype(np.float32)).to(actor.device)
            measured = measured.unsqueeze(0) if single else measured
        if state is None:
            state = actor.begin(len(batch))
        actor.check_state(state, len(batch))
        action = actor.act(batch, state, rewards, mixture, chosen, measured).cpu().numpy()
        return (int(action[0]) if single else action), state

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Writes config, networks, statistics and replay to a new folder, for `NGU.load` and `ngu resume`.

        Args:
            path: the folder.
            overwrite: an agent or a run that is there gives way, with all of its folder, once the new one is whole.
        """
        target = Path(path).expanduser()
        if not target.name:
            raise UserError(f"cannot save to {target}, which has no name of its own; name a new folder.")
        config = with_overrides(self.config, {"run.folder": str(target.parent), "run.name": target.name})
        without = () if config.run.checkpoint_replay else ("replay",)
        place = target.resolve()
        temporary = place.with_name(f".writing-{place.name}-{os.getpid()}")
        recover(place)
        with ExitStack() as stack:
            if is_taken(place):
                if not overwrite:
                    raise UserError(f"{target} is there already; save to another path, or pass overwrite=True.")
                stack.enter_context(RunFolder.open(place, lock=True))  # nothing but a run that nobody trains is removed
            stack.callback(shutil.rmtree, temporary, ignore_errors=True)
            beside = with_overrides(config, {"run.folder": str(place.parent), "run.name": temporary.name})
            folder = stack.enter_context(RunFolder.create(beside))
            folder.replace_config(config)
            save_checkpoint(folder.checkpoints, self.steps, self._training.runner.state_dict(), without=without)
            try:
                put_in_place(temporary, place)
            except OSError as error:
                raise UserError(f"cannot save to {target}: {error.strerror}; save to another path.") from None
        return target

    @classmethod
    def load(cls, path: str | Path, *, device: str | None = None) -> Self:
        """Reads an agent from a folder that `save` or `ngu train` wrote; loading runs no code."""
        place = Path(path).expanduser()
        recover(place)
        folder = RunFolder.open(place)
        agent = cls(folder.config if device is None else with_overrides(folder.config, {"run.device": device}))
        agent._training.load(load_newest(folder.checkpoints).state)
        return agent

    def _check_open(self) -> None:
        if self._closed:
            raise UserError("the agent is closed, and its environments with it; save it and load it again to go on.")


def _check_kind(given: Any) -> None:
    """Refuses what is neither the name of a preset nor a config, such as an environment."""
    if not isinstance(given, str | Config):
        name = getattr(getattr(given, "spec", None), "id", "CartPole-v1")
        raise UserError(
            f"NGU takes the name of a preset or a Config, not {type(given).__name__}; it makes its environments "
            f'itself, so name a Gymnasium one: NGU("gym", overrides={{"env.id": "{name}"}}).'
        )
