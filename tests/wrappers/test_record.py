"""RecordTrajectory: the content of the records."""

from __future__ import annotations

import numpy as np
import pytest
from toy_env import TOY, ToyEnv, ToyVectorEnv

import creditrl
from creditrl.types import Trajectory
from creditrl.wrappers import (
    History,
    ReActAction,
    RecordTrajectory,
    StateHash,
    VectorRecordTrajectory,
    VectorStateHash,
)


def test_a_finished_episode_becomes_a_record():
    written: list[Trajectory] = []
    env = RecordTrajectory(StateHash(ToyEnv(max_turns=3)), writer=written.append, label="run")
    text, info = env.reset(seed=4, options={"task": 5})
    before = info["state_hash"]
    steps = [env.step(action) for action in ("look", "fly", "say hi")]
    (record,) = env.trajectories
    assert written == [record] and env.pop() == [record] and env.trajectories == []
    assert record.id == "run/0" and record.env_id == TOY and record.task is env.unwrapped.tasks[5]
    assert record.truncated and not record.terminated and not record.success
    assert record.episode_return == pytest.approx(-0.375)
    assert [t.action for t in record.turns] == ["look", "fly", "say hi"]
    assert [t.reply for t in record.turns] == ["look", "fly", "say hi"]
    assert [t.grounded for t in record.turns] == [True, False, True]
    assert record.turns[1].ungrounded_reason == "unknown"
    # Each turn has the observation and the state before its action.
    assert record.turns[0].observation == text and record.turns[0].state == before
    assert record.turns[2].observation == steps[1][0]
    assert record.turns[2].state == steps[1][4]["state_hash"]
    assert record.final_observation == steps[2][0]
    assert record.score == steps[2][4]["score"] == record.turns[2].score
    assert record.seed == env.unwrapped.copies.seed[0] > 0


def test_as_the_outermost_wrapper_it_records_prompt_and_reply():
    env = RecordTrajectory(History(ReActAction(ToyEnv(max_turns=1), form="tags")))
    prompt, _ = env.reset(seed=0, options={"task": 5})
    env.step("<think>x</think><action>look</action>")
    (turn,) = env.pop()[0].turns
    assert turn.observation == prompt and "admissible" in prompt
    assert turn.reply == "<think>x</think><action>look</action>" and turn.action == "look"


@pytest.mark.parametrize("mode", ["Disabled", "NextStep", "SameStep"])
def test_groups_share_number_task_and_seed(mode: str):
    venv = VectorRecordTrajectory(
        VectorStateHash(ToyVectorEnv(6, group_size=3, autoreset_mode=mode, max_turns=6))
    )
    rng = np.random.default_rng(0)
    venv.reset(seed=1)
    for _ in range(60):
        venv.step([str(a) for a in rng.choice(["right", "right", "look"], size=6)])
        if mode == "Disabled" and not venv.active.any():
            venv.reset()
    records = venv.pop()
    assert len(records) > 20 and len({r.id for r in records}) == len(records)
    groups: dict[int, list[Trajectory]] = {}
    for record in records:
        groups.setdefault(record.group, []).append(record)
        assert record.terminated or record.truncated
        assert record.success == record.terminated
        assert all(turn.state for turn in record.turns)
    for members in groups.values():
        assert len({(r.task.id, r.seed, r.turns[0].observation) for r in members}) == 1
        assert len({r.member for r in members}) == len(members)
    whole = [members for members in groups.values() if len(members) == 3]
    assert len(whole) >= 5
    assert len({(m[0].task.id, m[0].seed) for m in groups.values()}) == len(groups)


def test_a_reset_drops_the_open_episode_and_a_restore_continues_the_saved_one():
    env = RecordTrajectory(ToyEnv(max_turns=2))
    for _ in range(2):
        env.reset(seed=0, options={"task": 5})
        env.step("look")
    saved = creditrl.snapshot(env)
    env.step("say a")
    creditrl.restore(env, saved)
    env.step("say b")
    actions = [[turn.action for turn in t.turns] for t in env.pop()]
    assert actions == [["look", "say a"], ["look", "say b"]]


def test_a_clone_starts_with_its_sources_turns():
    venv = VectorRecordTrajectory(ToyVectorEnv(2, max_turns=2))
    venv.reset(seed=0, options={"task": [4, 5]})
    venv.step(["say first", "say second"])
    venv.clone([0], [1])
    venv.step(["say a", "say b"])
    one, other = venv.pop()
    assert [t.action for t in one.turns] == ["say first", "say a"]
    assert [t.action for t in other.turns] == ["say first", "say b"]
    assert one.task == other.task and one.seed == other.seed


def test_records_can_be_written_without_being_kept():
    count = []
    env = RecordTrajectory(ToyEnv(max_turns=1), writer=lambda t: count.append(t.id), keep=False)
    for _ in range(3):
        env.reset(options={"task": 5})
        env.step("look")
    assert env.trajectories == [] and count == ["episode/0", "episode/1", "episode/2"]
