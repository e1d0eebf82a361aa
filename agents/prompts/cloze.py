"""A finished trajectory with one missing turn, as a prompt for HISR's hindsight model.

Source of the structure: HISR, arXiv 2603.18683; the sentences are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from creditrl.envs.prompt import Message
from creditrl.envs.words import EnvWords

BLANK = "___"
"""Placeholder of the missing turn."""


def cloze(
    turns: Sequence[tuple[str, str]],
    lost: int,
    outcome: float,
    words: EnvWords,
    *,
    final: str = "",
    reach: int | None = None,
) -> tuple[Message, ...]:
    """Return the messages that ask for the missing reply.

    Args:
        turns: (observation, reply) of each turn.
        lost: index of the turn to restore.
        outcome: scalar outcome of the trajectory, 0 failure to 1 success.
        words: the environment's.
        final: observation after the last turn; empty if it is unknown.
        reach: number of turns to show before and after the missing one; None: all.
    """
    first = 0 if reach is None else max(0, lost - reach)
    last = len(turns) if reach is None else min(len(turns), lost + reach + 1)

    messages = []
    for place in range(first, last):
        observation, reply = turns[place]
        messages.append(Message("user", words.trim(observation)))
        messages.append(Message("assistant", BLANK if place == lost else reply))
    # The final observation counts as one more turn.
    reached = final and (reach is None or lost + reach >= len(turns))
    end = [words.trim(final)] if reached else []
    question = (
        f"The scalar reward of the trajectory is {outcome:.1f}. Restore the lost turn, "
        f"which is shown as {BLANK}."
    )
    return (
        Message("user", _instructions(words)),
        Message("assistant", "OK"),
        *messages,
        # One message: templates require alternating roles.
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
