"""Mutation tests: change each formula in many ways, and check that a test fails each time.

    python -m tests.mutate                                # credit, losses and 3SPO's tree
    python -m tests.mutate trainers/credit/gae.py         # one file
    python -m tests.mutate --every 8                      # an eighth of the mutants
    python -m tests.mutate --write docs/mutation.md       # the table

A mutant is the source with one change: an operator, a comparison, a constant, a term that is gone,
swapped arguments. It is killed where a test fails. One that no test can kill, because it computes
the same, stands in ``tests/equivalent_mutants.toml`` with the reason; any other survivor is a hole
in the tests, and the command fails.

Tests are collected once, and a first run says which lines each of them reads. Every mutant is a
fork of this process: its functions get the mutated code in place, and the tests that read the
changed lines run, the file's own and the fastest first, until one fails. Hypothesis draws the same
examples every time.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import math
import os
import pickle
import resource
import signal
import sys
import time
import tomllib
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[1]
FOLDERS = ("trainers/credit", "trainers/losses", "trainers/collect/tree.py")
"""Folders and files."""
TESTS = (
    "tests/trainers/credit",
    "tests/trainers/losses",
    "tests/trainers/collect/test_tree.py",
    "tests/trainers/methods",
    "tests/trainers/test_methods.py",
    "tests/trainers/test_credit_properties.py",
)
EQUIVALENT = ROOT / "tests" / "equivalent_mutants.toml"
SLOWER = 20
"""A test that takes this many times its usual CPU time, plus 10 s for what it may be the first to
import, loops for ever."""

# -- mutants --------------------------------------------------------------------------------------

_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_PAIRS = (
    ("max", "min"),
    ("maximum", "minimum"),
    ("mean", "sum"),
    ("any", "all"),
    ("argmax", "argmin"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("new_zeros", "new_ones"),
    ("ceil", "floor"),
    ("exp", "expm1"),
)
_OTHER = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
_IDENTITY = {"abs", "square", "sqrt", "clip", "clamp", "detach", "log", "cumsum", "set", "sorted"}
"""Calls that may give way to what they are called on."""
_STRINGS = {"left": "right", "right": "left"}
_NO_FORMULA = {"dtype", "kind", "strict", "hint", "device", "default", "episode_ids"}
"""Keywords that change no number, or only with an error."""
_NO_SWAP = {
    *("isinstance", "getattr", "hasattr", "setattr", "zip", "ordered", "finite", "range"),
    *("asarray", "ones", "zeros", "full", "array"),
    *("maximum", "minimum", "max", "min", "clip", "clamp", "logaddexp", "joint_index"),
}
"""Functions whose arguments, swapped, make an error or nothing else."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file."""

    file: str
    """Relative to the root."""
    where: str
    """Function or class."""
    change: str
    lines: range | None
    """Lines whose readers are run; None: whoever reads the file."""
    at: int
    parent: ast.AST
    name: str
    place: int | None
    new: ast.AST | None
    """None: the statement is gone."""

    @property
    def key(self) -> str:
        """How lists name it: it does not move with the lines above it."""
        return f"{self.where}: {self.change}"

    def apply(self) -> None:
        """Change the tree; meant for a process of its own."""
        _put(self.parent, self.name, self.place, ast.Pass() if self.new is None else self.new)


def mutants_of(file: str, tree: ast.Module) -> list[Mutant]:
    """Return every mutant of a file, in the order of the source."""
    found: list[Mutant] = []

    def visit(node: ast.AST, way: list[tuple[ast.AST, str, int | None]], where: str) -> None:
        if _is_no_formula(node, way):
            return
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            where = f"{where}.{node.name}" if where != "module" else node.name
        if way:
            parent, name, place = way[-1]
            for new in _changes(node, parent, name):
                lines = _lines(node, way)
                at = getattr(node, "lineno", lines[0] if lines else 0)
                change = _change(node, new, way)
                found.append(Mutant(file, where, change, lines, at, parent, name, place, new))
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "ctx", "bases"):
                continue
            if isinstance(value, list):
                for place, child in enumerate(value):
                    if isinstance(child, ast.AST):
                        visit(child, [*way, (node, name, place)], where)
            elif isinstance(value, ast.AST):
                visit(value, [*way, (node, name, None)], where)

    visit(tree, [], "module")
    return found


