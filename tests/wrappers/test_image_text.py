"""ImageText: placeholder and array."""

from __future__ import annotations

import numpy as np
import pytest
from toy_env import ToyEnv

from creditrl.errors import ConfigError
from creditrl.wrappers import ImageText


def test_the_text_gets_a_placeholder_and_the_image_stays():
    env = ImageText(ToyEnv(images=True))
    bare, _ = ToyEnv(images=True).reset(seed=0)
    shown, _ = env.reset(seed=0)
    assert shown["text"] == "<image>\n" + bare["text"]
    np.testing.assert_array_equal(shown["image"], bare["image"])
    assert shown in env.observation_space


def test_an_image_alone_gets_the_placeholder_as_its_text():
    env = ImageText(ToyEnv(images=True, text=False), placeholder="<|image_pad|>")
    shown, _ = env.reset(seed=0)
    assert shown["text"] == "<|image_pad|>" and shown in env.observation_space


def test_resizing_takes_the_nearest_pixel():
    image = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(2, 2, 3)
    from creditrl.wrappers.image_text import _resized

    np.testing.assert_array_equal(
        _resized(image[None], (4, 6))[0], image.repeat(2, axis=0).repeat(3, axis=1)
    )
    np.testing.assert_array_equal(_resized(image[None], (1, 1))[0], image[1:, 1:])


def test_invalid_settings_are_named():
    with pytest.raises(ConfigError, match="height, width"):
        ImageText(ToyEnv(images=True), size=(0, 4))
    with pytest.raises(ConfigError, match="placeholder"):
        ImageText(ToyEnv(images=True), placeholder="")
