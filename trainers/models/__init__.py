"""Models: the policy, its tokenizer and adapters, and what is learned beside it."""

from creditrl.trainers.models.configs import LoRAConfig, SmallPolicyConfig

__all__ = ["LoRAConfig", "SmallPolicyConfig"]