def _is_no_formula(node: ast.AST, way: Sequence[tuple[ast.AST, str, int | None]]) -> bool:
    """Return whether a node is a message, a type, an import or a docstring."""
    if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.keyword) and node.arg in _NO_FORMULA:
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if len(way) == 1 and isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        made = ast.unparse(node.value)
        alias = isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias"
        return alias or ast.unparse(target) == "__all__" or made.startswith(("Literal", "TypeVar"))
    return False


def _changes(node: ast.AST, parent: ast.AST, name: str) -> Iterator[ast.AST | None]:
    """Yield what may stand for a node."""
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY and not _is_text(node):
        yield _with(node, op=_BINARY[type(node.op)]())
        yield node.left
        if isinstance(node.op, (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)):
            yield node.right
        elif isinstance(node.op, ast.Sub):
            yield ast.UnaryOp(ast.USub(), node.right)
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for place in range(len(node.values)):
            rest = node.values[:place] + node.values[place + 1 :]
            yield rest[0] if len(rest) == 1 else _with(node, values=rest)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Compare):
        for place, op in enumerate(node.ops):
            for other in _COMPARE[type(op)]:
                yield _with(node, ops=[*node.ops[:place], other(), *node.ops[place + 1 :]])
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, (int, float)):
            yield ast.Constant(node.value + 1)
        elif node.value in _STRINGS and isinstance(parent, ast.keyword):
            yield ast.Constant(_STRINGS[node.value])
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Slice):
        if node.lower is not None:
            yield _with(node, lower=None)
        if node.upper is not None:
            yield _with(node, upper=None)
    elif isinstance(node, ast.AugAssign):
        if type(node.op) in _BINARY:
            yield _with(node, op=_BINARY[type(node.op)]())
        yield None
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        yield None
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield None
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Continue):
        yield None
    branches = isinstance(parent, (ast.If, ast.IfExp, ast.While)) and name == "test"
    if branches or (isinstance(parent, ast.comprehension) and name == "ifs"):
        # Comparisons and negations are turned round by themselves.
        single = isinstance(node, ast.Compare) and len(node.ops) == 1
        if not single and not isinstance(node, ast.UnaryOp):
            yield ast.UnaryOp(ast.Not(), node)


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    nothing = bool(node.args) and ast.unparse(node.args[0]) == "0"  # an array without values
    if name in _OTHER and not nothing and isinstance(called, ast.Attribute):
        yield _with(node, func=_with(called, attr=_OTHER[name]))
    elif name in _OTHER and isinstance(called, ast.Name):
        yield _with(node, func=ast.Name(_OTHER[name], ast.Load()))
    if name in _IDENTITY:
        of_module = isinstance(called, ast.Name) or (
            isinstance(called, ast.Attribute)
            and ast.unparse(called.value) in ("np", "torch", "math")
        )
        if of_module and node.args:
            yield node.args[0]
        elif isinstance(called, ast.Attribute):
            yield called.value
    if name == "where" and len(node.args) == 3:
        yield _with(node, args=[node.args[0], node.args[2], node.args[1]])
    elif len(node.args) > 1 and name not in _NO_SWAP and name[:1].islower():
        if not any(isinstance(arg, ast.Starred) for arg in node.args[:2]):
            yield _with(node, args=[node.args[1], node.args[0], *node.args[2:]])
    for place, given in enumerate(node.keywords):
        if given.arg is not None and given.arg not in _NO_FORMULA:
            yield _with(node, keywords=node.keywords[:place] + node.keywords[place + 1 :])


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )


def _with(node: Any, **fields: Any) -> Any:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _lines(node: ast.AST, way: Sequence[tuple[ast.AST, str, int | None]]) -> range | None:
    """Return the lines of the statement; of one with a body, those of its head."""
    chain = [step[0] for step in way] + [node]
    statement = next(step for step in reversed(chain) if isinstance(step, ast.stmt))
    functions = [step for step in chain if isinstance(step, ast.FunctionDef)]
    if not functions:
        return None
    last = statement.end_lineno
    if hasattr(statement, "body") and not isinstance(statement, ast.FunctionDef):
        last = getattr(node, "end_lineno", statement.lineno)
    assert last is not None
    return range(statement.lineno, last + 1)


