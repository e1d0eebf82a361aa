"""Conversations that others recorded, in the policy's tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from byte_tokens import byte_tokenizer

from creditrl.agents.chat_format import ChatFormat
from creditrl.agents.prompts import get_form
from creditrl.agents.rollout import run_episodes
from creditrl.cli.import_run import EnvPart, FormPart, ImportedRun, MethodPart, SourcePart
from creditrl.errors import ConfigError
from creditrl.runs import RunFolder
from creditrl.trainers.collect.demonstrations import Demonstrator
from creditrl.trainers.collect.recorded import recorded_demonstrations

ENV = "CreditRL/ALFWorld-v0"
TASKS = [4, 9, 2]


@pytest.fixture
def tokenizer() -> Any:
    return byte_tokenizer(eos_token="<eos>", pad_token="<eos>")


def folder_of(path: Path, form: str, episodes: Any) -> str:
    config = ImportedRun(EnvPart(ENV), FormPart(form), MethodPart(), SourcePart())
    RunFolder.create(path, config, "").store().append(0, episodes)
    return str(path)


def played(path: Path, form: str, tokenizer: Any, tasks: list[int]) -> tuple[Any, Any, Any, str]:
    """Return an environment, the form, the expert's episodes there, and a run that holds them."""
    venv: Any = gym.make_vec(ENV, num_envs=len(tasks)).unwrapped
    talk = get_form(form)
    expert = Demonstrator(venv, talk, tokenizer, ChatFormat(tokenizer), 200)
    shown = run_episodes(venv, expert, talk, seed=3, tasks=tasks)
    return venv, talk, shown, folder_of(path / "run", form, shown)


@pytest.mark.parametrize("form", ["react", "dialogue"])
def test_recorded_episodes_have_the_experts_own_tokens(form: str, tokenizer: Any, tmp_path: Path):
    venv, talk, shown, run = played(tmp_path, form, tokenizer, TASKS)
    chat = ChatFormat(tokenizer)
    found = recorded_demonstrations(run, venv, talk, tokenizer, chat, 200, 0, 0)
    assert [t.task.id for t in found] == [t.task.id for t in shown]
    for mine, theirs in zip(found, shown, strict=True):
        assert [t.prompt_ids for t in mine.turns] == [t.prompt_ids for t in theirs.turns]
        assert [t.reply_ids for t in mine.turns] == [t.reply_ids for t in theirs.turns]


def test_another_form_says_the_same_actions(tokenizer: Any, tmp_path: Path):
    venv, _, _, run = played(tmp_path, "react", tokenizer, TASKS)
    plain, chat = get_form("dialogue"), ChatFormat(tokenizer)
    found = recorded_demonstrations(run, venv, plain, tokenizer, chat, 200, 2, 0)
    assert len(found) == 2
    for trajectory in found:
        for turn in trajectory.turns:
            assert tokenizer.decode(turn.reply_ids) == f"{turn.action}<eos>"


def test_what_cannot_be_cloned_is_said(tokenizer: Any, tmp_path: Path):
    venv, react, _, run = played(tmp_path, "react", tokenizer, TASKS[:1])
    chat = ChatFormat(tokenizer)
    for form in (get_form("tags"), get_form("react", list_actions=True)):
        with pytest.raises(ConfigError, match="tells the admissible actions"):
            recorded_demonstrations(run, venv, form, tokenizer, chat, 200, 0, 0)
    with pytest.raises(ConfigError, match="5 demonstrations wanted, .* holds 1 solved"):
        recorded_demonstrations(run, venv, react, tokenizer, chat, 200, 5, 0)
    with pytest.raises(ConfigError, match="max_new_tokens is 8"):
        recorded_demonstrations(run, venv, react, tokenizer, chat, 8, 0, 0)
    other: Any = gym.make_vec("CreditRL/VisualSokoban-v0", num_envs=1).unwrapped
    with pytest.raises(ConfigError, match="holds episodes of CreditRL/ALFWorld-v0; expected"):
        recorded_demonstrations(run, other, react, tokenizer, chat, 200, 0, 0)
