"""Chat formats beyond test_templates.py: templates that drop turns, and no template."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from creditrl.agents.chat_format import ChatFormat
from creditrl.agents.conversation import Conversation
from creditrl.agents.prompts import get_form
from creditrl.envs.prompt import Message
from creditrl.errors import ConfigError

pytest.importorskip("transformers")

LAST_ONLY = "<|im_start|>{{ messages[-1]['content'] }}<|im_end|>"

TALK = [
    Message("user", "Play the game."),
    Message("assistant", "OK"),
    Message("user", "Task: open the box."),
]


def test_a_template_that_drops_turns_serves_single_prompts_only(chat_tokenizer_maker):
    chat = ChatFormat(chat_tokenizer_maker(LAST_ONLY))
    assert chat.first([Message("user", "hello")]) == "<|im_start|>hello<|im_end|>"
    with pytest.raises(ConfigError, match="history window"):
        chat.more([Message("user", "more")], True)


def test_without_a_template_a_conversation_has_named_speakers(word_tokenizer):
    chat = ChatFormat(word_tokenizer)
    assert not chat.has_template and chat.first(TALK[:1]) == "Play the game."
    assert chat.first(TALK) == (
        "User: Play the game.\n\nAssistant: OK\n\nUser: Task: open the box.\n\nAssistant:"
    )
    for finished in (True, False):
        assert chat.more([Message("user", "a wall")], finished) == "\n\nUser: a wall\n\nAssistant:"


def test_the_begin_token_is_written_where_the_tokenizer_would(chat_tokenizer_maker):
    from tokenizers import processors

    tokenizer = chat_tokenizer_maker()
    tokenizer.chat_template = None
    assert ChatFormat(tokenizer).first([Message("user", "x")]) == "x"
    tokenizer.bos_token = "<|im_start|>"
    bos = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", bos)]
    )
    assert ChatFormat(tokenizer).first([Message("user", "x")]) == "<|im_start|>x"


def test_a_reply_that_ended_at_a_stop_string_gets_the_end_of_turn(chat_tokenizer):
    chat = ChatFormat(chat_tokenizer)
    assert chat.turn_end_id == chat_tokenizer.convert_tokens_to_ids("<|im_end|>")
    agent = SimpleNamespace(chat_format=chat, stop=("</action>",), stop_ids={chat.turn_end_id})
    for last, ended in ((5, chat.turn_end), (chat.turn_end_id, "")):
        asked = (Message("user", "a wall"),)
        text = Conversation(prefix_ids=(1, last))._render(agent, asked, get_form("react"))
        assert text.startswith(ended + "\n<|im_start|>user")
