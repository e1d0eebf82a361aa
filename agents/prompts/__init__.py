"""Prompt forms by name; one builder serves training, evaluation and benchmarking."""

from __future__ import annotations

import inspect
from typing import Any

from creditrl.agents.prompts.base import Ask, Message, Parsed, PromptForm
from creditrl.agents.prompts.compact import CompactForm
from creditrl.agents.prompts.dialogue import DialogueForm
from creditrl.agents.prompts.env_words import EnvWords, Example, ExampleTurn
from creditrl.agents.prompts.files import FilesForm
from creditrl.agents.prompts.plain import PlainForm
from creditrl.agents.prompts.react import ReActForm
from creditrl.agents.prompts.reflexion import ReflexionForm
from creditrl.agents.prompts.social import SotopiaForm
from creditrl.agents.prompts.tags import TagsForm
from creditrl.agents.prompts.words import listed_actions, register_words, words_for
from creditrl.errors import ConfigError, UnknownNameError, did_you_mean

__all__ = [
    "FORMS",
    "Ask",
    "CompactForm",
    "DialogueForm",
    "EnvWords",
    "Example",
    "ExampleTurn",
    "FilesForm",
    "Message",
    "Parsed",
    "PlainForm",
    "PromptForm",
    "ReActForm",
    "ReflexionForm",
    "SotopiaForm",
    "TagsForm",
    "get_form",
    "listed_actions",
    "register_words",
    "words_for",
]

FORMS: dict[str, type[PromptForm]] = {
    form.name: form
    for form in (
        *(PlainForm, CompactForm, DialogueForm, ReActForm),
        *(ReflexionForm, TagsForm, SotopiaForm),
    )
}
"""Prompt forms by name; a form of your own is added with ``FORMS["name"] = MyForm``."""


def get_form(name: str, **options: Any) -> PromptForm:
    """Return the prompt form of that name.

    Args:
        name: ``"plain"``, ``"compact"``, ``"dialogue"``, ``"react"``, ``"reflexion"``, ``"tags"``,
            ``"sotopia"`` or a name added to :data:`FORMS`.
        options: arguments of the form, e.g. ``history_length=2``.

    Raises:
        UnknownNameError: there is no such form.
        ConfigError: the form has no such option, or its value is out of range.
    """
    form = FORMS.get(name)
    if form is None:
        raise UnknownNameError(
            f"No prompt form named {name!r}.{did_you_mean(name, FORMS)} "
            f"Known: {', '.join(sorted(FORMS))}."
        )
    known = [p for p in inspect.signature(form).parameters if p not in ("args", "kwargs")]
    for option in options:
        if option not in known:
            raise ConfigError(
                f"The prompt form {name!r} has no option {option!r}.{did_you_mean(option, known)} "
                f"Known: {', '.join(known) or 'none'}."
            )
    return form(**options)
