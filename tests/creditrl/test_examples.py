"""The examples that need no other package run, with smaller numbers: notebooks, a one-file GRPO.

Notebooks run in a kernel (nbclient, ipykernel) and not by ``exec``: the live curve and the tables
are what a notebook's display makes of them.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _kernel_draws_inline(monkeypatch) -> None:
    """Let the kernel choose its own plotting backend, as it does for a user."""
    monkeypatch.delenv("MPLBACKEND", raising=False)


def outputs_of(name: str, folder: Path, shorter: dict[str, str]) -> list[Any]:
    """Run a notebook in a folder, with smaller numbers, and return its cells' outputs."""
    text = (EXAMPLES / name).read_text("utf-8")
    for number, less in shorter.items():
        assert text.count(number) == 1, number
        text = text.replace(number, less)
    notebook = nbformat.reads(text, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def shown(outputs: list[Any], kind: str) -> list[Any]:
    return [output["data"][kind] for output in outputs if kind in output.get("data", {})]


def test_the_notebook_of_an_agent_compares_it_with_the_baselines(tmp_path):
    outputs = outputs_of("benchmark_an_agent.ipynb", tmp_path, {})
    assert len(shown(outputs, "text/html")) == 2  # a table for each agent
    (report,) = shown(outputs, "text/markdown")
    baselines = (f"{name} (baseline)" for name in ("random", "expert", "small policy"))
    for agent in ("Shopper", "act", *baselines):
        assert f"| {agent} |" in report


@pytest.mark.slow
def test_the_notebook_of_a_method_draws_its_curve_and_its_credit(tmp_path):
    less = {r"{\"updates\": 20}": r"{\"updates\": 2}", r"\"levels\": 100": r"\"levels\": 16"}
    outputs = outputs_of("write_a_credit_method.ipynb", tmp_path, less)
    assert len(shown(outputs, "image/png")) == 2  # the live curve, the credit
    assert any("after late" in page for page in shown(outputs, "text/html"))
    printed = "".join(output["text"] for output in outputs if "text" in output)
    assert "late +1.00" in printed
    assert (tmp_path / "runs" / "late" / "results.json").is_file()


def test_notebooks_are_committed_without_outputs():
    for path in EXAMPLES.glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            assert not (cell.get("outputs") or cell.get("execution_count")), path


@pytest.mark.slow
def test_the_one_file_grpo_trains_and_stays_short(capsys):
    path = EXAMPLES / "one_file_grpo.py"
    assert len(path.read_text().splitlines()) < 300
    made = runpy.run_path(str(path))
    small = {"demonstrations": 16, "clone_updates": 4, "groups": 2, "group_size": 4}
    found = made["train"](made["Config"](updates=1, eval_levels=8, **small))
    assert "update 1, " in capsys.readouterr().out
    assert {name: set(ways) for name, ways in found.items()} == {
        "cloned": {"sampled", "greedy"},
        "trained": {"sampled", "greedy"},
    }
