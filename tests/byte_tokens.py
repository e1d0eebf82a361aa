"""Tokenizers whose tokens are bytes, built by the tests: nothing is downloaded."""

from __future__ import annotations

from typing import Any


def byte_tokenizer(template: str | None = None, **names: Any) -> Any:
    """Return one with these special tokens (``eos_token="<end>"``) and this chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    fast.chat_template = template
    return fast
