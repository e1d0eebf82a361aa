"""Every recipe of the package is complete, fits its method and environment, and has its numbers."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path

import pytest

from creditrl.config import find_recipe, known_recipes, read_recipe
from creditrl.errors import ConfigError
from creditrl.trainers.config import TrainConfig, resolve
from creditrl.trainers.models.configs import LoRAConfig
from creditrl.trainers.plan.advice import advise
from creditrl.trainers.plan.memory import GIB

ENVIRONMENTS = ("alfworld", "webshop", "virtualhome", "visualsokoban", "sotopia")
PAPERS = [n for n in known_recipes() if n.rpartition("_")[2] in ENVIRONMENTS]

LLAMA = "meta-llama/Llama-3.2-3B-Instruct"
SMALLER, LARGER = "Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-7B-Instruct"
SEEING = "Qwen/Qwen2.5-VL-7B-Instruct"


def recipe(name: str) -> TrainConfig:
    return resolve(read_recipe(f"@{name}"), [], f"recipe {name}", "creditrl train")


@pytest.mark.slow
@pytest.mark.parametrize("name", known_recipes())
def test_a_recipe_resolves(name):
    config = recipe(name)
    assert config.run.name != "run", "a recipe names its runs"
    assert config.env.options.split == "train"
    assert config.eval.split != "train"
    assert config.eval.split != config.eval.validation_split


def test_the_quick_start_reports_what_it_promises():
    config = recipe("quickstart")
    assert config.eval.levels >= 256 and config.eval.greedy
    assert config.compare.clone_same_time and config.policy.model == "small"


def test_flags_reach_every_form_of_the_loss():
    flags = [
        "--method.loss.clip-on=weight",
        "--method.loss.clip-high=2",
        "--method.loss.length-divisor=512",
        "--method.loss.kl-kind=abs",
    ]
    data = {"method": {"name": "dr_grpo"}, "budget": {"updates": 1}}
    loss = resolve(data, flags, "recipe x", "creditrl train").method.loss
    assert (loss.clip_range, loss.length_divisor, loss.kl_kind) == ((0.8, 3.0), 512, "abs")


def test_another_method_takes_what_it_has_a_field_for():
    data = {
        "method": {"name": "gigpo", "invalid_penalty": 0.3, "loss": {"entropy_coef": 0.7}},
        "budget": {"updates": 1},
    }
    for name in ("gigpo", "grpo", "hisr"):
        method = resolve(data, [f"--method.name={name}"], "recipe x", "creditrl train").method
        assert (method.name, method.loss.entropy_coef) == (name, 0.7)
        assert getattr(method, "invalid_penalty", 0.3) == 0.3  # HISR has none
    # Of its own method a recipe says nothing that this one does not know.
    with pytest.raises(ConfigError, match="unknown key method.invalid_penalty"):
        resolve({**data, "method": {**data["method"], "name": "hisr"}}, [], "x", "creditrl train")


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_recipe_is_of_the_method_and_the_environment_in_its_name(name):
    method, _, env = name.rpartition("_")
    config = recipe(name)
    assert config.method.name == method
    assert config.env.id.removeprefix("CreditRL/").lower() == f"{env}-v0"
    assert config.policy.model in (LLAMA, SMALLER, LARGER, SEEING)
    assert config.policy.dtype == "bfloat16"
    # What is not printed is said to be inferred, or the file says whose numbers it has.
    assert "paper" in find_recipe(f"@{name}").read_text("utf-8").partition("[run]")[0]


@pytest.mark.slow
def test_every_papers_recipe_fits_one_gpu_of_80_gib():
    flags = {name: advise(recipe(name), 80 * GIB, gpu=True) for name in PAPERS}
    assert {name: found for name, found in flags.items() if found is not None} == {}


def test_the_guide_lists_the_papers_recipes():
    text = (Path(__file__).parents[2] / "docs/guides/training.md").read_text("utf-8")
    listed = {
        f"{method}_{env}"
        for env in ENVIRONMENTS
        for row in re.findall(rf"^\| `{env}` \| (.*) \|$", text, re.M)
        for method in re.findall(r"`(\w+)`", row)
    }
    assert listed == set(PAPERS)


PRINTED = {
    "spa": {
        "recipes": ("spa", "sft", "rft", "pg", "rloo", "ppo", "ragen", "prm4a", "stepagent"),
        "environments": ("alfworld", "webshop", "virtualhome"),
        "policy.model": LLAMA,
        "eval.greedy": True,
        "rollout.form": "react",
    },
    "istar": {
        "recipes": ("istar", "grpo", "rloo", "reinforce_pp", "gigpo", "prime", "ppo"),
        "environments": ("webshop", "visualsokoban", "sotopia"),
        "policy.model": LARGER,
        # The paper trains all weights, at 5e-7, for which one GPU has no room.
        "policy.lora": LoRAConfig(rank=16, alpha=32),
        "clone.episodes": 0,
        "rollout.group_size": 8,
        "optim.lr": 5e-6,
        "method.invalid_penalty": 0.1,
        "method.loss.kl_coef": 0.0,
        "eval.temperature": 0.4,
        "eval.greedy": False,
    },
    "three_spo": {
        "recipes": ("three_spo", "grpo", "gigpo", "hgpo"),
        "environments": ("alfworld", "webshop"),
        "policy.model": SMALLER,
        "policy.lora": None,
        "clone.episodes": 0,
        "rollout.groups": 16,
        "rollout.group_size": 8,
        "optim.lr": 1e-6,
        "method.invalid_penalty": 0.1,
        "method.loss.kl_coef": 0.01,
        "eval.temperature": 0.4,
        "eval.greedy": False,
    },
}
"""Numbers that a paper prints for all of its environments, and the recipes that use them."""
OTHERS = {
    ("rloo", "webshop"): "istar",
    ("ppo", "webshop"): "istar",
    ("grpo", "webshop"): "istar",
    ("gigpo", "webshop"): "istar",
}
"""Which paper's numbers a recipe has that several papers could fill."""
COUNTED = {
    # 3SPO's copy of verl-agent counts rows, iStar's older one episodes.
    "gigpo_alfworld": {"over": "rows", "penalty_order": "before"},
    "gigpo_webshop": {"over": "trajectories", "penalty_order": "before"},
    "gigpo_visualsokoban": {"over": "trajectories", "penalty_order": "before"},
    "hgpo_alfworld": {"penalty_order": "before"},
    "hgpo_webshop": {"penalty_order": "before"},
    "reinforce_pp_webshop": {"baseline": True, "whiten_over": "tokens"},
    "reinforce_pp_visualsokoban": {"baseline": True, "whiten_over": "tokens"},
    # The small ones have the papers' forms, which are the defaults.
    "gigpo_small": {"over": "trajectories", "penalty_order": "after"},
    "hgpo_small": {"penalty_order": "after"},
    "reinforce_pp_small": {"over": "trajectories", "whiten_over": None},
}
"""Options of the code behind the recipes' figures."""


