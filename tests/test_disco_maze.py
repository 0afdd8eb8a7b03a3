"""The batched maze against the plain one, the maze search against its exact distribution, and what a graph needs."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ngu.envs import DiscoMaze, DiscoMazeEnv, ScriptedPolicy, Step, register_gymnasium_environments
from ngu.envs.disco_maze import PALETTE, PATH, PLAYER, WALL_COLOURS
from ngu.envs.disco_maze_gym import draw_maze
from ngu.envs.maze_generator import DRAWS, STEPS_WITHOUT_MAINTENANCE, MazeGenerator, MazePool, SearchTables
from ngu.errors import UserError

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def make_mazes(batch: int, size: int, seed: int = 0) -> NDArray[np.bool_]:
    walls = MazeGenerator(batch, size, "cpu").generate(torch.Generator().manual_seed(seed))
    return walls.view(batch, size, size).numpy()


def is_perfect(walls: NDArray[np.bool_]) -> bool:
    """All rooms open, a closed border, and open cells that form one tree."""
    if not (walls[[0, -1]].all() and walls[:, [0, -1]].all()) or walls[1::2, 1::2].any():
        return False
    cells = {(int(row), int(column)) for row, column in np.argwhere(~walls)}
    pairs = sum((row + 1, column) in cells for row, column in cells)
    pairs += sum((row, column + 1) in cells for row, column in cells)
    reached, front = {(1, 1)}, [(1, 1)]
    while front:
        row, column = front.pop()
        for cell in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if cell in cells and cell not in reached:
                reached.add(cell)
                front.append(cell)
    rooms = (len(walls) // 2) ** 2
    return len(cells) == 2 * rooms - 1 and reached == cells and pairs == len(cells) - 1


def search_probabilities(size: int) -> dict[bytes, float]:
    """The exact chance of each maze under depth-first search from a random room, by following every choice."""
    chances: Counter[bytes] = Counter()

    def follow(stack: list[tuple[int, int]], walls: NDArray[np.bool_], chance: float) -> None:
        while stack:
            row, column = stack[-1]
            ways = [
                (down, right)
                for down, right in ((0, -1), (0, 1), (-1, 0), (1, 0))
                if 0 < row + 2 * down < size
                and 0 < column + 2 * right < size
                and walls[row + 2 * down, column + 2 * right]
            ]
            if ways:
                for down, right in ways:
                    carved = walls.copy()
                    carved[row + down, column + right] = carved[row + 2 * down, column + 2 * right] = False
                    follow([*stack, (row + 2 * down, column + 2 * right)], carved, chance / len(ways))
                return
            stack = stack[:-1]
        chances[walls.tobytes()] += chance

    rooms = list(itertools.product(range(1, size, 2), repeat=2))
    for root in rooms:
        walls = np.ones((size, size), dtype=np.bool_)
        walls[root] = False
        follow([root], walls, 1 / len(rooms))
    return dict(chances)


def chi_square_is_plausible(counts: NDArray[np.float64], expected: NDArray[np.float64]) -> bool:
    """Pearson's statistic within five deviations of its mean."""
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = len(counts) - 1
    return abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)


# The mazes


