"""Read an action from a reply that is JSON or a tool call."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

from creditrl.envs.prompt import Parsed
from creditrl.errors import OutsideJSONError
from creditrl.outside_json import find_json, read_json

__all__ = ["call_id_of", "find_call", "parse_json", "parse_tool"]

MAX_OBJECTS = 32
"""Opening braces tried in one reply, so that a reply of only braces does not take seconds."""

_CALL_ID = re.compile(r'(?:"id"\s*:\s*"|\[CALL_ID\])([A-Za-z0-9]{9})["\[]')
_MARKED = re.compile(
    r"(?:\[TOOL_CALLS\]|\A)\s*([\w.-]{1,64})(?:\[CALL_ID\]\w{1,64})?\[ARGS\]\s*(?={)"
)
"""Before the arguments of a call of newer Mistral models."""
_UNMARKED = re.compile(r"\A\s*([\w.-]{1,64})(?={)")
"""The same in a text without special tokens."""
_FENCE = "```tool_code"
_LONGEST_CALL = 4096
"""Maximum length of a Python call, in characters."""
_THOUGHT_KEYS = ("thought", "thoughts", "reasoning", "think")
_ACTION_KEYS = ("action", "command")


def parse_json(reply: str) -> Parsed:
    """Read ``{"thought": ..., "action": ...}``, the first JSON object with an action in it.

    The format is valid if the action is a non-empty string. Without such an object the whole reply
    is the action.
    """
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

    Also reads OpenAI's shape (``{"function": {"name": ..., "arguments": "<JSON>"}}``, by itself or
    in ``"tool_calls"``), and the formats of model families: between ``<tool_call>`` tags (Qwen,
    Hermes), with ``"parameters"`` (Llama 3), after ``[TOOL_CALLS]`` as a list or as
    ``name[ARGS]{...}`` (Mistral), as a Python call in a ``tool_code`` block (Gemma) or in brackets
    (Llama 3.2). The first call counts. The action is the filled-in template from ``tools``; else
    the argument ``"action"`` or ``"command"``; else the name and the argument values, separated by
    spaces.

    Args:
        reply: any string.
        tools: for each tool, a template over its arguments, e.g. ``{"search": "search[{query}]"}``.
    """
    call = find_call(reply)
    action = None if call is None else _tool_action(*call[:2], tools or {})
    if call is None or action is None:
        return Parsed(reply.strip(), valid_format=False)
    return Parsed(action, valid_format=bool(action), thought=call[2])


def find_call(reply: str) -> tuple[str, Mapping[str, Any], str] | None:
    """Return (name, arguments, thought) of the first call in a reply; None if it has none."""
    for found, before in chain(
        _named_calls(_MARKED, reply),
        _objects(reply),
        _python_calls(reply),
        _named_calls(_UNMARKED, reply),
    ):
        call = _call(found)
        if call is not None:
            thought = _first(found, _THOUGHT_KEYS)
            return *call, thought if isinstance(thought, str) else before
    return None


def call_id_of(reply: str) -> str:
    """Return the id that a model gave to its call, as Mistral's models do; empty if it has none."""
    found = _CALL_ID.search(reply)
    return found[1] if found else ""


def _tool_action(name: str, arguments: Mapping[str, Any], tools: Mapping[str, str]) -> str | None:
    if name in tools:
        try:
            return tools[name].format(**arguments).strip()
        except (LookupError, ValueError, TypeError, AttributeError):
            return None  # an argument that the template needs is missing or of another type
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


def _named_calls(begin: re.Pattern[str], reply: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Return the calls with the name before the JSON, in the JSON shape, and the words before."""
    for mark in islice(begin.finditer(reply), MAX_OBJECTS):
        try:
            arguments, _ = find_json(reply, mark.end())
        except OutsideJSONError:
            continue
        yield {"name": mark[1], "arguments": arguments}, _words_before(reply[: mark.start()])


def _python_calls(reply: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Return the Python calls in a reply, in the JSON shape, and the words before each."""
    fence, listed = reply.find(_FENCE), reply.rstrip()
    if fence >= 0:
        yield from _python_call(reply[fence + len(_FENCE) :].partition("```")[0], reply[:fence])
    elif listed.endswith(")]"):
        begin = listed.rfind("\n[") + 1
        yield from _python_call(listed[begin:].strip("[]"), listed[:begin])


def _python_call(code: str, before: str) -> Iterator[tuple[dict[str, Any], str]]:
    try:
        call = ast.parse(code.strip()[:_LONGEST_CALL], mode="eval").body
        if isinstance(call, ast.Call) and call.args:
            call = call.args[0]  # print(act(...))
        if not isinstance(call, ast.Call):
            return
        arguments = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    # act(...), or default_api.act(...)
    name = ast.unparse(call.func).rpartition(".")[2]
    yield {"name": name, "arguments": arguments}, _words_before(before)


def _words_before(text: str) -> str:
    text = text.rstrip()
    for mark in ("[", "```json", "```", "<tool_call>", "<|python_tag|>", "[TOOL_CALLS]"):
        text = text.removesuffix(mark).rstrip()
    return text.replace("<think>", "").replace("</think>", "").strip()


def _first(found: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((found[key] for key in keys if key in found), None)
