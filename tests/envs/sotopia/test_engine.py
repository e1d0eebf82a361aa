"""The engine: turn order, batched partner calls, endings, rewards and snapshots."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from creditrl.envs.base import Copies, Frame
from creditrl.envs.sotopia.action_text import action_text
from creditrl.envs.sotopia.casting import Seats
from creditrl.envs.sotopia.dialogue import PUBLISHED_RULES, Action, Rules, Transcript
from creditrl.envs.sotopia.engine import SotopiaEngine
from creditrl.envs.sotopia.meeting import Meeting
from creditrl.envs.sotopia.partners import (
    PartnerAsk,
    PartnerReply,
    ReplayPartner,
)
from creditrl.envs.sotopia.profiles import Combination
from creditrl.envs.sotopia.verdict import NoJudge, Verdict
from creditrl.errors import ConfigError, SnapshotError
from creditrl.types import Task


class Counting:
    """Gives one fixed reply, and records the number of asks in each call."""

    name = "counting"

    def __init__(self, text: str = "say: yes", deterministic: bool = True, **told: object) -> None:
        self.text = text
        self.deterministic = deterministic
        self.told = told
        self.calls: list[int] = []
        self.asks: list[PartnerAsk] = []

    def reply(self, asks: Sequence[PartnerAsk]) -> list[PartnerReply]:
        self.calls.append(len(asks))
        self.asks += asks
        count = 0 if "mute" in self.told else len(asks)
        texts = [self.text.format(k) for k in range(count)]
        error = str(self.told.get("error", ""))
        return [
            PartnerReply(text, memory=(ask.memory or 0) + 1, error=error)
            for text, ask in zip(texts, asks, strict=False)
        ]


class Fixed:
    """Gives side 0 a quarter and side 1 three quarters, and counts calls."""

    name = "fixed"
    deterministic = True

    def __init__(self, verdict: Verdict | None = None) -> None:
        self.verdict = verdict or Verdict(
            goal=(0.25, 0.75), success=(False, True), scores=({"goal": 2.5}, {"goal": 7.5})
        )
        self.calls: list[int] = []
        self.episodes: list[Transcript] = []

    def score(self, episodes: Sequence[Transcript]) -> list[Verdict]:
        self.calls.append(len(episodes))
        self.episodes += episodes
        return [self.verdict] * len(episodes)


def table(
    combination: Combination | Sequence[Combination],
    n: int,
    partner: object = None,
    judge: object = None,
    rules: Rules = Rules(),  # noqa: B008
    **options: object,
) -> tuple[Copies, list[Task]]:
    """Return copies, and their tasks in turn: side 0, side 1, ..."""
    several = [combination] if isinstance(combination, Combination) else combination
    seats = Seats(list(several), "test")
    engine = SotopiaEngine(
        n,
        partner or Counting(),  # type: ignore[arg-type]
        judge or Fixed(),  # type: ignore[arg-type]
        rules,
        **options,  # type: ignore[arg-type]
    )
    copies = Copies(engine, "CreditRL/SOTOPIA-v0", rules.max_turns)
    return copies, [seats.task(i % len(seats)) for i in range(n)]


def begin(copies: Copies, tasks: list[Task], seed: int = 0) -> Frame:
    return copies.begin(copies.engine.every, tasks, [seed] * len(tasks))


def step(copies: Copies, *actions: str, at: Sequence[int] | None = None) -> Frame:
    index = copies.engine.every if at is None else np.array(at)
    return copies.step(index, actions)


def one_step(combination: Combination, said: str, *parts: object, **options: object) -> Frame:
    """Return the frame after one utterance in a single copy."""
    copies, tasks = table(combination, 1, *parts, **options)  # type: ignore[arg-type]
    begin(copies, tasks)
    return step(copies, said)


def test_all_partners_answer_in_one_call_per_step(combination: Combination) -> None:
    partner, judge = Counting(), Fixed()
    copies, tasks = table(combination, 8, partner, judge)
    begin(copies, tasks)
    # Side 1's four copies have one task and one seed, so they share one opening.
    assert partner.calls == [1]
    for _ in range(9):
        step(copies, *["say: hello"] * 8)
    assert partner.calls == [1] + [8] * 9
    frame = step(copies, *["say: hello"] * 8)
    # Side 0's tenth act leaves turn #19 to the partner; side 1's tenth act is turn #19 itself.
    assert partner.calls == [1] + [8] * 9 + [4]
    assert judge.calls == [8]
    assert frame.truncated_K.all() and not frame.terminated_K.any()
    assert frame.info["dialogue_turn"].tolist() == [20] * 8
    assert frame.info["ending"].tolist() == ["turn_limit"] * 8
    assert frame.reward_K.tolist() == [0.25, 0.75] * 4
    assert frame.info["score"].tolist() == [0.25, 0.75] * 4
    assert frame.info["success"].tolist() == [False, True] * 4
    assert frame.info["judge_scores"][1] == {"goal": 7.5}
    assert frame.info["partner_scores"][1] == {"goal": 2.5}


def test_in_a_partly_finished_batch_only_the_rest_are_asked(combination: Combination) -> None:
    partner, judge = Counting(), Fixed()
    copies, tasks = table(combination, 6, partner, judge)
    begin(copies, tasks)
    frame = step(copies, "leave", *["say: a"] * 4, "leave")
    assert partner.calls == [1, 4]
    assert judge.calls == [2]
    assert frame.terminated_K.tolist() == [True, False, False, False, False, True]
    assert frame.reward_K.tolist() == [0.25, 0.0, 0.0, 0.0, 0.0, 0.75]
    step(copies, "say: b", "say: c", at=[3, 2])
    assert partner.calls == [1, 4, 2]
    assert judge.calls == [2]


def test_a_partner_may_end_the_step(combination: Combination) -> None:
    frame = one_step(combination, "say: hello", Counting("leave"))
    assert frame.terminated_K[0] and frame.info["ending"][0] == "left"
    assert "Turn #1: Bo Diaz left the conversation\nThe conversation is over" in frame.text[0]
    frame = one_step(combination, "say: hello", Counting("nothing"))
    assert frame.terminated_K[0] and frame.info["ending"][0] == "stale"
    # A reply that cannot be parsed counts as doing nothing.
    frame = one_step(combination, "say: hello", Counting("blah"), rules=Rules(max_stale=3))
    assert not frame.info["partner_grounded"][0] and not frame.terminated_K[0]


def test_reset_plays_the_partners_opening(combination: Combination) -> None:
    partner = Counting("say: hi")
    copies, tasks = table(combination, 2, partner)
    frame = begin(copies, tasks)
    assert partner.calls == [1]
    assert frame.info["dialogue_turn"].tolist() == [0, 1]
    assert frame.info["role"].tolist() == ["Ann Lee", "Bo Diaz"]
    assert frame.text[0].endswith("The conversation starts.\nYou are at turn #0.")
    assert frame.text[1].endswith('\nTurn #0: Ann Lee said: "hi"\nYou are at turn #1.')
    assert "Ann Lee's goal: Sell it" in frame.text[0]
    assert "Ann Lee's goal: Unknown" in frame.text[1]
    # A dialogue that ends before the agent's turn ends with the first step.
    copies, tasks = table(combination, 2, Counting("leave"))
    frame = begin(copies, tasks)
    assert frame.info["ending"].tolist() == ["", "left"]
    assert frame.info["admissible_actions"].tolist() == [("nothing", "leave"), ()]
    frame = step(copies, "say: but", at=[1])
    assert frame.terminated_K[0] and frame.reward_K[0] == 0.75
    assert frame.info["ungrounded_reason"][0] == "inapplicable"
    assert frame.info["dialogue_turn"][0] == 1


def test_an_invalid_action_leaves_the_dialogue_unchanged_and_costs_a_turn(
    combination: Combination,
) -> None:
    partner = Counting()
    copies, tasks = table(combination, 1, partner)
    begin(copies, tasks)
    before = copies.state_keys(copies.engine.every, "world")
    for k in range(9):
        frame = step(copies, "I will say hello")
        assert not frame.truncated_K[0] and frame.info["turn"][0] == k + 1
        assert frame.info["ungrounded_reason"][0] == "unparsed"
        assert frame.info["action"][0] == "I will say hello"
        assert "Your last answer was no action." in frame.text[0]
    assert copies.state_keys(copies.engine.every, "world") == before
    assert partner.calls == []
    frame = step(copies, "I will say hello")
    # Ten of the twenty turns are the agent's, and it wasted them all.
    assert frame.truncated_K[0] and frame.info["ending"][0] == "turn_limit"
    assert frame.info["dialogue_turn"][0] == 0 and frame.reward_K[0] == 0.25
    # Upstream's behaviour is an option.
    frame = one_step(combination, "I will say hello", unreadable="nothing")
    assert frame.info["dialogue_turn"][0] == 2 and not frame.info["grounded"][0]
    assert "Turn #0:\nTurn #1: Bo Diaz said" in frame.text[0]


def test_a_partner_that_fails_invalidates_the_episode(combination: Combination) -> None:
    judge = Fixed()
    frame = one_step(combination, "say: hello", Counting(error="HTTP 500"), judge)
    assert frame.truncated_K[0] and not frame.terminated_K[0]
    assert np.isnan(frame.reward_K[0]) and judge.calls == []
    assert frame.info["error"][0] == "partner counting: HTTP 500"
    assert frame.info["ending"][0] == "error"


def test_a_failed_judgement_is_not_a_reward_of_zero(combination: Combination) -> None:
    failed = Verdict(goal=None, status="timeout", error="no answer in 30 s", attempts=3)
    frame = one_step(combination, "leave", judge=Fixed(failed))
    assert frame.terminated_K[0] and np.isnan(frame.reward_K[0])
    assert frame.info["judge_status"][0] == "timeout"
    assert frame.info["judge_attempts"][0] == 3
    assert frame.info["error"][0] == "judge fixed: no answer in 30 s"
    assert frame.info["score"][0] == 0.0
    # Without a judge there is no reward, and no error.
    frame = one_step(combination, "leave", judge=NoJudge())
    assert np.isnan(frame.reward_K[0]) and frame.info["error"][0] == ""
    assert frame.info["judge_status"][0] == "none" and frame.info["judge"][0] == "none"


def test_simultaneous_sides_do_not_see_each_others_action(combination: Combination) -> None:
    partner = Counting()
    copies, tasks = table(combination, 2, partner, rules=Rules(order="simultaneous"))
    frame = begin(copies, tasks)
    assert partner.calls == [] and frame.info["dialogue_turn"].tolist() == [0, 0]
    frame = step(copies, "say: a", "say: b")
    assert partner.calls == [2] and [len(ask.turns) for ask in partner.asks] == [0, 0]
    assert 'Turn #0: Ann Lee said: "a";Bo Diaz said: "yes"' in frame.text[0]
    assert 'Turn #0: Ann Lee said: "yes";Bo Diaz said: "b"' in frame.text[1]


def test_a_partners_memory_is_saved_and_restored(combination: Combination) -> None:
    partner = Counting()
    copies, tasks = table(combination, 1, partner)
    begin(copies, tasks, seed=11)
    step(copies, "say: a")
    saved = copies.snapshot(copies.engine.every)
    step(copies, "say: b")
    copies.restore(copies.engine.every, pickle.loads(pickle.dumps(saved)))
    step(copies, "say: c")
    assert [ask.memory for ask in partner.asks] == [None, 1, 1]
    assert [ask.seen for ask in partner.asks] == [-1, 1, 1]
    assert {(ask.side, ask.seed) for ask in partner.asks} == {(1, 11)}
    last = partner.asks[-1].observation
    assert last.startswith("You are Bo Diaz.") and "Bo Diaz's goal: Buy it" in last
    assert last.endswith(
        'Turn #0: Ann Lee said: "a"\nSince your last action:\nTurn #1: Bo Diaz said: "yes"\n'
        'Turn #2: Ann Lee said: "c"\nYou are at turn #3.'
    )


def test_members_of_a_group_get_the_same_opening(combination: Combination) -> None:
    partner = Counting("say: {}", deterministic=False)
    copies, tasks = table(combination, 6, partner)
    every = copies.engine.every
    frame = copies.begin(every, [tasks[1]] * 6, [7, 7, 7, 8, 8, 8])
    assert partner.calls == [2]
    assert frame.text[0] == frame.text[1] == frame.text[2] != frame.text[3]
    assert frame.text[3] == frame.text[4] == frame.text[5]


def test_with_a_live_partner_only_the_start_can_be_saved(combination: Combination) -> None:
    copies, tasks = table(combination, 2, Counting("say: hi", deterministic=False))
    every = copies.engine.every
    start = begin(copies, tasks)
    saved = copies.snapshot(every)
    step(copies, "say: a", "say: b")
    with pytest.raises(SnapshotError, match="live model"):
        copies.snapshot(every)
    assert copies.restore(every, saved).text == start.text


def test_state_keys_distinguish_dialogues_and_sides(make_combination: Callable[..., Combination]):
    casts = [make_combination(), make_combination(name="other")]
    copies, tasks = table(casts, 4, Counting("say: x"))
    every = copies.engine.every
    begin(copies, tasks)
    step(copies, "say: x", "say: x", "say: x", "say: x")
    world, state = (copies.state_keys(every, source) for source in ("world", "state"))
    assert len(set(state)) == 4 and len(set(world)) == 4  # side 1 has seen one turn more
    begin(copies, [tasks[0]] * 4)
    step(copies, "say: x", "say: x", "do: x", "say: x speak 1 x")
    world, state = (copies.state_keys(every, source) for source in ("world", "state"))
    assert world[0] == world[1] and state[0] == state[1]
    assert len(set(world)) == 3


def test_foreign_tasks_and_missing_replies_are_refused(combination: Combination) -> None:
    copies, _ = table(combination, 1)
    with pytest.raises(ConfigError, match="needs a Seat"):
        begin(copies, [Task("t", "x", "test", 0, data="game")])
    with pytest.raises(ConfigError, match="0 replies to 1 asks"):
        one_step(combination, "say: a", Counting(mute=True))


@pytest.mark.parametrize("side", [0, 1])
def test_published_episodes_replay_through_the_environment(recorded, side: int) -> None:  # type: ignore[no-untyped-def]
    """The agent repeats one side's actions, the replay the other's: same ending, same turn."""
    partner = ReplayPartner.of(Transcript(one.combination, one.turns, "") for one in recorded)
    casts = [episode.combination for episode in recorded]
    seats = Seats(casts, "test", side=side)  # type: ignore[arg-type]
    engine = SotopiaEngine(len(casts), partner, NoJudge(), PUBLISHED_RULES)
    copies = Copies(engine, "CreditRL/SOTOPIA-v0", PUBLISHED_RULES.max_turns)
    begin(copies, list(seats))
    playing = list(range(len(casts)))
    steps = 0
    while playing:
        acts = [recorded[i].turns[2 * steps + side][side] for i in playing]
        frame = step(copies, *[action_text(act) for act in acts], at=playing)
        assert frame.info["grounded"].all() and not any(frame.info["error"])
        steps += 1
        over = frame.terminated_K | frame.truncated_K
        for n, i in enumerate(playing):
            heard = frame.info["dialogue_turn"][n]
            assert over[n] == (heard == len(recorded[i].turns)), recorded[i].combination.id
            if over[n]:
                assert set(frame.info["ending"][n].split("+")) == recorded[i].reasons
        playing = [i for n, i in enumerate(playing) if not over[n]]
    assert steps > 5


def test_a_replay_repeats_empty_long_and_multi_line_turns(combination: Combination) -> None:
    """Upstream's models said nothing, or a lot, or several lines."""
    idle = Action("none")
    turns = tuple(
        (idle, Action("speak", said)) if k % 2 else (Action("speak", "Go on."), idle)
        for k, said in enumerate(("", "", "", "a" * 3_000, "", "two\n\nlines", ""))
    )
    turns = (*turns, (idle, Action("leave")))
    copies, tasks = table(combination, 1, ReplayPartner({combination.id: turns}))
    begin(copies, tasks)
    for k in range(4):
        frame = step(copies, "say: Go on.")
        assert frame.info["partner_grounded"].all() and frame.terminated_K[0] == (k == 3)
    assert frame.info["ending"][0] == "left" and frame.info["dialogue_turn"][0] == 8
    assert 'said: "two lines"' in frame.text[0] and "a" * 2_001 not in frame.text[0]
    frame = one_step(combination, "say: x", ReplayPartner({combination.id: turns[:1]}))
    assert "has only 1 turns, but turn 1 is needed" in frame.info["error"][0]


