"""Answers of judges as models, networks and token limits leave them, with what they truly say.

A case is a true judgement, written in one of the ways of :data:`KINDS`: a style, a damage to a
style, or a contradiction. Of a style, or a damaged one, a reader may return the true scores or
none. A contradiction (two evaluations that differ, a mapping of participants that is not the
prompt's) has no true scores: a reader must return none.

``python tests/damaged_answers.py --count 20000 --seed 1`` tells what is read of how many, by kind.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from creditrl.envs.sotopia.dimensions import DIMENSIONS
from creditrl.envs.sotopia.judge_answer import read_answer

SEVEN = tuple(dimension.name for dimension in DIMENSIONS)
Scores = dict[str, int]

NAMES = (
    ("Samuel Anderson", "Finnegan O'Malley"),
    ("Ann Lee", "Joann Lee"),
    ("Mia Davis", "Noah Davis"),
    ("Sam Lee", "Sam Ray"),
    ("Sky", "Skyler"),
    ("Plato", "Aristotle"),
    ("Goal Keeper", "Secret Santa"),
    ("Agent Smith", "Agent Brown"),
    ("José Álvarez", "Zoë Ångström"),
    ("李 雷", "韩 梅梅"),
    ('Dwayne "Rock" Stone', "Bo Diaz"),
    ("Will Score", "Grace Value"),
    ("Lee Ann", "Ann Lee"),
    ("Jean-Luc Picard", "Jean Valjean"),
    ("Player One", "Player Two"),
    ("Person B", "Person A"),
    ("Agent 2", "Agent 1"),
    ("Mr. X", "Mr. Y"),
    ("True None", "Nan Null"),
    ("Max Seven", "Rose Three"),
    ("Al", "Bo"),
    ("Eve", "Val"),
    ("Rob", "Roberta"),
    ("Goal", "Secret"),
    ("One", "Two"),
    ("Anna Maria Berg", "Maria Anna Berg"),
)
PHRASES = (
    "because",
    "He was polite throughout",
    'He said "no", and left',
    "the other's secret: kept",
    "it's {not} [clear], 10",
    "Score is 3/10",
    "line\nbreak",
    "goal: 9",
    "agent_2 did",
    "]}",
    "\\ back",
    "",
    'from "10", 8 or 7',
    'the "price", 10], and so',
    '["x", 2]',
    "{'goal': ['x', 3]}",
    '"agent_2": {"goal": ["x", 3]}',
    'I "want", "need" 3, "5"',
    "paid $500, then 20 % more",
    "from -5 to 5, rather 2",
    "agent_1 gave 4 of 10; Agent 2 none",
    "```code```",
    "see https://a.example/b#c // yes",
    "naïve – “quoted” ‘so’ …",
    "在谈判中 3 次",
    "- a point\n- another one: 7",
    "first: 1, second: 2",
    "he thought <think>not</think> much",
    "it's his; he'd said 'yes', 5",
    "| a | 3 |",
    "(score: 4)",
    "null, true, 0",
)
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Case:
    """An answer, and what a right reader makes of it."""

    kind: str
    text: str
    names: tuple[str, str]
    truth: tuple[Scores, Scores] | None
    """None: it contradicts itself, or says too little: it must be refused."""


@dataclass(frozen=True)
class Draw:
    """What an answer is written of."""

    rng: random.Random
    names: tuple[str, str]
    truth: tuple[Scores, Scores]
    reasons: tuple[dict[str, str], dict[str, str]]
    order: tuple[int, ...]
    """In which order the participants stand."""
    dims: tuple[str, ...]

    def other(self, how: str = "") -> Draw:
        """Return the same with other scores: of one point, of one side, or of all."""
        rng, how = self.rng, how or self.rng.choice(("one", "side", "all"))
        truth = tuple(dict(s) for s in self.truth)
        side, name = rng.randrange(2), rng.choice(SEVEN)
        for i in (0, 1):
            for d in DIMENSIONS:
                if how == "all" or (i == side and (how == "side" or d.name == name)):
                    others = [n for n in range(d.low, d.high + 1) if n != truth[i][d.name]]
                    truth[i][d.name] = rng.choice(others)
        reasons = self.reasons if rng.random() < 0.5 else _reasons(rng)
        return replace(self, truth=(truth[0], truth[1]), reasons=reasons)

    def all_zero(self) -> Draw:
        if all(n == 0 for s in self.truth for n in s.values()):
            return self.other("all")
        return replace(self, truth=(dict.fromkeys(SEVEN, 0), dict.fromkeys(SEVEN, 0)))

    def swapped(self) -> Draw:
        return (
            self.other("all")
            if self.truth[0] == self.truth[1]
            else replace(self, truth=self.truth[::-1])
        )

    def entry(self, side: int, pair: Pair = lambda r, s: [r, s], key: Key = str) -> dict[str, Any]:
        return {key(n): pair(self.reasons[side][n], self.truth[side][n]) for n in self.dims}

    def entries(
        self,
        keys: Sequence[str] = ("agent_1", "agent_2"),
        pair: Pair = lambda r, s: [r, s],
        key: Key = str,
    ) -> dict[str, Any]:
        return {keys[i]: self.entry(i, pair, key) for i in self.order}

    def dump(self, value: Any) -> str:
        rng = self.rng
        return json.dumps(
            value, indent=rng.choice((None, 1, 2, 4)), ensure_ascii=rng.random() < 0.5
        )

    def usual(self, **options: Any) -> str:
        entries = self.entries(**options)
        return self.dump({"evaluations": entries} if self.rng.random() < 0.8 else entries)


Pair = Callable[[str, int], Any]
Key = Callable[[str], str]
Write = Callable[[Draw], str]
Damage = Callable[[str, random.Random], str]


def _reasons(rng: random.Random) -> tuple[dict[str, str], dict[str, str]]:
    plain = rng.random() < 0.4

    def reason() -> str:
        if plain:
            return rng.choice(PHRASES[:2])
        return " ".join(rng.choices(PHRASES, k=rng.choice((1, 2)))) + rng.choice(("", " so", "."))

    return ({n: reason() for n in SEVEN}, {n: reason() for n in SEVEN})


def draw(rng: random.Random) -> Draw:
    """Return a true judgement of two of the names."""
    names = rng.choice(NAMES)
    names = names if rng.random() < 0.5 else (names[1], names[0])
    truth = [{d.name: rng.randint(d.low, d.high) for d in DIMENSIONS} for _ in names]
    order = (0, 1) if rng.random() < 0.5 else (1, 0)
    dims = SEVEN if rng.random() < 0.6 else tuple(rng.sample(SEVEN, 7))
    return Draw(rng, names, (truth[0], truth[1]), _reasons(rng), order, dims)


# -- styles ---------------------------------------------------------------------------------------

STYLES: dict[str, Write] = {}
JSON_STYLES: list[str] = []
"""Those whose text is one JSON object: what damages are done to."""


def style(name: str, write: Write, plain: bool = False) -> None:
    assert name not in STYLES, name
    STYLES[name] = write
    if plain:
        JSON_STYLES.append(name)


def keyed(name: str, *pairs: tuple[str, str]) -> None:
    style(f"keys {name}", lambda d: d.usual(keys=d.rng.choice(pairs)), plain=True)


def paired(name: str, *pairs: Pair) -> None:
    style(f"scores {name}", lambda d: d.usual(pair=d.rng.choice(pairs)), plain=True)


style("as asked", lambda d: json.dumps({"evaluations": d.entries()}), plain=True)
style("indented", lambda d: json.dumps({"evaluations": d.entries()}, indent=2), plain=True)
style(
    "compact", lambda d: json.dumps({"evaluations": d.entries()}, separators=(",", ":")), plain=True
)
style("no wrapper", lambda d: d.dump(d.entries()), plain=True)
keyed("evaluation", ("agent_1_evaluation", "agent_2_evaluation"))
keyed("spaced", ("Agent 1", "Agent 2"), ("AGENT-1", "AGENT-2"), ("agent 1:", "agent 2:"))
keyed("joined", ("Agent1", "agent2"), ("agent1Scores", "agent2Scores"), ("agent#1", "agent#2"))
keyed("from zero", ("agent_0", "agent_1"), ("0", "1"), ("Agent 0", "Agent 1"))
keyed("digits", ("1", "2"))
keyed("words", ("Participant One", "Participant Two"), ("agent_one", "agent_two"))
keyed("letters", ("Speaker A", "Speaker B"), ("agent_a", "agent_b"))
keyed("of other people", ("person_1", "person_2"), ("character 1", "character 2"))
style("keys names", lambda d: d.usual(keys=d.names), plain=True)
style("keys first names", lambda d: d.usual(keys=[n.split()[0] for n in d.names]))
style("keys last names", lambda d: d.usual(keys=[n.split()[-1] for n in d.names]))
style("keys lower names", lambda d: d.usual(keys=[n.lower().replace(" ", "_") for n in d.names]))
style("keys owned", lambda d: d.usual(keys=[f"{n}'s evaluation" for n in d.names]))
style("keys both", lambda d: d.usual(keys=[f"agent_{i + 1} ({n})" for i, n in enumerate(d.names)]))
style("keys name first", lambda d: d.usual(keys=[f"{n} (Agent {i})" for i, n in _from_1(d)]))
style("keys mixed", lambda d: d.usual(keys=("agent_1", d.names[1])))
style("wrapped otherwise", lambda d: d.dump({d.rng.choice(WRAPPERS): d.entries()}), plain=True)
style("wrapped twice", lambda d: d.dump({"result": {"evaluations": d.entries()}}), plain=True)
style("a list", lambda d: d.dump([{"agent": f"agent_{i + 1}", **d.entry(i)} for i in d.order]))
style(
    "a wrapped list",
    lambda d: d.dump({"evaluations": [{"name": d.names[i], **d.entry(i)} for i in d.order]}),
)
style(
    "a list of scores",
    lambda d: d.dump({"agents": [{"id": i + 1, "scores": d.entry(i)} for i in d.order]}),
)
style(
    "a list with both",
    lambda d: d.dump(
        [
            {"agent_id": f"agent_{i + 1}", "agent_name": d.names[i], "evaluation": d.entry(i)}
            for i in d.order
        ]
    ),
)
style("a list of keys", lambda d: d.dump([{f"agent_{i + 1}": d.entry(i)} for i in d.order]))
style("a list in a list", lambda d: d.dump([[{f"agent_{i + 1}": d.entry(i)} for i in d.order]]))
WRAPPERS = ("evaluation", "agents", "results", "output", "Scores", "Evaluation Results", "data")


def _from_1(d: Draw) -> Iterator[tuple[int, str]]:
    return iter(enumerate(d.names, 1))


def transposed(d: Draw, keys: Sequence[str], pair: Pair = lambda r, s: [r, s]) -> dict[str, Any]:
    return {n: {keys[i]: pair(d.reasons[i][n], d.truth[i][n]) for i in d.order} for n in d.dims}


style("dimensions first", lambda d: d.dump(transposed(d, ("agent_1", "agent_2"))), plain=True)
style("dimensions first, names", lambda d: d.dump(transposed(d, d.names)))
style(
    "dimensions first, wrapped",
    lambda d: d.dump({"dimensions": transposed(d, ("Agent 1", "Agent 2"), lambda r, s: s)}),
    plain=True,
)
style(
    "rows for each",
    lambda d: d.dump(
        {
            f"agent_{i + 1}": [
                {"dimension": n, "score": d.truth[i][n], "reasoning": d.reasons[i][n]}
                for n in d.dims
            ]
            for i in d.order
        }
    ),
    plain=True,
)


def rows(d: Draw, who: str = "agent") -> list[dict[str, Any]]:
    return [
        {
            who: d.names[i] if who == "name" else f"agent_{i + 1}",
            "dimension": n,
            "reasoning": d.reasons[i][n],
            "score": d.truth[i][n],
        }
        for i in d.order
        for n in d.dims
    ]


style("rows for both", lambda d: d.dump({"scores": rows(d)}))
style("rows alone", lambda d: d.dump(rows(d)))
style("rows as lines", lambda d: "\n".join(json.dumps(row) for row in rows(d)))
style(
    "scores and reasons apart",
    lambda d: d.dump(
        {
            f"agent_{i + 1}": {"reasoning": dict(d.reasons[i]), "scores": dict(d.truth[i])}
            for i in d.order
        }
    ),
    plain=True,
)
style(
    "flat keys",
    lambda d: d.dump(
        {f"agent_{i + 1}_{n}": [d.reasons[i][n], d.truth[i][n]] for i in d.order for n in d.dims}
    ),
)
style(
    "dotted keys",
    lambda d: d.dump({f"agent_{i + 1}.{n}": d.truth[i][n] for i in d.order for n in d.dims}),
)
style(
    "score and reason keys",
    lambda d: d.dump(
        {
            f"agent_{i + 1}": {
                k: v
                for n in d.dims
                for k, v in ((f"{n}_reasoning", d.reasons[i][n]), (f"{n}_score", d.truth[i][n]))
            }
            for i in d.order
        }
    ),
    plain=True,
)
style("two objects", lambda d: "\n".join(d.dump({f"agent_{i + 1}": d.entry(i)}) for i in d.order))
style(
    "two wrapped objects",
    lambda d: d.rng.choice(("\n", " ", ",\n", "\n---\n", "\nand\n")).join(
        d.dump({"evaluations": {f"agent_{i + 1}": d.entry(i)}}) for i in d.order
    ),
)
style(
    "two objects in one line each",
    lambda d: "\n".join(
        json.dumps({"agent": f"agent_{i + 1}", "evaluation": d.entry(i)}) for i in d.order
    ),
)
style(
    "headings and fences",
    lambda d: "\n\n".join(f"### {d.names[i]}\n```json\n{d.dump(d.entry(i))}\n```" for i in d.order),
)
style(
    "bold headings",
    lambda d: "\n\n".join(f"**Agent {i + 1}**:\n{d.dump(d.entry(i))}" for i in d.order),
)
style(
    "members without an object",
    lambda d: ",\n".join(f'"agent_{i + 1}": {d.dump(d.entry(i))}' for i in d.order),
)
style("encoded twice", lambda d: json.dumps(d.usual()))
style("the inside of a string", lambda d: json.dumps(d.usual())[1:-1])
style(
    "arguments of a call",
    lambda d: d.dump({"name": "evaluate", "arguments": {"evaluations": d.entries()}}),
    plain=True,
)
style(
    "arguments as a string",
    lambda d: d.dump({"name": "evaluate", "arguments": d.usual()}),
)
style("content of a message", lambda d: d.dump({"role": "assistant", "content": d.usual()}))

paired("alone", lambda r, s: s)
paired("first", lambda r, s: [s, r])
paired("with keys", lambda r, s: {"reasoning": r, "score": s}, lambda r, s: {"score": s, "why": r})
paired("of other keys", lambda r, s: {"explanation": r, "rating": s}, lambda r, s: {"value": s})
paired("as strings", lambda r, s: ["because", str(s)], lambda r, s: str(s))
paired("over ten", lambda r, s: [f"{r}!", s] if s < 0 else ["because", f"{s}/10"])
paired("out of ten", lambda r, s: ["because", f"{s} out of 10" if s > 5 else s])
paired("said", lambda r, s: ["because", f"Score: {s}"], lambda r, s: ["because", f"score = {s}."])
paired("as floats", lambda r, s: [r, float(s)], lambda r, s: {"score": s + 0.0})
paired("at the end", lambda r, s: f"because. Score: {s}", lambda r, s: f"so it is (score: {s})")
paired("as words", lambda r, s: ["because", WORDS[s] if s >= 0 else f"minus {WORDS[-s]}"])
paired("of three", lambda r, s: ["because", "and so", s])
paired("nested", lambda r, s: [[r, s]], lambda r, s: [[{"reasoning": r, "score": s}]])
paired("numbered", lambda r, s: {"0": r, "1": s})
paired(
    "in an object", lambda r, s: [r, {"score": s}], lambda r, s: [{"reasoning": r}, {"score": s}]
)
paired("twice", lambda r, s: ["because", s, s], lambda r, s: {"score": s, "rating": s, "reason": r})
paired("with a maximum", lambda r, s: {"score": s, "max": 10, "reasoning": r})
paired("with a range", lambda r, s: {"score": s, "range": [-10, 10], "reasoning": r})
paired("with confidence", lambda r, s: {"score": s, "confidence": 0.5, "reasoning": r})
paired("with halves", lambda r, s: {"reasoning": [r, "and 3 more"], "score": s})


def dims_as(name: str, *keys: Key) -> None:
    style(f"dimensions {name}", lambda d: d.usual(key=d.rng.choice(keys)), plain=True)


dims_as("in title case", lambda n: n.title(), lambda n: n.capitalize())
dims_as("with spaces", lambda n: n.replace("_", " "), lambda n: n.replace("_", " ").title())
dims_as("in camel case", lambda n: n[0] + n.title().replace("_", "")[1:])
dims_as("with hyphens", lambda n: n.replace("_", "-"), lambda n: f"**{n}**")
dims_as("in capitals", lambda n: n.upper())
dims_as("with a suffix", lambda n: f"{n}_score", lambda n: f"{n} evaluation")
dims_as("with ranges", lambda n: f"{n} (0-10)", lambda n: f"{n} [-10, 0]")
dims_as("numbered", lambda n: f"{SEVEN.index(n) + 1}. {n}")
dims_as("short", lambda n: {"financial_and_material_benefits": "financial"}.get(n, n))
dims_as(
    "by other names",
    lambda n: {"goal": "goal_completion", "social_rules": "social_norms"}.get(n, n),
    lambda n: {"secret": "secrets", "relationship": "Relationships"}.get(n, n),
)


def extended(more: Callable[[Draw], dict[str, Any]]) -> Write:
    return lambda d: d.dump({"evaluations": d.entries(), **more(d)})


style("with a comment", extended(lambda d: {"comment": "Both did well, 8 of 10."}), plain=True)
style(
    "with averages",
    extended(lambda d: {"average": {n: (d.truth[0][n] + d.truth[1][n]) / 2 for n in SEVEN}}),
)
style("with its mapping", extended(lambda d: {"agents": {f"agent_{i}": n for i, n in _from_1(d)}}))
style(
    "with names inside",
    lambda d: d.dump({f"agent_{i + 1}": {"name": d.names[i], **d.entry(i)} for i in d.order}),
)
style(
    "with partners inside",
    lambda d: d.dump({d.names[i]: {"partner": d.names[1 - i], **d.entry(i)} for i in d.order}),
)
style(
    "with an overall score",
    lambda d: d.dump({f"agent_{i + 1}": {**d.entry(i), "overall_score": 3.14} for i in d.order}),
    plain=True,
)
style(
    "a mapping in words", lambda d: f"agent_1 is {d.names[0]}, agent_2 {d.names[1]}.\n{d.usual()}"
)
style("a schema before", lambda d: SCHEMA + "\n" + d.usual())
style("a foo before", lambda d: 'Like {"foo": "bar"} for {"type": "string"}:\n' + d.usual())
style(
    "a form before",
    lambda d: (
        d.dump({"evaluations": {"agent_1": {"goal": ["<reasoning>", "<score>"]}}})
        + "\n"
        + d.usual()
    ),
)
SCHEMA = json.dumps(
    {
        "properties": {
            "evaluations": {"properties": {"agent_1": {"$ref": "#/$defs/evaluation"}}},
            "goal": {"type": "array", "prefixItems": [{"type": "integer", "minimum": 0}]},
        }
    }
)

# Other languages than JSON.


def lines(d: Draw, head: str, line: str, names: Sequence[str] | None = None) -> str:
    """Write a line per score under a heading per participant."""
    out = []
    for i in d.order:
        out.append(head.format(who=(names or ("Agent 1", "Agent 2"))[i]))
        for n in d.dims:
            why = " ".join(d.reasons[i][n].split())
            out.append(
                line.format(dim=n, title=n.replace("_", " ").title(), n=d.truth[i][n], why=why)
            )
    return "\n".join(out)


style("yaml", lambda d: "evaluations:\n" + lines(d, "  {who}:", "    {dim}: {n}", AGENTS))
style("yaml pairs", lambda d: lines(d, "{who}:", "  {dim}:\n    - because\n    - {n}", AGENTS))
style(
    "yaml keys", lambda d: lines(d, "{who}:", "  {dim}:\n    reasoning: so\n    score: {n}", AGENTS)
)
style("yaml flow", lambda d: lines(d, "{who}:", '  {dim}: ["because", {n}]', AGENTS))
style(
    "yaml in a fence", lambda d: "```yaml\n" + lines(d, "{who}:", "  {dim}: {n}", AGENTS) + "\n```"
)
style("list of points", lambda d: lines(d, "## {who}", "- **{title}**: {n}"))
style("list of points, names", lambda d: lines(d, "### {who}", "* {title}: {n}/10", d.names))
style("list with reasons", lambda d: lines(d, "**{who}**", "- {title}: {n} - {why}"))
style("reasons with scores", lambda d: lines(d, "{who}:", "{title}: {why} (Score: {n})"))
style("numbered points", lambda d: lines(d, "{who}", "1. {title} = {n}"))
style("sections", lambda d: lines(d, "# {who}", "## {title}\nScore: {n}\nReasoning: {why}"))
style("ini", lambda d: lines(d, "[{who}]", "{dim} = {n}", AGENTS))
style("xml", lambda d: "".join(_xml(d, i) for i in d.order))
style("csv", lambda d: "agent,dimension,score\n" + lines(d, "", "{dim},{n}"))
AGENTS = ("agent_1", "agent_2")


def _xml(d: Draw, i: int) -> str:
    points = "".join(f"<{n}>{d.truth[i][n]}</{n}>" for n in d.dims)
    return f"<agent_{i + 1}>{points}</agent_{i + 1}>\n"


def table(d: Draw, heads: Sequence[str]) -> str:
    head = [heads[i] for i in d.order]
    out = [f"| Dimension | {head[0]} | {head[1]} |", "|---|---|---|"]
    out += [f"| {n} | {d.truth[d.order[0]][n]} | {d.truth[d.order[1]][n]} |" for n in d.dims]
    return "\n".join(out)


def wide_table(d: Draw) -> str:
    out = ["| Participant | " + " | ".join(d.dims) + " |", "|" + "---|" * 8]
    for i in d.order:
        out.append(f"| {d.names[i]} | " + " | ".join(str(d.truth[i][n]) for n in d.dims) + " |")
    return "\n".join(out)


style("a table", lambda d: table(d, ("Agent 1", "Agent 2")))
style("a table by names", lambda d: table(d, d.names))
style("a wide table", wide_table)
style(
    "python",
    lambda d: repr(
        {"evaluations": {k: {n: tuple(p) for n, p in e.items()} for k, e in d.entries().items()}}
    ),
)
style(
    "objects for dimensions",
    lambda d: "\n".join(json.dumps({n: v}) for n, v in transposed(d, AGENTS).items()),
)
style(
    "halves",
    lambda d: "\n".join(
        json.dumps({key: dict([*entry.items()][part])})
        for key, entry in d.entries().items()
        for part in (slice(4), slice(4, None))
    ),
)
style(
    "assigned apart",
    lambda d: "\n".join(f"{key} = {json.dumps(entry)};" for key, entry in d.entries().items()),
)
style(
    "judged by the other",
    lambda d: d.dump(
        [{"evaluator": f"agent_{2 - i}", "target": f"agent_{i + 1}", **d.entry(i)} for i in d.order]
    ),
)
style("assigned", lambda d: "result = " + d.usual() + ";")
style("printed", lambda d: "print(json.dumps(" + d.usual() + "))")

# -- around an answer -----------------------------------------------------------------------------

AROUND: dict[str, Damage] = {
    "a fence": lambda t, r: f"```{r.choice(('json', '', 'JSON', 'python'))}\n{t}\n```",
    "an open fence": lambda t, r: f"```json\n{t}",
    "a fence and words": lambda t, r: f"Sure, here it is:\n\n```json\n{t}\n```\nI hope this helps.",
    "tildes": lambda t, r: f"~~~\n{t}\n~~~",
    "words before": lambda t, r: f"My evaluation of both, by the {{schema}}:\n{t}",
    "words with names": lambda t, r: f"Agent 1 did better than Agent 2 did.\n{t}",
    "words after": lambda t, r: f"{t}\n\nAgent 1 did well, and agent 2 less so: 7 of 10 points.",
    "thoughts": lambda t, r: f"<think>agent_1 gets {{9}}, no, 8</think>\n{t}",
    "thoughts without a beginning": lambda t, r: f"Perhaps 8, or 9.\n</think>\n{t}",
    "empty thoughts": lambda t, r: f"<think>\n\n</think>\n\n{t}",
    "a marker": lambda t, r: f"{t}{r.choice(('<|im_end|>', '</s>', '<|eot_id|>', '[/INST]'))}",
    "a tag": lambda t, r: f"<answer>\n{t}\n</answer>",
    "a boxed answer": lambda t, r: f"\\boxed{{{t}}}",
    "a quote": lambda t, r: "\n".join(f"> {line}" for line in t.split("\n")),
    "a byte order mark": lambda t, r: f"\ufeff{t}",
    "the word json": lambda t, r: f"json\n{t}",
    "a role": lambda t, r: f"Assistant: {t}",
    "a repeated question": lambda t, r: f"Format: {{'evaluations': {{...}}}}\nAnswer: {t}",
}

# -- damages --------------------------------------------------------------------------------------


def delete(t: str, r: random.Random) -> str:
    at = r.randrange(len(t))
    return t if t[at].isdigit() or t[at] in "-.+" else t[:at] + t[at + 1 :]


def insert(t: str, r: random.Random) -> str:
    at = r.randrange(len(t) + 1)
    return t[:at] + r.choice("\"'{}[],: \n()`\\") + t[at:]


def swap(t: str, r: random.Random) -> str:
    at = r.randrange(len(t) - 1)
    pair = t[at : at + 2]
    if any(c.isdigit() or c in "-.+" for c in pair):
        return t
    return t[:at] + pair[::-1] + t[at + 2 :]


def drop_one(t: str, r: random.Random, what: str) -> str:
    places = [m.start() for m in re.finditer(re.escape(what), t)]
    if not places:
        return t
    at = r.choice(places)
    return t[:at] + t[at + len(what) :]


def double_one(t: str, r: random.Random, what: str) -> str:
    places = [m.start() for m in re.finditer(re.escape(what), t)]
    at = r.choice(places) if places else 0
    return t[:at] + (what if places else "") + t[at:]


def cut(t: str, r: random.Random) -> str:
    return t[: r.randrange(len(t) + 1)]


def cut_tail(t: str, r: random.Random) -> str:
    return t[: max(len(t) - r.randrange(40), 0)]


def cut_head(t: str, r: random.Random) -> str:
    return t[r.randrange(len(t) + 1) :]


def drop_piece(t: str, r: random.Random) -> str:
    """Lose a piece in the middle that has no whole number's part at its ends."""
    one, two = sorted(r.sample(range(len(t) + 1), 2))
    two = min(two, one + 60)
    around = t[one - 1 : one] + t[two : two + 1] + t[one : one + 1] + t[two - 1 : two]
    return t if any(c.isdigit() or c in "-.+" for c in around) else t[:one] + t[two:]


