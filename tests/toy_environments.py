"""Small environments with known answers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ngu.envs.protocol import EnvironmentSpec, Step


class ScriptedEpisodes:
    """Episodes of given lengths and ends, whose observations say exactly where they come from.

    Environment e plays `script[e]` over and over: a list of (length, end), end being "terminated" or "truncated". The
    observation is [environment, episode, time, action that led here (-1 at the start)]; the reward of the step to time
    t of episode n is 1 + n + t / 100. The action sent after an episode's end leads nowhere, as the protocol says.
    """

    graph_safe = False
    restores = True

    def __init__(self, script: list[list[tuple[int, str]]], num_actions: int = 3) -> None:
        self.script = script
        self.num_envs = len(script)
        self.device = torch.device("cpu")
        longest = max(length for episodes in script for length, _ in episodes)
        self.spec = EnvironmentSpec((4,), torch.float32, num_actions, longest, ("progress",))
        self.episode = [0] * self.num_envs
        self.time = [0] * self.num_envs
        self.bad_reward: dict[tuple[int, int, int], float] = {}
        self.received: list[Tensor] = []

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        return ()

    def reset(self, seed: int) -> Step:  # noqa: ARG002
        self.episode = [0] * self.num_envs
        self.time = [0] * self.num_envs
        self.step = self._step([-1] * self.num_envs)
        return self.step

    def send(self, action: Tensor) -> None:
        self.received.append(action.clone())
        taken = action.tolist()
        for env, ended in enumerate(self.step.ended.tolist()):
            if ended:
                self.episode[env] += 1
                self.time[env] = 0
                taken[env] = -1
            else:
                self.time[env] += 1
        self.step = self._step(taken)

    def recv(self) -> Step:
        return self.step

    def maintain(self) -> None:
        pass

    def _step(self, action: list[int]) -> Step:
        places = list(zip(range(self.num_envs), self.episode, self.time, strict=True))
        plan = [self.script[e][n % len(self.script[e])] for e, n, _ in places]
        last = [time == length for (_, _, time), (length, _) in zip(places, plan, strict=True)]
        return Step(
            observation=torch.tensor([[e, n, t, a] for (e, n, t), a in zip(places, action, strict=True)]).float(),
            reward=torch.tensor([self.bad_reward.get(p, reward_at(p[1], p[2])) for p in places]),
            terminated=torch.tensor([end and how == "terminated" for end, (_, how) in zip(last, plan, strict=True)]),
            truncated=torch.tensor([end and how == "truncated" for end, (_, how) in zip(last, plan, strict=True)]),
            first=torch.tensor([time == 0 for time in self.time]),
            info={"progress": torch.tensor([float(t) for t in self.time])},
        )

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


def reward_at(episode: int, time: int) -> float:
    return 0.0 if time == 0 else 1.0 + episode + time / 100


class Chain:
    """States 0 to n-1 in a row, actions left and right; the step to the right end pays 1.

    With `step_cap` 0 that end is terminal. Otherwise there is no terminal state: every step at the right end (right
    against the wall) pays 1 for ever, and episodes are cut after `step_cap` steps. `optimal_values` knows both.
    """

    graph_safe = False
    restores = True

    def __init__(self, num_envs: int, states: int, step_cap: int = 0, seed: int = 0) -> None:
        self.num_envs, self.states, self.step_cap = num_envs, states, step_cap
        self.device = torch.device("cpu")
        self.spec = EnvironmentSpec((states,), torch.float32, 2, step_cap or None)
        self.position = torch.zeros(num_envs, dtype=torch.int64)
        self.time = torch.zeros(num_envs, dtype=torch.int64)
        self.ended = torch.ones(num_envs, dtype=torch.bool)
        self.random = torch.Generator().manual_seed(seed)

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        return (self.random,)

    def reset(self, seed: int) -> Step:
        self.random.manual_seed(seed)
        self.ended.fill_(True)
        self.send(torch.zeros_like(self.position))
        return self.recv()

    def send(self, action: Tensor) -> None:
        first = self.ended
        moved = (self.position + 2 * action - 1).clamp(0, self.states - 1)
        started = torch.randint(0, self.states - 1, (self.num_envs,), generator=self.random)
        self.position = torch.where(first, started, moved)
        self.time = torch.where(first, 0, self.time + 1)
        at_end = ~first & (self.position == self.states - 1)
        terminated = at_end if not self.step_cap else torch.zeros_like(at_end)
        truncated = ~first & (self.time >= self.step_cap) if self.step_cap else torch.zeros_like(at_end)
        self.ended = terminated | truncated
        observation = torch.nn.functional.one_hot(self.position, self.states).float()
        self.step = Step(observation, at_end.float(), terminated, truncated, first)

    def recv(self) -> Step:
        return self.step

    def maintain(self) -> None:
        pass

    def optimal_values(self, discount: float) -> Tensor:
        """Q* by value iteration, [states, 2]; the row of a terminal right end is 0."""
        q = torch.zeros(self.states, 2, dtype=torch.float64)
        for _ in range(400):
            best = q.max(1).values
            for state in range(self.states):
                for action in range(2):
                    after = min(max(state + 2 * action - 1, 0), self.states - 1)
                    arrived = after == self.states - 1
                    q[state, action] = float(arrived) + discount * best[after]
            if not self.step_cap:
                q[self.states - 1] = 0.0
        return q

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "time": self.time, "ended": self.ended, "random": self.random.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position, self.time, self.ended = state["position"], state["time"], state["ended"]
        self.random.set_state(state["random"])
