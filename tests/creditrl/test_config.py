from __future__ import annotations

import enum
import math
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from creditrl.config import (
    config_hash,
    find_recipe,
    from_mapping,
    known_recipes,
    override,
    read_recipe,
    read_table,
    read_toml,
    specialise,
    to_mapping,
    write_toml,
)
from creditrl.errors import ConfigError, DataError, UnknownNameError
from creditrl.flags import flag_helps

WHERE = "recipe quickstart.toml"


class Pace(enum.Enum):
    slow = 1
    fast = 2


@dataclass(frozen=True, slots=True)
class Rollout:
    """How turns are collected."""

    groups: int = 16
    """Different tasks per update."""
    group_size: int = 8
    """Copies of each task."""
    temperature: float = 1.0
    """Sampling temperature."""
    mode: Literal["sync", "async", 2] = "sync"
    """How copies step."""
    stop_at: float | None = 0.9
    """Success that ends training; None never does."""
    resume: str | None = None
    """Folder to go on from."""
    hidden: tuple[int, ...] = (64, 64)
    """Layer widths."""
    window: tuple[int, str] = (1, "a")
    """A pair."""
    names: list[str] = field(default_factory=list)
    """Names."""
    weights: dict[str, float] = field(default_factory=dict)
    """Weight of each part."""
    folder: Path = Path("runs")
    """Where runs go."""
    pace: Pace = Pace.slow
    """Pace."""
    image: bool = False
    """Whether there are images."""

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ConfigError(f"groups is {self.groups}; expected at least 1.")


@dataclass(frozen=True, slots=True)
class Clip:
    """Settings of a method that clips."""

    clip: float = 0.2
    """Clip range of the ratio."""
    gamma: float = 0.95
    """Discount per turn."""


@dataclass(frozen=True, slots=True)
class Strict:
    level: str
    """No default."""


@dataclass(frozen=True, slots=True)
class Env:
    id: str = "CreditRL/VisualSokoban-v0"
    """Gymnasium id."""
    options: Any = None
    """Options of the environment."""


@dataclass(frozen=True, slots=True)
class SokobanOptions:
    tier: Literal["easy", "medium"] = "easy"
    """Which levels."""


@dataclass(frozen=True, slots=True)
class Train:
    """Train a policy."""

    seed: int = 0
    """Fixes everything."""
    rollout: Rollout = Rollout(groups=4)
    """How turns are collected."""
    method: Any = None
    """Settings of the method."""
    env: Env = Env()
    """The environment."""


def test_tables_fill_nested_dataclasses():
    config = from_mapping(Train, {"seed": 3, "rollout": {"group_size": 2}}, WHERE)
    assert config.seed == 3
    assert config.rollout.group_size == 2
    with pytest.raises(FrozenInstanceError):
        config.seed = 4  # type: ignore[misc]


def test_a_table_changes_only_the_keys_it_names():
    # Train's own default says groups=4, Rollout's says 16: the nearer one counts.
    assert from_mapping(Train, {"rollout": {"group_size": 2}}).rollout.groups == 4


