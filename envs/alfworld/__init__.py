"""ALFWorld: household tasks in text, native and exact."""

from __future__ import annotations

from creditrl.envs.alfworld.engine import ALFWorldEngine
from creditrl.envs.alfworld.env import ALFWorldConfig, ALFWorldEnv, ALFWorldVectorEnv
from creditrl.envs.alfworld.game import Game, State, compile_game
from creditrl.envs.alfworld.gamefile import GameFile
from creditrl.envs.alfworld.pddl import read_problem
from creditrl.envs.alfworld.problem import TASK_TYPES, GameSource, Goal, Problem

__all__ = [
    "TASK_TYPES",
    "ALFWorldConfig",
    "ALFWorldEngine",
    "ALFWorldEnv",
    "ALFWorldVectorEnv",
    "Game",
    "GameFile",
    "GameSource",
    "Goal",
    "Problem",
    "State",
    "compile_game",
    "read_problem",
]
