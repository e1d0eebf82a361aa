"""One more token for every row of a Llama-like model, without transformers' work per layer.

A step of transformers' forward pass spends more time on masks, cache objects and copies of the
cache than on a small model's arithmetic: 2.5 of 3.3 ms for 64 rows of a model with 0.2 million
weights. Here keys and values are in buffers with room for the whole reply (``step_cache.py``), and
positions are looked up in a table. Linear layers and MLPs are the model's own modules, so adapters
count; plain queries, keys and values of a small layer are one product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from creditrl.agents.step_cache import RowCache, SharedCache

if TYPE_CHECKING:
    import torch

__all__ = ["FAMILIES", "StepDecoder", "turned"]

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")
_STATIC_ROPE = ("default", "linear", "llama3")
"""Rotary embeddings that do not depend on the length of the longest row."""
_JOIN_BELOW = 2**18
"""Below this many weights, a layer's queries, keys and values are computed as one product, from a
copy of the weights: three calls take longer than the arithmetic."""


class _Layer:
    """Parts of a layer: modules look up their parts too slowly to do it for every token."""

    def __init__(self, layer: Any) -> None:
        attention = layer.self_attn
        self.norm, self.later_norm = layer.input_layernorm, layer.post_attention_layernorm
        self.query, self.key, self.value = attention.q_proj, attention.k_proj, attention.v_proj
        self.query_norm = getattr(attention, "q_norm", None)
        self.key_norm = getattr(attention, "k_norm", None)
        self.out, self.mlp = attention.o_proj, layer.mlp
        self.scale = attention.scaling

    def joined(self) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Return weight and bias of queries, keys and values in one, None if they stay apart."""
        import torch

        parts = [self.query, self.key, self.value]
        if self.query_norm is not None or any(
            type(part) is not torch.nn.Linear
            or type(part.weight) is not torch.nn.Parameter
            or part._forward_hooks
            or part._forward_pre_hooks
            or "forward" in vars(part)
            for part in parts
        ):
            return None
        if sum(part.weight.numel() for part in parts) >= _JOIN_BELOW:
            return None
        biases = [part.bias for part in parts if part.bias is not None]
        if len(biases) not in (0, len(parts)):
            return None
        weight = torch.cat([part.weight for part in parts])
        return weight, torch.cat(biases) if biases else None


