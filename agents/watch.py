"""Progress messages of a running evaluation."""

from __future__ import annotations

import warnings

from creditrl.agents.spent import Spent
from creditrl.types import Prompt, Reply, Turn

__all__ = ["Lookout", "Watch"]

_ENOUGH = 32
"""Turns after which it is no coincidence that no reply had a valid format, or none was executed."""
_LONGEST_QUOTE = 200


class Watch:
    """Notified by :func:`creditrl.agents.evaluate`; override the methods that you need."""

    def asked(self, prompt: Prompt) -> None:
        """Handle the first question to a language model, before it is asked."""

    def answered(self, reply: Reply) -> None:
        """Handle the reply to it."""

    def spent(self, spent: Spent, errors: int) -> None:
        """Handle the spending so far, with questions under way, and the number of failed questions.

        May be called from another thread.
        """

    def notice(self, text: str) -> None:
        """Handle a line for the user; a warning unless overridden.

        May be called from another thread.
        """
        warnings.warn(text, stacklevel=2)


class Lookout:
    """Detects that no reply has a valid format, or none is executed, within the first turns."""

    def __init__(self, watch: Watch, form: str) -> None:
        self._watch = watch
        self._form = form
        self._turns = self._in_form = self._executed = 0

    def turn(self, turn: Turn) -> None:
        """Count a turn; give notice once."""
        if self._turns >= _ENOUGH:
            return
        self._turns += 1
        self._in_form += turn.valid_format
        self._executed += turn.grounded
        if self._turns == _ENOUGH and not (self._in_form and self._executed):
            what = f"could be executed ({turn.ungrounded_reason})"
            if not self._in_form:
                what = f"was in the form {self._form!r}"
            cut = "..." if len(turn.reply) > _LONGEST_QUOTE else ""
            last = repr(turn.reply[:_LONGEST_QUOTE] + cut)
            self._watch.notice(f"None of the first {_ENOUGH} replies {what}. The last: {last}")
