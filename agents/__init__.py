"""Agents that answer prompts, the loop that lets them play, and their evaluation."""

from __future__ import annotations

from creditrl.agents.base import Agent
from creditrl.agents.chat import ChatAgent
from creditrl.agents.chat_format import ChatFormat
from creditrl.agents.eval_result import EvalResult
from creditrl.agents.evaluate import evaluate
from creditrl.agents.expert import ExpertAgent
from creditrl.agents.human import HumanAgent
from creditrl.agents.partner import AgentPartner
from creditrl.agents.prompts import get_form
from creditrl.agents.rollout import run_episodes
from creditrl.agents.scripted import FirstAdmissibleAgent, RandomAgent, ReplayAgent
from creditrl.agents.self_chat import run_self_chat
from creditrl.agents.transformers import TransformersAgent
from creditrl.agents.vllm import VLLMAgent

__all__ = [
    "Agent",
    "AgentPartner",
    "ChatAgent",
    "ChatFormat",
    "EvalResult",
    "ExpertAgent",
    "FirstAdmissibleAgent",
    "HumanAgent",
    "RandomAgent",
    "ReplayAgent",
    "TransformersAgent",
    "VLLMAgent",
    "evaluate",
    "get_form",
    "run_episodes",
    "run_self_chat",
]
