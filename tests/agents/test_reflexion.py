from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import gymnasium as gym
import pytest
from small_runs import make_trajectory

from creditrl.agents import ChatAgent, evaluate, get_form
from creditrl.agents.prompts import Ask, ReflexionForm
from creditrl.errors import ConfigError
from creditrl.types import Reply, Task, Turn

ASK = Ask("You see a box.", "Open the box.", env_id="Toy/Corridor-v0")


def failed(*turns, final="Nothing happens.", truncated=True):
    return make_trajectory(
        (Turn(seen, reply, reply, 0.0) for seen, reply in turns),
        env_id="Toy/Corridor-v0",
        task=Task("t/0", "t", "train", 0, "Open the box."),
        terminated=not truncated,
        truncated=truncated,
        final_observation=final,
    )


def test_reflections_are_shown_for_the_same_task_only():
    form = ReflexionForm(remembered=2)
    assert form.messages(ASK) == get_form("react").messages(ASK)
    assert form.parse("Thought: so.\nAction: open box").action == "open box"
    trial = failed(("You see a box.", "Thought: a\nAction: look"))
    for text in ("one", "two  words\n", "three"):
        form.remember(trial, text)
    *before, task = form.messages(ASK)
    assert before == list(get_form("react").messages(ASK)[:-1])
    assert task.content.startswith(
        "You have tried the task below before. What you learned then:\n"
        "Trial 1: two words\nTrial 2: three\n\n"
    )
    assert task.content.endswith("You see a box.")
    for other in (replace(ASK, observation="You see a bag."), replace(ASK, turn=1)):
        assert form.messages(other) == get_form("react").messages(other)
    with pytest.raises(ConfigError, match="trials=0: expected 1 or more"):
        get_form("reflexion", trials=0)


def test_the_reflection_prompt_has_the_whole_failed_attempt():
    form = ReflexionForm()
    trial = failed(
        ("You see a box.", "Thought: a\nAction: look"),
        ("A red box.", "Thought: b\nAction: kick box"),
    )
    (asked,) = form.question(trial)
    assert asked.role == "user"
    text = asked.content
    parts = ["Your task: Open the box.", "Action: look", "Observation: A red box."]
    parts += ["Action: kick box", "Observation: Nothing happens."]
    places = [text.index(part) for part in (*parts, "STATUS: FAILED. The turns ran out.")]
    assert places == sorted(places) and text.endswith("New plan:")
    form.remember(trial, "do not kick")
    assert "Trial 1: do not kick" in form.question(trial)[0].content


class Learner:
    """Plays wrong until its prompt contains the reflection it wrote after the failure."""

    name = "learner"

    def __init__(self, solution):
        self.solution, self.reflections, self.prompts = solution, [], []

    def act(self, prompts):
        return [self._reply(prompt) for prompt in prompts]

    def _reply(self, prompt):
        self.prompts.append(prompt)
        if prompt.text.endswith("New plan:"):
            self.reflections.append(prompt)
            return Reply("push it to the right", num_tokens=7)
        told = "push it to the right" in prompt.messages[self.task_at(prompt)]["content"]
        steps = self.solution[prompt.goal, prompt.copy]
        action = steps[prompt.turn] if told and prompt.turn < len(steps) else "sing"
        return Reply(f"Thought: so.\nAction: {action}", num_tokens=1)

    def task_at(self, prompt):
        return len(prompt.messages) - 1 - 2 * prompt.turn


def test_an_unsolved_task_is_retried_with_its_reflection():
    venv = gym.make_vec(
        "CreditRL/VisualSokoban-v0", num_envs=2, max_turns=9, autoreset_mode="Disabled"
    ).unwrapped
    _, info = venv.reset(seed=[0, 1], options={"task": [0, 1]})
    plans = venv.expert_plans()
    agent = Learner({(info["goal"][i], i): plans[i] for i in range(2)})
    found = evaluate(venv, agent, "reflexion", episodes=2)
    assert [e.success for e in found.episodes] == [True, True]
    assert [e.trials for e in found.episodes] == [2, 2]
    assert [e.turns for e in found.episodes] == [len(plan) for plan in plans]
    assert found.reports["success_by_trial"] == [0.0, 1.0, 1.0]
    assert len(agent.reflections) == 2
    # Nine turns that failed, seven tokens of reflection, and the turns that solved it.
    assert [e.tokens for e in found.episodes] == [9 + 7 + len(plan) for plan in plans]
    venv.close()


def test_trials_are_limited_and_a_failed_reflection_does_not_fail_the_episode():
    class Silent(Learner):
        def _reply(self, prompt):
            if prompt.text.endswith("New plan:"):
                return Reply("", error="no answer")
            return Reply("Thought: so.\nAction: sing")

    form, options = get_form("reflexion", trials=2), {"max_turns": 2}
    found = evaluate("VisualSokoban", Silent({}), form, episodes=3, num_envs=2, env_options=options)
    assert [(e.success, e.trials, e.turns, e.error) for e in found.episodes] == [
        (False, 2, 2, "")
    ] * 3
    assert found.reports["spent"]["turns"] == 12


def test_over_an_endpoint_the_reflection_is_a_separate_request(endpoint):
    endpoint.answer = lambda body: "Thought: so.\nAction: sing"
    with closing(ChatAgent("toy", base_url=endpoint.url)) as chat:
        form, options = get_form("reflexion", trials=2), {"max_turns": 1}
        evaluate("VisualSokoban", chat, form, episodes=1, env_options=options)
    first, question, second = (body["messages"] for body in endpoint.requests)
    assert len(question) == 1 and question[0]["content"].endswith("New plan:")
    assert len(first) == len(second)
    assert "Trial 1: Thought: so. Action: sing" in second[-1]["content"]
    assert json.dumps(first[:-1]) == json.dumps(second[:-1])
