"""A benchmark's own files: what they are, where they lie, what ``creditrl data get`` fetches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from creditrl.envs.tasks import Coverage, data_home

__all__ = ["Archive", "DataExport", "OfficialData", "PlainFile"]


@dataclass(frozen=True, slots=True)
class Archive:
    """One zip of a release."""

    path: str
    """Where it lies below the base address, e.g. ``"0.2.2/games.zip"``."""
    size: int | None = None
    """Bytes; None: not known."""
    sha256: str | None = None
    """Checksum; None: not known, and then that of the first download is kept and demanded."""

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class PlainFile:
    """One file of a release that is used as it comes."""

    path: str
    """Where it goes below the folder, and lies below the address of a mirror."""
    url: str
    """The makers' own address of it."""
    size: int
    sha256: str
    elsewhere: str = ""
    """Advice for the user where the original server refuses the download."""

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class OfficialData:
    """The files of a benchmark's own that an environment can read."""

    env: str
    """Short name of the environment."""
    home: str
    """Name of the folder, as :func:`creditrl.envs.tasks.data_home` takes it."""
    what: str
    source: str
    licence: str
    patterns: tuple[str, ...]
    """Globs below the folder that count as data."""
    layout: tuple[str, ...]
    """Contents of the folder, a line each."""
    example: str
    """A command that uses it."""
    variables: tuple[str, ...]
    """Environment variables that name the folder."""
    holds: Callable[[Path], bool]
    """Whether a folder holds this data."""
    coverage: Callable[[Path], Sequence[Coverage]]
    """Says how much of what is published lies in a folder; it takes seconds at most."""
    fetch: tuple[str, ...] = ()
    """Steps for the user to get it, a line each; empty where ``get`` does it."""
    base_url: str = ""
    """Address that the archives lie below."""
    releases: Mapping[str, tuple[Archive | PlainFile, ...]] = field(default_factory=dict)
    """Parts that ``get`` fetches, by release, the default first; empty: nothing is fetched."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Commands that use a release, where they differ from :attr:`example`."""
    locate: Callable[[str | None], Path] | None = None
    """Folder for the user's argument; None: :func:`creditrl.envs.tasks.data_home` decides."""
    survey: Callable[[Path], tuple[dict[str, int], list[Path]]] | None = None
    """Counts the tasks by split and finds the folders of damaged ones; it may take a while."""
    full: Mapping[str, int] = field(default_factory=dict)
    """The counts of a complete release."""

    def folder(self, argument: str | None) -> Path:
        """Return the folder of this data."""
        if self.locate is not None:
            return self.locate(argument)
        return data_home(self.home, argument)


@dataclass(frozen=True, slots=True)
class DataExport:
    """Export of builtin tasks as files of the benchmark's own, for ``creditrl data export``."""

    options: type[Any]
    """A frozen dataclass of what may be chosen, made without arguments; its fields are flags."""
    write: Callable[[Any, Callable[[int], None]], list[Path]]
    """Writes what the options ask for, saying how many are done, and returns the files."""
    told: Callable[[Any, list[Path]], tuple[str, str]]
    """Returns what is said then, and the next command."""
    counted: str = ""
    """What is counted on the way, e.g. ``"games"``, up to the options' ``tasks`` where that is not
    0; empty: it is done at once."""
