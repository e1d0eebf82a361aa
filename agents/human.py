"""A person at the terminal as an agent, for ``creditrl play``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from creditrl.types import Prompt, Reply

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["HumanAgent", "PlayerLeft", "complete"]

_LISTED = 200


class PlayerLeft(Exception):  # noqa: N818 - not an error: how a player ends the game
    """The player typed ``quit``, or the input ended."""


class HumanAgent:
    """Shows each prompt and reads a line.

    A number takes the admissible action of that number, an unambiguous beginning of one completes
    to it, and anything else goes to the environment as typed. ``quit`` ends the game.

    Args:
        console: where to print; None is the standard output.
        read: reads a line after showing a prompt; None is :func:`input`, with the tab key
            completing actions where the terminal can.
    """

    name = "human"

    def __init__(
        self, console: Console | None = None, read: Callable[[str], str] | None = None
    ) -> None:
        from creditrl.terminal import PlainConsole

        self._console = console or PlainConsole()
        self._read = read or _read_line
        self._actions: tuple[str, ...] = ()

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Ask once per prompt.

        Raises:
            PlayerLeft: the player typed ``quit``, or the input ended.
        """
        return [self._ask(prompt, len(prompts) > 1) for prompt in prompts]

    def _ask(self, prompt: Prompt, several: bool) -> Reply:
        from creditrl.terminal import plain

        out = self._console
        where = (
            f"Copy {prompt.copy}, turn {prompt.turn + 1}" if several else f"Turn {prompt.turn + 1}"
        )
        out.rule(where, align="left")
        if prompt.turn == 0 and prompt.goal not in prompt.observation:
            out.print(plain(prompt.goal, "bold"))
        out.print(plain(prompt.observation))
        actions = prompt.admissible_actions
        if actions:
            listed = "  ".join(f"{i + 1} {action}" for i, action in enumerate(actions[:_LISTED]))
            more = f"  ... and {len(actions) - _LISTED} more" if len(actions) > _LISTED else ""
            out.print(plain(listed + more, "cyan"))
        if prompt.action_hint:
            out.print(plain(f"or {prompt.action_hint}" if actions else prompt.action_hint, "cyan"))
        while True:
            _offer(actions)
            try:
                line = self._read("action (or quit): ").strip()
            except (EOFError, KeyboardInterrupt):
                raise PlayerLeft("The input ended.") from None
            if line == "quit":
                raise PlayerLeft("The player quit.")
            if line:
                return Reply(complete(line, actions))


def complete(line: str, actions: Sequence[str]) -> str:
    """Return the action that a typed line means.

    A number from 1 is that action's; a beginning that only one action has is that action; anything
    else is itself.
    """
    if line in actions:
        return line
    if line.isdecimal() and 1 <= int(line) <= len(actions):
        return actions[int(line) - 1]
    begun = [action for action in actions if action.lower().startswith(line.lower())]
    return begun[0] if len(begun) == 1 else line


def _read_line(prompt: str) -> str:
    return input(prompt)


def _offer(actions: Sequence[str]) -> None:
    """Let the tab key complete ``actions`` where Python was built with readline."""
    try:
        import readline
    except ImportError:
        return

    def completer(text: str, state: int) -> str | None:
        begun = [action for action in actions if action.startswith(text)]
        return begun[state] if state < len(begun) else None

    readline.set_completer_delims("\n")
    readline.set_completer(completer)
    readline.parse_and_bind("tab: complete")
