"""SOTOPIA's prompts: the content and replies of each form, and a real episode as example."""

from __future__ import annotations

import json

import numpy as np
import pytest

import creditrl  # noqa: F401 - registers the environments
from creditrl.agents.prompts import Ask, get_form
from creditrl.envs.base import Copies
from creditrl.envs.sotopia.action_text import read_action
from creditrl.envs.sotopia.casting import Seats
from creditrl.envs.sotopia.dialogue import NOTHING, Action, Rules
from creditrl.envs.sotopia.engine import SotopiaEngine
from creditrl.envs.sotopia.partners import ReplayPartner
from creditrl.envs.sotopia.profiles import Character, Combination, Relationship, Scenario
from creditrl.envs.sotopia.prompt import SOTOPIA
from creditrl.envs.sotopia.rendering import NEWS
from creditrl.envs.sotopia.verdict import NoJudge
from creditrl.errors import ConfigError

ENV_ID = "CreditRL/SOTOPIA-v0"
FIRST = (
    "You are Ann Lee.\nScenario: A lamp is for sale.\nAnn Lee's goal: Sell it\n\n"
    'Conversation so far:\nTurn #0: Bo Diaz said: "Hello"\nYou are at turn #1.'
)
LATER = (
    "You are Ann Lee.\nScenario: A lamp is for sale.\nAnn Lee's goal: Sell it\n\n"
    'Conversation so far:\nTurn #0: Bo Diaz said: "Hello"\n'
    f'{NEWS}\nTurn #1: Ann Lee said: "Hi"\nTurn #2: Bo Diaz said: "How much?"\n'
    "You are at turn #3."
)


def ask(observation: str = LATER, turn: int = 1) -> Ask:
    return Ask(
        observation=observation,
        goal="Sell it",
        admissible_actions=("nothing", "leave"),
        action_hint="say: <words>",
        turn=turn,
        history=((FIRST, "say: Hi"),) * turn,
        env_id=ENV_ID,
    )


def told(form: str, asked: Ask, **options: object) -> str:
    return "\n".join(message.content for message in get_form(form, **options).messages(asked))


def test_upstreams_prompt_has_all_parts_in_order_and_asks_for_json() -> None:
    text = told("sotopia", ask())
    parts = [
        "You play Ann Lee",
        "The goal is yours alone",
        "fits Ann Lee's character",
        "Scenario: A lamp is for sale.",
        "Ann Lee's goal: Sell it",
        "Turn #0: Bo Diaz said",
        "Turn #2: Bo Diaz said",
        "You are at turn #3.",
        "none, speak, non-verbal communication, action, leave",
        "It is fine to leave",
        '"action_type"',
    ]
    places = [text.find(part) for part in parts]
    assert -1 not in places and places == sorted(places)
    assert NEWS not in text and "Conversation so far:" in text
    schema = json.loads(text[text.index('{"properties"') :])
    assert schema["required"] == ["action_type", "argument"]
    kinds = ["none", "speak", "non-verbal communication", "action", "leave"]
    assert schema["properties"]["action_type"]["enum"] == kinds


@pytest.mark.parametrize(
    ("answer", "reply", "action", "valid"),
    [
        ("json", '{"action_type": "speak", "argument": "Hi"}', "say: Hi", True),
        ("json", 'Sure: {"action_type": "speak", "argument": "Hi"}.', "say: Hi", False),
        ("json", '```json\n{"action_type": "none", "argument": ""}\n```', "nothing", False),
        ("json", "Hm {", "Hm {", False),
        ("json", '{"action_type": "sing", "argument": "la"}', None, False),
        ("line", "say: Hi there", "say: Hi there", True),
        ("line", "I greet him.\nsay: Hi\n", "say: Hi", False),
        ("line", '{"action_type": "action", "argument": "waves"}', "do: waves", False),
        ("tags", "<think>x</think><action>say: Hi There</action>", "say: Hi There", True),
        ("tags", "<action>leave</action>", "leave", False),
    ],
)
def test_replies_are_parsed_in_the_requested_format(
    answer: str, reply: str, action: str | None, valid: bool
):
    parsed = get_form("sotopia", answer=answer).parse(reply)
    assert parsed.action == (reply if action is None else action)
    assert parsed.valid_format == valid


def test_demonstrations_parse_back_to_their_actions() -> None:
    for answer in ("json", "line", "tags"):
        form = get_form("sotopia", answer=answer)
        for action in ("say: Hi There", "nonverbal: nods", "do: waves", "leave", "nothing"):
            parsed = form.parse(form.reply(action, "so it is"))
            assert (parsed.action, parsed.valid_format) == (action, True)


def test_upstreams_prompt_needs_whole_observations() -> None:
    with pytest.raises(ConfigError, match="observation='full'"):
        told("sotopia", ask('Turn #1: Ann Lee said: "Hi"\nYou are at turn #2.'))
    with pytest.raises(ConfigError, match="answer='xml'"):
        get_form("sotopia", answer="xml")


def test_growing_conversations_contain_only_new_turns() -> None:
    for form in ("react", "dialogue"):
        assert "Scenario: A lamp" in told(form, ask(FIRST, turn=0))
        text = told(form, ask())
        assert "Scenario" not in text and "Turn #0" not in text
        assert text.endswith('Turn #2: Bo Diaz said: "How much?"\nYou are at turn #3.')


def test_the_tags_form_quotes_the_dialogue_once_and_may_keep_capitals() -> None:
    text = told("tags", ask())
    assert text.count("Turn #0: Bo Diaz") == 1 and "Observation 1" not in text
    assert "'say: <words>'" in text and "'do: <deed>'" in text and "'leave'" in text
    reply = "<think>x</think><action>say: Hi Bo</action>"
    assert get_form("tags").parse(reply).action == "say: hi bo"
    assert get_form("tags", lower=False).parse(reply).action == "say: Hi Bo"


def test_the_worked_example_is_a_real_episode() -> None:
    nora = Character(
        "n", "Nora", "Field", 34, "Nurse", "Woman", "She/her",
        "Nora grows tomatoes on her balcony.", "Nora is direct and warm.",
    )  # fmt: skip
    tom = Character("t", "Tom", "Reyes", 51, "Teacher", "Man", "He/him", "Tom has two cats.")
    scenario = Scenario(
        "hall",
        "Two neighbours meet in the hall. One of them is packing for a holiday.",
        ("Find somebody who waters your plants for a week", "Keep your cats fed in May"),
        Relationship.ACQUAINTANCE,
    )
    example = SOTOPIA.example
    assert example is not None
    answers = [
        turn.observation.partition('Tom Reyes said: "')[2].partition('"\n')[0]
        for turn in example.turns[:-1]
    ]
    turns = []
    for answer in answers:
        turns += [(NOTHING, NOTHING), (NOTHING, Action("speak", answer))]
    cast = Combination("hall", scenario, (nora, tom))
    engine = SotopiaEngine(1, ReplayPartner({"hall": tuple(turns)}), NoJudge(), Rules())
    copies = Copies(engine, ENV_ID, 20)
    one = np.array([0])
    frame = copies.begin(one, [Seats([cast], "test").task(0)], [0])
    assert frame.text[0] == example.observation
    for turn in example.turns:
        assert read_action(turn.action)[0] is not None
        frame = copies.step(one, [turn.action])
        if turn.observation:
            assert SOTOPIA.trim(frame.text[0]) == SOTOPIA.trim(turn.observation)
    assert frame.info["ending"][0] == "left"
