"""The words of VirtualHome.

Source of the structure: the conversation of SPA, STeCa and HISR, which lists 27 forms of actions
and shows one example. Ours lists every form with a distinct effect, including those not mentioned
there (wearing, lying down, putting back). Their own text is not part of this package:
:class:`creditrl.agents.prompts.files.FilesForm` reads it from their files.
"""

from __future__ import annotations

from creditrl.envs.virtualhome.prompt_compact import choices, compact
from creditrl.envs.words import EnvWords, Example, ExampleTurn

__all__ = ["VIRTUALHOME"]

# Task builtin/train/20, with one step that cannot be done.
_EXAMPLE = Example(
    goal="Fill the freezer(Put the bread into the freezer and close it.)",
    observation="The task is Fill the freezer(Put the bread into the freezer and close it.).",
    turns=(
        ExampleTurn(
            "The bread has to be carried to the freezer, so I need it in my hand first. I go to "
            "where it is.",
            "walk to bread",
            "bread is CLEAN, table is CLEAN, bread ON table. ",
        ),
        ExampleTurn(
            "The bread lies on the table beside me. I take it.",
            "grab bread",
            "bread is CLEAN, table is CLEAN. You have bread. ",
        ),
        ExampleTurn(
            "I have the bread. Next I carry it to the freezer.",
            "walk to freezer",
            "bread is CLEAN, freezer is CLOSED and CLEAN and PLUGGED_IN. You have bread. ",
        ),
        ExampleTurn(
            "I am at the freezer with the bread, so I put it in.",
            "put bread in freezer",
            "Nothing happens.",
        ),
        ExampleTurn(
            "That could not be done. The last observation says that the freezer is CLOSED, so I "
            "have to open it first. One hand is free for that.",
            "open freezer",
            "bread is CLEAN, freezer is OPEN and CLEAN and PLUGGED_IN. You have bread. ",
        ),
        ExampleTurn(
            "Now the freezer is OPEN and I still hold the bread.",
            "put bread in freezer",
            "bread is CLEAN, freezer is OPEN and CLEAN and PLUGGED_IN. ",
        ),
        ExampleTurn(
            "The bread is in the freezer. The task also asks for it to be closed.",
            "close freezer",
            "freezer is CLOSED and CLEAN and PLUGGED_IN. ",
        ),
    ),
)

VIRTUALHOME = EnvWords(
    role="an agent that carries out tasks in a household",
    place="the VirtualHome household environment",
    actions=(
        "walk to {obj}",
        "turn to {obj}",
        "grab {obj}",
        "put {obj} on {recep}",
        "put {obj} in {recep}",
        "put back {obj}",
        "pour {obj} into {recep}",
        "drop {obj}",
        "open {obj}",
        "close {obj}",
        "switch on {obj}",
        "switch off {obj}",
        "plug in {obj}",
        "plug out {obj}",
        "wash {obj}",
        "wipe {obj}",
        "put on {obj}",
        "take off {obj}",
        "sit on {obj}",
        "lie on {obj}",
        "stand up",
        "sleep",
        "drink {obj}",
        "eat {obj}",
        "cut {obj}",
        "read {obj}",
        "watch {obj}",
        "look at {obj}",
        "type on {obj}",
        "touch {obj}",
        "push {obj}",
        "move {obj}",
        "squeeze {obj}",
        "greet {obj}",
    ),
    slots=(
        "{obj} and {recep} are rooms, furniture or things by the name of their class, e.g. water "
        "glass. Where there are several of a class, the number that an observation shows with a "
        "name tells them apart, e.g. chair 103."
    ),
    rules=(
        "You can deal with what you are close to: walk there first. You have two hands; what is "
        "put somewhere has to be in a hand, and to open something one hand must be free. Who sits "
        "or lies has to stand up before walking."
    ),
    invalid_answer=(
        'The answer "Nothing happens." means that the action could not be done: it changed '
        "nothing and cost a turn, so try another one."
    ),
    example=_EXAMPLE,
    choices=choices,
    compact=compact,
)
