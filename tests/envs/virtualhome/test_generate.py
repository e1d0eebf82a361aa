"""Generated tasks: done in a plan, not before, said in words; the records that they are made of."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from hashlib import blake2b
from pathlib import Path

import pytest

from creditrl.envs.tasks import SPLITS
from creditrl.envs.virtualhome import builtin
from creditrl.envs.virtualhome.acts import ACTIONS, Act
from creditrl.envs.virtualhome.builtin import NUM_TASKS, GeneratedTask, GeneratedTasks
from creditrl.envs.virtualhome.floorplans import dice_of
from creditrl.envs.virtualhome.generate import (
    DAYS,
    LONGEST_PLAN,
    SHORTEST_PLAN,
    HouseholdConfig,
    household,
    scene_of,
    task_type,
)
from creditrl.envs.virtualhome.goals import Goal, goal_status
from creditrl.envs.virtualhome.graph import INSIDE, STATES, bits
from creditrl.envs.virtualhome.kinds import KINDS, Kind, read_kinds
from creditrl.envs.virtualhome.plot import OPPOSITE, Plot, UnfitError
from creditrl.envs.virtualhome.problem import Household
from creditrl.envs.virtualhome.rules import perform
from creditrl.errors import ConfigError, DataError, UnknownNameError


def made(split: str, index: int) -> Household:
    return GeneratedTask(HouseholdConfig(), split, index).load()


SAMPLE = [(SPLITS[n], index + n * len(KINDS)) for index in range(len(KINDS)) for n in range(3)]
"""Three tasks of each kind."""
SAMPLE += [("valid_unseen", 83)]  # whose first draw has too short a plan


@pytest.fixture(scope="module")
def homes() -> list[Household]:
    return [made(*key) for key in SAMPLE]


def test_there_are_at_least_forty_kinds_and_they_take_turns() -> None:
    assert len(KINDS) == 96
    assert [task_type(index) for index in range(96)] == list(KINDS)
    assert task_type(97) == task_type(1)
    for kind in KINDS.values():
        assert len({title for case in kind.cases for title in case.titles}) >= 2


def test_plans_are_possible_end_at_the_goal_and_not_before(homes: list[Household]) -> None:
    for home in homes:
        assert SHORTEST_PLAN <= len(home.plan) <= LONGEST_PLAN
        world = home.world
        for act in home.plan:
            met, of = goal_status(home.scene, world, home.goal)
            assert met < of
            world, failure = perform(home.scene, world, act)
            assert failure is None, (home.kind, failure)
        met, of = goal_status(home.scene, world, home.goal)
        assert met == of >= 1


def test_in_plans_a_name_says_which_thing_is_meant(homes):
    # A text command names a class, and the task's names say which of several that is.
    for home in homes:
        for act in home.plan:
            assert len(act.objects) == ACTIONS[act.name]
            for id in act.objects:
                name = home.scene.classes[home.scene.index[id]]
                same = home.scene.of_class[name]
                assert not same & (same - 1) or home.names[name] == id, (home.kind, act)


def test_goals_are_about_named_things_of_which_the_description_speaks(homes):
    for home in homes:
        character = home.scene.ids[home.scene.character]
        assert set(home.names.values()) >= home.goal.objects() - {character}
        words = home.description.lower()
        assert words[-1] == "." and "  " not in words and "_" not in words
        placed = {id for edge in home.goal.added for id in (edge.tail, edge.head)}
        for id in placed - {character}:
            name = home.scene.classes[home.scene.index[id]].replace("_", " ")
            assert name in words or "there" in words, (home.kind, name, words)


def test_what_the_goal_says_of_states_is_complete_and_can_come_about(homes):
    assert set(OPPOSITE) == set(STATES) - {"SITTING", "LYING"}
    for home in homes:
        for id, states in home.goal.states:
            now = set(home.world.states_of(home.scene.index[id])) - {"SITTING", "LYING"}
            ends = states - {"SITTING", "LYING"}
            # For each state that it has: that one, or the opposite.
            assert {min(s, OPPOSITE[s]) for s in now} == {min(s, OPPOSITE[s]) for s in ends}
            assert "DIRTY" not in ends  # nothing would bring it back


def test_no_task_can_be_spoilt_by_washing_what_it_is_about() -> None:
    home = made("train", list(KINDS).index("watch_tv"))
    scene, world = home.scene, home.world
    washing = [Act("WASH", (id,)) for id in sorted(home.goal.objects())]  # what cannot be, is not
    for act in (*home.plan[:-1], *washing):
        world = perform(scene, world, act).world
    world, failure = perform(scene, world, home.plan[-1])
    assert failure is None
    met, of = goal_status(scene, world, home.goal)
    assert met == of


def test_tasks_vary_in_where_and_how_they_begin(homes):
    rooms: Counter[str] = Counter()
    resting = 0
    for home in homes:
        scene, character = home.scene, home.scene.character
        (room,) = bits(home.world.rows[INSIDE][character] & scene.rooms)
        rooms[scene.classes[room]] += 1
        resting += bool({"SITTING", "LYING"} & {*home.world.states_of(character)})
    assert len(rooms) == 6 and min(rooms.values()) >= 5
    assert 5 <= resting <= len(homes) / 4
    assert len({home.scene.name for home in homes}) > 60
    lengths = [len(home.plan) for home in homes]
    assert min(lengths) <= 3 and max(lengths) >= 16
    assert 6.5 <= sum(lengths) / len(lengths) <= 9.5


def test_the_same_kind_begins_on_another_day_each_time() -> None:
    index = list(KINDS).index("put_away_groceries")  # every house has a fridge
    scenes = [made("train", index + n * len(KINDS)).scene.name for n in range(40)]
    assert len(set(scenes)) >= 38


def test_days_of_the_splits_differ(homes):
    for home, (split, _) in zip(homes, SAMPLE, strict=True):
        name = home.scene.name
        assert name.startswith("unseen house ") == (split == "valid_unseen")
        assert split == "valid_unseen" or int(name.rpartition(" ")[2]) in DAYS[split]


def test_another_seed_gives_other_houses() -> None:
    one, other = household(HouseholdConfig(), "train", 3), household(HouseholdConfig(7), "train", 3)
    assert one.kind == other.kind
    assert other.scene.name.endswith(tuple(f"of seed 7, day {day}" for day in DAYS["train"]))
    assert one.scene.signature != other.scene.signature


# -------------------------------------------------------------------------------- plots
def plot() -> Plot:
    scene, world = scene_of(0, False, 3, 0)
    return Plot(scene, world, dice_of("test of plots"))


def test_a_name_stands_for_one_thing_only_and_what_a_house_lacks_does_not_fit() -> None:
    task = plot()
    one, other = task.nodes("chair")[:2]
    assert task.choose(one) == one == task.choose(one)
    with pytest.raises(UnfitError):
        task.choose(other)
    for names, most in ((["chair"], 1), (["swimming_pool"], 1), (["fridge", "bed"], 4)):
        with pytest.raises(UnfitError):
            task.some(names, max(1, most - 1), most)
    with pytest.raises(UnfitError):
        task.some(["fridge"], 1, 1, lambda node: False)
    assert task.some(["swimming_pool"], 0, 1) == []


def test_a_goal_in_a_state_that_nothing_has_is_a_mistake() -> None:
    task = plot()
    task.end(task.choose(task.nodes("bed")[0]), "ON")
    with pytest.raises(ValueError, match=r"bed \(\d+\) is .*cannot come of it"):
        task.goal()
    with pytest.raises(ValueError, match="cannot be OPEN"):
        plot().be(task.nodes("bed")[0], "OPEN")


def test_a_dirty_thing_that_the_goal_is_about_begins_clean_unless_it_is_to_be_cleaned() -> None:
    task = plot()
    fridge, stove = (task.choose(task.nodes(name)[0]) for name in ("fridge", "stove"))
    for node in (fridge, stove):
        task.be(node, "DIRTY")
    task.end(fridge, "OPEN")
    task.end(stove, "CLEAN")
    task.goal()
    assert task.is_in(fridge, "CLEAN") and task.is_in(stove, "DIRTY")


def test_lists_read_as_sentences_do() -> None:
    task = plot()
    apple, bed = task.nodes("mug")[0], task.nodes("bed")[0]
    lamp = task.nodes("table_lamp")[0]
    assert task.the([apple]) == "the mug"
    assert task.the([apple, lamp]) == "the mug and the table lamp"
    assert task.the([apple, lamp, bed]) == "the mug, the table lamp and the bed"
    assert task.them([apple]) == "it" and task.them([apple, bed]) == "them"
    assert task.them(task.nodes("hands")) == "them"
    assert task.they([apple]) == "it is" and task.they(task.nodes("hands")) == "they are"
    light, *others = task.nodes("light")
    room = task.word(task.room(light))
    assert task.the([light, bed]) == f"the light in the {room} and the bed"
    curtain = next(n for n in task.nodes("curtain") if task.room(n) == task.room(light))
    assert task.the([light, curtain]) == f"the light and the curtain in the {room}"
    assert task.the([light, others[0]]).count(" in the ") == 2


def test_sets_are_as_large_as_promised() -> None:
    for split in SPLITS:
        tasks = GeneratedTasks(split)
        assert len(tasks) == NUM_TASKS[split] >= {"train": 2000}.get(split, 140)
        for index in (0, 117, len(tasks) - 1):
            task = tasks.task(index)
            home = task.data.load()
            assert task.id == f"builtin/{split}/{index}" and tasks.find(task.id) is task
            assert (task.type, task.split, task.index) == (home.kind, split, index)
            assert task.goal == f"{home.title}({home.description})"
            assert task.difficulty == len(home.plan)


def test_no_task_is_in_two_splits() -> None:
    keys: dict[bytes, str] = {}
    for split in SPLITS:
        for task in GeneratedTasks(split, num_tasks=48):
            home = task.data.load()
            goal = repr((sorted(home.goal.objects()), home.goal.added, home.kind)).encode()
            key = blake2b(home.world.key(home.scene) + goal).digest()
            assert keys.setdefault(key, split) == split
    assert len(keys) == 3 * 48  # nor twice in one


def test_a_task_is_made_when_it_is_asked_for_and_then_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    make = builtin.household

    def counting(config: HouseholdConfig, split: str, index: int) -> object:
        asked.append((config.seed, split, index))
        return make(config, split, index)

    monkeypatch.setattr(builtin, "household", counting)
    tasks = GeneratedTasks("train", HouseholdConfig(seed=11))
    assert len(tasks.filter(types=["make_coffee"])) == 100
    assert asked == []
    tasks.task(22)
    tasks.task(22).data.load()
    assert asked == [(11, "train", 22)]


def test_tasks_are_filtered_by_type_and_difficulty() -> None:
    tasks = GeneratedTasks("valid_seen")
    some = tasks.filter(types=["drink", "watch_tv"], difficulty=(3, 5))
    assert 0 < len(some) <= 20
    for task in some:
        assert task.type in ("drink", "watch_tv") and 3 <= task.difficulty <= 5
    with pytest.raises(ConfigError, match="'watch_tvv' is unknown. Did you mean 'watch_tv'"):
        tasks.filter(types=["watch_tvv"])
    few = GeneratedTasks("train", num_tasks=3)
    with pytest.raises(ConfigError, match="No task is left of 3"):
        few.filter(types=[list(KINDS)[5]])


def test_ids_name_the_seed_and_what_makes_no_sense_is_refused() -> None:
    tasks = GeneratedTasks("train", HouseholdConfig(3), num_tasks=500)
    assert tasks.task(4).id == "builtin-seed3/train/4"
    for wrong in ("builtin/train/4", "builtin-seed3/train/500", "builtin-seed3/train/x"):
        with pytest.raises(UnknownNameError, match="expected builtin-seed3/train/0 to .*499"):
            tasks.find(wrong)
    with pytest.raises(IndexError, match="500 tasks"):
        tasks.task(500)
    with pytest.raises(ConfigError, match="is unknown"):
        GeneratedTasks("test")
    with pytest.raises(ConfigError, match="expected at least one task"):
        GeneratedTasks("train", num_tasks=0)


def test_a_task_travels_as_a_key() -> None:
    task = GeneratedTasks("train").task(30)
    copy = pickle.loads(pickle.dumps(task))
    assert copy == task and copy.data.load() is task.data.load()
    assert len(pickle.dumps(task)) < 1_000
    source = GeneratedTask(HouseholdConfig(), "train", 30)
    assert source == task.data and source.key == "builtin/train/30 3"


# -- how tasks read ------------------------------------------------------------------------------
_FRUIT, _VEGETABLES = "apple orange", "tomato carrot potato"
_PAPERS = "document bills receipt mail envelope"
_CLOTHES = "shirt pants sweater dress socks underwear pajamas slippers"
_CUTLERY = "fork knife spoon"
_COOKED = "noodles rice potato egg carrot steak fish chicken pizza cake bread tomato milk"
_FOOD = f"{_COOKED} {_FRUIT} banana sandwich salad cheese butter ice_cream pet_food"
_DRINKS = "beer juice milk wine"
ONLY = {
    "fruit": _FRUIT,
    "vegetables": _VEGETABLES,
    "papers": _PAPERS,
    "clothes": _CLOTHES,
    "outdoor": "jacket scarf hat umbrella",
    "dishes": f"{_CUTLERY} plate bowl mug coffee_cup water_glass wine_glass cooking_pot frying_pan "
    "cutting_board wooden_spoon tray",
    "cutlery": _CUTLERY,
    "utensils": f"{_CUTLERY} wooden_spoon scissors",
    **dict.fromkeys(("groceries", "meal", "buffet"), f"{_FOOD} {_DRINKS}"),
    "supplies": "bread cereal jam noodles potato rice salt sugar ground_coffee tea_bag wine "
    "pet_food",
    **dict.fromkeys(("food", "snack"), _FOOD),
    "books": "book novel textbook",
    "lights": "light floor_lamp table_lamp desk_lamp",
    "devices": "television computer stereo coffee_maker printer game_console laptop iron hairdryer "
    "oven stove toaster kettle floor_lamp table_lamp",
    "glass": "mirror television computer window",
    "furniture": "bookshelf tv_stand dresser desk coffee_table nightstand",
    "trash": "newspaper napkin banana receipt envelope paper_towel egg magazine",
    "toys": "teddy_bear toy_car doll ball",
    "toiletries": "razor comb toothbrush toothpaste lotion shampoo face_soap soap",
    "belongings": "keys wallet cellphone spectacles umbrella book notebook gloves",
}
"""Words of titles for many things: what a task is about are things of this kind alone."""

BESIDES = {
    "clothes": "laundry_detergent",
    "dishes": "dishwasher",
    "food": f"plate {_DRINKS} fridge",  # what food is served on, and with
    "snack": "plate",
    "glass": "rag paper_towel",
    "furniture": "rag duster",
}
"""Further things that such a task may be about."""

MEANS = dict(
    entry.split(": ")
    for entry in """
