"""Tiny random models of the families that the sampler and the trainer are tested with."""

from __future__ import annotations

from typing import Any

_SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "head_dim": 8}
_SHAPE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
_LINEAR = {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2}
_LINEAR |= {"linear_num_value_heads": 4, "linear_conv_kernel_dim": 4}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
_SHARED = {"shared_expert_intermediate_size": 16}
_WINDOW = {"sliding_window": 8}
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8}

FAMILIES: dict[str, dict[str, Any]] = {
    "cohere": {"logit_scale": 0.25},
    "cohere2": {**_WINDOW, "logit_scale": 0.25},
    "deepseek_v3": {
        **{"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
        **{"n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4},
        **{"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4},
        **{"v_head_dim": 8, "head_dim": 4},
    },
    "ernie4_5": {},
    "exaone4": _WINDOW,
    "falcon_h1": {**_MAMBA, "mamba_d_ssm": 64, "mamba_n_groups": 1},
    "gemma": {},
    "gemma2": {**_WINDOW, "query_pre_attn_scalar": 8, "final_logit_softcapping": 2.0},
    "gemma3_text": {**_WINDOW, "query_pre_attn_scalar": 8},
    "gemma4_text": {
        **{**_WINDOW, "final_logit_softcapping": 2.0, "global_head_dim": 8},
        **{"vocab_size_per_layer_input": 32, "hidden_size_per_layer_input": 8},
    },
    "glm4": {},
    "gpt2": {"n_positions": 512, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "gpt_oss": {**_WINDOW, **_LOCAL},
    "granite": {
        **{"logits_scaling": 6.0, "embedding_multiplier": 12.0},
        **{"residual_multiplier": 0.22, "attention_multiplier": 0.25},
    },
    "granitemoehybrid": {
        **_MAMBA,
        **{"layer_types": ["mamba", "mamba", "attention", "mamba"], **_LOCAL},
        **{"shared_intermediate_size": 32, "logits_scaling": 4.0},
    },
    "lfm2": {
        "layer_types": ["conv", "conv", "full_attention", "conv"],
        "block_auto_adjust_ff_dim": False,
    },
    "llama": {},
    "llama4_text": {
        **{"num_local_experts": 2, "attention_chunk_size": 16, "intermediate_size_mlp": 48},
    },
    "mamba2": {
        **{"num_hidden_layers": 3, "num_heads": 8, "head_dim": 8, "state_size": 8},
        **{"n_groups": 1, "chunk_size": 8},
    },
    "mistral": _WINDOW,
    "mixtral": _LOCAL,
    "nemotron_h": {
        **{"layers_block_type": ["mamba", "attention", "mamba", "moe"], "n_routed_experts": 4},
        **{"mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 1},
        **{"chunk_size": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
        **{"moe_shared_expert_intermediate_size": 16, "n_group": 1, "topk_group": 1},
    },
    "olmo2": {},
    "olmo3": _WINDOW,
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "phi": {},
    "phi3": {},
    "qwen2": {"use_sliding_window": True, "max_window_layers": 2, **_WINDOW},
    "qwen2_moe": {**_EXPERTS, **_SHARED},
    "qwen3": {},
    "qwen3_5_text": _LINEAR,
    "qwen3_moe": _EXPERTS,
    "qwen3_next": {**_LINEAR, **_EXPERTS, **_SHARED},
    "seed_oss": {},
    "smollm3": {},
    "starcoder2": _WINDOW,
}


def family_model(family: str, vocabulary: int, seed: int = 0) -> Any:
    """Return a model of this ``model_type`` whose next tokens are unequally probable."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    shape = {**_SHAPE, "vocab_size": vocabulary, **special, **FAMILIES[family]}
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **shape)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for weight in model.parameters():
        if weight.dim() >= 2:  # wider than usual, so that a mistake changes the numbers
            weight.data.normal_(0, 0.2)
    return model
