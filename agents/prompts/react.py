"""A growing conversation of observations, thoughts and actions.

Source: Yao et al. 2023, "ReAct"; the order of the messages and the two-line answer are those of SPA
and HISR (and ETO before them). The sentences are ours.
"""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from creditrl.envs.prompt import Ask, Message, Parsed, PromptForm
from creditrl.envs.words import EnvWords, Example, task_message, words_for

__all__ = ["ReActForm", "parse_react"]

_ACTION = re.compile(r"^[ \t]*Action:[ \t]*(.*)$", re.MULTILINE)
_WHOLE = re.compile(r"\s*Thought:(?P<thought>.*?)\n[ \t]*Action:(?P<action>[^\n]*)\s*", re.DOTALL)


class ReActForm(PromptForm):
    """Instructions, an example and the task, then alternating observations and replies.

    Args:
        one_shot: show the environment's worked example, if it has one.
        list_actions: list the admissible actions in every turn (the papers do not).
    """

    name: ClassVar[str] = "react"
    context: ClassVar[Literal["window", "full"]] = "full"
    needs_history: ClassVar[bool] = False  # the conversation itself is the history

    def __init__(self, one_shot: bool = True, list_actions: bool = False) -> None:
        self.one_shot = one_shot
        self.list_actions = list_actions

    def messages(self, ask: Ask) -> tuple[Message, ...]:
        """Return all opening messages at turn 0, later only the new observation."""
        words = words_for(ask)
        seen = words.trim(ask.observation)
        listed = self._listed(ask, words)
        if ask.turn > 0:
            return (Message("user", f"Observation: {seen}{listed}"),)
        said = [Message("user", _instructions(words, ask.action_hint)), Message("assistant", "OK")]
        task = f"{task_message(ask.goal, seen)}{listed}"
        if self.one_shot and words.example is not None:
            said += _example(words.example, words)
            task = f"That was an example. Now it is your turn.\n{task}"
        return (*said, Message("user", task))

    def parse(self, reply: str) -> Parsed:
        """Read ``Action:``; see :func:`parse_react`."""
        return parse_react(reply)

    def reply(self, action: str, thought: str = "") -> str:
        """Return the two lines with this thought and action."""
        return _two_lines(thought or f"The next step is: {action}.", action)

    def _listed(self, ask: Ask, words: EnvWords) -> str:
        if not self.list_actions:
            return ""
        shown = [action for action in ask.admissible_actions if action not in words.hidden_actions]
        return f"\nAdmissible actions: {', '.join(shown)}" if shown else ""


def parse_react(reply: str) -> Parsed:
    """Read the first line that begins with ``Action:``.

    The format is valid if the reply is a thought and one non-empty action line, and nothing else (a
    model that continues by inventing the next observation breaks it). Without an action line the
    whole reply is the action.
    """
    found = _ACTION.findall(reply)
    if not found:
        return Parsed(reply.strip(), valid_format=False)
    action = found[0].strip()
    whole = _WHOLE.fullmatch(reply)
    thought = whole["thought"].strip() if whole else ""
    valid = bool(thought) and bool(action) and len(found) == 1
    return Parsed(action, valid_format=valid, thought=thought)


def _two_lines(thought: str, action: str) -> str:
    return f"Thought: {thought}\nAction: {action}"


def _instructions(words: EnvWords, action_hint: str) -> str:
    parts = [
        f"You are {words.role}. You get a task and then, turn by turn, what you observe. In every "
        "turn first think about the state you are in and what to do next, then take one action. "
        "After each action you see what came of it."
    ]
    if words.rules:
        parts.append(words.rules)
    if words.text_legend:
        parts.append(f"What the symbols mean: {words.text_legend}")
    templates = words.actions or ((action_hint,) if action_hint else ())
    if templates:
        listed = "\n".join(f"- {action}" for action in templates)
        parts.append(f"These are the actions:\n{listed}")
        if words.actions and words.slots:
            parts.append(words.slots)
    parts.append(words.invalid_answer)
    parts.append(
        "Answer in exactly this form, with nothing before or after it:\n"
        "Thought: <your reasoning>\nAction: <one action>"
    )
    parts.append(
        "Three points are critical:\n"
        "1. Write the action exactly as one of the actions above, every slot filled in, on one "
        "line and without further words.\n"
        "2. Ground every plan in what you have observed so far: use only what the history shows, "
        "and change the plan when an action had no effect.\n"
        "3. Break the task into precise steps, and know which step the next action serves."
    )
    return "\n\n".join(parts)


def _example(example: Example, words: EnvWords) -> list[Message]:
    task = task_message(example.goal, words.trim(example.observation))
    said = [Message("user", f"Here is an example.\n{task}")]
    for i, turn in enumerate(example.turns):
        said.append(Message("assistant", _two_lines(turn.thought, turn.action)))
        if i + 1 < len(example.turns):  # the last observation ends the episode and is not shown
            said.append(Message("user", f"Observation: {words.trim(turn.observation)}"))
    return said
