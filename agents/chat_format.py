"""From chat messages to the exact text that a policy reads, turn by turn.

A conversation is tokens in, tokens out: sampled tokens never change, and each turn only appends. So
the text after a sampled reply is derived from the tokenizer's chat template by rendering a dummy
conversation, never by rendering the real one again, which would re-tokenise old replies (and let
templates rewrite them, e.g. drop earlier thoughts).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from creditrl.agents.parse import find_call
from creditrl.envs.prompt import Message, PromptForm
from creditrl.errors import ConfigError

__all__ = ["ChatFormat", "paragraphs"]

# Placeholder for earlier content in dummy conversations, which no template changes.
_QUESTION = "QUESTIONzQUESTION"
_ANSWER = "ANSWERzANSWER"
_TOOL, _RESULT = "TOOLzTOOL", "RESULTzRESULT"
_NO_CALL = "000000000"
"""Id of a call that has none; Mistral's templates require nine letters or digits."""
_REMEMBERED = 4096


class ChatFormat:
    """Renders the messages of an episode as text, to be tokenised without adding special tokens.

    With a chat template, the text equals the template's rendering of the whole conversation.
    Without one, a single user message is the text itself, and anything longer is written as
    ``User: ...``, ``Assistant: ...`` paragraphs.

    Args:
        tokenizer: of the policy.
        template_kwargs: further arguments of the template, e.g. ``{"enable_thinking": False}``.

    Attributes:
        turn_end: the string that ends an assistant's turn; empty without a template.
        turn_end_id: its token id, None if it is not a single token.
    """

    def __init__(self, tokenizer: Any, *, template_kwargs: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._kwargs = dict(template_kwargs or {})
        self.has_template = bool(getattr(tokenizer, "chat_template", None))
        self.turn_end, self.turn_end_id = self._turn_end() if self.has_template else ("", None)
        self._begin = self._begin_text()
        self._texts: dict[tuple[tuple[Message, ...], bool | None, str], str] = {}
        self._calls: dict[str, str] = {}

    def first(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return the text of a prompt: all messages, up to where the assistant begins to write.

        Args:
            messages: all of them.
            tools: functions that the model may call. If the template does not list them, the first
                user message does, and asks for calls in JSON.
        """
        if tools and not self._lists_tools:
            messages, tools = _with_tools(messages, tools), ()
        if self.has_template:
            return self._remembered(tuple(messages), None, tools)
        if len(messages) == 1 and messages[0].role == "user":
            return self._begin + messages[0].content
        return self._begin + paragraphs(messages)

    def more(
        self,
        messages: Sequence[Message],
        reply_finished: bool,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """Return the text to append after a sampled reply.

        Args:
            messages: what was said since the reply.
            reply_finished: the reply's tokens end with the end of the turn, which is then not
                written again.
            tools: as of the first prompt.
        """
        if not self.has_template:
            return "\n\n" + paragraphs(messages)
        return self._remembered(tuple(messages), reply_finished, tools if self._lists_tools else ())

    def reply(self, form: PromptForm, action: str, thought: str = "") -> str:
        """Return a form's reply for an action, with its tool call as the template writes calls.

        Text beside a call is left out if the template leaves it out (Llama 3.2, Mistral). If the
        template writes no call that the form can parse, the form's own text is returned.
        """
        text = form.reply(action, thought)
        if not form.tools or not self._lists_tools:
            return text
        known = self._calls.get(text)
        if known is None:
            known = self._own_call(form, text)
            if form.parse(known).action != form.parse(text).action:
                known = text
            if len(self._calls) >= _REMEMBERED:
                self._calls.clear()
            self._calls[text] = known
        return known

    @property
    def reply_end_id(self) -> int:
        """Id of the token that ends a reply, after which a conversation continues."""
        if self.turn_end_id is not None:
            return self.turn_end_id
        return int(self._tokenizer.eos_token_id)

    def reply_ids(self, text: str, max_new_tokens: int) -> tuple[int, ...]:
        """Return the token ids with which a policy would give this reply.

        The last one is the token that ends a reply, if there is room for it: a reply of
        ``max_new_tokens`` tokens has none.

        Raises:
            ConfigError: it is longer than ``max_new_tokens``: a truncated reply would teach
                truncation.
        """
        ids = [*self._tokenizer(text, add_special_tokens=False)["input_ids"], self.reply_end_id]
        if len(ids) - 1 > max_new_tokens:
            raise ConfigError(
                f"The reply {text!r} has {len(ids) - 1} tokens, and "
                f"rollout.max_new_tokens is {max_new_tokens}: set it to {len(ids)} or more, the "
                "token that ends a reply included."
            )
        return tuple(ids[:max_new_tokens])

    def _remembered(
        self,
        messages: tuple[Message, ...],
        reply_finished: bool | None,
        tools: Sequence[Mapping[str, Any]],
    ) -> str:
        """Return a rendered text, cached: members of a group often need the same one."""
        key = (messages, reply_finished, json.dumps(tools) if tools else "")
        text = self._texts.get(key)
        if text is None:
            if reply_finished is None:
                text = self._render(messages, tools)
            else:
                text = self._after_answer(messages, tools)
                if reply_finished:
                    text = text.removeprefix(self.turn_end)
            if len(self._texts) >= _REMEMBERED:
                self._texts.clear()
            self._texts[key] = text
        return text

    def _after_answer(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        before = [Message("user", _QUESTION), Message("assistant", _ANSWER)]
        text = self._render([*before, *messages], tools)
        _, found, rest = text.partition(_ANSWER)
        if not found:
            raise ConfigError(
                "The tokenizer's chat template drops an assistant message that is followed by "
                "others, so it does not support a growing conversation. Use a prompt form with a "
                "history window."
            )
        return rest

    def _turn_end(self) -> tuple[str, int | None]:
        """Return what the template writes between an assistant's words and the next turn."""
        try:
            rest = self._after_answer([Message("user", _QUESTION)])
        except ConfigError:
            return "", None  # prompts of one message still work
        ids = self._tokenizer(rest, add_special_tokens=False)["input_ids"]
        if not ids:
            return "", None
        known = set(self._tokenizer.all_special_ids) | set(self._tokenizer.added_tokens_decoder)
        end = self._tokenizer.convert_ids_to_tokens(ids[0])
        if ids[0] in known and rest.startswith(end):
            return end, int(ids[0])
        return "", None

    def _own_call(self, form: PromptForm, text: str) -> str:
        """Return a reply with a call as the template writes it; empty if it writes none."""
        from jinja2 import TemplateError

        call = find_call(text)
        if call is None:
            return ""
        name, arguments, said = call
        asked, answer = Message("user", _QUESTION), Message("assistant", _ANSWER)
        result = Message("tool", _RESULT)
        function = {"name": name, "arguments": dict(arguments)}
        written = {"id": _NO_CALL, "type": "function", "function": function}
        calling = {"role": "assistant", "content": said, "tool_calls": [written]}
        try:
            whole = self._apply([self._entry(asked), calling, self._entry(result)], form.tools)
        except (TemplateError, TypeError):
            return ""
        before, _, after = self._render([asked, answer, result], form.tools).partition(_ANSWER)
        # A reply follows either a prompt's end (Mistral) or what precedes an earlier answer (Qwen3
        # without thinking, whose prompts end with an empty thought).
        for begin in (self._render([asked], form.tools), before):
            if whole.startswith(begin) and whole.endswith(after):
                return whole[len(begin) : len(whole) - len(after)]
        return ""

    @cached_property
    def _lists_tools(self) -> bool:
        """Whether the template lists functions, and has a place for what they return."""
        from jinja2 import TemplateError

        if not self.has_template:
            return False
        probe = {"name": _TOOL, "description": _TOOL, "parameters": {"type": "object"}}
        said = [Message("user", _QUESTION), Message("assistant", _ANSWER)]
        said.append(Message("tool", _RESULT))
        try:
            text = self._render(said, [{"type": "function", "function": probe}], as_tool=True)
        except (TemplateError, TypeError):  # how templates report an unknown role
            return False
        return _TOOL in text and _RESULT in text

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        as_tool: bool | None = None,
    ) -> str:
        return self._apply([self._entry(m, as_tool) for m in messages], tools)

    def _entry(self, message: Message, as_tool: bool | None = None) -> dict[str, Any]:
        """Return a message in the format of templates."""
        entry = {"role": message.role, "content": message.content}
        if message.role == "tool":
            if self._lists_tools if as_tool is None else as_tool:
                entry["tool_call_id"] = message.call_id or _NO_CALL
            else:
                entry["role"] = "user"
        return entry

    def _apply(self, chat: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        offered = {"tools": [dict(tool) for tool in tools]} if tools else {}
        return str(
            self._tokenizer.apply_chat_template(
                chat, tokenize=False, add_generation_prompt=True, **self._kwargs, **offered
            )
        )

    def _begin_text(self) -> str:
        """Return the begin-of-text token if the tokenizer itself would add it."""
        bos = self._tokenizer.bos_token_id
        if bos is None:
            return ""
        ids = self._tokenizer("")["input_ids"]
        return str(self._tokenizer.bos_token) if ids and ids[0] == bos else ""


def _with_tools(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the messages with the functions described in the first user message.

    Source: Gemma's guide to function calling (its template lists none); the sentences are ours.
    """
    listed = "\n".join(json.dumps(tool.get("function", tool)) for tool in tools)
    told = (
        f"You can call these functions:\n{listed}\nTo call one, write JSON of this form and "
        'nothing behind it: {"name": <function>, "parameters": {<argument>: <value>}}'
    )
    at = next((k for k, m in enumerate(messages) if m.role == "user"), 0)
    shown = replace(messages[at], content=f"{told}\n\n{messages[at].content}")
    return [*messages[:at], shown, *messages[at + 1 :]]


def paragraphs(messages: Sequence[Message]) -> str:
    """Return messages as text for tokenizers without a chat template."""
    said = [f"{m.role.capitalize()}: {m.content}" for m in messages]
    return "\n\n".join([*said, "Assistant:"])