@pytest.mark.parametrize("order", ["round-robin", "simultaneous", "random"])
def test_an_agent_with_a_replay_partner_equals_a_meeting_of_two_agents(
    combination: Combination, order: str
) -> None:
    """Each side's texts and the ending are equal with a replayed partner and with two agents."""
    rng = random.Random(0)
    rules = Rules(order=order, max_turns=9)  # type: ignore[arg-type]
    lines = ("say: a", "do: b", "nonverbal: c", "nothing", "say: d", "say: e", "say: f")
    for seed in range(12):
        meeting = Meeting(combination, rules, seed)
        read: list[list[tuple[str, str]]] = [[], []]
        while not meeting.ending:
            answers = [rng.choice(lines) for _ in (0, 1)]
            for side in (0, 1):
                if meeting.may_act[side]:
                    read[side].append((meeting.text(side), answers[side]))
            may = meeting.may_act
            meeting.play([a if m else "nothing" for a, m in zip(answers, may, strict=True)])
        replay = ReplayPartner({combination.id: meeting.turns})
        copies, tasks = table(combination, 2, replay, rules=rules)
        frame = begin(copies, tasks, seed)
        for side, said in enumerate(read):
            text, over = frame.text[side], not said
            for told, answer in said:
                assert text == told and not over
                after = step(copies, answer, at=[side])
                text, over = after.text[0], bool(after.terminated_K[0] | after.truncated_K[0])
                ending = after.info["ending"][0]
            if said:
                assert over and text == meeting.text(side) and ending == meeting.ending
