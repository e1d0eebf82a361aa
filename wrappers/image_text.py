"""Image and text for multimodal models: a placeholder in the text, an array for the processor."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Space
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from creditrl.envs.spaces import UnicodeText
from creditrl.errors import ConfigError, WrapperError
from creditrl.types import IntArray
from creditrl.wrappers.base import TextWrapper, VectorTextWrapper, below, text_space

__all__ = ["ImageText", "VectorImageText"]


class ImageText(TextWrapper):
    """Show ``{"text": with a placeholder, "image": uint8 array}``.

    Takes observations with an image beside text, or of an image alone. A text that has the
    placeholder already (a prompt form that places the image itself) stays as it is.

    Args:
        env: the environment.
        size: (height, width) to resize to, by nearest neighbour; None keeps the image's own.
        placeholder: what marks the image in the text, as the model's processor wants it.

    Raises:
        WrapperError: observations have no image, or the text is chat messages already.
        ConfigError: a setting is out of range.
    """

    kind: ClassVar[str] = "ImageText"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        size: tuple[int, int] | None = None,
        placeholder: str = "<image>",
    ) -> None:
        space = _space(env, env.observation_space, size, placeholder)
        super().__init__(env, size=size, placeholder=placeholder)
        self.size = size
        self.placeholder = placeholder
        self.observation_space = space

    def present(self, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return text with placeholder and image."""
        text, image = _parts(observation)
        shown = {
            "text": _marked(text, self.placeholder),
            "image": _resized(image[None], self.size)[0],
        }
        return shown, info


class VectorImageText(VectorTextWrapper):
    """Show texts with placeholders and images [num_envs, H, W, 3]; see :class:`ImageText`."""

    kind: ClassVar[str] = "ImageText"

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        size: tuple[int, int] | None = None,
        placeholder: str = "<image>",
    ) -> None:
        space = _space(env, env.single_observation_space, size, placeholder)
        super().__init__(env, size=size, placeholder=placeholder)
        self.size = size
        self.placeholder = placeholder
        self._batch_spaces(observation=space)

    def _present(
        self, index_K: IntArray, observation: Any, info: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        text, image = _parts(observation)
        texts = text if isinstance(text, tuple) else ("",) * len(image)
        shown = {
            "text": tuple(_marked(one, self.placeholder) for one in texts),
            "image": _resized(image, self.size),
        }
        return shown, info


def _parts(observation: Any) -> tuple[Any, NDArray[np.uint8]]:
    if isinstance(observation, dict):
        return observation["text"], observation["image"]
    return "", observation


def _marked(text: str, placeholder: str) -> str:
    if placeholder in text:
        return text
    return f"{placeholder}\n{text}" if text else placeholder


def _resized(image_KHWC: NDArray[np.uint8], size: tuple[int, int] | None) -> NDArray[np.uint8]:
    """Return images of another size by nearest neighbour; tiles stay sharp."""
    height, width = image_KHWC.shape[1:3]
    if size is None or size == (height, width):
        return image_KHWC
    # The source pixel under the middle of each new one.
    row = ((np.arange(size[0]) + 0.5) * height / size[0]).astype(np.int64)
    column = ((np.arange(size[1]) + 0.5) * width / size[1]).astype(np.int64)
    return image_KHWC[:, row[:, None], column[None, :]]


def _space(env: Any, inside: Space[Any], size: tuple[int, int] | None, placeholder: str) -> Dict:
    if not placeholder:
        raise ConfigError("ImageText(placeholder=''): expected the mark that the processor reads.")
    if size is not None and (len(size) != 2 or min(size) < 1):
        raise ConfigError(f"ImageText(size={size!r}): expected (height, width) in pixels.")
    for wrapper in below(env):
        if getattr(wrapper, "kind", "") == "ImageText":
            raise WrapperError("An ImageText stands inside already: an image is marked once.")
    if isinstance(inside, Dict) and "messages" in inside.spaces:
        raise WrapperError(
            "ImageText cannot mark chat messages. The order is History(ImageText(env))."
        )
    image = inside.spaces.get("image") if isinstance(inside, Dict) else inside
    if not isinstance(image, Box) or image.dtype != np.uint8 or len(image.shape) != 3:
        raise WrapperError(
            "ImageText needs observations with an image (e.g. observation='both' or 'image'); "
            f"found {inside}."
        )
    text = text_space(inside)
    length = 0 if text is None else text.max_length + 1  # type: ignore[attr-defined]
    shape = image.shape if size is None else (*size, image.shape[2])
    return Dict(
        text=UnicodeText(length + len(placeholder)), image=Box(0, 255, shape, dtype=np.uint8)
    )
