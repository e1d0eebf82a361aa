"""SOTOPIA's prompts: what each form tells and reads, a real example, and few words."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
from env_helpers import expert_asks

import creditrl  # noqa: F401 - registers the environments
from creditrl.agents.prompts import Ask, get_form, listed_actions
from creditrl.envs.base import Copies
from creditrl.envs.sotopia.action_text import read_action
from creditrl.envs.sotopia.casting import Seats
from creditrl.envs.sotopia.dialogue import NOTHING, Action, Rules
from creditrl.envs.sotopia.engine import SotopiaEngine
from creditrl.envs.sotopia.partners import ReplayPartner
from creditrl.envs.sotopia.profiles import Character, Combination, Relationship, Scenario
from creditrl.envs.sotopia.prompt import SOTOPIA
from creditrl.envs.sotopia.prompt_compact import SMALL_TALK, compact
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


def test_the_own_prompt_tells_all_parts_in_upstreams_order_and_asks_for_its_json() -> None:
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
def test_replies_are_read_as_asked_for(answer: str, reply: str, action: str | None, valid: bool):
    parsed = get_form("sotopia", answer=answer).parse(reply)
    assert parsed.action == (reply if action is None else action)
    assert parsed.valid_format == valid


def test_demonstrations_are_read_back() -> None:
    for answer in ("json", "line", "tags"):
        form = get_form("sotopia", answer=answer)
        for action in ("say: Hi There", "nonverbal: nods", "do: waves", "leave", "nothing"):
            parsed = form.parse(form.reply(action, "so it is"))
            assert (parsed.action, parsed.valid_format) == (action, True)


def test_the_own_prompt_needs_whole_observations() -> None:
    with pytest.raises(ConfigError, match="observation='full'"):
        told("sotopia", ask('Turn #1: Ann Lee said: "Hi"\nYou are at turn #2.'))
    with pytest.raises(ConfigError, match="answer='xml'"):
        get_form("sotopia", answer="xml")


def test_growing_conversations_tell_only_what_is_new() -> None:
    for form in ("react", "dialogue"):
        assert "Scenario: A lamp" in told(form, ask(FIRST, turn=0))
        text = told(form, ask())
        assert "Scenario" not in text and "Turn #0" not in text
        assert text.endswith('Turn #2: Bo Diaz said: "How much?"\nYou are at turn #3.')


def test_tags_tell_the_dialogue_once_and_may_keep_capitals() -> None:
    text = told("tags", ask())
    assert text.count("Turn #0: Bo Diaz") == 1 and "Observation 1" not in text
    assert "'say: <words>'" in text and "'do: <deed>'" in text and "'leave'" in text
    reply = "<think>x</think><action>say: Hi Bo</action>"
    assert get_form("tags").parse(reply).action == "say: hi bo"
    assert get_form("tags", lower=False).parse(reply).action == "say: Hi Bo"


def test_the_worked_example_is_what_the_environment_shows() -> None:
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


HEAD = (
    "You are Bo Diaz.\nScenario: A lamp is for sale. The asking price is $40. Offers are said in "
    "this form: <offer price=20>.\nParticipants: Ann Lee and Bo Diaz\nAnn Lee's background:\n"
    "Bo Diaz's background: Bo Diaz is a pilot.\nAnn Lee's goal: Unknown\n"
    "Bo Diaz's goal: Buy it for as much below $36 as you can. Above that price it is better for "
    "you to go without; without a deal you gain nothing.\n\n"
)


def heard(*said: str, head: str = HEAD) -> Ask:
    """Return what Bo Diaz reads after these turns, which Ann Lee opened."""
    names = ("Ann Lee", "Bo Diaz")
    lines = [f'Turn #{k}: {names[k % 2]} said: "{text}"' for k, text in enumerate(said)]
    so_far = "\n".join(("Conversation so far:", *lines, f"You are at turn #{len(said)}."))
    return Ask(head + so_far, env_id=ENV_ID)


def test_amounts_are_told_in_steps_from_ones_own_best() -> None:
    # He may hope for 36 - 22 = 14 dollars: 40 is worse than nothing, 35 is 14 steps from his best.
    text = compact(heard("<offer price=40>", "<offer price=22>", "<offer price=35>"))
    assert text == (
        "buy, limit 90, turn 3, offers 1, mine 0, theirs 14, first 19, best 14, moved 5, same 0"
    )


def test_the_text_tells_how_often_an_offer_was_repeated() -> None:
    offers = ("<offer price=40>", "Hm.", "<offer price=38>", "Hm.", "<offer price=38>")
    assert compact(heard(*offers)).endswith("moved 0, same 1")


def test_a_rejected_offer_does_not_stand() -> None:
    ask = heard("<offer price=40>", "<reject>", "Hm.")
    assert "theirs none" in compact(ask)
    assert not any("<accept>" in line for line in listed_actions(ask))


def test_after_an_agreement_one_may_only_leave() -> None:
    ask = heard("<offer price=30>", "<accept>", "Fine.")
    assert compact(ask) == "buy, limit 90, agreed"
    assert listed_actions(ask) == ("leave",)


def test_what_was_told_earlier_is_read_in_the_history() -> None:
    whole = heard("<offer price=40>", "<offer price=22>", "<offer price=35>")
    first = heard("<offer price=40>").observation
    news = (
        'Turn #1: Bo Diaz said: "<offer price=22>"\nTurn #2: Ann Lee said: "<offer price=35>"\n'
        "You are at turn #3."
    )
    parted = Ask(news, history=((first, "say: <offer price=22>"),), env_id=ENV_ID)
    assert compact(parted) == compact(whole)
    assert listed_actions(parted) == listed_actions(whole)


def test_without_terms_there_is_small_talk() -> None:
    head = "You are Bo Diaz.\nScenario: A lift is stuck.\nBo Diaz's goal: Get out\n\n"
    ask = Ask(
        f"{head}The conversation starts.\nYou are at turn #0.",
        admissible_actions=("nothing", "leave"),
        env_id=ENV_ID,
    )
    assert listed_actions(ask) == ("nothing", "leave", *SMALL_TALK)
    assert all(read_action(line)[0] is not None for line in SMALL_TALK)
    assert compact(ask) == "The conversation starts.\nYou are at turn #0."


@pytest.mark.parametrize("observation", ["full", "new"])
def test_every_action_of_the_expert_is_among_the_choices(observation: str) -> None:
    env = gym.make(ENV_ID, split="train", observation=observation)
    turns = listed = 0
    for ask, action in expert_asks(env, range(40)):
        turns += 1
        listed += action in listed_actions(ask)
        assert len(compact(ask)) < 110
    assert listed == turns > 200


def test_nothing_of_the_other_side_is_told_but_what_it_said() -> None:
    # Two sellers with other limits say the same: the buyer's text and choices are the same.
    other = heard("<offer price=40>", head=HEAD.replace("Unknown", "Sell it above $31."))
    assert compact(other) == compact(heard("<offer price=40>"))
    assert listed_actions(other) == listed_actions(heard("<offer price=40>"))
