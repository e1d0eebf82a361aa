"""A finished trajectory with one lost turn, as HISR's hindsight model is asked about it.

Source of the structure: HISR, arXiv 2603.18683; the sentences are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from creditrl.envs.prompt import Message
from creditrl.envs.words import EnvWords

__all__ = ["BLANK", "cloze"]

BLANK = "___"
"""Stands for the lost turn."""


def cloze(
    turns: Sequence[tuple[str, str]],
    lost: int,
    outcome: float,
    words: EnvWords,
    *,
    final: str = "",
    bare: bool = False,
    told: str = "",
    reach: int | None = None,
) -> tuple[Message, ...]:
    """Return the messages before the lost reply is written again.

    Args:
        turns: (observation, reply) of each turn.
        lost: the turn that is to be restored.
        outcome: scalar outcome of the trajectory, 0 failure to 1 success.
        words: of the environment.
        final: what was seen after the last turn; empty where that is not known.
        bare: for small models that were taught no English: no instructions and no blank. What came
            after the lost turn stands first, then the outcome, what came before, and last the lost
            turn's observation, which such a model goes on from as it always did.
        told: how ``bare`` writes the outcome; empty: as a number.
        reach: turns before and after the masked one that are shown; None: all.
    """
    first = 0 if reach is None else max(0, lost - reach)
    last = len(turns) if reach is None else min(len(turns), lost + reach + 1)

    def shown(places: range) -> list[Message]:
        messages = []
        for place in places:
            observation, reply = turns[place]
            messages.append(Message("user", words.trim(observation)))
            messages.append(Message("assistant", BLANK if place == lost else reply))
        return messages

    # A turn more would have begun with it.
    reached = final and (reach is None or lost + reach >= len(turns))
    end = [words.trim(final)] if reached else []
    if bare:
        return (
            *shown(range(lost + 1, last)),
            *(Message("user", text) for text in end),
            Message("user", told or f"{outcome:.1f}"),
            *shown(range(first, lost)),
            Message("user", words.trim(turns[lost][0])),
        )
    question = (
        f"The scalar reward of the trajectory is {outcome:.1f}. Restore the lost turn, "
        f"which is shown as {BLANK}."
    )
    return (
        Message("user", _instructions(words)),
        Message("assistant", "OK"),
        *shown(range(first, last)),
        # One message: templates want the two sides to take turns.
        Message("user", "\n\n".join([*end, question])),
    )


def _instructions(words: EnvWords) -> str:
    parts = [
        f"You are an expert on the trajectories of {words.role}, acting in {words.place}. You get "
        f"one finished trajectory in which a single turn of the agent is lost, shown as {BLANK}.",
        "You see the environment and the task, every other turn with what the agent saw, thought "
        "and did, and at the end the scalar reward of the whole: 0.00 is failure, 1.00 success.",
        words.invalid_answer,
        "Say what the agent thought and did in the lost turn, in the form of its other turns.",
    ]
    if words.actions:
        parts.append("Its actions:\n" + "\n".join(words.actions))
    return "\n".join(part for part in parts if part)
