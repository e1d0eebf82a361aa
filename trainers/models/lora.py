"""Low-rank adapters on a policy, by peft.

Source: Hu et al. 2021, "LoRA". With the adapter off the model is the one it was attached to, which
makes the reference policy of a KL term cost nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from creditrl.errors import ConfigError, did_you_mean, require_extra
from creditrl.trainers.models.configs import LoRAConfig

if TYPE_CHECKING:
    import os

    from peft import PeftConfig, PeftModel
    from transformers import PreTrainedModel

__all__ = ["LoRAConfig", "attach_lora", "has_lora", "load_lora", "renew_lora", "without_lora"]


def attach_lora(model: PreTrainedModel, config: LoRAConfig, seed: int = 0) -> PeftModel:
    """Return the model with fresh adapters; only they are trained.

    A fresh adapter changes nothing: its second factor is 0. Equal seeds give equal first factors.

    Raises:
        ConfigError: no layer has one of the names in ``config.targets``.
    """
    require_extra("peft", "train")
    import peft

    names = {name.rsplit(".", 1)[-1] for name, part in model.named_modules() if _linear(part)}
    for target in config.targets:
        if target not in names:
            raise ConfigError(
                f"LoRAConfig.targets: the model has no linear layer {target!r}."
                f"{did_you_mean(target, names)} Known: {', '.join(sorted(names))}."
            )
    adapter = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=list(config.targets) or "all-linear",
        bias="none",
        task_type="CAUSAL_LM",
    )
    return _adapted(model, adapter, seed)


def load_lora(model: PreTrainedModel, folder: str | os.PathLike[str]) -> PeftModel:
    """Return the model with the adapters of a folder, to be trained on."""
    import peft

    with _without_future_warnings():
        adapted: Any = peft.PeftModel.from_pretrained(model, str(folder), is_trainable=True)
    return adapted.eval()  # type: ignore[no-any-return]


def renew_lora(model: PeftModel, seed: int = 0) -> PeftModel:
    """Fold the adapters into the base weights and begin them anew; the model's output stays."""
    config = model.peft_config["default"]
    return _adapted(model.merge_and_unload(), config, seed)


def has_lora(model: Any) -> bool:
    """Return whether the model carries peft's adapters."""
    return hasattr(model, "peft_config") and hasattr(model, "get_base_model")


def without_lora(model: Any) -> Any:
    """Return a copy of the model as it was before adapters were attached; weights are its own."""
    import copy

    copied = copy.deepcopy(model)
    return copied.unload() if has_lora(copied) else copied


def _adapted(model: PreTrainedModel, config: PeftConfig, seed: int) -> PeftModel:
    import peft
    import torch

    with torch.random.fork_rng(devices=[]), _without_future_warnings():
        torch.manual_seed(seed)
        adapted: PeftModel = peft.get_peft_model(model, config).eval()
    return adapted


@contextmanager
def _without_future_warnings() -> Iterator[None]:
    # peft asks transformers by names that it will drop; the user can do nothing about that.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _linear(module: Any) -> bool:
    import torch

    return isinstance(module, torch.nn.Linear)
