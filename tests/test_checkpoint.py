"""Checkpoints: what goes in comes out, nothing damaged is taken for whole, no moment of dying loses the last one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ngu.checkpoint import (
    SCHEMA_VERSION,
    DamagedCheckpointError,
    check_shapes,
    discard_newer,
    load_checkpoint,
    load_newest,
    newest_checkpoint,
    prune,
    save_checkpoint,
)
from ngu.errors import UserError
from ngu.tensor_file import DTYPE_NAMES, write_tensors


def example_state(step: int) -> dict[str, Any]:
    return {
        "learner": {"online": {"lstm.weight": torch.full((8, 5), float(step))}, "updates": step, "rate": 0.1},
        "actor": {"generator": torch.Generator().manual_seed(step).get_state(), "names": ["a", None, True]},
        "replay": {"frames": torch.full((100, 3), step % 256, dtype=torch.uint8), "ends": torch.tensor([True, False])},
    }


def same(left: Any, right: Any) -> bool:
    """Equal in structure, types and bits; a tuple equals the list it becomes."""
    if isinstance(left, Tensor):
        return (
            isinstance(right, Tensor)
            and left.dtype == right.dtype
            and left.shape == right.shape
            and torch.equal(bits(left), bits(right))
        )
    if isinstance(left, dict):
        return isinstance(right, dict) and left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and math.isnan(left):
        return isinstance(right, float) and math.isnan(right)
    return type(left) is type(right) and bool(left == right)


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    dtype = draw(st.sampled_from(sorted(DTYPE_NAMES, key=str)))
    seed = draw(st.integers(0, 10**6))
    values = torch.randint(-3, 300, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    views = [values] if not shape else [values, values.transpose(0, -1), values[..., ::2]]  # not all are contiguous
    return draw(st.sampled_from(views))


keys = st.text(min_size=1, max_size=6).filter(lambda key: "/" not in key and not key.startswith("$"))
numbers = st.integers() | st.floats() | st.sampled_from([math.inf, -math.inf, -0.0, 1e-310])
leaves = tensors() | numbers | st.booleans() | st.none() | st.text(max_size=5)
nodes = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))
states = st.dictionaries(st.sampled_from(["learner", "actor", "replay", "envs"]), nodes, max_size=3)


@given(states, st.integers(0, 10**13))
@settings(max_examples=100, deadline=None)
def test_what_goes_in_comes_out(state: dict[str, Any], step: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = save_checkpoint(Path(folder) / "checkpoints", step, state)
        assert path.name == f"step_{step:012d}"
        loaded = load_newest(path.parent)
        assert (loaded.step, loaded.path, loaded.passed_over) == (step, path, ())
        assert same(state, loaded.state)


def test_tuples_come_back_as_lists(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"learner": {"betas": (0.9, (1, torch.ones(2)))}})
    assert same({"learner": {"betas": [0.9, [1, torch.ones(2)]]}}, load_newest(tmp_path).state)


def test_tensor_files_are_read_by_the_safetensors_library_as_its_own(tmp_path: Path) -> None:
    names = {f"t/{i}": torch.arange(7).to(dtype) for i, dtype in enumerate(DTYPE_NAMES)} | {"empty": torch.ones(0, 3)}
    write_tensors(tmp_path / "ours", names)
    safetensors.torch.save_file(names, tmp_path / "theirs")
    assert same(safetensors.torch.load_file(tmp_path / "theirs"), safetensors.torch.load_file(tmp_path / "ours"))
    assert (tmp_path / "ours").stat().st_size == (tmp_path / "theirs").stat().st_size


def test_a_tensor_of_several_pieces_comes_back(tmp_path: Path) -> None:
    frames = torch.arange(5 * 2**20 + 3)  # 40 MiB, written 16 MiB at a time
    save_checkpoint(tmp_path, 1, {"replay": {"frames": frames}})
    assert same({"replay": {"frames": frames}}, load_newest(tmp_path).state)


@pytest.mark.parametrize("dtype", [torch.float64, torch.uint8])
def test_tensors_of_any_layout_come_back(dtype: torch.dtype, tmp_path: Path) -> None:
    table = torch.arange(24).to(dtype).view(4, 6)
    views = {
        "one of a scalar": torch.tensor(7, dtype=dtype).expand(1),  # contiguous, with a stride of 0
        "one in the middle": table[2:3, 4],
        "repeated": torch.tensor(7, dtype=dtype).expand(3, 2),
        "transposed": table.T,
        "every other": table[:, 1::2],
        "the last": table[3],
    }
    save_checkpoint(tmp_path, 1, {"learner": views})
    back = load_newest(tmp_path).state["learner"]
    assert back.keys() == views.keys()
    assert all(back[name].dtype == dtype and torch.equal(back[name], view) for name, view in views.items())


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    state = example_state(3)
    shuffled = {name: dict(reversed(component.items())) for name, component in reversed(state.items())}
    one, two = save_checkpoint(tmp_path / "one", 3, state), save_checkpoint(tmp_path / "two", 3, shuffled)
    files = sorted(path.name for path in one.iterdir())
    assert files == ["actor.safetensors", "learner.safetensors", "meta.json", "replay.safetensors"]
    for name in files:
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_replay_can_be_left_out_of_saving_and_of_loading(tmp_path: Path) -> None:
    slim = save_checkpoint(tmp_path, 1, example_state(1), without=("replay",))
    assert not (slim / "replay.safetensors").exists()
    assert load_checkpoint(slim).state.keys() == {"learner", "actor"}
    full = save_checkpoint(tmp_path, 2, example_state(2))
    (full / "replay.safetensors").unlink()
    assert load_checkpoint(full, without=("replay",)).state.keys() == {"learner", "actor"}
    with pytest.raises(DamagedCheckpointError, match=r"replay\.safetensors is missing"):
        load_checkpoint(full)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ({"learner": {1: 2}}, TypeError),
        ({"learner": {"a/b": 2}}, TypeError),
        ({"learner": {"$tensor": 2}}, TypeError),
        ({"learner": {"set": {1}}}, TypeError),
        ({"learner": {"complex": torch.zeros(2, dtype=torch.complex64)}}, TypeError),
        ({"../learner": {}}, ValueError),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_written(
    tmp_path: Path, state: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        save_checkpoint(tmp_path / "checkpoints", 1, state)
    assert list(tmp_path.iterdir()) == []


def test_newest_prune_and_discard(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "none") is None
    for step in (5, 1_000_000_000_000_0, 30, 200):
        save_checkpoint(tmp_path, step, example_state(step))
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.name == "step_10000000000000"
    discard_newer(tmp_path, 200)
    assert names(tmp_path) == [f"step_{step:012d}" for step in (5, 30, 200)]
    prune(tmp_path, keep=2)
    assert names(tmp_path) == [f"step_{step:012d}" for step in (30, 200)]


def test_prune_never_counts_a_damaged_checkpoint(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save_checkpoint(tmp_path, step, example_state(step))
    os.truncate(tmp_path / "step_000000000004" / "learner.safetensors", 10)
    (tmp_path / "step_000000000003" / "meta.json").unlink()
    prune(tmp_path, keep=1)
    assert load_newest(tmp_path).step == 2
    assert "step_000000000001" not in names(tmp_path)


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 7, example_state(1))
    save_checkpoint(tmp_path, 7, example_state(2))
    assert names(tmp_path) == ["step_000000000007"]
    assert same(example_state(2), load_newest(tmp_path).state)


def test_a_replacement_that_died_half_way_is_undone_even_by_a_save_that_fails(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step, example_state(step))
    (tmp_path / "step_000000000002").rename(tmp_path / ".replaced-step_000000000002")
    assert load_newest(tmp_path).step == 2
    with files_of_at_most(100), pytest.raises(UserError, match="no room"):
        save_checkpoint(tmp_path, 3, example_state(3))
    assert names(tmp_path) == ["step_000000000001", "step_000000000002"]
    assert same(example_state(2), load_newest(tmp_path).state)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Damage


def cut_to(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size if size >= 0 else path.stat().st_size + size)


def flip_bit(place: int) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)

    return flip


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


@pytest.mark.parametrize("name", ["learner.safetensors", "replay.safetensors"])
@pytest.mark.parametrize(
    "damage",
    [
        *(cut_to(size) for size in (0, 1, 8, 9, 60, -100, -8, -1)),
        *(flip_bit(place) for place in (0, 8, 30, -1)),
        append,
        Path.unlink,
    ],
)
def test_a_damaged_tensor_file_is_never_taken_for_whole(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    save_checkpoint(tmp_path, 1, example_state(1))
    newest = save_checkpoint(tmp_path, 2, example_state(2))
    damage(newest / name)
    with pytest.raises(DamagedCheckpointError, match=name):
        load_checkpoint(newest)
    loaded = load_newest(tmp_path)
    assert loaded.step == 1
    assert same(example_state(1), loaded.state)
    (sentence,) = loaded.passed_over
    assert str(newest) in sentence
    assert "step_000000000001 is used instead" in sentence


def test_meta_cut_anywhere_is_damaged(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, example_state(1))
    whole = (path / "meta.json").read_bytes()
    for size in range(len(whole)):
        (path / "meta.json").write_bytes(whole[:size])
        with pytest.raises(DamagedCheckpointError):
            load_checkpoint(path)


def test_a_flipped_bit_in_meta_is_found_or_harmless(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, example_state(1))
    whole = (path / "meta.json").read_bytes()
    found = 0
    for place in range(len(whole)):
        for bit in (0, 3):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            (path / "meta.json").write_bytes(changed)
            try:
                assert same(example_state(1), load_checkpoint(path).state)  # white space between values
            except UserError:
                found += 1
    assert found > len(whole) / 2


def test_all_damaged_or_none_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no checkpoint in"):
        load_newest(tmp_path / "checkpoints")
    with pytest.raises(UserError, match="there is no checkpoint"):
        load_checkpoint(tmp_path / "checkpoints" / "step_000000000001")
    path = save_checkpoint(tmp_path, 1, example_state(1))
    (path / "meta.json").write_text("[]")
    with pytest.raises(UserError, match=r"no checkpoint in .* is intact"):
        load_newest(tmp_path)


def test_another_schema_is_no_damage_and_is_not_passed_over(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, example_state(1))
    path = save_checkpoint(tmp_path, 2, example_state(2))
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps(meta | {"schema": SCHEMA_VERSION + 1}))
    with pytest.raises(UserError, match=f"has schema {SCHEMA_VERSION + 1} and this ngu reads schema {SCHEMA_VERSION}"):
        load_newest(tmp_path)


def test_files_swapped_between_checkpoints_are_found(tmp_path: Path) -> None:
    one, two = save_checkpoint(tmp_path, 1, example_state(1)), save_checkpoint(tmp_path, 2, example_state(2))
    shutil.copy(one / "learner.safetensors", two / "learner.safetensors")
    with pytest.raises(DamagedCheckpointError, match=r"checksum of learner\.safetensors"):
        load_checkpoint(two)


# A disk that is full, a folder that is closed


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no right to mount a tiny disk ({mounted.stderr.strip()}); the file-size limit is tested instead")
    yield disk
    subprocess.run(["umount", disk], check=True)


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The operating system cuts writes off beyond this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def large_state(size: int) -> dict[str, Any]:
    return {"learner": {"w": torch.zeros(10)}, "replay": {"frames": torch.zeros(size, dtype=torch.uint8)}}


def test_a_full_disk_loses_nothing(tiny_disk: Path) -> None:
    save_checkpoint(tiny_disk, 1, large_state(400_000))
    with pytest.raises(UserError, match=r"No space left on device.*needs 3\.00 MB and 0\.\d\d MB are free"):
        save_checkpoint(tiny_disk, 2, large_state(3_000_000))
    assert names(tiny_disk) == ["step_000000000001"]
    assert same(large_state(400_000), load_newest(tiny_disk).state)
    save_checkpoint(tiny_disk, 2, large_state(3_000_000), without=("replay",))
    assert load_newest(tiny_disk).step == 2


@pytest.mark.parametrize("step", [1, 2])
def test_a_short_write_loses_nothing(tmp_path: Path, step: int) -> None:
    save_checkpoint(tmp_path, 1, large_state(400_000))
    with files_of_at_most(1_000_000), pytest.raises(UserError, match=r"File too large.*needs 3\.00 MB"):
        save_checkpoint(tmp_path, step, large_state(3_000_000))
    assert names(tmp_path) == ["step_000000000001"]
    assert same(large_state(400_000), load_newest(tmp_path).state)


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that other users can reach (pytest's own ones are closed to them)."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Permissions do not bind root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_closed_folder_is_said(shared_folder: Path) -> None:
    path = save_checkpoint(shared_folder / "checkpoints", 1, example_state(1))
    path.parent.chmod(0o555)
    with ordinary_user(), pytest.raises(UserError, match=r"cannot write the checkpoint of step 2 .*Permission denied"):
        save_checkpoint(path.parent, 2, example_state(2))
    with ordinary_user(), pytest.raises(UserError, match=r"cannot remove the old checkpoint .*Permission denied"):
        prune(path.parent, keep=0)
    for name in ("learner.safetensors", "meta.json"):
        (path / name).chmod(0)
        with ordinary_user(), pytest.raises(UserError, match=r"cannot read the checkpoint .*Permission denied"):
            load_newest(path.parent)
    path.parent.chmod(0)
    with ordinary_user(), pytest.raises(UserError, match=r"cannot look for checkpoints .*Permission denied"):
        load_newest(path.parent)
    path.parent.chmod(0o755)


# Shapes


def test_shapes_that_fit_pass(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, example_state(1))
    check_shapes(example_state(2), load_newest(tmp_path).state)


@pytest.mark.parametrize(
    ("expected", "sentence"),
    [
        (torch.zeros(3, 4), r"learner/q/w is \[3, 5\] float32 in the checkpoint and \[3, 4\] float32 in the agent"),
        (torch.zeros(3, 5).half(), r"is \[3, 5\] float32 in the checkpoint and \[3, 5\] float16 in the agent"),
        (None, r"learner/q/w is \[3, 5\] float32 in the checkpoint and missing in the agent"),
    ],
)
def test_shapes_that_do_not_fit_are_named(expected: Tensor | None, sentence: str) -> None:
    found = {"learner": {"a": torch.zeros(1), "q": {"w": torch.zeros(3, 5), "x": torch.zeros(9)}}}
    agent = {"learner": {"a": torch.zeros(1), "q": {"w": expected, "x": torch.zeros(8)}}}
    with pytest.raises(UserError, match=sentence + r".*configs differ"):
        check_shapes(agent if expected is not None else {"learner": {"a": torch.zeros(1), "q": {}}}, found)


# Dying at every moment. One process imports torch and forks the writers that die.

DYING = """
import json, os, random, resource, shutil, signal, sys, time
from pathlib import Path
import torch
from ngu.checkpoint import load_checkpoint, load_newest, prune, save_checkpoint

