"""The dialogues of many copies: the agent on one side, a partner on the other.

A copy is one immutable record, the partner's memory included, so it is its own snapshot. All
partners that have to answer are called at once, and so are the judges of all dialogues that end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from creditrl.envs.base import Effect, Engine, View, object_column
from creditrl.envs.sotopia.action_text import ACTION_FORMS, ACTION_HINT, action_text, read_action
from creditrl.envs.sotopia.dialogue import (
    NOTHING,
    Action,
    Rules,
    Transcript,
    Turns,
    cut_by_limit,
    ending,
    speakers,
    turns_of,
)
from creditrl.envs.sotopia.expert import expert_action
from creditrl.envs.sotopia.offers import BARE_MOVES, NO_TALK, Talk, follow, moves_in, segment
from creditrl.envs.sotopia.partners import Partner, PartnerAsk, PartnerReply
from creditrl.envs.sotopia.profiles import Seat, Visibility
from creditrl.envs.sotopia.rendering import introduction, observation, turn_lines
from creditrl.envs.sotopia.terms import Terms
from creditrl.envs.sotopia.verdict import Judge, Verdict
from creditrl.errors import ConfigError, SnapshotError
from creditrl.types import IntArray, StateSource, Task

__all__ = ["Observed", "SotopiaEngine", "Unreadable", "dialogue_key", "seat_of"]

Observed: TypeAlias = Literal["full", "new"]
Unreadable: TypeAlias = Literal["wait", "nothing"]

_NOTE = f"Your last answer was no action. Write one of: {'; '.join(ACTION_FORMS)}."


class _Copy(NamedTuple):
    """Current state of one copy; immutable, so it is its own snapshot."""

    seed: int
    left: int
    """Number of turns left to the agent."""
    turns: Turns = ()
    seen: int = -1
    """Number of turns at the agent's last answer; -1: it has not answered yet."""
    memory: Any = None
    """The partner's memory."""
    partner_seen: int = -1
    """As ``seen``, for the partner."""
    talk: Talk = NO_TALK
    """State of the negotiation after the turns, in scenarios with terms."""
    unread: bool = False
    """Whether the agent's last answer was not an action."""
    partner_unread: bool = False
    """Whether the partner's last answer was not an action."""
    ending: str = ""
    error: str = ""
    verdict: Verdict | None = None