def test_gentle_conversions():
    data = {
        "groups": 1e3,
        "temperature": 1,
        "hidden": [1, 2, 3],
        "window": [7, "b"],
        "weights": {"kl": 1},
        "folder": "elsewhere",
        "pace": "fast",
        "stop_at": 1,
        "mode": 2,
    }
    rollout = from_mapping(Rollout, data)
    assert (rollout.groups, type(rollout.groups)) == (1000, int)
    assert (rollout.temperature, type(rollout.temperature)) == (1.0, float)
    assert rollout.hidden == (1, 2, 3) and rollout.window == (7, "b")
    assert rollout.weights == {"kl": 1.0} and rollout.folder == Path("elsewhere")
    assert rollout.pace is Pace.fast and rollout.stop_at == 1.0 and rollout.mode == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"rollout": {"gruops": 4}},
            "recipe quickstart.toml: unknown key rollout.gruops. Did you mean 'groups'? "
            "Known: groups, group_size, ",
        ),
        ({"rollout": {"groups": "four"}}, "rollout.groups is 'four' (str); expected int."),
        ({"rollout": {"groups": 1.5}}, "rollout.groups is 1.5 (float); expected int."),
        ({"rollout": {"groups": True}}, "rollout.groups is True (bool); expected int."),
        ({"rollout": {"image": 1}}, "rollout.image is 1 (int); expected bool."),
        ({"rollout": {"temperature": True}}, "rollout.temperature is True (bool); expected float"),
        ({"rollout": {"stop_at": "x"}}, "rollout.stop_at is 'x' (str); expected float."),
        ({"rollout": {"mode": "snyc"}}, "expected one of 'sync', 'async', 2. Did you mean 'sync'?"),
        ({"rollout": {"hidden": [1, "b"]}}, "rollout.hidden[1] is 'b' (str); expected int."),
        ({"rollout": {"hidden": 3}}, "rollout.hidden is 3 (int); expected a list of int."),
        ({"rollout": {"window": [1]}}, "expected 2 values, a list [int, str]."),
        ({"rollout": {"weights": {"kl": "a"}}}, "rollout.weights.kl is 'a' (str); expected float."),
        ({"rollout": {"weights": [1]}}, "rollout.weights is [1] (list); expected a table."),
        ({"rollout": {"pace": "fats"}}, "expected one of 'slow', 'fast'."),
        ({"rollout": 3}, "rollout is 3 (int); expected a table of Rollout keys."),
        ({"rollout": {"groups": 0}}, "rollout: groups is 0; expected at least 1."),
        ({"seed": "x" * 500}, "...' ("),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(data, message):
    shown = message.replace("...' (", "... (")
    with pytest.raises(ConfigError) as caught:
        from_mapping(Train, data, WHERE)
    text = str(caught.value)
    assert text.startswith("recipe quickstart.toml: ")
    assert shown in text
    assert "\n" not in text and len(text) < 300


def test_a_field_without_default_must_be_given():
    with pytest.raises(ConfigError, match=r"missing key level: expected str"):
        from_mapping(Strict, {}, WHERE)


def test_round_trip_through_toml(tmp_path):
    config = Train(
        rollout=Rollout(stop_at=None, names=["a", 'b "q" \n é'], weights={"kl": math.inf}),
        env=Env(options={"tier": "easy", "missing": None}),
    )
    path = tmp_path / "config.toml"
    write_toml(config, path, header="made by a test\nsecond line")
    assert path.read_text().startswith("# made by a test\n# second line\n")
    back = from_mapping(Train, read_toml(path), str(path))
    assert back.rollout == config.rollout  # a None that replaces 0.9 survives
    assert back.env.options == {"tier": "easy"}
    assert [p.name for p in tmp_path.iterdir()] == ["config.toml"]  # no draft is left


def test_none_is_left_out_where_it_is_the_default():
    assert "resume" not in to_mapping(Rollout())
    assert to_mapping(Rollout(stop_at=None))["stop_at"] == "None"


@dataclass(frozen=True, slots=True)
class Budget:
    updates: int | None = None
    """Updates."""
    seconds: float | None = None
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Budgeted:
    budget: Budget = Budget(updates=100)
    """When to end."""


def test_a_none_survives_a_default_that_the_parent_chose():
    # Budget's own default is None, but Budgeted's is 100: leaving the None out would lose it.
    config = Budgeted(Budget(updates=None, seconds=60.0))
    assert to_mapping(config) == {"budget": {"updates": "None", "seconds": 60.0}}
    assert from_mapping(Budgeted, to_mapping(config)) == config


def test_numpy_numbers_are_written_as_pythons(tmp_path):
    @dataclass(frozen=True)
    class Numbers:
        a: float = 0.0
        b: int = 0

    out = to_mapping(Numbers(np.float32(0.5), np.int64(3)))
    assert out == {"a": 0.5, "b": 3} and [type(v) for v in out.values()] == [float, int]


def test_what_a_file_cannot_hold_is_named():
    with pytest.raises(ConfigError, match=r"env\.options is a set"):
        to_mapping(Train(env=Env(options={1, 2})))


