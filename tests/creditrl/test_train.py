"""``creditrl train`` as a user calls it: a whole run, a killed one, and bad requests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from creditrl.cli import run

SMALL = [
    "--policy.small.layers=1",
    "--policy.small.hidden=16",
    "--policy.small.heads=2",
    "--policy.tokenizer-episodes=16",
    "--clone.episodes=8",
    "--clone.updates=4",
    "--rollout.groups=2",
    "--rollout.group-size=4",
    "--eval.levels=8",
    "--env.options.min-optimal-moves=1",
    "--env.options.max-optimal-moves=3",
    "--run.trajectories-every=1",
    "--run.threads=1",
    "--budget.seconds=None",
]


def train(*flags: str) -> int:
    return run(["train", "@quickstart", *SMALL, *flags])


def test_a_whole_run_leaves_what_the_readme_says(tmp_path, capsys):
    folder = tmp_path / "run"
    assert train(f"--run.folder={folder}", "--budget.updates=3") == 0
    out = capsys.readouterr().out
    for word in ("before", "after", "cloned for the same time", "95 % intervals", "Next: creditrl"):
        assert word in out
    for name in (
        "config.toml",
        "versions.json",
        "command.txt",
        "metrics.jsonl",
        "results.json",
        "learning_curve.png",
        "policy/last/config.json",
    ):
        assert (folder / name).is_file(), name
    assert list((folder / "trajectories").glob("*.parquet"))
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    trained = [row for row in rows if row["phase"] == "train"]
    assert [row["update"] for row in trained] == [1, 2, 3]

    # The command that the run ends with works as it stands.
    following = next(line for line in out.splitlines() if line.startswith("Next: creditrl "))
    arguments = following.removeprefix("Next: creditrl ").split()
    assert run([*arguments, "--episodes=8", f"--out={tmp_path / 'eval.json'}"]) == 0
    result = json.loads((tmp_path / "eval.json").read_text())
    assert result["num_episodes"] == 8
    assert result["overall"]["tokens"]["value"] <= 15  # one token a turn, as it was trained

    # The same folder again: one line, code 2, nothing touched.
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    capsys.readouterr()
    assert train(f"--run.folder={folder}", "--budget.updates=3") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "--run.resume" in error
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before


def _metrics(folder: Path) -> dict[int, dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {row["update"]: row for row in rows if row["phase"] == "train"}


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def test_a_killed_run_goes_on_to_the_same_next_updates(tmp_path):
    flags = [*SMALL, "--run.checkpoint-every=2", "--eval.no-greedy", "--compare.no-clone-same-time"]
    command = [sys.executable, "-m", "creditrl.cli", "train"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    # As long as it takes to be killed in the middle: 400 updates are several seconds.
    subprocess.run(
        [*command, "@quickstart", *flags, "--budget.updates=30", f"--run.folder={whole}"],
        check=True,
        capture_output=True,
        env=_environment(),
    )
    process = subprocess.Popen(
        [*command, "@quickstart", *flags, "--budget.updates=400", f"--run.folder={killed}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_environment(),
    )
    deadline = time.monotonic() + 120
    while not (killed / "checkpoints" / "update_000006").is_dir():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = max(_metrics(killed))
    assert done < 400

    subprocess.run(
        [*command, f"--run.folder={killed}", "--run.resume", "--budget.updates=30"],
        check=True,
        capture_output=True,
        env=_environment(),
    )
    expected, found = _metrics(whole), _metrics(killed)
    # A run that was killed beyond update 30 had nothing left to do; its updates are there.
    assert set(expected) <= set(found)
    for update, row in expected.items():
        for key in ("success", "return", "loss", "grad_norm", "environment_turns"):
            assert found[update][key] == pytest.approx(row[key], rel=1e-4, abs=1e-6), (update, key)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["@quikstart"], "Did you mean"),
        (["@quickstart", "--rollout.gruops=3"], "rollout.group"),
        (["@quickstart", "--rollout.groups=many"], "groups"),
        (["@quickstart", "--method.name=grppo"], "Did you mean 'grpo'"),
        (["@quickstart", "--env.id=VisualSokobann"], "Did you mean"),
        (["@quickstart", "--rollout.form=plian"], "Did you mean 'plain'"),
        (["@quickstart", "--budget.seconds=None"], "budget"),
        (["@quickstart", "--run.resume"], "--run.folder"),
        (["@quickstart", "--run.plugins", "nowhere.py"], "nowhere.py"),
        (["@quickstart", "@quickstart"], "Two recipes"),
        (["--run.folder=/no/such/run", "--run.resume"], "does not exist"),
        ([], "@quickstart"),
    ],
)
def test_a_bad_request_is_one_line_and_code_2(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["train", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert not list(tmp_path.iterdir())


def test_an_unknown_key_in_a_recipe_names_file_and_nearest_key(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("[rollout]\ngruops = 3\n[budget]\nupdates = 1\n")
    assert run(["train", "@mine.toml"]) == 2
    error = capsys.readouterr().err
    assert "mine.toml" in error and "rollout.gruops" in error and "'groups'" in error
    (tmp_path / "torn.toml").write_text("[rollout\n")
    assert run(["train", "@torn.toml"]) == 2
    assert "torn.toml" in capsys.readouterr().err


def test_a_checkpoint_of_another_version_is_refused_untouched(tmp_path, capsys):
    folder = tmp_path / "run"
    quick = ("--compare.no-clone-same-time", "--eval.no-greedy", "--budget.updates=1")
    assert train(f"--run.folder={folder}", *quick) == 0
    meta = next((folder / "checkpoints").glob("*/checkpoint.json"))
    for other in (folder / "checkpoints").glob("*/checkpoint.json"):
        other.write_text(other.read_text().replace('"format": 1', '"format": 7'))
    metrics = (folder / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert run(["train", f"--run.folder={folder}", "--run.resume", "--budget.updates=2"]) == 2
    error = capsys.readouterr().err
    assert "format 7" in error and error.count("\n") == 1
    assert (folder / "metrics.jsonl").read_bytes() == metrics and meta.is_file()


def test_validation_keeps_the_best_policy(tmp_path, capsys):
    folder = tmp_path / "run"
    flags = ("--eval.every=1", "--eval.validation-levels=8", "--compare.no-clone-same-time")
    assert train(f"--run.folder={folder}", "--budget.updates=2", *flags) == 0
    assert (folder / "policy" / "best" / "config.json").is_file()
    assert "best on validation" in capsys.readouterr().out
