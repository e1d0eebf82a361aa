"""The one loop that runs an agent in a vector environment; evaluation and training both use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from creditrl.agents.base import Agent
from creditrl.agents.conversation import Conversation
from creditrl.envs.prompt import PromptForm
from creditrl.envs.state import hash_state
from creditrl.envs.vector import TextVectorEnv
from creditrl.errors import ConfigError, EpisodeOverError, WorkerError
from creditrl.types import IntArray, Prompt, Reply, Snapshot, StateSource, Task, Trajectory, Turn

__all__ = ["continue_episodes", "run_episodes"]


@dataclass(slots=True)
class _Episode:
    """State of one copy's running episode."""

    turns: list[Turn] = field(default_factory=list)
    talk: Conversation = Conversation()
    error: str = ""
    """Why the agent gave no reply, which ends the episode."""


def run_episodes(
    venv: TextVectorEnv,
    agent: Agent,
    form: PromptForm,
    *,
    seed: int | Sequence[int] | None = None,
    tasks: Sequence[int | str | Task | None] | None = None,
    hash_states: StateSource | None = None,
    segments: bool = False,
    expert_actions: bool = False,
    retries: int = 0,
    policy_version: int = 0,
    label: str = "episode",
    on_turn: Callable[[int, int], None] | None = None,
    on_episode: Callable[[int, Trajectory], None] | None = None,
    states_needed: bool = True,
    on_record: Callable[[Turn], None] | None = None,
    keep_prompts: bool = False,
) -> list[Trajectory]:
    """Run one episode in every copy that has a task, and return them in the order of the copies.

    Args:
        venv: autoreset disabled.
        agent: answers the prompts of all copies that still play, in one call per turn.
        form: builds prompts and reads actions out of replies.
        seed: seeds the episodes (group g with seed + g, or one seed per group); None goes on from
            the environment's own RNG.
        tasks: one per group, None for one that does not play; None draws them.
        hash_states: record a hash of the state before each action, of this source.
        segments: record ``segment_key`` of each turn.
        expert_actions: record what the environment's expert would have done at each turn, and, of
            agents with tokens, the token ids by which they would have said so.
        retries: how often an episode that ended with an error (a dead worker, a failed judge, an
            agent that gave no reply) is played again from its start. Its error stays on the record
            when all tries fail.
        policy_version: stamped into the records.
        label: first part of trajectory ids.
        on_turn: called after each turn with (turn, copies still playing).
        on_episode: called with (copy, its episode) when an episode ends, while others play on; also
            for one that ends with an error, in each of its tries.
        states_needed: an environment without hashes is refused; else it has zeros in their place.
        on_record: called with every turn that is played.
        keep_prompts: keep what the agent was asked with each turn (``Turn.messages``).
    """
    options = None if tasks is None else {"task": list(tasks)}
    observation, info = venv.reset(seed=seed, options=options)
    start = venv.snapshot() if retries else []
    everyone = np.flatnonzero(venv.active)
    play = _Play(
        venv,
        agent,
        form,
        hash_states,
        segments,
        policy_version,
        label,
        on_turn,
        expert_actions,
        on_episode,
        states_needed,
        on_record,
        keep_prompts,
    )
    trajectories = play.run(everyone, observation, info)
    for _ in range(retries):
        at = np.array([k for k, t in enumerate(trajectories) if t.error], dtype=np.int64)
        if not len(at):
            break
        failed = everyone[at]
        observation, info = venv.restore(failed, [start[i] for i in failed.tolist()])
        again = play.run(failed, observation, info)
        for k, trajectory in zip(at.tolist(), again, strict=True):
            trajectories[k] = trajectory
    return trajectories


def continue_episodes(
    venv: TextVectorEnv,
    agent: Agent,
    form: PromptForm,
    snapshots: Sequence[Snapshot],
    talks: Sequence[Conversation],
    *,
    hash_states: StateSource | None = None,
    segments: bool = False,
    expert_actions: bool = False,
    policy_version: int = 0,
    label: str = "continuation",
) -> list[Trajectory]:
    """Play on from K saved states to the end, in the first K copies; returns what came after.

    Args:
        venv: autoreset disabled; at least K copies.
        agent: answers the prompts of all copies that still play, in one call per turn.
        form: builds prompts and reads actions out of replies.
        snapshots: of episodes under way; the same one may stand several times.
        talks: what agent and environment had said by then, one per snapshot.
        hash_states: see :func:`run_episodes`, as the arguments after it.
        segments: record ``segment_key`` of each turn.
        expert_actions: record what the environment's expert would have done at each turn.
        policy_version: stamped into the records.
        label: first part of trajectory ids.

    Raises:
        EpisodeOverError: a snapshot is of an episode that had ended.
    """
    for snapshot in snapshots:
        if snapshot.event[-1]:
            raise EpisodeOverError(
                f"A snapshot of {snapshot.task.id} at turn {snapshot.turn} is of an episode that "
                "had ended: expected one under way. Its outcome is known; leave it out."
            )
    if not venv.has_begun:
        venv.reset()
    index_K = np.arange(len(snapshots))
    observation, info = venv.restore(index_K, snapshots)
    play = _Play(
        venv,
        agent,
        form,
        hash_states,
        segments,
        policy_version,
        label,
        None,
        expert_actions,
    )
    return play.run(index_K, observation, info, talks)


