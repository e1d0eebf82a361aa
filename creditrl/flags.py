"""Flags over a config: ``--rollout.group-size 4`` on top of a recipe, by tyro."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, cast, get_args, get_type_hints

from creditrl.errors import ConfigError, did_you_mean

__all__ = ["FlagHelp", "flag_helps", "override", "plain_terminal"]

T = TypeVar("T")

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ONE_BOX = 80
"""Width up to which the help puts its boxes below each other."""
_MARKUP = re.compile(r"``|:\w+:`~?(?:[\w.]*\.)?(\w+)`")
"""Docstring markup, which is useless in a terminal."""
_NO_TYPE = re.compile(
    r"no type matching (\S.*?) could be instantiated from (\[.*?\])\. Got errors: .*"
)
_NO_NUMBER = re.compile(
    r"(?:invalid literal for (int)\(\) with base 10|could not convert string to (float)): (.*)"
)
"""tyro's messages for values that cannot be read."""
_KINDS = {"INT": "a whole number", "FLOAT": "a number", "STR": "a text", "{None}": "None"}
_TRUE, _FALSE = ("true", "True"), ("false", "False")


def override(config: T, argv: Sequence[str], prog: str) -> T:
    """Return ``config`` with the fields changed that the flags name.

    Flags are ``--field value`` and ``--part.field value``; dashes and underscores are equivalent; a
    boolean is ``--field``, ``--no-field`` or ``--field false``. Parts between a section and a field
    can be left out if only one field of the section has that name: ``--method.xi`` is
    ``--method.scores.xi``. A flag of an optional part that is None (``--policy.lora.rank 8``) first
    creates the part with its defaults, like a table in a recipe; ``--policy.lora None`` removes the
    part. ``--help`` prints the fields with their docstrings and the values of ``config`` as
    defaults, and exits with ``SystemExit(0)``.

    Args:
        config: a dataclass instance, e.g. a loaded recipe.
        argv: the flags, without the program's name.
        prog: how the program is called, for the help.

    Raises:
        ConfigError: an unknown flag or a bad value, in one line; the command line ends with code 2.
    """
    import tyro

    config, argv = _without_parts(config, argv)
    named = [_dashed(argument[2:]) for argument in argv if argument.startswith("--")]
    config = _with_parts(config, "", named)
    arguments = _Names(config).check(argv, prog)
    told, helped = io.StringIO(), _Shown()
    try:
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(helped), _joined_lines():
            return tyro.cli(
                type(config),
                default=config,
                args=arguments,
                prog=prog,
                config=(tyro.conf.AvoidSubcommands, tyro.conf.HelptextFromCommentsOff),
            )
    except SystemExit as stop:
        if not stop.code:
            print("\n".join(map(_without_markup, helped.getvalue().split("\n"))), end="")
            raise
        raise ConfigError(f"{_one_line(told.getvalue())} See `{prog} --help`.") from None
    except (ValueError, TypeError) as error:  # a dataclass refused a combination of values
        raise ConfigError(f"{error}") from error


@dataclasses.dataclass(frozen=True, slots=True)
class FlagHelp:
    """The help's text for a flag."""

    name: str
    """Name with its section, ``"optim.lr"``."""
    values: str
    """Its values, ``"FLOAT"``; empty for a switch."""
    text: str
    default: str


def flag_helps(config: Any, prog: str) -> dict[str, FlagHelp]:
    """Return the ``--help`` text of each flag of a config, by name, in order."""
    out = io.StringIO()
    with plain_terminal(_ONE_BOX), contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        override(config, ["--help"], prog)
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in out.getvalue().splitlines():
        inside = line.strip("│| ")
        if line[:4] in ("│ --", "| --"):
            # The text is next to the flag if all flags are short, else below it.
            flag, *words = re.split(r"\s{2,}", inside, maxsplit=1)
            lines = found.setdefault(flag, words)
        elif line[:3] in ("│  ", "|  ") and lines is not None:
            lines.append(inside)
        else:
            lines = None
    return {help.name: help for help in map(_read_help, found, found.values())}


def _read_help(flag: str, lines: list[str]) -> FlagHelp:
    """Return the text of a flag's lines in the help; a switch is listed with its opposite."""
    name, _, values = flag.partition(", ")[0].removeprefix("--").partition(" ")
    text, _, default = " ".join(lines).partition("(default: ")
    return FlagHelp(name, values, text.strip(), default.removesuffix(")"))


