"""Lets a vLLM server on a CPU take new weights, as servers on GPUs do.

On a CPU its linear layers are packed once, when they are loaded. The server imports this module
before that (``--worker-extension-cls plain_linears.PlainLinears``): it then multiplies by the
weights themselves, as the engine in this process does.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers import utils

__all__ = ["PlainLinears"]


class PlainLinears:
    """Adds nothing to vLLM's worker."""


def _dispatch(layer: Any, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear


utils.dispatch_cpu_unquantized_gemm = _dispatch
