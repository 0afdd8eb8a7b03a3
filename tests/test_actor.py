"""Acting: what becomes experience, and that it is the experience the policy had (paper, App. A)."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_tiny_config
from oracles import clone, difference
from toy_environments import ScriptedEpisodes, reward_at

from ngu.actor import Actor
from ngu.agent import make_actor, make_learner
from ngu.config import Config
from ngu.envs import DiscoMaze
from ngu.learner import Learner
from ngu.mixture import actor_mixtures
from ngu.replay import SequenceReplay
from ngu.sequences import Batch

CPU = torch.device("cpu")
SCRIPT = [
    [(5, "terminated"), (1, "terminated"), (12, "truncated")],
    [(3, "truncated"), (9, "terminated")],
    [(1, "truncated")],
    [(20, "terminated")],
]


class Stage:
    """An actor with its replay in scripted episodes, that never gets new weights unless a test gives it some."""

    def __init__(self, epsilon: float = 0.3, script: Any = None, **changes: Any) -> None:
        script = SCRIPT if script is None else script
        self.config: Config = make_tiny_config(
            **{
                "mixture__num_mixtures": min(3, len(script)),
                "mixture__discount_min": 0.9,
                "env__num_envs": len(script),
                **changes,
            }
        )
        self.env = ScriptedEpisodes(script)
        envs = self.env.num_envs
        self.learner: Learner = make_learner(self.config, self.env.spec, CPU)
        self.mixture = torch.tensor(actor_mixtures(envs, self.config.mixture.num_mixtures))
        self.replay = SequenceReplay(
            self.env.spec, self.mixture, self.config.network.lstm_size, self.config.replay, CPU,
            torch.Generator().manual_seed(1),
        )  # fmt: skip
        self.actor: Actor = make_actor(
            self.config, self.env, self.learner, self.mixture, torch.full((envs,), epsilon),
            torch.Generator().manual_seed(2), self.replay,
        )  # fmt: skip
        self.actor.reset(0)

    def play(self, steps: int) -> Stage:
        for _ in range(steps):
            self.actor.step()
        return self

    def everything(self) -> Batch:
        """Each sequence once: all are made equally likely."""
        self.replay.priority.copy_((self.replay.priority > 0).float())
        return self.replay.sample(int(self.replay.count()))


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage().play(60)


def steps_of(batch: Batch) -> list[tuple[int, int]]:
    """(time, column) of all valid transitions."""
    return [(t, b) for b, length in enumerate(batch.length.tolist()) for t in range(length)]


# ------------------------------------------------------------------------------------------- what lies in a sequence


def test_sequences_are_consecutive_steps_of_one_episode(stage: Stage) -> None:
    batch = stage.everything()
    observation = batch.inputs.observation
    for t, b in steps_of(batch):
        env, episode, time, _ = observation[t, b].tolist()
        assert observation[t + 1, b, :3].tolist() == [env, episode, time + 1]


def test_mistake_actions_and_rewards_are_shifted_in_time_not_along_the_batch(stage: Stage) -> None:
    """The observation says which action led to it; the reward says to which step of which episode it belongs."""
    batch = stage.everything()
    inputs = batch.inputs
    for t, b in steps_of(batch):
        _, episode, time, led_here = inputs.observation[t + 1, b].tolist()
        # What the step at t did and brought ...
        assert batch.action[t, b].item() == led_here
        assert batch.extrinsic[t, b].item() == pytest.approx(reward_at(int(episode), int(time)))
        # ... is what the policy is told at t + 1 and not before.
        assert inputs.previous_action[t + 1, b].item() == led_here
        assert inputs.extrinsic[t + 1, b].item() == batch.extrinsic[t, b].item()
        assert inputs.intrinsic[t + 1, b].item() == batch.intrinsic[t, b].item()


def test_an_episode_begins_without_action_reward_and_state(stage: Stage) -> None:
    batch = stage.everything()
    starts = batch.inputs.observation[0, :, 2] == 0
    assert starts.any()
    assert (~starts).any()
    assert (batch.inputs.previous_action[0, starts] == -1).all()
    assert not batch.inputs.extrinsic[0, starts].any()
    assert not batch.inputs.intrinsic[0, starts].any()
    assert not batch.state.hidden[starts].any()
    assert (batch.inputs.previous_action[0, ~starts] >= 0).all()
    assert batch.state.hidden[~starts].any(1).all()


def test_ends_are_marked_as_the_environment_gave_them(stage: Stage) -> None:
    batch = stage.everything()
    for t, b in steps_of(batch):
        env, episode, time, _ = (int(x) for x in batch.inputs.observation[t + 1, b])
        length, end = SCRIPT[env][episode % len(SCRIPT[env])]
        assert batch.terminated[t, b].item() == (time == length and end == "terminated")


def test_mistake_the_automatic_reset_step_never_becomes_experience(stage: Stage) -> None:
    """Time 0 of an episode is never reached by a transition, and the action sent after an end is in no sequence."""
    batch = stage.everything()
    for t, b in steps_of(batch):
        assert batch.inputs.observation[t + 1, b, 2].item() > 0
        assert batch.inputs.observation[t + 1, b, 3].item() >= 0


def test_every_step_that_was_taken_becomes_experience() -> None:
    stage = Stage(replay__period=8).play(40)
    batch = stage.everything()
    held = {tuple(batch.inputs.observation[t + 1, b, :3].tolist()) for t, b in steps_of(batch)}
    for env, episodes in enumerate(SCRIPT):
        # All episodes that are over, at the least.
        clock, episode = 0, 0
        while clock + episodes[episode % len(episodes)][0] <= 40:
            length = episodes[episode % len(episodes)][0]
            assert {(env, episode, t) for t in range(1, length + 1)} <= held
            clock += length + 1
            episode += 1
        assert episode >= 1


# ------------------------------------------------------------------------------------------- the policy


def check_policy(stage: Stage, batch: Batch) -> int:
    """Unrolls the actor's network over the stored inputs, compares every mu, and counts the steps it could judge."""
    with torch.no_grad():
        q, _ = stage.actor.network.unroll(batch.inputs, batch.state)
    judged = 0
    for t, b in steps_of(batch):
        best = q[t, b].topk(2).values
        if (best[0] - best[1]).item() > 1e-4:
            expected = 0.3 / 3 + (0.7 if batch.action[t, b].item() == int(q[t, b].argmax()) else 0.0)
            assert batch.behaviour[t, b].item() == pytest.approx(expected, rel=1e-5)
            judged += 1
    return judged


