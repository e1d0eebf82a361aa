"""Plans against hand-worked cases, exhaustive search, and real games."""

from __future__ import annotations

import random
import re
from collections import Counter, deque
from pathlib import Path

import pytest
from alfworld_files import real_game, real_rows
from households import after, kitchen_game

from creditrl.envs.alfworld.game import NOTHING, Game, State, bits, compile_game
from creditrl.envs.alfworld.planner import plan, plan_commands
from creditrl.envs.alfworld.problem import TASK_TYPES, Goal, Problem
from creditrl.envs.alfworld.rules import Kind, Move, apply, choices, goal_status, is_in_reach

PLACE, LOOK, CLEAN, HEAT, COOL, TWO = TASK_TYPES


def apple(kind: str) -> Game:
    """The kitchen with a goal about apples and drawers."""
    return kitchen_game(Goal(kind, "apple", "drawer"))


def follow(game: Game, state: State) -> int:
    """Play a plan, which must win with its last command; return its length."""
    moves = plan(game, state)
    assert moves is not None
    for move in moves:
        met, of = goal_status(game, state)
        assert met < of, "won before the plan's end"
        assert move in choices(game, state).moves.values()
        state = apply(game, state, move)
    met, of = goal_status(game, state)
    assert met == of
    return len(moves)


def wander(game: Game, moves: int, dice: random.Random) -> State:
    """Return the state after random admissible moves."""
    state = game.start
    for _ in range(moves):
        possible = choices(game, state).moves
        state = apply(game, state, possible[dice.choice(sorted(possible))])
    return state


# ------------------------------------------------------------------------- worked by hand


def planned(game: Game, state: State) -> str:
    return "; ".join(plan_commands(game, state) or ())


FETCH = "go to countertop 1; take apple 1 from countertop 1; "
PUT = "go to drawer 2; open drawer 2; move apple 1 to drawer 2"


TO_DRAWER_1 = "go to drawer 1; open drawer 1"
MUG = "go to countertop 1; take mug 1 from countertop 1; go to sidetable 1"


@pytest.mark.parametrize(
    ("kind", "before", "expected"),
    [
        # The other apple is in a closed fridge, one command further.
        (PLACE, "", FETCH + PUT),
        # The treatment takes a walk but opens no door.
        (CLEAN, "", f"{FETCH}go to sinkbasin 1; clean apple 1 with sinkbasin 1; {PUT}"),
        (HEAT, "", f"{FETCH}go to microwave 1; heat apple 1 with microwave 1; {PUT}"),
        # With the fridge open before the agent, apple 2 is cooled where it is.
        (
            COOL,
            "go to fridge 1; open fridge 1",
            "take apple 2 from fridge 1; cool apple 2 with fridge 1; "
            "go to drawer 2; open drawer 2; move apple 2 to drawer 2",
        ),
        # Two objects share one open drawer.
        (
            TWO,
            TO_DRAWER_1,
            f"{FETCH}go to drawer 1; move apple 1 to drawer 1; go to fridge 1; open fridge 1; "
            "take apple 2 from fridge 1; go to drawer 1; move apple 2 to drawer 1",
        ),
        # A pair is completed where it was begun.
        (
            TWO,
            f"go to fridge 1; open fridge 1; take apple 2 from fridge 1; {TO_DRAWER_1}; "
            "move apple 2 to drawer 1; close drawer 1; open drawer 2",
            f"{FETCH}{TO_DRAWER_1}; move apple 1 to drawer 1",
        ),
        # Knives can be put anywhere but into the microwave, where the agent stands: so it is left
        # the apple is taken, without a detour.
        (
            PLACE,
            "go to countertop 1; take knife 1 from countertop 1; go to microwave 1",
            "go to countertop 1; move knife 1 to countertop 1; take apple 1 from countertop 1; "
            + PUT,
        ),
        # A lamp that was switched counts as on, however often it was switched.
        (LOOK, "", f"{MUG}; use desklamp 1"),
        (LOOK, "go to sidetable 1; use desklamp 1; use desklamp 1", MUG),
    ],
)
def test_plans_of_the_kitchen_by_hand(kind: str, before: str, expected: str) -> None:
    game = apple(kind) if kind != LOOK else kitchen_game(Goal(LOOK, "mug", lamp="desklamp"))
    assert planned(game, after(game, before)) == expected


