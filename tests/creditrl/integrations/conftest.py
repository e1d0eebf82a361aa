"""A byte tokenizer and a model for it, made by the tests: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import byte_tokens
import pytest
from programs import by_python

from creditrl.integrations import Play

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(params=["ALFWorld", "SOTOPIA", "VirtualHome", "VisualSokoban", "WebShop"])
def env(request) -> Any:
    """Each environment in turn."""
    return request.param


@pytest.fixture
def experts() -> Callable[[Play], list[str]]:
    """Return a function that finishes a started episode and returns the expert's replies."""

    def play_on(play: Play) -> list[str]:
        replies: list[str] = []
        while not play.over:
            replies.append(play.form.reply(play.env.expert_action() or "nothing"))
            play.reply(replies[-1])
        return replies

    return play_on


@pytest.fixture
def byte_tokenizer() -> Any:
    made = byte_tokens.byte_tokenizer(
        CHATML,
        eos_token="<|im_end|>",
        pad_token="<pad>",
        additional_special_tokens=["<|im_start|>"],
    )
    made.add_tokens(["<tool_call>", "</tool_call>"])
    return made


@pytest.fixture
def shape(byte_tokenizer) -> Any:
    """The shape of a Qwen3 of 16 dimensions that knows the tokenizer's tokens."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=len(byte_tokenizer),
        **{"hidden_size": 16, "intermediate_size": 16, "head_dim": 16},
        **{"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1},
        eos_token_id=byte_tokenizer.eos_token_id,
    )


@pytest.fixture
def small_model(byte_tokenizer, shape, tmp_path) -> Path:
    """A folder with a random Qwen3 and the tokenizer; it calls tools."""
    from transformers import Qwen3ForCausalLM
    from trl.chat_template_utils import qwen3_chat_template

    folder = tmp_path / "model"
    byte_tokenizer.chat_template = qwen3_chat_template
    byte_tokenizer.save_pretrained(folder)
    Qwen3ForCausalLM(shape).save_pretrained(folder)
    return folder


@pytest.fixture
def run_example(tmp_path) -> Callable[..., str]:
    """Run a script of ``examples/`` as a user does, offline, and return what it prints."""

    def run(name: str, *words: str) -> str:
        script = Path(__file__).parents[3] / "examples" / name
        done = by_python(script, *words, cwd=tmp_path, env={"HF_HUB_OFFLINE": "1"})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
