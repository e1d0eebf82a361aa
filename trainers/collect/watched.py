"""The policy's agent, with an eye on the time that its replies take."""

from __future__ import annotations

import threading
from collections.abc import Sequence
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
        self._stop = threading.Event()

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Return one reply per prompt, in their order.

        Raises:
            Stopped: somebody called :meth:`stop`.
        """
        self.check_goes_on()
        with self.watch.part("generation"):
            return self.agent.act(prompts)

    def reply_queue(self) -> ReplyQueue | None:
        """Return the agent's queue, watched as :meth:`act` is; None: it has none."""
        made = queue_of(self.agent)
        return None if made is None else _WatchedQueue(self, made)

    def check_goes_on(self) -> None:
        """Raise where somebody called :meth:`stop`."""
        if self._stop.is_set():
            raise Stopped("The run ends: its agent gives no more replies.")

    def reseed(self, seed: int) -> None:
        """Start the sampler anew."""
        self.agent.reseed(seed)

    def stop(self) -> None:
        """Answer no more, so that another thread's collection ends."""
        self._stop.set()

    def __getattr__(self, name: str) -> Any:
        # Prompts are built with what the agent knows: chat format, length of replies, ...
        return getattr(self.agent, name)


class _WatchedQueue:
    """A queue whose waits count as the part "generation"."""

    def __init__(self, agent: WatchedAgent, inner: ReplyQueue) -> None:
        self._agent = agent
        self._inner = inner

    def ask(self, prompts: Sequence[Prompt]) -> None:
        """Begin to answer these prompts."""
        with self._agent.watch.part("generation"):
            self._inner.ask(prompts)

    def replies(self) -> list[tuple[Prompt, Reply]]:
        """Wait until a reply is there or :meth:`wake` was called; return all that are there.

        Raises:
            Stopped: somebody called :meth:`WatchedAgent.stop`.
        """
        self._agent.check_goes_on()
        with self._agent.watch.part("generation"):
            return self._inner.replies()

    def wake(self) -> None:
        """Have :meth:`replies` return, from any thread."""
        self._inner.wake()

    def close(self) -> None:
        """Drop what is under way."""
        self._inner.close()
