"""Actions in words: the 42 forms, which node a name stands for, and words that mean one action."""

from __future__ import annotations

import pytest
from small_home import Home, household, two_mugs

from creditrl.envs.virtualhome.actions import FORMS, Meant, Misread, meant, read_action, say
from creditrl.envs.virtualhome.acts import ACTIONS, Act
from creditrl.envs.virtualhome.choices import possible
from creditrl.envs.virtualhome.graph import Scene, World


def act(home: Home, text: str, **names: int) -> Act | str:
    found = read_action(home.scene, home.world, names, text)
    return found.act if isinstance(found, Meant) else found.reason


def test_there_are_42_forms_with_as_many_objects_as_upstream_wants() -> None:
    assert len(FORMS) == 42 and list(FORMS) == list(ACTIONS)
    assert {name: form.count("{}") for name, form in FORMS.items()} == ACTIONS
    assert len(set(FORMS.values())) == 42


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Walk To  KITCHEN ", Act("WALK", (1,))),
        ("stand up", Act("STANDUP")),
        ("put mug on table", Act("PUTBACK", (13, 12))),
        ("put mug in fridge", Act("PUTIN", (13, 10))),
        ("put back mug", Act("PUTOBJBACK", (13,))),
        ("put on shirt", Act("PUTON", (23,))),
        ("pour milk into mug", Act("POUR", (11, 13))),
        ("release mug", Act("RELEASE", (13,))),
        ("grab mug 13", Act("GRAB", (13,))),
        ("grab mug 14", "unknown"),  # the knife's
        ("grab 13", "unknown"),
        ("grab the mug", "unknown"),
        ("grab", "unparsed"),
        ("stand up now", "unparsed"),
        ("put mug", "unparsed"),
        ("", "unparsed"),
        ("fly to kitchen", "unparsed"),
    ],
)
def test_a_text_is_read(text: str, expected: Act | str) -> None:
    assert act(Home(), text) == expected


def test_of_two_readings_the_one_that_names_what_is_there_is_taken() -> None:
    graph = household()
    graph["nodes"][6]["class_name"] = "table_in_oak"
    graph["nodes"][7]["class_name"] = "back_on"
    home = Home(graph=graph)
    # Also PUTIN ("mug on table", "oak"); PUTON ("mug on ..."); PUTOBJBACK ("on").
    assert act(home, "put knife on table in oak") == Act("PUTBACK", (14, 12))
    for back_on in ("back on", "back_on"):  # spaces and underscores are the same
        assert act(home, f"put {back_on} on table in oak") == Act("PUTBACK", (13, 12))


def test_a_name_stands_for_what_was_meant_by_it_and_else_for_the_nearest() -> None:
    home = two_mugs()

    def mug(**names: int) -> int:
        node = meant(home.scene, home.world, names, "mug")
        return home.scene.ids[node]

    assert mug() == 13  # in the same room
    assert mug(mug=30) == 30
    home.play("WALK 2")
    assert mug() == 30  # in the same room
    home.play("WALK 12")
    assert mug() == 13  # in reach of who is at the table
    home.play("WALK 30; GRAB 30; WALK 13")
    assert mug() == 13  # both are CLOSE: the lower id


def test_the_first_of_two_is_what_is_in_the_hand() -> None:
    home = two_mugs().play("WALK 30; GRAB 30")
    assert act(home, "put mug on bed", mug=13) == Act("PUTBACK", (30, 20))
    assert act(home, "put mug 13 on bed", mug=13) == Act("PUTBACK", (13, 20))
    home.play("WALK 13; GRAB 13")
    assert act(home, "put mug on table", mug=13) == Act("PUTBACK", (13, 12))
    assert act(home, "put mug on mug 30", mug=13) == Act("PUTBACK", (13, 30))
    assert act(home, "drink mug", mug=13) == Act("DRINK", (13,))


def test_the_reason_names_what_is_not_there() -> None:
    home = Home()
    assert read_action(home.scene, home.world, {}, "put mug on moon") == Misread("unknown", "moon")
    assert read_action(home.scene, home.world, {}, "dance") == Misread("unparsed", "")


def words_mean_their_acts(scene: Scene, world: World, names: dict[str, int]) -> int:
    acts = possible(scene, world)
    for wanted in acts:
        text = say(scene, world, names, wanted)
        found = read_action(scene, world, names, text)
        assert isinstance(found, Meant) and found.act == wanted, text
        assert found.nodes == tuple(scene.index[id] for id in wanted.objects)
    return len(acts)


@pytest.mark.parametrize("names", [{}, {"mug": 13}, {"mug": 30}])
def test_every_possible_act_can_be_said(names: dict[str, int]) -> None:
    home = two_mugs().play("WALK 30; GRAB 30; WALK 12; GRAB 13")
    assert words_mean_their_acts(home.scene, home.world, names) > 50
