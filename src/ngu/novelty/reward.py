"""The never-give-up reward r_i = r_episodic * min{max{alpha, 1}, L}, usable with any agent (paper, Sec. 2, Eq. 1).

Feed `IntrinsicReward` every observation of a batch of environments and where episodes start; it returns r_i. Train it
with `train` on transitions from anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ngu.config import LearnerConfig, NoveltyConfig, Precision
from ngu.envs.protocol import EnvironmentSpec
from ngu.errors import UserError
from ngu.graphs import Branch
from ngu.moments import RunningMoments
from ngu.novelty.episodic import DistanceScale, EpisodicMemory, Kernel, episodic_reward
from ngu.novelty.inputs import check_actions, check_behaviour, check_parts, check_state, check_tensor, find_device
from ngu.novelty.lifelong import RandomNetworkDistillation, clipped_modulator, modulator
from ngu.novelty.model import NoveltyModel, NoveltyReport, NoveltyTrainer
from ngu.novelty.nearest import search_nearest
from ngu.novelty.snapshots import EmbeddingSnapshots
from ngu.novelty.transitions import Transitions, balanced_weight
from ngu.precision import autocast, in_full, storage_dtype


@dataclass
class NoveltyParts:
    """r_i and what it is made of, [E] each."""

    reward: Tensor
    episodic: Tensor
    alpha: Tensor
    """Before the clip."""
    error: Tensor
    """RND's error."""
    state: Tensor | None
    """[E, p] controllable states as they went into memory; None where there is none."""


