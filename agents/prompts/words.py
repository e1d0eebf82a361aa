"""What prompts say about one environment: role, actions, rules, legend, an example.

A further environment plugs in with one entry: ``register_words("CreditRL/X-v0", EnvWords(...))``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["GENERIC", "IMAGE_PLACEHOLDER", "EnvWords", "ExampleTurn", "register_words", "words_for"]

IMAGE_PLACEHOLDER = "<image>"
"""Stands in a prompt where the processor puts the picture."""


def _no_scene(observation: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class ExampleTurn:
    """One turn of a worked example."""

    thought: str
    action: str
    observation: str
    """What the environment answered."""


@dataclass(frozen=True, slots=True)
class EnvWords:
    """The words of one environment."""

    role: str = "an agent that solves a task in a text environment"
    """Who the model is, after "You are"."""
    place: str = "a text environment"
    """Where it acts, after "in"."""
    actions: tuple[str, ...] = ()
    """Templates of all actions, ``{slots}`` in braces; empty: every turn lists its own."""
    invalid_answer: str = "An action that cannot be done changes nothing and costs a turn."
    """How the environment answers an action that it cannot do; a sentence."""
    rules: str = ""
    """What the agent must know of the rules; sentences."""
    text_legend: str = ""
    """What the symbols of a text observation mean."""
    image_legend: str = ""
    """What the picture shows."""
    scene: Callable[[str], str] = _no_scene
    """A sentence about an observation (size, coordinates), made from its text (maybe empty)."""
    example_task: str = ""
    """The task message of the worked example: goal and first observation."""
    example: tuple[ExampleTurn, ...] = ()
    """A worked example for one-shot prompts; empty: there is none."""
    hidden_actions: tuple[str, ...] = ("help",)
    """Admissible actions that prompts do not list."""
    max_prompt_chars: int | None = None
    """Longer window prompts are built again without their history (WebShop: 13,000, verl-agent)."""


GENERIC = EnvWords()
"""The words of an environment that has no entry."""


def _sokoban_scene(observation: str) -> str:
    convention = (
        "Row 1 is at the top and column 1 at the left: `up` lowers the row by one, `left` the "
        "column."
    )
    rows = [line for line in observation.split("\n") if line.strip()]
    if not rows:
        return convention
    # verl-agent's compat text separates cells by tabs.
    columns = max(len(row.split("\t")) - 1 if "\t" in row else len(row) for row in rows)
    return f"The room has {len(rows)} rows and {columns} columns. {convention}"


SOKOBAN = EnvWords(
    role="a player of the puzzle Sokoban, who pushes boxes onto targets in a small room",
    place="the puzzle Sokoban",
    actions=("up", "down", "left", "right"),
    invalid_answer=(
        "A move into a wall, or against a box that cannot move, changes nothing and costs a turn; "
        "so does anything that is not one of these actions."
    ),
    rules=(
        "You walk one cell at a time. Walking into a box pushes it one cell further, if the cell "
        "behind it is free. Boxes cannot be pulled, and only one box moves at a time: a box in a "
        "corner that is no target is lost. The puzzle is solved when every box stands on a target."
    ),
    text_legend=(
        "`#` wall, `_` free floor, `O` target, `X` box, `√` box on a target, `P` you, `S` you on a "
        "target."
    ),
    image_legend=(
        "You are the green figure, boxes are yellow, targets are red rings, walls are grey bricks; "
        "a box on a target has a red edge, and the floor is red where you stand on a target."
    ),
    scene=_sokoban_scene,
    example_task=("Push every box onto a target.\n######\n#____#\n#_X__#\n#P_O_#\n#____#\n######"),
    example=(
        ExampleTurn(
            "The box is at row 3, column 3, and the target at row 4, column 4: it must go right "
            "once and down once. I am at row 4, column 2. To push it right I have to stand left of "
            "it, one cell above me.",
            "up",
            "######\n#____#\n#PX__#\n#__O_#\n#____#\n######",
        ),
        ExampleTurn(
            "I stand left of the box and the cell behind it is free, so I push it right, above the "
            "target.",
            "right",
            "######\n#____#\n#_PX_#\n#__O_#\n#____#\n######",
        ),
        ExampleTurn(
            "Now the box has to go down, so I must get above it: first up, then right.",
            "up",
            "######\n#_P__#\n#__X_#\n#__O_#\n#____#\n######",
        ),
        ExampleTurn(
            "One more step to the right brings me above the box.",
            "right",
            "######\n#__P_#\n#__X_#\n#__O_#\n#____#\n######",
        ),
        ExampleTurn(
            "I am above the box and the target lies below it: one push down solves the puzzle.",
            "down",
            "######\n#____#\n#__P_#\n#__√_#\n#____#\n######",
        ),
    ),
)

_WORDS: dict[str, EnvWords] = {"CreditRL/VisualSokoban": SOKOBAN}


def register_words(env_id: str, words: EnvWords) -> None:
    """Set the words of an environment, for every version of it if ``env_id`` names none."""
    _WORDS[env_id] = words


def words_for(env_id: str) -> EnvWords:
    """Return the words of an id: its own, those of its name without version, or generic ones."""
    name, _, version = env_id.rpartition("-v")
    unversioned = name if version.isdigit() else env_id
    return _WORDS.get(env_id) or _WORDS.get(unversioned) or GENERIC
