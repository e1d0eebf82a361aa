"""The tables of the house generator hang together."""

from __future__ import annotations

from creditrl.envs.virtualhome.graph import PROPERTIES, STATES
from creditrl.envs.virtualhome.vocabulary import (
    BODY_PARTS,
    FIXTURES,
    STRUCTURE,
    THINGS,
    ObjectClass,
)

TABLES = (STRUCTURE, BODY_PARTS, FIXTURES, THINGS)
CLASSES: dict[str, ObjectClass] = {name: kind for table in TABLES for name, kind in table.items()}


def test_a_name_stands_for_one_class_whose_properties_and_states_are_upstreams() -> None:
    assert len(CLASSES) == sum(len(table) for table in TABLES)
    assert len(FIXTURES) >= 50 and len(THINGS) >= 100
    for name, kind in CLASSES.items():
        assert set(kind.properties) <= set(PROPERTIES), name
        assert len(set(kind.properties)) == len(kind.properties), name
        assert set(kind.states) <= set(STATES), name


def test_names_can_be_read_in_one_way_only_within_text_commands() -> None:
    # "put a on b on c" could be read in two ways.
    for name in CLASSES:
        assert name == name.lower() and name.replace("_", "").isalpha()
        words = set(name.split("_"))
        assert not words & {"in", "on", "into", "to", "at", "off", "up", "back", "out"}


def test_states_follow_from_properties() -> None:
    assert CLASSES["microwave"].states == ("CLOSED", "OFF", "PLUGGED_IN", "CLEAN")
    assert CLASSES["apple"].states == ("CLEAN",)
    assert CLASSES["light"].states == ("OFF", "CLEAN")
    # What is on cannot be opened.
    assert "HAS_SWITCH" not in CLASSES["fridge"].properties + CLASSES["freezer"].properties


def test_things_can_be_carried_and_lie_where_such_things_can_lie() -> None:
    places = {**FIXTURES, "floor": STRUCTURE["floor"]}
    for thing in THINGS.values():
        assert {"GRABBABLE", "MOVABLE"} <= set(thing.properties)
        assert thing.homes and 0 < thing.owned <= 1 and thing.most >= 1
        for relation, place in thing.homes:
            needed = "SURFACES" if relation == "ON" else "CONTAINERS"
            assert needed in places[place].properties, (thing.name, place)


def test_something_may_be_the_host_of_whatever_stands_on_another() -> None:
    for fixture in FIXTURES.values():
        assert bool(fixture.hosts) == (
            fixture.stand in ("on", "above", "beside", "before", "around")
        )
        for host in fixture.hosts:
            assert (
                fixture.stand != "on" or "SURFACES" in FIXTURES[host].properties or host == "sink"
            )
        assert bool(fixture.height) == (fixture.stand in ("hung", "above"))


def test_most_things_are_in_a_house_once_so_that_a_name_says_which_is_meant() -> None:
    assert {name for name, thing in THINGS.items() if thing.most > 1} == {
        *("plate", "bowl", "mug", "water_glass", "fork", "spoon", "towel", "pillow"),
    }
