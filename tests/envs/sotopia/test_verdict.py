"""From what judges write to scores: the right ones, or none."""

from __future__ import annotations

import json
import random
import re
import time

import pytest

from creditrl.envs.sotopia.dimensions import DIMENSIONS, choose_dimensions
from creditrl.envs.sotopia.judge_answer import read_answer
from creditrl.envs.sotopia.loose_json import Members, read_json
from creditrl.errors import ConfigError

NAMES = ("Samuel Anderson", "Finnegan O'Malley")
SEVEN = [dimension.name for dimension in DIMENSIONS]
ONE = dict(zip(SEVEN, (9, 2, 3, -1, 0, 4, 7), strict=True))
TWO = dict(zip(SEVEN, (8, -5, 0, 0, -10, -5, 10), strict=True))


def entry(scores, reason="because"):
    return {name: [reason, score] for name, score in scores.items()}


def answer(one=None, two=None, keys=("agent_1", "agent_2"), reverse=False):
    pairs = [(keys[0], one or entry(ONE)), (keys[1], two or entry(TWO))]
    return {"evaluations": dict(reversed(pairs) if reverse else pairs)}


def read(value, **options):
    text = value if isinstance(value, str) else json.dumps(value)
    return read_answer(text, NAMES, **options)


def assert_right(value, repaired=None):
    reading = read(value)
    assert reading.problems == ()
    assert reading.scores == (ONE, TWO)
    if repaired is not None:
        assert reading.repaired is repaired


# -- forms ----------------------------------------------------------------------------------------


def test_the_form_that_was_asked_for_needs_no_repair():
    assert_right(answer(), repaired=False)
    assert read(answer()).reasoning[1]["goal"] == "because"


def test_participants_are_known_by_key_and_not_by_position():
    assert_right(answer(reverse=True), repaired=False)
    assert_right(answer(keys=("agent_2", "agent_1"), one=entry(TWO), two=entry(ONE)))


