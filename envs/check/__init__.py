"""The contract test that every environment must pass.

``check("CreditRL/VisualSokoban-v0")`` runs each rule of the environment and the vector contract and
returns a report; a failure names the rule and the finding. ``creditrl check ID`` prints it.
"""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym

from creditrl.envs.check.single import SINGLE_RULES
from creditrl.envs.check.subject import NotApplicable, Rule, Subject
from creditrl.envs.check.vector import VECTOR_RULES
from creditrl.envs.register import environment_id
from creditrl.errors import ConformanceError, UnknownNameError, did_you_mean

__all__ = ["RULES", "CheckReport", "Rule", "RuleResult", "check"]

RULES: tuple[Rule, ...] = (*SINGLE_RULES, *VECTOR_RULES)
"""All rules, in the order in which they run."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Outcome of one rule."""

    rule: str
    claim: str
    outcome: Literal["passed", "failed", "not applicable"]
    found: str
    """The finding; if the rule failed, what broke it."""
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Outcome of every rule."""

    env_id: str
    results: tuple[RuleResult, ...]

    @property
    def failures(self) -> tuple[RuleResult, ...]:
        """The rules that failed."""
        return tuple(result for result in self.results if result.outcome == "failed")

    @property
    def ok(self) -> bool:
        """Whether no rule failed."""
        return not self.failures

    def __str__(self) -> str:
        lines = [f"{self.env_id}: {len(self.results)} rules, {len(self.failures)} failed"]
        lines += [f"  {r.rule}: {r.found}" for r in self.failures]
        return "\n".join(lines)

    def raise_for_failures(self) -> None:
        """Raise :class:`ConformanceError` with every failure, if there is one."""
        if not self.ok:
            raise ConformanceError(str(self))


def check(
    env_id: str,
    *,
    rules: Sequence[str] | None = None,
    stack: Sequence[Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]] = (),
    on_result: Callable[[RuleResult], None] | None = None,
    **options: Any,
) -> CheckReport:
    """Test an environment against the contract.

    Args:
        env_id: a registered id.
        rules: names of the rules to run; None runs all of :data:`RULES`.
        stack: wrappers that the snapshot rule adds on top of Gymnasium's, innermost first.
        on_result: called after each rule, for progress displays.
        options: the environment's own keyword options.

    Raises:
        UnknownNameError: no environment or no rule of that name.

    Example:
        >>> import creditrl
        >>> check("CreditRL/VisualSokoban-v0", rules=["info_keys_and_types"]).ok
        True
    """
    subject = Subject(environment_id(env_id), options, tuple(stack))
    known = {rule.name: rule for rule in RULES}
    for name in rules or ():
        if name not in known:
            raise UnknownNameError(
                f"No rule named {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}."
            )
    # Unknown options and missing data are the caller's errors, not failures of the environment.
    subject.env().close()
    results = []
    for rule in RULES if rules is None else [known[name] for name in rules]:
        results.append(_run(rule, subject))
        if on_result is not None:
            on_result(results[-1])
    return CheckReport(subject.env_id, tuple(results))


def _run(rule: Rule, subject: Subject) -> RuleResult:
    start = time.perf_counter()
    outcome: Literal["passed", "failed", "not applicable"] = "passed"
    # Render mode "human" may print, but the caller asked only for the report.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = rule.run(subject)
        except NotApplicable as reason:
            outcome, found = "not applicable", str(reason)
        except ConformanceError as failure:
            outcome, found = "failed", str(failure)
        except Exception as error:
            # Any exception of an environment on a legal call is a finding, not an error of ours.
            outcome, found = "failed", f"raised {type(error).__name__}: {error}"
    return RuleResult(rule.name, rule.claim, outcome, found, time.perf_counter() - start)
