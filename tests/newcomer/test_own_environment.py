"""A new user with their own environment and method."""

from __future__ import annotations

import re

import pytest

ENVIRONMENT = "docs/guides/add-an-environment.md"
METHOD = "docs/guides/add-a-method.md"
TRAINING = "docs/guides/training.md"
MOVES = "jump\njump\nclimb\njump\n"
"""Up the stairs that `play` shows first."""
SHORT = (
    "--clone.episodes 8 --clone.updates 4 --compare.no-clone-same-time --eval.levels 4"
    " --budget.updates 2"
)
"""Of a recipe that trains for minutes."""


@pytest.mark.slow
def test_an_environment_and_a_method_are_trained_and_looked_at(newcomer):
    newcomer.saves("stairs.py", newcomer.blocks(ENVIRONMENT, "python")[0])
    newcomer.saves("winners_only.py", newcomer.blocks(METHOD, "python")[0])
    _, block = newcomer.blocks(ENVIRONMENT, "bash")
    told = {line.split()[1]: newcomer.types(line, MOVES) for line in block.splitlines()}
    assert "23 rules hold, 0 broken" in told["check"] and "Solved after 4 turns" in told["play"]
    assert re.search(r"success %.*\d", told["eval"])
    (following,) = re.findall(r"^Next: (creditrl view .*)$", told["eval"], re.M)
    assert "no server needed" in newcomer.types(f"{following} --export evaluation.html")
    before, after = (
        float(re.search(rf"^ ?{when} .*? ([\d.]+) %", told["train"], re.M)[1])
        for when in ("before", "after")
    )
    assert before < 50 and after >= 90
    assert "16 levels of training" in told["train"] and "has no expert" in told["train"]
    assert "gigpo" in told["credit"] and "Not scored" not in told["credit"]
    assert "stairs.html" in told["view"]
    assert (newcomer.folder / "runs/stairs/credit.parquet").is_file()
    for name in ("check", "play", "train"):
        again = newcomer.goes_on(told[name])
        assert "success" in again and re.findall("^Next: .*--plugin stairs.py", again, re.M)
    # The guide's words in one line: a recipe, the environment and the method.
    assert "winners_only" in newcomer.types("creditrl methods --plugin winners_only.py")
    told = newcomer.types(
        "creditrl train @small --env.id stairs.py:Mine/Stairs-v0 --method.name winners_only"
        " --plugin winners_only.py --run.folder runs/winners"
    )
    assert "after winners_only" in told
    assert "success %" in newcomer.goes_on(told)
    assert len(newcomer.typed) <= 15


@pytest.mark.slow
def test_a_new_environments_package_is_tested_and_trained(newcomer):
    make, test, check, train = newcomer.blocks(ENVIRONMENT, "bash")[0].splitlines()
    assert f"Next: {check}" in newcomer.types(make).splitlines()
    tested = newcomer.types(test)
    assert re.search(r"\b2 passed", tested) and "skipped" not in tested
    assert "23 rules hold, 0 broken" in newcomer.types(check)
    assert "after grpo" in newcomer.types(f"{train} --budget.updates 2")


@pytest.mark.slow
def test_a_new_methods_package_is_tested_trained_and_its_policy_pushed(newcomer, hub):
    make, test, train = newcomer.blocks(METHOD, "bash")[0].splitlines()
    assert f"Next: {train}" in newcomer.types(make).splitlines()
    tested = newcomer.types(test)
    assert re.search(r"\b1 passed", tested) and "skipped" not in tested
    assert "after winners_only" in newcomer.types(f"{train} {SHORT} --run.folder runs/NAME")
    (push,) = (block for block in newcomer.blocks(TRAINING, "bash") if "--push" in block)
    plugin = train.partition("--plugin")[2]
    told = newcomer.types(f"{push.strip()} --plugin {plugin}")
    assert f"Pushed to {hub.url}/ACCOUNT/NAME" in told
    pushed = {path.name: path.read_bytes() for path in (newcomer.folder / "policy").iterdir()}
    assert hub.files == pushed and hub.private == {"ACCOUNT/NAME": True}
