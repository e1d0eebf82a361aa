"""A whole training run: policy, cloning, training, evaluations, results and a picture."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
import torch

from creditrl.agents.evaluate import EvalResult, evaluate
from creditrl.agents.prompting import Prompting
from creditrl.agents.prompts import PromptForm, get_form
from creditrl.config import to_mapping
from creditrl.envs.base import TextEnv
from creditrl.envs.register import environment_class, environment_id
from creditrl.envs.vector import TextVectorEnv
from creditrl.errors import ConfigError, CreditRLError, DataError
from creditrl.metrics import MetricSinks
from creditrl.progress import Progress
from creditrl.runs import RunFolder
from creditrl.store import TrajectoryStore
from creditrl.trainers.after.clone_baseline import CloneBaseline
from creditrl.trainers.after.result import TrainResult
from creditrl.trainers.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from creditrl.trainers.collect.ahead import AheadCollector
from creditrl.trainers.collect.base import CollectContext, Collector, SampledAgent
from creditrl.trainers.collect.demonstrations import (
    DemonstrationCollector,
    Demonstrator,
    demonstrate,
)
from creditrl.trainers.collect.explore import exploration
from creditrl.trainers.collect.oversample import OversampleCollector
from creditrl.trainers.collect.recorded import recorded_demonstrations
from creditrl.trainers.collect.texts import environment_texts
from creditrl.trainers.collect.watched import WatchedAgent
from creditrl.trainers.config import BudgetConfig, TrainConfig, training_hash
from creditrl.trainers.decode.sampler import PolicyAgent, make_sampler
from creditrl.trainers.loop import Trainer, reward_columns
from creditrl.trainers.methods.base import ExploreConfig, Method, method_info
from creditrl.trainers.models.policy import Policy
from creditrl.trainers.models.tokenizer import build_tokenizer
from creditrl.trainers.parallel.distributed import check_shared, follow, trainer_for
from creditrl.trainers.parallel.ranks import ALONE, Ranks
from creditrl.trainers.parallel.ray_cluster import connect
from creditrl.trainers.pictures import (
    check_beside_pictures,
    observation_shown,
    pictured_form,
)
from creditrl.trainers.states import recorded_states
from creditrl.trainers.stopwatch import CPU_PREFIX, Stopwatch, sum_parts
from creditrl.types import Trajectory
from creditrl.view.curves import learning_curve

__all__ = [
    "Run",
    "build_policy",
    "make_environment",
    "help_training",
    "load_policy",
    "run_training",
    "weights_hash",
]

T = TypeVar("T")


_PACE_KNOWN = 0.05
"""Share of the budget after which the time of a whole training is told from its pace."""


def run_training(
    config: TrainConfig,
    folder: RunFolder,
    progress: Progress,
    ranks: Ranks = ALONE,
    on_row: Callable[[Mapping[str, Any]], None] | None = None,
) -> TrainResult:
    """Train as ``config`` says, in ``folder``; goes on where the folder has a checkpoint.

    Args:
        config: of the run.
        folder: where everything is kept.
        progress: shows how far it is.
        ranks: the processes that train together; this one is rank 0, the others call
            :func:`help_training`.
        on_row: called with every row of metrics once it is written.

    Raises:
        ConfigError: settings that do not fit together.
        CheckpointError: the folder's checkpoint is of another version, method or config.
        RunFolderError: another process writes the folder.
    """
    if ranks.size > 1:
        check_shared(config)
    with folder.held():
        run = Run(config, folder, progress, ranks, on_row or _ignore)
        try:
            result = run.all()
            with ranks.together("stop"):
                return result
        finally:
            run.close()


def help_training(config: TrainConfig, ranks: Ranks) -> None:
    """Do the share of a rank that is not 0 of the run that rank 0 is told to do.

    Raises:
        LostRankError: another rank has ended; rank 0 refuses what does not work.
    """
    device = _device(config.policy.device)
    follow(config, ranks, lambda tokenizer: build_policy(config, device, tokenizer=tokenizer))


class Run:
    """The state of one run; :meth:`all` is its phases in order."""

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        progress: Progress,
        ranks: Ranks,
        on_row: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self.config = config
        self.on_row = on_row
        self.ranks = ranks
        self.folder = folder
        self.progress = progress
        self.seed = config.run.seed
        if config.run.threads:
            torch.set_num_threads(config.run.threads)
        self.device = _device(config.policy.device)
        info = method_info(config.method.name)
        self.method: Method[Any] = info.method(config.method)
        self.form: PromptForm = get_form(config.rollout.form)
        self.sinks = MetricSinks(config.run.sinks, folder.path, to_mapping(config))
        self.seconds: dict[str, float] = {}
        self.cpu_before = 0.0  # of the processes that this one goes on from
        self.compares = config.compare.clone_same_time and config.clone.on
        self.best_validation = -1.0
        self.saved = -1  # update of the newest checkpoint
        self.hash = training_hash(config)
        self._leave_ray = connect(config)
        try:
            self.sampler = make_sampler(config, folder.path)
        except BaseException:
            self._leave_ray()  # the next run may want another cluster
            raise
        self._environments: dict[Any, TextVectorEnv] = {}
        self._demonstrations: list[Trajectory] | None = None
        self._held_out: list[Trajectory] = []
        self._baseline: CloneBaseline | None = None
        self._collectors: list[Collector] = []

    def all(self) -> TrainResult:
        """Run every phase."""
        policy = self.built()
        checkpoint = latest_checkpoint(self.folder.checkpoints)
        if checkpoint is not None:
            trainer = self.trainer(policy)
            self.resume(trainer, checkpoint)
            before = self.folder.read_evaluations("before")
        else:
            if self.config.run.resume:
                # It was ended before its first checkpoint, and begins anew.
                self.folder.truncate_metrics(None)
                self.drop_after(0)
            trainer, before = self.begun(policy)
        self.train(trainer, fresh=checkpoint is None)
        self.save_policy(policy, "last")
        found = {"before": before}
        found |= self.timed("evaluate", lambda: self.evaluate_all(policy, "after"))
        best = self.folder.path / "policy" / "best"
        if best.is_dir():
            chosen = Policy.load(best, dtype=self.config.policy.dtype, device=self.device)
            found |= self.timed("evaluate", lambda: self.evaluate_all(chosen, "best"))
        if self.compares:
            spent = self.seconds.get("clone", 0.0) + trainer.clock.seconds
            found["cloned"] = self.timed("compare", lambda: self.compare(spent))
        self.seconds["train"] = trainer.clock.seconds
        for name, results in found.items():
            self.folder.write_evaluations(name, results)
            if name != "before":
                self.sinks.log(_held_out(name, results))
        parts = sum_parts(r for r in self.folder.read_metrics() if r.get("phase") == "train")
        curve = self.folder.path / "learning_curve.png"
        shown = {name: results for name, results in found.items() if "@" not in name}
        learning_curve(self.folder.read_metrics(), shown, curve, title=self.title())
        # The last thing that is written: a run that has it is finished.
        self.folder.add_results(
            {
                "method": self.method.name,
                "seeds": [self.seed],
                "finished": {
                    "updates": trainer.clock.updates,
                    "environment_turns": trainer.clock.turns,
                    "seconds": self.seconds,
                    "update_parts": parts,
                    "cpu_seconds": self.cpu_before + time.process_time(),
                },
            }
        )
        return TrainResult(
            config=self.config,
            folder=self.folder.path,
            evaluations={name: results for name, results in found.items() if results},
            curve=curve,
            seconds=self.seconds,
            parts=parts,
        )

    def built(self) -> Policy:
        """Return the policy as it begins, with its tokenizer and prompt form in place."""
        self.fit_tasks()
        policy = self.timed("build", self.build_policy)
        # Whoever looks at the episodes reads their prompts from the first update on.
        policy.tokenizer.save_pretrained(self.folder.path / "tokenizer")
        self.form = pictured_form(self.config, self.form, policy)
        return policy

    def begun(self, policy: Policy) -> tuple[Trainer, dict[str, EvalResult]]:
        """Return (the trainer before its first update, the evaluation of what it begins with)."""
        config = self.config
        cloned = config.clone.on and self.method.collection != "demonstrations"
        if cloned:
            self.timed("clone", lambda: self.clone(policy))
        reference = self.method.policy_loss().kl_coef or self.method.needs_reference
        if reference and (cloned or config.policy.lora is None):
            # The reference is the cloned policy. With adapters this begins new ones, so it
            # comes before the optimizer; untrained adapters are as good as off.
            policy.freeze_reference()
        self.folder.add_results({"start": {"weights": weights_hash(policy)}})
        trainer = self.trainer(policy)
        before = self.timed("evaluate", lambda: self.evaluate(policy))
        self.folder.write_evaluations("before", before)
        self.sinks.log(_held_out("before", before))
        if config.eval.every_turns:
            self.timed("evaluate", lambda: self.validate(trainer))
        explore = self.method.explore
        if explore is not None:
            self.timed("explore", lambda: self.explore(trainer, explore))
        self.checkpoint(trainer)
        return trainer, before

    def title(self) -> str:
        """Return the picture's title."""
        return f"{self.method.name} on {self.config.env.id}"

    def fit_tasks(self) -> None:
        """Ask for no more than the environment has: tasks, splits, an expert; a line for each cut.

        Raises:
            ConfigError: ``eval.first`` lies behind the last task.
        """
        cfg, clone, rollout = self.config.eval, self.config.clone, self.config.rollout
        venv = self.environment(1)
        name = self.config.env.id
        if not _has_splits(venv.env_class):
            self.progress.line(f"{name} has no splits: it is evaluated on the tasks it trains on.")
        for split in cfg.also_splits:
            self.environment(1, split=split)  # an unknown one raises here

        def fit(field: str, wanted: int, split: str | None, first: int = 0) -> int:
            found = len(self.environment(1, split=split).tasks)
            where = "training" if split is None else repr(split)
            count = f"{found} task{'' if found == 1 else 's'}"
            if first >= found:
                begun = f" from eval.first={first} on" if first else ""
                raise ConfigError(f"{field} is {wanted}{begun}, but {where} has {count}.")
            if wanted > found - first:
                begun = f" from {first} on" if first else ""
                left = found - first
                self.progress.line(f"{field}: {left} for {wanted}, as {where} has {count}{begun}.")
            return min(wanted, found - first)

        cfg = replace(cfg, levels=fit("eval.levels", cfg.levels, cfg.split, cfg.first))
        if cfg.every or cfg.every_turns:
            levels = fit("eval.validation_levels", cfg.validation_levels, cfg.validation_split)
            cfg = replace(cfg, validation_levels=levels)
        if clone.until_success is not None:
            levels = fit("clone.check_levels", clone.check_levels, cfg.validation_split)
            clone = replace(clone, check_levels=levels)
        if clone.episodes and not clone.from_run and not venv.has_expert:
            if self.method.collection != "demonstrations":
                self.progress.line(f"{name} has no expert: training begins without cloning.")
                clone, self.compares = replace(clone, episodes=0), False
        rollout = replace(rollout, groups=fit("rollout.groups", rollout.groups, None))
        self.config = replace(self.config, eval=cfg, clone=clone, rollout=rollout)

    def build_policy(self) -> Policy:
        """Return the policy to train: a small one from a config, or one that exists."""
        policy = build_policy(self.config, self.device, lambda copies: self.environment(copies))
        with self.ranks.together("policy", policy.tokenizer):
            policy.ranks = self.ranks
        return policy

    def clone(self, policy: Policy) -> None:
        """Clone the expert for the recipe's updates, or up to its validation success."""
        cfg = self.config.clone
        info = method_info("sft")
        budget = BudgetConfig(updates=cfg.updates)
        trainer = trainer_for(
            "clone",
            policy,
            info.method(info.config()),
            self.demonstrations(policy),
            self.config.rollout,
            cfg.optim,
            budget,
            seed=self.seed,
        )
        with self.progress.phase("clone", updates=cfg.updates) as show:
            while not trainer.done:
                metrics, _ = trainer.update()
                update = trainer.clock.updates
                metrics |= self.held_out_loss(trainer)
                show(update, trainer.clock.seconds, loss=metrics.get("loss", 0.0))
                self.record({"phase": "clone", **metrics})
                if self.cloned_enough(policy, update):
                    break
        policy.unshard()

    def held_out_loss(self, trainer: Trainer) -> dict[str, float]:
        """Return the loss of the demonstrations that are never cloned, where it is due."""
        cfg, update = self.config.clone, trainer.clock.updates
        due = update == 1 or update % cfg.check_every == 0 or trainer.done
        if not self._held_out or not due:
            return {}
        return {"held_out_loss": trainer.reply_loss(self._held_out)}

    def cloned_enough(self, policy: Policy, update: int) -> bool:
        """Return whether success on validation levels (never the reported ones) is enough."""
        cfg = self.config.clone
        if cfg.until_success is None or update % cfg.check_every:
            return False
        agent = self.agent(policy, seed=self.seed)
        split = self.config.eval.validation_split
        result = self.measure(agent, split, range(cfg.check_levels))
        reached = result.overall.success.value
        self.record({"phase": "clone", "update": update, "validation_success": reached})
        return reached >= cfg.until_success

    def train(self, trainer: Trainer, fresh: bool) -> None:
        """Update until the budget is used up, with checkpoints, metrics and stored trajectories.

        Args:
            trainer: of the recipe's method.
            fresh: the run does not go on from a checkpoint.
        """
        beside = fresh and self.has_room_beside()
        run = self.config.run
        store, columns = self.folder.store(), self.folder.column_store()
        budget = self.config.budget
        with self.progress.phase("train", updates=budget.updates, seconds=budget.seconds) as show:
            while not trainer.done:
                turns = trainer.clock.turns
                metrics, trajectories = trainer.update()
                update = trainer.clock.updates
                if self.method.collection == "demonstrations":
                    metrics |= self.held_out_loss(trainer)
                if beside and self._baseline is None:
                    self.begin_beside(trainer)
                self.record({"phase": "train", **metrics})
                if run.trajectories_every and update % run.trajectories_every == 0:
                    store.append(update, trajectories)
                    columns.append(update, trajectories, trainer.columns)
                if metrics.get("sampler_gap_alarm"):
                    self.progress.line(
                        f"update {update}: sampler and trainer disagree by "
                        f"{metrics['sampler_gap']:.3g} per token; is a cache stale?"
                    )
                show(
                    update,
                    trainer.clock.seconds,
                    **{k: metrics[k] for k in ("success", "loss", "grounding") if k in metrics},
                    turns=trainer.clock.turns,
                )
                if self.validation_due(update, turns, trainer.clock.turns):
                    trainer.collector.settle()  # its environments and engine are ours meanwhile
                    self.timed("evaluate", lambda: self.validate(trainer))
                if run.checkpoint_every and update % run.checkpoint_every == 0:
                    self.checkpoint(trainer)
        self.checkpoint(trainer)
        trainer.collector.close()  # what follows may sample with other weights
        store.seal()
        columns.seal()

    def validation_due(self, update: int, turns_before: int, turns: int) -> bool:
        """Return whether the update that just ended asks for an evaluation."""
        every, every_turns = self.config.eval.every, self.config.eval.every_turns
        if every and update % every == 0:
            return True
        return bool(every_turns) and turns // every_turns > turns_before // every_turns

    def validate(self, trainer: Trainer) -> None:
        """Evaluate on the validation split and keep the best policy so far."""
        cfg = self.config.eval
        agent = self.agent(trainer.policy, temperature=cfg.temperature, seed=self.seed)
        result = self.measure(agent, cfg.validation_split, range(cfg.validation_levels))
        success = result.overall.success
        self.record(
            {
                "phase": "validation",
                "update": trainer.clock.updates,
                "environment_turns": trainer.clock.turns,
                "cpu_seconds": trainer.clock.cpu_seconds,
                "success": success.value,
                "success_low": success.low,
                "success_high": success.high,
                "score": result.overall.score.value,
                "turns": result.overall.turns.value,
                "grounding": result.overall.grounding.value,
                "success_by_task": [None if e.error else int(e.success) for e in result.episodes],
                "score_by_task": [None if e.error else e.score for e in result.episodes],
            }
        )
        if success.value > self.best_validation:
            self.best_validation = success.value
            self.save_policy(trainer.policy, "best")

    def checkpoint(self, trainer: Trainer) -> None:
        """Write a checkpoint of the training phase, where there is none of this update."""
        if trainer.clock.updates == self.saved:
            return
        self.saved = trainer.clock.updates
        save_checkpoint(
            self.folder.checkpoints,
            trainer.clock.updates,
            {
                **trainer.state_dict(),
                "best_validation": self.best_validation,
                "seconds": dict(self.seconds),
                "cpu_seconds": self.cpu_before + time.process_time(),
            },
            self.expected(),
            self.config.run.keep_checkpoints,
        )

    def resume(self, trainer: Trainer, checkpoint: Path) -> None:
        """Put the run back to its newest checkpoint and drop what was written after it."""
        state, meta = load_checkpoint(checkpoint, self.expected())
        trainer.load_state_dict(state)
        self.best_validation = float(state["best_validation"])
        self.seconds = dict(state["seconds"])
        self.cpu_before = float(state["cpu_seconds"])
        update = self.saved = int(meta["update"])
        self.folder.truncate_metrics(update)
        # One more than rows: the evaluation before training went to the sinks alone.
        self.sinks.step = len(self.folder.read_metrics()) + 1
        self.drop_after(update)
        self.progress.line(f"resumed {self.folder.path} after update {update}")

    def drop_after(self, update: int) -> None:
        """Drop what was kept of later updates."""
        self.folder.store().drop_after(update)
        self.folder.column_store().drop_after(update)

    def expected(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with."""
        return {"method": self.method.name, "config_hash": self.hash}

    def has_room_beside(self) -> bool:
        """Return whether a comparison beside the training takes nothing away from it.

        That is on a CPU with a core for each.
        """
        room = self.device == "cpu" and self.config.run.threads == 1 and _cores() > 1
        return self.compares and room

    def begin_beside(self, trainer: Trainer) -> None:
        """Start the comparison once the training's pace says how long all of it will take."""
        progress = trainer.clock.progress(self.config.budget)
        if progress >= _PACE_KNOWN:
            spent = self.seconds.get("clone", 0.0)
            self.start_baseline(spent + trainer.clock.seconds / min(progress, 1.0))

    def start_baseline(self, seconds: float) -> CloneBaseline:
        """Start a run that clones the same demonstrations for so long."""
        folder = self.folder.path / "clone_same_time"
        shutil.rmtree(folder, ignore_errors=True)  # of a comparison that was cut
        self._baseline = CloneBaseline(self.config, folder, seconds)
        return self._baseline

    def compare(self, seconds: float) -> dict[str, EvalResult]:
        """Return the evaluations of the same policy cloned for the same total time."""
        folder = self.folder.path / "clone_same_time"
        if self._baseline is None and folder.is_dir():
            # A resumed run: the comparison was begun before, and may have been cut.
            done = RunFolder(folder).read_evaluations("after")
            if done:
                return done
        with self.progress.phase("compare"):
            try:
                return (self._baseline or self.start_baseline(seconds)).result()
            except CreditRLError as error:
                self.progress.line(str(error))
                return {}

    # -- evaluation -----------------------------------------------------------------------------

    def evaluate_all(self, policy: Policy, moment: str) -> dict[str, dict[str, EvalResult]]:
        """Evaluate on the held-out levels, and on every other split that is asked for.

        These have the split in their name: ``"after@valid_seen"``.
        """
        found = {moment: self.evaluate(policy)}
        for split in self.config.eval.also_splits:
            found[f"{moment}@{split}"] = self.evaluate(policy, split)
        return found

    def evaluate(self, policy: Policy, split: str | None = None) -> dict[str, EvalResult]:
        """Evaluate on the held-out levels: sampled, and greedily where asked for.

        Another split may have fewer tasks; then it is played whole.
        """
        cfg = self.config.eval
        ways = {"sampled": (cfg.temperature, False)}
        if cfg.greedy:
            ways["greedy"] = (1.0, True)
        levels = range(cfg.first, cfg.first + cfg.levels)
        if split is not None:
            levels = range(min(cfg.levels, len(self.environment(1, split=split).tasks)))
        return {
            name: self.measure(
                self.agent(policy, temperature=temperature, greedy=greedy, seed=self.seed),
                split or cfg.split,
                levels,
            )
            for name, (temperature, greedy) in ways.items()
        }

    def measure(self, agent: PolicyAgent, split: str, levels: range) -> EvalResult:
        """Play tasks of a split once each."""
        copies = min(len(levels), self.config.eval.num_envs)
        venv = self.environment(copies, split=split)
        return evaluate(venv, agent, self.form, tasks=levels, seed=self.seed)

    # -- parts ----------------------------------------------------------------------------------

    def agent(
        self, policy: Policy, *, temperature: float = 1.0, greedy: bool = False, seed: int = 0
    ) -> PolicyAgent:
        """Return the policy as an agent, decoded by the run's backend."""
        return self.sampler.agent(
            policy,
            temperature=temperature,
            greedy=greedy,
            max_new_tokens=self.config.rollout.max_new_tokens,
            seed=seed,
        )

    def trainer(self, policy: Policy) -> Trainer:
        """Return the trainer of the recipe's method."""
        config = self.config
        collector: Collector
        made: Trainer
        watch = Stopwatch()
        rest, after = self.sampler.rest, _nothing
        if self.method.collection == "demonstrations":
            collector = self.demonstrations(policy)
        elif config.rollout.ahead is not None:
            # The sampler stays active; weights sync between collections.
            rest = _nothing
            collector = self.ahead(policy, watch)
        else:
            agent = self.agent(policy, temperature=config.rollout.temperature)
            after = agent.weights_changed
            watched = WatchedAgent(agent, watch)
            if config.rollout.oversample > 1:  # episodes go on with the weights of a later update
                watched.version = lambda: made.clock.updates
            collector = self.method.collector(self.context(watched))
        self._collectors.append(collector)
        within = collector.collector if isinstance(collector, AheadCollector) else collector
        if config.rollout.oversample > 1 and not isinstance(within, OversampleCollector):
            raise ConfigError(
                f"rollout.oversample is {config.rollout.oversample}, and method "
                f"{self.method.name!r} does not collect whole groups or independent episodes once "
                "an update: expected 1."
            )
        made = trainer_for(
            "train",
            policy,
            self.method,
            collector,
            config.rollout,
            config.optim,
            config.budget,
            seed=self.seed,
            config_hash=self.hash,
            after_collect=rest,
            after_weights=after,
            watch=watch,
        )
        if policy.pictures is not None and observation_shown(config) != "text":
            check_beside_pictures(self.method.name, within, made.models)
        return made

    def ahead(self, policy: Policy, watch: Stopwatch) -> AheadCollector:
        """Return the method's collector in a thread of its own, some updates ahead."""
        config = self.config
        assert config.rollout.ahead is not None, "asked by the caller"
        agent, held = self.sampler.held(
            policy,
            temperature=config.rollout.temperature,
            max_new_tokens=config.rollout.max_new_tokens,
            seed=0,
        )
        watched = WatchedAgent(agent, Stopwatch())
        updates = config.budget.updates
        return AheadCollector(
            self.method.collector(self.context(watched)),
            watched,
            held,
            watch=watch,
            updates=config.rollout.ahead,
            in_flight=config.rollout.in_flight,
            last=lambda update: updates is not None and update >= updates,
        )

    def context(self, agent: SampledAgent) -> CollectContext:
        """Return what a method collects with."""
        rollout = self.config.rollout
        everything = rollout.record == "all"
        return CollectContext(
            environment=lambda copies, size: self.environment(
                copies, group_size=size, collects=True
            ),
            agent=agent,
            form=self.form,
            seed=self.seed,
            groups=rollout.groups,
            group_size=rollout.group_size,
            hash_states=recorded_states(self.method, rollout),
            segments=rollout.segments or self.method.segments or everything,
            expert_actions=self.method.expert_actions or everything,
            retries=rollout.retries,
            count_states=self.config.run.count_states,
            schedule=rollout.schedule,
            oversample=rollout.oversample,
            rewards=lambda turns: reward_columns(turns, rollout),
        )

    def explore(self, trainer: Trainer, explore: ExploreConfig) -> None:
        """Let the policy explore, and fit the method's models to what it did."""
        begin, cpu_begin = time.perf_counter(), time.process_time()
        agent = self.agent(trainer.policy, temperature=explore.temperature)
        context = replace(self.context(agent), group_size=explore.rollouts)
        found: list[Trajectory] = []
        turns = 0
        with self.progress.phase("explore") as show:
            for collected in exploration(context, explore.tasks):
                found += collected.trajectories
                turns += collected.environment_turns
                seconds = time.perf_counter() - begin
                show(len(found), seconds, success=float(np.mean([t.success for t in found])))
            explored = time.process_time() - cpu_begin
            metrics = trainer.pretrain(found, turns, time.perf_counter() - begin, show)
        trainer.clock.cpu_seconds += time.process_time() - cpu_begin
        metrics |= {
            f"{CPU_PREFIX}explore": explored,
            f"{CPU_PREFIX}models": time.process_time() - cpu_begin - explored,
        }
        TrajectoryStore(self.folder.path / "exploration").append(0, found)
        self.record({"phase": "explore", "environment_turns": turns, **metrics})

    def demonstrations(self, policy: Policy) -> DemonstrationCollector:
        """Return the expert's episodes, made once and kept for a comparison later."""
        cfg = self.config.clone
        if self._demonstrations is None and cfg.from_run:
            self._demonstrations = recorded_demonstrations(
                cfg.from_run,
                self.environment(1),
                self.form,
                policy.tokenizer,
                self.agent(policy).chat_format,
                self.config.rollout.max_new_tokens,
                cfg.episodes,
                self.seed,
            )
        if self._demonstrations is None:
            venv = self.environment(min(64, max(1, cfg.episodes)))
            demonstrator = Demonstrator(
                venv,
                self.form,
                policy.tokenizer,
                self.agent(policy).chat_format,
                self.config.rollout.max_new_tokens,
                noise=cfg.noise,
                seed=self.seed,
                pictures=policy.pictures,
                actions=self.config.rollout.actions,
            )
            self._demonstrations = demonstrate(
                venv, demonstrator, self.form, cfg.episodes, self.seed
            )
        count = math.ceil(cfg.held_out * len(self._demonstrations))
        kept = len(self._demonstrations) - count
        self._held_out = self._demonstrations[kept:]
        return DemonstrationCollector(
            self._demonstrations[:kept],
            cfg.batch_turns,
            self.seed,
            by_turn=self.form.context == "window",
        )

    def environment(
        self,
        copies: int,
        *,
        group_size: int = 1,
        split: str | None = None,
        collects: bool = False,
    ) -> TextVectorEnv:
        """Return a vector environment of the run, made once for each shape; closed with the run.

        Args:
            copies: of them.
            group_size: copies that share a task.
            split: None: the training split.
            collects: it may stand on other machines.
        """
        ray = self.config.rollout.ray
        shards = ray.shards if collects and ray.address is not None else 0
        key = (copies, group_size, split, shards)
        if key not in self._environments:
            made = make_environment(self.config, copies, group_size, split, shards)
            self._environments[key] = made
        return self._environments[key]

    def record(self, row: dict[str, Any]) -> None:
        """Append a row of metrics, here and in every sink."""
        self.folder.append_metrics(row)
        self.sinks.log(row)
        self.on_row(row)

    def save_policy(self, policy: Policy, name: str) -> Path:
        """Save the policy with its tokenizer; ``creditrl eval`` and transformers load it."""
        path = self.folder.path / "policy" / name
        # Whoever loads the policy decodes replies of the length it was trained with.
        policy.model.generation_config.max_new_tokens = self.config.rollout.max_new_tokens
        policy.save(path)
        rollout = self.config.rollout
        Prompting(rollout.form, rollout.actions, rollout.stop).write(path)
        return path

    def timed(self, phase: str, work: Callable[[], T]) -> T:
        """Do the work of a phase and add its wall-clock time to the run's account."""
        begin = time.perf_counter()
        result = work()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begin
        return result

    def close(self) -> None:
        """Release the environments and the metric sinks; end a comparison that still runs."""
        if self._baseline is not None:
            self._baseline.stop()
        for collector in self._collectors:
            collector.close()
        for venv in self._environments.values():
            venv.close()
        self.sampler.close()
        self._leave_ray()
        self.sinks.close()


def build_policy(
    config: TrainConfig,
    device: str,
    environment: Callable[[int], TextVectorEnv] | None = None,
    tokenizer: Any = None,
) -> Policy:
    """Return the policy that a run begins with: a small one from a config, or one that exists.

    Args:
        config: of the run.
        device: where it computes.
        environment: makes so many copies of the training split; their text teaches the small
            policy's tokenizer.
        tokenizer: the small policy's, where there is one already.
    """
    policy = _begun_policy(config, device, environment, tokenizer)
    policy.checkpointing = config.policy.checkpointing
    policy.compile = config.policy.compile
    return policy


def _begun_policy(
    config: TrainConfig,
    device: str,
    environment: Callable[[int], TextVectorEnv] | None,
    tokenizer: Any,
) -> Policy:
    cfg, seed = config.policy, config.run.seed
    if cfg.model != "small":
        return Policy.load(cfg.model, lora=cfg.lora, dtype=cfg.dtype, device=device, seed=seed)
    if tokenizer is None:
        assert environment is not None, "one of the two is given"
        episodes = cfg.tokenizer_episodes
        texts = environment_texts(
            environment(min(64, episodes)), get_form(config.rollout.form), episodes, seed
        )
        tokenizer = build_tokenizer(texts)
    return Policy.small(
        cfg.small, tokenizer, seed=seed, lora=cfg.lora, dtype=cfg.dtype, device=device
    )


def load_policy(config: TrainConfig, folder: RunFolder) -> tuple[Policy, str]:
    """Return (the policy of a run as it last stood, with its reference; where it was found).

    It is that of the newest checkpoint, or the saved one where there is no checkpoint.

    Raises:
        DataError: the run has neither.
        CheckpointError: the checkpoint is damaged or of another version.
    """
    device = _device(config.policy.device)
    checkpoint = latest_checkpoint(folder.checkpoints)
    saved = folder.path / "policy" / "last"
    if checkpoint is None:
        if not saved.is_dir():
            raise DataError(
                f"{folder.path} has no checkpoint and no saved policy: expected one of them. Go on "
                f"with the run: `creditrl train --run.folder {folder.path} --run.resume`."
            )
        return Policy.load(saved, dtype=config.policy.dtype, device=device), str(saved)
    state, _ = load_checkpoint(checkpoint, {"method": config.method.name})
    if saved.is_dir():
        # It has the tokenizer, for which an environment would have to be played.
        policy = Policy.load(saved, dtype=config.policy.dtype, device=device)
    else:
        venvs: list[TextVectorEnv] = []

        def environment(copies: int) -> TextVectorEnv:
            venvs.append(make_environment(config, copies))
            return venvs[-1]

        policy = build_policy(config, device, environment)
        for venv in venvs:
            venv.close()
    policy.load_state_dict(state["policy"])
    return policy, str(checkpoint)


def _held_out(moment: str, results: Mapping[str, EvalResult]) -> dict[str, Any]:
    """Return evaluations as a row for sinks: the measures by moment and way of sampling."""
    measured = {way: result.to_json()["overall"] for way, result in results.items()}
    return {"phase": "held_out", moment: measured}


def weights_hash(policy: Policy) -> str:
    """Return a digest of a policy's weights: equal exactly where all of them are."""
    digest = hashlib.sha256()
    for name, tensor in sorted(policy.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _device(name: str) -> str:
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def _cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def make_environment(
    config: TrainConfig,
    copies: int,
    group_size: int = 1,
    split: str | None = None,
    shards: int = 0,
) -> TextVectorEnv:
    """Return a vector environment of a run."""
    cfg = config.env
    options = {} if cfg.options is None else _shallow(cfg.options)
    env_id = environment_id(cfg.id)
    if split is not None and _has_splits(environment_class(env_id)):
        options["split"] = split
    if options.get("observation") == "image":
        # The policy sees the picture alone; records, states and learned models read the text.
        options["observation"] = "both"
    made: Any = gym.make_vec(
        env_id,
        num_envs=copies,
        group_size=group_size,
        workers=min(shards or cfg.workers, copies),
        worker_context="ray" if shards else None,
        **options,
    )
    return made.unwrapped  # type: ignore[no-any-return]


def _has_splits(env_class: type[TextEnv[Any]]) -> bool:
    return any(field.name == "split" for field in fields(env_class.config_class))


def _shallow(options: Any) -> dict[str, Any]:
    return {f.name: getattr(options, f.name) for f in fields(options)}


def _nothing() -> None:
    """Do nothing: no sampler has to be told."""


def _ignore(row: Mapping[str, Any]) -> None:
    """Do nothing: nobody waits for rows."""
