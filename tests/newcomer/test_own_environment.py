"""With an environment and a method of one's own."""

from __future__ import annotations

import re
from typing import Any

ENVIRONMENT = "docs/guides/add-an-environment.md"
METHOD = "docs/guides/add-a-method.md"
MOVES = "jump\njump\nclimb\njump\n"
"""Up the stairs that `play` shows first."""


def test_an_environment_and_a_method_are_trained_and_looked_at(newcomer: Any) -> None:
    newcomer.saves("stairs.py", newcomer.blocks(ENVIRONMENT, "python")[0])
    newcomer.saves("winners_only.py", newcomer.blocks(METHOD, "python")[0])
    (block,) = newcomer.blocks(ENVIRONMENT, "bash")
    told = {line.split()[1]: newcomer.types(line, MOVES) for line in block.splitlines()}
    assert "0 broken" in told["check"] and "Solved" in told["play"]
    assert re.search(r"success %.*\d", told["eval"])
    (following,) = re.findall(r"^Next: (creditrl view .*)$", told["eval"], re.M)
    assert "no server needed" in newcomer.types(f"{following} --export evaluation.html")
    before, after = (
        float(re.search(rf"^ ?{when} .*? ([\d.]+) %", told["train"], re.M)[1])
        for when in ("before", "after")
    )
    assert before < 50 and after > before + 30
    assert "gigpo" in told["credit"] and "stairs.html" in told["view"]
    # The guide's words in one line: a recipe, the environment and the method.
    assert "winners_only" in newcomer.types("creditrl methods --plugin winners_only.py")
    told = newcomer.types(
        "creditrl train @small --env.id stairs.py:Mine/Stairs-v0 --method.name winners_only"
        " --plugin winners_only.py --run.folder runs/winners"
    )
    assert "after winners_only" in told
    assert "success %" in newcomer.goes_on(told)
    assert len(newcomer.typed) <= 15
