"""Against TextWorld: it loads the games that we write, and plays them as our engine does."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from creditrl.envs.alfworld.builtin import GeneratedGames
from creditrl.envs.alfworld.export import export_games
from creditrl.envs.alfworld.game import Game, State
from creditrl.envs.alfworld.gamefile import GameFile
from creditrl.envs.alfworld.generate import HouseholdConfig
from creditrl.envs.alfworld.problem import FLAVOURS, TASK_TYPES, Flavour
from creditrl.envs.alfworld.rules import apply, choices, goal_status
from creditrl.envs.alfworld.words import NOTHING_HAPPENS, feedback, intro

pytestmark = [
    pytest.mark.reference("textworld"),
    pytest.mark.reference("alfworld"),
]

STEPS = 20


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One game of each type and wording, small and with some doors open; and a large one."""
    folder = tmp_path_factory.mktemp("export")
    for flavour in FLAVOURS:
        config = HouseholdConfig(size="small", closed=0.6)
        export_games(GeneratedGames("train", config, flavour=flavour), folder / flavour, 6)
    export_games(GeneratedGames("train", HouseholdConfig()), folder / "medium", 1)
    return folder


def games_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("game.tw-pddl"))


class TextWorld:
    """A game in TextWorld, named by upstream's wrapper."""

    def __init__(self, source: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import textworld
            from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
            from textworld.envs.pddl import PddlEnv
        infos = textworld.EnvInfos(won=True, admissible_commands=True, extras=["walkthrough"])
        self.env = AlfredDemangler(PddlEnv(infos))
        self.env.load(source)

    def reset(self) -> tuple[str, list[str], bool]:
        state = self.env.reset()
        self.walkthrough = state["extra.walkthrough"]
        return state.feedback, state["admissible_commands"], state["won"]

    def step(self, command: str) -> tuple[str, list[str], bool]:
        state, _, done = self.env.step(command)
        assert done == state["won"]
        return state.feedback, state["admissible_commands"], state["won"]


class Ours:
    """The same in our engine's rules."""

    def __init__(self, game: Game) -> None:
        self.game = game

    def reset(self) -> tuple[str, list[str], bool]:
        self.state: State = self.game.start
        return self._seen(intro(self.game, self.state))

    def step(self, command: str) -> tuple[str, list[str], bool]:
        move = choices(self.game, self.state).moves.get(command)
        if move is None:
            return self._seen(NOTHING_HAPPENS)
        self.state = apply(self.game, self.state, move)
        return self._seen(feedback(self.game, self.state, move))

    def _seen(self, text: str) -> tuple[str, list[str], bool]:
        met, of = goal_status(self.game, self.state)
        return text, list(choices(self.game, self.state).commands), met == of


def wandering(ours: Ours, rng: random.Random) -> Iterator[str]:
    """Yield commands: mostly deeds, walks where there is nothing else, and some nonsense."""
    for _ in range(STEPS):
        commands = choices(ours.game, ours.state).commands
        deeds = [c for c in commands if not c.startswith(("go to", "help", "inventory"))]
        roll = rng.random()
        if roll < 0.08:
            yield rng.choice(["take mug 1 from moon 1", "go to", "open fridge 9", ""])
        elif roll < 0.45:
            yield rng.choice(commands)
        else:
            yield rng.choice(deeds)


def test_textworld_plays_the_exports_as_we_do(exported: Path):
    seen = set()
    for flavour in (*FLAVOURS, "medium"):
        for n, path in enumerate(games_of(exported / flavour)):
            ours, theirs = Ours(GameFile.of(path).load()), TextWorld(str(path))
            assert ours.reset() == theirs.reset(), path
            # The way to the goal up to its last step, so that every deed occurs; then anywhere.
            way = theirs.walkthrough[:-1]
            for command in chain(way, wandering(ours, random.Random(n))):
                assert ours.step(command) == theirs.step(command), (path, command)
                seen.add(command.split(" ")[0])
    verbs = "look inventory help examine go open close take move put use clean heat cool"
    assert set(verbs.split()) <= seen


def test_walkthroughs_win_in_textworld(exported: Path):
    types = set()
    for path in games_of(exported):
        theirs = TextWorld(str(path))
        *_, won = theirs.reset()
        told = json.loads(path.read_text())
        assert theirs.walkthrough == told["walkthrough"]
        for command in theirs.walkthrough:
            assert not won
            *_, won = theirs.step(command)
        assert won, path
        types.add(path.parent.parent.name.split("-")[0])
    assert types == set(TASK_TYPES)


@pytest.mark.parametrize("index", [2, 5])
def test_our_domain_and_grammar_do_what_alfworlds_own_do(exported: Path, index: int):
    import alfworld.info

    path = games_of(exported / "0.4")[index]
    told = json.loads(path.read_text())
    goal = GameFile.of(path).goal
    upstream = {
        **told,
        "pddl_domain": Path(alfworld.info.ALFRED_PDDL_PATH).read_text(),
        "grammar": Path(alfworld.info.ALFRED_TWL2_PATH).read_text().replace("UNKNOWN GOAL", goal),
    }
    one, other = TextWorld(told), TextWorld(upstream)
    assert one.reset() == other.reset()
    ours = Ours(GameFile.of(path).load())
    ours.reset()
    for command in wandering(ours, random.Random(index)):
        ours.step(command)
        assert one.step(command) == other.step(command), command


def named(game: Game, kind: str) -> list[str]:
    """Return the first object of a class, if there is one."""
    return [name for name in game.object_names if name.split(" ")[0] == kind][:1]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_slices_and_what_was_done_to_them_are_told_alike(tmp_path: Path, flavour: Flavour):
    config = HouseholdConfig(size="small", closed=0.0)
    games = GeneratedGames("train", config, flavour=flavour)
    # A kitchen with a knife and an apple.
    index, knife, food = next(
        (i, knife, food)
        for i in range(600)
        for game in [games.task(i).data.load()]
        for knife in named(game, "knife")
        for food in named(game, "apple")
    )
    (path,) = export_games(games, tmp_path, index + 1)[index:]
    ours, theirs = Ours(GameFile.of(path).load()), TextWorld(str(path))
    assert ours.reset() == theirs.reset()

    def where(thing: str) -> str:
        game, number = ours.game, ours.game.objects_by_name[thing]
        inside = ours.state.contents
        return next(n for r, n in enumerate(game.receptacle_names) if inside[r] >> number & 1)

    def put(thing: str) -> str:
        return f"move {thing} to" if flavour == "0.4" else f"put {thing} in/on"

    home = where(food)
    script = [f"go to {home}", f"take {food} from {home}", f"examine {food}"]
    for place, verb in (("sinkbasin 1", "clean"), ("microwave 1", "heat"), ("fridge 1", "cool")):
        script += [f"go to {place}", f"{verb} {food} with {place}", f"examine {food}"]
    script += ["go to countertop 1", f"{put(food)} countertop 1"]
    script += [f"go to {where(knife)}", f"take {knife} from {where(knife)}", "go to countertop 1"]
    script += [f"slice {food} with {knife}", f"examine {food}", "look", "inventory"]
    script += [f"{put(knife)} countertop 1", f"take {food} from countertop 1", f"examine {food}"]
    script += ["look", "go to microwave 1", f"heat {food} with microwave 1", f"examine {food}"]
    texts = []
    for command in script:
        mine = ours.step(command)
        assert mine == theirs.step(command), command
        texts.append(mine[0])
    assert f"This is a hot and clean sliced {food}." == texts[-1]
    assert f"You sliced the {food} with the {knife}." in texts
