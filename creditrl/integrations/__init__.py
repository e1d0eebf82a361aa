"""Integrations with other trainers and evaluation frameworks: one file each, imported
separately."""

from __future__ import annotations

from creditrl.integrations.play import Play, plan_episodes

__all__ = ["Play", "plan_episodes"]
