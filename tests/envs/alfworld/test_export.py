"""Exports: files that our readers read back as they were, in the layout of the release."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from creditrl.cli import run
from creditrl.envs.alfworld.builtin import GeneratedGames
from creditrl.envs.alfworld.export import ExportOptions, export_games, run_export
from creditrl.envs.alfworld.game import compile_game
from creditrl.envs.alfworld.gamefile import read_game_file
from creditrl.envs.alfworld.generate import HouseholdConfig
from creditrl.envs.alfworld.official import OfficialGames
from creditrl.envs.alfworld.pddl import read_problem
from creditrl.envs.alfworld.problem import FLAVOURS, TASK_TYPES, Flavour
from creditrl.envs.alfworld.rules import apply, choices, goal_status
from creditrl.envs.alfworld.tw_pddl import domain_text, game_data, grammar_text, problem_text
from creditrl.errors import ConfigError

SMALL = HouseholdConfig(size="small", closed=0.5)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    export_games(GeneratedGames("train", SMALL), folder, 12)
    return folder


def test_problems_are_read_back_as_they_were():
    for size in ("small", "large"):
        for task in GeneratedGames("train", HouseholdConfig(size=size, closed=0.5), num_tasks=18):
            problem = task.data.problem()
            again = read_problem(problem_text(problem), task.id)
            assert again == problem
            assert again.goal.type == task.type


def test_the_game_file_says_goal_and_wording():
    task = GeneratedGames("train", SMALL).task(4)
    assert f'"rhs": "Your task is to: {task.goal}."' in grammar_text(task.goal, "0.4")
    assert '"move {o} to {r}"' in grammar_text(task.goal, "0.4")
    assert '"put {o} in/on {r}"' in grammar_text(task.goal, "0.3")
    assert "Available commands" not in grammar_text(task.goal, "0.3")
    assert ":action help" in domain_text("0.4") and ":action help" not in domain_text("0.3")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_action_of_the_domain_has_a_command_and_brackets_close(flavour: Flavour):
    domain = domain_text(flavour)
    assert domain.count("(") == domain.count(")")
    task = GeneratedGames("train", SMALL).task(0)
    grammar = grammar_text(task.goal, flavour)
    actions = re.findall(r"\(:action (\w+)", domain)
    assert len(actions) == (15 if flavour == "0.4" else 14)
    assert re.findall(r"^action (\w+)", grammar, re.MULTILINE) == actions
    # Every rule that a text refers to is there.
    rules = json.loads(grammar[grammar.index('"""') + 3 : grammar.rindex('"""')])
    named = set(re.findall(r"#(\w+)#", grammar))
    assert named <= set(rules)


def test_exports_lie_where_upstream_looks_for_them(exported: Path):
    files = [path for path in exported.rglob("*") if path.is_file()]
    games = [path for path in files if path.name == "game.tw-pddl"]
    assert len(games) == 12 and len(files) == 2 * 12
    for i, task in enumerate(GeneratedGames("train", SMALL, num_tasks=12)):
        home = task.data.household()
        folder = f"{task.type}-{home.object}-None-{home.place}-{home.room.number}"
        trial = f"trial_builtin-small-closed0.5_train_{i}"
        path = exported / "json_2.1.1" / "train" / folder / trial
        assert path / "game.tw-pddl" in games
        told = json.loads((path / "traj_data.json").read_text())
        assert told["task_type"] == task.type
        params = told["pddl_params"]
        assert params["object_target"] == home.object and not params["object_sliced"]
        if task.type == "look_at_obj_in_light":
            assert (params["parent_target"], params["toggle_target"]) == ("", "DeskLamp")
        else:
            assert (params["parent_target"], params["toggle_target"]) == (home.place, "")


def test_walkthroughs_win(exported: Path):
    for task in GeneratedGames("train", SMALL, num_tasks=12):
        (path,) = exported.rglob(f"trial_{task.id.replace('/', '_')}/game.tw-pddl")
        data = json.loads(path.read_text())
        assert data["solvable"] is True
        assert set(data) == {"pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough"}
        assert len(data["walkthrough"]) == task.difficulty
        game = task.data.load()
        state = game.start
        for command in data["walkthrough"]:
            state = apply(game, state, choices(game, state).moves[command])
        met, of = goal_status(game, state)
        assert met == of


def test_the_reader_of_official_games_reads_exports(exported: Path):
    games = OfficialGames("train", data_dir=exported)
    assert not games.left_out and not games.damaged
    assert sorted(task.type for task in games) == sorted(TASK_TYPES * 2)
    ours = {
        task.id.replace("/", "_"): task for task in GeneratedGames("train", SMALL, num_tasks=12)
    }
    for task in games:
        mine = ours[task.id.rpartition("/trial_")[2]]
        assert (task.goal, task.type) == (mine.goal, mine.type)
        read, made = task.data.load(), mine.data.load()
        assert read.start == made.start and read.goal == made.goal
        assert read.object_names == made.object_names and read.holders == made.holders


def test_the_old_wording_is_exported_too(tmp_path: Path):
    (path, *_) = export_games(GeneratedGames("train", SMALL, flavour="0.3"), tmp_path, 1)
    assert read_game_file(path).flavour == "0.3"
    assert " in/on " in json.loads(path.read_text())["walkthrough"][-1]


def test_textworld_gets_the_same_file(exported: Path):
    task = GeneratedGames("train", SMALL).task(2)
    (path,) = exported.rglob("trial_builtin-small-closed0.5_train_2/game.tw-pddl")
    data = json.loads(path.read_text())
    del data["walkthrough"]
    assert task.data.textworld_data() == data


def test_any_household_can_be_written_not_only_ours():
    # Another goal text, no walkthrough, and a problem that was read.
    task = GeneratedGames("train", SMALL).task(1)
    problem = read_problem(problem_text(task.data.problem()), "x")
    data = game_data(problem, "look around", "0.4")
    assert "walkthrough" not in data and "Your task is to: look around." in data["grammar"]
    game = compile_game(read_problem(data["pddl_problem"], "x"), "look around", "0.4")
    assert game.start == task.data.load().start


def test_nothing_is_overwritten(tmp_path: Path):
    games = GeneratedGames("valid_seen", SMALL)
    export_games(games, tmp_path, 2)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="exists already; nothing was written"):
        export_games(games, tmp_path, 5)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_wishes_that_cannot_be_met_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="5000 tasks were asked for: expected 1 to 1000"):
        run_export(ExportOptions(folder=str(tmp_path), split="valid_seen", tasks=5000))
    with pytest.raises(ConfigError, match="-1 tasks were asked for"):
        run_export(ExportOptions(folder=str(tmp_path), tasks=-1))
    with pytest.raises(ConfigError, match="Missing --folder"):
        run_export(ExportOptions())
    with pytest.raises(ConfigError, match="split='all' is unknown"):
        run_export(ExportOptions(folder=str(tmp_path), split="all"))
    assert not list(tmp_path.iterdir())


def test_the_command_line_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "out"
    flags = ["--folder", str(folder), "--split", "valid_unseen", "--tasks", "3", "--size", "small"]
    assert run(["data", "export", "alfworld", *flags]) == 0
    said = capsys.readouterr().out
    assert f"Wrote 3 games below {folder / 'json_2.1.1' / 'valid_unseen'}." in said
    assert len(OfficialGames("valid_unseen", data_dir=folder)) == 3
    assert run(["data", "export", "alfworld", *flags]) == 2
    assert "exists already" in capsys.readouterr().err
    assert run(["data", "export", "sokoban", *flags]) == 2
    assert "known: alfworld" in capsys.readouterr().err