@pytest.mark.parametrize("size", [5, 7, 9, 21])
def test_every_maze_is_a_spanning_tree(size: int) -> None:
    mazes = make_mazes(64, size)
    assert all(is_perfect(maze) for maze in mazes)
    assert (~mazes).sum(axis=(1, 2)).tolist() == [2 * (size // 2) ** 2 - 1] * 64


def test_the_tree_check_sees_cycles_and_islands() -> None:
    maze = make_mazes(1, 9)[0]
    inner_walls = [cell for cell in np.argwhere(maze) if min(cell) > 0 and max(cell) < 8 and sum(cell) % 2]
    row, column = inner_walls[0]
    opened = maze.copy()
    opened[row, column] = False
    assert not is_perfect(opened)
    row, column = next(cell for cell in np.argwhere(~maze) if sum(cell) % 2)
    closed = maze.copy()
    closed[row, column] = True
    assert not is_perfect(closed)


def test_a_draw_picks_each_way_equally_often() -> None:
    tables = SearchTables.make(10, torch.device("cpu"))
    offsets = tables.looks[:4].tolist()
    for pattern in range(16):
        ways = [offset for bit, offset in enumerate(offsets) if pattern >> bit & 1]
        picked = Counter(tables.moves[DRAWS * pattern : DRAWS * (pattern + 1)].tolist())
        assert picked == ({way: DRAWS // len(ways) for way in ways} or {0: DRAWS})


def test_mazes_follow_the_exact_distribution_of_the_search() -> None:
    chances = search_probabilities(7)
    assert sum(chances.values()) == pytest.approx(1)
    expected = np.array(list(chances.values()))
    batch = make_mazes(40_000, 7)
    seen = Counter(maze.tobytes() for maze in batch)
    assert seen.keys() <= chances.keys()
    counts = np.array([seen[maze] for maze in chances], dtype=np.float64)
    assert chi_square_is_plausible(counts, expected * len(batch))
    # The same counts do not pass for equally likely mazes, so the test can tell distributions apart.
    assert not chi_square_is_plausible(counts, np.full(len(counts), len(batch) / len(counts)))

    random = np.random.default_rng(0)
    seen = Counter(draw_maze(7, random).tobytes() for _ in range(5_000))
    counts = np.array([seen[maze] for maze in chances], dtype=np.float64)
    assert chi_square_is_plausible(counts, expected * 5_000)


def test_mazes_are_drawn_from_the_generator_alone() -> None:
    assert np.array_equal(make_mazes(8, 9, seed=1), make_mazes(8, 9, seed=1))
    assert not np.array_equal(make_mazes(8, 9, seed=1), make_mazes(8, 9, seed=2))


@pytest.mark.parametrize("size", [-1, 3, 8])
def test_impossible_sizes_are_refused_in_a_sentence(size: int) -> None:
    with pytest.raises(UserError, match="odd size of 5 or more"):
        DiscoMaze(2, size, 10, 16, "cpu")
    with pytest.raises(UserError, match="odd size of 5 or more"):
        DiscoMazeEnv(size)


def test_impossible_settings_are_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match="number of environments is 0"):
        DiscoMaze(0, 9, 10, 16, "cpu")
    with pytest.raises(UserError, match="step cap is -1"):
        DiscoMaze(2, 9, -1, 16, "cpu")
    with pytest.raises(UserError, match="step cap is -1"):
        DiscoMazeEnv(9, -1)
    with pytest.raises(UserError, match="render mode 'human'"):
        DiscoMazeEnv(9, render_mode="human")


# The batch against the plain game


class FedMaze(DiscoMazeEnv):
    """The plain game with given wall colours."""

    colours: NDArray[np.int64]

    def _draw_colours(self) -> NDArray[np.int64]:
        return self.colours


@pytest.mark.parametrize(
    ("size", "step_cap", "num_steps"), [(5, 7, 400), (5, 1, 60), (7, 0, 300), (9, 30, 400), (21, 40, 200)]
)
def test_the_batch_equals_the_plain_game(size: int, step_cap: int, num_steps: int) -> None:
    num_envs = 8
    env = DiscoMaze(num_envs, size, step_cap, 16, "cpu")
    assert env.spec.max_episode_steps == (step_cap or None)
    twins = [FedMaze(size, step_cap) for _ in range(num_envs)]
    step = env.reset(seed=size)
    policy = ScriptedPolicy("wall-avoiding", env, seed=0)
    random = torch.Generator().manual_seed(0)
    ended = [True] * num_envs
    counts: Counter[str] = Counter()
    action = torch.zeros(num_envs, dtype=torch.int64)
    for _ in range(num_steps):
        colours = env.colours.view(num_envs, size, size).numpy()
        for index, twin in enumerate(twins):
            twin.colours = colours[index]
            if ended[index]:
                assert step.first[index]
                place = divmod(int(env.position[index]), size)
                assert all(coordinate % 2 == 1 for coordinate in place), "episodes begin in rooms"
                observation, info = twin.reset(options={"walls": env.walls[index].numpy(), "position": place})
                reward, terminated, truncated = 0.0, False, False
                counts["resets"] += 1
            else:
                assert not step.first[index]
                observation, reward, terminated, truncated, info = twin.step(int(action[index]))
            assert np.array_equal(step.observation[index].permute(1, 2, 0).numpy(), observation)
            assert (step.reward[index], step.terminated[index], step.truncated[index]) == (
                reward,
                terminated,
                truncated,
            )
            assert step.info["coverage"][index] == np.float32(info["coverage"])
            assert divmod(int(env.position[index]), size) == twin.position
            assert np.array_equal(env.walls[index].numpy(), twin.walls)
            visited = {divmod(int(cell), size) for cell in env.visited[index].numpy().nonzero()[0]}
            assert visited == twin.visited
            ended[index] = terminated or truncated
            counts["terminated"] += terminated
            counts["truncated"] += truncated
        # Mostly along paths, so that episodes last; sometimes anywhere.
        anywhere = torch.rand(num_envs, generator=random) < 0.1
        action = torch.where(anywhere, torch.randint(4, (num_envs,), generator=random), policy.act(step))
        env.send(action)
        step = env.recv()
        env.maintain()
    assert counts["resets"] > num_envs
    assert counts["terminated"] > 0
    assert counts["truncated"] > 0 or step_cap == 0


@settings(max_examples=25, deadline=None)
@given(
    size=st.sampled_from([5, 7, 11]),
    num_envs=st.integers(1, 5),
    step_cap=st.integers(0, 6),
    seed=st.integers(0, 2**32),
    actions=st.lists(st.integers(0, 3), min_size=1, max_size=12),
)
def test_pictures_show_the_state(size: int, num_envs: int, step_cap: int, seed: int, actions: list[int]) -> None:
    env = DiscoMaze(num_envs, size, step_cap, 1, "cpu")
    env.reset(seed)
    for action in actions:
        env.send(torch.full((num_envs,), action))
        step = env.recv()
        env.maintain()
        assert step.observation.shape == (num_envs, 3, size, size)
        pixels = step.observation.flatten(2).permute(0, 2, 1)
        shades = torch.stack([(pixels == torch.tensor(colour)).all(2) for colour in PALETTE])
        assert (shades.sum(0) == 1).all()
        player = shades[PLAYER].int()
        assert (player.sum(1) == 1).all()
        assert torch.equal(player.argmax(1), env.position)
        walls = env.walls.flatten(1)
        assert torch.equal(shades[:WALL_COLOURS].any(0), walls & ~shades[PLAYER])
        assert torch.equal(shades[PATH], ~walls & ~shades[PLAYER])
        in_wall = walls.gather(1, env.position[:, None]).squeeze(1)
        assert torch.equal(step.terminated, in_wall)
        assert not (step.terminated & step.truncated).any()
        assert not (step.first & step.ended).any()
        assert (step.reward == 0).all()
        assert not (env.visited & walls).any()
        assert torch.equal(step.info["coverage"], env.visited.sum(1) / (~walls).sum(1))


def test_the_palette_keeps_green_and_black_for_player_and_paths() -> None:
    assert PALETTE[PLAYER] == (0, 255, 0)
    assert PALETTE[PATH] == (0, 0, 0)
    for one, other in itertools.combinations(PALETTE, 2):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) == 255


def test_colours_and_starts_are_uniform_and_colours_change_each_step() -> None:
    env = DiscoMaze(64, 9, 0, 4096, "cpu")
    before = env.reset(seed=0).observation.clone()
    starts = torch.bincount(env._pool.start, minlength=81).view(9, 9)[1::2, 1::2].flatten()
    assert starts.sum() == env._pool.capacity
    assert chi_square_is_plausible(starts.double().numpy(), np.full(16, env._pool.capacity / 16))

    counts = torch.zeros(WALL_COLOURS)
    policy = ScriptedPolicy("wall-follower", env, seed=0)
    for _ in range(20):
        env.send(policy.act(env.recv()))
        counts += torch.bincount(env.colours.flatten(), minlength=WALL_COLOURS)
        env.maintain()
    assert chi_square_is_plausible(counts.double().numpy(), np.full(WALL_COLOURS, float(counts.sum()) / WALL_COLOURS))
    changed = (env.recv().observation != before).any(1)[env.walls]
    assert changed.float().mean() == pytest.approx(0.8, abs=0.05)


# Seeds, mazes used once, saved state


def play(env: DiscoMaze, seed: int, num_steps: int, maintain_every: int = 1) -> list[Tensor]:
    """Random actions; what every step brought, in one list."""
    random = torch.Generator().manual_seed(seed)
    trace = []
    for count in range(1, num_steps + 1):
        env.send(torch.randint(4, (env.num_envs,), generator=random))
        step = env.recv()
        trace += [step.observation.clone(), step.ended.clone(), step.first.clone(), step.info["coverage"].clone()]
        if count % maintain_every == 0:
            env.maintain()
    return trace


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def test_a_seed_fixes_the_trajectories_whenever_maintenance_runs() -> None:
    env, other = DiscoMaze(16, 9, 4, 16, "cpu"), DiscoMaze(16, 9, 4, 16, "cpu")
    env.reset(seed=3)
    trace = play(env, 0, 300)
    other.reset(seed=4)
    assert not same(trace, play(other, 0, 300))
    other.reset(seed=3)
    assert same(trace, play(other, 0, 300, maintain_every=STEPS_WITHOUT_MAINTENANCE))


@pytest.mark.parametrize(("num_envs", "pool"), [(33, 1), (4, 100)])
def test_each_maze_serves_one_episode_in_the_order_of_its_making(num_envs: int, pool: int) -> None:
    size = 9
    env = DiscoMaze(num_envs, size, 1, pool, "cpu")  # a cap of 1: every second step is a reset of all
    step = env.reset(seed=5)
    used = []
    for _ in range(2 * 5 * env._pool.capacity // num_envs):
        used.append(env.walls[step.first].clone())
        env.send(torch.zeros(num_envs, dtype=torch.int64))
        step = env.recv()
        env.maintain()
    played = torch.cat(used)
    assert len(played) > 4 * env._pool.capacity

    stream = MazePool(num_envs, size, pool, torch.device("cpu"))
    maze_seed, _ = np.random.SeedSequence(5).generate_state(2, np.uint64)
    stream.reset(int(maze_seed))
    made = [stream.walls.clone()]
    while sum(map(len, made)) < len(played):
        stream.taken += stream.capacity
        stream.maintain()
        made.append(stream.walls.clone())
    assert torch.equal(played, torch.cat(made)[: len(played)].view_as(played))


def test_forgotten_maintenance_is_loud() -> None:
    env = DiscoMaze(4, 5, 1, 16, "cpu")
    env.reset(seed=0)
    action = torch.zeros(4, dtype=torch.int64)
    for _ in range(STEPS_WITHOUT_MAINTENANCE):
        env.send(action)
    assert int(env._pool.taken) <= env._pool.capacity
    with pytest.raises(RuntimeError, match="call maintain"):
        env.send(action)
    env._pool.taken += env._pool.capacity
    with pytest.raises(RuntimeError, match="call maintain"):
        env.maintain()


def test_a_restored_batch_goes_on_byte_for_byte() -> None:
    env = DiscoMaze(16, 7, 5, 16, "cpu")
    env.reset(seed=1)
    play(env, 0, 70)
    state = env.state_dict()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    trace = play(env, 1, 200)
    assert all(torch.equal(state[name], kept[name]) for name in kept), "saved state must not change afterwards"
    other = DiscoMaze(16, 7, 5, 16, "cpu")
    other.load_state_dict(state)
    assert torch.equal(other.recv().observation, state["observation"].view_as(other.recv().observation))
    assert same(trace, play(other, 1, 200))
    assert all(torch.equal(tensor, env.state_dict()[name]) for name, tensor in other.state_dict().items())


def test_state_of_another_shape_is_refused_and_changes_nothing() -> None:
    env = DiscoMaze(4, 7, 5, 16, "cpu")
    env.reset(seed=1)
    before = env.state_dict()
    other = DiscoMaze(5, 7, 5, 16, "cpu")
    other.reset(seed=1)
    with pytest.raises(UserError, match=r"env\.num_envs"):
        env.load_state_dict(other.state_dict())
    with pytest.raises(UserError, match="'pool_start'"):
        env.load_state_dict({name: value for name, value in before.items() if name != "pool_start"})
    assert all(torch.equal(value, env.state_dict()[name]) for name, value in before.items())


# What a CUDA graph needs


class NothingForTheHost(TorchDispatchMode):
    """Fails on operations that read a tensor on the host, depend on data for their shape, or make constants."""

    forbidden = ("_local_scalar_dense", "nonzero", "masked_select", "scalar_tensor", "lift_fresh", "unique", "equal")

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in self.forbidden, f"{name} cannot be captured"
        if name in ("index", "index_put", "index_put_"):
            assert all(index is None or index.dtype == torch.int64 for index in args[1]), "a mask as an index"
        self.calls[name] += 1
        return func(*args, **(kwargs or {}))


def test_a_step_asks_nothing_of_the_host_and_moves_no_tensor() -> None:
    env = DiscoMaze(8, 9, 3, 16, "cpu")
    step = env.reset(seed=0)
    tensors = [step.observation, step.reward, step.terminated, step.truncated, step.first, step.info["coverage"]]
    tensors += [env.walls, env.position, env.visited]
    places = [tensor.data_ptr() for tensor in tensors]
    action = torch.zeros(8, dtype=torch.int64)
    for _ in range(10):
        with NothingForTheHost() as mode:
            env.send(action)
            step = env.recv()
        env.maintain()
    tensors = [step.observation, step.reward, step.terminated, step.truncated, step.first, step.info["coverage"]]
    tensors += [env.walls, env.position, env.visited]
    assert places == [tensor.data_ptr() for tensor in tensors]
    assert mode.calls["random_"] == 1


def test_a_step_of_the_maze_search_is_at_most_a_dozen_kernels() -> None:
    views = {"slice", "unsqueeze", "unbind", "view", "expand", "select", "detach", "alias"}
    maker = MazeGenerator(16, 9, "cpu")
    with NothingForTheHost() as mode:
        maker.generate(torch.Generator().manual_seed(0))
    kernels = sum(count for name, count in mode.calls.items() if name not in views)
    assert kernels / maker._num_steps < 13


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_compiled_kernels_give_the_same_trajectories() -> None:
    eager, compiled = (DiscoMaze(16, 5, 4, 16, "cpu", compile_kernels=compile_) for compile_ in (False, True))
    assert torch.equal(eager.reset(seed=2).observation, compiled.reset(seed=2).observation)
    assert same(play(eager, 0, 100), play(compiled, 0, 100))


@needs_cuda
@pytest.mark.parametrize("compile_kernels", [False, True])
def test_a_captured_step_equals_eager_steps(compile_kernels: bool) -> None:
    """Also proves the reserve of mazes: all environments reset at every second step."""
    num_envs, num_steps = 64, 400
    env, twin = (DiscoMaze(num_envs, 9, 1, 64, "cuda", compile_kernels) for _ in range(2))
    action = torch.zeros(num_envs, dtype=torch.int64, device="cuda")
    env.reset(seed=0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            env.send(action)
    torch.cuda.current_stream().wait_stream(stream)
    env.maintain()
    graph = torch.cuda.CUDAGraph()
    for generator in env.generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        env.send(action)
        step = env.recv()
    env.reset(seed=1)
    twin.reset(seed=1)
    random = torch.Generator("cuda").manual_seed(0)
    for _ in range(num_steps):
        action.random_(0, 4, generator=random)
        graph.replay()
        env.maintain()
        twin.send(action)
        twin_step: Step = twin.recv()
        twin.maintain()
        assert torch.equal(step.observation, twin_step.observation)
        assert torch.equal(step.ended, twin_step.ended)
        assert torch.equal(env.walls, twin.walls)
    assert int(env._pool.taken) > env._pool.capacity
    assert all(is_perfect(maze) for maze in env.walls.cpu().numpy())


# The plain game as a Gymnasium environment


def test_gymnasium_accepts_the_environment() -> None:
    register_gymnasium_environments()  # warns, and so fails, if it registered a second time
    env = gymnasium.make("ngu.envs:ngu/DiscoMaze-v0", size=9, step_cap=20)
    check_env(env.unwrapped)
    assert env.observation_space.shape == (9, 9, 3)
    assert env.observation_space.dtype == np.uint8


def test_gymnasium_episodes_end_and_say_so() -> None:
    env = DiscoMazeEnv(size=5, step_cap=2)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    corridor = np.ones((5, 5), dtype=np.bool_)
    corridor[1, 1:4] = False
    _, info = env.reset(seed=0, options={"walls": corridor, "position": (1, 1)})
    assert info["coverage"] == pytest.approx(1 / 3)
    assert env.step(1)[2:] == (False, False, {"coverage": pytest.approx(2 / 3)})
    assert env.step(1)[2:] == (False, True, {"coverage": 1.0})
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset(options={"walls": corridor, "position": (1, 1)})
    observation, reward, *ends, info = env.step(2)
    assert (reward, ends) == (0.0, [True, False])
    assert info["coverage"] == pytest.approx(1 / 3)
    assert observation[0, 1].tolist() == [0, 255, 0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"walls": np.ones((4, 4))}, "shape"),
        ({"walls": np.zeros((5, 5))}, "border"),
        ({"position": (0, 1)}, "no open cell"),
        ({"position": (1, 7)}, "no open cell"),
    ],
)
def test_impossible_options_are_refused_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        DiscoMazeEnv(size=5).reset(seed=0, options=options)


def test_pictures_and_text() -> None:
    corridor = np.ones((5, 5), dtype=np.bool_)
    corridor[1, 1:4] = False
    env = DiscoMazeEnv(size=5, render_mode="rgb_array")
    observation, _ = env.reset(seed=0, options={"walls": corridor, "position": (1, 1)})
    picture = env.render()
    assert isinstance(picture, np.ndarray)
    assert picture.shape == (80, 80, 3)
    assert np.array_equal(picture[8::16, 8::16], observation)
    env = DiscoMazeEnv(size=5, render_mode="ansi")
    env.reset(seed=0, options={"walls": corridor, "position": (1, 1)})
    env.step(1)
    text = env.render()
    assert isinstance(text, str)
    assert text.splitlines() == ["##########", "##. @   ##", *["##########"] * 3, "step 1, coverage 67%"]
    assert DiscoMazeEnv(size=5).render() is None
