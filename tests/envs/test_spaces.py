"""UnicodeText: any Unicode text is a member, cheaply, and fits into shared memory."""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector.utils import (
    batch_space,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import given
from hypothesis import strategies as st

from creditrl.envs.spaces import UnicodeText, clean_text

any_text = st.text(st.characters(), max_size=50)  # lone surrogates included


@given(any_text)
def test_membership_depends_on_the_length_alone(text: str):
    assert text in UnicodeText(50)
    assert (text in UnicodeText(60, min_length=10)) == (len(text) >= 10)
    assert (text + "x" * 51) not in UnicodeText(50)
    assert np.str_(text) in UnicodeText(50)
    assert text.encode("utf-8", "replace") not in UnicodeText(50) and None not in UnicodeText(50)


def test_samples_are_short_members_and_reproducible():
    space = UnicodeText(4000, min_length=3)
    space.seed(1)
    first = [space.sample() for _ in range(50)]
    space.seed(1)
    assert first == [space.sample() for _ in range(50)]
    assert all(text in space and len(text) <= 64 for text in first)
    assert all(len(UnicodeText(100, min_length=90).sample()) >= 90 for _ in range(5))
    assert UnicodeText(0).sample() == ""


def test_equality_is_by_bounds_and_survives_copies():
    space = UnicodeText(9, min_length=2)
    assert repr(UnicodeText(4096)) == "UnicodeText(0, 4096)"
    assert UnicodeText(5) == UnicodeText(5) and hash(UnicodeText(5)) == hash(UnicodeText(5))
    assert UnicodeText(5) != UnicodeText(6) and UnicodeText(5) != gym.spaces.Text(5)
    assert pickle.loads(pickle.dumps(space)) == copy.deepcopy(space) == space
    assert batch_space(space, 3) == gym.spaces.Tuple([space] * 3)


@given(st.lists(any_text, min_size=3, max_size=3))
def test_shared_memory_gives_back_what_was_written(texts: list[str]):
    space = UnicodeText(50)
    memory = create_shared_memory(space, n=3)
    for i, text in enumerate(texts):
        write_to_shared_memory(space, i, text, memory)
    assert read_from_shared_memory(space, memory, n=3) == tuple(clean_text(t) for t in texts)
    write_to_shared_memory(space, 1, "", memory)  # nothing is left of the longer text
    write_to_shared_memory(space, 2, "\U0001f600" * 99, memory)  # too long a text is truncated
    assert read_from_shared_memory(space, memory, n=3)[1:] == ("", "\U0001f600" * 50)


@given(any_text)
def test_clean_text_can_be_encoded_and_keeps_everything_else(text: str):
    cleaned = clean_text(text)
    cleaned.encode("utf-8")
    assert len(cleaned) == len(text)
    assert all(
        new == old or "\ud800" <= old <= "\udfff" for new, old in zip(cleaned, text, strict=True)
    )


def test_masked_sampling_is_left_to_gymnasium():
    space = UnicodeText(5)
    mask = np.zeros(len(space.character_list), dtype=np.int8)
    mask[0] = 1
    assert space.sample(mask=(4, mask)) == space.character_list[0] * 4
    with pytest.raises((ValueError, AssertionError)):
        space.sample(mask=(9, mask))


@given(any_text)
def test_the_flat_form_gives_back_what_was_flattened(text: str):
    space = UnicodeText(50)
    flat = gym.spaces.flatten(space, text)
    assert flat in gym.spaces.flatten_space(space) and gym.spaces.flatdim(space) == 50
    assert gym.spaces.unflatten(space, flat) == clean_text(text)
