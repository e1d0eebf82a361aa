"""Official tasks and the files that they are in: every layout, and the line of what is wrong."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from env_helpers import refusal
from small_home import Home, edge, edges_of, household

import creditrl
from creditrl.envs.tasks import SPLITS
from creditrl.envs.virtualhome import official
from creditrl.envs.virtualhome.acts import Act
from creditrl.envs.virtualhome.bench_walk import read_words
from creditrl.envs.virtualhome.goals import Edge, Goal
from creditrl.envs.virtualhome.graph import Scene
from creditrl.envs.virtualhome.official import official_coverage, official_splits, official_tasks
from creditrl.envs.virtualhome.profiles import V1
from creditrl.envs.virtualhome.program import parse_program
from creditrl.envs.virtualhome.scenes import OfficialFolder, Placing, scene_of
from creditrl.errors import DataError, UnknownNameError

ENV_ID = "CreditRL/VirtualHome-v0"
SCENE = "TrimmedTestScene1_graph"
ACTS = ("[WALK] <mug> (1.13)", "[GRAB] <mug> (1.13)", "[WALK] <bed> (1.20)")
ACTS += ("[PUTBACK] <mug> (1.13) <bed> (1.20)",)
IDLE = ("[WALK] <mug> (1.13)", "[TOUCH] <mug> (1.13)")
TOLD = ("Tidy up", "Put the mug on the bed")
GOAL = Goal(
    added=(Edge(3, "INSIDE", 2), Edge(13, "ON", 20)),
    removed=(Edge(3, "INSIDE", 1), Edge(13, "ON", 12)),
)


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")


def after(acts: tuple[str, ...] = ACTS) -> dict[str, Any]:
    home = Home(V1)
    for name, ids in parse_program(acts).acts(home.scene):
        assert home.do(name, *ids) is None
    return home.world.graph(home.scene)


def write_triple(folder: Path, file: str = "file1_1", acts: tuple[str, ...] = ACTS) -> None:
    inner = f"{SCENE}/set/{file}"
    write(folder / f"executable_programs/{inner}.txt", "\n".join((*TOLD, "", "", *acts)))
    graphs = {"init_graph": household(), "final_graph": after(acts)}
    write(folder / f"init_and_final_graphs/{inner}.json", graphs)


def differing(**parts: Any) -> dict[str, Any]:
    """Return a goal as SPA writes it."""
    return {**dict.fromkeys(("nodes", "revised_nodes", "revised_add_edges"), []), **parts}


def line(**more: Any) -> dict[str, Any]:
    """Return a task as SPA writes it."""
    return {
        "id": "17",
        "path": f"/data/somebody/{'x' * 120}/{SCENE}/set/file1_1.txt",
        "task": TOLD[0],
        "description": TOLD[1],
        "object_id_dict": {"mug": 13, "bed": 20},
        "revised_graph": differing(
            revised_nodes=[edge(13, "ON", 12)], revised_add_edges=[edge(13, "ON", 20)]
        ),
        **more,
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CREDITRL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def only(folder: Path, source: str, split: str = "all") -> Any:
    (task,) = official_tasks(split, source, folder)
    return task


# -- triples -------------------------------------------------------------------------------------
def test_a_triple_is_a_task_with_what_its_program_changed(folder):
    write_triple(folder)
    task = only(folder, "triples")
    assert (task.id, task.type) == (f"triples/{SCENE}/set/file1_1", "Tidy up")
    assert (task.goal, task.difficulty) == ("Tidy up(Put the mug on the bed)", 4.0)
    home = task.data.load()
    assert home.goal == GOAL
    assert home.names == {"mug": 13, "bed": 20}
    assert home.plan[-1] == Act("PUTBACK", (13, 20))
    assert home.edges is not None and home.edges[0] == (3, "INSIDE", 1)


def test_a_program_that_changes_nothing_is_left_out_and_counted(folder: Path) -> None:
    write_triple(folder, "file2_1", IDLE)
    with pytest.raises(DataError, match=r"no task of triples, split 'all' \(left out: 1 empty goa"):
        official_tasks("all", "triples", folder)
    with pytest.raises(DataError, match="no task of spa, split 'train'. `creditrl data get"):
        official_tasks("train", "spa", folder)
    with pytest.raises(DataError, match="no such folder"):
        official_tasks("all", "triples", folder / "nowhere")
    folder = folder.parent / "more"
    write_triple(folder)
    write_triple(folder, "file2_1", IDLE)
    tasks = official_tasks("all", "triples", folder)
    assert [task.id for task in tasks] == [f"triples/{SCENE}/set/file1_1"]
    assert tasks.left_out == {f"triples/{SCENE}/set/file2_1": "empty goal"}
    assert tasks.reasons() == {"empty goal": 1}


def test_a_program_without_graphs_is_no_task_and_counted(folder: Path) -> None:
    write_triple(folder)
    assert official_tasks("all", "triples", folder).coverage.complete
    write_triple(folder, "file2_1")
    (folder / f"init_and_final_graphs/{SCENE}/set/file2_1.json").unlink()
    for cached in (official._tasks, official._folder, official._by_id):
        cached.cache_clear()
    coverage = official_tasks("all", "triples", folder).coverage
    assert str(coverage) == f"1 of 2 programs with graphs (no graphs of {SCENE}/set/file2_1)"
    assert official_coverage(folder) == [coverage]


def test_a_damaged_graph_is_named(folder: Path) -> None:
    write_triple(folder)
    path = folder / f"init_and_final_graphs/{SCENE}/set/file1_1.json"
    graphs = json.loads(path.read_text())
    graphs["init_graph"]["edges"].append(edge(13, "ON", 999))
    path.write_text(json.dumps(graphs))
    task = only(folder, "triples")
    with pytest.raises(DataError, match=r"file1_1.txt: its initial graph: edges\[\d+\]: .* id 999"):
        task.data.load()


def test_official_tasks_are_played_under_spas_rules(folder: Path) -> None:
    write_triple(folder)
    env = gym.make(ENV_ID, data="official", data_dir=folder, split="all", profile="spa")
    text, info = env.reset(seed=0)
    assert text == "The task is Tidy up(Put the mug on the bed)."
    assert info["goal"] in text and info["task_type"] == "Tidy up"
    plan = ["walk to mug", "grab mug", "walk to bed", "put mug on bed"]
    assert creditrl.expert_plan(env) == plan
    for action in plan:
        *_, info = env.step(action)
    assert info["success"] and info["score"] == 1.0


# -- programs ------------------------------------------------------------------------------------
def write_programs(folder: Path, **programs: tuple[str, ...]) -> None:
    write(folder / f"2018/{SCENE}.json", household())
    for name in ("properties_data", "object_script_placing", "class_name_equivalence"):
        write(folder / f"resources/{name}.json", {})
    for file, acts in programs.items():
        path = folder / f"original_executable_progs/{SCENE}/set/{file}.txt"
        write(path, "\n".join((*TOLD, "", "", *acts)))


def test_programs_that_fail_are_left_out_and_the_index_is_kept(
    folder, tmp_path, monkeypatch, capsys
):
    fails = ("[WALK] <mug> (1.13)", "[GRAB] <table> (1.12)")
    write_programs(folder, file1_1=ACTS, file2_1=IDLE, file3_1=fails)
    tasks = official_tasks("all", "programs", folder)
    (task,) = tasks
    assert task.id == f"programs/{SCENE}/set/file1_1"
    goal = task.data.load().goal  # in a scene prepared for it
    assert Edge(13, "ON", 20) in goal.added and Edge(13, "ON", 12) in goal.removed
    reasons = ["cannot be carried out: not_found GRAB", "empty goal"]
    assert sorted(tasks.left_out.values()) == reasons
    (kept,) = (tmp_path / "cache" / "virtualhome").iterdir()
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"First listing of {folder}: which of its programs can")
    assert "\nprepare: 3/3 programs" in err and f"kept for later listings: {kept}\n" in err
    before = kept.read_text()
    monkeypatch.setattr(official, "_fault", None)  # it is not asked again
    for cached in (official._faults, official._tasks, official._programs_by_path):
        cached.cache_clear()
    assert official_tasks("all", "programs", folder).left_out == tasks.left_out
    assert kept.read_text() == before and capsys.readouterr().err == ""


# -- SPA's files ---------------------------------------------------------------------------------
def write_spa(folder: Path, *lines: Any, file: str = "new_unseen_test") -> None:
    write(folder / f"{file}.jsonl", "\n".join(map(json.dumps, lines)))


def test_spas_lines_are_tasks_as_they_are(folder: Path) -> None:
    write_triple(folder)
    write_spa(folder, line(), line(id="18", revised_graph=differing()))
    for split in ("valid_unseen", "new_unseen_test"):
        task = only(folder, "spa", split)
        assert (task.id, task.goal) == ("new_unseen_test/17", "Tidy up(Put the mug on the bed)")
    home = task.data.load()
    assert home.goal == Goal(added=(Edge(13, "ON", 20),), removed=(Edge(13, "ON", 12),))
    assert home.names == {"mug": 13, "bed": 20} and len(home.plan) == 4
    assert official_tasks("valid_unseen", "spa", folder).reasons() == {"empty goal": 1}
    with pytest.raises(DataError, match="no task of spa, split 'valid_seen'"):
        official_tasks("valid_seen", "spa", folder)
    goal = differing(nodes=[{**household()["nodes"][7], "states": ["CLEAN"]}])
    write_spa(folder.parent / "states", line(revised_graph=goal), file="vh_seen_test")
    write_triple(folder.parent / "states")
    task = only(folder.parent / "states", "spa", "valid_seen")
    assert task.data.load().goal == Goal(states=((13, frozenset({"CLEAN"})),))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"path": "nowhere.txt"}, "the path 'nowhere.txt' names no TrimmedTestScene"),
        ({"revised_graph": {}}, "no field 'nodes'"),
        ({"object_id_dict": [1]}, "'list' object has no attribute 'items'"),
        ({"revised_graph": differing(nodes=[{"id": 1, "states": "x"}])}, "unknown state 'X'"),
        (
            {"revised_graph": differing(revised_nodes=[edge(1, "UNDER", 2)])},
            "unknown relation 'UNDER'",
        ),
    ],
)
def test_a_damaged_line_is_named(change: dict[str, Any], problem: str, folder: Path) -> None:
    write_triple(folder)
    write_spa(folder, line(), line(**change))
    message = refusal(DataError, official_tasks, "valid_unseen", "spa", folder)
    assert message.startswith(str(folder / "new_unseen_test.jsonl:2: no task of SPA's"))
    assert problem in message


def test_a_line_and_a_graph_of_different_releases_are_told_apart(folder: Path) -> None:
    write_triple(folder)
    goal = differing(nodes=[{**household()["nodes"][7], "class_name": "cup"}])
    write_spa(folder, line(revised_graph=goal))
    task = only(folder, "spa", "valid_unseen")
    with pytest.raises(DataError, match=r"node 13 as 'cup', and the graph has mug \(13\)"):
        task.data.load()
    write_spa(folder.parent / "more", line())
    task = only(folder.parent / "more", "spa", "valid_unseen")
    with pytest.raises(DataError, match="no init_and_final_graphs/TrimmedTestScene1_graph/set/fil"):
        task.data.load()


# -- splits --------------------------------------------------------------------------------------
@pytest.mark.slow
def test_splits_of_ours_share_nothing_and_unseen_names_are_unseen(test_data: Path) -> None:
    folder = test_data / "virtualhome"
    parts = {split: list(official_tasks(split, "triples", folder)) for split in SPLITS}
    every = official_tasks("all", "triples", folder)
    assert [len(parts[split]) for split in SPLITS] == [202, 15, 27]
    assert official_splits("triples") == (*SPLITS, "all")
    assert "new_unseen_test" in official_splits("spa")
    assert sorted(t.id for tasks in parts.values() for t in tasks) == sorted(t.id for t in every)
    assert every.reasons() == {"empty goal": 7} and len(every) == 244
    names = {split: {task.type for task in tasks} for split, tasks in parts.items()}
    assert names["valid_seen"] <= names["train"] and not names["valid_unseen"] & names["train"]


# -- the real ones -------------------------------------------------------------------------------
@pytest.mark.parametrize("profile", ["fixed", "v1"])
def test_the_expert_solves_real_tasks(profile: str, test_data: Path) -> None:
    folder = test_data / "virtualhome"
    options: dict[str, Any] = {"split": "all", "profile": profile, "max_turns": 100}
    env = gym.make(ENV_ID, data="official", data_dir=folder, **options)
    for index in range(0, 244, 20):
        env.reset(seed=0, options={"task": index})
        plan = creditrl.expert_plan(env)
        assert plan is not None, index
        for action in plan:
            *_, info = env.step(action)
        assert info["success"], info["task_id"]


BAD_ACT = '{"path": "a/b/c.txt", "text": "T\\n[FLY]"}\n'
PROGRAM = "Tidy up\nPut the mug away\n\n\n[WALK] <mug> (1.13)\n[GRAB] <mug> (1.13)\n"


# -- one graph -----------------------------------------------------------------------------------
def written(graph: Any, indent: int | None = 1) -> str:
    return json.dumps(graph, indent=indent)


@pytest.mark.parametrize("indent", [None, 0, 1])
def test_a_wrong_entry_is_named_with_its_line(indent: int | None) -> None:
    graph = {"comment": {"nodes": [1, "]"]}, **household()}
    graph["edges"].insert(5, edge(10, "ON", 999))
    graph["nodes"][7]["states"] = ["DUSTY"]
    text = written(graph, indent)
    message = refusal(DataError, scene_of, text, "bad.json")
    line = 1 if indent is None else 1 + text[: text.index('"id": 13')].count("\n") - 1
    assert message.startswith(f"bad.json:{line}: nodes[7]: unknown state 'DUSTY'.")
    graph["nodes"][7]["states"] = []
    text = written(graph, indent)
    message = refusal(DataError, scene_of, text, "bad.json")
    line = 1 if indent is None else 1 + text[: text.index("999")].count("\n") - 3
    assert message.startswith(f"bad.json:{line}: edges[5]: the edge ON ends at id 999")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"nodes": [],\n "edges": [}', "bad.json:2: no JSON"),
        ("[]", "bad.json:1: expected a JSON object"),
        ("", "bad.json:1: no JSON"),
        ('{"nodes": []}', "bad.json:1: no list 'edges'"),
        ('{"nodes": [], "edges": []}', "bad.json:1: 0 nodes of class 'character'"),
        ("[" * 100_000, "bad.json:1: no JSON"),
    ],
)
def test_what_is_no_scene_is_named(text: str, what: str) -> None:
    message = refusal(DataError, scene_of, text, "bad.json")
    assert message.startswith(what)


# -- folders -------------------------------------------------------------------------------------
def release() -> dict[str, bytes]:
    """Return a release of one scene and one program, by path."""
    lies = [{"destination": "table", "relation": "IN", "room": "null"}]
    lies += [{"destination": "bed", "relation": "ON", "room": "bedroom"}]
    both = {"init_graph": household(), "final_graph": FINAL}
    files: dict[str, Any] = {
        f"programs/init_and_final_graphs/{SCENE}/some/file1_1.json": both,
        f"scenes/{SCENE}.json": household(),
        "scenes/TestScene1_graph.json": household(),
        f"scenes_2018-10-26/{SCENE}.json": {**household(), "comment": "old"},
        "resources/properties_data.json": {"mug": ["GRABBABLE"]},
        "resources/object_script_placing.json": {"mug": lies},
        "resources/class_name_equivalence.json": {"cup": ["mug"]},
    }
    packed = {path: json.dumps(content).encode() for path, content in files.items()}
    packed[f"programs/executable_programs/{SCENE}/some/file1_1.txt"] = PROGRAM.encode()
    packed[f"original_executable_progs/{SCENE}/some/file2_1.txt"] = PROGRAM.encode()
    return packed


_DONE = Home().play("WALK 13; GRAB 13")
FINAL = _DONE.world.graph(_DONE.scene)


def unpacked(folder: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def tarred(folder: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(folder / "all.tar.xz", "w:xz") as tar:
        for path, content in files.items():
            info = tarfile.TarInfo(f"./{path}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return folder


def zipped(folder: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return folder


def linked(folder: Path, files: dict[str, bytes]) -> Path:
    elsewhere = unpacked(folder / "elsewhere", files)
    home = folder / "home"
    home.mkdir()
    for path in elsewhere.iterdir():
        (home / path.name).symlink_to(path)
    return home


@pytest.mark.parametrize("layout", [unpacked, tarred, zipped, linked])
def test_a_release_is_read_as_it_unpacks_or_packed(layout: Any, tmp_path: Path) -> None:
    folder = OfficialFolder(layout(tmp_path, release()))
    assert folder.scenes() == folder.scenes("2018-10-26") == (SCENE,)
    assert folder.scenes(full=True) == ("TestScene1_graph",)
    assert "comment" in folder.graph(SCENE, "2018-10-26")
    assert "comment" not in folder.graph(SCENE)
    assert folder.scene(SCENE) is folder.scene(SCENE)
    scene, world = folder.scene(SCENE)
    home = Home()
    assert (scene.name, world.key(scene)) == (SCENE, home.world.key(home.scene))
    assert folder.tables.properties == {"mug": ("GRABBABLE",)}
    lies = (Placing("table", "INSIDE", None), Placing("bed", "ON", "bedroom"))
    assert folder.tables.placings["mug"] == lies
    assert folder.tables.equivalent == {"cup": ("mug",)}
    (triple,) = folder.triples
    assert (triple.id, triple.scene) == (f"{SCENE}/some/file1_1", SCENE)
    assert (triple.program.title, triple.program.description) == ("Tidy up", "Put the mug away")
    assert triple.graphs() == (household(), json.loads(json.dumps(FINAL)))
    ((scene, program),) = folder.original_programs
    assert (scene, len(program.lines)) == (SCENE, 2)


def test_triples_are_read_as_changes_against_a_scene(tmp_path: Path) -> None:
    files = {f"{SCENE}.json": json.dumps(household()).encode()}
    nodes = [
        [n["id"], n["class_name"], n["category"], n["properties"], n["states"]]
        for n in household()["nodes"]
    ]
    line = {
        "id": "file1_1",
        "scene": SCENE,
        "task": "Tidy up",
        "description": "",
        "program": ["[WALK] <mug> (1.13)"],
        "init_nodes": nodes,
        "init_edges_removed_from_scene": [[14, "ON", 12]],
        "init_edges_added_to_scene": [[14, "ON", 20]],
        "final_changed_nodes": [[13, ["CLEAN"]]],
        "final_edges_removed": [[14, "ON", 20]],
        "final_edges_added": [[14, "INSIDE", 10]],
    }
    files["triples.jsonl.xz"] = lzma.compress((json.dumps(line) + "\n").encode())
    (triple,) = OfficialFolder(unpacked(tmp_path, files)).triples
    initial, final = (Scene.of(graph) for graph in triple.graphs())
    there, before = Scene.of(household()), edges_of(*initial)
    assert before == edges_of(*there) - {(14, "ON", 12)} | {(14, "ON", 20)}
    assert edges_of(*final) == before - {(14, "ON", 20)} | {(14, "INSIDE", 10)}
    scene, world = final
    assert world.states_of(scene.index[13]) == ("CLEAN",)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("programs_2018", '{"path": "a/b/c.txt", "text": "[SLEEP]"}\n{"pa', ":2: no JSON"),
        ("programs_2018", BAD_ACT, r":1 \(a/b/c\.txt\):2: '\[FLY\]': unknown"),
        ("programs_2018", '["a"]\n', ":1: expected an object"),
        ("triples", '{"id": 1}\n', ":1: a triple has id"),
    ],
)
def test_a_damaged_line_of_programs_is_named(
    name: str, text: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / f"{name}.jsonl").write_text(text)
    folder = OfficialFolder(tmp_path)
    with pytest.raises(DataError, match=rf"{name}\.jsonl{problem}"):
        _ = folder.triples if name == "triples" else folder.original_programs


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"scene": [SCENE]}, "a triple has id"),
        ({"scene": "TrimmedTestScene9_graph"}, "no scene 'TrimmedTestScene9_graph' of v1.0.0."),
        ({"init_nodes": None}, f"no scene '{SCENE}' of v1.0.0."),
    ],
)
def test_a_triple_of_wrong_parts_is_named(change: dict[str, Any], problem: str, tmp_path: Path):
    # U+2028 ends no line of a file.
    told = {"task": "Sleep", "description": "go to sleep\u2028and dream", "program": ["[SLEEP]"]}
    whole = json.dumps({"id": "file1", "scene": SCENE, **told, **change}, ensure_ascii=False)
    path = tmp_path / "triples.jsonl"
    path.write_text(f"\n{whole}", "utf-8")
    message = refusal(DataError, lambda: [t.graphs() for t in OfficialFolder(tmp_path).triples])
    assert message.startswith(f"{path}:2: ") and problem in message


def test_the_actions_of_language_planner_are_read_and_understood(tmp_path: Path) -> None:
    assert OfficialFolder(tmp_path).action_strings == ()
    strings = ["walk to home_office", "put cup on table", "put on shirt", "stand up", "fly home"]
    path = tmp_path / "admissible_actions.json.xz"
    path.write_bytes(lzma.compress(json.dumps(strings).encode()))
    assert read_words(OfficialFolder(tmp_path).action_strings) == [
        ("WALK", ("home_office",)),
        ("PUTBACK", ("cup", "table")),
        ("PUTON", ("shirt",)),
        ("STANDUP", ()),
    ]
    path.write_bytes(lzma.compress(b"["))
    with pytest.raises(DataError, match=r"admissible_actions\.json\.xz: no list of actions"):
        _ = OfficialFolder(tmp_path).action_strings


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    told = "no such folder. Run `creditrl data get virtualhome --folder"
    with pytest.raises(DataError, match=told):
        OfficialFolder(tmp_path / "none")
    folder = OfficialFolder(tmp_path)
    with pytest.raises(UnknownNameError, match="no scene 'TrimmedTestScene1_graph' of v1.0.0"):
        folder.scene(SCENE)
    with pytest.raises(DataError, match=r"no properties_data\.json in it"):
        _ = folder.tables
    for name in ("broken.zip", "broken.tar.xz"):
        (tmp_path / name).write_bytes(b"broken")
        message = refusal(DataError, lambda: OfficialFolder(tmp_path).scenes())
        assert message.startswith(f"{tmp_path / name}: ")
        (tmp_path / name).unlink()
    # Who names a part of the files is told their folder.
    (tmp_path / "triples.jsonl").write_text("")
    for part in ("triples.jsonl", "spa_prompt"):
        with pytest.raises(DataError, match=f"VirtualHome's files lie in {tmp_path}: set data_dir"):
            OfficialFolder(tmp_path / part)