def test_a_reached_goal_needs_no_action_and_an_unreachable_one_has_no_plan() -> None:
    game = apple(PLACE)
    assert plan(game, after(game, planned(game, game.start))) == []
    for goal in (Goal(PLACE, "sofa", "drawer"), Goal(LOOK, "mug", lamp="floorlamp")):
        game = kitchen_game(goal)
        assert plan(game, game.start) is plan_commands(game, game.start) is None


# ------------------------------------------------------------ against all that can be done


def household(kind: str, dice: random.Random) -> Game:
    """Return a tiny household of random facts: everything that rules allow, sense or not.

    Doors, shared places, receptacles that hold some classes only or are nowhere, objects in two
    receptacles, treated at the start or not to be treated, lamps that can be carried.
    """
    tool = {CLEAN: "sinkbasin", HEAT: "microwave", COOL: "fridge"}.get(kind, "shelf")
    holders = ["cabinet", "cabinet", tool]
    holders += dice.choices(["cabinet", "shelf", tool], k=dice.choice((1, 1, 2)))
    receptacles = {f"{holder}_bar_{i}": holder for i, holder in enumerate(holders)}
    classes = ["apple", "apple", dice.choice(["apple", "pan"])]
    if kind == LOOK:
        classes += ["lamp"]
    objects = {f"{name}_bar_{i}": name for i, name in enumerate(classes)}

    def some(names: list[str], share: float) -> tuple[tuple[str], ...]:
        return tuple((name,) for name in names if dice.random() < share)

    where = {r: f"loc{dice.randrange(3)}" for r in receptacles if dice.random() < 0.95}
    inside = {
        (o, r)
        for o in objects
        for r in dice.sample(sorted(receptacles), 2 if dice.random() < 0.3 else 1)
    }
    fruit = [o for o in objects if objects[o] == "apple"]
    treatments = {CLEAN: "clean", HEAT: "hot", COOL: "cool"}
    facts: dict[str, tuple[tuple[str, ...], ...]] = {
        "atlocation": (("agent", f"loc{dice.randrange(4)}"),),
        "receptacleatlocation": tuple(where.items()),
        "receptacletype": tuple((r, f"{name}type") for r, name in receptacles.items()),
        "objecttype": tuple((o, f"{name}type") for o, name in objects.items()),
        "inreceptacle": tuple(sorted(inside)),
        "objectatlocation": tuple(sorted({(o, where[r]) for o, r in inside if r in where})),
        "openable": some([*receptacles], 0.4),
        "pickupable": some([o for o in objects if objects[o] != "lamp"], 0.95)
        + some([o for o in objects if objects[o] == "lamp"], 0.3),
        "toggleable": tuple((o,) for o in objects if objects[o] == "lamp"),
        "cancontain": tuple(
            (f"{holder}type", f"{name}type")
            for holder in sorted(set(holders))
            for name in sorted(set(classes))
            if dice.random() < 0.8
        ),
    }
    if kind in treatments:
        able = {CLEAN: "cleanable", HEAT: "heatable", COOL: "coolable"}[kind]
        facts[able] = some(fruit, 0.8)
        facts[f"is{treatments[kind]}"] = some(fruit, 0.15)
    goal = Goal(kind, "apple", "" if kind == LOOK else "cabinet", "lamp" if kind == LOOK else "")
    locations = tuple(f"loc{i}" for i in range(4))
    problem = Problem("tiny", "agent", tuple(objects), tuple(receptacles), locations, facts, goal)
    return compile_game(problem, "", "0.4")


def relevant(state: State) -> State:
    """Drop what affects neither the goal nor, without knives, which actions are possible."""
    return state._replace(
        objects_at=(0,) * len(state.objects_at), removed=(0,) * len(state.removed), on=0, checked=0
    )