def _change(
    node: ast.AST, new: ast.AST | None, way: Sequence[tuple[ast.AST, str, int | None]]
) -> str:
    """Return the change as text, within the expression around it."""
    if new is None:
        return f"{ast.unparse(node)} -> (gone)"
    if isinstance(node, ast.stmt):
        return f"{ast.unparse(node)} -> {ast.unparse(new)}"
    parent, name, index = way[-1]
    if isinstance(parent, ast.arguments):
        named = parent.kwonlyargs if name == "kw_defaults" else parent.posonlyargs + parent.args
        back = len(getattr(parent, name)) - (index or 0)
        return f"{named[-back].arg}={ast.unparse(node)} -> {ast.unparse(new)}"
    if isinstance(node, ast.Call) and isinstance(new, ast.Call):
        gone = [kept for kept in node.keywords if kept not in new.keywords]
        if gone:
            return f"{ast.unparse(node.func)}({ast.unparse(gone[0])}) -> (left out)"
    shown: ast.AST = node
    place = len(way)
    small = (ast.Constant, ast.Name, ast.Slice, ast.UnaryOp, ast.keyword, ast.comprehension)
    while isinstance(shown, small) and place:
        place -= 1
        shown = way[place][0]
        if isinstance(shown, ast.stmt) or len(ast.unparse(shown)) > 12:
            break
    if hasattr(shown, "body") and isinstance(shown, ast.stmt):
        return f"{ast.unparse(node)} -> {ast.unparse(new)} ({type(shown).__name__.lower()})"
    before = ast.unparse(shown)
    held = getattr(parent, name) if index is None else getattr(parent, name)[index]
    _put(parent, name, index, new)
    after = ast.unparse(shown if shown is not node else new)
    _put(parent, name, index, held)
    return f"{before} -> {after}"


def _put(parent: ast.AST, name: str, place: int | None, value: ast.AST) -> None:
    if place is None:
        setattr(parent, name, value)
    else:
        getattr(parent, name)[place] = value


# -- running --------------------------------------------------------------------------------------


def _install(module: types.ModuleType, tree: ast.Module) -> None:
    """Give the functions of a module that others have imported the code of a changed source."""
    fresh = types.ModuleType(module.__name__)
    fresh.__dict__.update(__file__=module.__file__, __package__=module.__package__)
    exec(compile(ast.fix_missing_locations(tree), str(module.__file__), "exec"), fresh.__dict__)
    _transplant(vars(module), vars(fresh), module)


def _transplant(old: Any, new: Any, owner: Any) -> None:
    for name, value in new.items():
        here = old.get(name)
        if isinstance(value, (staticmethod, classmethod)):
            value, here = value.__func__, getattr(here, "__func__", None)
        elif isinstance(value, property):
            value, here = value.fget, getattr(here, "fget", None)
        if isinstance(value, types.FunctionType) and isinstance(here, types.FunctionType):
            if value.__globals__ is not here.__globals__ or isinstance(owner, type):
                here.__code__ = value.__code__
                here.__defaults__ = value.__defaults__
                here.__kwdefaults__ = value.__kwdefaults__
        elif isinstance(value, type) and isinstance(here, type):
            if here is not value and value.__module__ == here.__module__:
                _transplant(vars(here), vars(value), here)
        elif isinstance(owner, types.ModuleType) and not name.startswith("__"):
            if isinstance(value, (int, float, str, tuple, frozenset)):
                setattr(owner, name, value)


