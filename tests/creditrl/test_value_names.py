"""A value is named for what it holds: ``match``, ``tasks``, ``names``, not ``found`` or ``known``.

These participles say how a value came about. They are free for fields, methods and functions, whose
owner says the rest.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("creditrl", "agents", "envs", "trainers", "wrappers", "benchmarks", "plugins")
PARTICIPLES = {"found", "known", "told", "wanted", "shown", "kept"}

UNTOUCHED = {
    "creditrl/door/gate.py": {"found", "known", "told"},
    "creditrl/door/listen.py": {"shown"},
    "creditrl/records/store.py": {"found", "kept", "wanted"},
    "envs/alfworld/rules.py": {"found"},
    "envs/base.py": {"found", "known"},
    "envs/check/__init__.py": {"found", "known"},
    "envs/check/single.py": {"found", "shown", "wanted"},
    "envs/check/subject.py": {"found"},
    "envs/check/vector.py": {"found"},
    "envs/dice.py": {"found"},
    "envs/each_task.py": {"wanted"},
    "envs/prompt.py": {"found"},
    "envs/register.py": {"found", "known"},
    "envs/sotopia/engine.py": {"told"},
    "envs/state.py": {"found", "shown"},
    "envs/tasks.py": {"found"},
    "envs/vector.py": {"found", "known", "wanted"},
    "envs/virtualhome/engine.py": {"found", "kept", "known", "told"},
    "envs/webshop/engine.py": {"told", "wanted"},
    "envs/words.py": {"told"},
    "envs/workers.py": {"shown"},
    "trainers/credit/branches.py": {"found"},
    "trainers/credit/gae.py": {"found"},
    "trainers/credit/hindsight.py": {"found"},
    "trainers/credit/imitation.py": {"found"},
    "trainers/credit/segments.py": {"found", "shown"},
    "trainers/credit/step_group.py": {"found", "known"},
    "trainers/losses/aggregate.py": {"known"},
    "trainers/losses/kl.py": {"known"},
}
"""Files that only a change of behaviour may touch: what is equal to upstream, or guards a door."""

KEYWORDS = {
    "creditrl/errors.py": {"known"},
    "envs/sotopia/rendering.py": {"told"},
    "envs/virtualhome/graph.py": {"found"},
    "trainers/phases/held_out.py": {"known"},
    "trainers/start.py": {"shown"},
}
"""Parameters that callers pass, or may pass, by name."""

EXCEPTIONS = {**UNTOUCHED, **KEYWORDS}


def values(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield parameters and local names of functions, with the line where they get their value."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    for function in (node for node in ast.walk(tree) if isinstance(node, kinds)):
        for node in ast.walk(function):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    yield name, node.lineno
                case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                    yield name, node.lineno


def participles() -> dict[str, dict[str, int]]:
    """Return the lines of participles as names of values, by file and name."""
    lines: dict[str, dict[str, int]] = {}
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        text = path.read_text("utf-8")
        if not re.search(rf"\b({'|'.join(PARTICIPLES)})\b", text):
            continue  # half of the files: parsing takes the time
        for name, line in values(ast.parse(text)):
            if name in PARTICIPLES:
                lines.setdefault(path.relative_to(ROOT).as_posix(), {})[name] = line
    return lines


@pytest.fixture(scope="module")
def lines() -> dict[str, dict[str, int]]:
    return participles()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(found, *, known=0): ...", {"found", "known"}),
        ("def f():\n    for a, (told, *kept) in b: ...", {"told", "kept"}),
        ("def f():\n    return [wanted for wanted in a if (shown := wanted)]", {"wanted", "shown"}),
        ("class C:\n    async def f(self):\n        with a as found: ...", {"found"}),
        ("sorted(a, key=lambda known: 0)", {"known"}),
        ("def f():\n    try: ...\n    except E as told: ...", {"told"}),
        # Fields, functions, keywords of others and what is only read.
        ("class C:\n    found: int = 0\n    def known(self): self.told = a(kept=shown)", set()),
    ],
)
def test_every_way_to_name_a_value_is_seen(text: str, names: set[str]) -> None:
    assert {name for name, _ in values(ast.parse(text))} & PARTICIPLES == names


def test_no_value_is_named_by_a_participle(lines: dict[str, dict[str, int]]) -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path, names in lines.items()
        for name, line in names.items()
        if name not in EXCEPTIONS.get(path, ())
    ]
    assert not wrong, "Name these values by what they hold."


def test_every_exception_is_needed(lines: dict[str, dict[str, int]]) -> None:
    unused = [
        f"{path}: {name}"
        for path, names in EXCEPTIONS.items()
        for name in sorted(names - lines.get(path, {}).keys())
    ]
    assert not unused, "Delete these exceptions."
