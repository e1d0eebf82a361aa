"""Five families' chat templates, by their documented formats: prompts, stop tokens, masks.

The templates are written here from those formats; vocabularies are bytes and the family's special
tokens.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from byte_tokens import byte_tokenizer
from toy_env import ToyVectorEnv

from creditrl.agents import get_form, run_episodes
from creditrl.agents.chat_format import ChatFormat
from creditrl.agents.transformers import TransformersAgent
from creditrl.envs.prompt import Message
from creditrl.trainers.batch import build_rows
from creditrl.types import Reply

CHATML_TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
CHATML_END = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


@dataclasses.dataclass(frozen=True)
class Family:
    template: str
    special: tuple[str, ...]
    end: str
    """Ends a reply."""
    first: str
    """A prompt of one message, "Hi."."""
    more: str
    """What follows a reply that ended, with the next message "Go on."."""
    bos: str | None = None
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)


QWEN25 = Family(
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are Qwen, created by Alibaba "
    "Cloud. You are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for m in messages %}" + CHATML_TURN + "{% endfor %}" + CHATML_END,
    ("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    "<|im_end|>",
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n",
    "\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n",
)
# Thoughts of turns before the last question are left out, and "no thinking" is an empty thought.
QWEN3 = Family(
    "{% set last = messages | map(attribute='role') | list %}"
    "{% for m in messages %}{% if m.role == 'assistant' and loop.index < last | length %}"
    "<|im_start|>assistant\n{{ m.content.split('</think>')[-1].lstrip('\n') }}<|im_end|>\n"
    "{% else %}" + CHATML_TURN + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}",
    ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>"),
    "<|im_end|>",
    "<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n",
    "\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n",
)
QWEN3_QUIET = dataclasses.replace(
    QWEN3,
    first=QWEN3.first + "<think>\n\n</think>\n\n",
    more=QWEN3.more + "<think>\n\n</think>\n\n",
    kwargs={"enable_thinking": False},
)
LLAMA3 = Family(
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "<|eot_id|>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi.<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "<|start_header_id|>user<|end_header_id|>\n\nGo on.<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    bos="<|begin_of_text|>",
)
GEMMA = Family(
    "{{ bos_token }}{% if messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}<start_of_turn>"
    "{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    ("<bos>", "<start_of_turn>", "<end_of_turn>", "<eos>"),
    "<end_of_turn>",
    "<bos><start_of_turn>user\nHi.<end_of_turn>\n<start_of_turn>model\n",
    "\n<start_of_turn>user\nGo on.<end_of_turn>\n<start_of_turn>model\n",
    bos="<bos>",
)
MISTRAL = Family(
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
    ("<s>", "</s>", "[INST]", "[/INST]"),
    "</s>",
    "<s>[INST] Hi.[/INST]",
    "[INST] Go on.[/INST]",
    bos="<s>",
)
FAMILIES = {
    "qwen2.5": QWEN25,
    "qwen3": QWEN3,
    "qwen3, no thinking": QWEN3_QUIET,
    "llama3": LLAMA3,
    "gemma": GEMMA,
    "mistral": MISTRAL,
}


def tokenizer_of(family: Family) -> Any:
    return byte_tokenizer(
        family.template,
        eos_token=family.special[-1] if family.end == "<end_of_turn>" else family.end,
        bos_token=family.bos,
        additional_special_tokens=list(family.special),
    )


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


def test_prompts_are_written_as_the_family_documents_them(family: Family):
    chat = ChatFormat(tokenizer_of(family), template_kwargs=family.kwargs)
    assert chat.first([Message("user", "Hi.")]) == family.first
    assert chat.turn_end == family.end
    assert chat.more([Message("user", "Go on.")], True) == family.more
    # A reply that was cut has no end of its own: it is written for it.
    assert chat.more([Message("user", "Go on.")], False) == family.end + family.more


# That of Qwen3 without thinking leaves out the empty thoughts of earlier turns.
@pytest.mark.parametrize("name", [name for name in FAMILIES if FAMILIES[name] is not QWEN3_QUIET])
def test_a_conversation_of_tokens_is_the_templates_own_rendering(name: str):
    family = FAMILIES[name]
    tokenizer = tokenizer_of(family)
    chat = ChatFormat(tokenizer, template_kwargs=family.kwargs)
    talk = [Message("user", "Hi.")]
    ids = tokenizer(chat.first(talk), add_special_tokens=False)["input_ids"]
    for number in range(3):
        said, seen = f"reply {number}", f"seen {number}"
        gap = " " if family is MISTRAL else ""  # which its replies begin with
        ids += tokenizer(gap + said + family.end, add_special_tokens=False)["input_ids"]
        more = chat.more([Message("user", seen)], True)
        ids += tokenizer(more, add_special_tokens=False)["input_ids"]
        talk += [Message("assistant", said), Message("user", seen)]
        whole = tokenizer.apply_chat_template(
            [dataclasses.asdict(m) for m in talk],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **family.kwargs,
        )
        assert ids == whole


def test_thoughts_that_were_sampled_stay_and_prompts_with_a_window_have_none():
    tokenizer = tokenizer_of(QWEN3)
    chat = ChatFormat(tokenizer)
    # Rendered again, the thought of an earlier turn is left out, as the model card says.
    again = chat.first(
        [
            Message("user", "Hi."),
            Message("assistant", "<think>\nhm\n</think>\n\nleft"),
            Message("user", "A wall."),
        ]
    )
    assert "hm" not in again and "left<|im_end|>" in again
    # Of a conversation that only grows, what was sampled is what is read.
    ids = tokenizer("<think>\nhm\n</think>\n\nleft<|im_end|>", add_special_tokens=False)
    reply = Reply("left", token_ids=tuple(ids["input_ids"]))
    more = chat.more([Message("user", "A wall.")], True)
    assert tokenizer.decode(reply.token_ids) + more == (
        "<think>\nhm\n</think>\n\nleft<|im_end|>\n<|im_start|>user\nA wall.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def trained_text(rows: Any, tokenizer: Any) -> list[str]:
    """Return what each turn's tokens of the loss are, read where the rows predict them."""
    told: dict[int, list[int]] = {}
    for row, position, token, turn in zip(
        rows.row_M, rows.position_M, rows.token_M, rows.turn_M, strict=True
    ):
        begin, end = rows.offset_R[row], rows.offset_R[row + 1]
        at = begin + position + 1  # logits at a position predict the next token
        read = int(rows.ids[at]) if at < end else int(token)  # a row's last token is not an input
        told.setdefault(int(turn), []).append(read)
    return [tokenizer.decode(ids) for _, ids in sorted(told.items())]