def all_distances(game: Game, most: int = 1500) -> list[tuple[State, int | None]]:
    """Return every state that play can reach and the fewest commands from it to the goal.

    By the rules alone: all moves from the start, then backward from all states that win. Nothing
    where there are more than ``most`` states.
    """
    start = relevant(game.start)
    example = {start: game.start}
    before: dict[State, list[State]] = {start: []}
    queue = deque([start])
    while queue:
        key = queue.popleft()
        for move in choices(game, example[key]).moves.values():
            state = apply(game, example[key], move)
            then = relevant(state)
            if then not in example:
                if len(example) == most:
                    return []
                example[then] = state
                before[then] = []
                queue.append(then)
            before[then].append(key)
    distance: dict[State, int] = {}
    for key in example:
        met, of = goal_status(game, example[key])
        if met == of:
            distance[key] = 0
            queue.append(key)
    while queue:
        key = queue.popleft()
        for earlier in before[key]:
            if earlier not in distance:
                distance[earlier] = distance[key] + 1
                queue.append(earlier)
    return [(state, distance.get(key)) for key, state in example.items()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", TASK_TYPES)
def test_plans_are_as_short_as_exhaustive_searches_and_found_whenever_one_exists(kind: str) -> None:
    checked: Counter[int | None] = Counter()
    for seed in range(30):
        dice = random.Random(f"{kind}/{seed}")
        game = household(kind, dice)
        unsolved = [(state, least) for state, least in all_distances(game) if least != 0]
        dice.shuffle(unsolved)
        for state, least in unsolved[:150]:
            moves = plan(game, state)
            assert (None if moves is None else len(moves)) == least
            if moves is not None:
                follow(game, state)
            checked[least] += 1
    assert checked[None] > 50
    assert sum(n for least, n in checked.items() if least) > 150
    assert max(least for least in checked if least is not None) >= 5


# ------------------------------------------------------------------------------ real games


def test_official_games_are_won_from_any_state_but_dead_ends(test_data: Path) -> None:
    games = [real_game(row) for row in real_rows(test_data, every=20)]
    assert {game.goal.type for game in games} == {*TASK_TYPES}
    dice = random.Random(0)
    stuck = 0
    for game in games:
        assert 3 <= follow(game, game.start) <= 10
        for moves in (5, 15, 40):
            state = wander(game, moves, dice)
            if plan(game, state) is None:
                # Some kitchens have no place for paper towel rolls, some bedrooms none for bears.
                assert not any(holders >> state.held & 1 for holders in game.holders)
                stuck += 1
            else:
                follow(game, state)
    assert stuck <= 5


@pytest.mark.slow
def test_the_page_states_the_number_of_dead_ends_of_official_games(test_data: Path) -> None:
    found: Counter[str] = Counter()
    games = 0
    for row in real_rows(test_data):
        if not re.search("(PaperTowelRoll|TeddyBear)_bar", row["pddl"]):
            continue  # the test above samples other objects
        game = real_game(row)
        fits = 0
        for holders, place in zip(game.holders, game.location_of, strict=True):
            fits |= holders if place != NOTHING else 0
        stuck = set()
        for thing in bits(game.pickupable & ~fits):
            if state := with_in_hand(game, thing):
                assert plan(game, state) is None
                stuck.add(game.object_names[thing].split()[0])
        found.update(stuck)
        games += bool(stuck)
    assert (games, dict(found)) == (473, {"papertowelroll": 364, "teddybear": 109})


def with_in_hand(game: Game, thing: int) -> State | None:
    """Return the state after picking up a thing; None if it is out of reach."""
    for r, inside in enumerate(game.start.contents):
        if inside >> thing & 1 and game.location_of[r] != NOTHING:
            at = apply(game, game.start, Move(Kind.GO, NOTHING, r))
            if not is_in_reach(game, at, r):
                at = apply(game, at, Move(Kind.OPEN, NOTHING, r))
            return apply(game, at, Move(Kind.TAKE, thing, r))
    return None
