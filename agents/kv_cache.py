"""The key-value cache of a model; transformers' releases have two names for its argument."""

from __future__ import annotations

import functools
import inspect
from typing import Any

__all__ = ["cache_argument", "cache_of"]


def cache_argument(model: Any, cache: Any) -> dict[str, Any]:
    """Return the argument of ``forward`` that gives a model its cache.

    It is ``cache`` since 5.24 at the latest; ``past_key_values`` warns, and will be gone in 5.40.

    Args:
        model: the model itself, without adapters around it.
        cache: the cache, or None.
    """
    return {_name(type(model).forward): cache}


def cache_of(output: Any) -> Any:
    """Return the cache in the output of a forward pass."""
    # An output lacks fields that are None, and new releases warn about the old name.
    return output.cache if hasattr(output, "cache") else output.past_key_values


@functools.cache
def _name(forward: Any) -> str:
    known = inspect.signature(forward).parameters
    return "cache" if "cache" in known else "past_key_values"