@pytest.mark.parametrize(
    "keys",
    [
        ("agent_1_evaluation", "agent_2_evaluation"),
        ("Agent 1", "Agent 2"),
        ("Agent1", "agent2"),
        ("1", "2"),
        ("agent_0", "agent_1"),
        ("Participant One", "Participant Two"),
        NAMES,
        ("samuel anderson", "FINNEGAN O MALLEY"),
        ("Samuel", "Finnegan"),
        ("Anderson's evaluation", "O'Malley's evaluation"),
        ("agent_1 (Samuel Anderson)", "agent_2 (Finnegan O'Malley)"),
        ("agent_1", "Finnegan"),
        ("Agent1Evaluation", "Agent2Evaluation"),
        ("agentOneScores", "agentTwoScores"),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_keys_and_names(keys, reverse):
    assert_right(answer(keys=keys, reverse=reverse))
    assert_right(answer(keys=keys, reverse=reverse)["evaluations"])


@pytest.mark.parametrize(
    "keys",
    [
        ("agent_1 (Finnegan O'Malley)", "agent_2 (Samuel Anderson)"),
        ("agent_1", "agent_3"),
        ("first", "second"),
        ("agent_1 and agent_2", "agent_2"),
        ("agent_1", "Samuel Anderson"),
        ("Samuel and Finnegan", "agent_2"),
    ],
)
def test_entries_that_name_nobody_or_either_are_not_used(keys):
    assert read(answer(keys=keys)).problems


def test_people_who_share_a_name_are_told_apart_by_the_rest():
    for names in (("Ann Lee", "Joann Lee"), ("Mia Davis", "Noah Davis"), ("Sam Lee", "Sam Ray")):
        for keys in (names, tuple(reversed(names))):
            scores = (ONE, TWO) if keys == names else (TWO, ONE)
            text = json.dumps({key: entry(s) for key, s in zip(keys, scores, strict=True)})
            assert read_answer(text, names).scores == (ONE, TWO)
    assert read_answer(json.dumps({"Lee": entry(ONE), "Ray": entry(TWO)}), NAMES).problems
    twins = ("Sam Lee", "Sam Lee")
    assert read_answer(json.dumps(answer(keys=("agent_1 (Sam Lee)", "agent_2"))), twins).scores == (
        ONE,
        TWO,
    )


def test_a_name_inside_an_entry_counts_too():
    rows = [{"agent": NAMES[1], **entry(TWO)}, {"agent": NAMES[0], **entry(ONE)}]
    assert_right({"evaluations": rows})
    nested = [{"name": "agent_2", "scores": entry(TWO)}, {"name": "agent_1", "scores": entry(ONE)}]
    assert_right({"results": nested})
    assert read({"evaluations": [entry(ONE), entry(TWO)]}).problems  # by position: never
    swapped = answer(one={"name": NAMES[1], **entry(ONE)}, two={"name": NAMES[0], **entry(TWO)})
    assert "may be either participant" in str(read(swapped).problems)


def test_dimensions_first():
    turned = {n: {"agent_2": ["b", TWO[n]], "agent_1": ["a", ONE[n]]} for n in SEVEN}
    assert_right(turned)


@pytest.mark.parametrize(
    "pair",
    [
        lambda score: score,
        lambda score: ["one", "two", score],
        lambda score: [["one", score]],
        lambda score: {"reasoning": "one", "score": score},
        lambda score: [{"reasoning": "one"}, {"score": score}],
        lambda score: ["one", str(score)],
        lambda score: ["one", f"Score: {score}"],
        lambda score: [score, "one"],
        lambda score: ["one", float(score)],
        lambda score: f"one, two. Score: {score}",
        lambda score: ["one", score, score],
        lambda score: ["one", [score]],
        lambda score: ["one", {"score": score}],
        lambda score: {"0": "one", "1": score},
        lambda score: ["one", str(score).replace("-", "\u2212")],
    ],
)
def test_scores_in_other_clothes(pair):
    dressed = [{name: pair(score) for name, score in scores.items()} for scores in (ONE, TWO)]
    assert_right(answer(*dressed), repaired=True)


def test_a_scale_is_believed_where_it_is_the_dimensions_own():
    assert read(answer(one={**entry(ONE), "goal": ["x", "7/10"]})).scores[0]["goal"] == 7
    assert read(answer(one={**entry(ONE), "goal": ["x", "70/100"]})).problems
    assert read(answer(one={**entry(ONE), "goal": ["x", "70%"]})).problems


def test_other_words_for_dimensions():
    renamed = {
        {"financial_and_material_benefits": "Financial and Material Benefits"}.get(n, n.title()): v
        for n, v in entry(ONE).items()
    }
    assert_right(answer(one={**renamed, "overall": 3, "comment": "fine"}))


def test_a_final_version_that_keeps_the_draft_is_read():
    assert_right(answer(one={"draft": {"goal": ["x", ONE["goal"]]}, "final": entry(ONE)}))


# -- what is wrong is said ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "score"),
    [("goal", 11), ("goal", -1), ("secret", 5), ("relationship", 6), ("social_rules", -10.5)],
)
def test_a_score_out_of_range_is_no_score(name, score):
    reading = read(answer(two={**entry(TWO), name: ["x", score]}))
    assert len(reading.problems) == 1
    assert f"agent_2 (Finnegan O'Malley): {name} is {score:g}, expected" in reading.problems[0]
    assert name not in reading.scores[1] and reading.scores[0] == ONE


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "no JSON object"),
        ("Samuel did well, I would say 8 of 10.", "no JSON object"),
        ({"evaluations": {"agent_1": entry(ONE)}}, "no entry for agent_2"),
        (answer(one={k: v for k, v in entry(ONE).items() if k != "goal"}), "goal is missing"),
        (answer(one={**entry(ONE), "goal": ["x", None]}), "goal has no score"),
        (answer(one={**entry(ONE), "goal": ["x", True]}), "goal has no score"),
        (answer(one={**entry(ONE), "goal": ["x", 7, 10]}), "goal has no score"),
        (answer(one={**entry(ONE), "goal": []}), "goal has no score"),
        (answer(one={**entry(ONE), "Goal": ["x", 1]}), "goal is there twice"),
        (answer(keys=("agent_1", "agent_1 ")), "agent_1 (Samuel Anderson) is there twice"),
        # A draft and a final version within one participant's entry.
        (answer(one={"draft": entry({**ONE, "goal": 2}), "final": entry(ONE)}), "is there twice"),
        (answer(one={"own": entry(ONE), "other": entry(TWO)}), "is there twice"),
        ('{"agent_1": {"goal": ["x", 1]}, "agent_1": {"goal": ["x", 2]}}', "no entry for"),
        ("[1, 2]", "no JSON object"),
        ('{"evaluations": ' * 2000, "no JSON object"),
        ('{"a": ' * 100_000, ""),
        ("[" * 100_000, "no JSON object"),
        ('{"goal": ["x", NaN]}', "no entry"),
    ],
)
def test_what_is_wrong_is_named(value, why):
    assert why in "; ".join(read(value).problems) and read(value).problems


