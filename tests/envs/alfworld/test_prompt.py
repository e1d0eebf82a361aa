"""ALFWorld's prompts: both forms in both flavours, and the worked example."""

from __future__ import annotations

import re

import gymnasium as gym
import pytest
from households import facts_of, kind

import creditrl  # noqa: F401 - registers the environments
from creditrl.agents.prompts import Ask, words_for
from creditrl.envs.alfworld.game import compile_game
from creditrl.envs.alfworld.problem import FLAVOURS, GameSource, Goal, Problem
from creditrl.envs.alfworld.prompt import ALFWORLD
from creditrl.types import Task
from creditrl.wrappers import History, ReActAction

ALFWORLD_ID = "CreditRL/ALFWorld-v0"

# Receptacle: place. Upstream counts down: of three cabinets the first is cabinet 3, of eleven
# locations the first is loc 11.
_PLACES = {
    "diningtable_bar_1": "loc_bar_01",
    "drawer_bar_1": "loc_bar_02",
    "countertop_bar_1": "loc_bar_03",
    "fridge_bar_1": "loc_bar_04",
    "garbagecan_bar_1": "loc_bar_05",
    "sink_bar_1_bar_sinkbasin": "loc_bar_06",
    "microwave_bar_1": "loc_bar_07",
    "cabinet_bar_2": "loc_bar_08",
    "cabinet_bar_1": "loc_bar_09",
    "cabinet_bar_3": "loc_bar_10",
}
_INSIDE = {
    "bread_bar_1": "countertop_bar_1",
    "knife_bar_1": "countertop_bar_1",
    "saltshaker_bar_1": "countertop_bar_1",
    "cup_bar_1": "cabinet_bar_2",
    "fork_bar_1": "diningtable_bar_1",
    "plate_bar_1": "diningtable_bar_1",
    "tomato_bar_1": "diningtable_bar_1",
}
_OPENABLE = ("cabinet", "drawer", "fridge", "microwave")
CLEAN_PLATE = Goal("pick_clean_then_place_in_recep", "plate", "cabinet")
CUP = Goal("pick_and_place_simple", "cup", "diningtable")


class ExampleKitchen(GameSource):
    """The household of the worked example."""

    def __init__(self, goal, goal_text, flavour):
        self.goal, self.goal_text, self.flavour = goal, goal_text, flavour

    @property
    def key(self):
        return f"example/{self.goal_text}/{self.flavour}"

    def load(self):
        things = sorted(kind(name) for name in _INSIDE)
        holders = sorted({kind(name) for name in _PLACES})
        facts = {
            **facts_of("loc_bar_11", _PLACES, _INSIDE, _OPENABLE),
            "pickupable": tuple((name,) for name in _INSIDE),
            "cleanable": (("cup_bar_1",), ("fork_bar_1",), ("plate_bar_1",)),
            "cancontain": tuple((f"{h}type", f"{t}type") for h in holders for t in things),
        }
        problem = Problem(
            name="example",
            agent="agent1",
            objects=tuple(_INSIDE),
            receptacles=tuple(_PLACES),
            locations=tuple(f"loc_bar_{i:02}" for i in range(1, 12)),
            facts=facts,
            goal=self.goal,
        )
        return compile_game(problem, self.goal_text, self.flavour)


def task(flavour, goal=CUP, text="put a cup in diningtable"):
    return Task("example", goal.type, "train", 0, text, data=ExampleKitchen(goal, text, flavour))


def play(env, flavour, replies):
    """Return all texts of an episode."""
    shown = [env.reset(options={"task": task(flavour)})[0]]
    for reply in replies:
        shown.append(env.step(reply)[0])
    return shown


# -- flavours ---------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_prompt_uses_the_words_of_the_games_flavour(flavour):
    env = gym.make(ALFWORLD_ID)
    _, info = env.reset(options={"task": task(flavour)})
    for action in ("look", "go to cabinet 2", "open cabinet 2", "take cup 1 from cabinet 2", "x"):
        ask = Ask("", admissible_actions=info["admissible_actions"], env_id=ALFWORLD_ID)
        assert words_for(ask) is ALFWORLD[flavour]
        info = env.step(action)[4]


