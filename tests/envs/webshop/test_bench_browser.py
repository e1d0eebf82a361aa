"""The measurements of the browser run, at tiny sizes; nothing here asserts a speed."""

from __future__ import annotations

import pytest

from creditrl.envs.webshop.bench_browser import browser_contests
from creditrl.measure import run_rounds


@pytest.mark.slow
@pytest.mark.chromium
def test_every_measurement_of_the_browser_gives_figures() -> None:
    figures = run_rounds(browser_contests(tiny=True), rounds=1)
    assert set(figures) == {"browser_episode", "browser_step", "browser_picture", "browser_start"}
    for name, sides in figures.items():
        assert sides["ours"].median > 0, name


def test_without_chromium_there_is_nothing_to_measure(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert browser_contests() == []
