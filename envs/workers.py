"""Copies sharded over processes: same interface as :class:`creditrl.envs.base.Copies`.

One process holds many copies and makes one engine call per step for all of them. A worker that dies is
reported with its copies and tasks, and restarted; its copies end that step truncated, with the reason in
``info["error"]``, and the other workers' copies go on.
"""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
import traceback
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from creditrl.envs.base import Copies, Frame, TextEnv, object_column
from creditrl.errors import ConfigError, CreditRLError, WorkerError
from creditrl.types import IntArray, Snapshot, StateSource, Task

__all__ = ["WorkerPool"]


class WorkerPool:
    """``num_envs`` copies over ``workers`` processes.

    Args:
        env_class: environment whose engine each worker builds for its share.
        config: the environment's config.
        max_turns: turn limit.
        num_envs: copies in all.
        workers: processes; copies are dealt in consecutive blocks.
        context: start method; None takes fork where the system has it.
    """

    def __init__(
        self,
        env_class: type[TextEnv[Any]],
        config: Any,
        max_turns: int,
        num_envs: int,
        workers: int,
        context: str | None = None,
    ) -> None:
        methods = mp.get_all_start_methods()
        if context is None:
            context = "fork" if "fork" in methods else "spawn"
        if context not in methods:
            raise ConfigError(f"worker_context={context!r}: this system has {', '.join(methods)}.")
        self._ctx: Any = mp.get_context(context)
        self._spec = (env_class, config, max_turns)
        blocks = np.array_split(np.arange(num_envs), workers)
        self._blocks = [(int(block[0]), int(block[-1]) + 1) for block in blocks]
        self._owner = np.repeat(np.arange(workers), [len(block) for block in blocks])
        self.tasks: list[Any] = [None] * num_envs
        self._last: Frame | None = None
        self._workers: list[tuple[Any, Connection]] = []
        # The list is shared with the finalizer, so restarted workers are ended as well.
        self._finalizer = weakref.finalize(self, _end_all, self._workers)
        for block in self._blocks:
            self._workers.append(self._start(block[1] - block[0]))

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, for monitors and tests."""
        return [process.pid for process, _ in self._workers]

    def begin(self, index_K: IntArray, tasks: Sequence[Task], seed_K: Sequence[int]) -> Frame:
        """Start an episode in each copy; a worker that dies here is restarted and asked once more."""
        for i, task in zip(index_K.tolist(), tasks, strict=True):
            self.tasks[i] = task

        def arguments(at: IntArray) -> tuple[Any, ...]:
            return ([tasks[k] for k in at.tolist()], [seed_K[k] for k in at.tolist()])

        answers, dead = self._ask("begin", index_K, arguments)
        if dead:
            again = np.concatenate([at for at, _ in dead])
            more, still_dead = self._ask("begin", index_K[again], lambda at: arguments(again[at]))
            if still_dead:
                raise WorkerError(still_dead[0][1] + " It died twice while beginning episodes.")
            answers += [(again[at], frame) for at, frame in more]
        return self._remember(index_K, _join(answers, len(index_K)))

    def step(self, index_K: IntArray, actions: Sequence[str]) -> Frame:
        """Do one action in each copy; copies of a dead worker end truncated, with ``error`` set."""
        answers, dead = self._ask("step", index_K, lambda at: ([actions[k] for k in at.tolist()],))
        for at, message in dead:
            answers.append((at, self._casualties(index_K[at], message)))
        return self._remember(index_K, _join(answers, len(index_K)))

    def snapshot(self, index_K: IntArray) -> list[Snapshot]:
        """Return each copy's state."""
        return self._collect("snapshot", index_K)

    def restore(self, index_K: IntArray, snapshots: Sequence[Snapshot]) -> Frame:
        """Put snapshots into copies and return how they look."""
        answers, dead = self._ask(
            "restore", index_K, lambda at: ([snapshots[k] for k in at.tolist()],)
        )
        if dead:
            raise WorkerError(dead[0][1])
        for i, snap in zip(index_K.tolist(), snapshots, strict=True):
            self.tasks[i] = snap.task
        return self._remember(index_K, _join(answers, len(index_K)))

    def state_keys(self, index_K: IntArray, source: StateSource) -> list[bytes]:
        """Return canonical bytes of each copy's state."""
        return self._collect("state_keys", index_K, source)

    def expert_actions(self, index_K: IntArray) -> list[str | None]:
        """Return an expert's next action per copy."""
        return self._collect("expert_actions", index_K)

    def segment_keys(self, index_K: IntArray) -> list[str]:
        """Name the sub-goal of each copy's last action."""
        return self._collect("segment_keys", index_K)

    def render(self, index: int, mode: str) -> Any:
        """Draw one copy."""
        return self._collect("render", np.array([index]), mode)[0]

    def close(self) -> None:
        """End the workers; may be called twice."""
        self._finalizer()

    # -- inside ---------------------------------------------------------------------------------

    def _start(self, size: int) -> tuple[Any, Connection]:
        ours, theirs = self._ctx.Pipe()
        process = self._ctx.Process(
            target=_serve, args=(theirs, *self._spec, size), daemon=True, name="creditrl-worker"
        )
        process.start()
        theirs.close()
        return process, ours

    def _ask(
        self,
        method: str,
        index_K: IntArray,
        arguments: Callable[[IntArray], tuple[Any, ...]],
    ) -> tuple[list[tuple[IntArray, Any]], list[tuple[IntArray, str]]]:
        """Send a call to the owners of ``index_K``; return (positions, answer)s and the casualties."""
        owner_K = self._owner[index_K]
        asked: list[tuple[int, IntArray]] = []
        dead: list[tuple[IntArray, str]] = []
        for worker in np.unique(owner_K).tolist():
            at = np.flatnonzero(owner_K == worker)
            local = index_K[at] - self._blocks[worker][0]
            try:
                self._workers[worker][1].send((method, local, arguments(at)))
                asked.append((worker, at))
            except (BrokenPipeError, ConnectionResetError):
                dead.append((at, self._bury(worker)))
        answers: list[tuple[IntArray, Any]] = []
        failure: CreditRLError | None = None
        for worker, at in asked:
            process, connection = self._workers[worker]
            try:
                wait([connection, process.sentinel])
                # An answer may be in the pipe although the process has ended since.
                if not connection.poll():
                    raise EOFError
                ok, answer = connection.recv()
            except (EOFError, ConnectionResetError):
                dead.append((at, self._bury(worker)))
                continue
            if ok:
                answers.append((at, answer))
            else:
                # Read the other answers first, so that no stale one waits in a pipe.
                failure = failure or answer
        if failure is not None:
            raise failure
        return answers, dead

    def _collect(self, method: str, index_K: IntArray, *extra: Any) -> list[Any]:
        answers, dead = self._ask(method, index_K, lambda at: extra)
        if dead:
            raise WorkerError(dead[0][1])
        result: list[Any] = [None] * len(index_K)
        for at, values in answers:
            for k, value in zip(at.tolist(), values, strict=True):
                result[k] = value
        return result

    def _bury(self, worker: int) -> str:
        """Restart a dead worker; return one line that says which copies and tasks were lost."""
        process, connection = self._workers[worker]
        process.join(timeout=5)
        connection.close()
        first, stop = self._blocks[worker]
        tasks = sorted({task.id for task in self.tasks[first:stop] if task is not None})
        shown = ", ".join(tasks[:4]) + (f" and {len(tasks) - 4} more" if len(tasks) > 4 else "")
        self._workers[worker] = self._start(stop - first)
        return (
            f"Worker {worker} died (exit code {process.exitcode}) with copies {first}-{stop - 1}, "
            f"tasks {shown or 'none'}; it was restarted. Reset these copies to go on."
        )

    def _casualties(self, index_K: IntArray, message: str) -> Frame:
        assert self._last is not None, "step() comes after begin()"
        k = len(index_K)
        last = self._last
        info = {key: column[index_K] for key, column in last.info.items()}
        info["error"] = object_column([message] * k)
        return Frame(
            text=[last.text[i] for i in index_K.tolist()],
            image=None if last.image is None else last.image[index_K],
            reward_K=np.zeros(k),
            terminated_K=np.zeros(k, dtype=np.bool_),
            truncated_K=np.ones(k, dtype=np.bool_),
            info=info,
        )

    def _remember(self, index_K: IntArray, frame: Frame) -> Frame:
        """Keep each copy's last look, which a casualty shows once more."""
        n = len(self.tasks)
        if self._last is None or len(index_K) == n:
            if len(index_K) == n:
                self._last = _join([(index_K, frame)], n)
            return frame
        for i, text in zip(index_K.tolist(), frame.text, strict=True):
            self._last.text[i] = text
        if frame.image is not None and self._last.image is not None:
            self._last.image[index_K] = frame.image
        for key, column in frame.info.items():
            self._last.info[key][index_K] = column
        return frame


