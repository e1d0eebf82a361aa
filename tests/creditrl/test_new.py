"""``creditrl new``: the packages that it writes work as they stand, and as they are installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import by_python

from creditrl.templates import render

ROOT = Path(__file__).parents[2]


def python(folder: Path, *words: str, path: Path | None = None) -> str:
    """Run a module in a folder and return what it says."""
    done = by_python("-m", *words, cwd=folder, env={"PYTHONPATH": str(path or "")}, timeout=900)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def installed(package: Path, target: Path, *options: str) -> Path:
    """Install a package alone, with what this environment has, and return where to."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", *options)
    words = ["pip", "install", "--target", str(target), *options, str(package)]
    python(package.parent, *words)
    return target


@pytest.mark.slow
def test_installed_it_needs_no_plugin(tmp_path):
    python(tmp_path, "creditrl.cli", "new", "method", "winners", "--folder", "mine/winners")
    site = installed(tmp_path / "mine" / "winners", tmp_path / "method")
    assert "winners" in python(tmp_path, "creditrl.cli", "methods", path=site)


@pytest.mark.slow
def test_an_editable_package_is_found_beside_its_folder(tmp_path):
    python(tmp_path, "creditrl.cli", "new", "env", "my-stairs")
    site = installed(tmp_path / "my-stairs", tmp_path / "site", "--editable")
    recipe = f"@{tmp_path / 'my-stairs' / 'my_stairs.toml'}"
    words = ["train", recipe, "--budget.updates=2", "--run.folder=run"]
    words += ["--eval.levels=4", "--eval.no-greedy"]
    made = (
        f"import site; site.addsitedir({str(site)!r})\n"
        f"from creditrl.cli import run; assert run({words}) == 0\n"
        "import gymnasium as gym\n"
        "print(gym.make('my_stairs:Mine/MyStairs-v0').reset(seed=0)[0])"
    )
    done = by_python("-c", made, cwd=tmp_path)
    assert "after grpo" in done.stdout and "step 0" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("page", "kind", "name"),
    [("add-an-environment", "env", "stairs"), ("add-a-method", "method", "winners-only")],
)
def test_the_guide_shows_what_is_written(page, kind, name):
    guide = (ROOT / "docs" / "guides" / f"{page}.md").read_text("utf-8")
    template = (ROOT / "creditrl" / "templates" / f"{kind}.py.txt").read_text("utf-8")
    assert f"```python\n{render(template, kind, name)}```" in guide