def test_only_some_dimensions():
    goal = choose_dimensions(["goal"])
    text = json.dumps({"agent_2": {"goal": ["b", 4]}, "agent_1": {"goal": ["a", 7]}})
    assert read_answer(text, NAMES, goal).scores == ({"goal": 7}, {"goal": 4})
    with pytest.raises(ConfigError, match="'gaol'.*'goal'"):
        choose_dimensions(["gaol"])
    with pytest.raises(ConfigError, match="without 'goal'"):
        choose_dimensions(["secret"])


# -- JSON as models write it ----------------------------------------------------------------------

TEXT = json.dumps(answer(one=entry(ONE, 'He said "no", and left.')), indent=1)


@pytest.mark.parametrize(
    "mangle",
    [
        lambda t: f"```json\n{t}\n```",
        lambda t: f"```\n{t}\n```\nI hope this helps.",
        lambda t: f"Here is {{my}} evaluation of both:\n\n{t}\n\nAgent 1 did well.",
        lambda t: f"<think>agent_1 gets {{9}}, no, 8</think>{t}",
        lambda t: t.replace("]", "],").replace(",,", ","),
        lambda t: t.replace("}", ",}"),
        lambda t: t.replace('\\"', '"'),
        lambda t: t.replace("[", "(").replace("]", ")"),
        lambda t: t.replace('"because"', "'because'"),
        lambda t: re.sub(r'"(\w+)":', r"\1:", t),
        lambda t: t.replace("because", "be\ncause"),
        lambda t: t.replace('because",', 'because"'),
        lambda t: t.replace("],\n", "]\n"),
        lambda t: t.replace("    0\n", "    +0\n"),
        lambda t: t.replace("],\n", "], // well\n"),
        lambda t: t.replace('"because"', "“because”"),
        lambda t: t.rstrip("}\n "),
        lambda t: t + "}}",
        lambda t: t.replace("],\n", "], # well\n"),
        lambda t: t.replace("\n", "\\n"),
        lambda t: t.replace("-", "\u2212"),
        lambda t: json.dumps(t),
        lambda t: json.dumps(t)[1:-1],
        lambda t: repr(json.loads(t)),
        lambda t: re.sub(
            r"\n  \},\s*\"agent_2\"", ',"agent_2"', t
        ),  # one brace too few between them
        lambda t: re.sub(r"\n  \},\s*\"agent_2\"", '}}},"agent_2"', t),  # and too many
        lambda t: re.sub(r"\n   \],\s*\"goal\"", ',"goal"', t),  # a list that does not end
    ],
)
def test_malformed_json_whose_meaning_is_plain(mangle):
    assert mangle(TEXT) != TEXT
    assert_right(mangle(TEXT), repaired=True)