def test_without_a_list_of_actions_the_current_flavour_is_used():
    assert words_for(Ask("", env_id="CreditRL/ALFWorld-v3")) is ALFWORLD["0.4"]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_commands_match_the_templates_except_those_that_no_task_needs(flavour):
    templates = [
        re.compile(re.sub(r"\\{\w+\\}", r"[a-z]+ \\d+", re.escape(template)))
        for template in ALFWORLD[flavour].actions
    ]
    env = gym.make(ALFWORLD_ID, flavour=flavour)
    actions = set()
    for seed in range(12):
        _, info = env.reset(seed=seed)
        for _ in range(20):
            actions.update(info["admissible_actions"])
            info = env.step(env.unwrapped.np_random.choice(info["admissible_actions"]))[4]
    without = {a.split()[0] for a in actions if not any(t.fullmatch(a) for t in templates)}
    assert without <= {"look", "inventory", "examine", "help", "slice"}
    assert sum(any(map(t.fullmatch, actions)) for t in templates) >= 6


# -- the worked example -----------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_worked_example_is_a_real_episode(flavour):
    example = ALFWORLD[flavour].example
    env = gym.make(ALFWORLD_ID)
    text, info = env.reset(
        options={"task": task(flavour, CLEAN_PLATE, "put a clean plate in cabinet")}
    )
    assert text == example.observation and info["goal"] == example.goal
    for turn in example.turns:
        assert not info["success"]
        text, _, terminated, _, info = env.step(turn.action)
        assert info["grounded"] and text == turn.observation
    assert terminated and info["success"]


# -- prompts as they are read -----------------------------------------------------------------

SCENE = (
    "You are in the middle of a room. Looking quickly around you, you see a cabinet 3, a cabinet "
    "2, a cabinet 1, a countertop 1, a diningtable 1, a drawer 1, a fridge 1, a garbagecan 1, a "
    "microwave 1, and a sinkbasin 1."
)
TASK = "Your task is to: put a cup in diningtable."
INTRO = f"-= Welcome to TextWorld, ALFRED! =-\n\n{SCENE}\n\n{TASK}"
ACTIONS = ("go to cabinet 2", "open cabinet 2", "take cup 1 from cabinet 2")
ARRIVAL = {"0.4": "You arrive at cabinet 2. ", "0.3": "You arrive at loc 4. "}
PLAIN_ARRIVAL = {**ARRIVAL, "0.3": ""}  # numbers of locations are omitted
PUT = {"0.4": "move {} to {}", "0.3": "put {} in/on {}"}

