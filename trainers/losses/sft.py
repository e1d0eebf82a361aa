"""Behaviour cloning: cross-entropy on the reply tokens of demonstrations.

Source: maximum likelihood; loss on replies only as in Ouyang et al. 2022, section 3.5.
"""

from __future__ import annotations

import torch

from creditrl.errors import CreditInputError
from creditrl.trainers.losses.columns import Column, constant

__all__ = ["sft_loss"]


def sft_loss(
    logprob_M: torch.Tensor, *, weight_M: Column | None = None
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return ``(loss, metrics)`` with ``loss = -sum_m w_m log pi_m``.

    Args:
        logprob_M: log-probability of each reply token, with gradient.
        weight_M: weight of each token; None: ``1 / M``. For micro-batches pass the rows of
            ``aggregation_weights`` of the whole minibatch, times an example's own weight if it has
            one; a weight of 0 leaves a token out of the loss, but not out of ``nll_sum``.

    Returns:
        The scalar loss and detached sums that add over micro-batches (``tokens nll_sum
        loss_sft``). No tokens give a loss of 0.

    Raises:
        CreditInputError: ``weight_M`` of another length, NaN or infinity.
    """
    logprob = logprob_M.float()
    if weight_M is None:
        weight = torch.full_like(logprob, 1.0 / max(len(logprob), 1)).detach()
    else:
        weight = constant("weight_M", weight_M, logprob)
    loss = -(weight * logprob).sum()
    if not bool(torch.isfinite(loss)):
        row = int(torch.argmin(torch.isfinite(weight * logprob).int()))
        raise CreditInputError(
            f"The cross-entropy is not finite at token {row}: log-probability "
            f"{float(logprob[row])}, weight {float(weight[row])}; expected finite numbers."
        )
    return loss, {
        "tokens": logprob.new_tensor(float(len(logprob))),
        "nll_sum": -logprob.detach().sum(),
        "loss_sft": loss.detach(),
    }
