"""Acting: a batch of environments, the policies that step them, and the novelty of what they see.

One step: the environments take the action chosen before, r_i(x_{t+1}) is computed, the next action is chosen from
Q(x_{t+1}, ., beta_i), and the new row goes to replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ngu.config import Precision
from ngu.envs.protocol import EnvironmentBatch, EnvironmentSpec, Step
from ngu.graphs import Branch, Graphed, fusable
from ngu.host_replay import RowCarrier
from ngu.hosted import HostedSteps
from ngu.networks import AgentInput, QNetwork
from ngu.novelty.model import NoveltyModel
from ngu.novelty.probe import LinearProbe, pop_errors
from ngu.novelty.reward import IntrinsicReward
from ngu.precision import autocast, in_full
from ngu.randomness import restore_generator
from ngu.retrace import Objective
from ngu.sequences import Row, RowSink

_PER_STEP = ("novelty/reward", "novelty/alpha", "novelty/episodic", "novelty/rnd_error", "actor/q_max")
_PER_EPISODE = ("env/return", "env/episode_length")
_BY_SUBSET = ("novelty/reward", "actor/q_max")
"""Of the means over steps, those that are also told for each of the other subsets of steps."""
_MOST_PLACES = 10
"""The episodes of longer meta-episodes are told together: each place has a row of sums, and every step adds to all."""
_TENSORS = (
    "observation", "previous_action", "extrinsic", "intrinsic", "q", "action", "behaviour", "taken", "alpha",
    "episode_return", "episode_length", "sums", "epsilon",
)  # fmt: skip


class Actor:
    """E environments acting together; environment e follows policy `mixture[e]` with `epsilon[e]`, for good.

    Without a replay it only plays: that is how the evaluator and the recorder use it.
    """

    def __init__(
        self,
        env: EnvironmentBatch,
        network: QNetwork,
        novelty: IntrinsicReward,
        mixture: Tensor,
        epsilon: Tensor,
        generator: torch.Generator,
        replay: RowSink | None = None,
        objective: Objective | None = None,
        precision: Precision = "fp32",
        streams: slice = slice(None),
        probe: LinearProbe | None = None,
        sees_extrinsic: bool = True,
        random_start: bool = False,
    ) -> None:
        """`objective` is what TD errors are measured by; a replay needs it. `streams` are replay's for this actor.

        Without `sees_extrinsic` r_e is 0 for the networks and for replay; metrics tell the true one. With
        `random_start` it acts at random until it is told to `follow_policies`.
        """
        self.env = env
        self.network = network.requires_grad_(False)
        self.novelty = novelty
        self.mixture = mixture
        self._own_epsilon = epsilon
        self.epsilon = torch.ones_like(epsilon) if random_start else epsilon.clone()
        """What it acts with, [E]."""
        self.generator = generator
        self.replay = replay
        self.objective = objective
        self.streams = streams
        self.probe = probe
        self.sees_extrinsic = sees_extrinsic
        self.precision: Precision = precision
        self.device = mixture.device
        envs = env.num_envs
        zero = torch.zeros(envs, device=self.device)
        self.state = network.initial_state(envs)
        self.observation = torch.zeros(
            envs, *env.spec.observation_shape, dtype=env.spec.observation_dtype, device=self.device
        )
        self.previous_action = torch.full((envs,), -1, dtype=torch.int64, device=self.device)
        self.extrinsic = zero.clone()
        self.intrinsic = zero.clone()
        self.q = torch.zeros(envs, env.spec.num_actions, device=self.device)
        self.action = torch.zeros_like(self.previous_action)
        """The next action, [E] int64."""
        self.behaviour = torch.ones(envs, device=self.device)
        """The probability that it was chosen with, [E]."""
        self.taken = zero.clone()
        """Its value Q(x_t, a_t), [E]."""
        self.alpha = torch.ones(envs, device=self.device)
        self.episode_return = zero.clone()
        self.episode_length = zero.clone()
        counted = len(_PER_STEP) + len(_PER_EPISODE) + len(env.spec.reported) + 2
        last = network.num_mixtures - 1
        everybody = torch.ones_like(mixture, dtype=torch.bool)
        ends = [mixture == 0, mixture == last] if last > 0 else []
        self._members = torch.stack([everybody, *ends])
        self.subsets = subset_names(network.num_mixtures, novelty.config.memory_episodes)
        """Whose steps each row of `sums` counts."""
        self._places = torch.arange(len(self.subsets) - len(self._members), device=self.device).unsqueeze(1)
        self.sums = torch.zeros(len(self.subsets), counted, dtype=torch.float64, device=self.device)
        apart = replay is not None and replay.device.type != self.device.type
        self._carrier = RowCarrier(replay, streams) if apart and replay is not None else None
        self._sight, self._counting = Branch(self.device, urgent=True), Branch(self.device)
        generators = (generator, *env.generators)
        if env.graph_safe:
            self._hosted: HostedSteps | None = None
            self._step = Graphed(self._step_on_device, self.device, generators, urgent=True)
        else:
            self._hosted = HostedSteps(env, self.device)
            self._step = Graphed(self._take_in_hosted, self.device, generators, urgent=True)

    def reset(self, seed: int) -> Step:
        """Begins new episodes everywhere, and with them new meta-episodes."""
        self.novelty.begin_anew()
        step = self.env.reset(seed)
        if self._hosted is None:
            self._take_in(step)
        else:
            self._hosted.take(step)
            step = self._take_in_hosted()
        if self._carrier is not None:
            self._carrier.begin()
        return step

    def step(self) -> Step:
        """One step of every environment. On a GPU the tensors in the result are overwritten by the next call."""
        self.send()
        return self.receive()

    def send(self) -> None:
        """Lets the environments begin the step; those on the host then work beside this process."""
        self.env.maintain()
        if self._hosted is not None:
            self._hosted.send(self.action)
        if self._carrier is not None:
            # The emulators are at work by now, if there are any, and what they wait for came after the row.
            if self._hosted is None:
                torch.cuda.current_stream().synchronize()
            self._carrier.finish()

    def receive(self) -> Step:
        """Ends the step: takes in what the environments bring and chooses the next actions."""
        if self._hosted is not None:
            self._hosted.receive()
        step = self._step()
        if self._carrier is not None:
            self._carrier.begin()
        if self._hosted is not None:
            self._hosted.fetch_action(self.action)
        return step

    def _step_on_device(self) -> Step:
        self.env.send(self.action)
        step = self.env.recv()
        self._take_in(step)
        return step

    def _take_in_hosted(self) -> Step:
        assert self._hosted is not None
        step = self._hosted.step()
        self._take_in(step)
        return step

    @torch.no_grad()
    def _take_in(self, step: Step) -> None:
        """Everything that follows from a new observation, the choice of the next action included."""
        first = step.first
        with self._sight.fork(), autocast(self.device, self.precision):
            seen = self.network.look(self.network.prepare(step.observation))
        measured = self._controllable_state(step) if self.novelty.config.hand_crafted else None
        parts = self.novelty.parts(step.observation, first, step.terminated, measured)
        with self._counting.fork():
            self._count(step, parts.reward, parts.alpha, parts.episodic, parts.error)
        if self.probe is not None and parts.state is not None:
            self.probe.observe(parts.state, step.info)
        # Chosen, not multiplied: 0 times a NaN of the last episode would be NaN in this one.
        fresh = first.unsqueeze(1)
        self.state.hidden.copy_(torch.where(fresh, 0.0, self.state.hidden))
        self.state.cell.copy_(torch.where(fresh, 0.0, self.state.cell))
        self.previous_action.copy_(torch.where(first, -1, self.action))
        self.observation.copy_(step.observation)
        if self.sees_extrinsic:
            self.extrinsic.copy_(step.reward)
        self.intrinsic.copy_(parts.reward)
        self.alpha.copy_(parts.alpha)

        inputs = AgentInput(self.observation, self.previous_action, self.extrinsic, self.intrinsic, self.mixture)
        self._sight.join()
        with autocast(self.device, self.precision):
            q, state = self.network.step(inputs, self.state, seen)
        if self.replay is not None:
            self._remember(step, q.max(-1).values, self.replay)
        draw = torch.rand(2, len(q), device=q.device, generator=self.generator)
        action, behaviour = choose_actions(q, self.epsilon, draw)
        self._counting.join()  # it looks at the values before these
        self.q.copy_(q)
        self.action.copy_(action)
        self.behaviour.copy_(behaviour)
        self.taken.copy_(q.gather(-1, action.unsqueeze(-1)).squeeze(-1))
        self.state.hidden.copy_(state.hidden)
        self.state.cell.copy_(state.cell)

    def _controllable_state(self, step: Step) -> Tensor:
        """[E, D], as the environments measured it."""
        return torch.stack([step.info[name] for name in self.env.spec.controllable_state], 1)

    def _remember(self, step: Step, best: Tensor, replay: RowSink) -> None:
        """Hands the new row to replay, while `state` still is the state before its observation was seen."""
        assert self.objective is not None
        first = step.first
        before = self.q.max(-1).values
        error = self.objective.td_error(self.taken, before, self.extrinsic, self.intrinsic, step.terminated, best)
        row = Row(
            observation=step.observation,
            action=self.previous_action,
            behaviour=torch.where(first, 1.0, self.behaviour),
            extrinsic=self.extrinsic,
            intrinsic=self.intrinsic,
            td_error=torch.where(first, 0.0, error),
            terminated=step.terminated,
            truncated=step.truncated,
            first=first,
        )
        if self._carrier is not None:
            self._carrier.hold(row, self.state)
        else:
            replay.add(row, self.state, self.streams)

    def _count(self, step: Step, intrinsic: Tensor, alpha: Tensor, episodic: Tensor, error: Tensor) -> None:
        """Adds to the running statistics, on the device; the automatic-reset step counts for nothing."""
        measured = [step.info[name] for name in self.env.spec.reported]
        members = self._members
        if len(self._places):
            members = torch.cat([members, self.novelty.place == self._places])
        totals = episode_totals(
            step.first, step.ended, self.episode_return, self.episode_length, step.reward,
            [intrinsic, alpha, episodic, error, self.q.max(-1).values], measured, members,
        )  # fmt: skip
        self.episode_return.copy_(totals[0])
        self.episode_length.copy_(totals[1])
        self.sums.add_(totals[2])

    def follow_policies(self) -> None:
        """Ends a random start: from now on each environment acts with its own epsilon."""
        self.epsilon.copy_(self._own_epsilon)

    def fetch(self, network: QNetwork, novelty: NoveltyModel) -> None:
        """Takes over the learner's weights."""
        self.network.take_over(network)
        self.novelty.publish(novelty)

    def start_over(self, network: QNetwork, novelty: NoveltyModel) -> None:
        """Takes over the learner's weights, and forgets what novelty has seen; running episodes go on."""
        self.network.take_over(network)
        self.novelty.start_over(novelty)

    def pop_statistics(self) -> dict[str, float]:
        """Means since the last call, as metrics."""
        return pop_statistics([self])

    def state_dict(self) -> dict[str, Any]:
        return {
            "env": self.env.state_dict(),
            "network": in_full(self.network.state_dict()),
            "novelty": self.novelty.state_dict(),
            "generator": self.generator.get_state(),
            "hidden": self.state.hidden,
            "cell": self.state.cell,
            **{name: getattr(self, name) for name in _TENSORS},
            **({"probe": self.probe.state_dict()} if self.probe is not None else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])
        self.network.load_state_dict(state["network"])
        self.novelty.load_state_dict(state["novelty"])
        restore_generator(self.generator, state["generator"])
        self.state.hidden.copy_(state["hidden"])
        self.state.cell.copy_(state["cell"])
        for name in _TENSORS:
            getattr(self, name).copy_(state[name])
        if self.probe is not None:
            self.probe.load_state_dict(state["probe"])


