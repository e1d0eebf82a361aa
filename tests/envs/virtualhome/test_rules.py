"""The rules, each by hand in a small household; then what holds of all of them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from small_home import Home, edge, edges_of, household

from creditrl.envs.virtualhome.acts import ACTIONS, Act
from creditrl.envs.virtualhome.bench_walk import draw, stir
from creditrl.envs.virtualhome.choices import possible
from creditrl.envs.virtualhome.graph import Scene, bits
from creditrl.envs.virtualhome.profiles import FIXED, SPA, V1, Profile
from creditrl.envs.virtualhome.rules import perform
from creditrl.envs.virtualhome.turn import glance, is_close, reach, room_of
from creditrl.errors import UnknownNameError

REPAIRED = replace(SPA, name="repaired", crashes=False)
ALL = [FIXED, V1, SPA, REPAIRED]


def by_name(profile: Profile) -> str:
    return profile.name


# -- walking -------------------------------------------------------------------------------------
def test_walking_to_a_thing_leads_into_its_room_and_close_to_what_is_about_it():
    home = Home().all(("WALK", 20))
    assert home.heads("INSIDE", 3) == {2}
    # The bed and the parts of the body; it lies in and on nothing, and does not open.
    assert home.near() == {20, 26}
    home.all(("WALK", 10))
    assert home.heads("INSIDE", 3) == {1}
    assert home.near() == {10, 26, 11}  # what opens is close with what is in it
    home.all(("WALK", 13))
    assert home.near() == {13, 26, 12}  # and a thing with what it is on
    home.all(("WALK", 11))
    assert home.near() == {11, 26, 10}  # or in


def test_walking_to_a_room_leads_close_to_nothing() -> None:
    home = Home().all(("WALK", 20), ("WALK", 1))
    assert home.near() == set()
    assert home.code("WIPE", 12) == "not_close"


def test_in_v1_walking_goes_close_to_the_room_and_to_what_is_on_a_surface() -> None:
    home = Home(V1).all(("WALK", 1))
    assert home.near() == {1, 26}
    home.all(("WALK", 12))
    assert home.near() == {12, 13, 14, 15, 26}
    home.all(("WALK", 10))
    assert home.near() == {10, 26}  # not to what is in it
    home.all(("WALK", 13))
    assert home.near() == {13, 26}  # nor to what it is on


def test_what_is_held_comes_along_and_stays_behind_in_name() -> None:
    home = Home().all(("WALK", 13), ("GRAB", 13), ("WALK", 20))
    assert home.near() == {13, 20, 26}
    assert home.heads("CLOSE", 13) == {3}
    assert home.heads("INSIDE", 13) == {1}  # upstream's; from the next walk on, it is there too
    home.all(("WALK", 21))
    assert home.heads("INSIDE", 13) == {2}


def test_closed_doors_stop_whoever_walks_in_v1_only() -> None:
    graph = household()
    graph["nodes"][3]["states"] = ["CLOSED"]
    home = Home(V1, graph)
    assert home.code("WALK", 20) == "closed_door"
    home.all(("WALK", 4))
    assert home.code("WALK", 20) == "closed_door"  # who is at a door is where the door is
    home.all(("OPEN", 4), ("WALK", 20))
    assert Home(FIXED, graph).code("WALK", 20) == ""


def test_without_a_door_no_way_leads_there_in_v1() -> None:
    graph = household()
    graph["edges"] = [e for e in graph["edges"] if e["relation_type"] != "BETWEEN"]
    assert Home(V1, graph).code("WALK", 20) == "no_path"
    assert Home(FIXED, graph).code("WALK", 20) == ""


def test_what_is_in_no_room_cannot_be_walked_to() -> None:
    graph = household()
    graph["edges"].remove(edge(12, "INSIDE", 1))
    for profile in ALL:
        assert Home(profile, graph).code("WALK", 12) == "no_room"


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_the_room_of_what_lies_in_a_box_in_a_room(profile: Profile) -> None:
    graph = household()
    graph["edges"].remove(edge(11, "INSIDE", 1))
    home = Home(profile, graph)
    room = room_of(home.scene, home.world, home.scene.index[11], profile)
    # v1 looks at the thing itself only.
    assert room == (None if profile is V1 else home.scene.index[1])


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_where_inside_runs_in_a_circle_there_is_no_room_and_no_end(profile: Profile) -> None:
    graph = household()
    for gone in (edge(11, "INSIDE", 1), edge(10, "INSIDE", 1)):
        graph["edges"].remove(gone)
    graph["edges"].append(edge(10, "INSIDE", 11))
    home = Home(profile, graph)
    assert room_of(home.scene, home.world, home.scene.index[11], profile) is None
    assert home.code("WALK", 11) == "no_room"


def test_finding_is_walking_where_the_thing_is_far_and_turning_away_where_it_is_close() -> None:
    home = Home().all(("FIND", 20))
    assert (home.heads("INSIDE", 3), home.near()) == ({2}, {20, 26})
    home.all(("TURNTO", 22), ("FIND", 21))
    assert home.near() == {20, 21, 26}
    assert home.heads("FACING", 3) == set()


def test_as_shipped_finding_what_is_far_crashes() -> None:
    home = Home(SPA)
    assert home.code("FIND", 20) == "crash"
    home.all(("WALK", 20), ("FIND", 21))


# -- posture -------------------------------------------------------------------------------------
def test_sitting_faces_what_the_seat_faces_and_keeps_from_walking():
    home = Home().all(("WALK", 20), ("SIT", 20))
    assert home.heads("ON", 3) == {20} and home.heads("FACING", 3) == {22}
    assert home.states(3) == {"SITTING"}
    assert home.code("WALK", 10) == "not_upright"
    assert home.code("SIT", 20) == "not_upright"
    home.all(("WATCH", 22), ("SLEEP",), ("WAKEUP",), ("STANDUP",))
    assert home.states(3) == set() and home.heads("ON", 3) == {20}  # the edge stays
    assert home.code("STANDUP") == home.code("SLEEP") == "upright"


def test_two_things_on_a_bed_leave_no_room_to_lie_for_the_third_only() -> None:
    # shirt and book are on it; three may be on a bed before nobody can lie there any more
    home = Home().all(("WALK", 20), ("LIE", 20))
    assert home.states(3) == {"LYING"}
    home.all(("STANDUP",))
    assert home.code("LIE", 20) == "occupied"
    assert home.code("SIT", 20) == ""  # four to sit
    assert home.code("LIE", 20) == "occupied"


def test_master_reads_posture_from_the_graph_it_began_with() -> None:
    home = Home(SPA).all(("WALK", 20), ("SIT", 20))
    assert home.states(3) == {"SITTING"}
    assert home.code("SLEEP") == "upright"
    home.all(("WALK", 10))
    graph = household()
    graph["nodes"][2]["states"] = ["SITTING"]
    home = Home(SPA, graph)
    home.all(("STANDUP",))
    assert home.states(3) == set()
    assert home.code("WALK", 10) == "not_upright"
    assert Home(FIXED, graph).all(("STANDUP",)).code("WALK", 10) == ""


# -- hands ---------------------------------------------------------------------------------------
def test_grabbing_takes_a_thing_from_where_it_is():
    home = Home().all(("WALK", 13), ("GRAB", 13))
    assert home.heads("HOLDS_RH", 3) == {13}
    assert home.heads("ON", 13) == set() and home.heads("INSIDE", 13) == {1}
    assert home.heads("CLOSE", 13) == {3}
    assert 12 in home.near()
    home.all(("GRAB", 14))  # on the table, and the table is close
    assert home.heads("HOLDS_LH", 3) == {14}
    assert home.code("GRAB", 15) == "hands_full"
    home.all(("PUTOBJBACK", 13))
    assert home.heads("ON", 13) == {12} and home.heads("HOLDS_RH", 3) == set()
    assert home.code("PUTOBJBACK", 13) == "not_grabbed"


def test_what_can_be_grabbed() -> None:
    home = Home()
    assert home.code("GRAB", 13) == "not_close"
    home.all(("WALK", 10))
    assert home.code("GRAB", 10) == "wrong_property"
    assert home.code("GRAB", 11) == "inside_closed"
    home.all(("OPEN", 10), ("GRAB", 11), ("WALK", 27), ("GRAB", 27))  # water without GRABBABLE
    assert home.scene.ids_of(home.world.held(home.scene)) == (11, 27)


def test_a_thing_is_grabbed_again_in_three_ways() -> None:
    home = Home(FIXED).all(("WALK", 23), ("GRAB", 23))
    assert home.code("GRAB", 23) == "already_held"
    home.all(("PUTON", 23), ("GRAB", 23))
    assert home.heads("HOLDS_RH", 3) == {23}

    home = Home(SPA).all(("WALK", 23), ("GRAB", 23))
    assert home.code("GRAB", 23) == "already_held"
    home.all(("PUTON", 23))
    assert home.code("GRAB", 23) == "already_held"  # remembered, though it is worn

    home = Home(V1).all(("WALK", 23), ("GRAB", 23), ("GRAB", 23))
    assert home.heads("HOLDS_RH", 3) == home.heads("HOLDS_LH", 3) == {23}


def test_putting_something_on_and_in() -> None:
    home = Home().all(("WALK", 13), ("GRAB", 13))
    assert home.code("PUTBACK", 14, 12) == "not_held"
    assert home.code("PUTBACK", 13, 20) == "not_close"
    assert home.code("PUTBACK", 13, 13) == "itself"
    home.all(("WALK", 10))
    assert home.code("PUTIN", 13, 10) == "closed"
    home.all(("OPEN", 10), ("PUTIN", 13, 10))
    assert home.heads("INSIDE", 13) == {1, 10}
    assert home.heads("CLOSE", 13) == {3, 10}
    assert home.world.held(home.scene) == 0
    assert Home(SPA).all(("WALK", 13), ("GRAB", 13)).code("PUTBACK", 13, 13) == ""


def test_putting_back_where_it_cannot_be_put() -> None:
    # The shirt comes from the bed, and the character has gone.
    acts = (("WALK", 23), ("GRAB", 23), ("WALK", 10))
    assert Home(FIXED).all(*acts).code("PUTOBJBACK", 23) == "not_close"
    assert Home(V1).all(*acts).code("PUTOBJBACK", 23) == "not_close"
    home = Home(SPA).all(*acts)
    before = edges_of(home.scene, home.world)
    assert home.code("PUTOBJBACK", 23) == ""  # success, and nothing happened
    assert edges_of(home.scene, home.world) == before


def test_dropping_and_wearing() -> None:
    home = Home().all(("WALK", 23), ("GRAB", 23), ("WALK", 10), ("DROP", 23))
    assert home.heads("INSIDE", 23) == {2, 1} and home.world.memory == {}
    assert home.code("RELEASE", 23) == "not_held"
    home.all(("GRAB", 23))
    assert home.code("PUTOFF", 23) == "not_worn"
    home.all(("PUTON", 23))
    assert home.heads("ON", 23) == {3}
    home.all(("PUTOFF", 23))
    assert home.heads("ON", 23) == set()
    home.all(("WALK", 13), ("GRAB", 13))
    assert home.code("PUTON", 13) == "wrong_property"
    assert Home(SPA).code("PUTOFF", 23) == "crash"


def test_water_runs_out_of_the_hand_that_pours_it() -> None:
    home = Home().all(("WALK", 27), ("GRAB", 27), ("FIND", 13), ("POUR", 27, 13))
    assert home.heads("INSIDE", 27) == {1, 13} and home.world.held(home.scene) == 0
    home.all(("WALK", 10), ("OPEN", 10), ("GRAB", 11))
    assert home.code("DRINK", 11) == ""
    assert home.code("POUR", 11, 12) == "wrong_property"
    home.all(("WALK", 13), ("POUR", 11, 13))
    assert home.heads("INSIDE", 11) == {1, 13} and home.world.held(home.scene) != 0


# -- the rest ------------------------------------------------------------------------------------
def test_opening_and_closing():
    home = Home().all(("WALK", 10))
    assert home.code("CLOSE", 10) == "wrong_state"
    home.all(("OPEN", 10))
    assert home.states(10) == {"OPEN", "PLUGGED_IN"}
    assert home.code("OPEN", 10) == "wrong_state"
    home.all(("CLOSE", 10), ("WALK", 12))
    assert home.code("OPEN", 12) == "wrong_property"
    home.all(("GRAB", 13), ("GRAB", 14), ("WALK", 10))
    assert home.code("OPEN", 10) == "hands_full"


def test_switching_and_plugging() -> None:
    home = Home().all(("WALK", 21), ("PLUGOUT", 21))
    assert home.code("SWITCHON", 21) == "wrong_state"
    home.all(("PLUGIN", 21), ("SWITCHON", 21))
    assert home.states(21) == {"ON", "PLUGGED_IN"}
    assert home.code("SWITCHON", 21) == "wrong_state"
    home.all(("PLUGOUT", 21), ("SWITCHOFF", 21))  # unplugged while on: upstream only complains
    assert home.states(21) == {"OFF", "PLUGGED_OUT"}
    assert home.code("PLUGIN", 22) == "wrong_property"
    assert home.code("SWITCHOFF", 20) == "wrong_property"


def test_cleaning() -> None:
    home = Home().all(("WALK", 13))
    assert home.code("WIPE", 13) == "hands_empty"
    for name in ("WASH", "RINSE", "SCRUB"):
        other = Home().all(("WALK", 13), (name, 13))
        assert other.states(13) == {"CLEAN"}
    home.all(("GRAB", 14), ("WIPE", 13))
    assert home.states(13) == {"CLEAN"}


def test_looking() -> None:
    home = Home().all(("WALK", 20))
    assert home.code("LOOKAT", 22) == home.code("WATCH", 22) == "not_facing"
    home.all(("TURNTO", 20), ("LOOKAT", 22), ("POINTAT", 22), ("WATCH", 22))  # the bed faces it
    assert home.code("WATCH", 20) == "wrong_property"
    home.all(("SIT", 20), ("TURNTO", 20))
    assert home.code("WATCH", 22) == "not_facing"  # who sits has to face it directly
    home.all(("STANDUP",), ("WALK", 12), ("TURNTO", 22))
    assert home.code("WATCH", 22) == "other_room"


def test_eating_cutting_reading_and_the_like() -> None:
    home = Home().all(("WALK", 12))
    assert home.code("EAT", 12) == ""  # an apple is on it
    assert home.code("EAT", 13) == "wrong_property"
    assert home.code("CUT", 15) == "no_knife"
    home.all(("GRAB", 14), ("CUT", 15), ("EAT", 15), ("TOUCH", 15), ("MOVE", 12), ("PUSH", 13))
    assert home.code("PULL", 13) == "wrong_property"
    assert home.code("READ", 24) == "not_held"
    home.all(("WALK", 24), ("GRAB", 24), ("READ", 24))
    assert home.code("READ", 14) == "wrong_property"
    assert home.code("CUT", 15) == home.code("SQUEEZE", 23) == "hands_full"
    home.all(("DROP", 14), ("SQUEEZE", 23), ("TYPE", 21), ("GREET", 28))
    assert home.code("GREET", 23) == home.code("TYPE", 20) == "wrong_property"


def test_in_v1_things_must_have_been_found() -> None:
    home = Home(V1).all(("WALK", 12))
    assert home.code("GRAB", 13) == "not_found"
    assert home.code("TURNTO", 10) == "not_found"
    home.all(("FIND", 13), ("GRAB", 13), ("PUTBACK", 13, 12))
    assert home.code("STANDUP") == "upright"


def test_a_failure_names_the_things_in_a_sentence() -> None:
    failure = Home().do("GRAB", 13)
    assert failure is not None
    assert failure == ("not_close", (13,), "mug (13) is not close.")
    failure = Home().all(("WALK", 10)).do("CLOSE", 10)
    assert failure is not None and failure.text == "fridge (10) is not OPEN."


@pytest.mark.parametrize("act", [Act("FLY", (13,)), Act("GRAB", ()), Act("GRAB", (77,))])
def test_what_is_no_action_is_an_error(act: Act) -> None:
    scene, world = Scene.of(household())
    with pytest.raises(UnknownNameError):
        perform(scene, world, act)


# -- what holds of all ---------------------------------------------------------------------------
def anywhere(profile: Profile, seed: int, steps: int, stirred: bool) -> Home:
    home = Home(profile, stir(household(), seed) if stirred else household())
    rng = Random(seed)
    for _ in range(steps):
        home.world = perform(
            home.scene, home.world, draw(home.scene, home.world, profile, rng), profile
        ).world
    return home


@pytest.mark.parametrize("profile", ALL, ids=by_name)
@pytest.mark.parametrize("seed", range(8))
def test_what_is_possible_is_what_can_be_performed(profile: Profile, seed: int) -> None:
    home = anywhere(profile, seed, 4 * seed, stirred=seed % 4 > 0)
    every = [
        Act(name, ids)
        for name, count in ACTIONS.items()
        for ids in (
            [()]
            if count == 0
            else [(one,) for one in home.scene.ids]
            if count == 1
            else [(one, other) for one in home.scene.ids for other in home.scene.ids]
        )
    ]
    doable = [act for act in every if perform(home.scene, home.world, act, profile).failure is None]
    assert possible(home.scene, home.world, profile) == doable
    some = home.scene.ids[::2]
    assert possible(home.scene, home.world, profile, some) == [
        act for act in doable if set(act.objects) <= set(some)
    ]


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_a_failed_action_leaves_everything_as_it_was(profile: Profile) -> None:
    failed = 0
    for seed in range(6):
        home = anywhere(profile, seed, 10, stirred=seed % 2 > 0)
        before, edges = home.world.key(home.scene), edges_of(home.scene, home.world)
        for name, count in ACTIONS.items():
            act = Act(name, (13, 11)[:count])
            world, failure = perform(home.scene, home.world, act, profile)
            assert home.world.key(home.scene) == before
            if failure is not None:
                failed += 1
                assert world.key(home.scene) == before
                assert edges_of(home.scene, world) == edges
                assert profile.order == "sets" or world is home.world
    assert failed > 100


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_from_a_world_that_was_kept_the_same_acts_lead_to_the_same_worlds(profile: Profile):
    for seed in range(4):
        home = anywhere(profile, seed, 12, stirred=seed % 2 > 0)
        kept, pickled = home.world, pickle.dumps(home.world)
        rng, acts, keys = Random(seed), [], []
        for _ in range(12):
            acts.append(draw(home.scene, home.world, profile, rng))
            home.do(acts[-1].name, *acts[-1].objects)
            keys.append(home.world.key(home.scene))
        assert len(set(keys)) > 1
        for world in (kept, pickle.loads(pickled)):
            home.world = world
            again = []
            for act in acts:
                home.do(act.name, *act.objects)
                again.append(home.world.key(home.scene))
            assert again == keys


def test_the_default_rules_do_not_depend_on_the_order_of_the_graph() -> None:
    for seed in range(6):
        graph = stir(household(), seed)
        mixed: dict[str, Any] = {name: list(graph[name]) for name in graph}
        rng = Random(seed)
        for part in mixed.values():
            rng.shuffle(part)
        one, other = Home(FIXED, graph), Home(FIXED, mixed)
        for _ in range(25):
            act = draw(one.scene, one.world, FIXED, rng)
            assert one.do(act.name, *act.objects) == other.do(act.name, *act.objects)
            assert one.world.key(one.scene) == other.world.key(other.scene)


def test_reach_is_all_that_is_close() -> None:
    for seed in range(5):
        home = anywhere(FIXED, seed, 8, stirred=True)
        assert set(bits(reach(home.scene, home.world))) == {
            n for n in range(len(home.scene.ids)) if is_close(home.scene, home.world, n)
        }


def test_a_glance_changes_nothing_that_can_be_seen() -> None:
    home = Home(SPA).all(("WALK", 13))
    after = glance(home.scene, home.world, SPA, 2)
    assert after.key(home.scene) == home.world.key(home.scene)
    assert glance(home.scene, home.world, FIXED) is home.world
