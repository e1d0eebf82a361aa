"""Text from outside on a terminal: shown as it is, and never obeyed."""

from __future__ import annotations

from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

__all__ = ["PlainConsole", "TitledTable", "plain", "printable"]

_SHOWN = {
    number: ascii(chr(number))[1:-1]
    for number in (
        *range(0x20),
        0x7F,
        *range(0x80, 0xA0),  # of which one begins commands, as ESC [ does
        0x061C,
        *range(0x200E, 0x2010),
        *range(0x2028, 0x202F),  # ends of lines, and what turns the order of letters round
        *range(0x2066, 0x206A),
        0xFEFF,
        *range(0xD800, 0xE000),  # halves of characters, which no stream takes
    )
    if chr(number) not in "\n\t"
}


def printable(text: str) -> str:
    """Return a text with its control characters written out, but for ends of lines and tabs."""
    return text.translate(_SHOWN)


def plain(text: str, style: str = "") -> Text:
    """Return a text for any console: nothing in it is taken for markup or a command."""
    return Text(printable(text), style)


class PlainConsole(Console):
    """A console that shows strings as they are: no markup in them, no names of emoji, no commands.

    What is to have a style has it as an argument, or is a :class:`rich.text.Text`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text that a string is shown as; here every string of every table comes by."""
        return super().render_str(printable(text), **options)


class TitledTable(Table):
    """A table whose title may be wider than its columns: it wraps where the console ends."""

    def __init__(self, heading: str | None, **options: Any) -> None:
        super().__init__(**options)
        self.heading = heading

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Give the title, then the table."""
        if self.heading is not None:
            yield plain(self.heading, "table.title")
        yield from super().__rich_console__(console, options)
