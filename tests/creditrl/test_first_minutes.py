"""First steps of a new user with the core package alone, as the guide describes them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from programs import by_python

from creditrl._origin import install_command

ROOT = Path(__file__).parents[2]
PART = (ROOT / "docs/guides/benchmark.md").read_text("utf-8")
EXTRAS = (
    *("torch", "transformers", "pyarrow", "matplotlib", "httpx", "starlette", "uvicorn"),
    *("zensical", "selenium", "pettingzoo", "numba"),
)


def creditrl(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command where the packages of extras cannot be imported."""
    code = (
        "import importlib.util, sys\n"
        f"missing = {EXTRAS!r}\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in missing:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n, *more: None if n in missing else find(n, *more)\n"
        "from creditrl.cli import run\n"
        f"sys.exit(run({list(words)!r}))\n"
    )
    return by_python("-c", code, cwd=folder, timeout=900)


def test_the_readmes_agent_is_measured_on_all_environments_by_the_core_package(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PART, re.S)[:1]
    assert len(code.strip().splitlines()) <= 12
    (tmp_path / "my_agent.py").write_text(code)
    commands = re.findall(r"^creditrl (eval --suite .*)$", PART, re.M)
    assert commands == ["eval --suite standard --agent my_agent.py:act"]
    done = creditrl(tmp_path, *commands[0].split(), "--episodes", "2")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "eval" / "standard-my_agent.act-1"
    results = [json.loads(path.read_text("utf-8")) for path in folder.glob("*-valid_unseen.json")]
    assert len(results) == 5 and all(r["num_episodes"] == 2 for r in results)
    assert all(r["failed"] == 0 for r in results)
    # What is to be done next is said, and what it lacks.
    following = done.stdout.splitlines()[-1].removeprefix("Next: creditrl ")
    assert following == "report runs/eval/standard-my_agent.act-1"
    reported = creditrl(tmp_path, *following.split())
    assert reported.returncode == 0 and install_command("view") in reported.stdout
    assert "small policy" in (tmp_path / "runs" / "report" / "1" / "report.md").read_text("utf-8")
    looked = creditrl(tmp_path, "view", "runs/eval/standard-my_agent.act-1")
    assert looked.returncode == 2
    assert f"Run: {install_command('view')}" in looked.stderr
