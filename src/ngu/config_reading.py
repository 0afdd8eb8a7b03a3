"""Configs from and to plain data: dictionaries, overrides by dotted name, TOML and JSON files.

Names and types are checked here, values where a config is made (`config.py`), so each mistake is one sentence.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ngu.config import Config, JsonObject
from ngu.errors import UserError, unknown_name
from ngu.worlds import check_world

_MAX_FLOAT = sys.float_info.max


def to_dict(config: Any) -> dict[str, Any]:
    """A config (or one of its groups) as plain data for JSON."""
    return dataclasses.asdict(config)


def from_dict(data: Mapping[str, Any], base: Config | None = None) -> Config:
    """A config from plain data; fields that are not named keep the values of `base`."""
    return typing.cast(Config, _merge(base or Config(), data, ""))


def with_overrides(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Replaces fields by dotted name: `{"env.maze_size": 21}`."""
    if not isinstance(overrides, Mapping) or not all(isinstance(name, str) for name in overrides):
        raise UserError(
            f"the overrides are {overrides!r}; give a dictionary of dotted names, such as {{'env.maze_size': 7}}."
        )
    nested: dict[str, Any] = {}
    for name, value in overrides.items():
        *groups, leaf = name.split(".")
        place = nested
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise UserError(f"{group} is given as a whole and by its field {name}; give one of the two.")
        place[leaf] = value
    return from_dict(nested, config)


def read_config_file(path: str | Path, base: Config) -> Config:
    """Reads a TOML or JSON file of overrides, nested by group, or the settings of a run: its folder or `config.json`.

    A run has a value for every setting, so nothing of `base` stays but the name and the folder of the run to come.
    """
    path = Path(path)
    if (path / "config.json").is_file():
        path = path / "config.json"
    kind = "JSON" if path.suffix == ".json" else "TOML"
    if path.is_dir():
        raise UserError(f"the folder {path} holds no config.json; give a file of settings or the folder of a run.")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read the config file {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"the config file {path} is not UTF-8 text.") from None
    try:
        data = json.loads(text) if kind == "JSON" else tomllib.loads(text)
    except ValueError as error:
        other = "" if path.suffix in (".json", ".toml") else "; settings are read from .toml and .json files"
        raise UserError(f"the config file {path} is not valid {kind}: {error}{other}.") from None
    if not isinstance(data, dict):
        raise UserError(f"the config file {path} must hold a table of settings.")
    if "schema" in data and path.name == "config.json":
        from ngu.run_folder import RunFolder  # reads its configs with this module

        run = RunFolder.open(path.parent).config
        return dataclasses.replace(run, run=dataclasses.replace(run.run, name=base.run.name, folder=base.run.folder))
    config = from_dict(data, base)
    for label in ("preset", "variant"):
        said = getattr(config, label)
        if said != getattr(base, label):
            option = said if label == "preset" else f"--variant {said}"
            raise UserError(
                f"the {label} {said} cannot be chosen in {path}; put it on the command line: `ngu train {option}`."
            )
    # A file may hold every setting there is, so only what it changes is looked at.
    changed = [name for name, value in to_dict(config.env).items() if value != getattr(base.env, name)]
    check_world(config, {name: f"env.{name} in {path}" for name in changed})
    return config


def _merge(base: Any, data: Mapping[str, Any], prefix: str) -> Any:
    """`base` with the fields in `data` replaced, all at once, so that checks see only the final values."""
    hints = typing.get_type_hints(type(base))
    known = {entry.name for entry in dataclasses.fields(base)}
    changes: dict[str, Any] = {}
    for name, value in data.items():
        name = name.replace("-", "_")
        if name not in known:
            raise UserError(unknown_name(f"the setting {prefix}{name}", name, known))
        current = getattr(base, name)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, Mapping):
                raise UserError(f"{prefix}{name} is a group of settings; give it a table, not {value!r}.")
            changes[name] = _merge(current, value, f"{prefix}{name}.")
        else:
            changes[name] = coerce(value, hints[name], f"{prefix}{name}")
    return dataclasses.replace(base, **changes)


def coerce(value: Any, kind: Any, name: str) -> Any:
    """Checks a value against a field's type; whole floats, files' lists and NumPy's numbers become what is wanted."""
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays, which this module does not import
        value = value.tolist()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    origin = typing.get_origin(kind)
    if origin is Literal:
        choices = typing.get_args(kind)
        if value in choices:
            return value
        raise UserError(f"{name} is {value!r}; choose one of {', '.join(map(str, choices))}.")
    if origin is tuple:
        if isinstance(value, list | tuple | range):
            return tuple(coerce(entry, typing.get_args(kind)[0], name) for entry in value)
        each = {int: "whole numbers", float: "numbers"}.get(typing.get_args(kind)[0], "texts")
        raise UserError(f"{name} is {value!r}; give a list of {each}.")
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and not isinstance(value, bool):
        if isinstance(value, int):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_FLOAT:
        return float(value)
    if kind is str and isinstance(value, str):
        return value
    if kind is JsonObject and isinstance(value, str | Mapping):
        try:
            return value if isinstance(value, str) else json.dumps(dict(value))
        except (TypeError, ValueError) as error:
            raise UserError(f"{name} cannot be kept as JSON: {error}; give numbers, texts, lists and tables.") from None
    words = {JsonObject: "a table", bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    raise UserError(f"{name} is {value!r}; give {words.get(kind, kind)}.")
