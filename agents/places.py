"""Places of episodes before each of their turns, so that others may go on from there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from creditrl.agents.base import Agent
from creditrl.agents.conversation import Conversation
from creditrl.envs.prompt import PromptForm
from creditrl.envs.vector import TextVectorEnv
from creditrl.types import Prompt, Reply, Snapshot, Trajectory

__all__ = ["Place", "PlaceKeeper"]


@dataclass(frozen=True, slots=True)
class Place:
    """State of an episode before a turn, or at its end."""

    snapshot: Snapshot
    talk: Conversation
    """Conversation up to this point."""


class PlaceKeeper:
    """Answers as another agent does, and keeps where each copy stood when it was asked.

    Args:
        venv: whose copies ask; its engine can be saved.
        agent: answers.
    """

    def __init__(self, venv: TextVectorEnv, agent: Agent) -> None:
        self.agent = agent
        self.name = agent.name
        self._venv = venv
        self._seen: list[list[tuple[Snapshot, Prompt, Reply]]] = [[] for _ in range(venv.num_envs)]

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Return one reply per prompt, in their order."""
        snapshots = self._venv.snapshot([prompt.copy for prompt in prompts])
        replies = self.agent.act(prompts)
        for snapshot, prompt, reply in zip(snapshots, prompts, replies, strict=True):
            if prompt.turn == 0:  # a new episode, or a failed one again from its start
                self._seen[prompt.copy] = []
            self._seen[prompt.copy].append((snapshot, prompt, reply))
        return replies

    def forget(self, copies: Iterable[int]) -> None:
        """Drop what some copies played; episodes that go on elsewhere than at their start begin."""
        for copy in copies:
            self._seen[copy] = []

    def places(
        self,
        copy: int,
        form: PromptForm,
        trajectory: Trajectory,
        talk: Conversation | None = None,
        final: Snapshot | None = None,
    ) -> list[Place]:
        """Return the places of what a copy played; what was said is put together as it was.

        Args:
            copy: number of the copy.
            form: builds the prompts.
            trajectory: what it played, T turns.
            talk: what had been said before its first turn; None: nothing.
            final: where it ended, for a place more; None: T places.
        """
        talk = talk or Conversation()
        found = []
        for (snapshot, prompt, reply), turn in zip(self._seen[copy], trajectory.turns, strict=True):
            found.append(Place(snapshot, talk))
            talk = talk.after(form, turn.observation, turn.action, reply, prompt)
        return found if final is None else [*found, Place(final, talk)]

    def __getattr__(self, name: str) -> Any:
        # Prompts are built with what the agent knows: chat format, length of replies, ...
        return getattr(self.agent, name)