def test_an_object_for_each():
    one, two = ({key: entry(s)} for key, s in (("agent_1", ONE), ("agent_2", TWO)))
    for pair in ([one, two], [two, one]):
        assert_right(json.dumps(pair), repaired=True)
        assert_right("\n".join(map(json.dumps, pair)), repaired=True)
        assert_right(" ".join(json.dumps({"evaluations": each}) for each in pair))
        assert_right({"evaluations": pair})
    assert_right({"evaluations": one, **two})
    from_zero = [{"agent_0": entry(ONE)}, {"agent_1": entry(TWO)}]
    assert_right("\n".join(map(json.dumps, from_zero)))
    assert read("\n".join(map(json.dumps, [one, one]))).problems


def test_what_one_thinks_of_the_other_is_no_score_of_ones_own():
    crossed = {"agent_1": {"agent_2": entry(TWO)}, "agent_2": {"agent_1": entry(ONE)}}
    assert read(crossed).problems
    both = answer()["evaluations"]
    assert "there twice" in str(
        read({**both, "agent_1": {**both["agent_1"], "agent_2": entry(ONE)}})
    )


@pytest.mark.parametrize(
    "text", ["<think>", "{", '{"a": 1 b ', '{"a": "', '"] ', "</think><think>"]
)
def test_no_text_takes_long(text):
    began = time.process_time()
    assert read(text * 40_000).problems
    assert time.process_time() - began < 3


def test_thoughts_without_an_end_are_no_answer():
    assert read(f"<think>Perhaps {json.dumps(answer())}, or").problems == (
        "it holds no JSON object",
    )
    draft = json.dumps(answer(one=entry(TWO)))
    assert_right(f"Well, {draft}</think>\n{json.dumps(answer())}")
    assert_right(f"<think>{draft}</think> so <thinking>{draft}</thinking> {json.dumps(answer())}")
    assert_right(answer(one=entry(ONE, "He wrote <think> and </think>")))


def test_two_objects_under_headings():
    one, two = json.dumps(entry(ONE)), json.dumps(entry(TWO))
    assert_right(f'"agent_2": {two},\n"agent_1": {one}')
    assert_right(f"### Finnegan O'Malley\n```json\n{two}\n```\n### Samuel\n```json\n{one}\n```")
    assert read(f"First:\n{one}\nSecond:\n{two}").problems


def test_of_two_versions_that_differ_none_counts():
    draft, final = json.dumps(answer(one=entry(TWO))), json.dumps(answer())
    for text in (
        f"Draft: {draft}\nOn reflection: {final}",
        f"Final: {final}\nMy first draft was {draft}",
        f"{final}\nExample: {json.dumps(answer(*[entry(dict.fromkeys(SEVEN, 0))] * 2))}",
        f"{final} or {final[:-100]}",  # what is missing might differ
        f"{final}\nCorrection for agent_1: goal should be 3.",
        json.dumps({"draft": json.loads(draft), "final": answer()}),
    ):
        assert read(text).problems
    assert_right(f"{final}\nAgain: {final}")
    for part in ({**entry(ONE), "goal": ["less", 3]}, {"goal": ["more", 11]}):
        later = json.dumps({"agent_1": part})
        problems = read(f"{final}\nCorrection: {later}").problems
        assert "goal is there twice" in problems[0]


@pytest.mark.parametrize("begun_again", ["", "\n", "\n```\n\n```json\n", "\n\nOnce more:\n\n"])
def test_an_answer_that_was_cut_and_begun_again_keeps_no_score_of_the_draft(begun_again):
    same, other = json.dumps(answer()), json.dumps(answer(one=entry(TWO)))
    for draft, most in ((same, 55), (other, 0)):
        read_whole = 0
        for at in range(60, len(draft), 7):
            reading = read(draft[:at] + begun_again + same)
            read_whole += not reading.problems
            assert reading.problems or reading.scores == (ONE, TWO)
        assert read_whole >= most
    cut = other[: other.index("believability", other.index("agent_2")) + 5]
    assert read(cut + begun_again + same).problems


