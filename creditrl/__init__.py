"""Reinforcement learning of language agents with credit for every step.

Importing this package registers the environments with Gymnasium::

    import creditrl, gymnasium as gym
    env = gym.make("CreditRL/VisualSokoban-v0")
"""

from __future__ import annotations

from pathlib import Path

# In a source checkout the other subpackages lie beside this folder. An editable install maps them,
# but Python started in the checkout finds this folder first and would not ask the install.
_here = Path(__file__).resolve().parent
if not (_here / "envs").is_dir() and str(_here.parent) not in __path__:
    __path__.append(str(_here.parent))

from creditrl._version import __version__
from creditrl.envs.register import register_environments
from creditrl.envs.state import expert_action, restore, segment_key, snapshot, state_key

register_environments()

__all__ = [
    "__version__",
    "expert_action",
    "restore",
    "segment_key",
    "snapshot",
    "state_key",
]