@pytest.mark.parametrize("name", COUNTED)
def test_recipes_count_what_the_code_behind_their_figures_counts(name):
    config = recipe(name).method
    assert {field: getattr(config, field) for field in COUNTED[name]} == COUNTED[name]


TURNS = {
    "spa": {"alfworld": 40, "webshop": 10, "virtualhome": 40},
    "istar": {"webshop": 15, "visualsokoban": 15, "sotopia": 20},
    "three_spo": {"alfworld": 50, "webshop": 15},
}


@pytest.mark.parametrize("paper", PRINTED)
def test_recipes_have_their_papers_numbers(paper):
    printed = dict(PRINTED[paper])
    methods, environments = printed.pop("recipes"), printed.pop("environments")
    seen = 0
    for name in PAPERS:
        method, _, env = name.rpartition("_")
        if method not in methods or env not in environments:
            continue
        if OTHERS.get((method, env), paper) != paper:
            continue
        config = recipe(name)
        seen += 1
        for field, value in printed.items():
            found = attrgetter(field)(config)
            # iStar plays VisualSokoban on pictures: the model of the same size that sees.
            if found == SEEING and env == "visualsokoban":
                found = LARGER
            assert found == value, (name, field)
        assert config.env.options.max_turns == TURNS[paper][env], name
    assert seen >= len(environments), "each environment has at least the paper's own method"
    assert {f"{paper}_{env}" for env in environments} <= set(PAPERS)


@pytest.mark.parametrize("env", ["alfworld", "webshop", "virtualhome"])
def test_hisr_has_its_own_numbers(env):
    config = recipe(f"hisr_{env}")
    rate, batch, turns = {
        "alfworld": (1.5e-5, 32, 8.0),
        "virtualhome": (4e-5, 24, 11.5),
        "webshop": (1.5e-5, 32, 3.6),
    }[env]
    assert config.clone.optim.lr == rate
    # The paper counts episodes of so many turns on average, a recipe counts turns.
    assert config.clone.batch_turns == pytest.approx(batch * turns, rel=0.15)
    method = config.method
    assert (method.gae.gamma, method.gae.lam) == (0.99, 0.95)
    assert (config.optim.lr, method.critic.lr, method.loss.kl_coef) == (1e-5, 1e-4, 0.01)
    assert (method.sprm.backbone.lr, method.hindsight.backbone.lr) == (2e-6, 1e-6)
    assert method.sprm.batch == (48 if env == "webshop" else 16)
    assert method.hindsight.batch == (24 if env == "webshop" else 192)
    assert config.policy.lora.rank == 8


@pytest.mark.parametrize("env", ["alfworld", "webshop", "virtualhome"])
def test_cloning_sees_every_demonstration_three_times(env):
    turns = {"alfworld": 8.0, "webshop": 3.6, "virtualhome": 11.5}[env]
    for name in (f"sft_{env}", f"spa_{env}", f"hisr_{env}"):
        config = recipe(name)
        updates = config.budget.updates if name.startswith("sft") else config.clone.updates
        assert updates is not None
        seen = updates * config.clone.batch_turns
        assert seen == pytest.approx(3 * turns * config.clone.episodes, rel=0.15), name