tv: television|TV; laundry: laundry|washing machine; washing: washing machine; music: CD;
bag: backpack|purse; drink: juice|milk|beer|wine; drinks: juice|milk|beer|wine; plugs: plug;
games: game; light: light|lamp; air: fresh air; answer: pick; arrive: take off; bake: oven;
blow-dry: hairdryer; boil: stove; brew: switch; bring: put|lay; charge: plug;
clean: clean|wash|wipe|brush|throw; cleaning: clean|mop|broom|duster|bucket; close: close|shut;
come: home; cook: stove|oven; dry: hairdryer|drying rack; empty: from|out of|is done;
feed: pet food; file: into the filing cabinet; fill: put|store|hang; fix: plate;
freeze: into the freezer; fry: pan; heat: microwave; ironing: iron; lay: put|set;
leave: open the front door; listen: CD; load: load|into|put; mop: mop; nap: couch; pack: into;
pay: pen; play: switch on|sit down|stereo; pour: pour;
prepare: put|serve|wash|clean|fill|pour|open|switch; print: printer; pull: plug;
relax: lie down|sit down; remove: clean|wipe; scrub: clean; serve: put|serve; shave: shav;
shelve: bookshelf; shred: into the shredder; shut: shut|close; sleep: lie down;
start: switch|start; stock: put|store; study: desk; sweep: broom; switch: switch|turn;
tidy: put|belong|throw; toast: toaster; unload: from|out of; unplug: plug; wash: wash|clean;
wipe: wipe|clean|dust; vacuum: vacuum cleaner; warm: microwave; work: desk
""".strip()
    .replace("\n", " ")
    .split("; ")
)
MEANS |= dict.fromkeys(
    "add changed clear collect decorate dress dressed find gather "
    "move rearrange redecorate restock unpack".split(),
    "put",
)
"""Other words of titles, and what the description says for them; those that are not here, it says
itself."""

_SILENT = set(
    "a and at away back by dirty do down draw eat for from front get give go have in into let make "
    "of off on open out pick put read ready round set sit some something take the things throw to "
    "turn up use watch while with your yourself".split()
)


def about(home: Household) -> set[str]:
    """Return the classes of what a task moves or changes, but for where that is put."""
    goal: Goal = home.goal
    character = home.scene.ids[home.scene.character]
    things = {id for id, _ in goal.states} | {edge.tail for edge in (*goal.added, *goal.removed)}
    things |= {edge.head for edge in goal.added if edge.relation.startswith("HOLDS")}
    things -= {edge.head for edge in goal.added if edge.relation in ("ON", "INSIDE")}
    return {home.scene.classes[home.scene.index[id]] for id in things - {character}}


def test_what_a_title_names_is_what_the_description_is_about(homes):
    for home in homes:
        for word in home.title.lower().split():
            where = home.kind, home.title, home.description
            if word in ONLY:
                allowed = {*ONLY[word].split(), *BESIDES.get(word, "").split()}
                assert about(home) & set(ONLY[word].split()), where
                assert about(home) <= allowed, (where, about(home) - allowed)
            elif word not in _SILENT:
                said = MEANS.get(word, re.escape(word.removesuffix("s")))
                assert re.search(said, home.description, re.IGNORECASE), (word, where)


_VERBS = (
    "put switch close sit take pour turn plug wash clean find open have hang leave hold lie throw "
    "fill start load lay store serve pick wipe add collect set light brush bring pack move unpack "
    "heat unplug pull shut dust stand get make let cook bake fry freeze prepare toast decorate "
    "watch listen shave play go air file shred clear"
).split()
_VERB = "|".join(_VERBS)
_INTRODUCTION = r"^(?:Then |Also |(?:After|For|To|In|Before|Now)\b[^,]*, )"
_STATES = re.compile(r"\b(is|are|should)\b")


def test_titles_are_short_and_descriptions_are_sentences(homes):
    for home in homes:
        where = home.kind, home.description
        assert re.fullmatch(r"[A-Z][A-Za-z -]{2,60}", home.title), home.title
        assert re.fullmatch(r"[A-Z].*\.", home.description), where
        assert not re.search(r"plug out|  |[_{}|;]| ,|the the|\b(\w+) \1\b", home.description), (
            where
        )
        for sentence in re.split(r"\. |\.$", home.description)[:-1]:
            assert sentence[0].isupper(), where
            # Behind "Make coffee:" or "In the kitchen," there is an order, or there is a statement.
            lead, _, said = sentence.rpartition(": ")
            if said.startswith("the "):  # "Put these into the sink: the fork and the knife"
                said = lead
            said = re.sub(_INTRODUCTION, "", said)
            assert re.match(rf"({_VERB})\b", said, re.IGNORECASE) or _STATES.search(said), where
            # Of several orders in a row, the last is joined by "and".
            joints = re.findall(rf"(, | and )(?:{_VERB})\b", said)
            assert not joints or joints[-1] == " and ", where


def test_food_and_drink_are_where_people_have_them(homes):
    cups = {
        "beer": {"water_glass"},
        "juice": {"water_glass"},
        "milk": {"water_glass", "mug", "bowl"},
        "wine": {"wine_glass"},
    }
    heated = {"cooking_pot", "frying_pan", "oven", "microwave", "toaster"}
    for home in homes:
        classes = home.scene.classes
        for edge in home.goal.added:
            thing, place = (classes[home.scene.index[id]] for id in (edge.tail, edge.head))
            if edge.relation == "INSIDE" and thing in cups:
                assert place in cups[thing] | {"fridge", "cupboard", "microwave"}, home.description
            if place in heated:
                assert thing in _COOKED.split(), home.description


def test_whoever_dresses_wears_what_goes_together(homes):
    dressed = 0
    for home in homes:
        if home.kind == "get_dressed":
            worn = about(home)
            assert ("pants" in worn) == bool(worn & {"shirt", "sweater"}), home.description
            assert len(worn & {"shirt", "sweater", "dress", "pajamas"}) == 1, home.description
            dressed += 1
    assert dressed == 3


# -- records -------------------------------------------------------------------------------------
GROUPS = 'fruit = ["apple", "orange"]\n'
RECORD = """
[eat]
titles = ["Have {food}"]
pick.table = "table"
pick.food = { of = "fruit", count = [1, 2], elsewhere = "table" }
start = ["food DIRTY"]
goal = ["food CLEAN", "food ON table"]
say = ["wash {food}; put {food.them} on {table}. {food.they} good"]
"""


def kind_of(tmp_path: Path, record: str) -> Kind:
    (tmp_path / "groups.toml").write_text(GROUPS)
    (tmp_path / "meals.toml").write_text(record)
    (kind,) = read_kinds(tmp_path, ["meals"]).values()
    return kind


def drawn(kind: Kind, draws: int = 100) -> dict[tuple[str, str], Plot]:
    """Return what a kind comes to in a house, with many draws."""
    found = {}
    for n in range(draws):
        plot = Plot(*scene_of(0, False, 3, n % 8), dice_of("test of kinds", n))
        try:
            found[kind.make(plot)] = plot
        except UnfitError:
            continue
    return found


def test_a_record_is_title_goal_and_text_about_the_same_things(tmp_path: Path) -> None:
    found = drawn(kind_of(tmp_path, RECORD))
    assert ("Have the apple", "Wash the apple and put it on the table. It is good.") in found
    for (title, text), plot in found.items():
        goal = plot.goal()
        fruit = [name for name in ("apple", "orange") if name in title]
        assert all(name in text for name in fruit) and len(goal.added) == len(fruit)
        for name in fruit:
            id = plot.scene.ids[plot.chosen[name]]
            assert (id, frozenset({"CLEAN"})) in goal.states and plot.is_in(
                plot.chosen[name], "DIRTY"
            )


def test_clauses_about_what_is_not_there_are_left_out(tmp_path: Path) -> None:
    record = """