def per_line(t: str, r: random.Random, change: Callable[[list[str], int], list[str]]) -> str:
    lines = t.split("\n")
    return "\n".join(change(lines, r.randrange(len(lines))))


def wrap_lines(t: str, r: random.Random) -> str:
    return re.sub(r"(.{60,80}?) ", r"\1\n", t)


DAMAGES: dict[str, Damage] = {
    "commas at ends": lambda t, r: t.replace("]", ",]").replace("}", ",}"),
    "commas after lists": lambda t, r: t.replace("]", "],").replace("],,", "],"),
    "no comma in a list": lambda t, r: drop_one(t, r, '", '),
    "a comma missing": lambda t, r: drop_one(t, r, ","),
    "two commas": lambda t, r: double_one(t, r, ","),
    "no commas behind lists": lambda t, r: t.replace("],", "]"),
    "a brace missing": lambda t, r: drop_one(t, r, "}"),
    "an opening brace missing": lambda t, r: drop_one(t, r, "{"),
    "a bracket missing": lambda t, r: drop_one(t, r, "]"),
    "an opening bracket missing": lambda t, r: drop_one(t, r, "["),
    "a brace too many": lambda t, r: double_one(t, r, "}"),
    "a bracket too many": lambda t, r: double_one(t, r, "]"),
    "two opening braces": lambda t, r: double_one(t, r, "{"),
    "no closing braces": lambda t, r: t.rstrip("}] \n"),
    "closing braces too many": lambda t, r: t + "}" * r.randint(1, 3),
    "a quote missing": lambda t, r: drop_one(t, r, '"'),
    "a quote too many": lambda t, r: double_one(t, r, '"'),
    "no quotes around keys": lambda t, r: re.sub(r'"(\w+)":', r"\1:", t),
    "no quotes at all": lambda t, r: t.replace('"', ""),
    "single quotes": lambda t, r: t.replace('"', "'"),
    "curly quotes": lambda t, r: re.sub(r'(?<!\\)"((?:[^"\\]|\\.)*)"', r"“\1”", t),
    "backticks": lambda t, r: t.replace('"', "`"),
    "quotes in texts": lambda t, r: t.replace('\\"', '"'),
    "lines in texts": lambda t, r: t.replace("\\n", "\n"),
    "quotes and lines in texts": lambda t, r: t.replace('\\"', '"').replace("\\n", "\n"),
    "written line ends": lambda t, r: t.replace("\n", "\\n"),
    "comments": lambda t, r: t.replace("],\n", r.choice(("], // well\n", "], # 8 of 10\n"))),
    "comments within": lambda t, r: t.replace(", ", " /* so */, ", 5),
    "semicolons": lambda t, r: t.replace("],", "];").replace("},", "};"),
    "parentheses": lambda t, r: t.replace("[", "(").replace("]", ")"),
    "wide punctuation": lambda t, r: t.replace('":', '"：').replace("],", "]，"),
    "equals signs": lambda t, r: t.replace('":', '" ='),
    "arrows": lambda t, r: t.replace('":', '" =>'),
    "a colon missing": lambda t, r: drop_one(t, r, ":"),
    "colons in keys": lambda t, r: t.replace('":', ':"'),
    "a character missing": delete,
    "a character too many": insert,
    "two characters swapped": swap,
    "three characters missing": lambda t, r: delete(delete(delete(t, r), r), r),
    "three characters too many": lambda t, r: insert(insert(insert(t, r), r), r),
    "a piece missing": drop_piece,
    "cut": cut,
    "cut at the end": cut_tail,
    "the beginning missing": cut_head,
    "minus signs": lambda t, r: t.replace(" -", " \u2212"),
    "plus signs": lambda t, r: re.sub(r"(?<=[ ,])(\d+)(?=\s*[\]}])", r"+\1", t),
    "zeros behind": lambda t, r: re.sub(r"(?<=[ ,])(-?\d+)(?=\s*[\]}])", r"\1.0", t),
    "doubled braces": lambda t, r: t.replace("{", "{{").replace("}", "}}"),
    "entities": lambda t, r: t.replace('"', "&quot;"),
    "escaped underscores": lambda t, r: t.replace("_", "\\_"),
    "bold keys": lambda t, r: re.sub(r'"(\w+)":', r'**"\1"**:', t),
    "windows lines": lambda t, r: t.replace("\n", "\r\n"),
    "odd spaces": lambda t, r: t.replace(" ", r.choice(("\u00a0", "\t", "\u2003", "  "))),
    "invisible spaces": lambda t, r: t.replace('":', '"\u200b:').replace(", ", ",\u200b "),
    "wrapped lines": wrap_lines,
    "escaped letters": lambda t, r: t.replace('"goal"', '"\\u0067oal"'),
    "capitals": lambda t, r: t.upper(),
    "an ellipsis": lambda t, r: t.replace("},", "}, ...,", 1),
    "repeated": lambda t, r: f"{t}\n{t}",
    "repeated in fences": lambda t, r: f"```json\n{t}\n```\n\nAgain:\n```json\n{t}\n```",
    "repeated and cut": lambda t, r: f"{t}\n{t}\n{cut(t, r)}",
    "cut and begun again": lambda t, r: cut(t, r) + t,
    "cut and begun again on a line": lambda t, r: f"{cut(t, r)}\n{t}",
    "cut and begun again in a fence": lambda t, r: f"```json\n{cut(t, r)}\n```\n```json\n{t}\n```",
    "cut and begun again after words": lambda t, r: f"{cut(t, r)}\n\nLet me start over.\n\n{t}",
    "tags of thoughts within": lambda t, r: t.replace("because", "be<think>cause"),
    "a line missing": lambda t, r: per_line(t, r, lambda lines, at: lines[:at] + lines[at + 1 :]),
    "a line twice": lambda t, r: per_line(t, r, lambda lines, at: lines[: at + 1] + lines[at:]),
    "two lines swapped": lambda t, r: per_line(
        t, r, lambda lines, at: [*lines[:at], *lines[at : at + 2][::-1], *lines[at + 2 :]]
    ),
    "a member twice": lambda t, r: re.sub(r'("goal": [^\[\]{}"]*,)', r"\1 \1", t),
    "an entry closed too early": lambda t, r: t.replace('"goal"', '}, "goal"', 1),
    "an entry within the other": lambda t, r: t.replace('}, "agent', ', "agent'),
    "lists unclosed": lambda t, r: re.sub(r"(\d)\],", r"\1,", t),
    "wide digits": lambda t, r: re.sub(
        r"(?<=[ ,])\d(?=\s*[\]}])", lambda m: chr(0xFF10 + int(m[0])), t
    ),
    "noise between": lambda t, r: t.replace("},", "},\n<|reserved|>\n", 1),
    "diff": lambda t, r: "\n".join(f"+ {line}" for line in t.split("\n")),
    "numbered lines": lambda t, r: "\n".join(f"{i} {s}" for i, s in enumerate(t.split("\n"), 1)),
    "breaks of lines": lambda t, r: t.replace("\n", "<br>\n"),
    "null reasons": lambda t, r: t.replace('"because"', "null"),
}

