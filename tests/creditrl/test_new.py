"""``creditrl new``: the generated packages work in place and installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import by_python

from creditrl.templates import render

ROOT = Path(__file__).parents[2]


def python(folder: Path, *words: str) -> str:
    """Run a module in a folder and return its output."""
    done = by_python("-m", *words, cwd=folder)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_an_installed_package_needs_no_plugin_and_is_found_beside_its_folder(tmp_path):
    python(tmp_path, "creditrl.cli", "new", "env", "my-stairs")
    package, site = tmp_path / "my-stairs", tmp_path / "site"
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--editable")
    python(tmp_path, "pip", "install", "--target", str(site), *options, str(package))
    words = ["train", f"@{package / 'my_stairs.toml'}", "--budget.updates=2", "--run.folder=run"]
    words += ["--eval.levels=4", "--eval.no-greedy"]
    made = (
        f"import site; site.addsitedir({str(site)!r})\n"
        f"from creditrl.cli import run; assert run({words}) == 0\n"
        "import gymnasium as gym\n"
        "print(gym.make('my_stairs:Mine/MyStairs-v0').reset(seed=0)[0])"
    )
    done = by_python("-c", made, cwd=tmp_path)
    assert "after grpo" in done.stdout and "step 0" in done.stdout, done.stderr


def test_the_guides_show_the_generated_files():
    for page, kind, name in (
        ("add-an-environment", "env", "stairs"),
        ("add-a-method", "method", "winners-only"),
    ):
        guide = (ROOT / "docs" / "guides" / f"{page}.md").read_text("utf-8")
        template = (ROOT / "creditrl" / "templates" / f"{kind}.py.txt").read_text("utf-8")
        assert f"```python\n{render(template, kind, name)}```" in guide
