"""Tiny models and tokenizers made by the tests: nothing is downloaded."""

from __future__ import annotations

from typing import Any

import pytest
from byte_tokens import byte_tokenizer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SYMBOLS = [*"#_PXSO√\n", "up", "down", "left", "right"]


def make_word_tokenizer() -> Any:
    """One token per symbol of a Sokoban room and per action; 32 ids; no chat template."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {symbol: i for i, symbol in enumerate([*SYMBOLS, "<eos>", "<unk>", "<pad>"])}
    vocabulary |= {f"<extra{i}>": i for i in range(len(vocabulary), 32)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"up|down|left|right|.|\n"), "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>", pad_token="<pad>"
    )


def make_chat_tokenizer(template: str = CHATML) -> Any:
    """Bytes as tokens, with ChatML's special tokens and a chat template."""
    return byte_tokenizer(
        template,
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|im_start|>"],
    )


def make_model(vocabulary: int = 32, positions: int = 128, seed: int = 0, **changes: Any) -> Any:
    """A two-layer Qwen2 with weights wide enough that tokens have unequal probabilities."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        tie_word_embeddings=True,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **changes,
    )
    return Qwen2ForCausalLM(config).eval()


@pytest.fixture(scope="session")
def word_tokenizer() -> Any:
    return make_word_tokenizer()


@pytest.fixture(scope="session")
def chat_tokenizer() -> Any:
    return make_chat_tokenizer()


@pytest.fixture(scope="session")
def model() -> Any:
    """Shared; tests that change weights make a model of their own."""
    return make_model()


@pytest.fixture(scope="session")
def chat_model(chat_tokenizer: Any) -> Any:
    return make_model(vocabulary=len(chat_tokenizer), positions=4096)


@pytest.fixture(scope="session")
def model_maker() -> Any:
    return make_model


@pytest.fixture(scope="session")
def chat_tokenizer_maker() -> Any:
    return make_chat_tokenizer
