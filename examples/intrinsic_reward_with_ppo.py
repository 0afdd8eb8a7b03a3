"""A small PPO that explores with the never-give-up reward, on any Gymnasium environment with discrete actions.

    python examples/intrinsic_reward_with_ppo.py
    python examples/intrinsic_reward_with_ppo.py --env ngu/DiscoMaze-v0 --env-options size 9 step_cap 100

It trains twice from the same seed, first with beta = 0 (plain PPO), then with r = r_e + beta r_i, and prints how much
of the world each run saw. In MountainCar every step costs 1 until a goal that random actions practically never reach,
so plain PPO has nothing to learn from.

`IntrinsicReward` takes the four places marked (1) to (4). The rest is PPO (Schulman et al., 2017).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from torch import Tensor, nn

import ngu
import ngu.envs  # makes ngu/DiscoMaze-v0 known to Gymnasium


@dataclass(frozen=True)
class Settings:
    """Trains PPO without and with the never-give-up reward."""

    env: str = "MountainCar-v0"
    """An environment of Gymnasium with discrete actions, and vectors or images as observations."""
    env_options: dict[str, int] = field(default_factory=dict)
    """Keyword arguments of the environment, such as `size 9 step_cap 100`."""
    steps: int = 150_000
    """Environment steps of each of the two runs."""
    beta: float = 0.5
    """Weight of the intrinsic reward."""
    num_envs: int = 16
    """Environments that step together, E."""
    rollout: int = 128
    """Steps of each environment between updates, T."""
    epochs: int = 4
    """Passes over a rollout."""
    minibatch: int = 512
    """Transitions in a gradient step."""
    learning_rate: float = 1e-3
    """Adam's rate."""
    discount: float = 0.99
    """gamma"""
    gae_lambda: float = 0.95
    """lambda of the generalised advantage estimator."""
    clip: float = 0.2
    """The probability ratio is clipped to 1 +- this."""
    entropy_weight: float = 0.01
    """Weight of the policy's entropy."""
    seed: int = 0
    """Seed of environments and networks."""


class World:
    """Gymnasium's vectorised environments with tensors: images channels first, vectors scaled to [-1, 1] where bounded.

    After an episode's last observation the next step ignores its action and brings the first observation of a new
    episode (Gymnasium's default, `AutoresetMode.NEXT_STEP`). Nothing led there, so that step is not trained on.
    """

    def __init__(self, settings: Settings) -> None:
        self.envs = gymnasium.make_vec(
            settings.env, num_envs=settings.num_envs, vectorization_mode="sync", **settings.env_options
        )
        space, actions = self.envs.single_observation_space, self.envs.single_action_space
        if not (isinstance(space, gymnasium.spaces.Box) and isinstance(actions, gymnasium.spaces.Discrete)):
            raise SystemExit(
                f"{settings.env} has {space} and {actions}; this example takes a Box and Discrete actions."
            )
        self.image = len(space.shape) == 3
        bounded = np.isfinite(space.low) & np.isfinite(space.high) & (space.low > -1e6) & (space.high < 1e6)
        self.low, self.high = np.where(bounded, space.low, -1.0), np.where(bounded, space.high, 1.0)
        self.spec = ngu.EnvironmentSpec(
            observation_shape=(space.shape[2], *space.shape[:2]) if self.image else space.shape,
            observation_dtype=torch.uint8 if self.image else torch.float32,
            num_actions=int(actions.n),
            max_episode_steps=gymnasium.spec(settings.env).max_episode_steps,
        )

    def tensor(self, observation: NDArray[Any]) -> Tensor:
        """[E, *observation_shape]"""
        if self.image:
            return torch.from_numpy(observation).permute(0, 3, 1, 2).contiguous()
        scaled = 2 * (observation - self.low) / (self.high - self.low) - 1
        return torch.from_numpy(scaled.astype(np.float32))


