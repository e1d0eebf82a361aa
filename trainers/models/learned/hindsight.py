"""HISR's hindsight model: restore a masked turn from all other turns and the outcome.

Source: HISR, arXiv 2603.18683. Continued training of the policy on a cloze over finished
trajectories; turns that it finds more likely than the policy did mattered for the outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import numpy as np

from creditrl.agents.prompts.chat_format import ChatFormat, token_ids
from creditrl.agents.prompts.cloze import cloze
from creditrl.envs.prompt import Ask
from creditrl.envs.words import words_for
from creditrl.settings.checked import Bounds, Checked, Count
from creditrl.trainers.batch import RowBatch, build_rows
from creditrl.trainers.models.configs import BackboneConfig
from creditrl.trainers.models.learned.backbone import Backbone, NetworkModel
from creditrl.trainers.models.learned.base import Batch
from creditrl.trainers.models.learned.turn_scorer import Outcome, split_by_task
from creditrl.trainers.models.policy import Policy
from creditrl.types import Credit, FloatArray, Trajectory, Turn

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class HindsightConfig(Checked):
    """A model that restores a masked turn from everything else and the outcome."""

    backbone: BackboneConfig = field(default_factory=lambda: BackboneConfig(lr=1e-6))
    """Its network, initialised from the policy (HISR: lr 1e-6)."""
    epochs: Count = 1
    """Passes over the explored turns."""
    batch: Count = 192
    """Turns per optimizer step (HISR: household tasks 192, WebShop 24)."""
    bare: bool = False
    """For small models that know no English: no sentences, and no observations, of which they may
    know no word, but the policy's own prompts and replies: those of the later turns, the outcome,
    those of the earlier turns, and last the prompt of the masked one, which such a model continues
    as usual."""
    reach: int | None = None
    """Number of turns before and after the masked one to show; None: all."""
    online: bool = False
    """Continue learning while the policy trains, which the paper suggests."""
    held_out: Annotated[float, Bounds(0, 1, open_high=True)] = 0.1
    """Share of the explored tasks that is held out to evaluate the model, in [0, 1)."""


class HindsightModel(NetworkModel):
    """Adds ``hindsight_M``, the log-probability of each reply token in hindsight.

    Args:
        policy: its initial network.
        config: see :class:`HindsightConfig`.
        outcome: the outcome shown to the model: 1 on success, or the environment's score.
        temperature: of the sampler; probabilities are at this temperature.
        seed: of adapters and of the order of turns.
    """

    name = "hindsight"

    def __init__(
        self,
        policy: Policy,
        config: HindsightConfig,
        *,
        outcome: Outcome = "success",
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.config = config
        self.outcome = outcome
        self.temperature = temperature
        self.seed = seed
        self.backbone = Backbone(policy, config.backbone, self.name, seed=seed)
        self._tokenizer = policy.tokenizer
        self._format = ChatFormat(policy.tokenizer)
        self._limit = policy.context

    def pretrain(
        self, policy: Policy, trajectories: Sequence[Trajectory], show: Callable[..., None]
    ) -> dict[str, float]:
        """Learn to restore turns of explored episodes.

        Returns:
            ``loss`` (per token), and on held-out episodes ``nll`` in hindsight and ``policy_nll``,
            the policy's own on the same turns, which the model must beat.
        """
        learn, held = split_by_task(trajectories, self.config.held_out, self.seed)
        metrics = self._learn(learn, show)
        if held:
            rows = build_rows(held)
            metrics["nll"] = -float(self.logprobs(held).mean())
            metrics["policy_nll"] = -float(policy.score(rows, temperature=self.temperature).mean())
        return metrics

    def score(self, batch: Batch) -> Batch:
        """Return the batch with the log-probabilities in hindsight."""
        found_M = self.logprobs(batch.trajectories)
        return replace(batch, tokens=batch.tokens.with_scores(hindsight_M=found_M))

    def fit(self, batch: Batch, credit: Credit) -> dict[str, float]:
        """Continue learning, if the config says so."""
        return self._learn(batch.trajectories, None) if self.config.online else {}

    def logprobs(self, trajectories: Sequence[Trajectory]) -> FloatArray:
        """Return the log-probability of each reply token in hindsight, float32 [M]."""
        rows = build_rows(self._lost(trajectories), "window")
        return self.backbone.score(rows, self.temperature)

    def _learn(
        self, trajectories: Sequence[Trajectory], show: Callable[..., None] | None
    ) -> dict[str, float]:
        begin = time.perf_counter()
        lost = self._lost(trajectories)
        rows = build_rows(lost, "window")
        losses: list[float] = []
        for chosen in self.parts(len(lost), self.config.epochs, self.config.batch):
            part = rows.select_episodes(np.sort(chosen))
            if not part.num_tokens:
                continue
            work = partial(self._part, part.num_tokens)
            losses.append(self.backbone.step(self.backbone.rows(part), work)["loss"])
            if show is not None and len(losses) % 10 == 0:
                show(len(losses), time.perf_counter() - begin, loss=losses[-1])
        return {"loss": float(np.mean(losses))} if losses else {}

    def _part(self, tokens: int, rows: RowBatch) -> torch.Tensor:
        """Return a micro-batch's part of the mean over all ``tokens``."""
        with self.backbone.on() as network:
            scores = network.reply_logprobs(rows, temperature=self.temperature)
        return -scores.logprob_M.sum() / tokens

    def _lost(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """Return an episode of one turn per turn: the cloze, and the reply to restore."""
        places = [(t, place) for t in trajectories for place in range(len(t.turns))]
        if self.config.bare:
            ids = [self._continued(*place) for place in places]
        else:
            ids = token_ids(self._tokenizer, [self._text(*place) for place in places])
        lost = []
        for number, ((t, place), prompt) in enumerate(zip(places, ids, strict=True)):
            masked = t.turns[place]
            # The start of a cloze is cut where it does not fit into the model's context.
            prompt = prompt[-max(1, self._limit - len(masked.reply_ids)) :]
            turn = Turn(
                *("", "", "", 0.0),
                prompt_ids=tuple(prompt),
                reply_ids=masked.reply_ids,
                # The policy's probabilities, with which its own are compared, are among these.
                options=masked.options,
            )
            lost.append(replace(trajectories[0], id=f"lost-{number}", turns=(turn,), error=""))
        return lost

    def _text(self, trajectory: Trajectory, place: int) -> str:
        messages = cloze(
            [(turn.observation, turn.reply) for turn in trajectory.turns],
            place,
            self._outcome(trajectory),
            words_for(Ask(observation="", env_id=trajectory.env_id)),
            final=trajectory.final_observation,
            reach=self.config.reach,
        )
        return self._format.first(messages)

    def _continued(self, trajectory: Trajectory, place: int) -> list[int]:
        """Return the bare form: what the policy read and wrote around a turn, and its prompt."""
        turns = trajectory.turns
        reach = len(turns) if self.config.reach is None else self.config.reach
        after = [_read(turn) for turn in turns[place + 1 : place + 1 + reach]]
        before = [_read(turn) for turn in turns[max(0, place - reach) : place]]
        sign = self._sign(self._outcome(trajectory))
        return [*chain(*after), *sign, *chain(*before), *_prompt(turns[place])]

    def _outcome(self, trajectory: Trajectory) -> float:
        return trajectory.score if self.outcome == "score" else float(trajectory.success)

    def _sign(self, outcome: float) -> list[int]:
        """Return the outcome as a number, or, where the tokenizer lacks digits, a sign.

        Every tokenizer has the two signs, one for each half of outcomes.
        """
        tokenizer = self._tokenizer
        digits: list[int] = tokenizer(f"{outcome:.1f}", add_special_tokens=False)["input_ids"]
        if tokenizer.unk_token_id not in digits:
            return digits
        return [tokenizer.bos_token_id if outcome > 0.5 else tokenizer.unk_token_id]


def _prompt(turn: Turn) -> tuple[int, ...]:
    """Return a turn's prompt in words."""
    return turn.plain_ids or turn.prompt_ids


def _read(turn: Turn) -> tuple[int, ...]:
    return (*_prompt(turn), *turn.reply_ids)