INSTRUCTIONS = """\
You are an agent that carries out tasks in a household. You get a task and then, turn by turn, \
what you observe. In every turn first think about the state you are in and what to do next, then \
take one action. After each action you see what came of it.

These are the actions:
- go to {recep}
- take {obj} from {recep}
- PUT
- open {recep}
- close {recep}
- use {obj}
- clean {obj} with {recep}
- heat {obj} with {recep}
- cool {obj} with {recep}

{obj} is an object and {recep} a receptacle, each by its name and number as you observe them, \
e.g. mug 1 and cabinet 2.

The answer "Nothing happens." means that the action could not be done: it changed nothing and \
cost a turn, so try another one.

Answer in exactly this form, with nothing before or after it:
Thought: <your reasoning>
Action: <one action>

Three points are critical:
1. Write the action exactly as one of the actions above, every slot filled in, on one line and \
without further words.
2. Ground every plan in what you have observed so far: use only what the history shows, and \
change the plan when an action had no effect.
3. Break the task into precise steps, and know which step the next action serves."""


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_react_form_makes_a_conversation(flavour):
    put, arrival = PUT[flavour].format("{obj}", "{recep}"), PLAIN_ARRIVAL[flavour]
    options = {"form": "react", "output": "messages", "form_options": {"one_shot": False}}
    env = History(ReActAction(gym.make(ALFWORLD_ID), form="react"), **options)
    replies = [f"Thought: step {i}\nAction: {action}" for i, action in enumerate(ACTIONS, 1)]
    first, second, _, fourth = play(env, flavour, replies)
    said = [
        ("user", INSTRUCTIONS.replace("PUT", put)),
        ("assistant", "OK"),
        ("user", f"{SCENE}\n{TASK}"),
    ]
    assert [(m["role"], m["content"]) for m in first] == said
    said += [
        ("assistant", "Thought: step 1\nAction: go to cabinet 2"),
        ("user", f"Observation: {arrival}The cabinet 2 is closed."),
    ]
    assert [(m["role"], m["content"]) for m in second] == said
    said += [
        ("assistant", "Thought: step 2\nAction: open cabinet 2"),
        (
            "user",
            "Observation: You open the cabinet 2. The cabinet 2 is open. In it, you see a cup 1.",
        ),
        ("assistant", "Thought: step 3\nAction: take cup 1 from cabinet 2"),
        ("user", "Observation: You pick up the cup 1 from the cabinet 2."),
    ]
    assert [(m["role"], m["content"]) for m in fourth] == said


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_one_shot_puts_the_example_before_the_task(flavour):
    env = gym.make(ALFWORLD_ID)
    (first,) = play(History(ReActAction(env), form="react", output="messages"), flavour, [])
    said = [(m["role"], m["content"]) for m in first]
    assert [role for role, _ in said] == ["user", "assistant"] * 10 + ["user"]
    assert said[2] == (
        "user",
        f"Here is an example.\n{SCENE}\nYour task is to: put a clean plate in cabinet.",
    )
    arrive = PLAIN_ARRIVAL[flavour].replace("cabinet 2", "countertop 1")
    assert said[4] == (
        "user",
        f"Observation: {arrive}On the countertop 1, you see a bread 1, a knife 1, and a "
        "saltshaker 1.",
    )
    assert said[-2][1].endswith(f"\nAction: {PUT[flavour].format('plate 1', 'cabinet 2')}")
    assert said[-1] == ("user", f"That was an example. Now it is your turn.\n{SCENE}\n{TASK}")
    assert "Welcome" not in str(said) and "loc" not in str(said)


CLOSING = """\
The answer "Nothing happens." means that the action could not be done: it changed nothing and \
cost a turn, so try another one.

Now take one action. First reason step by step about the situation, inside <think> </think> tags. \
Then choose one admissible action for this step and write it inside <action> </action> tags."""


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_tags_form_makes_one_prompt_per_turn(flavour):
    put = PUT[flavour].format("cup 1", "cabinet 2")
    env = History(ReActAction(gym.make(ALFWORLD_ID), form="tags"), form="tags")
    replies = [f"<think>so</think><action>{action}</action>" for action in ACTIONS]
    first, _, _, fourth = play(env, flavour, replies)
    assert first.startswith(
        "You are an expert agent in the ALFRED Embodied Environment.\n\n"
        f"You are at step 1. Your current observation is:\n{INTRO}\n\n"
        "The admissible actions are: ['go to cabinet 1'\n 'go to cabinet 2'\n"
    )
    assert first.endswith(f"'look']. {CLOSING}")
    begin, rest = fourth.split("The admissible actions are: ")
    assert begin == (
        "You are an expert agent in the ALFRED Embodied Environment. Your task is: put a cup in "
        "diningtable\n\n"
        "You have taken 3 steps so far. The last 2 turns, each with what you observed and the "
        "action you took:\n"
        f"[Observation 2: '{ARRIVAL[flavour]}The cabinet 2 is closed.', Action 2: "
        "'open cabinet 2']\n"
        "[Observation 3: 'You open the cabinet 2. The cabinet 2 is open. In it, you see a cup "
        "1.', Action 3: 'take cup 1 from cabinet 2']\n"
        "You are at step 4. Your current observation is:\n"
        "You pick up the cup 1 from the cabinet 2.\n\n"
    )
    assert rest.endswith(f"\n 'look'\n '{put}']. {CLOSING}")
