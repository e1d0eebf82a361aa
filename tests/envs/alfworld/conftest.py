"""ALFWorld's tests do not use the user's cache."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDITRL_CACHE", str(tmp_path_factory.mktemp("cache")))
    for name in ("CREDITRL_ALFWORLD_DATA", "ALFWORLD_DATA"):
        monkeypatch.delenv(name, raising=False)