_leaf = st.one_of(
    st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.text(), st.booleans()
)


@given(
    st.builds(
        Rollout,
        groups=st.integers(1, 2**40),
        temperature=st.floats(allow_nan=False),
        mode=st.sampled_from(["sync", "async", 2]),
        stop_at=st.none() | st.floats(allow_nan=False),
        resume=st.none() | st.text(st.characters(codec="utf-8")).filter(lambda s: s != "None"),
        hidden=st.lists(st.integers(-5, 5)).map(tuple),
        names=st.lists(st.text(st.characters(codec="utf-8"))),
        weights=st.dictionaries(st.text(st.characters(codec="utf-8")), st.floats(allow_nan=False)),
        pace=st.sampled_from(Pace),
        image=st.booleans(),
    )
)
def test_any_config_survives_plain_data(rollout):
    assert from_mapping(Rollout, to_mapping(rollout)) == rollout


def test_damaged_toml_names_file_and_line(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("seed = 1\n[rollout]\ngroups = = 3\n")
    with pytest.raises(ConfigError, match=r"bad\.toml, line 3: Invalid value") as caught:
        read_toml(path)
    assert "\n" not in str(caught.value)
    path.write_text("seed = ")
    with pytest.raises(ConfigError, match=r"bad\.toml, (last line|line 1)"):
        read_toml(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_toml(path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_toml(tmp_path / "absent.toml")


@pytest.mark.parametrize("text", ["groups = ", "group = 4", "groups = 'four'"])
def test_a_table_of_the_package_that_is_not_as_expected_is_bad_data(tmp_path, text):
    file = tmp_path / "table.toml"
    file.write_text(text)
    with pytest.raises(DataError, match=r"table\.toml.*The file is part of creditrl: install"):
        read_table(Rollout, file)


def test_recipes_are_found_by_name_and_by_path(tmp_path, monkeypatch):
    package = tmp_path / "package"
    package.mkdir()
    (package / "quickstart.toml").write_text("seed = 7\n")
    (package / "notes.txt").write_text("")
    monkeypatch.setattr("importlib.resources.files", lambda name: package)
    assert "quickstart" in known_recipes() and "notes" not in known_recipes()
    assert read_toml(find_recipe("@quickstart")) == {"seed": 7}
    assert find_recipe("quickstart") == find_recipe("@recipes/quickstart.toml")
    mine = tmp_path / "mine.toml"
    mine.write_text("")
    assert find_recipe(f"@{mine}") == mine
    with pytest.raises(UnknownNameError, match=r"Did you mean 'quickstart'\?.* lists the recipes"):
        find_recipe("@quikstart")
    with pytest.raises(UnknownNameError, match="No recipe file 'other/quickstart.toml'"):
        find_recipe("@other/quickstart.toml")


def test_a_recipe_stands_on_its_base_and_takes_nothing_of_another_method(tmp_path):
    (tmp_path / "a.toml").write_text(
        '[env]\nid = "E"\n[env.options]\nsize = 3\n[method]\nname = "grpo"\neps = 1\n'
        "[run]\nseed = 7\n"
    )
    (tmp_path / "b.toml").write_text('base = "a.toml"\n[method]\nname = "ppo"\n')
    (tmp_path / "c.toml").write_text('base = "b.toml"\n[method]\nlam = 0.9\n[run]\nthreads = 1\n')
    (tmp_path / "d.toml").write_text('base = "c.toml"\n[env]\nid = "F"\n')
    found = read_recipe(tmp_path / "c.toml")
    assert found == {
        "env": {"id": "E", "options": {"size": 3}},
        "method": {"name": "ppo", "lam": 0.9},
        "run": {"seed": 7, "threads": 1},
    }
    assert read_recipe(f"@{tmp_path / 'd.toml'}") == {**found, "env": {"id": "F"}}


def test_two_names_of_one_environment_are_equal_to_a_base(tmp_path):
    (tmp_path / "a.toml").write_text('[env]\nid = "CreditRL/ALFWorld-v0"\n[env.options]\na = 1\n')
    (tmp_path / "b.toml").write_text('base = "a.toml"\n[env]\nid = "ALFWorld"\n')
    assert read_recipe(tmp_path / "b.toml")["env"] == {"id": "ALFWorld", "options": {"a": 1}}


@pytest.mark.parametrize(
    ("base", "match"),
    [
        ('"round.toml"', r"The bases of .*round.toml go in a circle: .*round.toml -> .*round.toml"),
        ("7", "base is 7: expected a name"),
        ('""', "base is '': expected a name"),
        ('"here.toml"', "there is no .*here.toml: expected a file beside the recipe"),
        ('"absent"', "No recipe named 'absent'"),
    ],
)
def test_bad_bases_are_refused(tmp_path, monkeypatch, base, match):
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "round.toml").write_text(f"base = {base}\n")
    (tmp_path / "here.toml").write_text("")
    monkeypatch.chdir(tmp_path)  # the working directory is not where a base is looked for
    with pytest.raises((ConfigError, UnknownNameError), match=match):
        read_recipe(folder / "round.toml")


def test_the_config_of_a_run_is_no_base(tmp_path):
    (tmp_path / "versions.json").write_text("{}")
    (tmp_path / "config.toml").write_text('[run]\nplugins = ["theirs"]\n')
    (tmp_path / "mine.toml").write_text('base = "config.toml"\n')
    with pytest.raises(ConfigError, match="the config of a run: expected a recipe"):
        read_recipe(tmp_path / "mine.toml")


def test_the_packages_own_recipes_are_read():
    for name in known_recipes():
        assert isinstance(read_recipe(f"@{name}"), dict)


def test_specialised_fields_are_checked_and_defaulted():
    special = specialise(Train, method=Clip, env=specialise(Env, options=SokobanOptions))
    assert [f.name for f in fields(special)] == [f.name for f in fields(Train)]
    config = special()
    assert config.method == Clip() and config.rollout.groups == 4
    assert isinstance(config, Train) and config.env.options == SokobanOptions()
    config = from_mapping(special, {"method": {"clip": 1}, "env": {"options": {"tier": "medium"}}})
    assert config.method == Clip(clip=1.0) and config.env.options.tier == "medium"
    with pytest.raises(ConfigError, match=r"unknown key method\.clpi\. Did you mean 'clip'"):
        from_mapping(special, {"method": {"clpi": 1}})
    with pytest.raises(ConfigError, match="Train has no field 'methd'. Did you mean 'method'"):
        specialise(Train, methd=Clip)


def test_specialise_keeps_defaults_of_the_new_type():
    assert specialise(Env, id=str)().id == "CreditRL/VisualSokoban-v0"
    assert specialise(Env, options=Strict)().options is None  # Strict() cannot be made
    assert specialise(Rollout, mode=Literal["sync", "turbo"])().mode == "sync"
    assert specialise(Train, rollout=Rollout)().rollout.groups == 4


def test_specialised_configs_travel_through_pickling():
    special = specialise(Train, method=Clip)
    config = special(seed=2)
    back = pickle.loads(pickle.dumps(config))
    assert back == config and type(back) is special


def test_flags_change_fields_at_any_depth():
    special = specialise(Train, method=Clip, env=specialise(Env, options=SokobanOptions))
    argv = [
        *("--rollout.group-size", "4", "--rollout.hidden", "1", "2", "--seed=9"),
        *("--method.clip", "0.5", "--env.options.tier", "medium", "--rollout.stop_at", "None"),
        "--rollout.image",
    ]
    config = override(special(), argv, "creditrl train @quickstart")
    assert config.seed == 9 and config.rollout.group_size == 4 and config.rollout.hidden == (1, 2)
    assert config.rollout.groups == 4  # the loaded default, not the class's
    assert config.method == Clip(clip=0.5) and config.env.options.tier == "medium"
    assert config.rollout.stop_at is None and config.rollout.image is True
    assert type(config) is special


@dataclass(frozen=True, slots=True)
class Policy:
    lora: Clip | None = None
    """An optional part."""


@dataclass(frozen=True, slots=True)
class WithPolicy:
    policy: Policy = Policy()
    """The policy."""


def test_a_flag_of_an_optional_part_makes_it():
    assert override(WithPolicy(), [], "x").policy.lora is None
    config = override(WithPolicy(), ["--policy.lora.clip", "0.5"], "x")
    assert config.policy.lora == Clip(clip=0.5)
    given = WithPolicy(Policy(Clip(gamma=0.1)))
    assert override(given, ["--policy.lora.clip=0.5"], "x").policy.lora == Clip(0.5, 0.1)
    with pytest.raises(ConfigError, match="Unknown flag --policy.lora.clpi. Did you mean"):
        override(WithPolicy(), ["--policy.lora.clpi", "0.5"], "x")


@pytest.mark.parametrize("argv", [["--policy.lora", "None"], ["--policy.lora=None"]])
def test_a_flag_takes_an_optional_part_away(argv):
    given = WithPolicy(Policy(Clip(gamma=0.1)))
    assert override(given, argv, "x").policy.lora is None
    with pytest.raises(ConfigError, match="Unknown flag --policy"):  # no optional part
        override(given, ["--policy", "None"], "x")


@pytest.mark.parametrize(
    ("argv", "image"),
    [
        ([], True),
        (["--rollout.no-image"], False),
        (["--rollout.image", "false"], False),
        (["--rollout.image=False"], False),
        (["--rollout.image", "true"], True),
        (["--rollout.image", "--seed", "1"], True),
    ],
)
def test_booleans_are_switches_or_words(argv, image):
    assert override(Train(rollout=Rollout(image=True)), argv, "x").rollout.image is image


@dataclass(frozen=True, slots=True)
class Scores:
    """A part of a method."""

    alpha: float = 1.0
    """Weight."""
    novelty: bool = True
    """Switch."""
    clip: Clip = Clip()
    """A part of the part."""


@dataclass(frozen=True, slots=True)
class TreeMethod:
    """A method whose fields lie in parts."""

    scores: Scores = Scores()
    """One part."""
    clip: Clip = Clip()
    """Another."""


@dataclass(frozen=True, slots=True)
class WithTree:
    """Everything."""

    method: TreeMethod = TreeMethod()
    """The method."""
    alpha_of_all: float = 0.0
    """Not of the method."""


@pytest.mark.parametrize(
    ("argv", "alpha", "novelty"),
    [
        (["--method.alpha", "3"], 3.0, True),
        (["--method.alpha=3", "--method.no-novelty"], 3.0, False),
        (["--method.novelty", "false"], 1.0, False),
        (["--method.scores.alpha", "3"], 3.0, True),
    ],
)
def test_parts_between_a_section_and_a_field_may_be_left_out(argv, alpha, novelty):
    scores = override(WithTree(), argv, "x").method.scores
    assert (scores.alpha, scores.novelty) == (alpha, novelty)


@pytest.mark.parametrize("flag", ["--method.clip=0.1", "--method.no-alpha", "--alpha=1"])
def test_what_could_be_meant_of_two_fields_is_refused(flag):
    # Two parts have a field "clip"; a number is no switch; outside a section nothing is left out.
    with pytest.raises(ConfigError):
        override(WithTree(), [flag], "x")


@pytest.mark.parametrize("utf8", [False, True])
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--rollout.gruops", "4"],
            "Unknown flag --rollout.gruops. Did you mean '--rollout.groups'?",
        ),
        (["--group-size", "4"], "Unknown flag --group-size. Did you mean '--rollout.group-size'?"),
        (["--rollout.groups", "four"], "--rollout.groups: expected a whole number, found 'four'."),
        (["--rollout.mode", "turbo"], "invalid choice 'turbo' for argument '--rollout.mode'"),
        (["--rollout.groups"], "Missing value for argument '--rollout.groups'"),
        (["stray"], "Unrecognized options: stray."),
        (["--rollout.image=maybe"], "--rollout.image is 'maybe'; expected true or false."),
        (["--rollout.groups", "0"], "groups is 0; expected at least 1."),
    ],
)
def test_bad_flags_are_said_in_one_line(argv, message, utf8, capsys, monkeypatch):
    monkeypatch.setattr(
        "tyro._fmtlib._FORCE_UTF8_BOXES", utf8, raising=False
    )  # tyro draws in two ways
    with pytest.raises(ConfigError) as caught:
        override(Train(), argv, "creditrl train @quickstart")
    text = str(caught.value)
    assert message in text and "\n" not in text
    assert not set("│╭─|+") & set(text) and "---" not in text
    assert text.count("--help") <= 1 and "Unrecognized options Unrecognized" not in text
    assert capsys.readouterr() == ("", "")  # the command line prints it, once


