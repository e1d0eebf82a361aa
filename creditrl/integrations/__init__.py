"""Integrations with other trainers and evaluation frameworks, a file each."""

from __future__ import annotations

from creditrl.integrations.play import Play, plan_episodes

__all__ = ["Play", "plan_episodes"]
