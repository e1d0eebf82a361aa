"""Several processes: two train as one does, with sharded weights, and end together."""

from __future__ import annotations

import copy
import importlib.util
import json
import socket
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from programs import by_python
from small_runs import TINY, rows_of
from small_vision import flags, make_vision_policy, save_text_model

from creditrl.cli import train as cli_train
from creditrl.errors import ConfigError, CreditRLError, EngineError, LostRankError
from creditrl.trainers import run
from creditrl.trainers.batch import RowBatch
from creditrl.trainers.config import PolicyConfig, RolloutConfig, TrainConfig
from creditrl.trainers.models.policy import Policy
from creditrl.trainers.parallel.distributed import check_shared
from creditrl.trainers.parallel.ranks import Ranks, launched, lost_others, without_ranks
from creditrl.trainers.parallel.ray_config import RayConfig

SCRIPT = Path(__file__).with_name("train_on_ranks.py")
METHODS = ("gigpo", "istar", "hisr", "archer", "stepagent", "istar+lora", "archer+lora")
"""A group method; implicit rewards; an estimator that is fitted beforehand, a model in hindsight, a
frozen reference and a critic; critics with slow copies that ask the policy for replies; implicit
rewards of turns, a discriminator and a critic; adapters beside a reward model's, and beside
critics'."""


def script() -> ModuleType:
    """Return the module that torchrun runs."""
    spec = importlib.util.spec_from_file_location("train_on_ranks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def torchrun(*words: str, size: int = 2, timeout: float = 480) -> subprocess.CompletedProcess[str]:
    """Run so many processes on this machine; they and torchrun end with the test."""
    return by_python(
        *("-m", "torch.distributed.run", "--nproc-per-node", str(size)),
        *("--master-addr", "127.0.0.1", "--master-port", str(free_port()), *words),
        timeout=timeout,
        env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any, Any, Any]]:
    """Each method's (one process, two, one after two, two after one)."""
    out = tmp_path_factory.mktemp("ranks")
    here = script()
    alone = {what: here.train(what) for what in METHODS}
    for what, found in alone.items():
        torch.save(found, out / f"{what}.alone.pt")
    done = torchrun(str(SCRIPT), str(out), *METHODS)
    assert done.returncode == 0, done.stderr
    made = {}
    for what in METHODS:
        two, after = (
            torch.load(out / f"{what}{kind}.pt", weights_only=False) for kind in ("", ".resumed")
        )
        made[what] = (alone[what], two, here.resume(what, copy.deepcopy(two["state"])), after)
    return made