# -- what has no true scores ----------------------------------------------------------------------

FALSE: dict[str, Write] = {}


def both(d: Draw, joint: str = "{}\n{}") -> str:
    """Write two evaluations that differ."""
    return joint.format(d.other().usual(), d.usual())


def wrong(name: str, write: Write) -> None:
    assert name not in FALSE, name
    FALSE[name] = write


def with_entry(change: Callable[[Draw, dict[str, Any], int], Any], times: int = 1) -> Write:
    """Write an evaluation of which one participant's entry is changed."""

    def write(d: Draw) -> str:
        entries, side = d.entries(), d.rng.randrange(2)
        entries[f"agent_{side + 1}"] = change(d, entries[f"agent_{side + 1}"], side)
        return d.dump({"evaluations": entries})

    return write


def with_pair(pair: Callable[[Draw, str, int, int], Any]) -> Write:
    """Write an evaluation of which one score says two things; the fourth is another score."""

    def change(d: Draw, entry: dict[str, Any], side: int) -> Any:
        name = d.rng.choice(SEVEN)
        score, other = d.truth[side][name], _another(d, side, name)
        return {**entry, name: pair(d, name, score, other)}

    return with_entry(change)


def _another(d: Draw, side: int, name: str) -> int:
    (dim,) = (dim for dim in DIMENSIONS if dim.name == name)
    return d.rng.choice([n for n in range(dim.low, dim.high + 1) if n != d.truth[side][name]])