@dataclass(frozen=True)
class Optim:
    lr: float = 1e-3
    warmup: int = 0


@dataclass(frozen=True)
class Clone:
    optim: Optim = field(default_factory=Optim)
    warm: int = 0


@dataclass(frozen=True)
class Both:
    clone: Clone = field(default_factory=Clone)
    optim: Optim = field(default_factory=Optim)


def test_a_suggestion_stays_in_the_section_that_was_meant():
    for flag, meant in (
        ("--optm.lr", "--optim.lr"),
        ("--lr", "--optim.lr"),
        ("--clon.optim.lr", "--clone.optim.lr"),
        ("--optim.warm", "--optim.warmup"),
    ):
        with pytest.raises(ConfigError, match=f"Did you mean '{meant}'"):
            override(Both(), [flag, "1"], "x")


def test_the_help_of_each_flag_can_be_read():
    found = flag_helps(Train(), "x")
    assert found["rollout.groups"].values == "INT"
    assert found["rollout.groups"].default == str(Train().rollout.groups)


@pytest.mark.parametrize("utf8", [False, True])
def test_help_joins_lines_has_no_docstring_markup_and_keeps_its_frame(utf8, capsys, monkeypatch):
    @dataclass(frozen=True)
    class Marked:
        depth: int = 1
        """Blocks of ``small``;
        see :class:`creditrl.types.TurnTable`."""

    monkeypatch.setattr("tyro._fmtlib._FORCE_UTF8_BOXES", utf8, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        override(Marked(), ["--help"], "x")
    out = capsys.readouterr().out
    assert "Blocks of small; see TurnTable." in out
    assert len({len(line) for line in out.splitlines()[2:] if line}) == 1


def test_help_shows_docstrings_and_present_values(capsys):
    special = specialise(Train, method=Clip)
    with pytest.raises(SystemExit) as caught:
        override(special(seed=5), ["--help"], "creditrl train @quickstart")
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--method.clip FLOAT Clip range of the ratio. (default: 0.2)" in text
    assert "Fixes everything. (default: 5)" in text
    assert "creditrl train @quickstart" in text


def test_hash_names_the_values():
    # Worked by hand: sha256 of '{"clip":0.2,"gamma":0.95}'.
    assert config_hash(Clip()) == "637caa2afd3f"
    assert config_hash(Clip(clip=1)) == config_hash(Clip(clip=1.0)) != config_hash(Clip())
    assert config_hash(specialise(Train, method=Clip)()) != config_hash(Train())


def test_hash_is_equal_in_every_process(tmp_path):
    code = (
        "import dataclasses; from creditrl.config import config_hash\n"
        "@dataclasses.dataclass\nclass C:\n    d: dict\n"
        "print(config_hash(C({'b': 1, 'a': {'y': 2.5, 'x': 's'}})))"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "77")
    }
    assert len(shown) == 1


def test_mapping_and_sequence_hints_are_understood():
    @dataclass(frozen=True)
    class Loose:
        table: Mapping[str, int] = field(default_factory=dict)
        items: Sequence[int] = ()

    globals()["Mapping"], globals()["Sequence"] = Mapping, Sequence
    loose = from_mapping(Loose, {"table": {"a": 1}, "items": [1, 2]})
    assert loose.table == {"a": 1} and loose.items == (1, 2)