def tensors(state: Any, path: str = "") -> dict[str, torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return {path: state}
    if not isinstance(state, (dict, list, tuple)):
        return {}
    items = state.items() if isinstance(state, dict) else enumerate(state)
    return {k: v for key, item in items for k, v in tensors(item, f"{path}/{key}").items()}


def assert_equal_states(one: Any, two: Any) -> None:
    ours, theirs = tensors(one["state"]), tensors(two["state"])
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert type(theirs[name]) is torch.Tensor, name
        torch.testing.assert_close(theirs[name], value, atol=1e-5, rtol=1e-5, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("what", METHODS)
def test_two_processes_give_the_update_of_one(runs: Any, what: str) -> None:
    one, two, _, _ = runs[what]
    assert_equal_states(one, two)
    for ours, theirs in zip(one["metrics"], two["metrics"], strict=True):
        assert ours.keys() == theirs.keys()
        names = {"success", "turns", "environment_turns", "loss", "grad_norm"}
        # "critic/loss", "implicit_prm/accuracy", ...
        names |= {n for n in ours if n.partition("/")[0] in one["state"]["models"]}
        for name in names:
            assert theirs[name] == pytest.approx(ours[name], rel=1e-4, abs=1e-6), name


@pytest.mark.slow
@pytest.mark.parametrize("what", METHODS)
def test_a_run_goes_on_in_more_or_fewer_processes(runs: Any, what: str) -> None:
    # The third update of one process, whose first two were done by two, and the other way around.
    _, _, one_after_two, two_after_one = runs[what]
    assert_equal_states(one_after_two, two_after_one)


@pytest.mark.slow
def test_learned_models_are_sharded_and_their_batches_divided(runs: Any) -> None:
    found = {
        (what, name): (two["held"][name], two["read"][name] / tokens)
        for what, (one, two, _, _) in runs.items()
        for name, tokens in one["read"].items()
    }
    # Critics, and all networks that begin as a policy.
    assert len(found) == 9, found
    for of, (held, read) in found.items():
        assert held == pytest.approx(0.5, abs=0.05), of
        # A micro-batch that is only repeated, so that all compute equally often, counts here.
        assert read < 0.75, of


@pytest.mark.slow
def test_the_policy_and_learned_models_moved_in_all_of_these(runs: Any) -> None:
    for what, (one, _, after, _) in runs.items():
        begin, end = tensors(one["state"]["policy"]), tensors(after["state"]["policy"])
        assert max(float((begin[k] - end[k]).abs().max()) for k in begin) > 1e-4, what
        for name, begin in one["begun"].items():
            old, new = tensors(begin), tensors(one["state"]["models"][name])
            moved = {
                key: float((old[key] - new[key]).abs().max())
                for key in old
                if "/optimizer/" not in key and "/replay/" not in key
            }
            assert max(moved.values()) > 1e-4, (what, name)


def batch(tokens: int) -> RowBatch:
    nothing = np.zeros(0, dtype=np.int64)
    ids_RL = np.zeros((1, tokens), dtype=np.int64)
    return RowBatch(ids_RL, np.array([tokens]), *[nothing] * 7)


def test_micro_batches_are_dealt_by_tokens_and_equally_many() -> None:
    batches = [batch(n) for n in (9, 5, 4, 2)]
    sizes = [
        [(b.ids_RL.size, counts) for b, counts in Ranks(rank, 2).deal(batches)] for rank in (0, 1)
    ]
    # 9 against 5 + 4; then both have 9, and the first takes the last one.
    assert sizes == [[(9, True), (2, True)], [(5, True), (4, True)]]
    few = [[(b.ids_RL.size, c) for b, c in Ranks(r, 2).deal(batches[:1])] for r in (0, 1)]
    assert few == [[(9, True)], [(9, False)]]


def test_a_budget_leaves_every_rank_a_micro_batch() -> None:
    assert Ranks(0, 1).budget(100, [4, 4, 4]) == 100
    assert Ranks(0, 2).budget(100, [4, 4, 4]) == 6  # half of 12
    assert Ranks(0, 2).budget(100, [10, 1, 1]) == 10  # the longest row is not cut
    assert Ranks(0, 2).budget(3, [4, 4, 4]) == 3


def test_a_process_that_torchrun_did_not_start_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert launched() is None
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="WORLD_SIZE is set, but not RANK.*torchrun"):
        launched()
    assert "WORLD_SIZE" not in without_ranks()


def test_only_words_about_other_processes_mean_that_they_are_lost() -> None:
    with pytest.raises(LostRankError), lost_others():
        raise RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:4")
    with pytest.raises(RuntimeError, match="shape"), lost_others():
        raise RuntimeError("shape mismatch")
    with pytest.raises(LostRankError), lost_others():
        raise RuntimeError("NCCL error: ncclRemoteError: a call failed")
    # Every rank sees this one: were it silent, nobody would say anything.
    with pytest.raises(RuntimeError, match="Duplicate GPU") as found, lost_others():
        raise RuntimeError("NCCL error: ncclInvalidUsage: Duplicate GPU detected")
    assert not isinstance(found.value, LostRankError)
    with pytest.raises(EngineError), lost_others():
        raise EngineError("No vLLM server answers at http://x: Connection reset by peer.")


def test_a_run_of_one_process_has_no_others_to_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("broken pipe")

    for name in ("WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cli_train, "_lead", fail)
    with pytest.raises(RuntimeError, match="broken pipe"):
        cli_train.train(["@quickstart", "--run.folder", str(tmp_path / "run")])


def test_what_a_machine_lacks_is_said_by_its_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # The third of four processes on two machines, and the fourth.
    place = {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in {**place, "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CreditRLError, match="there_is_none"):
        cli_train.train(["@there_is_none"])
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert cli_train.train(["@there_is_none"]) == 1


def test_rank_0_alone_refuses_what_several_processes_cannot_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    followed = []
    monkeypatch.setattr(run, "follow", lambda *arguments: followed.append(arguments))
    config = TrainConfig(rollout=RolloutConfig(backend="vllm"))
    run.help_training(config, Ranks(1, 2))  # waits for rank 0, and ends with it
    assert followed
    with pytest.raises(ConfigError, match="decodes in one process"):
        check_shared(config)
    # Engines on a Ray cluster take rank 0's weights.
    check_shared(TrainConfig(rollout=RolloutConfig(backend="vllm", ray=RayConfig("auto", 1, 1))))
    # All would stand on one GPU.
    with pytest.raises(ConfigError, match="'cuda:0', and torchrun started several"):
        check_shared(TrainConfig(policy=PolicyConfig(device="cuda:0")))
    check_shared(TrainConfig(policy=PolicyConfig(device="cuda")))


@pytest.mark.slow
def test_an_error_on_one_rank_ends_all_with_one_line(tmp_path: Path) -> None:
    done = torchrun(
        *("-m", "creditrl", "train", "@quickstart", "--rollout.backend", "vllm"),
        *("--run.folder", str(tmp_path / "run")),
        timeout=600,
    )
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("creditrl:")]
    assert len(lines) == 1 and "decodes in one process" in lines[0]
    # One traceback: torchrun's own report.
    assert done.stderr.count("Traceback (most recent call last)") == 1


@pytest.mark.slow
def test_two_processes_train_what_engines_on_a_ray_cluster_sample(tmp_path: Path) -> None:
    words = ["-m", "creditrl", "train", "@quickstart", *TINY, "--eval.no-greedy"]
    words += ["--budget.updates=2", "--clone.held-out=0.25", "--compare.no-clone-same-time"]
    on_ray = ["--rollout.ray.address=local", "--rollout.ray.shards=1", "--rollout.ray.engines=1"]
    rows, held = [], []
    for name, size, more in (("one", 1, []), ("two", 2, on_ray)):
        folder = tmp_path / name
        done = torchrun(*words, *more, "--run.folder", str(folder), size=size)
        assert done.returncode == 0, done.stderr
        found = [json.loads(row) for row in (folder / "metrics.jsonl").open()]
        rows.append([row for row in found if row["phase"] == "train"])
        held.append([row["held_out_loss"] for row in found if "held_out_loss" in row])
    assert held[1] == pytest.approx(held[0], rel=1e-4) and len(held[0]) == 2
    assert [row["engines_lost"] for row in rows[1]] == [0, 0]
    for ours, theirs in zip(*rows, strict=True):
        for key in ("turns", "success", "return"):
            assert ours[key] == theirs[key]
        for key in ("loss", "grad_norm"):
            assert theirs[key] == pytest.approx(ours[key], rel=1e-4, abs=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Qwen2_5_VL", "Qwen3VL"])
def test_two_processes_train_on_pictures_as_one_does(family: str, tmp_path: Path) -> None:
    model, texts = tmp_path / "model", save_text_model(tmp_path / "texts")
    make_vision_policy(family=family).save(model)
    words = [*flags(model, texts), "--budget.updates=2", "--eval.no-greedy"]
    words += ["--rollout.recent-images=2", "--rollout.actions=listed"]
    words += ["--rollout.max-new-tokens=27"]
    rows, weights = [], []
    for size in (1, 2):
        folder = tmp_path / f"{size}"
        done = torchrun("-m", "creditrl", *words, f"--run.folder={folder}", size=size)
        assert done.returncode == 0, done.stderr
        rows.append(rows_of(folder))
        weights.append(Policy.load(folder / "policy" / "last", device="cpu").model.state_dict())
    for ours, theirs in zip(*rows, strict=True):
        for key in ("turns", "success", "return"):
            assert ours[key] == theirs[key]
        assert theirs["grad_norm"] == pytest.approx(ours["grad_norm"], rel=1e-4)
        assert theirs["sampler_gap"] < 1e-4
    assert all(row["grad_norm"] > 0 for row in rows[0])
    assert all(row["turns"] > 1 for row in rows[0])  # a second prompt shows two pictures
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, atol=1e-4, rtol=1e-4, msg=name)


HALVES = """
import copy, sys
import torch
sys.path += [sys.argv[1], sys.argv[1] + "/.."]
from test_optim import halved, updated
from creditrl.trainers.parallel.ranks import join

ranks = join("cpu")
alone, together = halved(1e-4, epochs=5), halved(1e-4, ranks, epochs=5)
begin = [p.detach().clone() for p in alone[1].parameters]
updated(*alone, 0)
between = copy.deepcopy([part.state_dict() for part in alone])
updated(*alone, 1)
updated(*together, 0)
updated(*together, 1)
found = [part.state_dict() for part in together]
for part, state in zip(together, between):
    part.load_state_dict(state)
taken = together[1].state_dict()
if ranks.rank == 0:
    torch.save((begin, [part.state_dict() for part in alone], found, between, taken), sys.argv[2])
ranks.leave()
"""


@pytest.mark.slow
def test_float32_copies_of_weights_in_bfloat16_are_sharded_and_saved_whole(tmp_path: Path) -> None:
    (tmp_path / "halves.py").write_text(HALVES)
    found = tmp_path / "found.pt"
    done = torchrun(str(tmp_path / "halves.py"), str(SCRIPT.parent), str(found))
    assert done.returncode == 0, done.stderr
    begin, alone, together, between, taken = torch.load(found, weights_only=False)
    assert len(begin) == len(together[1]["exact"])
    moved = [
        torch.cat([(p - old).flatten() for p, old in zip(state[1]["exact"], begin, strict=True)])
        for state in (alone, together)
    ]
    # Both round as they compute, and each part in its own way.
    assert torch.cosine_similarity(*moved, dim=0) > 0.98
    assert moved[1].norm() == pytest.approx(float(moved[0].norm()), rel=0.02)
    # The output layer is tied to the embeddings.
    weights = [w for name, w in together[0]["weights"].items() if name != "lm_head.weight"]
    for exact, rounded in zip(together[1]["exact"], weights, strict=True):
        assert rounded.equal(exact.to(torch.bfloat16))
    for ours, theirs in zip(taken["exact"], between[1]["exact"], strict=True):
        assert ours.equal(theirs) and not ours.equal(ours.to(torch.bfloat16).float())


CLIPPED = """
import sys
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from creditrl.trainers.parallel.ranks import join
from creditrl.trainers.parallel.sharding import clip_gradients, full_tensors

ranks = join("cpu")
mesh = init_device_mesh("cpu", (2,))
found = []
for largest in (1.0, 100.0):
    # Sharded with and without a gradient; whole, as heads are, with and without one.
    plain = [torch.nn.Parameter(torch.zeros(5, 2)) for _ in range(4)]
    mixed = [torch.nn.Parameter(distribute_tensor(p.detach(), mesh, [Shard(0)])) for p in plain[:2]]
    mixed += [torch.nn.Parameter(p.detach().clone()) for p in plain[2:]]
    for number, scale in ((0, 1.0), (2, 0.3)):
        grad = scale * (torch.arange(10.0).reshape(5, 2) - 3)
        plain[number].grad = grad.clone()
        sharded = number < 2
        mixed[number].grad = distribute_tensor(grad, mesh, [Shard(0)]) if sharded else grad
    for parameters in (plain, mixed):
        norm = clip_gradients(parameters, largest)
        found.append((norm, [full_tensors(p.grad) for p in parameters]))
if ranks.rank == 0:
    torch.save(found, sys.argv[1])
ranks.leave()
"""


def test_gradients_of_sharded_and_whole_weights_are_clipped_as_one(tmp_path: Path) -> None:
    (tmp_path / "clipped.py").write_text(CLIPPED)
    done = torchrun(str(tmp_path / "clipped.py"), str(tmp_path / "found.pt"))
    assert done.returncode == 0, done.stderr
    found = torch.load(tmp_path / "found.pt", weights_only=False)
    # Squares of -3 .. 6 sum to 105.
    norm = (105 * 1.09) ** 0.5
    assert [n for n, _ in found] == pytest.approx([norm] * 4)
    for (_, plain), (_, mixed) in (found[:2], found[2:]):
        for expected, grad in zip(plain, mixed, strict=True):
            assert (expected is None) == (grad is None)
            if grad is not None:
                torch.testing.assert_close(grad, expected)
    first, whole = found[1][1][0], found[3][1][0]
    torch.testing.assert_close(first, whole / norm)


SIGNS = """
import os, signal, sys, time
from datetime import timedelta
from creditrl.errors import CreditRLError
from creditrl.trainers.parallel import ranks

ranks._BEAT, ranks._PATIENCE = 1.0, timedelta(seconds=10)
here = ranks.join("cpu")
if here.rank == 0:
    time.sleep(15)  # it plays for longer than others wait
    with here.together("act", os.getpid()):
        pass
    os.kill(os.getpid(), signal.SIGSTOP)  # and then its machine has gone
command, (leader,) = here.hear()
print("heard", command, file=sys.stderr)
try:
    here.hear()
except CreditRLError as error:
    print("said:", error, file=sys.stderr)
finally:
    os.kill(leader, signal.SIGKILL)
"""


@pytest.mark.slow
def test_rank_0_may_play_for_hours_but_not_go_without_a_word(tmp_path: Path) -> None:
    script = tmp_path / "signs.py"
    script.write_text(SIGNS)
    done = torchrun(str(script), timeout=600)
    assert "heard act" in done.stderr
    assert "said: Another process of this run has said nothing for 0:00:10" in done.stderr
