"""What prompts say about one environment: role, actions, rules, legend, an example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from creditrl.agents.prompts.base import Ask

__all__ = ["IMAGE_PLACEHOLDER", "EnvWords", "Example", "ExampleTurn", "task_message"]

IMAGE_PLACEHOLDER = "<image>"
"""Stands in a prompt where the processor puts the picture."""


def _no_scene(observation: str) -> str:
    return ""


def _unchanged(observation: str) -> str:
    return observation


@dataclass(frozen=True, slots=True)
class ExampleTurn:
    """One turn of a worked example."""

    thought: str
    action: str
    observation: str
    """What the environment answered."""


@dataclass(frozen=True, slots=True)
class Example:
    """A worked episode for one-shot prompts, in the environment's own words."""

    observation: str
    """What the environment showed first."""
    turns: tuple[ExampleTurn, ...]
    goal: str = ""
    """What was asked; may be empty where the first observation says it."""


@dataclass(frozen=True, slots=True)
class EnvWords:
    """The words of one environment."""

    role: str = "an agent that solves a task in a text environment"
    """Who the model is, after "You are"."""
    place: str = "a text environment"
    """Where it acts, after "in"."""
    actions: tuple[str, ...] = ()
    """Templates of all actions, ``{slots}`` in braces; empty: every turn lists its own."""
    slots: str = ""
    """What the templates' slots stand for; a sentence."""
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
    trim: Callable[[str], str] = _unchanged
    """What of an observation a growing conversation tells."""
    window_trim: Callable[[str], str] = _unchanged
    """What of an observation a prompt with a window tells."""
    observation_holds_past: bool = False
    """An observation tells the earlier turns itself, so a prompt with a window does not."""
    example: Example | None = None
    """For one-shot prompts; None: there is none."""
    hidden_actions: tuple[str, ...] = ("help",)
    """Admissible actions that prompts do not list."""
    offers: Callable[[Ask], Sequence[str]] | None = None
    """What a window prompt lists as admissible; None: the admissible actions and the hint."""
    choices: Callable[[Ask], Sequence[str]] | None = None
    """The actions to choose among where replies are listed: what is admissible, and of open actions
    those that slots make (queries of the goal's words, offers at prices on a grid); None: the
    admissible actions without the hidden ones."""
    compact: Callable[[Ask], str] | None = None
    """What a small policy reads in form "compact": the goal, and what the observations so far have
    told, in few words; None: the observation."""
    separator: str = ", "
    """Stands between the admissible actions that a window prompt lists."""
    max_prompt_chars: int | None = None
    """Longer window prompts are built again without their history (WebShop: 13,000, verl-agent)."""


def task_message(goal: str, observation: str) -> str:
    """Return what begins a conversation: the goal, where the observation does not state it."""
    if not goal or goal in observation:
        return observation
    return f"Your task: {goal}\n{observation}"
