"""The words of ALFWorld, in both flavours of its text.

Version 0.4 of ALFWorld's data reworded commands and observations: ``move X to Y``, formerly
``put X in/on Y``. One task set can contain games of both, so the flavour is read from the episode:
its lists of admissible actions have ``help`` in 0.4 and never in 0.3.

Source of the templates and of what a conversation leaves out: ETO's prompts (Song et al. 2024),
which SPA and HISR adopted. Differences: the old templates switch lamps by ``toggle {obj} {recep}``,
which no game understands; ours have ``use {obj}``, which all games understand. A reply without an
action is an inapplicable action, answered by "Nothing happens." instead of their "Error Input"; it
costs a turn in both.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from creditrl.envs.alfworld.prompt_compact import choices, compact
from creditrl.envs.prompt import Ask
from creditrl.envs.words import EnvWords, Example, ExampleTurn

__all__ = ["ALFWORLD", "alfworld_words"]

Flavour: TypeAlias = Literal["0.4", "0.3"]

_BANNER = "-= Welcome to TextWorld, ALFRED! =-\n\n"
_PUT: dict[Flavour, tuple[str, str]] = {"0.4": ("move", "to"), "0.3": ("put", "in/on")}
_ARRIVAL = re.compile(r"^You arrive at loc \d+\. ")


def _trim(observation: str) -> str:
    """Leave out the banner of the first observation, and locations that no command can name."""
    if observation.startswith(_BANNER):
        return observation.removeprefix(_BANNER).replace("\n\n", "\n")
    return _ARRIVAL.sub("", observation)


def _example(flavour: Flavour) -> Example:
    verb, into = _PUT[flavour]

    def arrive(receptacle: str, location: int) -> str:
        place = receptacle if flavour == "0.4" else f"loc {location}"
        return f"You arrive at {place}. "

    return Example(
        observation=(
            f"{_BANNER}You are in the middle of a room. Looking quickly around you, you see a "
            "cabinet 3, a cabinet 2, a cabinet 1, a countertop 1, a diningtable 1, a drawer 1, a "
            "fridge 1, a garbagecan 1, a microwave 1, and a sinkbasin 1.\n\n"
            "Your task is to: put a clean plate in cabinet."
        ),
        turns=(
            ExampleTurn(
                "There are three steps: find a plate, wash it in the sinkbasin, put it into a "
                "cabinet. I do not see a plate yet. A countertop is a likely place, so I look "
                "there first.",
                "go to countertop 1",
                f"{arrive('countertop 1', 9)}On the countertop 1, you see a bread 1, a knife 1, "
                "and a saltshaker 1.",
            ),
            ExampleTurn(
                "No plate here. Plates are kept in cabinets too, and in the end I need one of "
                "them anyway.",
                "go to cabinet 2",
                f"{arrive('cabinet 2', 4)}The cabinet 2 is closed.",
            ),
            ExampleTurn(
                "It is closed, so I have to open it before I can see what is in it.",
                "open cabinet 2",
                "You open the cabinet 2. The cabinet 2 is open. In it, you see a cup 1.",
            ),
            ExampleTurn(
                "Only a cup. I have not looked at the diningtable yet, where plates are used.",
                "go to diningtable 1",
                f"{arrive('diningtable 1', 11)}On the diningtable 1, you see a fork 1, a plate 1, "
                "and a tomato 1.",
            ),
            ExampleTurn(
                "There is plate 1, which ends the search. I take it.",
                "take plate 1 from diningtable 1",
                "You pick up the plate 1 from the diningtable 1.",
            ),
            ExampleTurn(
                "I hold the plate. The next step is to wash it, and that is done at the sinkbasin.",
                "go to sinkbasin 1",
                f"{arrive('sinkbasin 1', 6)}On the sinkbasin 1, you see nothing.",
            ),
            ExampleTurn(
                "I stand at the sinkbasin with the plate in my hands, so I can wash it.",
                "clean plate 1 with sinkbasin 1",
                "You clean the plate 1 using the sinkbasin 1.",
            ),
            ExampleTurn(
                "The plate is clean. What is left is to put it into a cabinet. I left cabinet 2 "
                "open, so I go back there.",
                "go to cabinet 2",
                f"{arrive('cabinet 2', 4)}The cabinet 2 is open. In it, you see a cup 1.",
            ),
            ExampleTurn(
                "The cabinet is open and the plate is clean: putting it there completes the task.",
                f"{verb} plate 1 {into} cabinet 2",
                f"You {verb} the plate 1 {into} the cabinet 2.",
            ),
        ),
        goal="put a clean plate in cabinet",
    )


def _words(flavour: Flavour) -> EnvWords:
    verb, into = _PUT[flavour]
    return EnvWords(
        role="an agent that carries out tasks in a household",
        place="the ALFRED Embodied Environment",
        actions=(
            "go to {recep}",
            "take {obj} from {recep}",
            f"{verb} {{obj}} {into} {{recep}}",
            "open {recep}",
            "close {recep}",
            "use {obj}",
            "clean {obj} with {recep}",
            "heat {obj} with {recep}",
            "cool {obj} with {recep}",
        ),
        slots=(
            "{obj} is an object and {recep} a receptacle, each by its name and number as you "
            "observe them, e.g. mug 1 and cabinet 2."
        ),
        invalid_answer=(
            'The answer "Nothing happens." means that the action could not be done: it changed '
            "nothing and cost a turn, so try another one."
        ),
        trim=_trim,
        example=_example(flavour),
        choices=choices,
        compact=compact,
        # As in verl-agent's list.
        separator="\n ",
    )


ALFWORLD: dict[Flavour, EnvWords] = {flavour: _words(flavour) for flavour in _PUT}


def alfworld_words(ask: Ask) -> EnvWords:
    """Return the words of the episode's flavour; 0.4 if it cannot be determined."""
    old = bool(ask.admissible_actions) and "help" not in ask.admissible_actions
    return ALFWORLD["0.3" if old else "0.4"]
