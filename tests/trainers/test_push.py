"""``creditrl export policy --push`` against a hub on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_runs import TINY

from creditrl.cli import run
from creditrl.errors import ConfigError, CreditRLError
from creditrl.trainers.after.push import push_policy

FEW = ("--rollout.group-size=2", "--eval.levels=4", "--eval.no-greedy", "--budget.updates=1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "policy"
    made.mkdir()
    (made / "README.md").write_text("---\nlibrary_name: transformers\n---\n# A policy\n")
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    words = ["train", "@quickstart", *TINY, *FEW, "--clone.episodes=0", f"--run.folder={path}"]
    assert run(words) == 0
    return path


def test_the_hub_gets_the_exported_folder(trained, hub, tmp_path, capsys):
    to = tmp_path / "policy"
    assert run(["export", "policy", str(trained), "--to", str(to), "--push", "me/policy"]) == 0
    assert f"Pushed to {hub.url}/me/policy" in capsys.readouterr().out
    assert hub.private == {"me/policy": True} and hub.tokens == {"Bearer hf_of_the_test"}
    assert hub.files == {p.name: p.read_bytes() for p in to.iterdir()}
    assert b"creditrl" in hub.files["README.md"]
    # The user need not name a folder.
    hub.files.clear()
    assert run(["export", "policy", str(trained), "--push", "other", "--public"]) == 0
    assert "--agent hf:other" in capsys.readouterr().out
    assert hub.private["me/other"] is False and "model.safetensors" in hub.files


def test_no_local_path_is_uploaded(trained, hub, tmp_path):
    base, recipe, again = tmp_path / "base model", tmp_path / "mine.toml", tmp_path / "again"
    assert run(["export", "policy", str(trained), "--to", str(base)]) == 0
    recipe.write_text('base = "quickstart"\n')
    tiny = [word for word in TINY if not word.startswith("--policy")]
    flags = [*tiny, *FEW, "--clone.episodes=0", f"--policy.model={base}"]
    assert run(["train", f"@{recipe}", *flags, "--run.folder", str(again)]) == 0
    assert run(["export", "policy", str(again), "--push", "me/policy"]) == 0
    assert [name for name, data in hub.files.items() if str(tmp_path).encode() in data] == []
    card = hub.files["README.md"].decode()
    assert "creditrl train @mine.toml" in card and "--run.folder again" in card
    assert "'--policy.model=base model'" in card and "\nbase_model:" not in card


def test_a_public_repository_is_written_only_on_request(hub, folder):
    hub.private["me/policy"] = False
    with pytest.raises(ConfigError, match="public; nothing was uploaded"):
        push_policy(folder, "me/policy")
    assert hub.files == {}
    push_policy(folder, "me/policy", public=True)
    assert list(hub.files) == ["README.md"]


@pytest.mark.parametrize("base", ["/models/mine", "../mine", "org/a/b"])
def test_an_adapter_of_a_local_base_is_not_pushed(hub, folder, base):
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    with pytest.raises(ConfigError, match="without --adapter"):
        push_policy(folder, "me/policy")
    assert hub.private == {}


def test_a_hub_that_refuses_or_is_unreachable_is_a_one_line_error(hub, folder, monkeypatch):
    hub.refuses = True
    for said in ("You may not write here", "could not be pushed"):
        with pytest.raises(CreditRLError, match=said) as caught:
            push_policy(folder, "me/policy")
        assert "\n" not in str(caught.value)
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--push", "me/policy"], "No token for the model hub"),
        (["--push", "a/b/c"], "is not a repository"),
        (["--public", "--to", "x"], "--public has no effect without --push"),
        ([], "Missing target"),
    ],
)
def test_a_bad_push_is_a_one_line_error_before_anything_is_written(
    flags, said, trained, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    capsys.readouterr()
    assert run(["export", "policy", str(trained), *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line and list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named_with_its_install_command(folder, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install huggingface_hub"):
        push_policy(folder, "me/policy")
