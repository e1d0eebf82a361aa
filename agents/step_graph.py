"""A decoding step that is recorded once and repeated as one call: a CUDA graph.

On a GPU a small model's step is some hundred kernels, and calling them one after the other takes
several times longer than running them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from creditrl.agents.step_cache import RowCache

if TYPE_CHECKING:
    import torch

__all__ = ["RecordedStep"]


class RecordedStep:
    """A step of the rows of a cache, valid until other rows are chosen.

    Args:
        compute: returns logits [R, V] of tokens and positions, and adds them to the cache; it must
            not wait for the device.
        cache: where the step begins; it is recorded, not taken.
        token_R: tokens of the kind to expect.
        position_R: their positions.
    """

    def __init__(
        self,
        compute: Callable[[torch.Tensor, torch.Tensor, RowCache], torch.Tensor],
        cache: RowCache,
        token_R: torch.Tensor,
        position_R: torch.Tensor,
    ) -> None:
        import torch

        self._token_R, self._position_R = token_R.clone(), position_R.clone()
        self._place_1 = torch.tensor([cache.length], device=token_R.device)

        def step() -> torch.Tensor:
            cache.place_at(self._place_1)
            try:
                return compute(self._token_R, self._position_R, cache)
            finally:
                cache.place_at(None)

        self._step = step
        self._graph: torch.cuda.CUDAGraph | None = None
        if token_R.device.type == "cuda":
            self._capture()

    def _capture(self) -> None:
        import torch

        graph = torch.cuda.CUDAGraph()
        here = torch.cuda.current_stream()
        aside = _stream(here.device, threading.get_ident())
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            self._step()  # loads kernels; the first repetition writes the same again
            # Another thread may be training.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                self._logits_RV = self._step()
            finally:
                graph.capture_end()
        here.wait_stream(aside)
        self._graph = graph

    def repeat(
        self, token_R: torch.Tensor, position_R: torch.Tensor, cache: RowCache
    ) -> torch.Tensor:
        """Return the logits after one more token of each row; the next call overwrites them."""
        self._token_R.copy_(token_R)
        self._position_R.copy_(position_R)
        self._place_1.fill_(cache.length)
        cache.length += 1
        if self._graph is None:  # elsewhere than on a GPU each repetition computes
            return self._step()
        self._graph.replay()
        return self._logits_RV


@functools.cache
def _stream(device: torch.device, thread: int) -> torch.cuda.Stream:
    """Return a thread's stream to record on: each holds some memory for matrix products."""
    import torch

    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
