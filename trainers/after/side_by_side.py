"""Credit of stored episodes by many methods side by side; only learned models are trained.

Every method sees the same turns. A learned model scores only episodes to which it was not fitted:
it is fitted to other given episodes, or to the other half of these.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np

from creditrl.envs.register import environment_class
from creditrl.errors import CreditInputError, CreditRLError
from creditrl.trainers.batch import turn_table
from creditrl.trainers.config import RolloutConfig
from creditrl.trainers.credit.check import finite
from creditrl.trainers.credit.spread import tokens_per_turn, turn_sum
from creditrl.trainers.methods.base import Method, checked_credit, method_info
from creditrl.trainers.models.learned.base import Batch, LearnedModel, scored_by
from creditrl.trainers.models.lora import only_own_lora
from creditrl.trainers.models.policy import Policy
from creditrl.trainers.rewards import reward_columns
from creditrl.trainers.states import with_states
from creditrl.types import (
    BoolArray,
    Credit,
    FloatArray,
    StateSource,
    TokenTable,
    Trajectory,
    TurnTable,
)

FIT_PASSES = 8
"""Passes over the episodes when fitting models that learn update by update."""
COMPARING_KINDS = ("group", "preference")
"""Kinds of methods that compare the members of a group."""
RECORD_ALL = "--rollout.record all"
"""The flag of `creditrl train` that records what any method reads."""


def credit_side_by_side(
    methods: Mapping[str, Method[Any]],
    trajectories: Sequence[Trajectory],
    policy: Policy,
    rollout: RolloutConfig,
    *,
    fit_on: Sequence[Trajectory] | None = None,
    seed: int = 0,
    states: StateSource | None = "state",
    passes: int = FIT_PASSES,
    drawn_alone: bool = False,
    on_error: Callable[[str, CreditRLError], None] | None = None,
    show: Callable[..., None] | None = None,
) -> tuple[TurnTable, dict[str, FloatArray]]:
    """Return the turns of episodes, and the credit of each by every method.

    Episodes of one policy version form the batch over which a method normalises. That is one update
    of a run, except that the first two updates of a run that collected ahead share a version (set
    ``policy_version`` to the update's number, as `creditrl credit` does). The sampler's
    log-probabilities serve as the old ones. Models are initialised from ``policy``, and so is the
    reference policy unless ``policy`` has one. Methods that need outcomes of 0 or 1 get success as
    the reward.

    Args:
        methods: keyed by their labels in the result.
        trajectories: finished episodes, valid ones, with the tokens of the policy that sampled
            them. Those without turns are left out.
        policy: initial network of the models; its weights do not change.
        rollout: reward settings and temperature of the run; ``groups`` is the size of the batches
            from which models learn.
        fit_on: episodes to which models are fitted, and from which state counts start. None: the
            episodes are halved by task, and each half is scored by models that were fitted to the
            other; state counts grow with the episodes, in order.
        seed: seed of the models and of the split into halves.
        states: source of the turns' state hashes; None: they have none.
        passes: passes over the episodes, for models that learn update by update (critics, iStar's
            and PRIME's). Models that a method fits before training follow its own settings.
        drawn_alone: count only the tokens of a turn that had an alternative. The other tokens of a
            reply that was chosen from a list have no gradient.
        on_error: called with (label, error) if a method cannot score these episodes; the other
            methods continue. None raises the error.
        show: reports progress: ``show(methods done, seconds, method=label, step=what it does)``,
            without a step when the method is done.

    Returns:
        The turn table (N turns, groups numbered over all batches) and ``credit_N`` float32 of each
        label: the advantage of each turn, or the mean over the turn's tokens, 0 without tokens.

    Raises:
        CreditInputError: a method needs something that the episodes lack (the message tells how to
            record it), an episode is invalid, or a credit is not finite; names the episode.
    """
    episodes = _renumbered(trajectories)
    fitting = None if fit_on is None else _renumbered(fit_on)
    table = turn_table(episodes)
    if not len(table):
        raise CreditInputError("No episode has a turn: there is nothing to give credit to.")
    begin = time.perf_counter()
    advantages: dict[str, FloatArray] = {}
    for done, (label, method) in enumerate(methods.items()):
        # A shallow copy: a reference made for one method must not stay with the caller's policy.
        scorer = _Scorer(method, copy.copy(policy), rollout, states, seed, passes, drawn_alone)
        if show is not None:

            def tell(step: str, done: int = done, label: str = label) -> None:
                show(done, time.perf_counter() - begin, method=label, step=step)

            scorer.tell = tell
        try:
            advantages[label] = scorer.credit(episodes, fitting)
        except CreditRLError as error:
            if on_error is None:
                raise
            on_error(label, error)
        if show is not None:
            show(done + 1, time.perf_counter() - begin, method=label)
    return table, advantages


def credit_per_turn(
    credit: Credit, turns: TurnTable, tokens: TokenTable, drawn_alone: bool = False
) -> FloatArray:
    """Return the credit of each turn, [N]: the mean over its tokens if they have credit, else 0.

    Args:
        credit: of the turns, or of the tokens.
        turns: the turns.
        tokens: their tokens.
        drawn_alone: leave out tokens that had no alternative, whose log-probability is 0.

    Raises:
        CreditInputError: there are no advantages, or one is not finite (names the episode).
    """
    if credit.advantage_N is not None:
        value_N = np.asarray(credit.advantage_N, dtype=np.float32)
    elif credit.advantage_M is not None:
        counts_M = np.ones(len(tokens), dtype=np.bool_)
        if drawn_alone:
            counts_M = tokens.logprob_M != 0
        turn_M = tokens.turn_M[counts_M]
        sums_N = turn_sum(credit.advantage_M[counts_M], turn_M, len(turns))
        count_N = np.maximum(tokens_per_turn(turn_M, len(turns)), 1)
        value_N = (sums_N / count_N).astype(np.float32)
    else:
        raise CreditInputError(
            f"Method {credit.method!r} returned a credit without advantages: set advantage_N or "
            "advantage_M."
        )
    name = f"The credit of {credit.method}"
    return finite(name, value_N, turns.episode_N, turns.episode_ids).astype(np.float32)


def _silent(*_: Any, **__: Any) -> None:
    """Report no progress."""


@dataclass(eq=False)
class _Scorer:
    """Scores episodes with one method."""

    method: Method[Any]
    policy: Policy
    rollout: RolloutConfig
    states: StateSource | None
    seed: int
    passes: int
    drawn_alone: bool
    tell: Callable[[str], None] = _silent
    """Takes what it does."""

    def __post_init__(self) -> None:
        if self.method.needs.binary_outcomes:
            self.rollout = replace(self.rollout, reward="success", reward_scale=1.0)

    def credit(
        self, episodes: Sequence[Trajectory], fit_on: Sequence[Trajectory] | None
    ) -> FloatArray:
        """Return the credit of every turn, [N]."""
        self._check(episodes)
        if fit_on:
            self._check(fit_on)
        batches: list[Batch] = []
        fitted = list(fit_on or ())
        indices = _batches(episodes)
        for index in indices:
            batches.append(self._batch([episodes[b] for b in index], fitted))
            if fit_on is None:
                fitted += batches[-1].trajectories
        if fit_on is not None:
            batches = self._scored(batches, fit_on)
        else:
            first_B = self._first_half(episodes)
            of_half = {
                side: [
                    t for t, first in zip(episodes, first_B.tolist(), strict=True) if first is side
                ]
                for side in (True, False)
            }
            # Each half is scored by models fitted to the other.
            ones, twos = (self._scored(batches, of_half[side]) for side in (False, True))
            batches = [
                _merged(one, two, first_B[index])
                for one, two, index in zip(ones, twos, indices, strict=True)
            ]
        start_B = np.cumsum([0, *(len(t.turns) for t in episodes)])
        credit_N = np.zeros(start_B[-1], dtype=np.float32)
        for batch, index in zip(batches, indices, strict=True):
            credit = checked_credit(self.method, batch.turns, batch.tokens)
            place = np.concatenate([np.arange(start_B[b], start_B[b + 1]) for b in index])
            credit_N[place] = credit_per_turn(credit, batch.turns, batch.tokens, self.drawn_alone)
        return credit_N

    # -- models -----------------------------------------------------------------------------------

    def _first_half(self, episodes: Sequence[Trajectory]) -> BoolArray:
        """Return which episodes are in the first half of the tasks; none if there is one task."""
        tasks = list(dict.fromkeys(t.task.id for t in episodes))
        order = np.random.default_rng([self.seed, 23]).permutation(len(tasks))
        first = {tasks[i] for i in order[: len(tasks) // 2].tolist()}
        return np.array([t.task.id in first for t in episodes])

    def _scored(self, batches: Sequence[Batch], fit_on: Sequence[Trajectory]) -> list[Batch]:
        """Return the batches with the columns of models fitted to ``fit_on``."""
        with only_own_lora(self.policy.model):
            models = self._fitted(fit_on)
            scored = []
            for number, batch in enumerate(batches, start=1):
                if models:
                    self.tell(f"scores batch {number}/{len(batches)}")
                for model in models:
                    batch = scored_by(model, batch)
                scored.append(batch)
        return scored

    def _fitted(self, episodes: Sequence[Trajectory]) -> Sequence[LearnedModel]:
        """Return the method's models, fitted."""
        models = self.method.models(self.policy, self.seed, self.rollout.temperature)
        learners = [model for model in models if _learns(model)]
        if not learners:
            return models
        if not episodes:
            raise CreditInputError(
                f"{self.method.name} learns models, and these episodes are all of one task: "
                "expected two tasks, one to learn from and one to score. Give more episodes."
            )
        if self.method.needs.explore is not None:
            for model in learners:

                def fitting(step: int, *_: Any, name: str = model.name, **__: Any) -> None:
                    self.tell(f"fits {name}, step {step}")

                model.pretrain(self.policy, episodes, fitting)
        if any(type(model).fit is not LearnedModel.fit for model in models):
            parts = [self._batch(part, ()) for part in self._updates(episodes)]
            for run in range(1, self.passes + 1):
                for number, batch in enumerate(parts, start=1):
                    self.tell(f"fits pass {run}/{self.passes}, batch {number}/{len(parts)}")
                    for model in models:
                        model.observe(batch)
                        batch = scored_by(model, batch)
                    credit = checked_credit(self.method, batch.turns, batch.tokens)
                    for model in models:
                        model.fit(batch, credit)
        return models

    def _updates(self, episodes: Sequence[Trajectory]) -> Iterator[list[Trajectory]]:
        """Yield the episodes of one update at a time, whole groups each."""
        for index in _batches(episodes):
            groups: dict[int, list[Trajectory]] = {}
            for b in index:
                groups.setdefault(episodes[b].group, []).append(episodes[b])
            members = list(groups.values())
            size = self.rollout.groups
            if max(map(len, members)) == 1:
                size *= self.rollout.group_size  # without groups an update has this many tasks
            for start in range(0, len(members), size):
                yield [t for part in members[start : start + size] for t in part]

    # -- columns ----------------------------------------------------------------------------------

    def _batch(self, episodes: Sequence[Trajectory], fitted: Sequence[Trajectory]) -> Batch:
        """Return a batch with every column except those of models."""
        batch = Batch.of(episodes)
        turns = batch.turns
        source = self.method.needs.states
        if source is not None:
            turns = with_states(turns, batch.trajectories, source)
        if self.method.needs.own_rewards:
            turns = self.method.replay(turns, batch.trajectories, fitted)
        else:
            turns = reward_columns(turns, self.rollout)
        tokens = replace(batch.tokens, old_logprob_M=self._sampler(batch))
        if self.method.needs.reference:
            with self.policy.reference() as reference:
                found_M = reference.score(batch.rows, temperature=self.rollout.temperature)
            tokens = replace(tokens, ref_logprob_M=found_M)
        return replace(batch, turns=turns, tokens=tokens)

    def _sampler(self, batch: Batch) -> FloatArray:
        """Return the sampler's log-probabilities, or the policy's where there are none.

        Nor are there any where the sampler's were among listed actions: lists are not stored, so
        models score such replies among all texts.
        """
        logprob_M = np.asarray(batch.tokens.logprob_M, dtype=np.float32)
        unknown_M = np.isnan(logprob_M)
        if self.rollout.actions != "free" and self.method.needs.logprobs:
            lost_N = [turn.options is None for t in batch.trajectories for turn in t.turns]
            unknown_M |= np.array(lost_N, dtype=bool)[batch.tokens.turn_M]
        if unknown_M.any():
            own_M = self.policy.score(batch.rows, temperature=self.rollout.temperature)
            logprob_M = np.where(unknown_M, own_M, logprob_M)
        return logprob_M

    # -- what episodes lack -----------------------------------------------------------------------

    def _check(self, episodes: Sequence[Trajectory]) -> None:
        """Raise if the episodes lack something that the method reads."""
        name, needs = self.method.name, self.method.needs
        source = needs.states
        again = f"record a run with `creditrl train ... {RECORD_ALL}`"
        part = next((t for t in episodes if not (t.terminated or t.truncated)), None)
        if part is not None:
            raise CreditInputError(
                f"Episode {part.id} is a single transition of a tree search, but {name} needs "
                "whole episodes. Score a run of a method that collects whole episodes."
            )
        turns = [turn for t in episodes for turn in t.turns]
        for env_id in {t.env_id for t in episodes}:
            with contextlib.suppress(gym.error.Error):  # from a package that is not imported here
                needs.check_environment(name, environment_class(env_id))
        if source not in (None, "text"):
            hashed = [turn.state != 0 for turn in turns]
            if source != self.states or not all(hashed):
                held = f"some of source {self.states!r}" if any(hashed) else "none"
                raise CreditInputError(
                    f"{name} compares state hashes of source {source!r}, and these episodes hold "
                    f"{held}: {again}."
                )
        if needs.segments and not any(turn.segment for turn in turns):
            raise CreditInputError(
                f"{name} reads the sub-goal of each turn, and these episodes hold none: {again}."
            )
        if needs.expert and not any(turn.expert for turn in turns):
            raise CreditInputError(
                f"{name} reads what an expert would have done at each turn, and these episodes "
                f"hold no such actions: {again}, where the environment has an expert."
            )
        groups = {t.group for t in episodes}
        compares = method_info(name).kind in COMPARING_KINDS
        if compares and len(groups) == len(episodes):
            raise CreditInputError(
                f"{name} compares the members of a group, and every episode here is a group of its "
                "own: score a run of a method that collects groups, e.g. --method.name grpo, or an "
                "evaluation that played its tasks several times."
            )


def _learns(model: LearnedModel) -> bool:
    """Return whether a model has a way of learning."""
    return any(
        getattr(type(model), name) is not getattr(LearnedModel, name)
        for name in ("pretrain", "observe", "fit")
    )


def _merged(one: Batch, two: Batch, first_B: BoolArray) -> Batch:
    """Return a batch with the columns of ``one`` where ``first_B``, and of ``two`` elsewhere."""
    own_N = np.repeat(first_B, [len(t.turns) for t in one.trajectories])
    own_M = own_N[one.tokens.turn_M]

    def chosen(own: BoolArray, a: Any, b: Any) -> Any:
        return None if a is None or b is None else np.where(own, a, b)

    scores_N = {
        name: chosen(own_N, a, two.turns.scores[name]) for name, a in one.turns.scores.items()
    }
    scores_M = {
        name: chosen(own_M, a, two.tokens.scores[name]) for name, a in one.tokens.scores.items()
    }
    tokens: TokenTable = replace(
        one.tokens,
        value_M=chosen(own_M, one.tokens.value_M, two.tokens.value_M),
        scores=scores_M,
    )
    return replace(one, turns=replace(one.turns, scores=scores_N), tokens=tokens)


def _renumbered(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Return the episodes that have turns, with groups numbered over all policy versions."""
    numbers: dict[tuple[int, int], int] = {}
    return [
        replace(t, group=numbers.setdefault((t.policy_version, t.group), len(numbers)))
        for t in trajectories
        if t.turns
    ]


def _batches(episodes: Sequence[Trajectory]) -> list[list[int]]:
    """Return the episodes of each policy version, ordered by version."""
    groups: dict[int, list[int]] = {}
    for number, trajectory in enumerate(episodes):
        groups.setdefault(trajectory.policy_version, []).append(number)
    return list(groups.values())
