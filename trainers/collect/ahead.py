"""Collect the next update's episodes while the policy is optimised: one step asynchronous.

Update u + 1 learns from episodes of the policy as update u found it, so everything but the first
update is one update off-policy. The trainer asks the moved model for the old log-probabilities and
clips ratios to these, and weighs every token by how much more probable it has become than it was
for what sampled it (:mod:`creditrl.trainers.losses.importance`).

Sources: Noukhovitch et al. 2025, "Asynchronous RLHF" (one-step off-policy); Hilton et al. 2022,
"Batch size-invariance for policy optimization" (the two policies of the ratio).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from creditrl.trainers.collect.base import Collected, Collector
from creditrl.trainers.collect.watched import WatchedAgent
from creditrl.trainers.stopwatch import Stopwatch

__all__ = ["AheadCollector", "HeldWeights"]


class HeldWeights(Protocol):
    """Weights of their own that an agent samples with, while the policy's move."""

    def take(self) -> None:
        """Take over the policy's weights as they stand; nothing is being sampled."""
        ...

    def sampling(self) -> AbstractContextManager[object]:
        """Prepare the thread that samples."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the weights that were taken last."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold these weights; the policy stays as it is."""
        ...


class AheadCollector(Collector):
    """Lets another collector run one update ahead, in a thread of its own.

    Equal seeds give equal trajectories, however fast either thread is: the weights are handed over
    between two collections, and the collector's state is the thread's alone.

    A checkpoint holds the weights that sample and the collector as it was before it began with
    what is under way; a resumed run collects that again.

    Args:
        collector: collects with ``agent``; nobody else uses it or its environments.
        agent: samples with the held weights.
        held: the weights.
        watch: of the thread that learns.
        last: whether an update of that number will not be learned from; nothing is collected for
            it beforehand.
    """

    def __init__(
        self,
        collector: Collector,
        agent: WatchedAgent,
        held: HeldWeights,
        *,
        watch: Stopwatch,
        last: Callable[[int], bool] = lambda update: False,
    ) -> None:
        self.collector = collector
        self.agent = agent
        self.held = held
        self.watch = watch
        self.last = last
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="collect-ahead", initializer=_count_threads
        )
        self._found: Future[Collected] | None = None
        self._next: int | None = None  # update that the held weights collect for
        self._version = 0  # updates that the held weights have seen
        self._before: dict[str, Any] = {}  # the collector's state before it began with that

    def collect(self, update: int) -> Collected:
        """Return the episodes of that update, and begin with those of the next one.

        An error of the thread is raised here.
        """
        if self._next != update:
            self._hold(update, version=update)
        found = self._found or self._begin()
        with self.watch.part("waiting"):
            collected = found.result()
        version, self._found = self._version, None
        self._hold(update + 1, version=update)
        if not self.last(update + 1):
            self._found = self._begin()
        trajectories = [
            # Those that were carried over began with older weights.
            replace(t, policy_version=max(0, version - (update - t.policy_version)))
            for t in collected.trajectories
        ]
        return replace(collected, trajectories=trajectories)

    def settle(self) -> None:
        """Wait until nothing is under way; what was found, errors included, comes with collect."""
        if self._found is not None:
            with self.watch.part("waiting"):
                self._found.exception()

    def close(self) -> None:
        """Drop what is under way, at its next turn."""
        self.agent.stop()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._found = None
        self.collector.close()

    def state_dict(self) -> dict[str, Any]:
        """Return what it takes to collect again what is under way."""
        begun = self._next is not None
        return {
            "next": self._next,
            "version": self._version,
            "collector": self._before if begun else self.collector.state_dict(),
            "weights": self.held.state_dict() if begun else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` returned."""
        self.settle()
        self._found = None
        self._next, self._version = state["next"], int(state["version"])
        self._before = state["collector"]
        self.collector.load_state_dict(copy.deepcopy(self._before))
        if state["weights"] is not None:
            self.held.load_state_dict(state["weights"])

    def _hold(self, update: int, *, version: int) -> None:
        with self.watch.part("sync"):
            self.held.take()
            self._before = copy.deepcopy(self.collector.state_dict())
        self._next, self._version = update, version

    def _begin(self) -> Future[Collected]:
        assert self._next is not None, "weights are held for an update"
        return self._thread.submit(self._work, self._next)

    def _work(self, update: int) -> Collected:
        watch = self.agent.watch
        with self.held.sampling(), watch.part("environment"):
            collected = self.collector.collect(update)
        return replace(collected, beside=watch.take())


def _count_threads() -> None:
    """Let this thread's operators divide their work as the main thread's do.

    OpenMP counts for every thread of its own, and torch tells a new one late: vLLM's attention on a
    CPU would be planned for all cores and computed by fewer.
    """
    import torch

    torch.set_num_threads(torch.get_num_threads())
