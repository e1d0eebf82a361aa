"""Ray: shards and engines on two nodes play what one process plays, and a lost node costs little.

The cluster is local: two raylets that listen on the loopback, without a dashboard.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import pytest

# Ray listens on the loopback alone where it may not form clusters; it reads this when imported.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

import ray as ray_module
import torch
from small_runs import make_policy, make_venv
from small_vision import make_vision_policy, play

from creditrl.agents.prompts import get_form
from creditrl.agents.transformers import TransformersAgent
from creditrl.envs.ray_pool import RayPool
from creditrl.envs.vector import TextVectorEnv
from creditrl.envs.words import IMAGE_PLACEHOLDER
from creditrl.errors import CheckpointError, ConfigError, EngineError
from creditrl.trainers.batch import build_rows
from creditrl.trainers.collect.ahead import AheadCollector
from creditrl.trainers.collect.rollouts import RolloutCollector
from creditrl.trainers.collect.watched import WatchedAgent
from creditrl.trainers.config import (
    BudgetConfig,
    OptimConfig,
    PolicyConfig,
    RolloutConfig,
    TrainConfig,
)
from creditrl.trainers.decode.sampler import TransformersSampler
from creditrl.trainers.loop import Trainer
from creditrl.trainers.methods import method_info
from creditrl.trainers.models.configs import LoRAConfig, SmallPolicyConfig
from creditrl.trainers.models.policy import Policy
from creditrl.trainers.parallel import ray_engines
from creditrl.trainers.parallel.ray_cluster import connect
from creditrl.trainers.parallel.ray_config import RayConfig
from creditrl.trainers.parallel.ray_engines import (
    RayAgent,
    RaySampler,
    TransformersEngines,
    _Place,
)
from creditrl.trainers.parallel.ray_weights import pack
from creditrl.trainers.stopwatch import Stopwatch
from creditrl.types import Prompt, Trajectory

ray: Any = ray_module
pytestmark = pytest.mark.slow  # every actor is a process that imports torch

SHAPE = SmallPolicyConfig(layers=1, hidden=16, heads=2)
COPIES, GROUP = 16, 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head; the test adds the node that it takes away."""
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 4,
            "include_dashboard": False,
            "node_ip_address": "127.0.0.1",
            "object_store_memory": 80 * 2**20,
        },
    )
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def node(cluster: Any) -> Iterator[Any]:
    added = cluster.add_node(
        num_cpus=4, node_ip_address="127.0.0.1", object_store_memory=80 * 2**20
    )
    cluster.wait_for_nodes()
    yield added
    if added in cluster.worker_nodes:
        cluster.remove_node(added)


def make_engines(
    policy: Policy, lora: LoRAConfig | None = None, engines: int = 2
) -> TransformersEngines:
    config = TrainConfig(
        policy=PolicyConfig(small=SHAPE, lora=lora),
        rollout=RolloutConfig(ray=RayConfig("auto", engines=engines)),
    )
    return TransformersEngines(config, policy)