[go]
titles = ["Go"]
pick.one = { of = "bed", share = 0.5 }
pick.two = { of = "couch", share = 0.5 }
pick.pool = { of = "bathtub", count = 0 }
goal = ["one+two+pool CLEAN"]
say = ["look: | see {one}; see {two}; see {pool}; see it all. dive into {pool}"]
"""
    texts = {text for _, text in drawn(kind_of(tmp_path, record))}
    assert texts == {
        "Look: see it all.",
        "Look: see the bed and see it all.",
        "Look: see the couch and see it all.",
        "Look: see the bed, see the couch and see it all.",
    }


def test_a_case_replaces_what_it_says(tmp_path: Path) -> None:
    more = 'cases = [{ titles = ["Peel"], pick.food.of = "apple", pick.food.count = 1 }, {}]\n'
    titles = {title for title, _ in drawn(kind_of(tmp_path, RECORD + more))}
    peel, have = kind_of(tmp_path, RECORD + more).cases
    assert "Peel" in titles and "Have the apple" in titles
    assert (peel.pick["food"].of, peel.pick["food"].elsewhere) == (("apple",), "table")
    assert have.pick["food"].of == ("apple", "orange")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("titles =", "title =", "unknown entry: 'title'. Did you mean 'titles'"),
        ('titles = ["Have {food}"]', "", "no titles"),
        ('["Have {food}"]', '"Have {food}"', "titles is 'Have {food}', expected a list of texts"),
        ("{food.them}", "{foot.them}", "unknown slot: 'foot'. Did you mean 'food'"),
        ("{food.them}", "{food.him}", "unknown form: 'him'"),
        ("{food.them}", "{food them}", "no {slot} or {slot.form}"),
        ('"fruit"', '"fruits"', "unknown class or group in pick.food: 'fruits'. Did you mean 'fr"),
        ("elsewhere", "somewhere", "unknown field of pick.food: 'somewhere'"),
        ('elsewhere = "table"', 'elsewhere = "desk"', "pick.food.elsewhere: 'desk'"),
        ("count = [1, 2]", "count = [2, 1]", "pick.food: count is [2, 1]"),
        ("count = [1, 2]", 'rest = "stand"', "unknown value of pick.food.rest: 'stand'"),
        ("count = [1, 2]", 'last = "yes"', "unknown value of pick.food.last: 'yes'"),
        ('of = "fruit"', "of = []", "pick.food: of is []"),
        ("count = [1, 2]", "share = 2", "pick.food: share is 2"),
        ("food DIRTY", "food DIRT", "unknown word in 'food DIRT': 'DIRT'"),
        ("food ON table", "food ON desk", "unknown slot in 'food ON desk': 'desk'"),
        ("food ON table", "food IN", "'food IN' is not a fact"),
        ("food ON table", "you ON table", "unknown word in 'you ON table': 'ON'"),
        ("food ON table", "you STAND table", "'you STAND table' is not a fact"),
        ("[eat]", "[eat", "meals.toml: .*at line 2"),
        ("goal", "pick.chair = 'chair'\ngoal", "no fact and no other slot is about the slot 'ch"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(old: str, new: str, problem: str, tmp_path: Path):
    assert old in RECORD
    record = RECORD.replace(old, new, 1)
    pattern = problem if ".*" in problem else rf"^meals\.toml: eat: .*{re.escape(problem)}"
    with pytest.raises(DataError, match=pattern):
        kind_of(tmp_path, record)


def test_names_stand_for_one_thing(tmp_path: Path) -> None:
    kind_of(tmp_path, RECORD)
    (tmp_path / "more.toml").write_text(RECORD)
    with pytest.raises(DataError, match=r"more\.toml: eat: another file has this kind"):
        read_kinds(tmp_path, ["meals", "more"])
    for groups, problem in (
        ('fruit = ["aple"]', "fruit: unknown class: 'aple'. Did you mean 'apple'"),
        ('apple = ["orange"]', "apple: this is the name of a class"),
    ):
        (tmp_path / "groups.toml").write_text(groups)
        with pytest.raises(DataError, match=f"groups.toml: {problem}"):
            read_kinds(tmp_path, ["meals"])