class StepDecoder:
    """Computes the logits after one more token of each row.

    Args:
        model: one that :meth:`reads` accepts.
        longest: maximum number of positions.
    """

    def __init__(self, model: Any, longest: int) -> None:
        import torch

        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._embed, self._final_norm, self._head = (
            base.model.embed_tokens,
            base.model.norm,
            base.lm_head,
        )
        self._layers = [_Layer(layer) for layer in base.model.layers]
        weight = self._embed.weight
        places = torch.arange(longest, device=weight.device).unsqueeze(0)
        cos, sin = base.model.rotary_emb(weight, places)
        first, second = sin.unsqueeze(2).chunk(2, dim=-1)
        self._cos_L1D = cos[0].unsqueeze(1)
        self._sin_L1D = torch.cat((-first, second), dim=-1)[0]
        self._size = self._cos_L1D.shape[-1]
        # The module rounds differently in bfloat16; trainer and sampler should round the same way.
        self._fused_norm = weight.dtype == torch.float32
        self._shared = self._fused_norm and weight.device.type == "cpu"
        self._joined = [layer.joined() if self._shared else None for layer in self._layers]
        self._eps_1 = weight.new_full((1,), self._final_norm.variance_epsilon)
        self._mean_D1 = weight.new_full((weight.shape[1], 1), 1 / weight.shape[1])

    def cache(self, cache: Any, mask_RL: torch.Tensor | None, room: int) -> RowCache | SharedCache:
        """Return the cache of the model's rows with room for this many tokens of each."""
        made = SharedCache if self._shared else RowCache
        return made(cache, mask_RL, room)

    @staticmethod
    def reads(model: Any, cache: Any) -> bool:
        """Return whether this computes the model exactly, in its current form, after this cache."""
        from transformers.cache_utils import DynamicLayer

        base = model
        if hasattr(model, "get_base_model"):
            if any(str(c.peft_type.value) != "LORA" for c in model.peft_config.values()):
                return False
            base = model.get_base_model()
        family = type(base).__name__.removesuffix("ForCausalLM")
        if family not in FAMILIES or not type(base).__module__.startswith("transformers.models."):
            return False
        if base.config._attn_implementation != "sdpa":
            return False
        if base.config.rope_parameters.get("rope_type", "default") not in _STATIC_ROPE:
            return False
        # Sharded, compiled and hooked layers have other types, or do more when called.
        attention = [layer.self_attn for layer in base.model.layers]
        parts = [base, base.model, *base.model.layers, *attention]
        names = (
            f"{family}ForCausalLM",
            f"{family}Model",
            f"{family}DecoderLayer",
            f"{family}Attention",
        )
        return (
            all(type(part).__name__ in names for part in parts)
            and not any(part._forward_hooks or part._forward_pre_hooks for part in parts)
            and all(type(layer) is DynamicLayer for layer in cache.layers)
        )

    def step(
        self, token_R: torch.Tensor, position_R: torch.Tensor, cache: RowCache | SharedCache
    ) -> torch.Tensor:
        """Return float32 logits [R, V] after one more token of each row, and add it to the cache.

        Args:
            token_R: the tokens.
            position_R: their positions.
            cache: cache of the rows before the token.
        """
        from torch.nn import functional

        heads = (len(token_R), -1, self._size)
        cos, sin = self._cos_L1D[position_R], self._sin_L1D[position_R]
        state_RD = self._embed(token_R)
        for number, layer in enumerate(self._layers):
            normed_RD = self._norm(layer.norm, state_RD)
            if joined := self._joined[number]:
                joined_RHD = functional.linear(normed_RD, *joined).view(heads)
                keys = layer.key.out_features // self._size
                value = joined_RHD[:, -keys:]
                both = turned(joined_RHD[:, :-keys], cos, sin)
                query, key = both[:, :-keys], both[:, -keys:]
            else:
                query = layer.query(normed_RD).view(heads)
                key = layer.key(normed_RD).view(heads)
                value = layer.value(normed_RD).view(heads)
                if layer.query_norm is not None:
                    query = self._norm(layer.query_norm, query)
                    key = self._norm(layer.key_norm, key)
                query, key = turned(query, cos, sin), turned(key, cos, sin)
            seen_RD = cache.attend(number, query, key, value, layer.scale)
            state_RD = state_RD + layer.out(seen_RD)
            state_RD = state_RD + layer.mlp(self._norm(layer.later_norm, state_RD))
        cache.length += 1
        logits_RV: torch.Tensor = self._head(self._norm(self._final_norm, state_RD))
        return logits_RV.float()

    def _norm(self, norm: Any, state: torch.Tensor) -> torch.Tensor:
        if not self._fused_norm:
            normed: torch.Tensor = norm(state)
            return normed
        import torch
        from torch.nn import functional

        if self._shared and state.dim() == 2:
            # PyTorch's own norm is ten operations on a CPU.
            mean_R1 = torch.addmm(self._eps_1, state * state, self._mean_D1)
            return (state * mean_R1.rsqrt_()).mul_(norm.weight)
        return functional.rms_norm(
            state, (state.shape[-1],), weight=norm.weight, eps=norm.variance_epsilon
        )


def turned(part: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return queries or keys [R, heads, D] rotated by their position.

    The first half of ``sin`` is negative.
    """
    import torch

    first, second = part.chunk(2, dim=-1)
    return (part * cos).add_(torch.cat((second, first), dim=-1).mul_(sin))