@pytest.mark.parametrize("shift", [0, -1, 1])
def test_the_loss_covers_replies_alone(family: Family, model_maker: Any, shift: int):
    tokenizer = tokenizer_of(family)

    class Scripted(TransformersAgent):
        """Says what a model of the family would, with tokens of its own."""

        def act(self, prompts: Any) -> list[Reply]:
            replies = []
            for reply, prompt in zip(super().act(prompts), prompts, strict=True):
                text = f"Thought: turn {prompt.turn}\nAction: right"
                ids = tokenizer(text + family.end, add_special_tokens=False)["input_ids"]
                replies.append(Reply(text, reply.prompt_ids, tuple(ids), (0.0,) * len(ids)))
            return replies

    model = model_maker(vocabulary=len(tokenizer), positions=4096)
    chat = ChatFormat(tokenizer, template_kwargs=family.kwargs)
    agent = Scripted(model, tokenizer, max_new_tokens=2, chat_format=chat)
    played = run_episodes(ToyVectorEnv(2, max_turns=3), agent, get_form("react"), seed=0)
    rows = build_rows(played, merge_equal=False)
    assert rows.joined_episodes == 2  # one row an episode, replies between observations
    rows = dataclasses.replace(rows, position_M=np.maximum(rows.position_M + shift, 0))
    said = [turn.reply + family.end for t in played for turn in t.turns]
    found = trained_text(rows, tokenizer)
    # An off-by-one, planted here, is what this test would see of one in the code.
    assert (found == said) is (shift == 0)
