"""What an evaluation may spend, and the meter between the loop and the agent that counts it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from creditrl.agents.base import Agent
from creditrl.errors import ConfigError
from creditrl.outside_json import absurd_count
from creditrl.types import Prompt, Reply

__all__ = ["BUDGET_SPENT", "Budget", "Meter", "Spent"]

BUDGET_SPENT = "the budget is spent"
"""Error of the episodes that a budget cuts off; they were not played, rather than failed."""


@dataclass(slots=True)
class Spent:
    """What was spent, retries and cut episodes included."""

    turns: int = 0
    tokens: int = 0
    """Read and written."""
    cost: float = 0.0
    """Dollars."""
    seconds: float = 0.0
    """Wall time."""

    def add(self, other: Spent) -> None:
        """Add what was spent elsewhere."""
        self.turns += other.turns
        self.tokens += other.tokens
        self.cost += other.cost
        self.seconds += other.seconds

    def since(self, before: Spent) -> Spent:
        """Return what was spent after ``before``."""
        return Spent(
            self.turns - before.turns,
            self.tokens - before.tokens,
            self.cost - before.cost,
            self.seconds - before.seconds,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON has them."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spent:
        """Return what :meth:`to_json` was made of."""
        return cls(
            int(data["turns"]), int(data["tokens"]), float(data["cost"]), float(data["seconds"])
        )


@dataclass(slots=True)
class Budget:
    """How much an evaluation, or several that share it, may spend; None sets no limit.

    Turns are never exceeded. Tokens and money are known when the answers are there, so the last
    round of questions, one per copy, may go beyond.

    Raises:
        ConfigError: a limit is no number above 0.
    """

    turns: int | None = None
    tokens: int | None = None
    """Read and written."""
    cost: float | None = None
    """Dollars."""
    spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        for name in ("turns", "tokens", "cost"):
            limit = getattr(self, name)
            if limit is not None and not (limit > 0 and math.isfinite(limit)):
                raise ConfigError(f"A budget of {limit:g} {name}: expected a number above 0.")

    @property
    def turns_left(self) -> float:
        """How many more actions may be taken."""
        return math.inf if self.turns is None else max(0, self.turns - self.spent.turns)

    def why_over(self) -> str:
        """Return which limit is reached, empty while there is something left."""
        spent = self.spent
        if self.turns is not None and spent.turns >= self.turns:
            return f"{spent.turns:,} of {self.turns:,} turns"
        if self.tokens is not None and spent.tokens >= self.tokens:
            return f"{spent.tokens:,} of {self.tokens:,} tokens"
        if self.cost is not None and spent.cost >= self.cost:
            return f"${spent.cost:.4g} of ${self.cost:.4g}"
        return ""


class Meter:
    """An agent as it is, with what it spends counted, and nothing asked beyond the budget.

    Args:
        agent: whose every attribute this one has too.
        budget: counts here; prompts beyond it get a reply with the error :data:`BUDGET_SPENT`.
    """

    def __init__(self, agent: Agent, budget: Budget) -> None:
        self._agent = agent
        self.name = agent.name
        self.budget = budget
        self.tokens_of: Counter[int] = Counter()
        """Tokens of the replies to each copy since :meth:`begin_block`."""
        self.cost_of: dict[int, float] = {}
        """Dollars for each copy since then."""
        self.stopped = ""
        """Which limit of the budget kept a question from being asked; empty: none did."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def begin_block(self, episodes: Sequence[int]) -> None:
        """Forget the copies' counts, and tell an agent that wants it what they play next."""
        self.tokens_of.clear()
        self.cost_of.clear()
        begin = getattr(self._agent, "begin", None)
        if callable(begin):
            begin(episodes)

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Ask the agent as many of the prompts as the budget allows."""
        return self._ask(prompts, turns=True)

    def ask_aside(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Ask the agent what is no action, a reflection: it costs tokens and no turn."""
        return self._ask(prompts, turns=False)

    def _ask(self, prompts: Sequence[Prompt], turns: bool) -> list[Reply]:
        budget = self.budget
        over = budget.why_over()
        allowed = 0 if over else len(prompts)
        if turns:
            allowed = int(min(allowed, budget.turns_left))
        if allowed < len(prompts):
            self.stopped = over or f"{budget.turns:,} of {budget.turns:,} turns"
        if not allowed:
            return [Reply("", error=BUDGET_SPENT)] * len(prompts)
        replies = [self._sound(reply) for reply in self._agent.act(prompts[:allowed])]
        for prompt, reply in zip(prompts, replies, strict=False):
            self.tokens_of[prompt.copy] += len(reply.token_ids) or reply.num_tokens
            self.cost_of[prompt.copy] = self.cost_of.get(prompt.copy, 0.0) + reply.cost
            budget.spent.turns += turns and not reply.error
            budget.spent.tokens += (
                len(reply.prompt_ids) + len(reply.token_ids)
                if reply.token_ids
                else reply.spent_tokens
            )
            budget.spent.cost += reply.cost
        if budget.cost is not None and budget.spent.tokens and not budget.spent.cost:
            raise ConfigError(
                f"A budget of ${budget.cost:g}, and nothing says what a token costs: give the "
                "prices (--prices READ WRITTEN, in dollars per million tokens)."
            )
        return [*replies, *[Reply("", error=BUDGET_SPENT)] * (len(prompts) - allowed)]

    def _sound(self, reply: Reply) -> Reply:
        """Return a reply, or an error where its counts would spoil every sum that they enter."""
        counts = (reply.num_tokens, reply.cost), (reply.spent_tokens, reply.cost)
        absurd = next(filter(None, (absurd_count(*count) for count in counts)), "")
        if not absurd:
            return reply
        why = reply.error or f"{self.name} says that its reply took {absurd}"
        return Reply("", error=why)
