"""Open-ended actions are filled in."""

from __future__ import annotations

from creditrl.envs.hints import fill_hint


def test_the_open_part_of_a_hint_is_filled_with_words_of_the_goal() -> None:
    goal = "find a red shoe"
    # 4 words times 4 lengths: the draw selects one of 16.
    filled = [fill_hint("search[<query>]", goal, draw / 16) for draw in range(16)]
    assert filled[:4] == ["search[find]", "search[find a]", "search[find a red]", f"search[{goal}]"]
    assert filled[4:6] == ["search[a]", "search[a red]"]
    assert filled[-1] == "search[shoe]"
    assert fill_hint("say <what> to <whom>", "x", 0.0) == "say x to <whom>"
    assert fill_hint("search[<query>]", "", 0.99) == "search[something]"
    assert fill_hint("search[<query>]", r"a\\1 \g<0>", 0.0) == r"search[a\\1]"


def test_an_action_without_an_open_part_is_unchanged() -> None:
    assert fill_hint("look", "find a red shoe", 0.5) == "look"
