"""Graph dicts in and out, errors that name the entry, keys, and drafts."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pytest
from small_home import Home, edge, edges_of, household

from creditrl.envs.virtualhome.graph import CLOSE, INSIDE, ON, Draft, GraphError, Scene, bits
from creditrl.errors import DataError


def test_bits_yields_the_positions_of_set_bits() -> None:
    assert list(bits(0b1000101)) == [0, 2, 6]
    assert list(bits(1 << 300)) == [300]
    assert list(bits(0)) == []
    dice = Random(0)
    for count in (1, 11, 12, 13, 100, 299, 300):  # few bits are found by another method than many
        places = sorted(dice.sample(range(300), count))
        assert list(bits(sum(1 << place for place in places))) == places


def test_a_graph_comes_out_as_it_went_in() -> None:
    graph = household()
    graph["nodes"].reverse()
    scene, world = Scene.of(graph, "home")
    again = world.graph(scene)
    for node in (*graph["nodes"], *again["nodes"]):
        node.update({part: sorted(node[part]) for part in ("properties", "states")})
    assert again["nodes"] == graph["nodes"]
    assert edges_of(scene, world) == {
        (e["from_id"], e["relation_type"], e["to_id"]) for e in graph["edges"]
    }
    assert Scene.of(again)[1].key(scene) == world.key(scene)


def test_the_key_ignores_order_and_duplicate_edges() -> None:
    graph = household()
    scene, world = Scene.of(graph)
    rng = Random(3)
    for _ in range(5):
        rng.shuffle(graph["nodes"])
        rng.shuffle(graph["edges"])
        for node in graph["nodes"]:
            rng.shuffle(node["states"])
            rng.shuffle(node["properties"])
        other, same = Scene.of({**graph, "edges": graph["edges"] + graph["edges"][:9]})
        for source in ("state", "world"):
            assert same.key(other, source) == world.key(scene, source)


def test_lower_case_words_are_read_as_upstream_reads_them() -> None:
    graph = household()
    for e in graph["edges"]:
        e["relation_type"] = e["relation_type"].lower()
    for node in graph["nodes"]:
        node["states"] = [state.lower() for state in node["states"]]
        node["properties"] = [name.lower() for name in node["properties"]]
    scene, world = Scene.of(graph)
    home = Home()
    assert world.key(scene) == home.world.key(home.scene)


@pytest.mark.parametrize(
    "change",
    [
        lambda g: g["nodes"][4]["states"].remove("CLOSED"),
        lambda g: g["nodes"][4].update(class_name="freezer"),
        lambda g: g["nodes"][4]["properties"].remove("CAN_OPEN"),
        lambda g: g["edges"].append(edge(11, "ON", 12)),
        lambda g: g["edges"].pop(),
        lambda g: g["edges"].append(edge(11, "FACING", 12)),
    ],
)
def test_every_difference_changes_the_key(change: Any) -> None:
    graph = household()
    before = Scene.of(graph)
    change(graph)
    after = Scene.of(graph)
    assert before[1].key(before[0], "world") != after[1].key(after[0], "world")


def test_the_state_key_covers_where_objects_were_grabbed_and_survives_pickling() -> None:
    one = Home().play("FIND 13; GRAB 13")
    other = Home(graph=one.world.graph(one.scene))
    assert one.world.key(one.scene, "world") == other.world.key(other.scene, "world")
    assert one.world.key(one.scene, "state") != other.world.key(other.scene, "state")
    again = pickle.loads(pickle.dumps(one.world))
    assert again.key(one.scene) == one.world.key(one.scene)


def test_a_draft_does_not_change_the_world_it_starts_from() -> None:
    scene, world = Scene.of(household())
    key, edges = world.key(scene), edges_of(scene, world)
    draft = Draft(world)
    draft.link(ON, scene.index[11], scene.index[12])
    draft.clear(CLOSE, scene.index[12])
    draft.clear_from(INSIDE, scene.index[11])
    draft.become(scene.index[10], 1, 0)
    after = draft.done()
    assert edges_of(scene, world) == edges
    assert world.key(scene) == key != after.key(scene)
    changed = edges_of(scene, after)
    gone = {(a, r, b) for a, r, b in edges if r == "CLOSE" and 12 in (a, b)}
    gone |= {(11, "INSIDE", 1), (11, "INSIDE", 10)}
    assert changed == edges - gone | {(11, "ON", 12)}
    assert after.states_of(scene.index[10]) == ("OPEN", "PLUGGED_IN")


FLAT = {"center": [1, 2, 3], "size": [1, 2]}
BAD: list[tuple[Any, str, str]] = [
    (lambda g: g["edges"].append(edge(10, "ON", 999)), "edges[48]", "999, and no node has it"),
    (lambda g: g["edges"].append(edge(10, "NEXT", 11)), "edges[48]", "unknown relation 'NEXT'"),
    (lambda g: g["edges"].append(edge(10, "INSID", 11)), "edges[48]", "Did you mean 'INSIDE'?"),
    (lambda g: g["edges"].append([1, "ON", 2]), "edges[48]", "is not an edge"),
    (lambda g: g["nodes"].append({**g["nodes"][0]}), "nodes[19]", "the id 1 is there twice"),
    (lambda g: g["nodes"][5].pop("states"), "nodes[5]", "no field 'states'"),
    (lambda g: g["nodes"][5].update(id="11"), "nodes[5]", "'11' is not a number"),
    (lambda g: g["nodes"][5].update(class_name=""), "nodes[5]", "is not a name"),
    (lambda g: g["nodes"][5].update(states=["OPENED"]), "nodes[5]", "unknown state 'OPENED'"),
    (lambda g: g["nodes"][5].update(properties=["EDIBLE"]), "nodes[5]", "unknown property"),
    (lambda g: g["nodes"][5].update(properties=None), "nodes[5]", "a wrong type"),
    (lambda g: g.pop("edges"), "", "no list 'edges'"),
    (lambda g: g["nodes"][2].update(class_name="robot"), "", "0 nodes of class 'character'"),
    (lambda g: g["nodes"][18].update(class_name="character"), "", "2 nodes of class 'character'"),
    (lambda g: g["edges"][3].update(from_id=[1]), "edges[3]", "ends at id [1]"),
    (lambda g: g["nodes"][3].update(category=["Rooms"]), "nodes[3]", "the category ['Rooms']"),
    (lambda g: g["nodes"][3].update(bounding_box="big"), "nodes[3]", "the bounding_box is 'big'"),
    (lambda g: g["nodes"][3].update(bounding_box=FLAT), "nodes[3]", "each with three numbers"),
]


@pytest.mark.parametrize(("change", "where", "what"), BAD)
def test_the_error_of_an_invalid_graph_names_the_entry(change: Any, where: str, what: str):
    graph = household()
    assert len(graph["edges"]) == 48 and len(graph["nodes"]) == 19
    change(graph)
    with pytest.raises(GraphError) as caught:
        Scene.of(graph)
    error = caught.value
    assert str(error).startswith(where) and what in str(error) and "\n" not in str(error)
    assert isinstance(error, DataError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.part, again.entry) == (str(error), error.part, error.entry)


def test_classes_beyond_the_given_ones_are_refused() -> None:
    graph = household()
    classes = {node["class_name"] for node in graph["nodes"]}
    Scene.of(graph, "home", classes)
    graph["nodes"][4]["class_name"] = "frige"
    told = r"nodes\[4\]: unknown class 'frige'. Did you mean 'fridge'"
    with pytest.raises(GraphError, match=told):
        Scene.of(graph, "home", classes)
    with pytest.raises(GraphError, match="no list 'nodes'"):
        Scene.of([])  # type: ignore[arg-type]
