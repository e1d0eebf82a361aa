"""Copies spread over processes: same results, dead workers reported, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError
from toy_env import ToyVectorEnv

from creditrl.errors import DataError, WorkerError

ACTIONS = ("right", "right", "left", "look", "say hallo", "fly")


@pytest.fixture
def sharded() -> Iterator[ToyVectorEnv]:
    """Six copies in groups of two over three workers."""
    venv = ToyVectorEnv(6, group_size=2, workers=3, dangerous=True)
    yield venv
    venv.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(OSError):  # a zombie has ended, but has not been reaped
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def wait_until_gone(pids: list[int], seconds: float = 10.0) -> list[int]:
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(alive(pid) for pid in pids):
        time.sleep(0.02)
    return [pid for pid in pids if alive(pid)]


def shown(result: Any) -> str:
    return repr([part.tolist() if isinstance(part, np.ndarray) else part for part in result])


@pytest.mark.usefixtures("toy_on_path")
@pytest.mark.parametrize(
    ("context", "steps", "mode"),
    [("fork", 30, "Disabled"), ("fork", 12, "SameStep"), ("spawn", 6, "Disabled")],
)
def test_workers_give_the_results_of_a_single_process(context: str, steps: int, mode: str):
    options: dict[str, Any] = {"group_size": 2, "images": True, "autoreset_mode": mode}
    here = ToyVectorEnv(4, **options)
    with contextlib.closing(ToyVectorEnv(4, workers=2, worker_context=context, **options)) as there:
        assert shown(here.reset(seed=3)) == shown(there.reset(seed=3))
        rng = np.random.default_rng(0)
        for step in range(steps):
            actions = [str(a) for a in rng.choice(ACTIONS, size=4)]
            if mode == "Disabled" and step % 3 == 2:
                some = ([3, 1], actions[:2])
                assert shown(here.step_some(*some)) == shown(there.step_some(*some))
            else:
                assert shown(here.step(actions)) == shown(there.step(actions))
            assert here.state_keys() == there.state_keys()
            assert here.segment_keys([2]) == there.segment_keys([2])
            assert here.episode_seeds.tolist() == there.episode_seeds.tolist()
            if mode == "Disabled" and not here.active.all():
                over = np.repeat(~here.active.reshape(2, 2).all(axis=1), 2)
                masked = {"reset_mask": over}
                assert shown(here.reset(options=masked)) == shown(there.reset(options=masked))
        there.restore(None, here.snapshot())
        assert here.state_keys() == there.state_keys()
        assert there.expert_actions() == ["right"] * 4


def test_a_killed_worker_costs_only_its_own_copies(sharded: ToyVectorEnv):
    twin = ToyVectorEnv(6, group_size=2)
    _, info = sharded.reset(seed=1)
    twin.reset(seed=1)
    before = list(sharded._text[2:4])
    os.kill(sharded.copies.pids[1], signal.SIGKILL)
    observation, reward, terminated, truncated, info = sharded.step(["look"] * 6)
    theirs = twin.step(["look"] * 6)
    assert truncated.tolist() == [False, False, True, True, False, False]
    assert not terminated.any() and reward[2:4].tolist() == [0.0, 0.0]
    assert sharded.active.tolist() == [True, True, False, False, True, True]
    message = info["error"][2]
    assert "copies 2-3" in message and info["task_id"][2] in message and "SIGKILL" in message
    assert [bool(e) for e in info["error"]] == [False, False, True, True, False, False]
    assert list(observation[2:4]) == before  # the last one they returned
    for i in (0, 1, 4, 5):
        assert observation[i] == theirs[0][i] and reward[i] == theirs[1][i]
    # Copies of the dead worker wait like finished ones; the others play on.
    _, reward, _, truncated, info = sharded.step(["right"] * 6)
    theirs = twin.step(["right"] * 6)
    assert not truncated[2:4].any() and reward[2:4].tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(info["cell"][[0, 1, 4, 5]], theirs[4]["cell"][[0, 1, 4, 5]])
    # After a reset everything is as if the worker had not died.
    mask = ~sharded.active
    _, info = sharded.reset(options={"reset_mask": mask})
    assert sharded.active.all() and not any(info["error"])
    twin_mask = np.array([False, False, True, True, False, False])
    _, theirs = twin.reset(options={"reset_mask": twin_mask})
    assert info["task_id"].tolist() == theirs["task_id"].tolist()
    assert sharded.step(["right"] * 6)[0] == twin.step(["right"] * 6)[0]


def test_a_worker_that_dies_in_a_step_truncates_its_copies_and_is_replaced_at_reset(sharded):
    twin = ToyVectorEnv(6, group_size=2)
    sharded.reset(seed=0)
    _, _, _, truncated, info = sharded.step(["look"] * 5 + ["die"])
    assert truncated.tolist() == [False] * 4 + [True, True]
    assert info["turn"].tolist() == [1, 1, 1, 1, 0, 0]
    os.kill(sharded.copies.pids[0], signal.SIGKILL)  # not noticed before the reset
    assert sharded.reset(seed=4)[0] == twin.reset(seed=4)[0]
    assert sharded.step(["right"] * 6)[0] == twin.step(["right"] * 6)[0]


def test_idle_copies_of_a_dead_worker_end_at_their_next_step(sharded: ToyVectorEnv):
    sharded.reset(seed=0)
    _, _, _, truncated, info = sharded.step_some([2], ["die"])
    assert truncated.tolist() == [True] and sharded.active[3]
    with pytest.raises(WorkerError, match="copies 2-3"):
        sharded.state_keys("state", [3])
    with pytest.raises(WorkerError, match="copies 2-3"):
        sharded.snapshot()
    assert sharded.expert_actions([3, 4]) == [None, "right"]
    assert sharded.segment_keys([3, 4]) == ["", "near"]
    _, _, _, truncated, info = sharded.step_some([4, 3], ["look", "look"])
    assert truncated.tolist() == [False, True] and "copies 2-3" in info["error"][1]


def test_a_death_between_steps_is_an_error_in_queries_and_a_truncation_at_the_next_step(
    sharded: ToyVectorEnv,
):
    sharded.reset(seed=0)
    snaps = sharded.snapshot()
    os.kill(sharded.copies.pids[0], signal.SIGKILL)
    with pytest.raises(WorkerError, match="copies 0-1"):
        sharded.state_keys()
    _, _, _, truncated, _ = sharded.step(["look"] * 6)
    assert truncated.tolist() == [True, True, False, False, False, False]
    _, info = sharded.restore([0, 1], snaps[:2])  # a restore revives them, like a reset
    assert sharded.active.all() and not any(info["error"])
    assert not sharded.step(["look"] * 6)[3].any()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_autoreset_revives_copies_of_dead_workers(mode: str):
    with contextlib.closing(
        ToyVectorEnv(4, workers=2, dangerous=True, autoreset_mode=mode)
    ) as venv:
        venv.reset(seed=0)
        _, _, _, truncated, info = venv.step(["look", "look", "look", "die"])
        assert truncated.tolist() == [False, False, True, True]
        error = info["final_info"]["error"] if mode == "SameStep" else info["error"]
        assert "copies 2-3" in error[3]
        _, _, _, truncated, info = venv.step(["look"] * 4)
        assert not truncated.any() and not any(info["error"])


def test_errors_in_a_worker_are_raised_here_and_the_worker_survives(sharded: ToyVectorEnv):
    sharded.reset(seed=0)
    pids = sharded.copies.pids
    with pytest.raises(DataError, match="a damaged file"):
        sharded.step_some([0, 2], ["damage", "look"])
    with pytest.raises(WorkerError, match="ZeroDivisionError: a bug of the engine"):
        sharded.step_some([4, 2], ["raise", "look"])
    assert sharded.copies.pids == pids
    _, info = sharded.reset(seed=1)  # no earlier answer is left in a pipe
    assert info["turn"].tolist() == [0] * 6
    assert sharded.step(["look"] * 6)[4]["turn"].tolist() == [1] * 6


def test_a_worker_that_cannot_build_its_engine_says_why():
    with (
        contextlib.closing(ToyVectorEnv(4, workers=2, broken_build=True)) as venv,
        pytest.raises(DataError, match="no corridor"),
    ):
        venv.reset(seed=0)


def test_close_ends_the_workers_and_may_be_repeated(sharded: ToyVectorEnv):
    sharded.reset(seed=0)
    pids = sharded.copies.pids
    sharded.close()
    sharded.close()
    assert wait_until_gone(pids) == []
    with pytest.raises(ClosedEnvironmentError, match="after close"):
        sharded.step(["look"] * 6)


def test_collecting_the_environment_ends_its_workers():
    venv = ToyVectorEnv(2, workers=2)
    pids = venv.copies.pids
    del venv
    assert wait_until_gone(pids) == []


PARENT = """
    import sys, time
    sys.path.insert(0, {folder!r})
    import toy_env
    venv = toy_env.ToyVectorEnv(4, workers=2)
    venv.reset(seed=0)
    os_pids = venv.copies.pids
    print(*os_pids, flush=True)
    {then}
