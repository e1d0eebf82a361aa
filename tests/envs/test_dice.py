"""Draws of the generators: from raw words alone, so that they are equal on every machine."""

from __future__ import annotations

from collections import Counter

import numpy as np

from creditrl.envs.dice import Dice, SeedFamily


def dice(seed: int = 0) -> Dice:
    return Dice(np.random.Generator(np.random.PCG64(seed)))


def test_a_draw_scales_the_low_half_of_a_word_taking_the_last_word_first():
    words = np.random.PCG64(5).random_raw(64).tolist()
    drawn = dice(5)
    assert [drawn.below(10) for _ in range(3)] == [
        (word & 0xFFFFFFFF) * 10 // 2**32 for word in words[:-4:-1]
    ]


def test_draws_cover_exactly_their_range():
    drawn = dice()
    assert {drawn.below(3) for _ in range(200)} == {0, 1, 2}
    assert {drawn.between(-1, 1) for _ in range(200)} == {-1, 0, 1}
    assert {drawn.pick("abc") for _ in range(200)} == set("abc")


def test_chance_is_true_with_the_given_probability():
    drawn = dice()
    assert not any(drawn.chance(0.0) for _ in range(500))
    assert all(drawn.chance(1.0) for _ in range(500))
    assert 200 < sum(drawn.chance(0.25) for _ in range(1000)) < 300


def test_a_sample_has_no_duplicates_and_every_order():
    drawn = dice()
    samples = Counter(tuple(drawn.sample([1, 2, 3], 2)) for _ in range(600))
    assert set(samples) == {(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)}
    assert min(samples.values()) > 60


def test_a_seed_family_seeds_like_numpys_seed_sequence():
    for entropy in ((2**63 + 5, 2**40), (1, 2, 3, 2**70)):
        family = SeedFamily(entropy)
        for i in (0, 1, 99_999, 2**32 - 1):
            expected = np.random.PCG64(np.random.SeedSequence((*entropy, i)))
            assert family.generator(i).bit_generator.state == expected.state