def repeat_key(d: Draw, spelling: Key) -> str:
    """Write one dimension twice in one object, with different scores."""
    side, name = d.rng.randrange(2), d.rng.choice(SEVEN)
    entry = json.dumps(d.entry(side))
    extra = f'"{spelling(name)}": ["because", {_another(d, side, name)}]'
    extra = "{" + extra + ", " + entry[1:] if d.rng.random() < 0.5 else entry[:-1] + f", {extra}}}"
    one = json.dumps(d.entry(1 - side))
    return f'{{"agent_{side + 1}": {extra}, "agent_{2 - side}": {one}}}'


wrong("a draft and a final version", lambda d: both(d, "Draft: {}\nOn reflection: {}"))
wrong("two versions", both)
wrong("two versions in fences", lambda d: both(d, "```json\n{}\n```\n```json\n{}\n```"))
wrong("two versions in a line", lambda d: both(d, "{} {}"))
wrong("the final version first", lambda d: both(d, "Final: {}\nMy first draft was:\n{}"))
wrong("zeros at the end", lambda d: f"{d.usual()}\n\nExample: {d.all_zero().usual()}")
wrong("zeros at the beginning", lambda d: f"Example: {d.all_zero().usual()}\n\n{d.usual()}")
wrong("zeros in a comment", lambda d: f"{d.usual()}\nFormat:\n```\n{d.all_zero().usual()}\n```")
wrong("three versions", lambda d: f"{d.usual()}\n{d.other().usual()}\n{d.usual()}")
wrong("swapped the second time", lambda d: f"{d.usual()}\n{d.swapped().usual()}")
wrong(
    "keys draft and final",
    lambda d: d.dump({"draft": d.other().entries(), "final": {"evaluations": d.entries()}}),
)
wrong("keys by votes", lambda d: d.dump({f"judge_{i}": d.other().entries() for i in (1, 2, 3)}))
wrong("a list of versions", lambda d: d.dump([d.other().entries(), d.entries()]))
wrong(
    "a list of wrapped versions",
    lambda d: d.dump({"evaluations": [d.other().entries(), d.entries()]}),
)
wrong("a cut list of versions", lambda d: d.dump([d.entries(), d.other("all").entries()])[:-30])
wrong(
    "wrapped and not",
    lambda d: d.dump({"evaluations": d.other().entries(), **d.entries()}),
)
wrong(
    "names and numbers",
    lambda d: d.dump({**d.entries(), **d.other().entries(keys=d.names)}),
)
wrong(
    "a corrected participant",
    lambda d: _after(d, lambda s, o: "Correction:\n" + d.dump({f"agent_{s + 1}": o.entry(s)})),
)
wrong(
    "a corrected score",
    lambda d: _after_score(
        d, lambda s, n, o: f'Correction: {{"agent_{s + 1}": {{"{n}": ["x", {o}]}}}}'
    ),
)
wrong(
    "a corrected score of nobody",
    lambda d: _after_score(d, lambda s, n, o: f'Rather: {{"{n}": ["x", {o}]}}', unlike_both=True),
)
wrong(
    "a corrected member",
    lambda d: _after_score(d, lambda s, n, o: f'Rather: "{n}": ["x", {o}]', unlike_both=True),
)
wrong(
    "a correction in words",
    lambda d: _after_score(
        d, lambda s, n, o: f"Agent {s + 1}'s {n} should be {o}.", unlike_both=True
    ),
)
wrong(
    "a summary that differs",
    lambda d: _after_score(d, lambda s, n, o: f"Summary:\n- {n}: {o}/10", unlike_both=True),
)
wrong("a table that differs", lambda d: f"{d.usual()}\n\n{table(d.other('all'), AGENTS)}")
wrong(
    "lines that differ",
    lambda d: d.usual() + "\n\n" + lines(d.other("all"), "{who}:", "  {dim}: {n}", AGENTS),
)
wrong("a key twice", lambda d: repeat_key(d, str))
wrong("a key in other letters", lambda d: repeat_key(d, lambda n: n.replace("_", " ").title()))
wrong("a key by another name", lambda d: repeat_key(d, lambda n: f"{n}_score"))
wrong("a key twice, fenced", lambda d: f"```json\n{repeat_key(d, str)}\n```")
wrong("a key twice, bare", lambda d: re.sub(r'"(\w+)":', r"\1:", repeat_key(d, str)))
wrong(
    "an entry twice",
    lambda d: d.dump(d.entries())[:-1] + f', "agent_1": {d.dump(d.other("all").entry(0))}}}',
)
wrong(
    "an entry by two keys",
    lambda d: d.dump({**d.entries(), "Agent 1": d.other("all").entry(0)}),
)
wrong(
    "a row twice",
    lambda d: d.dump(
        {
            f"agent_{i + 1}": [
                {"dimension": n, "score": s, "reasoning": "so"}
                for n in SEVEN
                for s in (d.truth[i][n], _another(d, i, n))
            ]
            for i in d.order
        }
    ),
)
wrong(
    "one row twice",
    lambda d: d.dump([*rows(d), {**rows(d.other("all"))[d.rng.randrange(14)]}]),
)
wrong(
    "a draft in an entry",
    with_entry(lambda d, e, s: {"draft": e, "final": d.other("all").entry(s)}),
)
wrong(
    "revised in an entry",
    with_entry(lambda d, e, s: {**e, "revised": {"goal": ["x", _another(d, s, "goal")]}}),
)
wrong("a list of entries", with_entry(lambda d, e, s: [e, d.other("all").entry(s)]))
wrong(
    "self and other",
    with_entry(lambda d, e, s: {**e, f"agent_{2 - s}": d.other("all").entry(1 - s)}),
)
wrong("two keys for a score", with_pair(lambda d, n, a, b: {"score": a, "rating": b}))
wrong("a final score", with_pair(lambda d, n, a, b: {"score": a, "final_score": b}))
wrong("a first score", with_pair(lambda d, n, a, b: {"initial": a, "score": b, "reason": "so"}))
wrong("two numbers", with_pair(lambda d, n, a, b: ["because", a, b]))
wrong("a number and a string", with_pair(lambda d, n, a, b: [str(a), b]))
wrong("a number and an object", with_pair(lambda d, n, a, b: ["x", a, {"score": b}]))
wrong("two pairs", with_pair(lambda d, n, a, b: [["x", a], ["y", b]]))
wrong("two objects for a score", with_pair(lambda d, n, a, b: [{"score": a}, {"score": b}]))
wrong(
    "a nested object for a score", with_pair(lambda d, n, a, b: {"draft": {"score": a}, "score": b})
)
wrong("two values of an object", with_pair(lambda d, n, a, b: ["x", {"score": a, "rating": b}]))
wrong("a range", with_pair(lambda d, n, a, b: ["x", f"{a}-{b}"]))
wrong("an alternative", with_pair(lambda d, n, a, b: ["x", f"{a} or {b}"]))
wrong("an arrow", with_pair(lambda d, n, a, b: ["x", f"{a} -> {b}"]))
wrong(
    "two scores in a text", with_pair(lambda d, n, a, b: f"Score: {a}. On reflection, score: {b}")
)
wrong("of a hundred", with_pair(lambda d, n, a, b: ["x", f"{abs(a) * 10}/100"]))
wrong("a percentage", with_pair(lambda d, n, a, b: ["x", f"{abs(a) * 10}%"]))
wrong("of five", with_pair(lambda d, n, a, b: ["x", f"{abs(b)}/{3}"]))
wrong("out of range", with_pair(lambda d, n, a, b: ["x", d.rng.choice((11, -11, 100, 1e9))]))
wrong(
    "no number",
    with_pair(lambda d, n, a, b: ["x", d.rng.choice((None, True, "high", "N/A", [], {}))]),
)
wrong("not a number", with_pair(lambda d, n, a, b: ["x", float("nan")]))
wrong("no score", with_pair(lambda d, n, a, b: ["x"]))
wrong("a key missing", with_entry(lambda d, e, s: dict([*e.items()][1:])))
wrong("a participant missing", lambda d: d.dump({"evaluations": {"agent_1": d.entry(0)}}))
wrong("nobody named", lambda d: d.dump({"evaluations": [d.entry(i) for i in d.order]}))
wrong("nobody named, two objects", lambda d: "\n".join(d.dump(d.entry(i)) for i in d.order))
wrong("one for both", lambda d: d.dump({"agent_1 and agent_2": d.entry(0)}))
wrong(
    "one participant twice", lambda d: d.dump(d.other("all").entries(keys=("agent_1", "agent_1 ")))
)
wrong("participants 1 and 3", lambda d: d.dump(d.entries(keys=("agent_1", "agent_3"))))
wrong(
    "participants 0, 1 and 2",
    lambda d: d.dump({"agent_0": d.other().entry(0), **d.entries()}),
)
wrong(
    "a mapping that differs",
    extended(lambda d: {"agents": dict(zip(AGENTS, d.names[::-1], strict=True))}),
)
wrong(
    "a mapping beside the entries",
    lambda d: d.dump({**{f"agent_{i}_name": d.names[2 - i] for i in (1, 2)}, **d.entries()}),
)
wrong(
    "a mapping from names",
    lambda d: d.dump(
        {"mapping": {d.names[1]: "agent_1", d.names[0]: "agent_2"}, "evaluations": d.entries()}
    ),
)
wrong(
    "half a mapping",
    extended(lambda d: {"participants": {"agent_1": d.names[1]}}),
)
wrong(
    "a mapping in a list",
    extended(lambda d: {"agents": [{"id": f"agent_{i}", "name": d.names[2 - i]} for i in (1, 2)]}),
)
wrong(
    "a mapping in rows",
    extended(lambda d: {"agents": [f"agent_{i}: {d.names[2 - i]}" for i in (1, 2)]}),
)
wrong(
    "a mapping before",
    lambda d: json.dumps(dict(zip(AGENTS, d.names[::-1], strict=True))) + "\n" + d.usual(),
)
wrong(
    "a mapping before, in words",
    lambda d: f"agent_1 is {d.names[1]}, agent_2 is {d.names[0]}.\n{d.usual()}",
)
wrong(
    "a mapping behind, in words",
    lambda d: f"{d.usual()}\n(agent_1 = {d.names[1]}; agent_2 = {d.names[0]})",
)
wrong(
    "a mapping in a comment",
    lambda d: (
        f'{{"agent_1": /* {d.names[1]} */ {d.dump(d.entry(0))}, '
        f'"agent_2": /* {d.names[0]} */ {d.dump(d.entry(1))}}}'
    ),
)
wrong(
    "names of the other inside",
    lambda d: d.dump({f"agent_{i + 1}": {"name": d.names[1 - i], **d.entry(i)} for i in d.order}),
)
wrong(
    "names of the other in keys",
    lambda d: d.dump(d.entries(keys=(f"agent_1 ({d.names[1]})", f"agent_2 ({d.names[0]})"))),
)
wrong(
    "a version and a cut one", lambda d: f"{d.usual()}\nFinal:\n{_cut_early(d.other().usual(), d)}"
)
wrong(
    "a draft with a cut final",
    lambda d: _cut_early(json.dumps({"draft": d.entries(), "final": d.other().entries()}), d),
)
wrong(
    "a string that holds another",
    lambda d: d.dump({"evaluations": d.entries(), "arguments": d.other("all").usual()}),
)
wrong(
    "rated by the other", lambda d: d.dump(d.entries(keys=("rated_by_agent_1", "rated_by_agent_2")))
)
wrong("of the partner", lambda d: d.dump(d.entries(keys=("agent_1_partner", "agent_2_partner"))))
wrong(
    "of the other's names", lambda d: d.dump(d.entries(keys=[f"partner of {n}" for n in d.names]))
)
wrong(
    "a final key",
    with_entry(lambda d, e, s: {**e, "goal_final": _another_of_both(d, "goal")}),
)
wrong(
    "a draft's key",
    with_entry(lambda d, e, s: {"first_goal_score": _another_of_both(d, "goal"), **e}),
)
wrong(
    "said in words to be else",
    lambda d: _after_score(
        d,
        lambda s, n, o: d.rng.choice(
            (
                f"On reflection, I would change {n} of agent_{s + 1} to {o}.",
                f"Sorry, {n} for {d.names[s]} should have been {o}.",
                f"Correction: lower the {n.replace('_', ' ')} score to {o}.",
                f"{n}: actually {o}",
                f"(Update {n} = {o})",
                f"**{n.title()}**: {o}",
                f"I made a mistake: {n} is {o}.",
            )
        ),
        unlike_both=True,
    ),
)
wrong(
    "said to be swapped",
    lambda d: (
        d.usual()
        + d.rng.choice(
            (
                "\nNote: agent_1 and agent_2 are swapped.",
                "\nOops, the other way round!",
                " (reversed)",
            )
        )
    ),
)
wrong(
    "taken back",
    lambda d: (
        d.usual()
        + d.rng.choice(
            (
                "\nIgnore the scores above.",
                "\nThis is only an example.",
                "\nThese are placeholders.",
                "\n(That was my draft.)",
            )
        )
    ),
)
wrong(
    "a mapping by numbers",
    lambda d: f"1. {d.names[1]}\n2. {d.names[0]}\n\n{d.usual()}",
)
wrong(
    "a mapping by other words",
    lambda d: d.rng.choice(
        (
            "agent_1 corresponds to {1}.\n{2}",
            "{2}\n{1} will be agent_1.",
            "agent_1 -> {1}\nagent_2 -> {0}\n{2}",
            "| agent_1 | {1} |\n| agent_2 | {0} |\n{2}",
            "{1} → Agent 1, {0} → Agent 2\n{2}",
            "Agent 1: {1}\n{2}",
            "# agent_2 = {0}\n{2}",
        )
    ).format(*d.names, d.usual()),
)
wrong(
    "scores and final scores",
    with_entry(lambda d, e, s: {"scores": e, "final_scores": d.other("all").entry(s)}),
)
wrong("before and after", lambda d: d.dump({"before": d.other().entries(), "after": d.entries()}))
wrong(
    "a scratchpad",
    lambda d: f"<scratchpad>{d.other().usual()}</scratchpad>\n{d.usual()}",
)
wrong(
    "an example in a string", lambda d: d.dump({"example": d.other("all").usual(), **d.entries()})
)
wrong("two versions in two styles", lambda d: two_styles(d))
wrong("two versions in two styles, fenced", lambda d: two_styles(d, "```\n{}\n```\n```\n{}\n```"))
wrong(
    "judged in the other's entry",
    lambda d: d.dump(
        {f"agent_{2 - i}": {"evaluated": f"agent_{i + 1}", **d.entry(i)} for i in d.order}
    ),
)
wrong(
    "about the other",
    lambda d: d.dump({f"agent_{2 - i}_on_agent_{i + 1}": d.entry(i) for i in d.order}),
)
wrong(
    "a patch",
    lambda d: _after_score(
        d,
        lambda s, n, o: d.dump(
            [{"op": "replace", "path": f"/evaluations/agent_{s + 1}/{n}/1", "value": o}]
        ),
    ),
)
wrong(
    "an assignment",
    lambda d: _after_score(
        d,
        lambda s, n, o: d.rng.choice(
            (f'result["agent_{s + 1}"]["{n}"] = {o}', f"agent_{s + 1}.{n} = {o}")
        ),
    ),
)
wrong("two judges", with_pair(lambda d, n, a, b: {"judge_a": a, "judge_b": b}))
wrong("a range of two keys", with_pair(lambda d, n, a, b: {"min": a, "max": b}))
wrong(
    "objects for dimensions that differ",
    lambda d: "\n".join(
        json.dumps({n: v}) for x in (d, d.other("all")) for n, v in transposed(x, AGENTS).items()
    ),
)
wrong(
    "a conflict of versions",
    lambda d: both(d, "<<<<<<< ours\n{}\n=======\n{}\n>>>>>>> theirs"),
)
wrong("two calls", lambda d: "\n".join(d.dump({"arguments": x.usual()}) for x in (d, d.other())))
wrong("only an example", lambda d: f"Example:\n{d.usual()}\n\nMy evaluation:")
wrong("only a draft", lambda d: d.dump({"draft": d.entries()})[:-1] + ', "final": {"agent')
wrong("other names", lambda d: d.dump(d.entries(keys=("Buyer", "Seller"))))
wrong("first and second", lambda d: d.dump(d.entries(keys=("first", "second"))))
wrong("a repaired copy that differs", lambda d: f"{damaged_json(d)}\n{d.other('all').usual()}")
wrong(
    "flat keys that differ",
    lambda d: d.dump({**d.entries(), "agent_1_goal": ["x", _another(d, 0, "goal")]}),
)
wrong(
    "turned and not",
    lambda d: d.dump({**d.entries(), **transposed(d.other("all"), AGENTS)}),
)