def test_a_mapping_that_the_judge_states_has_to_be_the_prompts():
    one, two = NAMES
    for stated in (
        {"agent_1": two, "agent_2": one},
        {"agent_2": one},
        {two: "agent_1"},
        [{"id": "agent_1", "name": two}, {"id": "agent_2", "name": one}],
        [f"agent_1: {two}"],
    ):
        assert "agent" in read({"agents": stated, **answer()}).problems[0]
    assert read({"agent_1_name": two, "agent_2_name": one, **answer()}).problems
    assert read(f"agent_1 is {two}.\n{json.dumps(answer())}").problems
    assert read(f"{json.dumps(answer())}\n({one} = agent_2)").problems
    assert_right({"agents": {"agent_1": one, "agent_2": two}, **answer()})
    assert_right(f"agent_1 is {one}, agent_2 {two}.\n{json.dumps(answer())}")


@pytest.mark.parametrize(
    "pair",
    [
        {"score": 8, "rating": 3},
        {"score": 8, "final_score": 3},
        {"score": 8, "before": 3},
        [{"score": 8}, {"score": 3}],
        [["x", 8], ["y", 3]],
        ["x", {"score": 8, "rating": 3}],
        "Score: 8, no, score: 3",
    ],
)
def test_a_point_with_two_scores_has_none(pair):
    assert "goal has no score" in str(read(answer(one={**entry(ONE), "goal": pair})).problems)


def test_a_list_that_names_a_dimension_twice_has_no_score_of_it():
    points = [{"dimension": name, "score": score} for name, score in ONE.items()]
    assert_right(answer(one=points))
    assert_right(answer(one=[*points, points[0]]))
    twice = [*points, {"dimension": "goal", "score": 3}]
    assert "goal is there twice" in str(read(answer(one=twice)).problems)


def plain(value):
    """Return an object as a dict, or as its members where a key is there twice."""
    if isinstance(value, Members):
        members = {key: plain(item) for key, item in value}
        return members if len(members) == len(value) else [(k, plain(v)) for k, v in value]
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": ["x", 1', None),
        ('{"a": 1, "b": 10', {"a": 1}),
        ('{"a": ["x", 10]', {"a": ["x", 10]}),
        ('{"a": "cut of', None),
        ('{"a": 1, "a": 2, "b": 3}', [[("a", 1), ("a", 2), ("b", 3)]]),
        ('{"a": 1, "a": 1}', [[("a", 1), ("a", 1)]]),
        ("{'it': 'it's so', 'b': None}", {"it": "it's so", "b": None}),
        ('{"a": "\\u00e9\\ud83d\\ude00",}', {"a": "é😀"}),
        ('{"a": "\\q\\",}', None),
        ('{"a": ["x", 1, "b": ["y", 2]}', {"a": ["x", 1], "b": ["y", 2]}),
        ('{"a": 1, "b": ["at "5", 6 at most", 7], "c": 2}', {"a": 1}),
        ('{"a": 1, "b": ["as ["x", 2] has it", 7], "c": 2}', {"a": 1}),
        ('{"a": 1, "b": ["as "no" 5], and so", 7], "c": 2}', {"a": 1}),
        ('{"a": 1, "b": ["as "no", 5], and so cut', {"a": 1}),
        ('{"a": 1, "b": [begun so", 7], "c": "as if", 5]}', {"a": 1}),
        ('{"a": 1, "b": ["cut of\n```\n```\n{"a": ["whole", 2]}', [{"a": 1}, {"a": ["whole", 2]}]),
        ("{'b': {'a': 'in {'a': ['x', 2]} here'}, 'c': {'a': 3}}", None),
    ],
)
def test_nothing_is_invented(text, value):
    values = value if isinstance(value, list) else [] if value is None else [value]
    assert [plain(one.value) for one in read_json(text).found] == values


PHRASES = (
    'He said "no", and left',
    "Samuel's secret: kept",
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
    'Noah: "I, 5"',
)


