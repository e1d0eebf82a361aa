"""The mutation run finds what no test notices, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FORMULA = '''
from dataclasses import dataclass

LIMIT = 10


@dataclass(frozen=True)
class Config:
    """Settings; the numbers in this text are no formula: 1 + 1."""

    factor: float = 2.0


def share(part, whole, cfg=Config()):
    """Return a share."""
    if whole == 0:
        raise ValueError("0 + 0")
    return min(cfg.factor * part / whole, LIMIT)


def down(n):
    """Come to nothing; without its one step, never."""
    while n:
        n ^= n
    return n


def untested(a, b):
    """Return what no test asks for."""
    return a + b
'''

TESTS = """
import sys
sys.path.insert(0, {folder!r})
from formula import Config, down, share


def test_share():
    assert share(1, 4) == 0.5 and share(3, 1) == 6 and share(9, 1) == 10
    assert share(1, 1, Config(factor=3.0)) == 3


def test_down():
    assert down(3) == 0
"""


LIST = """
[{file!r}]
"untested: a + b -> a" = "Here stands a reason."
"share: whole == 0 -> whole != 0" = "A reason for what a test notices."
"""


@pytest.mark.slow
def test_survivors_are_named_unless_they_are_listed_with_a_reason(tmp_path):
    formula, tests, listed = (tmp_path / f"{n}" for n in ("formula.py", "test_it.py", "list.toml"))
    formula.write_text(FORMULA)
    tests.write_text(TESTS.format(folder=str(tmp_path)))
    listed.write_text(LIST.format(file=str(formula)))
    command = [sys.executable, "-m", "tests.mutate", str(formula), "--tests", str(tests)]
    found = subprocess.run(
        [*command, "--equivalent", str(listed)], cwd=ROOT, capture_output=True, text=True
    )
    said = [line.split("formula.py")[1] for line in found.stdout.splitlines() if "formula" in line]
    # A row of the table (a loop without an end counts as noticed), then what is wrong with it.
    mutants, killed, equivalent, alive = map(int, said[-4].strip("`| ").split(" | "))
    assert (killed, equivalent, alive) == (mutants - 3, 1, 2)
    assert said[-3:] == [
        ":30 untested: a + b -> a - b",
        ":30 untested: a + b -> b",
        " share: whole == 0 -> whole != 0",
    ]
    assert found.returncode == 1