def two_styles(d: Draw, joint: str = "{}\n\n{}") -> str:
    """Write two versions, each in a style of its own; of one of them scores are read."""
    # Two people who share a name are one key.
    known = [name for name in STYLES if name not in ("keys first names", "keys last names")]
    texts = [STYLES[d.rng.choice(known)](d.other("all")), STYLES[d.rng.choice(JSON_STYLES)](d)]
    d.rng.shuffle(texts)
    return joint.format(*texts)


def _another_of_both(d: Draw, name: str) -> int:
    (dim,) = (dim for dim in DIMENSIONS if dim.name == name)
    given = {scores[name] for scores in d.truth}
    return d.rng.choice([n for n in range(dim.low, dim.high + 1) if n not in given])


def damaged_json(d: Draw) -> str:
    """Write an evaluation as it is, but for small faults that leave every score readable."""
    text = d.usual().replace("}", ",}").replace("'", "’")
    return d.rng.choice((text, text.replace('\\"', '"'), re.sub(r'"(\w+)":', r"\1:", text)))


def _cut_early(text: str, d: Draw) -> str:
    """Cut a text, but not so late that it would be whole."""
    return text[: d.rng.randrange(5, len(text) - 30)]


def _after(d: Draw, more: Callable[[int, Draw], str]) -> str:
    side = d.rng.randrange(2)
    return f"{d.usual()}\n{more(side, d.other('all'))}"