@dataclass(slots=True)
class _Play:
    venv: TextVectorEnv
    agent: Agent
    form: PromptForm
    hash_states: StateSource | None
    segments: bool
    policy_version: int
    label: str
    on_turn: Callable[[int, int], None] | None
    expert_actions: bool = False
    on_episode: Callable[[int, Trajectory], None] | None = None
    states_needed: bool = True
    on_record: Callable[[Turn], None] | None = None
    keep_prompts: bool = False

    def run(
        self,
        index_K: IntArray,
        observation: Any,
        info: dict[str, Any],
        talks: Sequence[Conversation] | None = None,
    ) -> list[Trajectory]:
        venv = self.venv
        episodes = {i: _Episode() for i in index_K.tolist()}
        if talks is not None:
            for i, talk in zip(index_K.tolist(), talks, strict=True):
                episodes[i].talk = talk
        seeds = venv.episode_seeds
        terminated = np.zeros(venv.num_envs, dtype=np.bool_)
        truncated = np.zeros(venv.num_envs, dtype=np.bool_)
        actions = [""] * venv.num_envs
        playing = index_K
        turn = 0

        def done(index_K: IntArray) -> list[Trajectory]:
            return self._trajectories(
                index_K, episodes, observation, info, seeds, terminated, truncated
            )

        while len(playing):
            text, image = _parts(observation)
            prompts = [self._prompt(i, episodes[i], text, image, info) for i in playing.tolist()]
            replies = self.agent.act(prompts)
            if any(reply.error for reply in replies):
                asked = playing
                playing, prompts, replies = _answered(episodes, playing, prompts, replies)
                self._tell(asked[~np.isin(asked, playing)], done)
                if not len(playing):
                    break
            # Few replies differ where actions are short, so each is read once.
            parsed = {text: self.form.parse(text) for text in {reply.text for reply in replies}}
            for i, reply in zip(playing.tolist(), replies, strict=True):
                actions[i] = parsed[reply.text].action
            states = self._states(playing)
            experts = self._experts(playing)
            if len(playing) == venv.num_envs:
                step = venv.step(actions)
                at: IntArray = playing
            else:
                step = venv.step_some(playing, [actions[i] for i in playing.tolist()])
                at = np.arange(len(playing))
            new_observation, reward, ended, cut, new_info = step
            keys = venv.segment_keys(playing) if self.segments else [""] * len(playing)
            formats = [parsed[reply.text].valid_format for reply in replies]
            self._record(
                episodes,
                playing,
                text,
                prompts,
                replies,
                formats,
                states,
                experts,
                keys,
                at,
                reward,
                new_info,
            )
            terminated[playing], truncated[playing] = ended[at], cut[at]
            observation = _spread(observation, new_observation, playing, venv.num_envs)
            info = _spread_info(info, new_info, playing, venv.num_envs)
            turn += 1
            over = ended[at] | cut[at]
            self._tell(playing[over], done)
            playing = playing[~over]
            if self.on_turn is not None:
                self.on_turn(turn, len(playing))
        return done(index_K)

    def _tell(self, index_K: IntArray, done: Callable[[IntArray], list[Trajectory]]) -> None:
        if self.on_episode is not None and len(index_K):
            for i, trajectory in zip(index_K.tolist(), done(index_K), strict=True):
                self.on_episode(i, trajectory)

    def _prompt(
        self, i: int, episode: _Episode, text: Sequence[str], image: Any, info: dict[str, Any]
    ) -> Prompt:
        return episode.talk.prompt(
            self.form,
            self.agent,
            self.venv.env_class.env_id,
            text[i],
            info,
            row=i,
            copy=i,
            # A copy: the array is written on while turns keep their picture.
            image=None if image is None else image[i].copy(),
        )

    def _states(self, playing: IntArray) -> list[int]:
        if self.hash_states is None:
            return [0] * len(playing)
        try:
            return [hash_state(key) for key in self.venv.state_keys(self.hash_states, playing)]
        except NotImplementedError as error:
            if not self.states_needed:
                self.hash_states = None
                return [0] * len(playing)
            raise ConfigError(
                f"{self.venv.env_class.env_id} has no state keys of source {self.hash_states!r} "
                f"({error}), and a hash of the state is asked for at every turn. Compare by the "
                'observation instead (source "text"; in a recipe, --method.anchor text), which is '
                "what creditrl.wrappers.StateHash does then, or implement Engine.state_keys."
            ) from error
        except WorkerError:
            # A worker is found dead here. Its copies end with their next step; the others play on.
            return [self._state_or_zero(i) for i in playing.tolist()]

    def _experts(self, playing: IntArray) -> list[tuple[str, tuple[int, ...]]]:
        """Return (action, token ids of the reply that says it) of the expert in each copy."""
        if not self.expert_actions:
            return [("", ())] * len(playing)
        chat = getattr(self.agent, "chat_format", None)
        most: int = getattr(self.agent, "max_new_tokens", 0)
        known: dict[str | None, tuple[str, tuple[int, ...]]] = {None: ("", ())}
        found = []
        for action in self.venv.expert_actions(playing):
            if action is not None and action not in known:
                ids = () if chat is None else chat.reply_ids(self.form.reply(action), most)
                known[action] = (action, ids)
            found.append(known[action])
        return found

    def _state_or_zero(self, i: int) -> int:
        assert self.hash_states is not None, "asked for a hash"
        try:
            return hash_state(self.venv.state_keys(self.hash_states, [i])[0])
        except WorkerError:
            return 0

    def _record(
        self,
        episodes: dict[int, _Episode],
        playing: IntArray,
        text: Sequence[str],
        prompts: Sequence[Prompt],
        replies: Sequence[Reply],
        formats: Sequence[bool],
        states: Sequence[int],
        experts: Sequence[tuple[str, tuple[int, ...]]],
        keys: Sequence[str],
        at: IntArray,
        reward: Any,
        info: dict[str, Any],
    ) -> None:
        columns = zip(
            playing.tolist(),
            prompts,
            replies,
            formats,
            states,
            experts,
            keys,
            info["action"][at].tolist(),
            reward[at].tolist(),
            info["grounded"][at].tolist(),
            info["ungrounded_reason"][at].tolist(),
            info["score"][at].tolist(),
            strict=True,
        )
        for (
            i,
            prompt,
            reply,
            valid,
            state,
            (expert, expert_ids),
            key,
            action,
            gained,
            grounded,
            reason,
            score,
        ) in columns:
            episode = episodes[i]
            episode.turns.append(
                Turn(
                    observation=text[i],
                    reply=reply.text,
                    action=action,
                    reward=gained,
                    grounded=grounded,
                    ungrounded_reason=reason,
                    state=state,
                    prompt_ids=reply.prompt_ids,
                    reply_ids=reply.token_ids,
                    logprobs=reply.logprobs,
                    score=score,
                    segment=key,
                    valid_format=valid,
                    expert=expert,
                    expert_ids=expert_ids,
                    image=reply.image,
                    plain_ids=reply.plain_ids,
                    options=reply.options,
                    messages=prompt.messages[len(episode.talk.said) :] if self.keep_prompts else (),
                    tokens=reply.num_tokens,
                    cost=reply.cost,
                )
            )
            episode.talk = episode.talk.after(self.form, text[i], action, reply, prompt)
            if self.on_record is not None:
                self.on_record(episode.turns[-1])

    def _trajectories(
        self,
        index_K: IntArray,
        episodes: dict[int, _Episode],
        observation: Any,
        info: dict[str, Any],
        seeds: IntArray,
        terminated: Any,
        truncated: Any,
    ) -> list[Trajectory]:
        venv = self.venv
        tasks = venv.current_tasks()
        text, _ = _parts(observation)
        size = venv.group_size
        return [
            Trajectory(
                id=f"{self.label}/{i}",
                env_id=venv.env_class.env_id,
                task=tasks[i],
                group=i // size,
                member=i % size,
                seed=int(seeds[i]),
                turns=tuple(episodes[i].turns),
                success=bool(info["success"][i]),
                score=float(info["score"][i]),
                terminated=bool(terminated[i]),
                truncated=bool(truncated[i]),
                final_observation=text[i],
                error=episodes[i].error or str(info["error"][i]),
                policy_version=self.policy_version,
            )
            for i in index_K.tolist()
        ]


