"""The policy's agent, watched: what time its replies take, and between which its weights change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from creditrl.agents.reply_queue import ReplyQueue, queue_of
from creditrl.errors import CreditRLError
from creditrl.trainers.collect.base import SampledAgent
from creditrl.trainers.stopwatch import Stopwatch
from creditrl.types import Prompt, Reply

__all__ = ["Stopped", "WatchedAgent"]


class Stopped(CreditRLError, RuntimeError):
    """A collection was dropped."""


class WatchedAgent:
    """Answers as another agent does, and counts its time as the part "generation".

    Args:
        agent: answers.
        watch: of the thread that asks.
    """

    def __init__(self, agent: SampledAgent, watch: Stopwatch) -> None:
        self.agent = agent
        self.watch = watch
        self.name = agent.name
        self.version: Callable[[], int] | None = None
        """Returns the updates that its weights have seen, for every reply; None: for none."""
        self._changed = threading.Condition()
        self._stopped = False
        self._holding = False  # whether another thread waits for, or uses, a moment without replies
        self._under_way = 0

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Return one reply per prompt, in their order.

        Raises:
            Stopped: somebody called :meth:`stop`.
        """
        self.begin(len(prompts))
        try:
            with self.watch.part("generation"):
                return [self.stamped(reply) for reply in self.agent.act(prompts)]
        finally:
            self.end(len(prompts))

    def reply_queue(self) -> ReplyQueue | None:
        """Return the agent's queue, watched as :meth:`act` is; None: it has none."""
        made = queue_of(self.agent)
        return None if made is None else _WatchedQueue(self, made)

    @contextmanager
    def between_replies(self) -> Iterator[None]:
        """Hold back what another thread asks, once the replies under way are there.

        Its episodes go on afterwards, with the weights that the agent then has.
        """
        with self._changed:
            self._holding = True
            self._changed.wait_for(lambda: not self._under_way)
        try:
            yield
        finally:
            with self._changed:
                self._holding = False
                self._changed.notify_all()

    def begin(self, replies: int, *, wait: bool = True) -> bool:
        """Count ``replies`` as under way, when none are held back.

        Args:
            replies: to be asked for.
            wait: for the end of :meth:`between_replies`; False: return False then.

        Raises:
            Stopped: somebody called :meth:`stop`.
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._stopped or not self._holding)
            if self._stopped:
                raise Stopped("The run ends: its agent gives no more replies.")
            if self._holding:
                return False
            self._under_way += replies
        return True

    def end(self, replies: int) -> None:
        """Count ``replies`` as done."""
        with self._changed:
            self._under_way -= replies
            self._changed.notify_all()

    def stamped(self, reply: Reply) -> Reply:
        """Return a reply with the version of the weights that it is of."""
        return reply if self.version is None else replace(reply, weights_version=self.version())

    def reseed(self, seed: int) -> None:
        """Start the sampler anew."""
        self.agent.reseed(seed)

    def stop(self) -> None:
        """Answer no more, so that another thread's collection ends."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def __getattr__(self, name: str) -> Any:
        # Prompts are built with what the agent knows: chat format, length of replies, ...
        return getattr(self.agent, name)


class _WatchedQueue:
    """A queue whose waits count as the part "generation"."""

    def __init__(self, agent: WatchedAgent, inner: ReplyQueue) -> None:
        self._agent = agent
        self._inner = inner
        self._under_way = 0
        self._held_back: list[Prompt] = []

    def ask(self, prompts: Sequence[Prompt]) -> None:
        """Begin to answer these prompts, or hold them back until :meth:`replies`."""
        self._held_back += prompts
        self._ask(wait=False)

    def replies(self) -> list[tuple[Prompt, Reply]]:
        """Wait until a reply is there or :meth:`wake` was called; return all that are there.

        Raises:
            Stopped: somebody called :meth:`WatchedAgent.stop`.
        """
        # Nothing else would be waited for: what is under way has to come in before weights change.
        self._ask(wait=not self._under_way)
        with self._agent.watch.part("generation"):
            found = self._inner.replies()
        self._under_way -= len(found)
        answered = [(prompt, self._agent.stamped(reply)) for prompt, reply in found]
        self._agent.end(len(found))
        return answered

    def wake(self) -> None:
        """Have :meth:`replies` return, from any thread."""
        self._inner.wake()

    def close(self) -> None:
        """Drop what is under way."""
        self._inner.close()
        self._agent.end(self._under_way)
        self._under_way, self._held_back = 0, []

    def _ask(self, *, wait: bool) -> None:
        prompts = self._held_back
        if not self._agent.begin(len(prompts), wait=wait):
            return
        self._held_back = []
        self._under_way += len(prompts)
        if prompts:
            with self._agent.watch.part("generation"):
                self._inner.ask(prompts)