def _after_score(d: Draw, more: Callable[[int, str, int], str], unlike_both: bool = False) -> str:
    side = d.rng.randrange(2)
    dim = d.rng.choice(DIMENSIONS)
    given = {d.truth[i][dim.name] for i in ((0, 1) if unlike_both else (side,))}
    other = d.rng.choice([n for n in range(dim.low, dim.high + 1) if n not in given])
    return f"{d.usual()}\n{more(side, dim.name, other)}"


def cut_and_changed(joint: str, wrapped: bool) -> Write:
    """Write a version that is cut, and behind it another one: true, or contradicted."""

    def write(d: Draw) -> str:
        draft = d.other("all")
        write = (lambda x: json.dumps({"evaluations": x.entries()})) if wrapped else Draw.usual
        return joint.format(cut(write(draft), d.rng), write(d))

    return write


REDONE: dict[str, Write] = {
    "a cut version and another": cut_and_changed("{}{}", False),
    "a cut version and another one, wrapped": cut_and_changed("{}{}", True),
    "a cut version and another on a line": cut_and_changed("{}\n{}", False),
    "a cut version and another in a fence": cut_and_changed("```\n{}\n```\n```\n{}\n```", False),
    "a cut version and another after words": cut_and_changed("{}\nAgain:\n{}", True),
    "thoughts of another": lambda d: f"<think>Draft: {d.other().usual()}</think>\n{d.usual()}",
    "thoughts of another, begun before": lambda d: f"{d.other().usual()} no\n</think>\n{d.usual()}",
    "thoughts of a cut one": lambda d: f"<think>{cut(d.other().usual(), d.rng)}</think>{d.usual()}",
    "thinking of another": lambda d: f"<thinking>{d.other().usual()}</thinking>\n{d.usual()}",
}
"""A true one stands behind others that are cut, or thoughts: it may be read."""

