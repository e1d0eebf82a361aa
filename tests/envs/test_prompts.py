"""Prompts of every environment in every form: replies in the form are parsed and performed."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest

import creditrl
from creditrl.agents.prompts import FORMS, Ask, get_form, words_for
from creditrl.envs.register import ENVIRONMENTS
from creditrl.wrappers import History, ReActAction

each_environment = pytest.mark.parametrize("entry", ENVIRONMENTS, ids=lambda entry: entry.id)


@each_environment
@pytest.mark.parametrize("form", sorted(FORMS))
def test_the_experts_replies_are_parsed_and_performed(entry: Any, form: str) -> None:
    env: Any = History(ReActAction(gym.make(entry.id), form=form), form=form)
    written = get_form(form)
    env.reset(seed=0)
    over = False
    while not over:
        action = creditrl.expert_action(env)
        *_, terminated, truncated, info = env.step(written.reply(action, "so"))
        assert info["parse_ok"] and info["grounded"]
        assert info["action"].lower() == action.lower()
        over = terminated or truncated
    assert info["success"] or not env.unwrapped.expert_always_succeeds


@each_environment
def test_the_compact_form_shows_the_environments_compact_text(entry: Any) -> None:
    env = gym.make(entry.id)
    text, info = env.reset(seed=0)
    ask = Ask(text, info["goal"], info["admissible_actions"], info["action_hint"], env_id=entry.id)
    (message,) = get_form("compact").messages(ask)
    compact = words_for(ask).compact
    assert words_for(ask) is not words_for(Ask("", env_id="Other/Env-v0"))
    assert message.content == (compact(ask) if compact else text)
