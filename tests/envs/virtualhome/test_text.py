"""Perception, and the sentence that describes it."""

from __future__ import annotations

from small_home import Home, edge, household

from creditrl.envs.virtualhome.graph import CLOSE
from creditrl.envs.virtualhome.text import describe, near, seen, task_text, told


def perceived(home: Home) -> set[int]:
    return set(home.scene.ids_of(seen(home.scene, home.world)))


def sentence(home: Home, whole_room: bool = False) -> str:
    scene, world = home.scene, home.world
    nodes = near(scene, world.rows[CLOSE][scene.character], seen(scene, world), whole_room)
    return describe(scene, world, nodes)


def test_one_perceives_the_rooms_and_what_is_openly_in_this_one() -> None:
    home = Home().play("WALK 1")
    # All that is INSIDE the kitchen but the milk, which is in the closed fridge.
    assert perceived(home) == {1, 2, 3, 4, 10, 12, 13, 14, 15, 26, 27}
    home.play("WALK 10; OPEN 10")
    assert 11 in perceived(home)
    home.play("WALK 2")
    assert perceived(home) == {1, 2, 3, 20, 21, 22, 23, 24, 25, 28}
    home.play("WALK 13; GRAB 13; WALK 20")  # what is held, though it is said to be in the kitchen
    assert home.heads("INSIDE", 13) == {1} and 13 in perceived(home)


def test_a_box_in_a_closed_box_hides_what_is_in_it() -> None:
    graph = household()
    graph["nodes"][7]["properties"] += ["CAN_OPEN"]
    graph["nodes"][7]["states"] = ["OPEN"]
    graph["edges"] += [edge(13, "INSIDE", 10), edge(14, "INSIDE", 13)]
    home = Home(graph=graph).play("WALK 1")
    assert {13, 14}.isdisjoint(perceived(home))
    home.play("WALK 10; OPEN 10")
    assert {13, 14} <= perceived(home)


def test_a_circle_of_things_inside_each_other_ends() -> None:
    graph = household()
    graph["edges"] += [edge(10, "INSIDE", 11), edge(12, "INSIDE", 13), edge(13, "INSIDE", 12)]
    assert {12, 13} <= perceived(Home(graph=graph).play("WALK 1"))


def test_the_sentence_tells_states_what_lies_on_what_and_what_is_held() -> None:
    home = Home().play("WALK 13")
    assert sentence(home) == "face, mug is DIRTY, table, mug ON table. "
    home.play("GRAB 13")
    assert sentence(home) == "face, mug is DIRTY, table. You have mug. "
    home.play("WALK 10; OPEN 10; GRAB 11")
    assert sentence(home) == (
        "face, fridge is OPEN and PLUGGED_IN, milk, mug is DIRTY. You have milk, mug. "
    )


def test_where_nothing_is_close_nothing_is_told() -> None:
    home = Home().play("WALK 2")
    assert sentence(home) == ""
    assert sentence(home, whole_room=True) == (
        "bed, book, friend, lamp is OFF and PLUGGED_IN, shirt, stool, tv is OFF, book ON bed, "
        "shirt ON bed. "
    )


def test_the_words_are_spas() -> None:
    assert told(["mat is DIRTY"], ["couch ON mat"], ["cup"]) == (
        "mat is DIRTY, couch ON mat. You have cup. "
    )
    assert told([], [], ["cup", "cup"]) == "You have cup, cup. "
    assert task_text("Drink", "Drink water") == "The task is Drink(Drink water)."
