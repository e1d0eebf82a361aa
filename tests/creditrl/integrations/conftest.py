"""A tokenizer of single bytes and a model of it, made on the spot: nothing is downloaded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def byte_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|im_start|>", "<|im_end|>", "<pad>"])
    made.add_tokens(["<tool_call>", "</tool_call>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<pad>"
    )
    tokenizer.chat_template = CHATML
    return tokenizer


@pytest.fixture
def small_model(byte_tokenizer: Any, tmp_path: Path) -> Path:
    """A folder with a Qwen3 of 16 dimensions, random, and the tokenizer; it calls tools."""
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl.chat_template_utils import qwen3_chat_template

    folder = tmp_path / "model"
    byte_tokenizer.chat_template = qwen3_chat_template
    byte_tokenizer.save_pretrained(folder)
    shape = {"hidden_size": 16, "intermediate_size": 16, "head_dim": 16}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
    config = Qwen3Config(
        vocab_size=len(byte_tokenizer), **shape, **heads, eos_token_id=byte_tokenizer.eos_token_id
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def run_example(tmp_path: Path) -> Callable[..., str]:
    """Run a script of ``examples/`` as a user does, offline, and return what it prints."""

    def run(name: str, *words: str) -> str:
        script = Path(__file__).parents[3] / "examples" / name
        done = subprocess.run(
            [sys.executable, str(script), *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
