"""Rollouts: tasks of an update, whole groups, and workers that are killed while a policy trains."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import gymnasium as gym
import pytest
from small_runs import make_trajectory
from toy_env import ToyVectorEnv

from creditrl.agents import get_form
from creditrl.envs.sotopia.verdict import Verdict
from creditrl.errors import ConfigError
from creditrl.trainers.collect.base import drop_failed_groups
from creditrl.trainers.collect.rollouts import RolloutCollector
from creditrl.trainers.collect.tasks import stream, update_tasks
from creditrl.types import Reply, Turn

FORM = get_form("plain")


def test_an_updates_tasks_are_distinct_and_depend_only_on_seed_and_update():
    tasks = update_tasks(50, 20, seed=3, update=7)
    assert len(set(tasks)) == 20 and set(tasks) <= set(range(50))
    update_tasks(50, 20, seed=3, update=8)  # draws in between do not matter
    assert update_tasks(50, 20, seed=3, update=7) == tasks
    assert update_tasks(50, 20, seed=3, update=8) != tasks
    assert update_tasks(50, 20, seed=4, update=7) != tasks
    drawn = {task for update in range(40) for task in update_tasks(50, 20, 0, update)}
    assert drawn == set(range(50))


def test_all_tasks_can_be_requested_but_not_one_more():
    assert sorted(update_tasks(6, 6, seed=0, update=0)) == list(range(6))
    with pytest.raises(ConfigError, match=r"groups is 7.*only 6 tasks"):
        update_tasks(6, 7, seed=0, update=0)


def test_streams_of_different_purposes_are_independent():
    first = {name: stream(name, 0, 5).integers(2**62) for name in ("tasks", "episodes", "sampling")}
    assert len(set(first.values())) == 3


def test_a_group_with_a_failed_member_is_dropped_whole_and_counted():
    episodes = [
        make_trajectory([Turn("", "", "", 0.0)], id=f"{g}/{m}", group=g, member=m, error=error)
        for g, m, error in ((0, 0, ""), (0, 1, ""), (1, 0, "died"), (1, 1, ""), (2, 0, ""))
    ]
    kept, dropped = drop_failed_groups(episodes)
    assert [t.id for t in kept] == ["0/0", "0/1", "2/0"] and dropped == 1
    assert drop_failed_groups([]) == ([], 0)


class Walker:
    """Walks right; before its ``kill_at``-th turn it kills the worker of the first copies."""

    name = "walker"

    def __init__(self, venv: ToyVectorEnv, kill_at: int = -1, says: str = "right") -> None:
        self.venv, self.kill_at, self.says = venv, kill_at, says
        self.seeds: list[int] = []

    def reseed(self, seed: int) -> None:
        self.seeds.append(seed)

    def act(self, prompts):
        if self.kill_at == 0:
            os.kill(self.venv.copies.pids[0], signal.SIGKILL)
        self.kill_at -= 1
        return [Reply(self.says) for _ in prompts]


def collect(kill_at: int, **options):
    with closing(ToyVectorEnv(4, group_size=2, workers=2)) as venv:
        return RolloutCollector(venv, Walker(venv, kill_at), FORM, seed=0, **options).collect(5)


@pytest.mark.parametrize(("hash_states", "segments"), [(None, True), ("state", False)])
def test_the_group_of_a_killed_worker_is_played_again_or_dropped(hash_states, segments):
    recorded = {"hash_states": hash_states, "segments": segments}
    calm, again, dropped = (
        collect(kill_at, retries=retries, **recorded)
        for kill_at, retries in ((-1, 1), (1, 1), (1, 0))
    )
    assert again.metrics["groups_dropped"] == 0
    # Restarted from the same state, so they equal episodes of an undisturbed run.
    assert again.trajectories == calm.trajectories
    assert all(bool(turn.state) == bool(hash_states) for t in calm.trajectories for turn in t.turns)
    # Without attempts left the whole group is dropped.
    assert dropped.metrics["groups_dropped"] == 1
    assert [t.id for t in dropped.trajectories] == ["u5/2", "u5/3"]
    assert dropped.trajectories == calm.trajectories[2:]
    # Turns of the dropped group were played, so they are counted.
    assert dropped.environment_turns > sum(len(t.turns) for t in dropped.trajectories)


class Judge:
    """A live judge: it fails to judge its first dialogues, or those whose names it is given."""

    name = "toy"
    deterministic = False
    asked = 0

    def __init__(self, fails: int = 0, never: str = "") -> None:
        self.fails, self.never = fails, never

    def score(self, episodes):
        return [self._verdict(episode) for episode in episodes]

    def _verdict(self, episode):
        self.asked += 1
        if self.asked <= self.fails or episode.combination.id == self.never:
            return Verdict(goal=None, status="error", error="the server answers 500")
        return Verdict(goal=(0.7, 0.2), success=(True, False))


def judged(judge: Judge, retries: int = 1):
    options = {"num_envs": 4, "group_size": 2, "judge": judge, "side": 0}
    venv = gym.make_vec("CreditRL/SOTOPIA-v0", **options).unwrapped
    agent = Walker(venv, says="leave")
    return RolloutCollector(venv, agent, FORM, seed=0, retries=retries).collect(0)


def test_an_episode_that_no_live_judge_scored_is_played_again_in_one_process():
    judge = Judge(fails=3)
    found = judged(judge)
    assert found.metrics["groups_dropped"] == 0 and judge.asked == 4 + 3
    assert [t.episode_return for t in found.trajectories] == [0.7] * 4


def test_a_group_that_no_judge_can_score_is_dropped_whole_and_counted():
    first = judged(Judge()).trajectories[0].task.id.rpartition("/")[0]
    judge = Judge(never=first)
    found = judged(judge)
    assert found.metrics["groups_dropped"] == 1 and judge.asked == 4 + 2
    assert [t.group for t in found.trajectories] == [1, 1]
    assert judged(once := Judge(never=first), retries=0).metrics["groups_dropped"] == 1
    assert once.asked == 4


def test_each_update_restarts_the_sampler_and_records_its_number():
    venv = ToyVectorEnv(4, group_size=2)
    agent = Walker(venv)
    collector = RolloutCollector(venv, agent, FORM, seed=0)
    for update in (0, 1, 0):
        found = collector.collect(update)
        assert {t.policy_version for t in found.trajectories} == {update}
    assert agent.seeds[0] == agent.seeds[2] != agent.seeds[1]
