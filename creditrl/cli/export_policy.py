"""``creditrl export policy RUN --to FOLDER``: the trained policy, for others to load."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from creditrl.cli.console import next_step, wrote
from creditrl.cli.options import require_training, short_name, show_plugins_left
from creditrl.errors import ConfigError
from creditrl.flags import override

__all__ = ["run"]

_COMMAND = "creditrl export policy RUN"


@dataclass(frozen=True, slots=True)
class ExportPolicyOptions:
    """Write the policy of a training run to a folder that transformers, vLLM and peft load.

    RUN is the folder of the run. A model card (README.md) says how the policy came about.
    """

    to: str | None = None
    """The new folder."""
    which: Literal["last", "best"] = "last"
    """As it last stood, or as it was best on the validation split."""
    merge: bool = False
    """Fold adapters (LoRA) into the weights. This is what happens without ``--adapter``."""
    adapter: bool = False
    """Keep adapters apart; their base model lies in ``base/`` where training moved it."""
    overwrite: bool = False
    """Replace ``--to`` where it is a folder of a policy."""
    plugin: tuple[str, ...] = ()
    """Modules or files to import that register further methods. Those that the run's config names
    are somebody's code: they are imported where they are named here."""
    trust: bool = False
    """Import all plugins that the run's config names."""


def run(argv: list[str]) -> int:
    """Run ``export policy``."""
    if argv and argv[0] in ("-h", "--help"):
        override(ExportPolicyOptions(), ["--help"], _COMMAND)
    if len(argv) < 2 or argv[0] != "policy" or argv[1].startswith("-"):
        if argv[:1] == ["policy"] and {"-h", "--help"} & set(argv):
            override(ExportPolicyOptions(), ["--help"], _COMMAND)
        raise ConfigError(f"What is exported? Expected `{_COMMAND} --to FOLDER`.")
    options = override(ExportPolicyOptions(), argv[2:], _COMMAND)
    if options.to is None:
        raise ConfigError(f"Where to? Expected `creditrl export policy {argv[1]} --to FOLDER`.")
    if options.merge and options.adapter:
        raise ConfigError("--merge and --adapter: expected one of them.")
    require_training()
    from creditrl.config import read_toml, setting
    from creditrl.trainers.export import export_policy

    form = export_policy(
        argv[1],
        options.to,
        which=options.which,
        adapter=options.adapter,
        overwrite=options.overwrite,
        trust=options.trust,
        plugins=options.plugin,
    )
    what = {"full": "all weights", "merged": "adapters merged", "adapter": "adapters alone"}[form]
    print(f"The policy of {argv[1]} ({options.which}): {what}, with its model card.")
    wrote(options.to)
    config = read_toml(f"{argv[1]}/config.toml")
    if not options.trust:
        show_plugins_left(config, options.plugin)
    env_id = setting(config, "env.id", "ID")
    words = ["creditrl", "eval", short_name(env_id), "--agent", f"hf:{options.to}"]
    prompt_form = setting(config, "rollout.form", "plain")
    next_step(shlex.join(words + (["--form", prompt_form] if prompt_form != "plain" else [])))
    return 0