class ActorCritic(nn.Module):
    """Two networks that share nothing: the policy's logits, and the value."""

    def __init__(self, spec: ngu.EnvironmentSpec) -> None:
        super().__init__()
        self.policy, self.value = _network(spec, spec.num_actions), _network(spec, 1)

    def forward(self, observation: Tensor) -> tuple[torch.distributions.Categorical, Tensor]:
        """[B, *observation_shape] to a distribution over actions, and values [B]."""
        features = observation.float() / 255 if observation.dtype == torch.uint8 else observation
        return torch.distributions.Categorical(logits=self.policy(features)), self.value(features).squeeze(-1)


def _network(spec: ngu.EnvironmentSpec, outputs: int) -> nn.Sequential:
    if len(spec.observation_shape) == 1:
        layers = [nn.Linear(spec.observation_shape[0], 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
        return nn.Sequential(*layers, nn.Linear(64, outputs))
    channels, height, width = spec.observation_shape
    layers = [nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32 * (height - 4) * (width - 4), 128), nn.ReLU(), nn.Linear(128, outputs))


@dataclass
class Rollout:
    """T steps of E environments, [T, E, ...] each; or the same flattened to [T * E, ...]."""

    observation: Tensor
    action: Tensor
    log_probability: Tensor
    value: Tensor
    next_observation: Tensor
    reward: Tensor
    """r_e + beta r_i"""
    terminated: Tensor
    ended: Tensor
    real: Tensor
    """False where the step was an automatic reset."""

    def flat(self) -> Rollout:
        return Rollout(*(getattr(self, entry.name).flatten(0, 1) for entry in dataclasses.fields(self)))


def advantages(rollout: Rollout, last_value: Tensor, discount: float, decay: float) -> Tensor:
    """The generalised advantage estimator, [T, E]. A terminal observation is worth 0; one at a time limit is not."""
    next_value = torch.cat([rollout.value[1:], last_value.unsqueeze(0)])
    delta = rollout.reward + discount * next_value * ~rollout.terminated - rollout.value
    result = torch.zeros_like(delta)
    running = torch.zeros_like(last_value)
    for t in reversed(range(len(delta))):
        running = delta[t] + discount * decay * ~rollout.ended[t] * running
        result[t] = running
    return result


def ppo_loss(model: ActorCritic, batch: Rollout, advantage: Tensor, wanted: Tensor, settings: Settings) -> Tensor:
    """PPO's clipped objective, the error of the values, and the entropy; everything [B]."""
    policy, value = model(batch.observation)
    ratio = (policy.log_prob(batch.action) - batch.log_probability).exp()
    gain = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    objective = torch.minimum(ratio * gain, clipped * gain).mean()
    return 0.5 * (value - wanted).square().mean() - objective - settings.entropy_weight * policy.entropy().mean()


def train(settings: Settings) -> Outcome:
    """Trains one policy."""
    torch.manual_seed(settings.seed)
    world = World(settings)
    model = ActorCritic(world.spec)
    optimiser = torch.optim.Adam(model.parameters(), settings.learning_rate, eps=1e-5)
    record = Record(world)

    # (1) Make one for your environments. NoveltyConfig has all its settings.
    intrinsic = ngu.IntrinsicReward(world.spec, settings.num_envs, ngu.NoveltyConfig(memory_capacity=1000))

    observation = world.tensor(world.envs.reset(seed=settings.seed)[0])
    ended = torch.zeros(settings.num_envs, dtype=torch.bool)
    # (2) Show it the first observations. They pay nothing.
    intrinsic(observation, first=torch.ones_like(ended))

    for _ in range(max(1, settings.steps // (settings.num_envs * settings.rollout))):
        steps = []
        for _ in range(settings.rollout):
            with torch.no_grad():
                policy, value = model(observation)
            action = policy.sample()
            raw, extrinsic, terminal, cut, info = world.envs.step(action.numpy())
            next_observation, first = world.tensor(raw), ended
            terminated, ended = torch.from_numpy(terminal), torch.from_numpy(terminal | cut)

            # (3) Show it every new observation, which of them begin an episode, and which are terminal: nobody acts on
            # those, so they pay nothing, else running into a wall might. It returns r_i, [E].
            r_i = intrinsic(next_observation, first, terminated)
            reward = torch.from_numpy(extrinsic).float() + settings.beta * r_i

            log_probability = policy.log_prob(action)
            steps.append(
                (observation, action, log_probability, value, next_observation, reward, terminated, ended, ~first)
            )
            record.add(raw, extrinsic, terminal, ended.numpy(), first.numpy(), info)
            observation = next_observation

        rollout = Rollout(*(torch.stack(column) for column in zip(*steps, strict=True)))
        with torch.no_grad():
            last_value = model(observation)[1]
        advantage = advantages(rollout, last_value, settings.discount, settings.gae_lambda)
        wanted = (advantage + rollout.value).flatten()
        advantage, flat = advantage.flatten(), rollout.flat()
        real = flat.real.nonzero().squeeze(1)
        for epoch in range(settings.epochs):
            for index in real[torch.randperm(len(real))].split(settings.minibatch):
                batch = Rollout(*(getattr(flat, entry.name)[index] for entry in dataclasses.fields(flat)))
                loss = ppo_loss(model, batch, advantage[index], wanted[index], settings)
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.policy.parameters(), 0.5)
                nn.utils.clip_grad_norm_(model.value.parameters(), 5.0)
                optimiser.step()
                if epoch == 0:
                    # (4) Train it on transitions, here on each of them once.
                    intrinsic.train(batch.observation, batch.action, batch.next_observation)
    world.envs.close()
    return record.outcome()


@dataclass
class Outcome:
    """What one run saw."""

    coverage: float
    """For mazes the mean share of the open cells that an episode visited, over the last 100 episodes; for vectors the
    share of the cells of a grid over the observation space that the run entered."""
    terminated: int
    """Episodes that ended by themselves: in MountainCar at the goal, in the maze in a wall."""
    episodes: int
    mean_return: float
    """Extrinsic return, mean over the last 100 episodes."""


class Record:
    """Watches a run. The agent knows nothing of what is counted here."""

    bins = 20
    """Cells of the grid along each dimension of the observation."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cells: set[tuple[int, ...]] = set()
        self.coverages: list[float] = []
        self.returns: list[float] = []
        self.terminated = 0
        self.running = np.zeros(world.envs.num_envs)

    def add(
        self,
        raw: NDArray[Any],
        extrinsic: NDArray[Any],
        terminal: NDArray[Any],
        ended: NDArray[Any],
        first: NDArray[Any],
        info: dict[str, Any],
    ) -> None:
        """Takes in one step of all environments."""
        self.running = np.where(first, 0.0, self.running + extrinsic)
        self.returns += self.running[ended].tolist()
        self.terminated += int(terminal.sum())
        if "coverage" in info:
            self.coverages += info["coverage"][ended].tolist()
        elif not self.world.image:
            share = (raw - self.world.low) / (self.world.high - self.world.low)
            self.cells.update(map(tuple, np.clip((share * self.bins).astype(int), 0, self.bins - 1)))

    def outcome(self) -> Outcome:
        whole_grid = self.bins ** len(self.world.low.flatten())
        coverage = float(np.mean(self.coverages[-100:])) if self.coverages else len(self.cells) / whole_grid
        mean_return = float(np.mean(self.returns[-100:])) if self.returns else 0.0
        return Outcome(coverage, self.terminated, len(self.returns), mean_return)


def main(settings: Settings) -> dict[str, Outcome]:
    """Trains without and with the intrinsic reward and prints what both saw."""
    print(f"{settings.env}, {settings.steps:,} steps, seed {settings.seed}", flush=True)
    outcomes = {}
    for beta in (0.0, settings.beta):
        outcome = train(dataclasses.replace(settings, beta=beta))
        outcomes["without" if beta == 0 else "with"] = outcome
        print(
            f"beta {beta:g}: coverage {outcome.coverage:.1%}, {outcome.terminated} of {outcome.episodes} episodes "
            f"terminated, mean return {outcome.mean_return:.1f}",
            flush=True,
        )
    return outcomes


if __name__ == "__main__":
    main(tyro.cli(Settings))
