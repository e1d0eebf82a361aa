"""The guide's TRL example runs as printed, with a model made by the test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "integrations.md"


@pytest.mark.slow
@pytest.mark.reference("trl")
@pytest.mark.filterwarnings("ignore")
def test_the_example_of_trl_trains(small_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(
        r"<!-- run by: integrations -->\n```python\n(.*?)```", GUIDE.read_text("utf-8"), re.S
    )
    short = "max_steps=1, use_cpu=True, report_to=[], per_device_train_batch_size=8"
    for old, new in (
        ('"Qwen/Qwen3-0.6B"', '"model"'),
        ("max_steps=200", short),
        ("max_completion_length=2048", "max_completion_length=8"),
    ):
        assert old in code
        code = code.replace(old, new)
    names: dict[str, Any] = {}
    exec(compile(code, "integrations.md", "exec"), names)
    (line,) = [row for row in names["trainer"].state.log_history if "train_loss" in row]
    assert line["step"] == 1
