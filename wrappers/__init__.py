"""Wrappers: a grounding signal, state hashes, replies to actions, prompts, images, records.

Each wraps one environment and, as ``Vector...``, a vector of them. They are imported on first use.
A usual stack, inside to outside::

    env = Grounding(StateHash(env))
    env = ReActAction(env, form="tags")
    env = RecordTrajectory(History(env, form="tags"))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from creditrl.wrappers.grounding import Grounding, VectorGrounding
    from creditrl.wrappers.history import History, VectorHistory
    from creditrl.wrappers.image_text import ImageText, VectorImageText
    from creditrl.wrappers.react import ReActAction, VectorReActAction
    from creditrl.wrappers.record import RecordTrajectory, VectorRecordTrajectory
    from creditrl.wrappers.state_hash import StateHash, VectorStateHash

__all__ = [
    "Grounding",
    "History",
    "ImageText",
    "ReActAction",
    "RecordTrajectory",
    "StateHash",
    "VectorGrounding",
    "VectorHistory",
    "VectorImageText",
    "VectorReActAction",
    "VectorRecordTrajectory",
    "VectorStateHash",
]

_MODULES = {
    "Grounding": "grounding",
    "History": "history",
    "ImageText": "image_text",
    "ReActAction": "react",
    "RecordTrajectory": "record",
    "StateHash": "state_hash",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name.removeprefix("Vector"))
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