@contextlib.contextmanager
def plain_terminal(columns: int) -> Iterator[None]:
    """Simulate a terminal of a given width, without colours, in this context."""
    wanted = {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _Shown(io.StringIO):
    """Captures tyro's output, and looks like stdout to it."""

    def isatty(self) -> bool:
        """Return whether the text can have colours."""
        return sys.__stdout__ is not None and sys.__stdout__.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Return stdout's encoding: it decides which characters draw boxes."""
        return getattr(sys.__stdout__, "encoding", None) or "utf-8"


@contextlib.contextmanager
def _joined_lines() -> Iterator[None]:
    """Join lines of fields' docstrings and strip their markup in this context.

    tyro wraps them to the terminal. It joins lines itself, but not indented ones, which these are.
    """
    import docstring_parser

    parse = docstring_parser.parse_from_object

    def joined(*arguments: Any, **options: Any) -> docstring_parser.Docstring:
        found = parse(*arguments, **options)
        for param in found.params:
            whole = re.sub(r"(?<!\n)\n[ \t]+(?=\S)", " ", param.description or "")
            param.description = _MARKUP.sub(r"\1", whole)
        return found

    docstring_parser.parse_from_object = joined
    try:
        yield
    finally:
        docstring_parser.parse_from_object = parse


def _without_markup(line: str) -> str:
    """Return a line of help without docstring markup; boxes keep their right edges."""
    *cells, last = line.split("│")
    shown = [_MARKUP.sub(r"\1", cell) for cell in cells]
    padded = [new + " " * (len(old) - len(new)) for old, new in zip(cells, shown, strict=True)]
    return "│".join([*padded, _MARKUP.sub(r"\1", last)])


class _Names:
    """The flags that a config has."""

    def __init__(self, config: Any) -> None:
        self.flags: dict[str, Any] = {}
        """Current value by flag name, written with dashes."""
        self.open: list[str] = []
        """Prefixes under which tyro decides (dicts, missing optional parts)."""
        self._walk(config, "")

    def _walk(self, config: Any, prefix: str) -> None:
        for field in dataclasses.fields(config):
            if not field.init:
                continue
            value = getattr(config, field.name)
            name = _dashed(prefix + field.name)
            self.flags[name] = value
            if dataclasses.is_dataclass(value):
                del self.flags[name]
                self._walk(value, prefix + field.name + ".")
            elif isinstance(value, dict) or value is None:
                self.open.append(name + ".")

    def check(self, argv: Sequence[str], prog: str) -> list[str]:
        """Return the arguments with booleans spelled in tyro's way.

        Raises:
            ConfigError: a flag that the config does not have.
        """
        out: list[str] = []
        rest = list(argv)
        while rest:
            argument = rest.pop(0)
            if not argument.startswith("--") or argument == "--help":
                out.append(argument)
                continue
            flag, equals, value = argument[2:].partition("=")
            whole = self._whole(_dashed(flag))
            if whole is not None:
                flag, argument = whole, f"--{whole}{equals}{value}"
            name = _dashed(flag)
            if not isinstance(self.flags.get(name), bool):
                self._require(flag, name, prog)
                out.append(argument)
                continue
            if not equals and rest and not rest[0].startswith("--"):
                equals, value = "=", rest.pop(0)
            if equals and value not in _TRUE + _FALSE:
                raise ConfigError(f"--{flag} is {value!r}; expected true or false.")
            out.append(f"--{_negated(name) if value in _FALSE else name}")
        return out

    def _whole(self, name: str) -> str | None:
        """Return the flag for which ``section.field`` is short; None if it is complete or no flag.

        The section must have the field in one of its parts, and no other field of that name.
        """
        section, dot, field = name.partition(".")
        if not dot or "." in field or self._known(name):
            return None
        positive = field.removeprefix("no-")
        for tail in dict.fromkeys((field, positive)):
            found = [
                known
                for known in self.flags
                if known.startswith(f"{section}.") and known.endswith(f".{tail}")
            ]
            if len(found) == 1:
                switch = tail != field
                if switch and not isinstance(self.flags[found[0]], bool):
                    return None
                return _negated(found[0]) if switch else found[0]
        return None

    def _known(self, name: str) -> bool:
        switches = (
            _negated(known)
            for known, value in self.flags.items()
            if value is True or value is False
        )
        return name in self.flags or name in switches or any(map(name.startswith, self.open))

    def _require(self, flag: str, name: str, prog: str) -> None:
        if self._known(name):
            return
        section, _, field = name.rpartition(".")
        inside = [known for known in self.flags if known.rpartition(".")[0] == section]
        inside += [] if section else ["help"]
        near = difflib.get_close_matches(field, [k.rpartition(".")[2] for k in inside], n=1)
        # A forgotten or mistyped part name: the field of that name is meant.
        tails = [known for known in self.flags if known.rpartition(".")[2] == field]
        if near:
            close = f" Did you mean '--{f'{section}.' if section else ''}{near[0]}'?"
        elif tails:
            closest = difflib.get_close_matches(name, tails, n=1, cutoff=0.0)
            close = f" Did you mean '--{closest[0]}'?"
        else:
            close = did_you_mean(f"--{name}", [f"--{known}" for known in self.flags])
        raise ConfigError(f"Unknown flag --{flag}.{close} `{prog} --help` lists all.")


def _with_parts(config: T, prefix: str, named: Sequence[str]) -> T:
    """Return ``config`` with the optional dataclasses created that flags set."""
    made: dict[str, Any] = {}
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(cast(Any, config)):
        inside = f"{prefix}{field.name}."
        if not field.init or not any(name.startswith(_dashed(inside)) for name in named):
            continue
        value = getattr(config, field.name)
        if value is None:
            parts = [arg for arg in get_args(hints[field.name]) if dataclasses.is_dataclass(arg)]
            if len(parts) != 1 or not isinstance(parts[0], type):
                continue
            try:
                value = parts[0]()
            except TypeError:  # it has fields without defaults; tyro reports the flag as unknown
                continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            made[field.name] = _with_parts(value, inside, named)
    return cast(T, dataclasses.replace(cast(Any, config), **made)) if made else config


def _without_parts(config: T, argv: Sequence[str]) -> tuple[T, list[str]]:
    """Return ``config`` without the optional parts that a flag sets to None; the other flags."""
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        flag, equals, value = word.partition("=")
        none = value == "None" if equals else words[:1] == ["None"]
        path = flag[2:].replace("-", "_").split(".") if flag.startswith("--") else []
        if not none or not path or not _is_optional_part(config, path):
            rest.append(word)
            continue
        if not equals:
            words.pop(0)
        config = _put(config, path, None)
    return config, rest


def _is_optional_part(config: Any, path: Sequence[str]) -> bool:
    """Return whether a path of fields leads to a part that can be None."""
    for name in path[:-1]:
        config = getattr(config, name, None)
    if not dataclasses.is_dataclass(config):
        return False
    kinds = get_args(get_type_hints(type(config)).get(path[-1]))
    return type(None) in kinds and any(map(dataclasses.is_dataclass, kinds))


def _put(config: Any, path: Sequence[str], value: Any) -> Any:
    name, *inside = path
    inner = _put(getattr(config, name), inside, value) if inside else value
    return dataclasses.replace(config, **{name: inner})


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _negated(name: str) -> str:
    """Return the flag that sets a boolean to false: ``part.no-field``."""
    part, dot, field = name.rpartition(".")
    return f"{part}{dot}no-{field}"


def _one_line(box: str) -> str:
    """Return the message of a box that tyro drew, without its title and the help below."""
    paragraphs: list[list[str]] = [[]]
    lines = _ANSI.sub("", box).strip("\n").splitlines()
    for line in lines:
        text = line.strip().strip("│").strip()
        if text.startswith(("╭", "──", "╰", "---")):
            paragraphs.append([])
        elif text:
            paragraphs[-1].append(text)
    # The title is part of the frame, or a separate paragraph if tyro draws in ASCII; the paragraph
    # before the first rule is empty in the first case and the title in the second.
    message = " ".join(paragraphs[1] if len(paragraphs) > 1 else paragraphs[0]).replace(" .", ".")
    message = _NO_TYPE.sub(_expected_type, _NO_NUMBER.sub(_expected_number, message))
    message = re.sub(r"^Error parsing (--)", r"\1", message)
    # tyro adds the name of a dataclass that refused a combination of values, which does not help.
    message = re.sub(r"^Error parsing [A-Z]\w*: ", "", message)
    return f"{(message or 'The flags cannot be read').rstrip('.')}."


def _expected_type(found: re.Match[str]) -> str:
    none, *others = sorted(found[1].split("|"), key="{None}".__ne__)
    kinds = [*others, none] if none == "{None}" else [none, *others]
    named = " or ".join(_KINDS.get(kind, kind.strip("{}")) for kind in kinds)
    return f"expected {named}, found {found[2][1:-1]}"


def _expected_number(found: re.Match[str]) -> str:
    kind = "INT" if found[1] else "FLOAT"
    return f"expected {_KINDS[kind]}, found {found[3]}"
