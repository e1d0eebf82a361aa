"""``creditrl data ls | get NAME``: official data, where it lies and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from creditrl.cli.console import console, next_step, table
from creditrl.envs.tasks import data_home
from creditrl.errors import ConfigError, UnknownNameError, did_you_mean
from creditrl.flags import override

__all__ = ["OFFICIAL_DATA", "OfficialData", "run"]


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
    """What the folder holds, a line each."""
    fetch: tuple[str, ...]
    """What the user does to get it, a line each."""
    example: str
    """A command that uses it."""


OFFICIAL_DATA: tuple[OfficialData, ...] = (
    OfficialData(
        env="VisualSokoban",
        home="sokoban",
        what="Boxoban levels (10x10, 4 boxes), or any XSB level files of your own",
        source="github.com/google-deepmind/boxoban-levels",
        licence="Apache-2.0",
        patterns=("**/*.txt", "**/*.xsb", "**/*.sok"),
        layout=(
            "unfiltered/{train,valid,test}/*.txt",
            "medium/{train,valid}/*.txt",
            "hard/*.txt",
            "or any *.txt, *.xsb files of levels in one folder",
        ),
        fetch=(
            "git clone --depth 1 https://github.com/google-deepmind/boxoban-levels {folder}",
            "or put level files of your own there.",
        ),
        example="creditrl play VisualSokoban --tier boxoban --data official",
    ),
)


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Say which official data is there (`ls`) or how to get it (`get NAME`)."""

    folder: str | None = None
    """Look here instead of the environment's own folder."""


def run(argv: list[str]) -> int:
    """Run ``data ls`` or ``data get NAME``."""
    if not argv or argv[0] in ("-h", "--help"):
        override(DataOptions(), ["--help"], "creditrl data ls | get NAME")
    action, *rest = argv
    if action == "ls":
        return _ls(override(DataOptions(), rest, "creditrl data ls"))
    if action == "get":
        if not rest or rest[0].startswith("-"):
            known = ", ".join(data.env.lower() for data in OFFICIAL_DATA)
            raise ConfigError(f"Which data? Expected `creditrl data get NAME`; known: {known}.")
        return _get(rest[0], override(DataOptions(), rest[1:], "creditrl data get NAME"))
    raise UnknownNameError(
        f"No data command {action!r}.{did_you_mean(action, ('ls', 'get'))} Known: ls, get."
    )


def _ls(options: DataOptions) -> int:
    rows = table("environment", "official data", "folder", ">files", ">size")
    for data in OFFICIAL_DATA:
        folder = data_home(data.home, options.folder)
        files = _files(data, folder)
        size = sum(path.stat().st_size for path in files)
        rows.add_row(
            data.env,
            data.what,
            str(folder) + ("" if folder.is_dir() else " (not there)"),
            f"{len(files):,}",
            _bytes(size),
        )
    console().print(rows)
    print("No environment needs a download: data=builtin, the default, makes its own tasks.")
    next_step(f"creditrl data get {OFFICIAL_DATA[0].env.lower()}")
    return 0


def _get(name: str, options: DataOptions) -> int:
    by_name = {key: data for data in OFFICIAL_DATA for key in (data.env.lower(), data.home)}
    data = by_name.get(name.lower())
    if data is None:
        raise UnknownNameError(
            f"No official data named {name!r}.{did_you_mean(name.lower(), by_name)} "
            f"Known: {', '.join(by_name)}."
        )
    folder = data_home(data.home, options.folder)
    files = _files(data, folder)
    print(f"{data.env} plays levels of its own making; there is nothing that it must download.")
    print(f"It also reads: {data.what}.")
    print(f"Source: {data.source} ({data.licence}).")
    print(f"Folder: {folder} (or $CREDITRL_{data.home.upper()}_DATA, or data_dir=...), holding")
    for line in data.layout:
        print(f"  {line}")
    if files:
        size = _bytes(sum(path.stat().st_size for path in files))
        print(f"There now: {len(files):,} files, {size}.")
        next_step(data.example)
        return 0
    print("There now: nothing. To get it:")
    for line in data.fetch:
        print(f"  {line.format(folder=folder)}")
    next_step("creditrl data ls")
    return 0


def _files(data: OfficialData, folder: Path) -> list[Path]:
    return sorted({path for pattern in data.patterns for path in folder.glob(pattern)})


def _bytes(size: int) -> str:
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
