"""Goals: what differs, what holds, and equal goals under equal keys."""

from __future__ import annotations

from small_home import Home

from creditrl.envs.virtualhome.goals import Edge, Goal, checks, goal_between, goal_status, unmet

GOAL = Goal(
    states=((13, frozenset({"CLEAN"})), (22, frozenset({"ON"}))),
    added=(Edge(13, "ON", 20),),
    removed=(Edge(13, "ON", 12),),
)


def test_conditions_hold_one_by_one() -> None:
    home = Home()
    count = checks(home.scene, GOAL)

    def met() -> int:
        found = goal_status(home.scene, home.world, GOAL)
        assert found == (count(home.world), 4)
        return found[0]

    assert met() == 0
    home.play("WALK 13; WASH 13")
    assert met() == 1
    home.play("GRAB 13")
    assert met() == 2  # it is off the table
    home.play("WALK 20; PUTBACK 13 20")
    assert met() == 3
    assert unmet(home.scene, home.world, GOAL) == Goal(states=((22, frozenset({"ON"})),))
    home.play("SWITCHON 22")
    assert met() == 4


def test_all_states_of_a_node_count() -> None:
    home = Home()
    wanted = Goal(states=((10, frozenset({"CLOSED"})),))  # it is PLUGGED_IN too
    assert checks(home.scene, wanted)(home.world) == 0
    home.play("WALK 10; PLUGOUT 10")
    wanted = Goal(states=((10, frozenset({"CLOSED", "PLUGGED_OUT"})),))
    assert checks(home.scene, wanted)(home.world) == 1


def test_a_goal_is_what_differs_in_states_and_places() -> None:
    home = Home()
    before = home.world
    home.play("WALK 13; WASH 13; GRAB 13; WALK 20; SIT 20; TURNTO 22")
    found = goal_between(home.scene, before, home.world)
    assert found == Goal(
        states=((3, frozenset({"SITTING"})), (13, frozenset({"CLEAN"}))),
        added=(Edge(3, "ON", 20), Edge(3, "INSIDE", 2), Edge(3, "HOLDS_RH", 13)),
        removed=(Edge(13, "ON", 12), Edge(3, "INSIDE", 1)),
    )  # neither CLOSE nor FACING
    assert checks(home.scene, found)(home.world) == found.size == 7
    assert checks(home.scene, found)(before) == 0
    assert goal_between(home.scene, before, before).size == 0
    everything = goal_between(home.scene, before, home.world, ("FACING",))
    assert everything.added == (Edge(3, "FACING", 22),)
    other = Goal(GOAL.states[::-1], GOAL.added, GOAL.removed)  # equal goals have equal keys
    assert other.key() == GOAL.key()
    assert Goal(GOAL.states, GOAL.removed, GOAL.added).key() != GOAL.key()
