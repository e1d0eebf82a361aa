"""Agents that are not ours come in by four doors, and by each of them get the same results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import urllib.request
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_server import Plan
from programs import wait_for

from creditrl.agents import ChatAgent, evaluate
from creditrl.agents.callable import import_agent
from creditrl.agents.command import CommandAgent
from creditrl.agents.eval_result import EpisodeResult, EvalResult
from creditrl.agents.journal import EpisodeFiles
from creditrl.cli import run
from creditrl.serve.measure import measure_clients
from creditrl.store import TrajectoryStore

ENVS = ("ALFWorld", "WebShop", "VirtualHome", "VisualSokoban", "SOTOPIA")
OPTIONS = {"max_turns": 6, "split": "valid_unseen"}
ACTIONS = (
    *("up", "left", "down", "right"),
    *("look", "inventory", "go to desk 1", "walk to kitchen"),
    *("search[red shirt]", "click[back to search]", "say: Hello.", "leave"),
)

# One agent for all doors: what it does depends on what it sees.
AGENT = textwrap.dedent(
    f"""
    import zlib
    ACTIONS = {ACTIONS!r}
    def act(observation, info):
        return ACTIONS[zlib.crc32(observation.encode()) % len(ACTIONS)]
    """
)
PROGRAM = AGENT + textwrap.dedent(
    """
    import json, sys
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps({"action": act(asked["observation"], asked)}), flush=True)
    """
)


def choose(observation: str) -> str:
    return ACTIONS[zlib.crc32(observation.encode()) % len(ACTIONS)]


def ask(method: str, url: str, body: Mapping[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"{}")


def drive(address: str, act: Callable[[str], str] = choose) -> None:
    """Play measured episodes until none is left, as a client would."""
    session = f"{address}/sessions/{ask('POST', f'{address}/sessions')['session']}"
    left = 1
    while left:
        state = ask("POST", f"{session}/reset")
        over = False
        while not over:
            state = ask("POST", f"{session}/step", {"action": act(state["observation"])})
            over = state["terminated"] or state["truncated"]
        left = state["tasks_left"]
    ask("DELETE", session)


def over_http(env: str, tasks: int, **options: Any) -> EvalResult:
    clients: list[threading.Thread] = []

    def enter(address: str) -> None:
        clients.append(threading.Thread(target=drive, args=(address,), daemon=True))
        clients[-1].start()

    found = measure_clients(
        f"CreditRL/{env}-v0", OPTIONS, range(tasks), sessions=2, on_address=enter, **options
    )
    for client in clients:
        client.join(10)
        assert not client.is_alive()
    return found


def measured(result: EvalResult) -> list[EpisodeResult]:
    return [replace(episode, tokens=0) for episode in result.episodes]


def shown(folder: Path) -> list[Any]:
    """Return what the viewer shows of kept episodes, whoever played them."""
    return [
        (e.id, e.task.id, e.seed, e.success, e.final_observation)
        + tuple((t.observation, t.action, t.reward, t.grounded, t.state) for t in e.turns)
        for e in sorted(TrajectoryStore(folder).read(), key=lambda e: e.group)
    ]


@pytest.mark.parametrize("env", ENVS)
def test_every_door_gives_the_same_results(env, endpoint, tmp_path):
    mine, program = tmp_path / "mine.py", tmp_path / "program.py"
    mine.write_text(AGENT)
    program.write_text(PROGRAM)
    endpoint.answer = lambda body: choose(body["messages"][-1]["content"])
    command = CommandAgent(f"{sys.executable} {program}")
    chat = ChatAgent("toy", base_url=endpoint.url)

    def files(name: str) -> EpisodeFiles:
        return EpisodeFiles(tmp_path / f"{name}.jsonl", tmp_path / name)

    doors = {"callable": import_agent(f"{mine}:act"), "command": command, "chat": chat}
    try:
        results = [
            # Of one form, so that all choose by the same words.
            evaluate(env, agent, "plain", episodes=2, env_options=OPTIONS, files=files(name))
            for name, agent in doors.items()
        ]
    finally:
        command.close()
        chat.close()
    results.append(over_http(env, 2, files=files("http")))
    assert all(result.failed == 0 and len(result.episodes) == 2 for result in results)
    assert all(measured(result) == measured(results[0]) for result in results)
    seen = [shown(tmp_path / name) for name in (*doors, "http")]
    assert seen[0] and seen.count(seen[0]) == 4
    turns = [episode.turns for episode in results[2].episodes]
    assert [episode.tokens for episode in results[2].episodes] == [5 * count for count in turns]


def test_a_bad_endpoint_gives_the_results_of_a_good_one(endpoint):
    def play() -> EvalResult:
        chat = ChatAgent("toy", base_url=endpoint.url, backoff=0.01, retries=20, concurrency=4)
        try:
            return evaluate("VisualSokoban", chat, episodes=8, num_envs=4, env_options=OPTIONS)
        finally:
            chat.close()

    endpoint.answer = lambda body: choose(body["messages"][-1]["content"])
    healthy = play()
    asked = Counter[str]()

    def badly(body: Mapping[str, Any]) -> Plan:
        asked["all"] += 1
        text = choose(body["messages"][-1]["content"])
        if asked["all"] % 3 == 0:
            return Plan(text, cut=0)  # the connection ends before the answer
        if asked["all"] % 4 == 0:
            return Plan(status=429, headers={"Retry-After": "0.02"})
        return Plan(text)

    endpoint.answer = badly
    found = play()
    assert found.episodes == healthy.episodes and found.failed == 0
    usage = found.reports["agent"]["usage"]
    assert usage["causes"]["connection"] > 5 and usage["causes"]["http 429"] > 5
    turns = sum(episode.turns for episode in found.episodes)
    assert usage["requests"] == asked["all"] > 1.5 * turns


def test_react_is_a_prompting_agent_with_a_price(endpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    endpoint.answer = lambda body: "Thought: I go up.\nAction: up"
    arguments = ["eval", "VisualSokoban", "--agent", "react", "--model", "toy", "--max-turns", "2"]
    arguments += ["--base-url", endpoint.url, "--prices", "1", "2", "--max-cost", "1"]
    assert run([*arguments, "--episodes", "2", "--out", "r.json"]) == 0
    results = json.loads(Path("r.json").read_text("utf-8"))
    assert results["form"] == "react"
    # Ten tokens read at $1 and five written at $2 per million, in each of two turns.
    assert [e["cost"] for e in results["episodes"]] == [pytest.approx(40e-6)] * 2
    assert results["reports"]["spent"]["tokens"] == 60
    first = min(endpoint.requests, key=lambda body: len(body["messages"]))["messages"]
    assert "Thought: <your reasoning>\nAction: <one action>" in first[0]["content"]
    last = max(endpoint.requests, key=lambda body: len(body["messages"]))["messages"]
    assert last[-2]["content"] == "Thought: I go up.\nAction: up"
    assert last[-1]["content"].startswith("Observation: ")


def test_a_file_without_a_function_is_asked_for_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def act(observation, info):\n    return None\n")
    for name in ("mine.py", "mine"):
        assert run(["eval", "VisualSokoban", "--agent", name]) == 2
        assert "which function of it? Expected FILE.py:NAME, e.g. mine.py:act" in (
            capsys.readouterr().err
        )
    # Where nothing worked there is nothing to show but why.
    assert run(["eval", "VisualSokoban", "--agent", "mine.py:act", "--episodes", "2"]) == 2
    told = capsys.readouterr()
    assert "returned a NoneType: expected the action, a str" in told.err
    assert "success" not in told.out


SLOW = """
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if asked["turn"] == 0:
        with open("began.txt", "a") as file:
            print(asked["episode"], file=file)
    time.sleep(float(os.environ["PAUSE"]))
    print('{"action": "up"}', flush=True)