class SotopiaEngine(Engine):
    """The dialogues of ``num_envs`` copies.

    Args:
        num_envs: copies.
        partner: answers for the other side.
        judge: scores dialogues that have ended.
        rules: when a dialogue ends, and whose turn it is.
        visibility: what each side may know of the other.
        observed: ``"full"``: observations contain the context and the whole dialogue; ``"new"``:
            after the first one only what is new.
        unreadable: effect of an answer that is not an action. ``"wait"``: the dialogue stays
            unchanged, and the agent has one turn less; ``"nothing"``: the turn passes, as in
            upstream.
    """

    format = 1
    action_hint = ACTION_HINT

    def __init__(
        self,
        num_envs: int,
        partner: Partner,
        judge: Judge,
        rules: Rules = Rules(),  # noqa: B008 - immutable
        *,
        visibility: Visibility = "relationship",
        observed: Observed = "full",
        unreadable: Unreadable = "wait",
    ) -> None:
        super().__init__(num_envs)
        self.partner = partner
        self.judge = judge
        self._rules = rules
        self._visibility: Visibility = visibility
        self._whole = observed == "full"
        self._waits = unreadable == "wait"
        self.live = not (partner.deterministic and judge.deterministic)
        self.retry_helps = self.live
        self._seats: list[Seat | None] = [None] * num_envs
        self._heads: list[str] = [""] * num_envs
        self._terms: list[Terms | None] = [None] * num_envs
        self._copies: list[_Copy | None] = [None] * num_envs
        # Every observation repeats all earlier turns; per copy, turns and their lines.
        self._told: list[tuple[Turns, list[str]]] = [((), [])] * num_envs

    def begin(self, index_K: IntArray, tasks: Sequence[Task], seed_K: Sequence[int]) -> None:
        """Start a dialogue in each copy; if the partner opens, it has spoken.

        Raises:
            ConfigError: a task has no seat; then no copy has changed.
        """
        self._enter(index_K, tasks)
        # Members of a group share task and seed, and so the opening, even of a live model.
        alike: dict[tuple[int, int], list[int]] = {}
        for i, seed in zip(index_K.tolist(), seed_K, strict=True):
            alike.setdefault((id(self._seats[i]), int(seed)), []).append(i)
        work: list[tuple[int, _Copy, Action | None]] = []
        for (_, seed), copies in alike.items():
            side = self._place(copies[0])[0].side
            work.append((copies[0], _Copy(seed, turns_of(self._rules, side, seed)), None))
        self._play(work)
        for first, *others in alike.values():
            for i in others:
                self._copies[i] = self._copies[first]

    def act(self, index_K: IntArray, actions: Sequence[str]) -> Effect:
        """Play the agent's action and the partner's answer in each copy; judge finished ones."""
        k = len(index_K)
        grounded_K = np.ones(k, dtype=np.bool_)
        reasons = [""] * k
        done: list[str] = []
        work: list[tuple[int, _Copy, Action | None]] = []
        indices = index_K.tolist()
        for n, (i, text) in enumerate(zip(indices, actions, strict=True)):
            copy = self._here(i)
            action, reason = read_action(text)
            if copy.ending:
                # It was over before the agent's first turn: only the verdict is left.
                action, reason = None, "inapplicable"
            after = copy._replace(left=copy.left - 1, seen=len(copy.turns), unread=bool(reason))
            if action is None:
                grounded_K[n], reasons[n] = False, reason
                done.append(text.strip())
                if copy.ending:
                    continue
                if self._waits:
                    self._copies[i] = after if after.left else after._replace(ending="turn_limit")
                    continue
                action = NOTHING
            else:
                done.append(action_text(action))
            work.append((i, after, action))
        self._play(work)
        self._score([i for i in indices if self._here(i).ending])
        reward_K = np.zeros(k)
        terminated_K = np.zeros(k, dtype=np.bool_)
        truncated_K = np.zeros(k, dtype=np.bool_)
        for n, i in enumerate(indices):
            copy = self._here(i)
            if copy.ending:
                reward_K[n] = self._reward(i, copy)
                truncated_K[n] = cut_by_limit(copy.ending) or copy.ending == "error"
                terminated_K[n] = not truncated_K[n]
        return Effect(reward_K, terminated_K, done, grounded_K, reasons, truncated_K=truncated_K)

    def view(self, index_K: IntArray) -> View:
        """Describe the current state of each copy."""
        k = len(index_K)
        texts: list[str] = []
        success_K, score_K = np.zeros(k, dtype=np.bool_), np.zeros(k)
        admissible: list[tuple[str, ...]] = []
        rows: list[tuple[Any, ...]] = []
        for n, i in enumerate(index_K.tolist()):
            seat, head = self._place(i)
            copy = self._here(i)
            side, names = seat.side, seat.combination.names
            whole = self._whole or copy.seen < 0
            texts.append(
                observation(
                    seat.combination,
                    side,
                    copy.turns,
                    seen=copy.seen,
                    head=head if whole else None,
                    ending=copy.ending,
                    note=_NOTE if copy.unread and not copy.ending else "",
                    whole=whole,
                    told=self._lines(i, copy.turns, names),
                )
            )
            terms = self._terms[i]
            admissible.append(
                ()
                if copy.ending
                else BARE_MOVES
                if terms is None
                else moves_in(terms, side, copy.talk)
            )
            verdict = copy.verdict or _UNJUDGED
            if verdict.goal is not None:
                success_K[n], score_K[n] = verdict.success[side], verdict.goal[side]
            scores = verdict.scores
            rows.append(
                (
                    side,
                    names[side],
                    names[1 - side],
                    len(copy.turns),
                    copy.ending,
                    not copy.partner_unread,
                    verdict.judge or self.judge.name,
                    verdict.status,
                    {} if scores is None else dict(scores[side]),
                    {} if scores is None else dict(scores[1 - side]),
                    verdict.attempts,
                    verdict.tokens,
                    verdict.cost,
                    verdict.cached,
                    copy.error,
                )
            )
        columns = zip(*rows, strict=True)
        extra = {
            name: np.array(column, dtype=kind) if kind is not object else object_column(column)
            for (name, kind), column in zip(_COLUMNS, columns, strict=True)
        }
        extra["partner"] = object_column([self.partner.name] * k)
        return View(texts, admissible, success_K, score_K, extra=extra)

    def snapshot(self, index_K: IntArray) -> list[Any]:
        """Return each copy's state itself, because it is immutable.

        Raises:
            SnapshotError: a live model speaks or judges, and the agent has acted: from there the
                same actions may lead to a different episode.
        """
        copies = [self._here(i) for i in index_K.tolist()]
        if self.live and any(copy.seen >= 0 for copy in copies):
            raise SnapshotError(
                f"A dialogue with {self.partner.name}, judged by {self.judge.name}, cannot be "
                "continued from a snapshot alike: one of them is a live model. Take snapshots at "
                "the start of an episode, or use a scripted partner, a replay or cached answers."
            )
        return [tuple(copy) for copy in copies]

    def restore(self, index_K: IntArray, states: Sequence[Any], tasks: Sequence[Task]) -> None:
        """Put states into copies."""
        self._enter(index_K, tasks)
        for i, state in zip(index_K.tolist(), states, strict=True):
            self._copies[i] = _Copy(*state)

    def state_keys(self, index_K: IntArray, source: StateSource) -> list[bytes]:
        """Return canonical bytes: the scenario with its cast, and the dialogue.

        ``"state"`` adds the agent's side, and thereby its goal.
        """
        keys = []
        for i in index_K.tolist():
            seat, _ = self._place(i)
            keys.append(dialogue_key(seat, self._here(i).turns, source))
        return keys

    def expert_action(self, index: int) -> str | None:
        """Return a rule-based expert's next action; None if a scenario has no terms."""
        copy = self._here(index)
        if copy.ending:
            return None
        return expert_action(self._ask(index, copy, self._place(index)[0].side))

    def segment_key(self, index: int) -> str:
        """Name the standing offer, or the deal; ``""`` if there is none."""
        copy = self._here(index)
        return segment(self._ask(index, copy, self._place(index)[0].side))

    def render(self, index: int, mode: str) -> str | None:
        """Return the observation in full; ``"human"`` prints it."""
        seat, head = self._place(index)
        copy = self._here(index)
        text = observation(seat.combination, seat.side, copy.turns, head=head, ending=copy.ending)
        if mode == "human":
            from creditrl.terminal import printable

            print(printable(text), flush=True)
            return None
        return text

    # -- inside ---------------------------------------------------------------------------------

    def _play(self, work: list[tuple[int, _Copy, Action | None]]) -> None:
        """Play turns until it is the agent's turn again, or the dialogue is over.

        Args:
            work: copies, each with the agent's action for the present turn; None if it has none.
        """
        rules = self._rules
        while work:
            asks: list[PartnerAsk] = []
            turn: list[tuple[int, _Copy, Action, bool]] = []
            for i, copy, action in work:
                side = self._place(i)[0].side
                may = speakers(rules, len(copy.turns), copy.seed)
                if may[side] and action is None:
                    self._copies[i] = copy
                    continue
                if may[1 - side]:
                    asks.append(self._ask(i, copy, 1 - side))
                own = action if may[side] and action is not None else NOTHING
                turn.append((i, copy, own, may[1 - side]))
            replies = iter(self._replies(asks))
            work = []
            for i, copy, own, partner_acts in turn:
                theirs = NOTHING
                if partner_acts:
                    reply = next(replies)
                    if reply.error:
                        error = f"partner {self.partner.name}: {reply.error}"
                        self._copies[i] = copy._replace(ending="error", error=error)
                        continue
                    read, reason = reply.action, ""
                    if read is None:
                        read, reason = read_action(reply.text)
                    theirs = read or NOTHING
                    copy = copy._replace(
                        memory=reply.memory,
                        partner_seen=len(copy.turns),
                        partner_unread=bool(reason),
                    )
                pair = (own, theirs) if self._place(i)[0].side == 0 else (theirs, own)
                turns = (*copy.turns, pair)
                terms = self._terms[i]
                talk = NO_TALK if terms is None else follow(terms, turns, copy.talk)
                copy = copy._replace(turns=turns, talk=talk, ending=ending(turns, rules))
                self._copies[i] = copy
                if not copy.ending:
                    work.append((i, copy, None))

    def _ask(self, i: int, copy: _Copy, side: int) -> PartnerAsk:
        """Return one side's view of a copy; the partner's memory is only for the partner."""
        seat, _ = self._place(i)
        own = side == seat.side
        return PartnerAsk(
            copy=i,
            combination=seat.combination,
            side=side,
            turns=copy.turns,
            seed=copy.seed,
            memory=None if own else copy.memory,
            talk=copy.talk,
            seen=copy.seen if own else copy.partner_seen,
            visibility=self._visibility,
            max_turns=self._rules.max_turns,
        )

    def _replies(self, asks: list[PartnerAsk]) -> Sequence[PartnerReply]:
        if not asks:
            return ()
        replies = self.partner.reply(asks)
        if len(replies) != len(asks):
            raise ConfigError(
                f"The partner {self.partner.name} gave {len(replies)} replies to {len(asks)} asks: "
                "expected one each, in their order."
            )
        return replies

    def _score(self, over: list[int]) -> None:
        """Ask the judge about all dialogues that are over and not judged, in one call."""
        todo = [i for i in over if self._here(i).verdict is None and not self._here(i).error]
        if not todo:
            return
        episodes = []
        for i in todo:
            copy = self._here(i)
            combination = self._place(i)[0].combination
            episodes.append(Transcript(combination, copy.turns, copy.ending, copy.talk))
        for i, verdict in zip(todo, self.judge.score(episodes), strict=True):
            error = "" if verdict.goal is not None else verdict.failure(self.judge.name)
            self._copies[i] = self._here(i)._replace(verdict=verdict, error=error)

    def _reward(self, i: int, copy: _Copy) -> float:
        """Return the agent's own goal achievement; NaN if it is unknown."""
        goal = None if copy.verdict is None else copy.verdict.goal
        return float("nan") if goal is None else goal[self._place(i)[0].side]

    def _enter(self, index_K: IntArray, tasks: Sequence[Task]) -> None:
        """Give each copy its task's seat; all are checked before any copy changes."""
        seats = [seat_of(task) for task in tasks]
        for i, seat in zip(index_K.tolist(), seats, strict=True):
            if self._seats[i] is not seat:
                self._seats[i] = seat
                self._told[i] = ((), [])
                self._heads[i] = introduction(seat.combination, seat.side, self._visibility)
                terms = seat.combination.scenario.terms
                self._terms[i] = terms if isinstance(terms, Terms) else None

    def _lines(self, i: int, turns: Turns, names: tuple[str, str]) -> list[str]:
        """Return the lines of a copy's turns; earlier lines are reused."""
        known, lines = self._told[i]
        old = len(known)
        if known != turns[:old]:
            old, lines = 0, []
        lines = [*lines, *turn_lines(turns, names, old)]
        self._told[i] = (turns, lines)
        return lines

    def _place(self, i: int) -> tuple[Seat, str]:
        seat = self._seats[i]
        assert seat is not None
        return seat, self._heads[i]

    def _here(self, i: int) -> _Copy:
        copy = self._copies[i]
        assert copy is not None
        return copy