class IntrinsicReward:
    """r_i for a batch of E environments.

    Alone: `IntrinsicReward(spec, num_envs)`, then for each step of the environments `reward = intrinsic(observation,
    first)`, now and then `intrinsic.train(observation, action, next_observation)`.

    Where your environments know a better controllable state than f, such as a position, name its D numbers in the
    spec's `controllable_state`, set the config's `controllable_states` to "hand-crafted", and give their values at
    each step: `intrinsic(observation, first, controllable_state=state)`, [E, D]. They are compared by Euclidean
    distance as they are, so scale them to what a step should count. There is no f to be trained then; RND still is.

    Inside the agent the learner trains the model; `publish` hands its weights to this side.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        num_envs: int,
        config: NoveltyConfig | None = None,
        device: torch.device | str = "cpu",
        *,
        precision: Precision = "fp32",
        optimiser: LearnerConfig | None = None,
        model: NoveltyModel | None = None,
    ) -> None:
        config = config if config is not None else NoveltyConfig()
        check_parts(spec, config, num_envs, precision)
        device = find_device(device)
        self.config = config
        self.spec, self._device = spec, device
        self.precision: Precision = precision
        self.num_envs = num_envs
        self._owns_model = model is None
        self.model = model if model is not None else NoveltyModel(spec, config).to(device)
        self._optimiser = optimiser or LearnerConfig()
        self._trainer: NoveltyTrainer | None = None

        stored = storage_dtype(device, precision)
        self.episodes = torch.zeros(num_envs, dtype=torch.int64, device=device)
        """[E] episodes that have begun, since the start or since `begin_anew`."""
        self.snapshots: EmbeddingSnapshots | None = None
        self.memory: EpisodicMemory | None = None
        if config.episodic:
            size = len(spec.controllable_state)
            if self.model.inverse is not None:
                copies = 1
                if config.controllable_states == "learned":
                    # One more than there are environments, and one is always free.
                    copies = min(config.embedding_snapshots, num_envs + 1)
                size = config.embedding_size
                self.snapshots = EmbeddingSnapshots(self.model.inverse.embedding, num_envs, copies, device, stored)
            elif size == 0:
                raise UserError(
                    "novelty.controllable_states is hand-crafted, but the environments' spec has no "
                    "controllable_state; name the numbers that make it up there, such as ('x', 'y')."
                )
            self.memory = EpisodicMemory(num_envs, self._slots(spec), size, device)
            self.scale = DistanceScale(config.distance_decay, device)
            self.kernel = Kernel.create(config)
        self.rnd: RandomNetworkDistillation | None = None
        if self.model.rnd is not None:
            self.rnd = RandomNetworkDistillation(spec, config).to(device)
            self.rnd.load_state_dict(self.model.rnd.state_dict())
            self.rnd.requires_grad_(False)
            self.rnd.store_in(stored)
            self._rnd_branch = Branch(device, urgent=True)
            self.moments = RunningMoments((), config.modulator_decay).to(device)

    def _slots(self, spec: EnvironmentSpec) -> int:
        """Memory slots: the set capacity, or fewer if no meta-episode can fill them."""
        if spec.max_episode_steps is None:
            return self.config.memory_capacity
        longest = (spec.max_episode_steps + 1) * self.config.memory_episodes
        return min(self.config.memory_capacity, longest)

    @torch.no_grad()
    def __call__(
        self,
        observation: Tensor,
        first: Tensor,
        terminated: Tensor | None = None,
        controllable_state: Tensor | None = None,
    ) -> Tensor:
        """r_i of each environment's newest observation.

        Args:
            observation: [E, *observation_shape]
            first: [E] bool, where the observation begins an episode.
            terminated: [E] bool, where it is terminal. No action is taken there, so its novelty is not worth reaching
                it (paper, App. A: an actor computes r_i for the observations it acts on).
            controllable_state: [E, D], of the observation; where states are hand-crafted, and only there.

        Returns:
            [E] float32; 0 at an episode's first observation, at terminal ones, and at one that is not finite, which is
            not remembered either. An environment's very first observation begins an episode, whatever `first` says.
        """
        return self.parts(observation, first, terminated, controllable_state).reward

    @torch.no_grad()
    def parts(
        self,
        observation: Tensor,
        first: Tensor,
        terminated: Tensor | None = None,
        controllable_state: Tensor | None = None,
    ) -> NoveltyParts:
        """As calling, with what the reward is made of."""
        self._check(observation, first, terminated, controllable_state)
        first = first | (self.episodes == 0)
        wiped = self._begin_episodes(first)
        sound = _finite_rows(observation, controllable_state)
        error = torch.zeros(self.num_envs, device=observation.device)
        alpha = torch.ones_like(error)
        if self.rnd is not None:
            with self._rnd_branch.fork():
                error, alpha = self._lifelong(observation, sound, self.rnd)
        with autocast(observation.device, self.precision):
            episodic, state, comparable = self._episodic(observation, sound, wiped, controllable_state)
        if self.rnd is not None:
            self._rnd_branch.join()
        if self.memory is not None:
            reward = episodic * clipped_modulator(alpha, self.config.max_modulation)
        elif self.rnd is not None:
            deviation = self.moments.deviation
            reward = torch.where(deviation > 0, error / torch.where(deviation > 0, deviation, 1.0), 0.0)
        else:
            reward = torch.zeros_like(error)
        unpaid = first if comparable is None else first | ~comparable  # nothing led to an episode's first observation
        reward = torch.where(unpaid if terminated is None else unpaid | terminated, 0.0, reward)
        return NoveltyParts(torch.nan_to_num(reward, 0.0, 0.0, 0.0), episodic, alpha, error, state)

    def _check(self, observation: Tensor, first: Tensor, terminated: Tensor | None, state: Tensor | None) -> None:
        """Refuses what does not fit before anything is remembered."""
        spec, envs, device = self.spec, self.num_envs, self._device
        check_tensor("observation", observation, (envs, *spec.observation_shape), spec.observation_dtype, device)
        check_tensor("first", first, (envs,), torch.bool, device)
        if terminated is not None:
            check_tensor("terminated", terminated, (envs,), torch.bool, device)
        if not self.config.hand_crafted:
            if state is not None:
                raise UserError(
                    "a controllable_state is given, but nothing is done with it; set novelty.controllable_states to "
                    "hand-crafted, or leave it out."
                )
            return
        wanted = (envs, len(spec.controllable_state))
        if not isinstance(state, Tensor) or tuple(state.shape) != wanted:
            given = "none is given" if state is None else f"one of the type {type(state).__name__} is given"
            given = f"one of shape {tuple(state.shape)} is given" if isinstance(state, Tensor) else given
            raise UserError(
                f"controllable states are hand-crafted, and {given}; give a controllable_state of shape {wanted}: "
                f"{', '.join(spec.controllable_state)} of each environment."
            )

    @property
    def embedding_age(self) -> float | None:
        """Calls of `publish` since the f in use was copied, mean over environments; None if none is learned."""
        if self.snapshots is None or self.config.controllable_states != "learned":
            return None
        return float(self.snapshots.age[self.snapshots.slot].float().mean())

    @property
    def place(self) -> Tensor:
        """[E] int64: the running episode's place in its meta-episode of n = `memory_episodes`, 0 to n - 1."""
        return (self.episodes - 1) % self.config.memory_episodes

    def begin_anew(self) -> None:
        """Lets the episodes that begin next be the first of new meta-episodes, however many the running ones have had.

        For environments that are all reset: episodes that were cut short without an end are not remembered as such.
        """
        self.episodes.zero_()

    def _begin_episodes(self, first: Tensor) -> Tensor:
        """Counts the episodes that begin; [E] bool, where a meta-episode does, so that the memory is wiped."""
        wiped = first & (self.episodes % self.config.memory_episodes == 0)
        self.episodes.add_(first.to(torch.int64))
        return wiped

    def _lifelong(
        self, observation: Tensor, sound: Tensor | None, rnd: RandomNetworkDistillation
    ) -> tuple[Tensor, Tensor]:
        """RND's errors, which are added to the running moments, and alpha, [E] each; `sound` is as in `_episodic`."""
        with autocast(observation.device, self.precision):
            error = rnd.error(observation)
        # Before any training inputs are whitened with no statistics, and errors a thousand times those that follow,
        # which they would hide for a long time.
        counts = None if rnd.inputs is None else (rnd.inputs.weight > 0).expand_as(error)
        if sound is not None:
            counts = sound if counts is None else sound & counts
        self.moments.update(error, counts)
        return error, modulator(error, self.moments.mean, self.moments.deviation)

    def _episodic(
        self, observation: Tensor, sound: Tensor | None, wiped: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The episodic part, the controllable states, and [E] bool, where they had others to be compared with.

        Those of observations that are not `sound` leave no trace. None is all of them: but for an episode's first, each
        has another one before it then.
        """
        if self.memory is None:
            return torch.zeros(self.num_envs, device=observation.device), None, sound
        self.memory.wipe(wiped)
        if self.snapshots is not None:
            self.snapshots.begin(wiped)
            state = self.snapshots(observation)
        assert state is not None
        state = state.to(self.memory.entries.dtype)
        distance = search_nearest(state, self.memory.entries, self.memory.filled, self.kernel.neighbours)
        comparable = None
        if sound is not None:
            sound = sound & torch.isfinite(state).all(1)
            distance = torch.where(sound.unsqueeze(1), distance, torch.inf)
            comparable = torch.isfinite(distance[:, 0])  # with nothing, Algorithm 1 gives 1 / c, a thousand
        mean_distance = self.scale.update(distance)
        self.memory.append(state, sound)
        return episodic_reward(distance, mean_distance, self.kernel), state, comparable

    def train(
        self,
        observation: Tensor,
        action: Tensor,
        next_observation: Tensor,
        valid: Tensor | None = None,
        behaviour: Tensor | None = None,
    ) -> NoveltyReport:
        """Trains the model on B transitions (x_t, a_t, x_{t+1}) and acts with the result.

        Rows where `valid` [B] bool is False are padding and do not count.
        `behaviour` [B] are the probabilities with which the actions were taken, given where the config's
        `balance_actions` is set, and only there.
        """
        batch = len(observation) if isinstance(observation, Tensor) and observation.dim() else 0
        shape, device = self.spec.observation_shape, self._device
        check_tensor("observation", observation, (batch, *shape), self.spec.observation_dtype, device)
        check_tensor("action", action, (batch,), torch.int64, device)
        check_tensor("next_observation", next_observation, (batch, *shape), self.spec.observation_dtype, device)
        if valid is not None:
            check_tensor("valid", valid, (batch,), torch.bool, device)
        check_actions(action, valid, self.spec.num_actions)
        check_behaviour(behaviour, action, valid, self.config.balance_actions, device)
        if self._trainer is None:
            self._trainer = NoveltyTrainer(self.model, self.config, self._optimiser, self.precision)
        weight = torch.ones(action.shape, device=device) if valid is None else valid.float()
        seen = Transitions(observation, action, next_observation, weight)
        controlled = seen
        if behaviour is not None:
            balanced = balanced_weight(behaviour, self.spec.num_actions)
            controlled = replace(seen, weight=torch.where(seen.valid, balanced, 0.0))
        report = self._trainer.train(controlled, seen)
        self.publish(self.model)
        return report

    @torch.no_grad()
    def restart(self, model: NoveltyModel, statistics: IntrinsicReward) -> None:
        """Forgets all episodes, and rewards as another side does now: with its newest f and its running statistics.

        For evaluation: the copy must see the rewards that the actors see, and leave theirs alone. RND's weights come
        from `model`.
        """
        self.begin_anew()
        if self.memory is not None:
            self.memory.written.zero_()
            self.scale.take_over(statistics.scale)
        if self.snapshots is not None and statistics.snapshots is not None:
            self.snapshots.replace_all(statistics.snapshots.embedding(int(statistics.snapshots.newest)))
        if self.rnd is not None:
            self._take_over_rnd(model)
            self.moments.load_state_dict(statistics.moments.state_dict())

    @torch.no_grad()
    def start_over(self, model: NoveltyModel) -> None:
        """Forgets all episodes and running statistics, and rewards from now on with a model's weights, f's at once."""
        self.begin_anew()
        if self.memory is not None:
            self.memory.written.zero_()
            self.scale.reset()
        if self.snapshots is not None and model.inverse is not None:
            self.snapshots.replace_all(model.inverse.embedding)
        if self.rnd is not None:
            self._take_over_rnd(model)
            self.moments.reset()

    @torch.no_grad()
    def publish(self, model: NoveltyModel) -> None:
        """Takes over newly trained weights: RND's at once, f's for episodes that begin from now on."""
        if self.snapshots is not None and model.inverse is not None and self.config.controllable_states == "learned":
            self.snapshots.renew(model.inverse.embedding)
        self._take_over_rnd(model)

    def _take_over_rnd(self, model: NoveltyModel) -> None:
        if self.rnd is not None and model.rnd is not None:
            for mine, theirs in zip(self.rnd.state_dict().values(), model.rnd.state_dict().values(), strict=True):
                mine.copy_(theirs)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"episodes": self.episodes}
        if self.snapshots is not None:
            state["snapshots"] = in_full(self.snapshots.state_dict())
        if self.memory is not None:
            state["memory"] = self.memory.state_dict()
            state["scale"] = self.scale.state_dict()
        if self.rnd is not None:
            state["rnd"] = in_full(self.rnd.state_dict())
            state["moments"] = dict(self.moments.state_dict())
        if self._owns_model:
            state["model"] = dict(self.model.state_dict())
        if self._trainer is not None:
            state["trainer"] = self._trainer.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_state(state, {name: part for name, part in self.state_dict().items() if name != "trainer"})
        self.episodes.copy_(state["episodes"])
        if self.snapshots is not None:
            self.snapshots.load_state_dict(state["snapshots"])
        if self.memory is not None:
            self.memory.load_state_dict(state["memory"])
            self.scale.load_state_dict(state["scale"])
        if self.rnd is not None:
            self.rnd.load_state_dict(state["rnd"])
            self.moments.load_state_dict(state["moments"])
        if self._owns_model:
            self.model.load_state_dict(state["model"])
        if "trainer" in state:
            self._trainer = NoveltyTrainer(self.model, self.config, self._optimiser, self.precision)
            self._trainer.load_state_dict(state["trainer"])


def _finite_rows(*parts: Tensor | None) -> Tensor | None:
    """Parts [E, ...] to [E] bool, where all their numbers are finite; None where all are whole, as in pictures."""
    found = [torch.isfinite(part).flatten(1).all(1) for part in parts if part is not None and part.is_floating_point()]
    return torch.stack(found).all(0) if found else None
