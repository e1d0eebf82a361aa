from __future__ import annotations

import pytest

from creditrl.errors import ConfigError
from creditrl.trainers.models.configs import SmallPolicyConfig
from creditrl.trainers.models.small import build_small_policy
from creditrl.trainers.models.tokenizer import build_tokenizer

torch = pytest.importorskip("torch")


def test_the_default_shape_with_32_tokens_has_133824_parameters():
    tokenizer = build_tokenizer(["abcdefghijklmnopqrstuvwxyz#_"], min_count=2)
    assert len(tokenizer) == 32
    model = build_small_policy(SmallPolicyConfig(), tokenizer)
    assert sum(p.numel() for p in model.parameters()) == 133_824
    assert model.config.get_text_config().rope_parameters["rope_theta"] == 100
    assert model.config.eos_token_id == tokenizer.eos_token_id


def test_equal_seeds_give_equal_weights_and_leave_the_global_generator_alone(tokenizer):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = build_small_policy(SmallPolicyConfig(), tokenizer, seed=1)
    assert torch.equal(torch.rand(3), expected)
    second = build_small_policy(SmallPolicyConfig(), tokenizer, seed=1)
    other = build_small_policy(SmallPolicyConfig(), tokenizer, seed=2)
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(first.state_dict()[name], second.state_dict()[name])
    assert not torch.equal(first.state_dict()[name], other.state_dict()[name])
    assert abs(first.state_dict()[name].std().item() - 0.05) < 0.005


def test_a_width_that_heads_cannot_share_is_refused():
    with pytest.raises(ConfigError, match="hidden=64 over heads=5"):
        SmallPolicyConfig(heads=5)
    with pytest.raises(ConfigError, match="layers is 0"):
        SmallPolicyConfig(layers=0)
