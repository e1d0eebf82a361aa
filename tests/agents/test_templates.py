"""Five families' chat templates, by their documented formats: prompts, stop tokens, masks.

The templates are written here from those formats; vocabularies are bytes and the family's special
tokens.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import numpy as np
import pytest
from byte_tokens import byte_tokenizer
from toy_env import ToyVectorEnv

from creditrl.agents import get_form, run_episodes
from creditrl.agents.chat_format import ChatFormat
from creditrl.agents.parse import call_id_of
from creditrl.agents.prompts.tools import ACT_TOOL
from creditrl.agents.rollout import Recording
from creditrl.agents.token_text import TokenText
from creditrl.agents.transformers import TransformersAgent
from creditrl.envs.prompt import Message, Parsed
from creditrl.trainers.batch import build_rows
from creditrl.trainers.collect.demonstrations import Demonstrator
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


# -- with functions -------------------------------------------------------------------------------

_SIGNATURES = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
    "provided with function signatures within <tools></tools> XML tags:\n<tools>"
    "{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools>\n\nFor each function call, "
    "return a json object with function name and arguments within <tool_call></tool_call> XML "
    'tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    "<|im_end|>\n"
)
_CALLS = (
    "<|im_start|>assistant{% if m.content %}\n{{ m.content }}{% endif %}{% for c in m.tool_calls %}"
    '\n<tool_call>\n{"name": "{{ c.function.name }}", "arguments": '
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n"
)
_RESULTS = (
    "{% if messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "\n<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
)
_QWEN_BODY = (
    "{% for m in messages %}{% if m.role == 'tool' %}" + _RESULTS + "{% elif m.tool_calls %}"
    "" + _CALLS + "{% else %}" + CHATML_TURN + "{% endif %}{% endfor %}" + CHATML_END
)


@dataclasses.dataclass(frozen=True)
class Caller:
    """A family as it writes calls of functions."""

    family: Family
    listed: str
    """Where the first prompt lists the functions; ``...`` stands for their JSON."""
    call: str
    """A reply that calls ``act`` with an action, ``%s``."""
    result: str
    """What follows such a reply where the call returns "A wall."."""
    knows_tools: bool = True


def _with(family: Family, template: str, *special: str) -> Family:
    # Jinja leaves out the end of a line behind a block.
    template = template.replace("%}\n", "%}{{ '\\n' }}")
    return dataclasses.replace(family, template=template, special=(*family.special, *special))


_QWEN_CALL = '<tool_call>\n{"name": "act", "arguments": {"action": "%s"}}\n</tool_call>'
_QWEN_RESULT = (
    "\n<|im_start|>user\n<tool_response>\nA wall.\n</tool_response><|im_end|>\n"
    "<|im_start|>assistant\n"
)
_QWEN_LISTED = "signatures within <tools></tools> XML tags:\n<tools>\n...\n</tools>"
CALLERS = {
    "qwen2.5": Caller(
        _with(
            QWEN25,
            "{% if tools %}<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a "
            "helpful assistant.\n\n" + _SIGNATURES + "{% endif %}" + _QWEN_BODY,
        ),
        _QWEN_LISTED,
        _QWEN_CALL,
        _QWEN_RESULT,
    ),
    "qwen3": Caller(
        _with(
            QWEN3, "{% if tools %}<|im_start|>system\n" + _SIGNATURES + "{% endif %}" + _QWEN_BODY
        ),
        _QWEN_LISTED,
        _QWEN_CALL,
        _QWEN_RESULT,
    ),
    # Strings are written as JSON, quotes and all: they are iterable.
    "llama3.2": Caller(
        _with(
            LLAMA3,
            "{{ bos_token }}<|start_header_id|>system<|end_header_id|>\n\n"
            "{% if tools %}Environment: ipython\n{% endif %}Cutting Knowledge Date: December 2023\n"
            "Today Date: 26 Jul 2024\n\n<|eot_id|>{% for m in messages %}"
            "{% if m.tool_calls %}<|start_header_id|>assistant<|end_header_id|>\n\n"
            "{% set c = m.tool_calls[0].function %}"
            '{"name": "{{ c.name }}", "parameters": {{ c.arguments | tojson }}}<|eot_id|>'
            "{% elif m.role == 'tool' %}<|start_header_id|>ipython<|end_header_id|>\n\n"
            "{{ m.content | tojson }}<|eot_id|>"
            "{% elif tools and loop.first %}<|start_header_id|>user<|end_header_id|>\n\n"
            "Given the following functions, please respond with a JSON for a function call with "
            "its proper arguments that best answers the given prompt.\n\n"
            'Respond in the format {"name": function name, "parameters": dictionary of argument '
            "name and its value}.Do not use variables.\n\n"
            "{% for t in tools %}{{ t | tojson }}\n\n{% endfor %}{{ m.content | trim }}<|eot_id|>"
            "{% else %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
            "{{ m.content | trim }}<|eot_id|>{% endif %}{% endfor %}{% if add_generation_prompt %}"
            "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        ),
        "Do not use variables.\n\n...\n\n",
        '{"name": "act", "parameters": {"action": "%s"}}',
        '<|start_header_id|>ipython<|end_header_id|>\n\n"A wall."<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    # Roles other than these two, and out of turn, are an error.
    "gemma": Caller(
        _with(
            GEMMA,
            "{{ bos_token }}{% for m in messages %}"
            "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception("
            "'Conversation roles must alternate user/assistant') }}{% endif %}<start_of_turn>"
            "{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}"
            "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n"
            "{% endif %}",
        ),
        "<start_of_turn>user\nYou can call these functions:\n",
        '{"name": "act", "parameters": {"action": "%s"}}',
        "\n<start_of_turn>user\nA wall.<end_of_turn>\n<start_of_turn>model\n",
        knows_tools=False,
    ),
    # The functions stand before the last question; a result names the call that it is of.
    "mistral": Caller(
        _with(
            MISTRAL,
            "{% set asked = messages | selectattr('role', 'equalto', 'user') | list %}"
            "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
            "{% if tools and m == asked[-1] %}[AVAILABLE_TOOLS] {{ tools | tojson }}"
            "[/AVAILABLE_TOOLS]{% endif %}[INST] {{ m.content }}[/INST]"
            "{% elif m.tool_calls %}[TOOL_CALLS] [{% set c = m.tool_calls[0] %}"
            '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, '
            '"id": "{{ c.id }}"}]{{ eos_token }}'
            "{% elif m.role == 'tool' %}"
            "{% if m.tool_call_id is not defined or m.tool_call_id | length != 9 %}"
            "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}"
            '{% endif %}[TOOL_RESULTS] {"content": {{ m.content | string }}, '
            '"call_id": "{{ m.tool_call_id }}"}[/TOOL_RESULTS]'
            "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
            *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
            *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        ),
        "<s>[AVAILABLE_TOOLS] [...][/AVAILABLE_TOOLS][INST] ",
        '[TOOL_CALLS] [{"name": "act", "arguments": {"action": "%s"}, "id": "q7R2abcd9"}]',
        '[TOOL_RESULTS] {"content": A wall., "call_id": "q7R2abcd9"}[/TOOL_RESULTS]',
    ),
}


_NEW_CALL = "{{ c.function.name }}%s[ARGS]{{ c.function.arguments | tojson }}"
_NEW_RESULT = "%s{{ m.content }}[/TOOL_RESULTS]"


def _newer_mistral(call_id: str, result_id: str, *special: str) -> Family:
    """Return the family as version 11 of its tokenizer (which names calls) and later ones write."""
    return _with(
        MISTRAL,
        "{{ bos_token }}{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]"
        "{% endif %}{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]"
        "{% elif m.role == 'tool' %}[TOOL_RESULTS]" + _NEW_RESULT % result_id + "{% else %}"
        "{{ m.content }}{% for c in m.tool_calls or [] %}[TOOL_CALLS]" + _NEW_CALL % call_id + ""
        "{% endfor %}{{ eos_token }}{% endif %}{% endfor %}",
        *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[ARGS]"),
        *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", *special),
    )


CALLERS |= {
    "mistral, version 11": Caller(
        _newer_mistral(
            *("[CALL_ID]{{ c.id }}", "{{ m.tool_call_id }}[TOOL_CONTENT]"),
            *("[CALL_ID]", "[TOOL_CONTENT]"),
        ),
        "<s>[AVAILABLE_TOOLS][...][/AVAILABLE_TOOLS][INST]",
        '[TOOL_CALLS]act[CALL_ID]q7R2abcd9[ARGS]{"action": "%s"}',
        "[TOOL_RESULTS]q7R2abcd9[TOOL_CONTENT]A wall.[/TOOL_RESULTS]",
    ),
    "mistral, version 13": Caller(
        _newer_mistral("", ""),
        "<s>[AVAILABLE_TOOLS][...][/AVAILABLE_TOOLS][INST]",
        '[TOOL_CALLS]act[ARGS]{"action": "%s"}',
        "[TOOL_RESULTS]A wall.[/TOOL_RESULTS]",
    ),
}


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest) -> Caller:
    return CALLERS[request.param]


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


def test_functions_are_listed_and_results_written_as_the_family_documents_them(caller: Caller):
    chat = ChatFormat(tokenizer_of(caller.family))
    first = chat.first([Message("user", "Hi.")], [ACT_TOOL])
    assert caller.listed.replace("...", json.dumps(ACT_TOOL)) in first and "Hi." in first
    result = Message("tool", "A wall.", "q7R2abcd9")
    assert chat.more([result], True, [ACT_TOOL]) == caller.result
    # A call that was cut has no end of its own: it is written for it.
    assert chat.more([result], False, [ACT_TOOL]) == caller.family.end + caller.result


def test_a_conversation_of_calls_is_the_templates_own_rendering(caller: Caller):
    tokenizer = tokenizer_of(caller.family)
    chat = ChatFormat(tokenizer)
    ids = tokenizer(chat.first([Message("user", "Hi.")], [ACT_TOOL]), add_special_tokens=False)
    ids = list(ids["input_ids"])
    if caller.knows_tools:
        talk: list[dict[str, Any]] = [{"role": "user", "content": "Hi."}]
    else:
        text = chat.first([Message("user", "Hi.")], [ACT_TOOL]).partition("user\n")[2]
        talk = [{"role": "user", "content": text.partition(caller.family.end)[0]}]
    for action in ("up", "down", "left"):
        reply = caller.call % action
        ids += tokenizer(reply + caller.family.end, add_special_tokens=False)["input_ids"]
        result = Message("tool", f"seen {action}", call_id_of(reply))
        more = chat.more([result], True, [ACT_TOOL])
        ids += tokenizer(more, add_special_tokens=False)["input_ids"]
        function = {"name": "act", "arguments": {"action": action}}
        call = {"type": "function", "id": "q7R2abcd9", "function": function}
        if caller.knows_tools:
            talk.append({"role": "assistant", "content": "", "tool_calls": [call]})
            talk.append({"role": "tool", "content": result.content, "tool_call_id": "q7R2abcd9"})
        else:
            talk.append({"role": "assistant", "content": reply})
            talk.append({"role": "user", "content": result.content})
        whole = tokenizer.apply_chat_template(
            talk,
            tools=[dict(ACT_TOOL)] if caller.knows_tools else None,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
        assert ids == whole


def test_calls_are_read_as_the_family_writes_them(caller: Caller):
    for marks in (r"\[TOOL_CALLS\]", r"\[[A-Z_]+\]", "none"):  # special tokens may be left out
        parsed = get_form("tool_chat").parse(re.sub(marks, "", caller.call) % "go up")
        assert (parsed.action, parsed.valid_format) == ("go up", True)


def test_the_first_of_several_calls_counts_and_a_damaged_one_is_none(caller: Caller):
    form, call = get_form("tool_chat"), caller.call % "go up"
    several = [call + caller.call % "go down"]
    if call.endswith("}]"):
        several.append(f"{call[:-1]}, {{{(caller.call % 'go down').partition('{')[2]}")
    for text in several:
        assert form.parse(text) == Parsed("go up", True, "")
    for damaged in (call.replace('":', '"'), call[: call.index("go up") + 2]):
        assert form.parse(damaged) == Parsed(damaged, False, "")


def test_demonstrations_are_calls_as_the_template_renders_them(caller: Caller):
    tokenizer = tokenizer_of(caller.family)
    form, chat = get_form("tool_chat"), ChatFormat(tokenizer)
    actions = ['say "a\\b"', "say <é>", "right", "right"]
    venv = ToyVectorEnv(1, max_turns=len(actions))
    played = iter(actions)
    venv.expert_actions = lambda _: [next(played)]
    expert = Demonstrator(venv, form, tokenizer, chat, 400)
    (episode,) = run_episodes(venv, expert, form, seed=0, record=Recording(prompts=True))
    assert len(episode.turns) > 2
    talk: list[dict[str, Any]] = []
    for turn, action in zip(episode.turns, actions, strict=False):
        for message in turn.messages:
            one = {**message, "tool_call_id": "000000000"}
            if not caller.knows_tools:
                one["role"] = "user"
                if not talk:
                    told = chat.first([Message("user", "Hi.")], [ACT_TOOL]).partition("user\n")[2]
                    one["content"] = told.partition("Hi.")[0] + message["content"]
            talk.append(one)
        function = {"name": "act", "arguments": {"action": action}}
        call = {"type": "function", "id": "000000000", "function": function}
        said = {"role": "assistant", "content": f"The next step is: {action}."}
        if caller.knows_tools:
            talk.append({**said, "tool_calls": [call]})
        else:
            written = json.dumps({"name": "act", "parameters": {"action": action}})
            talk.append({**said, "content": f"{said['content']}\n{written}"})
        whole = tokenizer.apply_chat_template(
            talk,
            tools=[dict(ACT_TOOL)] if caller.knows_tools else None,
            tokenize=True,
            return_dict=False,
        )
        ids = turn.prompt_ids + turn.reply_ids
        assert list(ids) == whole[: len(ids)]
        assert form.parse(turn.reply).action == turn.action == action
        # What is sampled is read as what is taught.
        assert TokenText(tokenizer, [chat.reply_end_id]).texts([turn.reply_ids]) == [turn.reply]


def test_a_call_is_written_where_a_template_ends_its_prompts_with_an_empty_thought():
    family = CALLERS["qwen3"].family
    template = family.template + "{% if add_generation_prompt %}<think>\n\n</think>\n\n{% endif %}"
    quiet = ChatFormat(tokenizer_of(dataclasses.replace(family, template=template)))
    said = "The next step is: up.\n" + _QWEN_CALL % "up"
    assert quiet.reply(get_form("tool_chat"), "up") == said


def test_a_template_that_shows_no_calls_leaves_them_to_the_form():
    family = CALLERS["qwen2.5"].family
    for change in ("", "{{ raise_exception('no calls') }}"):
        template = family.template.replace(_CALLS.replace("%}\n", "%}{{ '\\n' }}"), change)
        assert template != family.template
        chat = ChatFormat(tokenizer_of(dataclasses.replace(family, template=template)))
        form = get_form("tool_chat")
        assert chat.reply(form, "up", "so") == form.reply("up", "so")


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
    check_the_loss(family, model_maker, shift, "react", "Thought: turn {}\nAction: right")


@pytest.mark.parametrize("shift", [0, -1, 1])
def test_the_loss_covers_calls_alone(caller: Caller, model_maker: Any, shift: int):
    call = caller.call.replace("{", "{{").replace("}", "}}")
    check_the_loss(caller.family, model_maker, shift, "tool_chat", "{}" + call % ("right",))


def check_the_loss(family: Family, model_maker: Any, shift: int, form: str, said: str) -> None:
    tokenizer = tokenizer_of(family)

    class Scripted(TransformersAgent):
        """Says what a model of the family would, with tokens of its own."""

        def act(self, prompts: Any) -> list[Reply]:
            replies = []
            for reply, prompt in zip(super().act(prompts), prompts, strict=True):
                text = said.format(prompt.turn)
                ids = tokenizer(text + family.end, add_special_tokens=False)["input_ids"]
                replies.append(Reply(text, reply.prompt_ids, tuple(ids), (0.0,) * len(ids)))
            return replies

    model = model_maker(vocabulary=len(tokenizer), positions=4096)
    chat = ChatFormat(tokenizer, template_kwargs=family.kwargs)
    agent = Scripted(model, tokenizer, max_new_tokens=2, chat_format=chat)
    played = run_episodes(ToyVectorEnv(2, max_turns=3), agent, get_form(form), seed=0)
    assert all(turn.action == "right" for t in played for turn in t.turns)
    rows = build_rows(played, merge_equal=False)
    assert rows.joined_episodes == 2  # one row an episode, replies between observations
    rows = dataclasses.replace(rows, position_M=np.maximum(rows.position_M + shift, 0))
    replies = [turn.reply + family.end for t in played for turn in t.turns]
    found = trained_text(rows, tokenizer)
    # An off-by-one, planted here, is what this test would see of one in the code.
    assert (found == replies) is (shift == 0)