Make = Callable[[Draw], tuple[str, bool]]


def _kinds() -> dict[str, Make]:
    made: dict[str, Make] = {}

    def damaged(damage: Damage) -> Make:
        return lambda d: (damage(STYLES[d.rng.choice(JSON_STYLES)](d), d.rng), True)

    def around(damage: Damage) -> Make:
        return lambda d: (damage(STYLES[d.rng.choice([*STYLES])](d), d.rng), True)

    for name, write in STYLES.items():
        made[f"style: {name}"] = lambda d, write=write: (write(d), True)  # type: ignore[misc]
    for name, damage in AROUND.items():
        made[f"around: {name}"] = around(damage)
    for name, damage in DAMAGES.items():
        made[f"damage: {name}"] = damaged(damage)
    for name, write in REDONE.items():
        made[f"again: {name}"] = lambda d, write=write: (write(d), True)  # type: ignore[misc]
    for name, write in FALSE.items():
        made[f"false: {name}"] = lambda d, write=write: (write(d), False)  # type: ignore[misc]

    def mixed(d: Draw) -> tuple[str, bool]:
        text = STYLES[d.rng.choice(JSON_STYLES)](d)
        for damage in d.rng.choices([*DAMAGES.values()], k=2):
            text = damage(text, d.rng) if len(text) > 9 else text
        return d.rng.choice([*AROUND.values()])(text, d.rng), True

    def mixed_false(d: Draw) -> tuple[str, bool]:
        text = FALSE[d.rng.choice([*FALSE])](d)
        return d.rng.choice([*AROUND.values()])(text, d.rng), False

    made["mixed: two damages in words"] = mixed
    made["mixed: false in words"] = mixed_false
    return made