torch.set_num_threads(1)

def state(step, mark=0):
    return {
        "learner": {"weights": torch.full((20_000,), float(step)), "step": step, "mark": mark},
        "replay": {"frames": torch.full((2_000_000,), (step + mark) % 256, dtype=torch.uint8)},
    }

def check(folder, at_least):
    loaded = load_newest(folder)
    assert not loaded.passed_over, loaded.passed_over
    assert loaded.step >= at_least, (loaded.step, at_least)
    learner, wanted = loaded.state["learner"], state(loaded.step, loaded.state["learner"]["mark"])
    assert learner["step"] == loaded.step
    assert torch.equal(learner["weights"], wanted["learner"]["weights"])
    assert torch.equal(loaded.state["replay"]["frames"], wanted["replay"]["frames"])
    return loaded.step

def die_when(condition):
    def hook(event, arguments):
        if event == "open" or event.startswith(("os.", "shutil.")):
            if condition():
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

def in_child(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
        os._exit(0)
    return child
"""

AT_EVERY_OPERATION = (
    DYING
    + """
folder = Path(sys.argv[1])

def writer(last_operation):
    count = iter(range(10**9))
    die_when(lambda: next(count) == last_operation)
    save_checkpoint(folder, 2, state(2, mark=1))  # replaces one
    save_checkpoint(folder, 3, state(3))
    prune(folder, keep=1)

deaths = 0
while True:
    shutil.rmtree(folder, ignore_errors=True)
    for step in (1, 2):
        save_checkpoint(folder, step, state(step))
    _, status = os.waitpid(in_child(lambda: writer(deaths)), 0)
    check(folder, at_least=2)
    for path in folder.glob("step_*"):
        load_checkpoint(path)  # what carries a checkpoint's name is whole
    save_checkpoint(folder, 4, state(4))  # sweeps up what the dead writer left
    assert all(path.name.startswith("step_") for path in folder.iterdir()), sorted(folder.iterdir())
    assert check(folder, at_least=4) == 4
    if not os.WIFSIGNALED(status):
        assert os.WEXITSTATUS(status) == 0
        break
    deaths += 1
print(json.dumps({"deaths": deaths}))
"""
)

AT_RANDOM = (
    DYING
    + """
folder, generator = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
save_checkpoint(folder, 1, state(1))

def writer(first, done):
    for step in range(first, 10**9):
        save_checkpoint(folder, step, state(step))
        os.write(done, step.to_bytes(8, "little"))
        prune(folder, keep=2)

newest, leftovers = 1, 0
for kill in range(25):
    heard, done = os.pipe()
    child = in_child(lambda: writer(newest + 1, done))
    os.close(done)
    time.sleep(generator.uniform(0.0, 0.15))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    finished = b""
    while piece := os.read(heard, 65536):
        finished += piece
    os.close(heard)
    leftovers += any(path.name.startswith(".") for path in folder.iterdir())
    newest = check(folder, at_least=int.from_bytes(finished[-8:], "little") or newest)
print(json.dumps({"kills": kill + 1, "steps": newest, "leftovers": leftovers}))
"""
)

MEMORY = (
    DYING
    + """
folder = Path(sys.argv[1])
frames = torch.zeros(256 * 2**20, dtype=torch.uint8)
frames.fill_(1)
save_checkpoint(folder, 1, {"replay": {}})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
save_checkpoint(folder, 2, {"replay": {"frames": frames}})
print(json.dumps({"grown_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}))
"""
)


def run_script(script: str, *arguments: str) -> dict[str, Any]:
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments], capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    answer: dict[str, Any] = json.loads(finished.stdout)
    return answer


def test_dying_at_every_file_operation_leaves_the_newest_loadable(tmp_path: Path) -> None:
    deaths = run_script(AT_EVERY_OPERATION, str(tmp_path / "checkpoints"))["deaths"]
    assert deaths > 30  # opens, renames, removals: none was missed


def test_being_killed_at_random_leaves_the_newest_loadable(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    report = run_script(AT_RANDOM, str(tmp_path / "checkpoints"), str(seed))
    assert report["kills"] == 25
    assert report["leftovers"] >= 1, f"no writer died while writing (seed {seed}): the test shows nothing"


def test_saving_needs_no_second_copy_of_a_large_tensor(tmp_path: Path) -> None:
    assert run_script(MEMORY, str(tmp_path))["grown_mb"] < 64
