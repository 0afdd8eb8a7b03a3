"""Command lines: tyro parses them and shows their help; this module looks at them first.

tyro answers a mistake with a box of several lines. Here a mistake is one sentence (`UserError`), so the names of
options and the form of their values are checked before tyro sees them.

A command is a dataclass whose first field is its positional argument, if it has one. Nested dataclasses are groups of
options: `--group.field`.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import tyro

from ngu.errors import UserError

Command = TypeVar("Command")

_LARGEST: dict[Any, float] = {int: 2**53, float: 1e30}
"""Larger numbers would overflow in tensors, and no setting needs them."""


@dataclass(frozen=True)
class CommandLine:
    """A command line taken apart: every name is known, every value has the form of its option's type."""

    positionals: list[str]
    options: dict[str, list[str]]
    """Option without its dashes, such as `run.log-period` or `run.no-tensorboard`, to its values."""
    wants_help: bool

    def value(self, option: str, default: str) -> str:
        """The text given for an option that takes one."""
        return self.options.get(option, [default])[0]

    def tokens(self) -> list[str]:
        """The command line as tyro reads it best: positional arguments first, single values behind `=`."""
        options: list[str] = []
        for name, values in self.options.items():
            options += [f"--{name}={values[0]}"] if len(values) == 1 else [f"--{name}", *values]
        return [*self.positionals, *options, *(["--help"] if self.wants_help else [])]


def take_apart(prog: str, command: type, argv: Sequence[str], positional: str | None = "RUN") -> CommandLine:
    """Checks a command line against the fields of the dataclass `command`; `positional` is what its first is called."""
    kinds = _kinds(command)
    line = CommandLine([], {}, any(token in ("-h", "--help") for token in argv))
    first = dataclasses.fields(command)[0] if positional else None
    positional_kind = kinds.pop(first.name.replace("_", "-")) if first else None
    rest = [token for token in argv if token not in ("-h", "--help")]
    while rest:
        token = rest.pop(0)
        if not token.startswith("-"):
            line.positionals.append(token)
            continue
        if not token.startswith("--"):
            raise UserError(f"the option {token} does not exist; options have two dashes, see `{prog} --help`.")
        name, equals, value = token[2:].partition("=")
        name = name.replace("_", "-")
        kind = _kind_of(prog, name, kinds)
        if equals:
            rest.insert(0, value)
        line.options[name] = _take_values(name, kind, rest, attached=bool(equals))
    most = 0 if first is None else 1 if typing.get_origin(positional_kind) is not tuple else len(line.positionals)
    if len(line.positionals) > most:
        takes = f"takes one {positional}" if positional else "takes no argument"
        raise UserError(f"`{prog}` {takes}, so {line.positionals[most]!r} is one too many; see `{prog} --help`.")
    if first and first.default is dataclasses.MISSING and not line.positionals and not line.wants_help:
        raise UserError(f"`{prog}` needs a {positional}; see `{prog} --help`.")
    return line


def parse(prog: str, command: type[Command], line: CommandLine, default: Command | None = None) -> Command:
    """The command as a dataclass; options that were not given keep the values of `default`. `--help` exits."""
    if default is None:
        return tyro.cli(command, prog=prog, args=line.tokens())
    return tyro.cli(command, prog=prog, args=line.tokens(), default=default)


def _kinds(command: type, prefix: str = "") -> dict[str, Any]:
    """Option -> type, without Optional; an option that can be switched stands there twice."""
    kinds: dict[str, Any] = {}
    for name, kind in typing.get_type_hints(command).items():
        option = f"{prefix}{name.replace('_', '-')}"
        if typing.get_origin(kind) is types.UnionType:
            (kind,) = (part for part in typing.get_args(kind) if part is not types.NoneType)
        if dataclasses.is_dataclass(kind):
            kinds |= _kinds(typing.cast(type, kind), f"{option}.")
        else:
            kinds[option] = kind
            if kind is bool:
                kinds[f"{prefix}no-{name.replace('_', '-')}"] = kind
    return kinds


def _kind_of(prog: str, name: str, kinds: dict[str, Any]) -> Any:
    if name in kinds:
        return kinds[name]
    near = difflib.get_close_matches(name, kinds, n=3, cutoff=0.6)
    # The group may have been left out: `--maze-size` for `--env.maze-size`.
    near = [option for option in kinds if option.rpartition(".")[2] == name] or near
    hint = f"the nearest {'is' if len(near) == 1 else 'are'} {', '.join(f'--{option}' for option in near)}"
    raise UserError(f"the option --{name} does not exist; {hint if near else f'see `{prog} --help`'}.")


def _take_values(name: str, kind: Any, rest: list[str], *, attached: bool) -> list[str]:
    """Removes an option's values from the front of `rest`; `attached` if the first came as `--name=value`."""
    if kind is bool:
        if attached or (rest and rest[0].lower() in ("true", "false")):
            group, _, flag = name.rpartition(".")
            stem = f"--{group}." if group else "--"
            flag = flag.removeprefix("no-")
            raise UserError(
                f"{name} takes no value; write {stem}{flag} to switch it on, {stem}no-{flag} to switch it off."
            )
        return []
    several = typing.get_origin(kind) is tuple
    # `--learner.rate-steps=` is an empty list; `--tasks=`, without a group, is no setting, and means nothing.
    if several and attached and not rest[0] and "." in name:
        del rest[0]
        return []
    values: list[str] = []
    while rest and (attached or not rest[0].startswith("--")) and (several or not values):
        values.append(_checked(name, typing.get_args(kind)[0] if several else kind, rest.pop(0), several=several))
        attached = False
    if not values:
        raise UserError(f"--{name} needs a value; give {_in_words(kind)}.")
    return values


def _checked(name: str, kind: Any, text: str, *, several: bool) -> str:
    try:
        if kind in _LARGEST and abs(kind(text)) > _LARGEST[kind]:
            raise UserError(f"{name.replace('-', '_')} is {text}; give a number of at most {_LARGEST[kind]}.")
        if typing.get_origin(kind) is Literal and text not in typing.get_args(kind):
            raise ValueError
    except ValueError:
        wanted = _in_words(tuple[kind, ...] if several else kind)
        raise UserError(f"{name.replace('-', '_')} is {text!r}; give {wanted}.") from None
    return text


def _in_words(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        each = {int: "whole numbers", float: "numbers"}.get(typing.get_args(kind)[0], "names")
        return f"{each}, separated by spaces"
    if typing.get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, typing.get_args(kind)))}"
    return {int: "a whole number", float: "a number", Path: "a path"}.get(kind, "a text")