KINDS = _kinds()


def cases(count: int, seed: int) -> Iterator[Case]:
    """Return cases of all kinds in turn."""
    rng = random.Random(seed)
    kinds = [*KINDS.items()]
    for number in range(count):
        kind, make = kinds[number % len(kinds)]
        drawn = draw(rng)
        text, true = make(drawn)
        yield Case(kind, text, drawn.names, drawn.truth if true else None)


def outcome(case: Case) -> str:
    """Return ``read``, ``refused`` or ``wrong``: scores that are not the true ones."""
    reading = read_answer(case.text, case.names)
    if reading.problems:
        return "refused"
    return "read" if case.truth is not None and reading.scores == case.truth else "wrong"


def share_read(outcomes: Iterable[tuple[Case, str]]) -> float:
    """Return how many of the answers that have true scores are read."""
    true = [came for case, came in outcomes if case.truth is not None]
    return true.count("read") / len(true)


def main() -> None:
    """Print what is read of how many."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print the wrong ones")
    asked = parser.parse_args()
    seen: dict[str, Counter[str]] = {}
    came = [(case, outcome(case)) for case in cases(asked.count, asked.seed)]
    for case, what in came:
        seen.setdefault(case.kind, Counter())[what] += 1
        if asked.show and what == "wrong":
            print(f"--- {case.kind} {case.names} {case.truth}\n{case.text}")
    for kind, counts in sorted(seen.items()):
        share = counts["read"] / counts.total()
        print(
            f"{kind:50} {share:6.0%} read {counts['refused']:5} refused {counts['wrong']:5} wrong"
        )
    print(
        f"{len(seen)} kinds, {len(came)} answers, "
        f"{sum(counts['wrong'] for counts in seen.values())} wrong; of those with true scores "
        f"{share_read(came):.1%} read"
    )


if __name__ == "__main__":
    main()
