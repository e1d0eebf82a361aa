"""A small household, written by hand: two rooms, a door between them, and a dozen things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from creditrl.envs.virtualhome.acts import Act, Failure
from creditrl.envs.virtualhome.goals import Edge, Goal
from creditrl.envs.virtualhome.graph import Scene, World
from creditrl.envs.virtualhome.problem import Household, HouseholdSource
from creditrl.envs.virtualhome.profiles import FIXED, Profile
from creditrl.envs.virtualhome.rules import perform
from creditrl.types import Task

NODES = """
 1 kitchen     Rooms
 2 bedroom     Rooms
 3 character   Characters
 4 door        Doors       CAN_OPEN                           OPEN
10 fridge      Appliances  CAN_OPEN CONTAINERS HAS_PLUG       CLOSED PLUGGED_IN
11 milk        Food        GRABBABLE DRINKABLE POURABLE
12 table       Furniture   SURFACES MOVABLE
13 mug         Props       GRABBABLE RECIPIENT                DIRTY
14 knife       Props       GRABBABLE
15 apple       Food        GRABBABLE EATABLE CUTTABLE
20 bed         Furniture   SURFACES SITTABLE LIEABLE
21 lamp        Lamps       HAS_SWITCH HAS_PLUG                OFF PLUGGED_IN
22 tv          Electronics HAS_SWITCH LOOKABLE                OFF
23 shirt       Clothes     GRABBABLE CLOTHES
24 book        Props       GRABBABLE READABLE
25 stool       Furniture   SITTABLE GRABBABLE
26 face        Body        BODY_PART
27 water       Drinks      DRINKABLE POURABLE
28 friend      Characters  PERSON
"""
EDGES = """
3 INSIDE 1, 4 INSIDE 1, 4 BETWEEN 1, 4 BETWEEN 2, 10 INSIDE 1, 11 INSIDE 1, 11 INSIDE 10,
12 INSIDE 1, 13 INSIDE 1, 13 ON 12, 14 INSIDE 1, 14 ON 12, 15 INSIDE 1, 15 ON 12, 20 INSIDE 2,
21 INSIDE 2,
22 INSIDE 2, 23 INSIDE 2, 23 ON 20, 24 INSIDE 2, 24 ON 20, 25 INSIDE 2, 26 INSIDE 1, 27 INSIDE 1,
28 INSIDE 2, 20 FACING 22
"""
NEAR = "10 12, 11 10, 13 12, 14 12, 15 12, 20 21, 20 22, 20 23, 20 24, 20 25, 27 12"
STATES = {"CLOSED", "OPEN", "ON", "OFF", "DIRTY", "CLEAN", "PLUGGED_IN", "PLUGGED_OUT", "SITTING"}
SCENE = "TrimmedTestScene1_graph"
"""What upstream's files call the scene, where tests write such files of this household."""


def edge(tail: int, relation: str, head: int) -> dict[str, Any]:
    return {"from_id": tail, "relation_type": relation, "to_id": head}


def graph_of(nodes: str, edges: str, near: str = "") -> dict[str, list[dict[str, Any]]]:
    """Return the graph dict of such texts."""
    graph: dict[str, list[dict[str, Any]]] = {"nodes": [], "edges": []}
    for line in nodes.strip().splitlines():
        id, name, category, *words = line.split()
        graph["nodes"].append(
            {
                "id": int(id),
                "class_name": name,
                "category": category,
                "properties": [word for word in words if word not in STATES],
                "states": [word for word in words if word in STATES],
                "prefab_name": None,
                "bounding_box": None,
            }
        )
    for text in edges.split(","):
        tail, relation, head = text.split()
        graph["edges"].append(edge(int(tail), relation, int(head)))
    for text in filter(None, near.split(",")):
        one, other = map(int, text.split())
        graph["edges"] += [edge(one, "CLOSE", other), edge(other, "CLOSE", one)]
    return graph


def household() -> dict[str, list[dict[str, Any]]]:
    """Return its graph dict, which a test may change."""
    return graph_of(NODES, EDGES, NEAR)


class Home:
    """The household during a sequence of actions."""

    def __init__(self, profile: Profile = FIXED, graph: Any = None) -> None:
        self.scene, self.world = Scene.of(household() if graph is None else graph, "home")
        self.profile = profile

    def do(self, name: str, *ids: int) -> Failure | None:
        self.world, failure = perform(self.scene, self.world, Act(name, ids), self.profile)
        return failure

    def play(self, script: str) -> Home:
        """Do "WALK 13; OPEN 13: wrong_property": each fails with its code, or has none."""
        for part in script.split("; "):
            text, _, code = part.partition(": ")
            name, *ids = text.split()
            assert self.code(name, *map(int, ids)) == code, part
        return self

    def code(self, name: str, *ids: int) -> str:
        before = self.world
        failure = self.do(name, *ids)
        assert failure is None or self.world.key(self.scene) == before.key(self.scene)
        return "" if failure is None else failure.code

    def near(self) -> set[int]:
        return self.heads("CLOSE", 3)

    def heads(self, relation: str, tail: int) -> set[int]:
        return {h for r, t, h in self.world.edges(self.scene) if (r, t) == (relation, tail)}

    def states(self, id: int) -> set[str]:
        return set(self.world.states_of(self.scene.index[id]))


def edges_of(scene: Scene, world: World) -> set[tuple[int, str, int]]:
    return {(tail, relation, head) for relation, tail, head in world.edges(scene)}


def two_mugs() -> Home:
    """Return the household with another mug, 30, in the bedroom."""
    graph = household()
    mug = next(node for node in graph["nodes"] if node["id"] == 13)
    graph["nodes"].append({**mug, "id": 30, "states": ["CLEAN"]})
    graph["edges"] += [edge(30, "INSIDE", 2), edge(30, "CLOSE", 20), edge(20, "CLOSE", 30)]
    return Home(graph=graph)


@dataclass(frozen=True)
class HandMade(HouseholdSource):
    """A task in such a household."""

    goal: Goal
    names: Mapping[str, int] = field(default_factory=dict)
    plan: tuple[Act, ...] = ()
    graph: Any = None
    number: int = field(default_factory=count().__next__, compare=False)
    """No two have the same: an id() may come again while the task is still cached."""

    @property
    def key(self) -> str:
        return f"hand-made {self.number}"

    def load(self) -> Household:
        graph = self.graph or household()
        scene, world = Scene.of(graph, "home")
        edges = tuple((e["from_id"], e["relation_type"], e["to_id"]) for e in graph["edges"])
        return Household(
            *("tidy_up", "Tidy up", "Put the mug on the bed"),
            *(scene, world, self.goal, self.names, self.plan, edges),
        )


MUG_ON_BED = Goal(added=(Edge(13, "ON", 20),), removed=(Edge(13, "ON", 12),))


def make_task(goal: Goal = MUG_ON_BED, **more: Any) -> Task:
    """Return a task in the household: the mug has to be on the bed, and off the table."""
    return Task(
        "home/0", "tidy_up", "train", 0, "Put the mug on the bed", data=HandMade(goal, **more)
    )