@dataclass(slots=True)
class Runner:
    """A plugin of pytest that runs mutants instead of the tests."""

    files: Sequence[str]
    every: int
    workers: int
    mutants: list[Mutant] = field(default_factory=list)
    survivors: list[Mutant] = field(default_factory=list)
    failed: str = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Take the place of the loop over tests."""
        items = session.items
        modules = {
            str(Path(module.__file__).resolve()): module
            for module in list(sys.modules.values())
            if getattr(module, "__file__", None)
        }
        trees = {}
        for file in self.files:
            path = str((ROOT / file).resolve())
            if path not in modules:
                self.failed = f"No test imports {file}."
                return True
            trees[file] = ast.parse(Path(path).read_text("utf-8"))
            self.mutants += mutants_of(file, trees[file])
        self.mutants = self.mutants[:: self.every]
        paths = {file: str(modules[str((ROOT / file).resolve())].__file__) for file in self.files}
        readers = self._baseline(items, set(paths.values()))
        if self.failed:
            return True
        # Forks share what they do not write to, and the collector would write everywhere.
        gc.collect()
        gc.freeze()
        gc.disable()
        running: dict[int, Mutant] = {}
        waiting = list(reversed(self.mutants))
        while waiting or running:
            if waiting and len(running) < self.workers:
                mutant = waiting.pop()
                places = self._chosen(mutant, items, readers, paths[mutant.file])
                module = modules[str((ROOT / mutant.file).resolve())]
                pid = self._fork(
                    mutant,
                    [items[place] for place in places],
                    [math.ceil(10 + SLOWER * readers[place][0]) for place in places],
                    module,
                    trees[mutant.file],
                )
                running[pid] = mutant
                continue
            pid, status = os.wait()
            mutant = running.pop(pid)
            if status == 0:
                self.survivors.append(mutant)
                print(f"alive: {mutant.file}:{mutant.at} {mutant.key}", flush=True)
        self.survivors.sort(key=self.mutants.index)
        return True

    def _chosen(
        self,
        mutant: Mutant,
        items: Sequence[pytest.Item],
        readers: Sequence[tuple[float, dict[str, set[int]]]],
        path: str,
    ) -> list[int]:
        """Return the tests that read what was changed, then others of its folder."""
        own = f"test_{Path(mutant.file).stem}.py"
        folder = Path(mutant.file).parent.name
        ranked = []
        for place, (seconds, read) in enumerate(readers):
            lines = read.get(path, ())
            if lines if mutant.lines is None else any(line in mutant.lines for line in lines):
                ranked.append((items[place].path.name != own, seconds, place))
        chosen = [place for _, _, place in sorted(ranked)]
        # The code that sets a field is of no file: who reads a default is not seen.
        near = (i for i, item in enumerate(items) if item.path.parent.name == folder)
        return list(dict.fromkeys([*chosen, *near]))

    def _baseline(
        self, items: Sequence[pytest.Item], paths: set[str]
    ) -> list[tuple[float, dict[str, set[int]]]]:
        """Run all tests on the source as it is, in a fork; return seconds and lines of each."""
        mine, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(mine)
            _silence()
            found: list[tuple[float, dict[str, set[int]]]] = []
            for item, after in zip_longest(items, items[1:]):
                read: dict[str, set[int]] = {}
                began = time.process_time()
                sys.settrace(_tracer(paths, read))
                failed = _fails(item, after)
                sys.settrace(None)
                if failed:
                    found = [(0.0, {item.nodeid: set()})]
                    break
                found.append((time.process_time() - began, read))
            with os.fdopen(theirs, "wb") as pipe:
                pickle.dump(found, pipe)
            os._exit(0)
        os.close(theirs)
        with os.fdopen(mine, "rb") as pipe:
            found = pickle.load(pipe)
        os.waitpid(pid, 0)
        if len(found) != len(items):
            self.failed = f"A test fails on the source as it is: {next(iter(found[0][1]))}"
        return found

    def _fork(
        self,
        mutant: Mutant,
        items: Sequence[pytest.Item],
        seconds: Sequence[int],
        module: types.ModuleType,
        tree: ast.Module,
    ) -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            _silence()
            mutant.apply()
            _install(module, tree)
            status = int(any(_fails(*each) for each in zip_longest(items, items[1:], seconds)))
        finally:
            os._exit(status)


def _fails(item: pytest.Item, after: pytest.Item | None, seconds: int = 0) -> bool:
    """Run a test; of the one that comes after it fixtures may stay.

    One that takes more than ``seconds`` of CPU time ends this process; 0: no limit.
    """
    if seconds:
        end = math.ceil(time.process_time()) + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (end, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        signal.alarm(100 * seconds)  # one that waits for something takes no CPU time
    return any(report.failed for report in runtestprotocol(item, nextitem=after, log=False))


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _tracer(paths: set[str], read: dict[str, set[int]]) -> Any:
    def trace(frame: types.FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in paths:
            return None
        read.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return trace

    return trace


# -- command --------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("files", nargs="*", help="source files; default: " + ", ".join(FOLDERS))
    parser.add_argument("--tests", nargs="+", default=list(TESTS), help="files and folders")
    parser.add_argument("--every", type=int, default=1, help="take every n-th mutant")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time")
    parser.add_argument("--write", type=Path, help="file for the table")
    parser.add_argument("--equivalent", type=Path, default=EQUIVALENT, help="the list")
    chosen = parser.parse_args(arguments)
    files = chosen.files or [
        str(path.relative_to(ROOT))
        for place in FOLDERS
        for path in sorted(
            [ROOT / place] if place.endswith(".py") else (ROOT / place).glob("[a-z]*.py")
        )
    ]
    runner = Runner(files, chosen.every, chosen.workers)
    began = time.monotonic()
    code = _pytest(runner, chosen.tests)
    if code or runner.failed:
        print(runner.failed or f"pytest could not collect the tests (code {code}).")
        return 2
    listed = tomllib.loads(chosen.equivalent.read_text("utf-8"))
    table, open_, stale = _judged(runner, listed, whole=chosen.every == 1)
    print(table)
    print(f"{len(runner.mutants)} mutants in {time.monotonic() - began:.0f} s.")
    for mutant in open_:
        print(f"no test notices {mutant.file}:{mutant.at} {mutant.key}")
    for file, key in stale:
        print(f"{chosen.equivalent.name} lists what no longer survives: {file} {key}")
    if chosen.write is not None:
        chosen.write.write_text(_document(table), "utf-8")
    return 1 if open_ or stale else 0


def _pytest(runner: Runner, tests: Sequence[str]) -> int:
    import hypothesis
    import torch

    # libgomp's threads do not live on in a fork.
    torch.set_num_threads(1)
    hypothesis.settings.register_profile(
        "mutate",
        derandomize=True,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
    )
    # Options of a run that started this one (workers, a report) are not for the tests in here.
    os.environ.pop("PYTEST_ADDOPTS", None)
    options = [
        "-q",
        "-s",
        "--disable-warnings",
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile=mutate",
        # All tests, in this process.
        "-o",
        "addopts=--import-mode=importlib",
    ]
    return int(pytest.main([*options, *tests], plugins=[runner]))


def _judged(
    runner: Runner, listed: dict[str, dict[str, str]], *, whole: bool
) -> tuple[str, list[Mutant], list[tuple[str, str]]]:
    """Return the table, the survivors that are not listed, and what is listed in vain."""
    alive = {(m.file, m.key) for m in runner.survivors}
    stale = [
        (file, key)
        for file, keys in listed.items()
        for key in keys
        if whole and file in runner.files and (file, key) not in alive
    ]
    open_ = [m for m in runner.survivors if m.key not in listed.get(m.file, {})]
    every = Counter(m.file for m in runner.mutants)
    survived, unlisted = Counter(m.file for m in runner.survivors), Counter(m.file for m in open_)
    rows = ["| file | mutants | killed | equivalent | alive |", "|---|---|---|---|---|"]
    for file in sorted(every):
        same = survived[file] - unlisted[file]
        killed = every[file] - survived[file]
        rows.append(f"| `{file}` | {every[file]} | {killed} | {same} | {unlisted[file]} |")
    same = len(runner.survivors) - len(open_)
    killed = len(runner.mutants) - len(runner.survivors)
    rows.append(f"| **all** | {len(runner.mutants)} | {killed} | {same} | {len(open_)} |")
    return "\n".join(rows), open_, stale


def _document(table: str) -> str:
    return f"""# Mutation run

Each formula of `trainers/credit/`, `trainers/losses/` and 3SPO's search is broken in each of these
ways, one at a time, and the tests are run: another operator or comparison, a constant plus one, a
term, factor or condition removed, arguments swapped, a keyword left out (`ddof`, `axis`,
`weights`), `max` for `min`, `mean` for `sum`, no `clip`, no `detach`, a statement removed. A mutant
is killed where a test fails. Equivalent ones compute the same, for the reasons in
`tests/equivalent_mutants.toml`.

```bash
python -m tests.mutate --write docs/mutation.md
```

{table}
"""


if __name__ == "__main__":
    sys.exit(main())
