"""Many runs from one command: finished ones stay, cut ones resume, failed ones are reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from small_runs import TINY

from creditrl.errors import ConfigError, DataError, RunFolderError
from creditrl.runs import RunFolder
from creditrl.trainers.after.finished import FinishedRun, success_table
from creditrl.trainers.run_pool import PlannedRun, is_finished, run_pool


def planned(name: str, *flags: str) -> PlannedRun:
    return PlannedRun(
        name, "@grpo_small", (*TINY, "--eval.no-greedy", "--run.trajectories-every=0", *flags)
    )


@pytest.mark.slow
def test_runs_are_done_once_and_a_failed_one_does_not_stop_the_others(tmp_path):
    # The plugin can be imported in this process, but fails in the training one.
    plugin = tmp_path / "broken.py"
    plugin.write_text(
        "import os\n"
        f"if os.getpid() != {os.getpid()}:\n"
        "    raise RuntimeError('the disk is on fire')\n"
    )
    validated = ("--eval.every-turns=20", "--eval.validation-levels=8")
    runs = [
        planned("bad", f"--run.plugins={plugin}", "--budget.updates=1"),
        planned("good", "--budget.updates=1", *validated, "--run.count-states"),
    ]
    told: list[str] = []
    failed = run_pool(runs, tmp_path / "many", workers=2, show=told.append)
    assert list(failed) == ["bad"] and "RuntimeError: the disk is on fire" in failed["bad"]
    assert not is_finished(tmp_path / "many" / "bad")
    good = FinishedRun.read(tmp_path / "many" / "good")
    assert good.updates == 1 and good.turns > 0 and good.validations[0].turns == 0
    # Outcomes of every task are stored, and CPU time by part.
    assert set(good.validations[-1].success_K.tolist()) <= {0.0, 1.0}
    assert len(good.validations[-1].score_K) == 8
    assert 0 < good.cpu_parts["update"] < good.cpu_seconds
    assert good.validations[-1].cpu_seconds == pytest.approx(sum(good.cpu_parts.values()))
    assert len(good.after["sampled"]) == len(good.levels) == 8
    assert 0 < good.metrics["states_seen"] and good.metrics["rollouts_done"] == 8
    assert sum("done in" in line for line in told) == 1

    # Again: the finished one is not repeated.
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "many" / "good").rglob("*")}
    told.clear()
    assert run_pool(runs[1:], tmp_path / "many", workers=2, show=told.append) == {}
    assert told == ["1 of 1 runs are done already."]
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "many" / "good").rglob("*")} == before

    # The same name with another setting is refused.
    with pytest.raises(RunFolderError, match="other settings"):
        run_pool([planned("good", "--budget.updates=2")], tmp_path / "many", workers=1, show=print)


def test_no_run_starts_if_one_of_them_is_invalid(tmp_path):
    runs = [planned("one", "--budget.updates=1"), planned("two", "--budget.updates=-1")]
    with pytest.raises(ConfigError, match=r"budget\.updates is -1"):
        run_pool(runs, tmp_path / "many", workers=1, show=print)
    assert not (tmp_path / "many").exists()


LONG = ("--budget.updates=20", "--run.checkpoint-every=2")
COMMAND = """
import sys
from pathlib import Path
sys.path += [{here!r}, {above!r}]
from test_run_pool import LONG, planned
from creditrl.trainers.run_pool import run_pool
run_pool([planned("long", *LONG)], Path({folder!r}), workers=1, show=print)
"""


def rows(folder: Path) -> list[dict[str, float]]:
    return [row for row in RunFolder(folder).read_metrics() if row["phase"] == "train"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child outlives a killed parent")
def test_a_killed_command_ends_its_runs_and_can_be_resumed(tmp_path):
    folder, here = tmp_path / "many", Path(__file__).parent
    script = COMMAND.format(here=str(here), above=str(here.parent), folder=str(folder))
    parent = subprocess.Popen([sys.executable, "-c", script])
    checkpoints = folder / "long" / "checkpoints"
    deadline = time.monotonic() + 120
    while not list(checkpoints.glob("update_*")) or not rows(folder / "long"):
        assert parent.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(RunFolderError, match="is being written by process"):
        run_pool([], folder, workers=1, show=print)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert not is_finished(folder / "long")
    # Its child is gone too, so nothing is written any more.
    written: list[dict[str, float]] | None = None
    while (found := rows(folder / "long")) != written:
        assert time.monotonic() < deadline, "the run went on although its command was killed"
        written = found
        time.sleep(0.3)
    kept = int(max(p.name for p in checkpoints.glob("update_*")).removeprefix("update_"))
    assert run_pool([planned("long", *LONG)], folder, workers=1, show=print) == {}
    assert f"after update {kept}" in (folder / "long.log").read_text("utf-8") and len(found) < 20
    assert FinishedRun.read(folder / "long").updates == 20
    assert [row["update"] for row in rows(folder / "long")] == list(range(1, 21))


def test_tables_of_runs_on_other_levels_are_refused(tmp_path):
    def run(name: str, levels: tuple[str, ...], values: list[float]) -> FinishedRun:
        found = {"sampled": np.array(values, dtype=np.float32)}
        return FinishedRun(Path(name), found, found, levels, 0, 0, {}, 0.0, "", {}, [], {})

    one = run("one", ("a", "b"), [1.0, 0.0])
    np.testing.assert_array_equal(
        success_table([one, run("two", ("a", "b"), [1.0, 1.0])], "sampled"), [[1, 1], [0, 1]]
    )
    with pytest.raises(DataError, match="different levels"):
        success_table([one, run("two", ("a", "c"), [1.0, 0.0])], "sampled")
    with pytest.raises(DataError, match="two: episodes of its evaluation failed"):
        success_table([one, run("two", ("a", "b"), [1.0, np.nan])], "sampled")


def test_an_unfinished_run_is_named(tmp_path):
    folder = tmp_path / "run"
    RunFolder.create(folder, planned("x", "--budget.updates=1").config(), "test")
    assert not is_finished(folder) and json.loads((folder / "versions.json").read_text())
    with pytest.raises(DataError, match="--run.resume"):
        FinishedRun.read(folder)