def _join(answers: Sequence[tuple[IntArray, Frame]], k: int) -> Frame:
    """Return one frame of K copies from parts; (positions, frame) each."""
    first = answers[0][1]
    text = [""] * k
    image = None if first.image is None else np.empty((k, *first.image.shape[1:]), dtype=np.uint8)
    reward_K = np.zeros(k)
    terminated_K = np.zeros(k, dtype=np.bool_)
    truncated_K = np.zeros(k, dtype=np.bool_)
    info = {key: np.empty(k, dtype=column.dtype) for key, column in first.info.items()}
    for at, frame in answers:
        for position, line in zip(at.tolist(), frame.text, strict=True):
            text[position] = line
        if image is not None and frame.image is not None:
            image[at] = frame.image
        reward_K[at] = frame.reward_K
        terminated_K[at] = frame.terminated_K
        truncated_K[at] = frame.truncated_K
        for key, column in frame.info.items():
            info[key][at] = column
    return Frame(text, image, reward_K, terminated_K, truncated_K, info)


def _serve(
    connection: Connection, env_class: type[TextEnv[Any]], config: Any, max_turns: int, size: int
) -> None:
    """Run in a worker: answer calls until the pipe closes."""
    # Ctrl-C goes to the whole process group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    copies = Copies(env_class.build(config, size).engine, env_class.env_id, max_turns)
    while True:
        try:
            method, index_K, arguments = connection.recv()
        except (EOFError, OSError):
            break
        try:
            if method == "render":
                answer: Any = [copies.render(int(i), *arguments) for i in index_K]
            else:
                answer = getattr(copies, method)(index_K, *arguments)
            connection.send((True, answer))
        except CreditRLError as error:
            connection.send((False, error))
        except Exception as error:
            trace = traceback.format_exc()
            connection.send(
                (False, WorkerError(f"{type(error).__name__} in worker {os.getpid()}:\n{trace}"))
            )
    copies.close()


def _end_all(workers: list[tuple[Any, Connection]]) -> None:
    for _, connection in workers:
        with contextlib.suppress(OSError):
            connection.close()
    for process, _ in workers:
        process.join(timeout=1)
        if process.is_alive():
            process.terminate()
            process.join(timeout=5)
    workers.clear()