"""


@pytest.mark.parametrize("end", ["returns", "is killed"])
def test_no_worker_outlives_its_parent(end: str, toy_on_path: Path):
    then = "time.sleep(60)" if end == "is killed" else "pass"
    code = textwrap.dedent(PARENT.format(folder=str(toy_on_path), then=then))
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        if end == "is killed":
            parent.kill()
        parent.wait(timeout=20)
    assert wait_until_gone(pids) == []


def test_an_interrupted_call_leaves_no_stale_answer(sharded: ToyVectorEnv):
    sharded.reset(seed=0)
    stopped = sharded.copies.pids[1]
    os.kill(stopped, signal.SIGSTOP)  # a slow worker
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        sharded.step(["say late"] * 6)
    assert wait_until_gone([stopped]) == []
    _, _, _, truncated, info = sharded.step(["say now"] * 6)
    assert truncated[2:4].all()
    assert all(a == "say now" for a in info["action"][[0, 1]])
    _, info = sharded.reset(seed=1)
    assert info["turn"].tolist() == [0] * 6 and sharded.active.all()


def test_a_forked_copy_of_this_process_leaves_the_workers_alone(sharded: ToyVectorEnv):
    sharded.reset(seed=0)
    child = os.fork()
    if child == 0:
        sharded.copies._finalizer()  # what a forked child's ordinary exit would run
        os._exit(0)
    os.waitpid(child, 0)
    assert not sharded.step(["look"] * 6)[3].any()
