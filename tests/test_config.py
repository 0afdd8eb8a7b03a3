"""Settings: checked on creation, one sentence for each mistake, the same from Python, file and command line."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ngu.config
from ngu.commands.train import read_config
from ngu.config import Config, EnvConfig, LearnerConfig, NetworkConfig, NoveltyConfig, ReplayConfig
from ngu.config_reading import from_dict, read_config_file, to_dict, with_overrides
from ngu.errors import UserError
from ngu.presets import PRESETS, preset
from ngu.report.worlds import World
from ngu.variants import VARIANTS

GROUPS = [field.name for field in dataclasses.fields(Config) if dataclasses.is_dataclass(getattr(Config(), field.name))]


def settings_of(config: Config) -> dict[str, Any]:
    """All settings by dotted name."""
    flat = {}
    for name, value in to_dict(config).items():
        flat |= {f"{name}.{leaf}": inner for leaf, inner in value.items()} if isinstance(value, dict) else {name: value}
    return flat


# ------------------------------------------------------------------------------------------- the whole


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_config_survives_json(name: str, variant: str) -> None:
    config = preset(name, variant, {"env.num_envs": 32, "mixture.cross_mixture_ratio": 0.0})
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


@given(st.sampled_from(sorted(settings_of(Config()))), st.data())
def test_an_override_changes_its_field_and_no_other(name: str, data: st.DataObject) -> None:
    before = settings_of(Config())
    value = before[name]
    if isinstance(value, bool):
        new: Any = not value
    elif isinstance(value, int):
        new = value + data.draw(st.sampled_from([0, 2]))
    elif isinstance(value, float):
        new = value * 0.999
    else:
        new = value
    try:
        after = settings_of(with_overrides(Config(), {name: new}))
    except UserError:
        return
    assert after == before | {name: new}


def test_every_setting_has_a_sentence_that_explains_it() -> None:
    tree = ast.parse(inspect.getsource(ngu.config))
    missing = []
    for group in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
        assert ast.get_docstring(group)
        for field, following in zip(group.body, [*group.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and not (
                isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
                and isinstance(following.value.value, str)
            ):
                missing.append(f"{group.name}.{ast.unparse(field.target)}")
    assert [name for name in missing if not name.startswith("Config.")] == []
    assert {name.removeprefix("Config.") for name in missing} <= set(GROUPS)


def test_configs_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().env.num_envs = 3  # type: ignore[misc]


def test_steps_per_update_follow_the_ratio() -> None:
    config = with_overrides(
        Config(),
        {"learner.batch_size": 10, "replay.trace_length": 20, "learner.replay_ratio": 4.0, "replay.period": 20},
    )
    assert config.steps_per_update == 50.0


def test_arguments_of_an_environment_are_one_text_however_they_are_given(tmp_path: Path) -> None:
    base = preset("gym", overrides={"env.id": "test/Ledger-v0"})
    file = tmp_path / "settings.toml"
    file.write_text("[env.kwargs]\nwalls = [1, 2]\nsize = 5\n")
    text = '{"size":5,"walls":[1,2]}'
    given = [
        with_overrides(base, {"env.kwargs": {"walls": (1, 2), "size": 5}}),
        with_overrides(base, {"env.kwargs.walls": [1, 2], "env.kwargs.size": 5}),
        with_overrides(base, {"env.kwargs": text}),
        read_config_file(file, base),
        read_config(["gym", "--env", "test/Ledger-v0", "--env.kwargs", text]),
    ]
    assert {config.env.kwargs for config in given} == {'{"size": 5, "walls": [1, 2]}'}
    assert len({hash(config) for config in given}) == 1
    assert from_dict(json.loads(json.dumps(to_dict(given[0])))) == given[0]
    assert base.env.kwargs == "{}"
    assert World.of(given[0].env).name == 'test/Ledger-v0 {"size": 5, "walls": [1, 2]}'
    assert World.of(base.env).name == "test/Ledger-v0"


# ------------------------------------------------------------------------------------------- what is refused


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"novelty.warm_up_steps": -1}, "novelty.warm_up_steps"),
    ({"novelty.warm_up_steps": 1000}, "set both above 0"),
    ({"novelty.warm_up_updates": 10}, "set both above 0"),
    ({"novelty.warm_up_steps": 100, "novelty.warm_up_updates": 10}, "over before replay holds"),
    ({"env.maze_size": 8}, "odd"),
    ({"env.maze_size": 3}, "odd size of 5"),
    ({"env.num_envs": 0}, "env.num_envs"),
    ({"env.maze_step_cap": -1}, "env.maze_step_cap"),
    ({"env.maze_pool": 0}, "env.maze_pool"),
    ({"mixture.num_mixtures": 0}, "mixture.num_mixtures"),
    ({"mixture.beta": -0.1}, "mixture.beta"),
    ({"mixture.discount_max": 1.0}, "discount"),
    ({"mixture.discount_min": 0.0}, "discount"),
    ({"mixture.discount_min": 0.995}, "discount"),
    ({"mixture.cross_mixture_ratio": 1.5}, "cross_mixture_ratio"),
    ({"mixture.cross_mixture_ratio": 0.5}, "num_mixtures of 2 or more"),
    ({"mixture.epsilon_base": 1.1}, "epsilon_base"),
    ({"mixture.epsilon_alpha": -1.0}, "epsilon_alpha"),
    ({"novelty.neighbours": 0}, "novelty.neighbours"),
    ({"novelty.kernel_epsilon": 0.0}, "novelty.kernel_epsilon"),
    ({"novelty.max_modulation": 0.5}, "novelty.max_modulation"),
    ({"novelty.distance_decay": 1.0}, "novelty.distance_decay"),
    ({"novelty.embedding_snapshots": 1}, "embedding_snapshots"),
    ({"novelty.filters": (8,)}, "same length"),
    ({"novelty.strides": (0, 1)}, "1 or more"),
    ({"novelty.controllable_states": "none"}, "learned, random"),
    ({"network.lstm_size": 0}, "network.lstm_size"),
    ({"network.kernels": (3, 3, 3)}, "same length"),
    ({"replay.period": 21}, "longer than replay.trace_length"),
    ({"replay.burn_in": 7}, "burn_in"),
    ({"replay.capacity": 100}, "raise the capacity"),
    ({"replay.trace_length": 10_000}, "raise the capacity"),
    ({"replay.min_sequences": 10**9}, "min_sequences"),
    ({"env.num_envs": 4, "mixture.num_mixtures": 5}, "num_mixtures"),
    ({"replay.priority_exponent": 1.5}, "priority_exponent"),
    ({"replay.max_memory_share": 0.0}, "max_memory_share"),
    ({"learner.batch_size": 0}, "batch_size"),
    ({"learner.replay_ratio": 0.0}, "replay_ratio"),
    ({"learner.adam_beta1": 1.0}, "adam_beta1"),
    ({"learner.average_share": 1.0}, "a share below 1"),
    ({"learner.average_share": -0.1}, "a share below 1"),
    ({"learner.rate_steps": (10, 20)}, "as many of both"),
    ({"learner.rate_steps": (20, 10), "learner.rate_factors": (1.0, 1.0)}, "rising numbers"),
    ({"learner.rate_steps": (10, 10), "learner.rate_factors": (1.0, 1.0)}, "rising numbers"),
    ({"learner.rate_steps": (-1,), "learner.rate_factors": (1.0,)}, "rising numbers"),
    ({"learner.rate_steps": (10,), "learner.rate_factors": (0.0,)}, "above 0"),
    ({"learner.retrace_lambda": 2.0}, "retrace_lambda"),
    ({"learner.trace_tolerance": -0.1}, "trace_tolerance"),
    ({"learner.value_transform": "log"}, "signed-sqrt"),
    ({"actor.update_period": 0}, "update_period"),
    ({"evaluation.marks": (50, 101)}, "evaluation.marks"),
    ({"evaluation.epsilon": -0.1}, "evaluation.epsilon"),
    ({"evaluation.seed": -1}, "evaluation.seed"),
    ({"run.steps": 0}, "run.steps"),
    ({"run.seed": -1}, "run.seed"),
    ({"run.name": "a/b"}, "plain folder name"),
    ({"run.name": ".."}, "plain folder name"),
    ({"run.precision": "fp8"}, "fp32, bf16, fp16"),
    ({"env.name": "chess"}, "disco-maze"),
    ({"env.name": "gym", "env.kwargs": "banana"}, "env.kwargs is 'banana'; give a JSON object"),
    ({"env.name": "gym", "env.kwargs": "[5]"}, "env.kwargs is '.5.'; give a JSON object"),
    ({"env.name": "gym", "env.kwargs": "[" * 100_000}, "give a JSON object"),
    ({"env.name": "gym", "env.kwargs": {"size": float("nan")}}, "give a JSON object"),
    ({"env.name": "gym", "env.kwargs": {"size": {1, 2}}}, "env.kwargs cannot be kept as JSON: .* set is not JSON"),
    ({"env.name": "gym", "env.kwargs": 5}, "env.kwargs is 5; give a table"),
]


@pytest.mark.parametrize(("overrides", "sentence"), REFUSED, ids=[str(overrides) for overrides, _ in REFUSED])
def test_impossible_values_are_refused_in_one_sentence(overrides: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as refusal:
        with_overrides(Config(), overrides)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("group", [NetworkConfig, NoveltyConfig])
@pytest.mark.parametrize("hidden", [(0,), (64, -1)])
def test_hidden_layers_need_a_width(group: Any, hidden: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="hidden"):
        group(hidden=hidden)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_must_be_finite(value: float) -> None:
    for name in ("mixture.beta", "learner.learning_rate", "novelty.kernel_epsilon"):
        with pytest.raises(UserError, match=name):
            with_overrides(Config(), {name: value})


def test_a_number_too_large_for_a_float_is_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match=r"mixture\.beta"):
        with_overrides(Config(), {"mixture.beta": 10**400})


WRONG_TYPES: list[tuple[str, Any]] = [
    ("env.num_envs", "many"),
    ("env.num_envs", 1.5),
    ("env.num_envs", True),
    ("env.num_envs", None),
    ("mixture.beta", "0.5"),
    ("mixture.beta", False),
    ("novelty.episodic", 1),
    ("novelty.filters", 8),
    ("novelty.filters", ("a", "b")),
    ("run.name", 3),
    ("run.precision", ["fp16"]),
    ("env", 3),
]


@pytest.mark.parametrize(("name", "value"), WRONG_TYPES)
def test_a_wrong_type_is_refused_with_the_name_of_the_field(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=name):
        with_overrides(Config(), {name: value})


def test_whole_floats_and_lists_from_files_become_what_is_wanted() -> None:
    config = with_overrides(Config(), {"run.steps": 2e6, "novelty.filters": [4, 4.0], "mixture.beta": 1})
    assert (config.run.steps, config.novelty.filters, config.mixture.beta) == (2_000_000, (4, 4), 1.0)
    assert type(config.run.steps) is int
    assert type(config.mixture.beta) is float


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("env.maze_sise", "maze_size"),
        ("learner.batchsize", "batch_size"),
        ("leaner.batch_size", "learner"),
        ("env.maze_size.x", "env.maze_size"),
        ("nonsense.field", "known"),
    ],
)
def test_an_unknown_field_is_answered_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UserError, match=near):
        with_overrides(Config(), {name: 1})


def test_a_group_and_one_of_its_fields_cannot_both_be_given() -> None:
    with pytest.raises(UserError, match="env"):
        with_overrides(Config(), {"env": 3, "env.maze_size": 9})


def test_dashes_and_underscores_are_the_same() -> None:
    assert with_overrides(Config(), {"env.maze-size": 11}).env.maze_size == 11


def test_checks_see_the_final_values_only() -> None:
    """Trace and period are raised together; in between the period would be longer than the trace."""
    config = with_overrides(Config(), {"replay.period": 40, "replay.trace_length": 80, "replay.capacity": 200_000})
    assert (config.replay.period, config.replay.trace_length) == (40, 80)


def test_parts_are_checked_when_made_alone() -> None:
    with pytest.raises(UserError):
        ReplayConfig(period=30, trace_length=20)
    with pytest.raises(UserError):
        LearnerConfig(clip_norm=0.0)


# ------------------------------------------------------------------------------------------- files


def test_toml_and_json_files_say_the_same(tmp_path: Path) -> None:
    toml, plain = tmp_path / "a.toml", tmp_path / "a.json"
    toml.write_text("[env]\nmaze_size = 11\n[novelty]\nfilters = [4, 4]\n")
    plain.write_text('{"env": {"maze_size": 11}, "novelty": {"filters": [4, 4]}}')
    expected = with_overrides(Config(), {"env.maze_size": 11, "novelty.filters": (4, 4)})
    assert read_config_file(toml, Config()) == read_config_file(plain, Config()) == expected


def test_a_file_keeps_what_it_does_not_name(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[env]\nmaze_size = 11\n")
    base = preset("disco-maze")
    assert read_config_file(str(path), base) == with_overrides(base, {"env.maze_size": 11})


BAD_FILES = {
    "broken.toml": b"[env\nmaze_size = 11",
    "broken.json": b'{"env": ',
    "list.json": b"[1, 2]",
    "nan.json": b'{"mixture": {"beta": NaN}}',
    "unknown.toml": b"[env]\nmaze_sise = 11",
    "binary.toml": b"\xff\xfe\x00\x01",
    "binary.json": b"\x80\x81",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(BAD_FILES[name])
    with pytest.raises(UserError):
        read_config_file(path, Config())


def test_a_choice_that_does_not_exist_is_refused_in_groups_made_by_hand() -> None:
    """Spelt wrongly, learned states would silently have been random ones."""
    for wrong, sentence in (
        ({"novelty": {"controllable_states": "Learned"}}, "is 'Learned'; choose one of learned, random, hand-crafted"),
        ({"learner": {"value_transform": "none"}}, "learner.value_transform is 'none'; choose one of"),
    ):
        with pytest.raises(UserError, match=sentence):
            Config(**{group: type(getattr(Config(), group))(**values) for group, values in wrong.items()})  # type: ignore[arg-type]


def test_a_missing_file_and_a_folder_are_refused_in_one_sentence(tmp_path: Path) -> None:
    for path, told in ((tmp_path / "nothing.toml", "cannot read"), (tmp_path, "holds no config.json")):
        with pytest.raises(UserError, match=told):
            read_config_file(path, Config())


def test_arguments_of_an_environment_may_be_a_dict_from_the_start() -> None:
    assert EnvConfig(name="gym", kwargs={"b": 1, "a": [2]}).kwargs == '{"a": [2], "b": 1}'  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"env\.kwargs is 5; give a JSON object"):
        EnvConfig(name="gym", kwargs=5)  # type: ignore[arg-type]
