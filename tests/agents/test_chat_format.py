from __future__ import annotations

from types import SimpleNamespace

import pytest

from creditrl.agents.chat_format import ChatFormat
from creditrl.agents.conversation import Conversation
from creditrl.agents.prompts import get_form
from creditrl.envs.prompt import Message
from creditrl.errors import ConfigError

pytest.importorskip("transformers")

# As Qwen3's: thoughts of earlier turns are dropped when the conversation is rendered again.
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ m['content'].split('</think>')[-1] if not loop.last else m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if quiet %}<think></think>{% endif %}{% endif %}"
)
LAST_ONLY = "<|im_start|>{{ messages[-1]['content'] }}<|im_end|>"

TALK = [
    Message("user", "Play the game."),
    Message("assistant", "OK"),
    Message("user", "Task: open the box."),
]
REPLIES = ["Thought: look\nAction: look", "Thought: it is shut\nAction: open box"]
ANSWERS = ["Observation: a box", "Observation: it is open"]


@pytest.mark.parametrize("finished", [True, False])
def test_a_conversation_reads_as_the_template_writes_it(chat_tokenizer, finished):
    chat = ChatFormat(chat_tokenizer)
    text, messages = chat.first(TALK), list(TALK)
    for said, seen in zip(REPLIES, ANSWERS, strict=True):
        # A finished reply was sampled with its end of turn, a cut one without.
        text += said + (chat.turn_end if finished else "")
        text += chat.more([Message("user", seen)], finished)
        messages += [Message("assistant", said), Message("user", seen)]
    whole = chat_tokenizer.apply_chat_template(
        [{"role": m.role, "content": m.content} for m in messages],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert text == whole


def test_token_ids_only_grow_and_equal_the_whole_text(chat_tokenizer):
    chat = ChatFormat(chat_tokenizer)

    def tokens(text):
        return chat_tokenizer(text, add_special_tokens=False)["input_ids"]

    text = chat.first(TALK)
    ids = tokens(text)
    for said, seen in zip(REPLIES, ANSWERS, strict=True):
        for piece in (said + chat.turn_end, chat.more([Message("user", seen)], True)):
            text += piece
            ids = ids + tokens(piece)
    assert ids == tokens(text)


def test_the_end_of_a_turn_is_found_in_the_template(chat_tokenizer):
    chat = ChatFormat(chat_tokenizer)
    assert chat.turn_end == "<|im_end|>"
    assert chat.turn_end_id == chat_tokenizer.convert_tokens_to_ids("<|im_end|>")


def test_templates_that_rewrite_old_turns_do_not_touch_what_was_sampled(chat_tokenizer_maker):
    tokenizer = chat_tokenizer_maker(FORGETFUL)
    chat = ChatFormat(tokenizer)
    reply = "<think>left or right?</think>left<|im_end|>"
    text = chat.first(TALK) + reply + chat.more([Message("user", "a wall")], True)
    assert "left or right?" in text
    assert text.endswith(
        "left<|im_end|>\n<|im_start|>user\na wall<|im_end|>\n<|im_start|>assistant\n"
    )


def test_template_arguments_reach_the_template(chat_tokenizer_maker):
    chat = ChatFormat(chat_tokenizer_maker(FORGETFUL), template_kwargs={"quiet": True})
    assert chat.first(TALK).endswith("assistant\n<think></think>")
    assert chat.more(TALK[:1], True).endswith("assistant\n<think></think>")


def test_a_template_that_drops_turns_serves_single_prompts_only(chat_tokenizer_maker):
    chat = ChatFormat(chat_tokenizer_maker(LAST_ONLY))
    assert chat.first([Message("user", "hello")]) == "<|im_start|>hello<|im_end|>"
    with pytest.raises(ConfigError, match="history window"):
        chat.more([Message("user", "more")], True)


def test_without_a_template_a_single_message_is_the_text_itself(word_tokenizer):
    chat = ChatFormat(word_tokenizer)
    assert not chat.has_template
    assert chat.first([Message("user", "#P_XO#")]) == "#P_XO#"


def test_without_a_template_a_conversation_has_named_speakers(word_tokenizer):
    chat = ChatFormat(word_tokenizer)
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


def test_a_turn_is_ended_behind_a_reply_that_a_stop_string_ended(chat_tokenizer):
    chat = ChatFormat(chat_tokenizer)
    agent = SimpleNamespace(chat_format=chat, stop=("</action>",), stop_ids={chat.turn_end_id})
    for last, ended in ((5, chat.turn_end), (chat.turn_end_id, "")):
        asked = (Message("user", "a wall"),)
        text = Conversation(prefix_ids=(1, last))._render(agent, asked, get_form("react"))
        assert text.startswith(ended + "\n<|im_start|>user")