_UNJUDGED = Verdict(goal=None, status="pending", attempts=0)

_COLUMNS: tuple[tuple[str, type], ...] = (
    ("side", np.int64),
    ("role", object),
    ("partner_role", object),
    ("dialogue_turn", np.int64),
    ("ending", object),
    ("partner_grounded", np.bool_),
    ("judge", object),
    ("judge_status", object),
    ("judge_scores", object),
    ("partner_scores", object),
    ("judge_attempts", np.int64),
    ("judge_tokens", np.int64),
    ("judge_cost", np.float64),
    ("judge_cached", np.bool_),
    ("error", object),
)
"""Columns added to ``info``, and their types."""


def seat_of(task: Task) -> Seat:
    """Return the seat that a task gives the agent.

    Raises:
        ConfigError: it has no seat, because it is another environment's task.
    """
    if not isinstance(task.data, Seat):
        raise ConfigError(
            f"Task {task.id!r} holds {type(task.data).__name__} data: SOTOPIA needs a Seat. "
            "Take tasks from env.tasks, or build Task(..., data=Seat(combination, side))."
        )
    return task.data


def dialogue_key(seat: Seat, turns: Turns, source: StateSource = "state") -> bytes:
    """Return canonical bytes of a cast and its actions; ``"state"`` adds the agent's side."""
    combination = seat.combination
    parts = [combination.id, *(character.id for character in combination.characters)]
    # Lengths distinguish an utterance's content from what it merely quotes.
    parts += [
        f"{action.kind} {len(action.argument)} {action.argument}"
        for turn in turns
        for action in turn
    ]
    if source == "state":
        parts.append(str(seat.side))
    return "\x1f".join(parts).encode()