def pop_statistics(actors: Sequence[Actor]) -> dict[str, float]:
    """Means over actors since the last call, as metrics; one transfer from the device, and one if there are probes."""
    sums = torch.stack([actor.sums for actor in actors]).sum(0)
    for actor in actors:
        actor.sums.zero_()
    probes = [actor.probe for actor in actors if actor.probe is not None]
    return means_of(sums, actors[0].env.spec, actors[0].subsets) | (pop_errors(probes) if probes else {})


def subset_names(num_mixtures: int, memory_episodes: int) -> list[str]:
    """Whose steps are counted together, as ends of metrics' names, P of them.

    Everybody's; those of the two ends of the family if there is one; those of the first, the second, ... episode of
    each meta-episode if it has several.
    """
    ends = ["/exploit", "/explore"] if num_mixtures > 1 else []
    return ["", *ends, *episode_names(memory_episodes)]


def episode_names(memory_episodes: int) -> list[str]:
    """The episodes of a meta-episode, as ends of metrics' names; none where it has but one, or too many to be told."""
    told = 1 < memory_episodes <= _MOST_PLACES
    return [f"/episode_{place}" for place in range(1, memory_episodes + 1)] if told else []


def means_of(all_sums: Tensor, spec: EnvironmentSpec, subsets: Sequence[str]) -> dict[str, float]:
    """Metrics from actors' added `sums`, [P, K], a row for each of the P subsets."""
    split = 1 + len(_PER_STEP)
    names = [*_PER_EPISODE, *(f"env/{name}" for name in spec.reported)]
    metrics: dict[str, float] = {}
    for subset, sums in zip(subsets, all_sums.tolist(), strict=True):
        steps, episodes = sums[0], sums[split]
        metrics[f"env/episodes{subset}"] = episodes
        if steps:
            means = zip(_PER_STEP, sums[1:split], strict=True)
            metrics |= {f"{name}{subset}": total / steps for name, total in means if not subset or name in _BY_SUBSET}
        if episodes:
            means = zip(names, sums[split + 1 :], strict=True)
            metrics |= {f"{name}{subset}": total / episodes for name, total in means}
    return metrics


