"""Read an action out of a reply: JSON, tool calls, and the prompt forms by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from creditrl.errors import ConfigError, OutsideJSONError, did_you_mean
from creditrl.outside_json import find_json, read_json

if TYPE_CHECKING:
    from creditrl.agents.prompts import Parsed, PromptForm

__all__ = ["Parser", "get_parser", "parse_json", "parse_tool", "resolve_form"]

Parser: TypeAlias = "Callable[[str], Parsed]"

MAX_OBJECTS = 32
"""Opening braces that are tried in one reply; one of nothing but braces must not cost seconds."""

_THOUGHT_KEYS = ("thought", "thoughts", "reasoning", "think")
_ACTION_KEYS = ("action", "command")


def get_parser(form: Any, tools: Mapping[str, str] | None = None) -> Parser:
    """Return the function that reads replies of a form.

    Args:
        form: ``"json"``, ``"tool"``, a prompt form or its name (``"react"``, ``"tags"``, ...), or a
            function from a reply to an action or a ``Parsed``.
        tools: for ``"tool"``, see :func:`parse_tool`.

    Raises:
        ConfigError: the form is unknown.
    """
    if form == "json":
        return parse_json
    if form == "tool":
        return lambda reply: parse_tool(reply, tools)
    if isinstance(form, str) or hasattr(form, "parse"):
        return resolve_form(form, also=("json", "tool")).parse
    if callable(form):
        return lambda reply: _as_parsed(form(reply))
    raise ConfigError(
        f"form={form!r}: expected 'json', 'tool', the name of a prompt form, or a function."
    )


def resolve_form(form: Any, also: tuple[str, ...] = (), **options: Any) -> PromptForm:
    """Return a prompt form by name, or the form itself.

    Raises:
        ConfigError: no form has that name.
    """
    # The one arrow that points back (DESIGN, section 5): there is one prompt builder, and it
    # belongs to the agents. Imported when a form is asked for, so that no agent need be there.
    from creditrl.agents.prompts import FORMS, PromptForm, get_form

    if isinstance(form, PromptForm):
        return form
    if form not in FORMS:
        known = [*sorted(FORMS), *also]
        raise ConfigError(
            f"form={form!r} is unknown.{did_you_mean(str(form), known)} "
            f"Known: {', '.join(known)}, or a function."
        )
    return get_form(form, **options)


def parse_json(reply: str) -> Parsed:
    """Read ``{"thought": ..., "action": ...}``, the first JSON object with an action in it.

    The format is valid where the action is a non-empty string. Without such an object the whole
    reply is the action.
    """
    from creditrl.agents.prompts import Parsed

    for found, before in _objects(reply):
        action = _first(found, _ACTION_KEYS)
        if isinstance(action, str):
            thought = _first(found, _THOUGHT_KEYS)
            return Parsed(
                action.strip(),
                valid_format=bool(action.strip()),
                thought=thought if isinstance(thought, str) else before,
            )
    return Parsed(reply.strip(), valid_format=False)


def parse_tool(reply: str, tools: Mapping[str, str] | None = None) -> Parsed:
    """Read a tool call: ``{"name": ..., "arguments": {...}}``.

    Also in OpenAI's shape (``{"function": {"name": ..., "arguments": "<JSON>"}}``, alone or in
    ``"tool_calls"``) and between ``<tool_call>`` tags. The action is what ``tools`` says; else the
    argument ``"action"`` or ``"command"``; else the name and the argument values, separated by
    spaces.

    Args:
        reply: any string.
        tools: per tool a template over its arguments, e.g. ``{"search": "search[{query}]"}``.
    """
    from creditrl.agents.prompts import Parsed

    for found, before in _objects(reply):
        call = _call(found)
        if call is None:
            continue
        name, arguments = call
        action = _tool_action(name, arguments, tools or {})
        if action is None:
            break
        thought = _first(found, _THOUGHT_KEYS)
        said = thought if isinstance(thought, str) else before
        return Parsed(action, valid_format=bool(action), thought=said)
    return Parsed(reply.strip(), valid_format=False)


def _tool_action(name: str, arguments: Mapping[str, Any], tools: Mapping[str, str]) -> str | None:
    if name in tools:
        try:
            return tools[name].format(**arguments).strip()
        except (LookupError, ValueError, TypeError, AttributeError):
            return None  # an argument that the template needs is missing, or of another kind
    direct = _first(arguments, _ACTION_KEYS)
    if isinstance(direct, str):
        return direct.strip()
    return " ".join([name, *(_word(value) for value in arguments.values())]).strip()


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _call(found: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    calls = found.get("tool_calls")
    if isinstance(calls, list) and calls and isinstance(calls[0], dict):
        return _call(calls[0])
    inner = found.get("function")
    if isinstance(inner, dict):
        found = inner
    name, arguments = found.get("name"), found.get("arguments", found.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments)
        except OutsideJSONError:
            return None
    if isinstance(name, str) and isinstance(arguments, dict):
        return name, arguments
    return None


def _objects(reply: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Return the JSON objects in a reply and the words before each, tags and fences removed."""
    at, tried = reply.find("{"), 0
    while at >= 0 and tried < MAX_OBJECTS:
        tried += 1
        try:
            found, end = find_json(reply, at)
        except OutsideJSONError:
            at = reply.find("{", at + 1)
            continue
        yield found, _words_before(reply[:at])
        at = reply.find("{", end)


def _words_before(text: str) -> str:
    text = text.rstrip()
    for mark in ("```json", "```", "<tool_call>"):
        text = text.removesuffix(mark).rstrip()
    return text.replace("<think>", "").replace("</think>", "").strip()


def _first(found: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((found[key] for key in keys if key in found), None)


def _as_parsed(answer: Any) -> Parsed:
    from creditrl.agents.prompts import Parsed

    if isinstance(answer, Parsed):
        return answer
    if isinstance(answer, str):
        return Parsed(answer)
    raise ConfigError(
        f"The form's function returned {type(answer).__name__}: expected an action or a Parsed."
    )
