"""The words of SOTOPIA."""

from __future__ import annotations

from creditrl.envs.sotopia.action_text import ACTION_FORMS
from creditrl.envs.sotopia.prompt_compact import compact, sotopia_choices
from creditrl.envs.sotopia.rendering import NEWS
from creditrl.envs.words import EnvWords, Example, ExampleTurn

__all__ = ["SOTOPIA"]

_BARE = ("leave", "nothing")


def _trim(observation: str) -> str:
    """Return the new part of an observation; of a first one, everything."""
    _, found, news = f"\n{observation}".partition(f"\n{NEWS}\n")
    return news if found else observation


_EXAMPLE = Example(
    observation=(
        "You are Nora Field.\n"
        "Scenario: Two neighbours meet in the hall. One of them is packing for a holiday.\n"
        "Participants: Nora Field and Tom Reyes\n"
        "Nora Field's background: Nora Field is a 34-year-old female nurse. She/her pronouns. Nora "
        "grows tomatoes on her balcony. Personality and values description: Nora is direct and "
        "warm.\n"
        "Tom Reyes's background: Tom Reyes is a 51-year-old male teacher. He/him pronouns. Tom has "
        "two cats.\n"
        "Nora Field's goal: Find somebody who waters your plants for a week\n"
        "Tom Reyes's goal: Unknown\n\n"
        "The conversation starts.\n"
        "You are at turn #0."
    ),
    turns=(
        ExampleTurn(
            "I want Tom to water my plants. I should greet him and ask, and offer something in "
            "return: he has cats, which need somebody too when he is away.",
            "say: Hi Tom! I am off to the sea next week. Could you water my tomatoes? I would "
            "gladly feed your cats some other time.",
            f"{NEWS}\n"
            'Turn #0: Nora Field said: "Hi Tom! I am off to the sea next week. Could you water my '
            'tomatoes? I would gladly feed your cats some other time."\n'
            'Turn #1: Tom Reyes said: "With pleasure, if you take the cats in May. Where is your '
            'key?"\n'
            "You are at turn #2.",
        ),
        ExampleTurn(
            "He agrees and asks for a week with his cats in May, which I offered. He needs the "
            "key, so I hand it over.",
            "do: takes the spare key from her ring and gives it to Tom",
            f"{NEWS}\n"
            "Turn #2: Nora Field [action] takes the spare key from her ring and gives it to Tom\n"
            'Turn #3: Tom Reyes said: "Then it is settled. Have a good trip!"\n'
            "You are at turn #4.",
        ),
        ExampleTurn("My goal is reached and nothing is left to say, so I can go.", "leave", ""),
    ),
)

SOTOPIA = EnvWords(
    role="a participant of a conversation, and act as the character that you are told you are",
    place="SOTOPIA, a conversation of two characters with private goals",
    actions=ACTION_FORMS,
    slots=(
        "`say` is speech, `nonverbal` a gesture or an expression, `do` a deed; you choose their "
        "words. `leave` ends the conversation, `nothing` lets a turn pass; when nobody does "
        "anything any more, the conversation ends too."
    ),
    invalid_answer=("An answer that is no action changes nothing, and you have one turn less."),
    rules=(
        "Two characters meet. Your goal is known to you alone, and so is the other's to it. Try to "
        "reach yours in a way that fits your character, keep the conversation natural, and do not "
        "repeat what was said."
    ),
    trim=_trim,
    observation_holds_past=True,
    speech=True,
    example=_EXAMPLE,
    offers=lambda ask: (*ACTION_FORMS, *(a for a in ask.admissible_actions if a not in _BARE)),
    choices=sotopia_choices,
    compact=compact,
)