@fusable
def choose_actions(q: Tensor, epsilon: Tensor, draw: Tensor) -> tuple[Tensor, Tensor]:
    """epsilon-greedy actions [E] and their probabilities, from values [E, A] and uniform numbers [2, E]."""
    actions = q.shape[-1]
    greedy = q.argmax(-1)
    random = (draw[1] * actions).to(torch.int64).clamp_max(actions - 1)
    action = torch.where(draw[0] < epsilon, random, greedy)
    return action, epsilon / actions + torch.where(action == greedy, 1 - epsilon, 0.0)


@fusable
def episode_totals(
    first: Tensor,
    ended: Tensor,
    episode_return: Tensor,
    episode_length: Tensor,
    reward: Tensor,
    per_step: list[Tensor],
    measured: list[Tensor],
    members: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return and length of the running episodes [E], and what this step adds to the sums that metrics are made of.

    The sums are [P, K] for the P subsets of the environments whose `members` are marked in [P, E] bool.
    """
    went = ~first
    total = torch.where(went, episode_return + reward, 0.0)
    length = torch.where(went, episode_length + 1, 0.0)
    steps = [torch.where(went, value, 0.0) for value in (torch.ones_like(total), *per_step)]
    ends = [torch.where(ended, value, 0.0) for value in (torch.ones_like(total), total, length, *measured)]
    return total, length, torch.where(members.unsqueeze(1), torch.stack(steps + ends), 0.0).sum(-1)