"""


def test_a_killed_evaluation_goes_on_and_counts_every_task_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(SLOW)
    arguments = ["eval", "VisualSokoban", "--agent", "command", "--max-turns", "4"]
    arguments += ["--command", f"{sys.executable} slow.py", "--episodes", "24"]
    arguments += ["--num-envs", "8", "--out", "mine.json"]
    evaluation = subprocess.Popen(
        [sys.executable, "-m", "creditrl.cli", *arguments],
        env={**os.environ, "PAUSE": "0.3"},
        stderr=subprocess.PIPE,
    )
    journal = Path("mine.episodes.jsonl")

    def lines() -> list[str]:
        return journal.read_text("utf-8").splitlines() if journal.is_file() else []

    wait_for(lambda: len(lines()) >= 9, evaluation)
    evaluation.send_signal(signal.SIGKILL)
    evaluation.communicate(timeout=30)
    before = {json.loads(line)["number"] for line in lines()[1:]}
    assert 8 <= len(before) < 24 and not Path("mine.json").exists()
    began = Counter(Path("began.txt").read_text().split())
    monkeypatch.setenv("PAUSE", "0")
    assert run(["eval", "--resume", "mine.json", "--trust"]) == 0
    results = json.loads(Path("mine.json").read_text("utf-8"))
    tasks = [episode["task"] for episode in results["episodes"]]
    assert len(tasks) == len(set(tasks)) == results["num_episodes"] == 24
    again = Counter(Path("began.txt").read_text().split()) - began
    assert set(map(int, again)) == set(range(24)) - before
    assert set(again.values()) == {1}
    Path("up.py").write_text("def act(observation, info):\n    return 'up'\n")
    options = {"max_turns": 4, "split": "valid_unseen"}
    agent = import_agent("up.py:act")
    whole = evaluate("VisualSokoban", agent, episodes=24, env_options=options)
    returns = [episode["episode_return"] for episode in results["episodes"]]
    assert [e.episode_return for e in whole.episodes] == returns
    # What was seen and done is kept of each episode once, too.
    kept = sorted(TrajectoryStore("mine.trajectories").read(), key=lambda e: e.group)
    assert [e.group for e in kept] == list(range(24))
    assert [e.task.id for e in kept] == tasks
    assert [e.episode_return for e in kept] == returns
