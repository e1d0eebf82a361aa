"""``creditrl data export``: builtin tasks in the benchmark's own files; a run for `datasets`."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from creditrl.cli.console import next_step
from creditrl.errors import ConfigError
from creditrl.flags import override
from creditrl.view.progress import Progress, counted

__all__ = ["run"]

_COMMAND = "creditrl data export"


def run(argv: list[str]) -> int:
    """Run ``data export NAME``: an environment whose tasks have files, or ``trajectories``."""
    exports: dict[str, Callable[[list[str]], int]] = {
        "alfworld": _alfworld,
        "webshop": _webshop,
        "trajectories": _trajectories,
    }
    if argv and argv[0] in ("-h", "--help"):
        from creditrl.envs.alfworld.export import ExportOptions

        override(ExportOptions(), ["--help"], f"{_COMMAND} {' | '.join(exports)}")
    if not argv or argv[0].lower() not in exports:
        named = argv and not argv[0].startswith("-")
        found = f"The tasks of {argv[0]!r} have no such files." if named else "Which tasks?"
        raise ConfigError(
            f"{found} Expected `{_COMMAND} NAME --folder F`; known: {', '.join(exports)}."
        )
    return exports[argv[0].lower()](argv[1:])


def _alfworld(argv: list[str]) -> int:
    from creditrl.envs.alfworld.export import ExportOptions, run_export

    options = override(ExportOptions(), argv, f"{_COMMAND} alfworld")

    with Progress() as progress:
        show = progress.phase("export", updates=options.tasks or None, counted=counted("games"))
        written = run_export(options, show)
    split = written[0].parents[2]
    print(f"Wrote {len(written):,} games below {split}.")
    home = shlex.quote(str(split.parent.parent))
    print(f"TextWorld plays each game.tw-pddl; alfworld plays them all with ALFWORLD_DATA={home}.")
    next_step(f"creditrl play ALFWorld --data official --data-dir {home} --split {options.split}")
    return 0


def _trajectories(argv: list[str]) -> int:
    from creditrl.cli.export_run import run as export_run

    return export_run(argv)


def _webshop(argv: list[str]) -> int:
    from creditrl.envs.webshop.export import ShopExportOptions, export_shop

    options = override(ShopExportOptions(), argv, f"{_COMMAND} webshop")
    for path in export_shop(options):
        print(f"Wrote {path}.")
    print(
        "Upstream plays them from its data folder, once its search_engine scripts have indexed "
        "them."
    )
    home = shlex.quote(str(path.parent))
    next_step(
        f"creditrl play WebShop --data official --data-dir {home} "
        f"--num-products {options.num_products}"
    )
    return 0
