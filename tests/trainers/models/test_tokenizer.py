from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.errors import ConfigError
from creditrl.trainers.models.tokenizer import SPECIAL_TOKENS, build_tokenizer

pytest.importorskip("transformers")

GRID = "######\n#_OPX#\n#√__S#\n#____#\n#____#\n######"


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


def test_a_grid_is_one_token_per_symbol_and_row_end(tokenizer):
    ids = encode(tokenizer, GRID)
    assert len(ids) == 36 + 5
    assert tokenizer.convert_ids_to_tokens(ids) == list(GRID)
    # Symbols that are letters stay apart from each other and from words.
    assert tokenizer.convert_ids_to_tokens(encode(tokenizer, "XPSOup")) == [*"XPSO", "up"]


def test_a_word_is_one_token_and_the_vocabulary_is_small(tokenizer):
    assert [len(encode(tokenizer, word)) for word in ("up", "down", "left", "right")] == [1] * 4
    # 4 special, 8 symbols, 14 letters, 4 words but "up" and "down" share letters.
    assert len(tokenizer) == 4 + len(set(GRID)) + len(set("updownleftright")) + 4
    assert len(tokenizer) <= 32


def test_a_rare_word_is_spelled_by_known_parts():
    tokenizer = build_tokenizer(["counter", "top", "countertops of the counter"], max_vocab=24)
    ids = encode(tokenizer, "countertop")
    assert tokenizer.decode(ids) == "countertop"
    assert len(ids) < len("countertop")


def test_a_code_is_spelled_but_words_beside_it_are_not():
    tokenizer = build_tokenizer(["click[b03417xi34]", "a mug 12 on desk 1234", "red12b"])
    for text in ("b03417xi34", "xi3", "7d1bd", "red12"):
        assert tokenizer.convert_ids_to_tokens(encode(tokenizer, text)) == list(text)
    pieces = tokenizer.convert_ids_to_tokens(encode(tokenizer, "click[b0] mug 12 on desk 1234"))
    assert pieces == ["click", *"[b0]", " mug", " 12", " on", " desk", " 123", "4"]


def test_special_tokens_have_ids_and_none_is_added(tokenizer):
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3]
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert tokenizer("up")["input_ids"] == encode(tokenizer, "up")
    assert encode(tokenizer, "é") == [3]  # one that was not seen is unknown
    assert tokenizer.decode([*encode(tokenizer, "up"), 2], skip_special_tokens=True) == "up"


@pytest.mark.parametrize("fallback", ["unk", "bytes"])
def test_a_saved_tokenizer_encodes_alike(tmp_path, fallback):
    from transformers import AutoTokenizer

    text = f"{GRID}\nWhat is  it 's goal? <action>push up</action> , desk 12 .\n\n"
    tokenizer = build_tokenizer([text], fallback=fallback)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert encode(loaded, text) == encode(tokenizer, text)
    assert loaded.decode(encode(loaded, text)) == text
    assert loaded.pad_token_id == 0 and loaded.eos_token_id == 2


SEEN = "The quick brown fox JUMPS over 13 lazy dogs,\n\tand it's <b>42</b> °C. √ 日本"
_SEEN_TOKENIZER = build_tokenizer([SEEN])
_BYTES_TOKENIZER = build_tokenizer(["a few words"], fallback="bytes")


@settings(max_examples=50)
@given(st.text(alphabet=sorted(set(SEEN)), max_size=60))
def test_text_of_seen_characters_decodes_to_itself(text):
    assert _SEEN_TOKENIZER.decode(encode(_SEEN_TOKENIZER, text)) == text


@settings(max_examples=50)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_with_bytes_any_text_decodes_to_itself(text):
    assert _BYTES_TOKENIZER.decode(encode(_BYTES_TOKENIZER, text)) == text


def test_the_vocabulary_stays_within_its_limit():
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghij"), size=6)) for _ in range(500)]
    tokenizer = build_tokenizer([" ".join(words)], max_vocab=100)
    assert len(tokenizer) == 100
    assert tokenizer.decode(encode(tokenizer, words[-1])) == words[-1]


def test_no_text_and_too_small_a_limit_are_refused():
    with pytest.raises(ConfigError, match="needs text"):
        build_tokenizer(["", ""])
    with pytest.raises(ConfigError, match="max_vocab is 100"):
        build_tokenizer(["a"], max_vocab=100, fallback="bytes")
