"""The page of ``creditrl bench exact``, made only from its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from creditrl.bench.exact_mdps import MDPS
from creditrl.bench.exact_oracles import ORACLES
from creditrl.bench.markdown import table_lines

__all__ = ["FORMAT", "MEASURES", "Shown", "cell", "exact_page"]

FORMAT = "creditrl bench exact 1"
"""Value of ``format`` in the JSON."""
_TASKS = tuple(mdp.name for mdp in MDPS)


@dataclass(frozen=True, slots=True)
class Shown:
    """How a measure is shown."""

    title: str
    unit: float = 1.0
    """Factor for a value."""
    digits: int = 2


MEASURES: Mapping[str, Shown] = {
    "within": Shown("Actions of one state ordered as their values are, %", 100.0, 0),
    "cosine": Shown("Cosine with the true policy gradient"),
    "noise": Shown("Turns until the gradient's noise equals the gradient", digits=0),
    "leakage": Shown("Credit of turns that change nothing, % of all", 100.0, 0),
    "signal": Shown("Signal-to-noise of the gradient, per 1,000 turns", 1000.0),
    "error": Shown("Error of the gradient, in lengths of the true one"),
    "wasted": Shown("Mean absolute credit of turns that change nothing", digits=3),
}
"""By field of :class:`creditrl.bench.exact.Agreement`."""

_INTRODUCTION = """\
An untrained small policy plays {groups} groups of {group_size} episodes of each of five tiny tasks
with finitely many states. Its true advantages are computed by dynamic programming and contain no
noise. Learned models have the settings of the small recipes and were fitted to the same number of
other episodes. `vine`, `tree_grpo` and `branch` collect their own episodes, and the turns of their
continuations count. In a row named "exact", computed values replace what the method learns. Only
tokens of a reply that had an alternative count."""

_ORACLES = """\
The noise of each method divided by GRPO's (below 1: fewer turns for the same precision), with the
method's recipe and with its learned part replaced by an exact one: the increase of the true value
for SPA's progress, the true value for the critics of PPO and Turn-PPO, segments that end where the
value changes, their true progress and Bayes' rule for HISR, the true advantage for iStar's implicit
reward, the true value of actions for PRM4A's scores, that of states for 3SPO's success rates. Where
a method has its own rewards, its critic is the mean of what followed in the batch. "Lambda 0"
credits every turn with its own step only."""

_WHY = """\
Lambda is why an exact part can be worth little: near 1, as gamma, it adds nearly all later steps to
a turn's own. Exact progress then becomes the outcome minus the value of the state, which PPO and
REINFORCE with a baseline have anyway. At lambda 0 it remains the credit of its turn."""

_WHY_HISR = """\
HISR's shares of a success add up to 1 however likely the success was, and failures get nothing.
That does not estimate the advantage, even with exact parts. It also rewards delay: after two of
three equal segments a third of the success is left to earn, after two of five three fifths."""

_WHY_3SPO = """\
3SPO's own success rates are as good as exact ones here, where episodes pass the same few states
again and again. Where a state is seldom seen twice, its rate is the outcome of one episode."""


def cell(measure: str, value: float | None) -> str:
    """Return a value as tables show it, empty if there is none."""
    shown = MEASURES[measure]
    return "" if value is None else f"{shown.unit * value:,.{shown.digits}f}"


def exact_page(data: Mapping[str, Any]) -> str:
    """Return the Markdown for the JSON that ``creditrl bench exact`` wrote."""
    found = {(row["method"], row["task"]): row for row in data["rows"]}
    names = list(dict.fromkeys(name for name, _ in found))
    lines = ["# Credit against computed advantages", "", _INTRODUCTION.format(**data), ""]
    for measure, shown in MEASURES.items():
        rows = [
            (_code(name), *(cell(measure, found[name, task][measure]) for task in _TASKS))
            for name in names
        ]
        lines += [f"## {shown.title}", "", *table_lines(("credit", *_TASKS), rows), ""]
    noise = {key: row["noise"] for key, row in found.items()}
    oracles = [oracle for oracle in ORACLES if oracle.name in names]
    if oracles and "grpo" in names:
        rows = []
        for method in dict.fromkeys(oracle.method for oracle in oracles):
            rows.append((f"`{method}`", *_over(noise, method, "grpo")))
            mine = (oracle.name for oracle in oracles if oracle.method == method)
            rows += [(name, *_over(noise, name, "grpo")) for name in mine]
        lines += ["## What an exact part is worth", "", _ORACLES, ""]
        lines += [*table_lines(("noise over GRPO's", *_TASKS), rows), ""]
        if {"pg", "spa"} <= {*names}:
            lines += [_WHY, ""]
        if "hisr" in names:
            lines += [_WHY_HISR, ""]
        if "three_spo" in names:
            lines += [_WHY_3SPO, ""]
    if {"branch", "vine"} <= {*names}:
        lines += [
            "## Continuations, at equal turns",
            "",
            "The noise of `branch` over that of `vine`, continuations counted; `branch` is "
            "unbiased on all five (tested).",
            "",
            *table_lines(
                ("noise", *_TASKS), [("`branch` over `vine`", *_over(noise, "branch", "vine"))]
            ),
            "",
        ]
    lines += ["## Published figures", ""]
    lines += [
        "Rows of AgentCreditBench v0.5 (its README), reproduced by this package's methods.",
        "",
    ]
    published = [
        (row["case"], _code(row["credit"]), _numbers(row["published"]), _numbers(row["ours"]))
        for row in data["published"]
    ]
    lines += table_lines(("case", "credit", "published", "here"), published)
    for name, why in data["unscored"].items():
        lines += ["", f"`{name}` scores nothing here: {why}"]
    return "\n".join(lines) + "\n"


def _over(noise: Mapping[tuple[str, str], float | None], name: str, other: str) -> tuple[str, ...]:
    pairs = ((noise[name, task], noise[other, task]) for task in _TASKS)
    return tuple(f"{mine / theirs:.2f}" if mine and theirs else "" for mine, theirs in pairs)


def _code(name: str) -> str:
    return name if " " in name else f"`{name}`"


def _numbers(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.3f}".rstrip("0").rstrip(".") for value in values)
