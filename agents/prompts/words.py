"""The words of every environment that has some, by id.

A further environment plugs in with one entry: ``register_words("CreditRL/X-v0", EnvWords(...))``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from creditrl.agents.prompts.alfworld import alfworld_words
from creditrl.agents.prompts.base import Ask
from creditrl.agents.prompts.env_words import EnvWords
from creditrl.agents.prompts.sokoban import SOKOBAN
from creditrl.agents.prompts.sotopia import SOTOPIA
from creditrl.agents.prompts.virtualhome import VIRTUALHOME
from creditrl.agents.prompts.webshop import WEBSHOP

__all__ = ["GENERIC", "Words", "listed_actions", "register_words", "words_for"]

Words: TypeAlias = EnvWords | Callable[[Ask], EnvWords]
"""A function where an environment has several wordings, and an episode decides which."""

GENERIC = EnvWords()
"""The words of an environment that has no entry."""

_WORDS: dict[str, Words] = {
    "CreditRL/ALFWorld": alfworld_words,
    "CreditRL/VirtualHome": VIRTUALHOME,
    "CreditRL/VisualSokoban": SOKOBAN,
    "CreditRL/SOTOPIA": SOTOPIA,
    "CreditRL/WebShop": WEBSHOP,
}


def register_words(env_id: str, words: Words) -> None:
    """Set the words of an environment, for every version of it if ``env_id`` names none."""
    _WORDS[env_id] = words


def words_for(ask: Ask) -> EnvWords:
    """Return the words of ``ask.env_id``, of its name without version, or generic ones."""
    name, _, version = ask.env_id.rpartition("-v")
    unversioned = name if version.isdigit() else ask.env_id
    words = _WORDS.get(ask.env_id) or _WORDS.get(unversioned) or GENERIC
    return words if isinstance(words, EnvWords) else words(ask)


def listed_actions(ask: Ask) -> tuple[str, ...]:
    """Return the actions to choose among where replies are listed, each once."""
    words = words_for(ask)
    if words.choices is not None:
        return tuple(dict.fromkeys(words.choices(ask)))
    return tuple(a for a in ask.admissible_actions if a not in words.hidden_actions)