def test_replay_reproduces_the_actors_policy(stage: Stage) -> None:
    """From the stored state over the stored inputs come the actor's own values, so its probabilities mu.

    This holds for starts inside episodes too, of which there are many here.
    """
    batch = stage.everything()
    assert (batch.inputs.observation[0, :, 2] > 0).sum() > 10
    assert check_policy(stage, batch) > 0.9 * len(steps_of(batch))


def test_the_stored_state_is_the_one_the_actor_had() -> None:
    """Step by step beside the actor: the state before each observation, under the name of that observation."""
    stage = Stage(replay__period=2)
    before = dict.fromkeys(map(tuple, stage.actor.observation[:, :3].tolist()), torch.zeros(16))
    for _ in range(50):
        hidden = stage.actor.state.hidden.clone()
        step = stage.actor.step()
        hidden[step.first] = 0.0
        before |= dict(zip(map(tuple, step.observation[:, :3].tolist()), hidden, strict=True))
    batch = stage.everything()
    for b in range(len(batch.length)):
        name = tuple(batch.inputs.observation[0, b, :3].tolist())
        assert torch.equal(batch.state.hidden[b], before[name])


@pytest.mark.parametrize("widening", [0.0, 0.9])
@pytest.mark.parametrize("transform", ["identity", "signed-sqrt"])
def test_new_sequences_are_weighed_by_the_actors_own_td_errors(transform: str, widening: float) -> None:
    """|h(r_e + beta r_i + gamma h^-1(max Q(x', .))) - Q(x, a)|, from the values that the network gives on replay; with
    advantage learning the target is lower by its share of what the action is worth less than the best."""
    stage = Stage(
        learner__value_transform=transform, replay__priority_exponent=1.0, learner__advantage_learning=widening
    ).play(60)
    first_priorities = stage.replay.priority.clone()
    batch = stage.everything()
    q, _ = stage.learner.network.unroll(batch.inputs, batch.state)
    ladder, h = stage.learner.mixture, stage.learner.transform
    for b, length in enumerate(batch.length.tolist()):
        policy = batch.inputs.mixture[b]
        errors = []
        for t in range(length):
            reward = batch.extrinsic[t, b] + ladder.beta[policy] * batch.intrinsic[t, b]
            follows = 0.0 if batch.terminated[t, b] else ladder.discount[policy] * h.expand(q[t + 1, b].max())
            taken = q[t, b, batch.action[t, b]]
            target = h.squash(reward + follows) - widening * (q[t, b].max() - taken)
            errors.append(abs((target - taken).item()))
        expected = 0.9 * max(errors) + 0.1 * np.mean(errors)
        assert first_priorities[batch.place[b]].item() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.0])
