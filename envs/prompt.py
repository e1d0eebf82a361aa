"""The prompt form interface: how prompts are built and how replies are read.

One builder serves training, evaluation and benchmarking.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

__all__ = ["Ask", "Message", "Parsed", "PromptForm", "parse_tags"]

_CJK = re.compile(r"[\u4e00-\u9fff]")  # verl-agent's range: CJK unified ideographs


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant", "tool"]
    """``"tool"``: the result of the function that the assistant called."""
    content: str
    call_id: str = ""
    """For a tool's result: the id that the model gave to its call, if it gave one."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Inputs of a prompt in one turn of an episode."""

    observation: str
    goal: str = ""
    admissible_actions: tuple[str, ...] = ()
    action_hint: str = ""
    turn: int = 0
    """Turns taken so far."""
    history: Sequence[tuple[str, str]] = ()
    """(observation, action) of the earlier turns, oldest first."""
    env_id: str = ""
    earlier_images: int = 0
    """Number of latest turns of ``history`` that have a picture to show."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """An action read from a reply."""

    action: str
    """Action for the environment; the whole reply if none was found."""
    valid_format: bool = True
    thought: str = ""


class PromptForm(ABC):
    """One way to prompt a policy."""

    name: ClassVar[str]
    context: ClassVar[Literal["window", "full"]]
    """``"window"``: every turn has its own prompt. ``"full"``: the conversation only grows."""
    needs_history: ClassVar[bool] = True
    """False: ``Ask.history`` is not read and need not be filled."""
    tools: ClassVar[Sequence[Mapping[str, Any]]] = ()
    """Functions offered through the model's own chat template, in OpenAI's format."""
    recent_images: int = 1
    """Maximum number of pictures in a prompt: this turn's, and those of the turns before it."""

    @abstractmethod
    def messages(self, ask: Ask) -> tuple[Message, ...]:
        """Return the messages of this turn.

        With a window: the whole prompt. Full context: at turn 0 everything up to the first
        question, later only the new user message.
        """

    def in_words(self) -> PromptForm | None:
        """Return the form that describes in words what this one shows as a picture.

        None if it shows no picture.
        """
        return None

    @abstractmethod
    def parse(self, reply: str) -> Parsed:
        """Read the action from a reply; takes any string."""

    def reply(self, action: str, thought: str = "") -> str:
        """Return a reply from which :meth:`parse` reads ``action``; for demonstrations.

        :meth:`creditrl.agents.ChatFormat.reply` writes a function call in it as a policy's chat
        template does.
        """
        return action


def parse_tags(reply: str, lower: bool = True) -> Parsed:
    """Read the text between the first ``<action>`` and the ``</action>`` after it, lower-cased.

    The format is invalid if a tag is missing, if there is no ``<think>`` ... ``</think>`` pair or
    if the reply has CJK characters (verl-agent's rule; its penalty is left to the trainer). The
    action is read anyway. Without action tags the whole reply is the action.
    """
    _, opened, rest = reply.partition("<action>")
    inside, closed, _ = rest.partition("</action>")
    think_at = reply.find("<think>")
    think_end = reply.find("</think>")
    thought = reply[think_at + len("<think>") : think_end].strip() if think_at < think_end else ""
    thinks = think_at >= 0 and think_end >= 0
    tagged = bool(opened and closed)
    action = (inside if tagged else reply).strip()
    valid = tagged and thinks and _CJK.search(reply) is None
    return Parsed(
        action.lower() if lower else action, valid_format=valid, thought=thought if thinks else ""
    )
