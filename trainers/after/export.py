"""Export of a run's trained policy to a folder that other tools load."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

from creditrl.agents.prompting import Prompting
from creditrl.config import read_toml
from creditrl.errors import ConfigError, DataError, RunFolderError
from creditrl.files import write_atomic
from creditrl.outside_json import read_object_file
from creditrl.runs import RunFolder
from creditrl.trainers.after.model_card import CardFacts, model_card
from creditrl.trainers.build import load_policy
from creditrl.trainers.config import TrainConfig, resolve
from creditrl.trainers.methods.base import method_info
from creditrl.trainers.models.lora import has_lora
from creditrl.trainers.models.policy import Policy

__all__ = ["export_policy"]

_ADAPTER_CONFIG = "adapter_config.json"


def export_policy(
    run: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    which: Literal["last", "best"] = "last",
    adapter: bool = False,
    overwrite: bool = False,
    trust: bool = False,
) -> str:
    """Write a run's policy and its model card to a folder, atomically.

    Args:
        run: the folder of a training run.
        to: the new folder.
        which: the last weights, or the best ones on the validation split.
        adapter: keep LoRA adapters separate, together with their base model if it cannot be loaded
            from elsewhere; otherwise they are merged into the weights.
        overwrite: replace ``to`` if it is already such a folder.
        trust: import the plugins that the run's config names.

    Returns:
        ``"full"``, ``"merged"`` or ``"adapter"``: what was written.

    Raises:
        DataError: there is no such run, or it has no such policy.
        ConfigError: ``adapter`` for a policy that has none.
        RunFolderError: ``to`` exists and may not be replaced.
    """
    target = Path(to).expanduser()
    folder = RunFolder.open(run)
    path = folder.path / "config.toml"
    config = resolve(read_toml(path), [], str(path), "creditrl export", trust=trust)
    _check_target(target, overwrite)
    policy = _policy(config, folder, which)
    adapted = has_lora(policy.model)
    if adapter and not adapted:
        raise ConfigError(
            f"{folder.path} trained all weights, so there is no adapter: leave --adapter out."
        )
    form = "adapter" if adapter else "merged" if adapted else "full"
    own_base = policy.has_own_base if adapter else False
    if form == "merged":
        policy = policy.merged()
    policy.base.generation_config.max_new_tokens = config.rollout.max_new_tokens
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        policy.save(draft)
        rollout = config.rollout
        asked = (rollout.form, rollout.actions, rollout.stop, rollout.recent_images)
        Prompting(*asked).write(draft)
        if own_base:
            _name_base(draft / _ADAPTER_CONFIG, str((target / "base").resolve()))
        try:
            facts = _facts(config, folder, which, form)
            card = model_card(replace(facts, own_base=own_base))
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise DataError(
                f"{folder.path}: this version of CreditRL cannot read its results.json or "
                f"versions.json ({error!r}), so no model card can be made."
            ) from None
        write_atomic(draft / "README.md", card)
        if target.exists():
            shutil.rmtree(target)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return form


def _check_target(target: Path, overwrite: bool) -> None:
    """Raise if the target exists and may not be replaced."""
    if not target.exists() and not target.is_symlink():
        return
    if not overwrite:
        raise RunFolderError(
            f"{target} exists; nothing was overwritten. Choose another --to, or --overwrite."
        )
    policy = any((target / name).is_file() for name in ("config.json", _ADAPTER_CONFIG))
    if target.is_symlink() or not target.is_dir() or not (policy or not any(target.iterdir())):
        raise RunFolderError(
            f"{target} is not the folder of an exported policy, so --overwrite does not replace "
            "it: choose another --to."
        )


def _policy(config: TrainConfig, folder: RunFolder, which: str) -> Policy:
    saved = folder.path / "policy" / which
    if saved.is_dir():
        return Policy.load(saved, dtype="auto", device="cpu")
    if which == "best":
        raise DataError(
            f"{folder.path} has no best policy: a run selects one, on the validation split, only "
            "if eval.every or eval.every_turns is set. Export --which last."
        )
    # An unfinished run has its weights only in its newest checkpoint.
    on_cpu = replace(config, policy=replace(config.policy, device="cpu"))
    return load_policy(on_cpu, folder)[0]


def _name_base(path: Path, base: str) -> None:
    """Write the location of an adapter's base model into its config.

    The adapter belongs to base weights that training changed. peft writes the name of the initial
    model, on which the adapter would silently give another policy.
    """
    settings = read_object_file(path)
    write_atomic(path, json.dumps({**settings, "base_model_name_or_path": base}, indent=2) + "\n")


def _facts(config: TrainConfig, folder: RunFolder, which: str, form: str) -> CardFacts:
    results = folder.read_results()
    made_by = read_object_file(folder.path / "versions.json")
    commands = (folder.path / "command.txt").read_text("utf-8").splitlines()
    # A run saves its last and its best policy; the card has the evaluations of only this one.
    moment = "after" if which == "last" else "best"
    found = results.get("evaluations", {})
    shown = {
        name: ways for name, ways in found.items() if name.partition("@")[0] in ("before", moment)
    }
    finished = results.get("finished", {})
    recipes = [word for line in commands for word in shlex.split(line) if word.startswith("@")]
    info = method_info(config.method.name)
    return CardFacts(
        name=f"{config.run.name}, {which}",
        base_model=config.policy.model,
        form=form,
        which=which,
        update=finished.get("updates"),
        method=info.name,
        paper=info.paper,
        recipe=recipes[0] if recipes else config.run.name,
        environment=config.env.id,
        prompt_form=config.rollout.form,
        max_new_tokens=config.rollout.max_new_tokens,
        seeds=[config.run.seed],
        evaluations=shown,
        own_base=False,
        commands=commands,
        commit=made_by.get("commit"),
        versions={"creditrl": made_by["creditrl"], **made_by.get("packages", {})},
    )
