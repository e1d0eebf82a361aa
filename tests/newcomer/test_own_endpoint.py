"""A new user with their own chat endpoint."""

from __future__ import annotations

import re
from typing import Any

import pytest

PAGE = "docs/guides/benchmark.md"


def answer(body: dict[str, Any]) -> str:
    """Reply in the requested format with the last listed action."""
    listed = re.findall(r"admissible actions are: \[(.*?)\]", body["messages"][-1]["content"])[-1]
    return f"<think>Why not.</think><action>{listed.split(', ')[-1].strip(chr(39))}</action>"


@pytest.mark.slow
def test_an_endpoint_is_measured_reported_and_viewed(newcomer, endpoint):
    endpoint.answer = answer
    *_, block = newcomer.blocks(PAGE, "bash")
    measure, report, view = block.splitlines()
    told = newcomer.types(measure.replace("http://127.0.0.1:8000/v1", endpoint.url))
    assert {body["model"] for body in endpoint.requests} == {"NAME"}
    assert re.search(r"grounding accuracy % .* 100\.0 ", told)
    assert f"Next: {view}" in told.splitlines()
    newcomer.types(report)
    assert "chat:NAME" in (newcomer.folder / "runs/report/1/report.md").read_text("utf-8")
    newcomer.types(f"{view} --export page.html")
    assert "Why not." in (newcomer.folder / "page.html").read_text("utf-8")
