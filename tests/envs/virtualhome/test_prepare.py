"""Households in which programs can be carried out: what is put right, and what is not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from small_home import edge, household

from creditrl.envs.virtualhome.graph import Scene
from creditrl.envs.virtualhome.prepare import Orderly, Preparation, prepare
from creditrl.envs.virtualhome.profiles import FIXED, V1, Profile
from creditrl.envs.virtualhome.program import parse_program
from creditrl.envs.virtualhome.rules import perform
from creditrl.envs.virtualhome.scenes import Placing, Tables
from creditrl.errors import DataError

TABLES = Tables(
    properties={
        "glass": ("GRABBABLE", "RECIPIENT"),
        "remote": ("GRABBABLE",),
        "radio": ("HAS_SWITCH", "HAS_PLUG"),
        "hair": ("BODY_PART",),
        "detergent": ("GRABBABLE", "POURABLE"),
        "pot": ("RECIPIENT",),
    },
    placings={
        "glass": (Placing("bed", "ON", None), Placing("table", "ON", "kitchen")),
        "remote": (Placing("fridge", "INSIDE", None),),
    },
    equivalent={},
)


def prepared(*lines: str, graph: Any = None, profile: Profile = V1) -> Preparation:
    program = parse_program(lines)
    home = Orderly(household() if graph is None else graph)
    return prepare(program, home, TABLES, profile)


def heads(made: Preparation, tail: int, relation: str) -> set[int]:
    edges = made.graph["edges"]
    return {e["to_id"] for e in edges if (e["from_id"], e["relation_type"]) == (tail, relation)}


def states(made: Preparation, id: int) -> set[str]:
    return set(next(n["states"] for n in made.graph["nodes"] if n["id"] == id))


def carried_out(made: Preparation, profile: Profile = V1) -> bool:
    scene, world = Scene.of(made.graph)
    for act in made.acts:
        world, failure = perform(scene, world, act, profile)
        if failure is not None:
            return False
    return True


def test_the_scene_itself_stays_as_it_is() -> None:
    graph = household()
    before = copy.deepcopy(graph)
    assert prepared("[FIND] <glass> (1.1000)", "[GRAB] <glass> (1.1000)", graph=graph).cause == ""
    assert graph == before


def test_things_are_in_good_order_before() -> None:
    made = prepared("[SLEEP]")
    assert states(made, 10) == {"CLOSED", "PLUGGED_IN", "CLEAN"}
    assert states(made, 4) == {"OPEN", "CLEAN"}
    assert states(made, 21) == {"ON", "PLUGGED_IN", "CLEAN"}  # lights are on
    assert states(made, 22) == {"OFF", "CLEAN"}
    assert states(made, 13) == {"CLEAN"}


def test_what_a_program_brings_along_lies_where_it_may_in_the_room_it_is_wanted_in() -> None:
    made = prepared("[WALK] <kitchen> (1)", "[WALK] <glass> (1.1000)", "[GRAB] <glass> (1.1000)")
    assert heads(made, 1000, "INSIDE") == {1}
    assert heads(made, 1000, "ON") == {12}  # the table, though the bed comes first
    made = prepared("[WALK] <bedroom> (2)", "[WALK] <remote> (1.1000)")
    assert (heads(made, 1000, "INSIDE"), heads(made, 1000, "ON")) == ({2}, set())
    made = prepared("[WALK] <glass> (1.1000)")
    assert heads(made, 1000, "INSIDE") == {1}  # a bed is for sitting: nothing is laid there
    assert heads(made, 1000, "ON") == {12}


def test_switches_doors_and_plugs_are_as_the_program_finds_them() -> None:
    made = prepared(
        *("[WALK] <lamp> (21)", "[PLUGIN] <lamp> (21)", "[SWITCHON] <lamp> (21)"),
        *("[SWITCHOFF] <lamp> (21)", "[WALK] <fridge> (10)", "[CLOSE] <fridge> (10)"),
    )
    assert made.cause == "" and carried_out(made)
    assert states(made, 21) >= {"OFF", "PLUGGED_OUT"}
    assert states(made, 10) >= {"OPEN"}


def test_what_the_program_itself_brought_about_is_not_put_right() -> None:
    made = prepared("[WALK] <tv> (22)", "[SWITCHON] <tv> (22)", "[SWITCHON] <tv> (22)")
    assert (made.done, made.cause) == (2, "wrong_state SWITCHON")
    assert made.failure is not None and made.failure.text == "tv (22) is not OFF."


def test_what_is_used_where_one_stands_is_close_there() -> None:
    made = prepared("[WALK] <table> (12)", "[FIND] <tv> (22)", "[SWITCHON] <tv> (22)")
    assert made.cause == "" and heads(made, 22, "CLOSE") == {20}  # found by walking: nothing to do
    made = prepared("[WALK] <tv> (22)", "[WALK] <table> (12)", "[SWITCHON] <tv> (22)")
    assert made.cause == "" and carried_out(made)
    assert heads(made, 22, "CLOSE") == {12, 20}


def test_what_is_looked_for_in_between_is_at_hand() -> None:
    # Walking off for the remote would leave the radio behind.
    lines = [
        "[WALK] <radio> (1.1000)",
        "[FIND] <remote> (1.1001)",
        "[GRAB] <remote> (1.1001)",
        "[SWITCHON] <radio> (1.1000)",
    ]
    made = prepared(*lines)
    assert made.cause == "" and carried_out(made)
    assert heads(made, 1001, "CLOSE") == {1000}


def test_what_is_taken_lies_on_what_it_is_used_with() -> None:
    lines = [
        "[WALK] <pot> (1.1000)",
        "[WALK] <detergent> (1.1001)",
        "[GRAB] <detergent> (1.1001)",
        "[POUR] <detergent> (1.1001) <pot> (1.1000)",
    ]
    made = prepared(*lines)
    assert made.cause == "" and carried_out(made)
    assert heads(made, 1001, "ON") == {1000}


def test_hands_clothes_seats_and_posture_are_put_right() -> None:
    made = prepared("[FIND] <shirt> (23)", "[PUTOFF] <shirt> (23)")
    assert made.cause == "" and heads(made, 23, "ON") == {3}
    made = prepared("[WALK] <table> (12)", "[FIND] <mug> (13)", "[PUTBACK] <mug> (13) <table> (12)")
    assert made.cause == "" and heads(made, 3, "HOLDS_LH") == {13}
    graph = household()
    graph["edges"].append(edge(24, "ON", 25))
    made = prepared("[WALK] <stool> (25)", "[SIT] <stool> (25)", graph=graph)
    assert made.cause == "" and heads(made, 24, "ON") == {20}
    made = prepared("[STANDUP]", "[WALK] <table> (12)")
    assert made.cause == "" and states(made, 3) == {"SITTING"}
    made = prepared("[WALK] <table> (12)", "[STANDUP]")
    assert made.cause == "upright STANDUP"


def test_who_sits_and_watches_faces_what_is_watched() -> None:
    made = prepared(
        "[WALK] <tv> (22)", "[WALK] <stool> (25)", "[SIT] <stool> (25)", "[WATCH] <tv> (22)"
    )
    assert made.cause == "" and heads(made, 25, "FACING") == {22}
    # Who walks there and does not turn to it watches nothing, whatever the graph.
    assert prepared("[WALK] <tv> (22)", "[WATCH] <tv> (22)").cause == "not_facing WATCH"


def test_a_thing_in_something_closed_is_uncovered() -> None:
    made = prepared("[WALK] <milk> (11)", "[GRAB] <milk> (11)")
    assert made.cause == "" and states(made, 10) >= {"OPEN"}
    lines = ["[WALK] <milk> (11)", "[GRAB] <milk> (11)", "[FIND] <fridge> (10)"]
    made = prepared(*lines, "[OPEN] <fridge> (10)")  # later: so the milk is not in it
    assert made.cause == "" and heads(made, 11, "INSIDE") == {1}


@pytest.mark.parametrize("profile", [V1, FIXED], ids=lambda profile: profile.name)
def test_both_rules_can_be_prepared_for(profile: Profile) -> None:
    made = prepared(
        "[WALK] <kitchen> (1)",
        "[FIND] <glass> (1.1000)",
        "[GRAB] <glass> (1.1000)",
        "[WALK] <bed> (20)",
        "[PUTBACK] <glass> (1.1000) <bed> (20)",
        profile=profile,
    )
    assert made.cause == "" and carried_out(made, profile)


def test_equal_programs_are_prepared_alike_whatever_was_prepared_before() -> None:
    lines = ["[WALK] <glass> (1.1000)", "[GRAB] <glass> (1.1000)", "[DRINK] <glass> (1.1000)"]
    home = Orderly(household())
    program = parse_program(lines)
    one = prepare(program, home, TABLES)
    prepare(parse_program(["[SWITCHOFF] <lamp> (21)", *lines]), home, TABLES)
    for other in (prepare(program, home, TABLES), prepared(*lines)):
        assert (one.graph, one.acts, one.cause) == (other.graph, other.acts, other.cause)


def test_what_a_program_brings_along_may_have_any_free_id() -> None:
    made = prepared("[WALK] <glass> (1.9)", "[GRAB] <glass> (1.9)")
    assert made.cause == "" and carried_out(made)


def test_a_program_of_another_scene_is_refused() -> None:
    with pytest.raises(DataError, match="node 10 of the scene .* is a fridge, not a sofa"):
        prepared("[WALK] <sofa> (10)")


def test_a_class_that_no_table_knows_is_named_with_its_line() -> None:
    with pytest.raises(
        DataError, match=r"<program>:2: \[GRAB\] <glas> \(1000\): unknown class 'glas'"
    ):
        prepared("[WALK] <table> (12)", "[GRAB] <glas> (1.1000)")
