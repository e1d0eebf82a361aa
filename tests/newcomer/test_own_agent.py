"""A new user with their own agent: the core package is enough."""

from __future__ import annotations

import re

import pytest

PAGE = "docs/guides/benchmark.md"


@pytest.mark.slow
def test_from_the_guides_agent_to_a_report_beside_the_baselines(newcomer):
    before = newcomer.cpu_seconds()
    newcomer.saves("my_agent.py", newcomer.blocks(PAGE, "python")[0])
    suite, one, _ = (block.strip() for block in newcomer.blocks(PAGE, "bash"))
    told = newcomer.types(suite)
    assert len(re.findall(r"^ \w+-valid_unseen +100 .* 0 $", told, re.M)) == 5
    newcomer.goes_on(told)
    report = (newcomer.folder / "runs/report/1/report.md").read_text("utf-8")
    for row in ("my_agent.py:act", "random", "expert", "small policy"):
        assert row in report
    newcomer.types("creditrl report --leaderboard runs/eval/standard-*")
    assert "Leaderboard" in (newcomer.folder / "runs/report/2/report.md").read_text("utf-8")
    # CPU time does not depend on the machine's other load; a quarter is usual.
    assert newcomer.cpu_seconds() - before < 60
    told = newcomer.types(one)
    assert "256 episodes" in told and "grounding accuracy %" in told
