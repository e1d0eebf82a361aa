"""The id by which ``verifiers`` finds our environments: it takes top-level packages alone."""

from __future__ import annotations

from typing import Any

__all__ = ["CreditRLEnv", "CreditRLHarness", "CreditRLTaskset"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from creditrl.integrations import verifiers

        return getattr(verifiers.classes(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