def test_actions_are_drawn_with_the_probability_that_is_stored(epsilon: float) -> None:
    stage = Stage(epsilon, script=[[(50, "terminated")]] * 16)
    batch = stage.play(200).everything()
    rows = steps_of(batch)
    stored = np.array([batch.behaviour[t, b].item() for t, b in rows])
    likely = 1 - epsilon + epsilon / 3
    assert {round(x, 5) for x in stored} <= {round(likely, 5), round(epsilon / 3, 5)}
    # The greedy action is taken as often as mu says; at epsilon 1 all three are equally likely and mu says so.
    if 0 < epsilon < 1:
        assert np.mean(stored > 0.5) == pytest.approx(likely, abs=0.03)
    if epsilon == 1:
        actions = np.bincount([batch.action[t, b].item() for t, b in rows], minlength=3) / len(rows)
        assert actions == pytest.approx([1 / 3] * 3, abs=0.03)


def test_each_environment_has_its_own_epsilon() -> None:
    stage = Stage(script=[[(50, "terminated")]] * 2)
    stage.actor.epsilon.copy_(torch.tensor([0.0, 0.9]))
    stage.actor.reset(0)
    batch = stage.play(101).everything()
    for t, b in steps_of(batch):
        env = int(batch.inputs.observation[t, b, 0])
        allowed = [1.0] if env == 0 else [0.3, 0.4]
        assert any(math.isclose(batch.behaviour[t, b].item(), mu, rel_tol=1e-5) for mu in allowed)


def test_mistake_beta_is_not_redrawn_inside_an_episode(stage: Stage) -> None:
    """Environment j acts with policy j mod N, for good: what replay says is what the network was told."""
    batch = stage.everything()
    assert check_policy(stage, batch) > 0
    assert torch.equal(batch.inputs.mixture, batch.inputs.observation[0, :, 0].long() % 3)
    assert stage.actor.mixture.tolist() == [0, 1, 2, 0]


# ------------------------------------------------------------------------------------------- novelty


def test_mistake_novelty_is_not_paid_one_step_late() -> None:
    """r_i of the observation that a step led to is that step's reward; a twin of the novelty sees the same stream."""
    stage = Stage()
    twin = copy.deepcopy(stage.actor.novelty)
    # The twin has seen the first observations; so has the actor.
    rewards: dict[tuple[float, ...], float] = {}
    for _ in range(50):
        step = stage.actor.step()
        reward = twin(step.observation, step.first)
        for env in range(4):
            rewards[tuple(step.observation[env].tolist())] = 0.0 if step.terminated[env] else reward[env].item()
    batch = stage.everything()
    paid = 0
    for t, b in steps_of(batch):
        name = tuple(batch.inputs.observation[t + 1, b].tolist())
        assert batch.intrinsic[t, b].item() == rewards[name]
        paid += rewards[name] > 0
    assert paid > 50