def make_trainer(policy: Policy, venv: TextVectorEnv, agent: Any, retries: int = 0) -> Trainer:
    info = method_info("gigpo")
    method = info.method(info.config())
    collector = RolloutCollector(
        venv, agent, get_form("plain"), seed=0, hash_states=method.hash_states, retries=retries
    )
    return Trainer(
        policy,
        method,
        collector,
        RolloutConfig(groups=COPIES // GROUP, group_size=GROUP, reward_scale=0.1),
        OptimConfig(lr=1e-3, minibatches=2),
        BudgetConfig(updates=4),
        seed=0,
        after_weights=agent.weights_changed,
    )


def played(trajectories: Sequence[Trajectory]) -> list[Any]:
    """Return all but the log-probabilities, which are rounded by who is asked beside."""
    return [
        [(n.reply_ids, n.observation, n.reward, n.state) for n in t.turns] for t in trajectories
    ]


def test_shards_and_engines_play_what_one_process_plays(node: Any) -> None:
    policies = [make_policy(), make_policy()]
    venvs = [make_venv(COPIES, GROUP), make_venv(COPIES, GROUP, workers=2, worker_context="ray")]
    engines = make_engines(policies[1])
    agents = [
        TransformersAgent(policies[0].model, policies[0].tokenizer, max_new_tokens=2),
        RayAgent(policies[1], engines, max_new_tokens=2),
    ]
    assert len(set(venvs[1].copies.nodes)) == 2  # type: ignore[union-attr]
    here, there = (
        make_trainer(policy, venv, agent)
        for policy, venv, agent in zip(policies, venvs, agents, strict=True)
    )
    for _ in range(2):  # the second with weights that were handed over
        ours, theirs = here.update(), there.update()
        assert played(ours[1]) == played(theirs[1])
        assert theirs[0]["workers_lost"] == theirs[0]["engines_lost"] == 0
        assert theirs[0]["loss"] == pytest.approx(ours[0]["loss"], rel=1e-4, abs=1e-7)
    engines.close()
    venvs[1].close()


def test_engines_sample_ahead_what_a_copy_in_this_process_does(cluster: Any) -> None:
    policies = [make_policy(), make_policy()]
    shape = PolicyConfig(small=SHAPE)
    sampling = {"temperature": 1.0, "max_new_tokens": 2, "seed": 0}
    rays = RaySampler(
        TrainConfig(policy=shape, rollout=RolloutConfig(ray=RayConfig("auto", engines=2), ahead=1))
    )
    samplers = [TransformersSampler(TrainConfig(policy=shape)), rays]
    trainers = []
    for policy, sampler in zip(policies, samplers, strict=True):
        agent, held = sampler.held(policy, **sampling)
        watched = WatchedAgent(agent, Stopwatch())
        made = make_trainer(policy, make_venv(COPIES, GROUP), watched)
        made.collector = AheadCollector(made.collector, watched, held, watch=made.watch)
        made.after_weights = lambda: None
        trainers.append(made)
    for update in range(3):
        ours, theirs = (made.update() for made in trainers)
        assert played(ours[1]) == played(theirs[1])
        assert theirs[0]["staleness"] == min(update, 1)
        assert theirs[0]["loss"] == pytest.approx(ours[0]["loss"], rel=1e-4, abs=1e-7)
    for made in trainers:
        made.collector.close()
    rays.close()


def die_at_turn_3(agent: Any, cluster: Any, node: Any, pool: Any, lost: int) -> None:
    """Have the node go while the third turn is answered, with its shard's process."""
    answer = agent.answer
    asked = []

    def answer_or_die(prompts: list[Prompt], draws: Any) -> Any:
        asked.append(len(prompts))
        if len(asked) == 3:
            actor = pool._workers[lost][0]
            cluster.remove_node(node, allow_graceful=False)
            with pytest.raises(ray.exceptions.RayActorError):
                while True:  # the node's processes take a moment to end
                    ray.get(actor.pid.remote(), timeout=60)
        return answer(prompts, draws)

    agent.answer = answer_or_die


def test_a_node_that_dies_while_episodes_run_costs_them_and_not_the_run(
    cluster: Any, node: Any
) -> None:
    policy = make_policy()
    venv = make_venv(COPIES, GROUP, workers=2, worker_context="ray")
    pool: Any = venv.copies
    engines = make_engines(policy)
    agent = RayAgent(policy, engines, max_new_tokens=1)
    trainer = make_trainer(policy, venv, agent)
    lost = pool.nodes.index(node.node_id)
    die_at_turn_3(agent, cluster, node, pool, lost)
    metrics, trajectories = trainer.update()
    assert metrics["workers_lost"] == 1
    assert metrics["groups_dropped"] == 2
    # Blocks of two groups: those of the shard that is left.
    assert {t.group for t in trajectories} == ({2, 3} if lost == 0 else {0, 1})
    assert np.isfinite(metrics["loss"])
    # The engine that went with it cost nothing: the other one gave its replies.
    assert metrics["engines_lost"] == agent.engines_lost <= 1
    # And the run goes on, with all groups.
    again, trajectories = trainer.update()
    assert again["groups_dropped"] == 0
    assert len(trajectories) == COPIES
    engines.close()
    venv.close()


def test_episodes_of_a_node_that_dies_are_played_again(cluster: Any, node: Any) -> None:
    policy = make_policy()
    venv = make_venv(COPIES, GROUP, workers=2, worker_context="ray")
    agent = TransformersAgent(policy.model, policy.tokenizer, max_new_tokens=1)
    trainer = make_trainer(policy, venv, agent, retries=1)
    pool: Any = venv.copies
    die_at_turn_3(agent, cluster, node, pool, pool.nodes.index(node.node_id))
    metrics, trajectories = trainer.update()
    # Again from their start, on the node that is left.
    assert metrics["workers_lost"] >= 1
    assert metrics["groups_dropped"] == 0
    assert len(trajectories) == COPIES
    venv.close()


def are_missed(engines: Any, policy: Policy, why: str) -> None:
    """See that new weights which are lost on their way are missed: engines keep what they have."""
    [(_, stale)] = engines._steps
    with patch.object(engines.ray, "put", lambda state: stale):
        with pytest.raises(EngineError, match=why):
            engines.load(policy)


def test_engines_get_new_adapters_and_ones_that_do_not_are_found_out(cluster: Any) -> None:
    lora = LoRAConfig(rank=2)
    policy = make_policy(lora=lora)
    engines = make_engines(policy, lora)
    assert engines.load(policy) < 1e-5
    for parameter in policy.trainable_parameters():
        parameter.data += 0.2
    assert engines.load(policy) < 1e-5
    for parameter in policy.trainable_parameters():
        parameter.data -= 0.1
    are_missed(engines, policy, r"engine \d .* does not compute with the weights")
    # So small a step that old numbers are as good as new ones: they are the very same.
    assert engines.load(policy) < 1e-5
    for parameter in policy.trainable_parameters():
        parameter.data += 2e-3
    are_missed(engines, policy, "old weights|does not compute with the weights")
    engines.close()


def lose(engines: TransformersEngines, number: int = 0) -> None:
    """End an engine, and wait until Ray knows."""
    actor = engines._places[number].actor
    ray.kill(actor)
    with pytest.raises(ray.exceptions.RayActorError):
        while True:
            ray.get(actor.top_logprobs.remote([(4,)], 1, [()]), timeout=60)


def ask(agent: Any) -> list[tuple[int, ...]]:
    prompts = [Prompt("", copy=copy, prefix_ids=(4, 5)) for copy in range(COPIES)]
    return [reply.token_ids for reply in agent.act(prompts)]


def test_an_engine_in_the_place_of_another_is_probed_before_its_replies_count(
    cluster: Any,
) -> None:
    policy = make_policy()
    engines = make_engines(policy, engines=1)
    agent = RayAgent(policy, engines, max_new_tokens=2)
    said = ask(agent)
    lose(engines)
    agent.reseed(0)
    assert ask(agent) == said
    [place] = engines._places
    assert engines.lost == 1
    assert place.probe is not None and place.probe._last is not None
    # One that begins with other weights than those of now.
    other = make_policy(seed=1).state_dict()
    other["weights"] = pack(other["weights"].items())
    engines._steps = [("load", ray.put(other))]
    lose(engines)
    for _ in range(2):  # as often as it is asked
        with pytest.raises(EngineError, match="engine 0 .* does not compute with the weights"):
            ask(agent)
    # One that cannot take its weights: that is said, and not what the probe makes of it.
    engines._steps = [("load", ray.put({"lora": True, "weights": [], "reference": None}))]
    engines._replace(engines._places[0])
    with pytest.raises(CheckpointError, match="holds LoRA adapters"):
        ask(agent)
    engines.close()


def test_engines_that_see_are_shown_a_picture(cluster: Any, tmp_path: Path) -> None:
    made = make_vision_policy()
    made.save(tmp_path / "policy")
    config = TrainConfig(
        policy=PolicyConfig(model=str(tmp_path / "policy"), dtype="float32"),
        rollout=RolloutConfig(ray=RayConfig("auto", engines=1)),
    )
    engines = TransformersEngines(config, made)
    assert engines.load(made) < 1e-5
    # Old eyes: a probe without a picture would find nothing.
    with torch.no_grad():
        for name, value in made.model.named_parameters():
            if "visual" in name:
                value.mul_(1.5)
    are_missed(engines, made, "engine 0")
    assert engines.load(made) < 1e-5
    engines.close()


def test_engines_that_see_say_of_several_pictures_what_one_process_says(
    cluster: Any, tmp_path: Path
) -> None:
    policy = make_vision_policy()
    policy.save(tmp_path / "policy")
    config = TrainConfig(
        policy=PolicyConfig(model=str(tmp_path / "policy"), dtype="float32"),
        rollout=RolloutConfig(ray=RayConfig("auto", engines=1)),
    )
    engines = TransformersEngines(config, policy)
    here = TransformersAgent(
        policy.model,
        policy.tokenizer,
        max_new_tokens=2,
        image_processor=policy.image_processor,
    )
    there = RayAgent(policy, engines, max_new_tokens=2)
    ours, theirs = (play(agent, recent_images=2, max_turns=3) for agent in (here, there))
    assert played(ours) == played(theirs)
    said = [p for t in theirs for turn in t.turns for p in turn.logprobs]
    np.testing.assert_allclose(policy.score(build_rows(theirs)), said, atol=1e-4)
    for t in theirs:
        for before, turn in pairwise(t.turns):
            # The picture itself: copies would fill the memory.
            assert turn.images[0] is before.image
    # How much room is left for a reply counts pictures as well.
    image = theirs[0].turns[0].image
    prompt = Prompt(2 * IMAGE_PLACEHOLDER, image=image, earlier_images=(image,))
    assert there.room(prompt) == here.room(prompt)
    engines.close()


def test_new_weights_come_to_engines_that_were_lost_before(cluster: Any) -> None:
    policy = make_policy()
    engines = make_engines(policy, engines=1)
    assert engines.load(policy) < 1e-5
    lose(engines)
    for parameter in policy.trainable_parameters():
        parameter.data += 0.2
    # All of them have gone: one that is begun in their place is waited for, and probed.
    assert engines.load(policy) < 1e-5
    [place] = engines._places
    assert engines.lost == 1 and not place.pending
    assert place.probe is not None and place.probe._last is not None
    engines.close()


def test_no_engine_that_lasts_ends_the_run_and_says_why(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying:
        def __init__(self, *settings: Any) -> None:
            pass

        def load(self, state: Any) -> None:
            os._exit(1)

        def top_logprobs(self, *asked: Any) -> None:
            pass

    class Broken(Dying):
        def __init__(self, *settings: Any) -> None:
            raise ConfigError("no such model here")

    policy = make_policy()
    monkeypatch.setattr(ray_engines, "_PolicyEngine", Dying)
    engines = make_engines(policy, engines=1)
    with pytest.raises(EngineError, match="4 engines .* have gone, and none .* lasted"):
        engines.load(policy)
    monkeypatch.setattr(ray_engines, "_PolicyEngine", Broken)
    engines = make_engines(policy, engines=1)
    with pytest.raises(EngineError, match="Engine 0 could not be made: .*no such model here"):
        engines.load(policy)


def test_an_engine_that_the_cluster_has_no_room_for_is_not_waited_for(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    engines = make_engines(policy)
    agent = RayAgent(policy, engines, max_new_tokens=2)
    said = ask(agent)
    remote = engines.ray.remote

    def without_room(engine: Any) -> Any:
        made = MagicMock()
        made.options = lambda **options: remote(engine).options(num_gpus=1)
        return made

    monkeypatch.setattr(engines.ray, "remote", without_room)
    lose(engines)
    agent.reseed(0)
    assert ask(agent) == said
    for _ in range(3):
        agent.weights_changed()
        agent.reseed(0)
        assert ask(agent) == said
    # Nor are weights kept for it.
    assert engines.lost == 1 and len(engines._places[0].pending) == 1
    engines.close()


class KilledForMemory:
    """Stands for Ray, where its memory monitor has ended an actor."""

    exceptions = ray_module.exceptions

    def get(self, future: Any, timeout: float) -> Any:
        raise ray_module.exceptions.OutOfMemoryError("the node was running low on memory")

    def wait(self, futures: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return futures, []

    def kill(self, actor: Any) -> None:
        pass


def test_an_actor_that_was_ended_for_its_memory_is_lost_as_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = object.__new__(RayPool)
    pool._ray, pool._futures = KilledForMemory(), {0: object()}
    with pytest.raises(EOFError):  # the pool's sign of a shard that has gone
        pool._receive(0)
    engines = object.__new__(TransformersEngines)
    engines.ray, engines._steps, engines._probe, engines.lost = KilledForMemory(), [], None, 0
    engines._places = [_Place(0, MagicMock())]
    begun = SimpleNamespace(__ray_ready__=MagicMock())
    monkeypatch.setattr(engines, "_start", lambda *, again: begun)
    engines._stale = None
    # Where none lasts, the run says what Ray said.
    with pytest.raises(EngineError, match="4 engines .* lasted .*running low on memory"):
        engines.answer({}, [Prompt("", copy=0)], torch.zeros(1, 1))
    assert engines.lost == 4 and not engines._places


def test_a_cluster_without_room_is_refused(cluster: Any) -> None:
    config = replace(TrainConfig(), rollout=RolloutConfig(ray=RayConfig("auto", shards=99)))
    with pytest.raises(ConfigError, match="4 CPUs, and 99 shards .* need 99"):
        connect(config)


@pytest.mark.parametrize(
    "gpus, engines, device, visible",
    [
        (1, 1, "auto", "4,5"),  # the policy trains on the first
        (1, 2, "cuda:1", "3,5"),
        (1, 3, "cpu", "3,4,5"),
        (0.5, 6, "auto", "3,4,5"),  # too few without the policy's own
        (0, 2, "auto", ""),
    ],
)
def test_engines_on_this_machine_leave_the_policys_gpu_alone(
    monkeypatch: pytest.MonkeyPatch, gpus: float, engines: int, device: str, visible: str
) -> None:
    seen: dict[str, Any] = {}

    def init(**options: Any) -> None:
        seen.update(options, visible=os.environ["CUDA_VISIBLE_DEVICES"])

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4,5")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(ray_module, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_module, "init", init)
    monkeypatch.setattr(
        ray_module,
        "cluster_resources",
        lambda: {"CPU": seen["num_cpus"], "GPU": seen["num_gpus"]},
    )
    config = TrainConfig(
        policy=PolicyConfig(device=device),
        rollout=RolloutConfig(ray=RayConfig("local", shards=1, engines=engines, gpus=gpus)),
    )
    connect(config)
    assert seen["visible"] == visible
    assert seen["num_gpus"] == len(list(filter(None, visible.split(","))))
    assert seen["num_cpus"] == 1 + (0 if gpus else engines)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,4,5"


def test_ray_without_anything_to_place_is_refused() -> None:
    with pytest.raises(ConfigError, match="neither rollout.ray.shards nor .engines"):
        RayConfig("auto", shards=0)


def test_one_machine_never_imports_ray(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys, creditrl.trainers.run, creditrl.envs.vector\n"
        "import creditrl.trainers.parallel.ray_engines\n"
        "from creditrl.trainers.config import TrainConfig\n"
        "creditrl.trainers.parallel.ray_cluster.connect(TrainConfig())()\n"
        "assert 'ray' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=120)