def mangled(text: str, rng: random.Random) -> str:
    """Do to a text what models and networks do, but change no digit."""
    kind = rng.choice(("fence", "comma", "single", "bare", "nocomma", "cut", "delete", "insert"))
    at = rng.randrange(len(text) + 1)
    if kind == "fence":
        return f"Agent 1 first:\n```json\n{text}\n```"
    if kind == "comma":
        return text.replace("]", "],")
    if kind == "single":
        return text.replace('"', "'")
    if kind == "bare":
        return text.replace('\\"', '"').replace("\\n", "\n")
    if kind == "nocomma":
        at = text.find(",", at)
        return text[:at] + text[at + 1 :] if at >= 0 else text
    if kind == "cut":
        return text[:at]
    if kind == "insert":
        return text[:at] + rng.choice("\"'{}[],: \n") + text[at:]
    kept = at == len(text) or text[at].isdigit() or text[at] in "-."
    return text if kept else text[:at] + text[at + 1 :]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_an_answer_no_wrong_score_is_read(seed):
    rng = random.Random(seed)
    read_whole = 0
    for _ in range(150):
        truth = [{d.name: rng.randint(d.low, d.high) for d in DIMENSIONS} for _ in NAMES]
        entries = [
            {n: [" ".join(rng.choices(PHRASES, k=2)) + " so", s] for n, s in scores.items()}
            for scores in truth
        ]
        text = json.dumps(answer(*entries, reverse=rng.random() < 0.5))
        for _ in range(rng.randint(1, 2)):
            text = mangled(text, rng)
        reading = read(text)
        read_whole += not reading.problems
        for side in (0, 1):
            assert reading.scores[side].items() <= truth[side].items(), text
    assert read_whole > 50  # and most of what can be read is


# -- published answers ----------------------------------------------------------------------------


def rows(test_data, name):
    path = test_data / "sotopia" / f"scored_episodes_{name}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def published_reasons(row):
    """Return the judge's reasons by side and dimension, as the record tells them."""
    parts = re.split(r"^Agent ([12]) comments:\n", row["reasoning"], flags=re.MULTILINE)
    reasons = [{}, {}]
    for number, body in zip(parts[1::2], parts[2::2], strict=True):
        said = re.split(rf"^({'|'.join(SEVEN)}): ", body, flags=re.MULTILINE)
        pairs = zip(said[1::2], said[2::2], strict=True)
        reasons[int(number) - 1] = {name: text.strip() for name, text in pairs}
    return reasons


@pytest.mark.parametrize("name", ["a", "b"])
def test_published_judgements_are_read_to_their_recorded_scores(test_data, name):
    published = rows(test_data, name)
    assert len(published) >= {"a": 30, "b": 12}[name]
    for row in published:
        reasons = published_reasons(row)
        recorded = [{n: scores[n] for n in SEVEN} for scores in row["rewards"]]
        given = {
            f"agent_{side + 1}_evaluation": {
                n: [reasons[side][n], int(recorded[side][n])] for n in SEVEN
            }
            for side in (1, 0)
        }
        reading = read_answer(json.dumps(given), tuple(row["agents_background"]))
        assert (reading.problems, reading.repaired) == ((), False)
        assert list(reading.scores) == recorded
        assert list(reading.reasoning) == reasons


def test_published_malformed_answers_are_read(test_data):
    # Kept in the log because upstream's parser failed on them: some points have two reasons.
    prompts = [row["raw_rewards_prompt"] for row in rows(test_data, "b")]
    raw = [
        p.split("Original string: ")[1].split("\n\n    Format instructions")[0]
        for p in prompts
        if "Original string: " in p and "_evaluation" in p
    ]
    for text in raw:
        # Whom it is about is not in the record: another dialogue was judged at the same time.
        assert read_answer(text, ("Nobody Known", "Somebody Else")).problems == ()
    (text,) = (text for text in raw if "Samuel and Noah are friends who are camping" in text)
    reading = read_answer(text, ("Samuel Anderson", "Noah Davis"))
    assert (reading.problems, reading.repaired) == ((), True)
    assert [list(scores.values()) for scores in reading.scores] == [
        [9, 1, 0, 0, 0, 0, 5],
        [9, -1, 0, 0, 0, 0, 5],
    ]
    assert reading.reasoning[0]["knowledge"].endswith("cold weather and the need for warmth.")