def _answered(
    episodes: dict[int, _Episode],
    playing: IntArray,
    prompts: Sequence[Prompt],
    replies: Sequence[Reply],
) -> tuple[IntArray, list[Prompt], list[Reply]]:
    """Return the copies, prompts and replies that go on; the others' episodes have an error."""
    for i, reply in zip(playing.tolist(), replies, strict=True):
        episodes[i].error = reply.error
    kept = [k for k, reply in enumerate(replies) if not reply.error]
    return playing[kept], [prompts[k] for k in kept], [replies[k] for k in kept]


def _parts(observation: Any) -> tuple[Sequence[str], Any]:
    """Split a batched observation into texts and images (None where there are none)."""
    if isinstance(observation, tuple):
        return observation, None
    if isinstance(observation, dict):
        return observation["text"], observation["image"]
    return [""] * len(observation), observation


def _spread(old: Any, new: Any, playing: IntArray, n: int) -> Any:
    """Put the new observations of some copies among the old ones of all."""
    if len(playing) == n:
        return new
    if isinstance(old, tuple):
        texts = list(old)
        for i, text in zip(playing.tolist(), new, strict=True):
            texts[i] = text
        return tuple(texts)
    if isinstance(old, dict):
        return {key: _spread(old[key], new[key], playing, n) for key in old}
    old[playing] = new
    return old


def _spread_info(
    old: dict[str, Any], new: dict[str, Any], playing: IntArray, n: int
) -> dict[str, Any]:
    if len(playing) == n:
        return new
    for key, column in new.items():
        old[key][playing] = column
    return old
