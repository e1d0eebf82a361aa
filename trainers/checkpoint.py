"""Checkpoints: atomic folders from which a run goes on to the same next update.

Tasks, episodes, sampling and minibatches of an update follow from (seed, update) alone, so a
checkpoint holds weights, optimizer states, learned models and counters, and no generator state.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from creditrl.errors import CheckpointError

__all__ = ["FORMAT", "latest_checkpoint", "load_checkpoint", "save_checkpoint"]

FORMAT = 1
"""Layout of a checkpoint folder; one of another layout is refused."""
_META = "checkpoint.json"
_STATE = "state.pt"


def save_checkpoint(
    folder: Path, update: int, state: Mapping[str, Any], meta: Mapping[str, Any], keep: int
) -> Path:
    """Write ``folder/update_000123`` whole or not at all; then remove all but the newest ``keep``.

    Args:
        folder: the run's folder of checkpoints.
        update: updates done.
        state: tensors and plain values (``torch.save``, read back with ``weights_only``).
        meta: plain values for ``checkpoint.json``: counters, method, config hash.
        keep: checkpoints that stay, at least 1.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"update_{update:06d}"
    partial = folder / f".partial_{update:06d}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    torch.save(dict(state), partial / _STATE)
    (partial / _META).write_text(
        json.dumps({"format": FORMAT, "update": update, **meta}, indent=1) + "\n"
    )
    for path in partial.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    for old in sorted(folder.glob("update_*"))[: -max(1, keep)]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint of a run, or None."""
    found = sorted(path for path in folder.glob("update_*") if (path / _META).is_file())
    return found[-1] if found else None


def load_checkpoint(path: Path, expect: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (state, meta) of a checkpoint.

    Args:
        path: what :func:`save_checkpoint` returned.
        expect: entries that ``checkpoint.json`` must have, e.g. the method.

    Raises:
        CheckpointError: it is of another layout, of another method, or damaged.
    """
    try:
        meta = json.loads((path / _META).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path / _META} cannot be read ({error}): remove this checkpoint to resume from an "
            "earlier one."
        ) from error
    if meta.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {meta.get('format')!r}, this version of CreditRL reads "
            f"format {FORMAT}: resume with the version in the run's versions.json, or start anew."
        )
    for name, value in expect.items():
        if meta.get(name) != value:
            raise CheckpointError(
                f"{path} was written with {name} = {meta.get(name)!r}, this run has {value!r}: "
                "resume without flags that change what is trained (--budget.*, --eval.* and "
                "--run.* but the seed may change), or start a new run."
            )
    try:
        state = torch.load(path / _STATE, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointError(
            f"{path / _STATE} is damaged ({type(error).__name__}): remove this checkpoint to "
            "resume from an earlier one."
        ) from error
    return state, meta
