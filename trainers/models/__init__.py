"""Models: the policy, its tokenizer and adapters, and the models learned with it."""

from creditrl.trainers.models.configs import LoRAConfig, SmallPolicyConfig

__all__ = ["LoRAConfig", "SmallPolicyConfig"]
