"""The cache of a model, by the name that its release gives it."""

from __future__ import annotations

from typing import Any

from creditrl.agents.kv_cache import cache_of


class NewOutput(dict[str, Any]):
    """The output of a new release for a pass without a cache: fields that are None are absent."""

    cache = None

    @property
    def past_key_values(self) -> None:
        raise AssertionError("the old name warns")


def test_an_output_without_a_cache_gives_none() -> None:
    assert cache_of(NewOutput()) is None
