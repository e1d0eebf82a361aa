"""The words of VisualSokoban."""

from __future__ import annotations

from creditrl.envs.words import EnvWords, Example, ExampleTurn

__all__ = ["SOKOBAN"]


def _sokoban_scene(observation: str) -> str:
    convention = (
        "Row 1 is at the top and column 1 at the left: `up` lowers the row by one, `left` the "
        "column."
    )
    rows = [line for line in observation.split("\n") if line.strip()]
    if not rows:
        return convention
    # verl-agent's compat text separates cells by tabs.
    columns = max(len(row.split("\t")) - 1 if "\t" in row else len(row) for row in rows)
    return f"The room has {len(rows)} rows and {columns} columns. {convention}"


_EXAMPLE = Example(
    goal="Push every box onto a target.",
    observation="######\n#____#\n#_X__#\n#P_O_#\n#____#\n######",
    turns=(
        ExampleTurn(
            "The box is at row 3, column 3, and the target at row 4, column 4: it must go right "
            "once and down once. I am at row 4, column 2. To push it right I have to stand left of "
            "it, one cell above me.",
            "up",
            "######\n#____#\n#PX__#\n#__O_#\n#____#\n######",
        ),
        ExampleTurn(
            "I stand left of the box and the cell behind it is free, so I push it right, above the "
            "target.",
            "right",
            "######\n#____#\n#_PX_#\n#__O_#\n#____#\n######",
        ),
        ExampleTurn(
            "Now the box has to go down, so I must get above it: first up, then right.",
            "up",
            "######\n#_P__#\n#__X_#\n#__O_#\n#____#\n######",
        ),
        ExampleTurn(
            "One more step to the right brings me above the box.",
            "right",
            "######\n#__P_#\n#__X_#\n#__O_#\n#____#\n######",
        ),
        ExampleTurn(
            "I am above the box and the target lies below it: one push down solves the puzzle.",
            "down",
            "######\n#____#\n#__P_#\n#__√_#\n#____#\n######",
        ),
    ),
)

SOKOBAN = EnvWords(
    role="a player of the puzzle Sokoban, who pushes boxes onto targets in a small room",
    place="the puzzle Sokoban",
    actions=("up", "down", "left", "right"),
    invalid_answer=(
        "A move into a wall, or against a box that cannot move, changes nothing and costs a turn; "
        "so does anything that is not one of these actions."
    ),
    rules=(
        "You walk one cell at a time. Walking into a box pushes it one cell further, if the cell "
        "behind it is free. Boxes cannot be pulled, and only one box moves at a time: a box in a "
        "corner that is no target is lost. The puzzle is solved when every box stands on a target."
    ),
    text_legend=(
        "`#` wall, `_` free floor, `O` target, `X` box, `√` box on a target, `P` you, `S` you on a "
        "target."
    ),
    image_legend=(
        "You are the green figure, boxes are yellow, targets are red rings, walls are grey bricks; "
        "a box on a target has a red edge, and the floor is red where you stand on a target."
    ),
    scene=_sokoban_scene,
    example=_EXAMPLE,
)
