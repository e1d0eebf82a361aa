"""``creditrl data export NAME``: builtin tasks as files of the benchmark's own format."""

from __future__ import annotations

import shlex

from creditrl.cli.console import next_step
from creditrl.errors import ConfigError
from creditrl.flags import override
from creditrl.view.progress import Progress

__all__ = ["run"]

_COMMAND = "creditrl data export alfworld"


def run(argv: list[str]) -> int:
    """Run ``data export NAME``; ALFWorld is the one whose tasks have files of their own kind."""
    from creditrl.envs.alfworld.export import ExportOptions, run_export

    if argv and argv[0] in ("-h", "--help"):
        override(ExportOptions(), ["--help"], _COMMAND)
    if not argv or argv[0].lower() != "alfworld":
        named = argv and not argv[0].startswith("-")
        found = f"The tasks of {argv[0]!r} have no such files." if named else "Which tasks?"
        raise ConfigError(f"{found} Expected `{_COMMAND} --folder F`; known: alfworld.")
    options = override(ExportOptions(), argv[1:], _COMMAND)

    def games(done: int, total: int | None) -> str:
        return f"{done:,} games" if total is None else f"{done:,}/{total:,} games"

    with Progress() as progress:
        show = progress.phase("export", updates=options.tasks or None, counted=games)
        written = run_export(options, show)
    split = written[0].parents[2]
    print(f"Wrote {len(written):,} games below {split}.")
    home = shlex.quote(str(split.parent.parent))
    print(f"TextWorld plays each game.tw-pddl; alfworld plays them all with ALFWORLD_DATA={home}.")
    next_step(f"creditrl play ALFWorld --data official --data-dir {home} --split {options.split}")
    return 0