def test_the_reward_for_the_unseen_arrives_with_the_step_that_led_there() -> None:
    """Ten steps in one place, then one to a far place: the largest r_i belongs to that very step."""

    class Jump(ScriptedEpisodes):
        def _step(self, action: list[int]) -> Any:
            step = super()._step(action)
            step.observation = torch.where(step.observation[:, 2:3] == 10, 5.0, torch.zeros_like(step.observation))
            return step

    stage = Stage(novelty__lifelong=False, replay__trace_length=20, replay__period=20)
    stage.env = Jump([[(12, "terminated")]] * 2)
    stage.actor = make_actor(
        stage.config, stage.env, stage.learner, stage.mixture[:2], torch.zeros(2), torch.Generator(),
        replay := SequenceReplay(
            stage.env.spec, stage.mixture[:2], stage.config.network.lstm_size, stage.config.replay, CPU,
            torch.Generator(),
        ),
    )  # fmt: skip
    stage.actor.reset(0)
    stage.play(12)
    batch = replay.sample(2)
    # The step from 9 to 10 has time index 9. (Early on there are no distances yet to compare with.)
    assert batch.intrinsic[4:12].argmax(0).tolist() == [5, 5]


def test_a_terminal_observation_pays_no_novelty_and_a_cut_one_does(stage: Stage) -> None:
    """No action is taken at a terminal observation: nothing new would be worth dying for."""
    batch = stage.everything()
    cut = []
    for t, b in steps_of(batch):
        if batch.terminated[t, b]:
            assert batch.intrinsic[t, b].item() == 0.0
        env, episode, time, _ = (int(x) for x in batch.inputs.observation[t + 1, b])
        length, end = SCRIPT[env][episode % len(SCRIPT[env])]
        if end == "truncated" and time == length:
            cut.append(batch.intrinsic[t, b].item())
    assert cut
    assert all(reward > 0 for reward in cut)


# ------------------------------------------------------------------------------------------- weights and numbers


def test_the_actor_acts_with_the_weights_it_fetched_last() -> None:
    stage = Stage()
    with torch.no_grad():
        for parameter in stage.learner.network.parameters():
            parameter.add_(0.1)
    assert difference(dict(stage.actor.network.state_dict()), dict(stage.learner.network.state_dict()))
    stage.actor.fetch(stage.learner.network, stage.learner.novelty)
    assert not difference(dict(stage.actor.network.state_dict()), dict(stage.learner.network.state_dict()))


def test_a_random_start_lasts_until_it_is_ended() -> None:
    stage = Stage(epsilon=0.0, actor__random_steps=1).play(30)
    actions = stage.env.spec.num_actions
    batch = stage.everything()
    taken = {int(batch.action[t, b]) for t, b in steps_of(batch)}
    assert taken == set(range(actions))
    assert torch.equal(batch.behaviour[batch.valid], torch.full_like(batch.behaviour[batch.valid], 1 / actions))
    stage.actor.fetch(stage.learner.network, stage.learner.novelty)
    assert stage.play(1).actor.behaviour.tolist() == pytest.approx([1 / actions] * stage.env.num_envs)
    stage.actor.follow_policies()
    assert stage.play(1).actor.behaviour.tolist() == [1.0] * stage.env.num_envs
    other = Stage(epsilon=0.0, actor__random_steps=1)
    other.actor.load_state_dict(stage.actor.state_dict())
    assert other.play(1).actor.behaviour.tolist() == [1.0] * stage.env.num_envs


def test_who_only_plays_does_not_start_at_random() -> None:
    stage = Stage(actor__random_steps=1)
    player = make_actor(
        stage.config,
        ScriptedEpisodes(SCRIPT),
        stage.learner,
        stage.mixture,
        torch.zeros(len(SCRIPT)),
        stage.actor.generator,
    )
    assert player.epsilon.tolist() == [0.0] * len(SCRIPT)


def test_statistics_are_those_of_whole_episodes() -> None:
    stage = Stage().play(30)
    metrics = stage.actor.pop_statistics()
    returns, lengths = [], []
    for episodes in SCRIPT:
        clock, episode = 0, 0
        while clock + episodes[episode % len(episodes)][0] <= 30:
            length = episodes[episode % len(episodes)][0]
            returns.append(sum(reward_at(episode, t) for t in range(1, length + 1)))
            lengths.append(length)
            clock += length + 1
            episode += 1
    assert metrics["env/episodes"] == len(returns)
    assert metrics["env/return"] == pytest.approx(np.mean(returns), rel=1e-5)
    assert metrics["env/episode_length"] == pytest.approx(np.mean(lengths))
    assert metrics["env/progress"] == pytest.approx(np.mean(lengths)), "the measurement at an episode's end"
    assert stage.actor.pop_statistics() == {f"env/episodes{part}": 0.0 for part in ("", "/exploit", "/explore")}


def test_the_two_ends_of_the_family_have_statistics_of_their_own() -> None:
    """Environment j follows policy j mod 3: here 0 and 3 exploit, 2 explores."""
    stage = Stage().play(30)
    metrics = stage.actor.pop_statistics()
    whole = {}
    for name, environments in {"exploit": [0, 3], "explore": [2]}.items():
        lengths = []
        for episodes in (SCRIPT[e] for e in environments):
            clock, episode = 0, 0
            while clock + episodes[episode % len(episodes)][0] <= 30:
                lengths.append(episodes[episode % len(episodes)][0])
                clock += lengths[-1] + 1
                episode += 1
        assert metrics[f"env/episodes/{name}"] == len(lengths)
        assert metrics[f"env/episode_length/{name}"] == pytest.approx(np.mean(lengths))
        whole[name] = metrics[f"actor/q_max/{name}"]
    assert whole["exploit"] != whole["explore"]
    alone = Stage(mixture__num_mixtures=1, mixture__discount_min=0.99).play(30).actor.pop_statistics()
    assert not [name for name in alone if name.endswith(("exploit", "explore"))]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_non_finite_reward_does_not_outlive_its_episode(bad: float) -> None:
    """It makes the recurrent state NaN, since rewards are inputs; the next episode must begin clean."""
    stage = Stage(script=[[(4, "terminated")], [(4, "terminated")]])
    stage.env.bad_reward = {(0, 0, 2): bad}
    clean = Stage(script=[[(4, "terminated")], [(4, "terminated")]])
    assert not torch.equal(stage.play(4).actor.state.hidden, clean.play(4).actor.state.hidden)
    # The next episode has just begun, from an empty state.
    assert torch.equal(stage.play(1).actor.state.hidden, clean.play(1).actor.state.hidden)
    stage.actor.pop_statistics()
    stage.play(15)
    assert torch.isfinite(stage.actor.state.hidden).all()
    assert torch.isfinite(stage.actor.state.cell).all()
    assert torch.isfinite(stage.actor.q).all()
    assert all(math.isfinite(value) for value in stage.actor.pop_statistics().values())


def test_without_a_replay_it_only_plays() -> None:
    config = make_tiny_config()
    env = ScriptedEpisodes(SCRIPT)
    learner = make_learner(config, env.spec, CPU)
    actor = make_actor(config, env, learner, torch.zeros(4, dtype=torch.int64), torch.zeros(4), torch.Generator())
    actor.reset(0)
    for _ in range(5):
        step = actor.step()
    assert step.observation.shape == (4, 4)
    assert actor.replay is None


def test_a_saved_actor_goes_on_exactly() -> None:
    config = make_tiny_config()

    def make() -> Actor:
        env = DiscoMaze(8, 7, 12, 64, CPU)
        learner = make_learner(config, env.spec, CPU)
        mixture = torch.zeros(8, dtype=torch.int64)
        return make_actor(config, env, learner, mixture, torch.full((8,), 0.5), torch.Generator().manual_seed(4))

    one, other = make(), make()
    one.reset(3)
    for _ in range(20):
        one.step()
    other.load_state_dict(clone(one.state_dict()))
    for _ in range(20):
        left, right = one.step(), other.step()
        assert torch.equal(left.observation, right.observation)
    assert not difference(one.state_dict(), other.state_dict())
    assert one.pop_statistics() == other.pop_statistics()
