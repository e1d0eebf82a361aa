from __future__ import annotations

import numpy as np
import pytest
import small_runs
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.errors import ConfigError, CreditInputError
from creditrl.trainers.batch import (
    Rows,
    build_rows,
    merge_equal,
    micro_batches,
    token_table,
    turn_table,
)
from creditrl.types import Turn


def make_turn(prompt, reply, **options):
    fields = {"reward": 0.0, "logprobs": tuple(-1.0 for _ in reply), "state": 1}
    return Turn("", "", "", prompt_ids=tuple(prompt), reply_ids=tuple(reply), **fields | options)


def make_trajectory(turns, number=0, **options):
    usual = {"id": f"episode-{number}", "group": 0, "member": number}
    return small_runs.make_trajectory(turns, number, **(usual | options))


def conversation(turn_ids):
    """Turn pairs (new prompt ids, reply ids) into turns whose prompts grow."""
    context, turns = (), []
    for new, reply in turn_ids:
        context += tuple(new)
        turns.append(make_turn(context, reply))
        context += tuple(reply)
    return turns


def row(rows: Rows, number: int) -> list[int]:
    return rows.ids[rows.offset_R[number] : rows.offset_R[number + 1]].tolist()


def contexts(rows: Rows) -> list[tuple[list[int], int]]:
    """What every token is predicted from, and the token: the meaning of a batch of rows."""
    return [
        (row(rows, r)[: p + 1], t)
        for r, p, t in zip(
            rows.row_M.tolist(), rows.position_M.tolist(), rows.token_M.tolist(), strict=True
        )
    ]


def expected_contexts(trajectories):
    return [
        (list(turn.prompt_ids + turn.reply_ids[:k]), token)
        for trajectory in trajectories
        for turn in trajectory.turns
        for k, token in enumerate(turn.reply_ids)
    ]


# ---- rows -------------------------------------------------------------------------------------


def test_a_window_episode_makes_one_row_per_turn():
    episode = make_trajectory([make_turn([1, 2], [7, 8]), make_turn([3, 4, 5], [9])])
    rows = build_rows([episode])
    assert sorted(row(rows, r) for r in range(len(rows))) == [[1, 2, 7], [3, 4, 5]]
    assert rows.token_M.tolist() == [7, 8, 9]
    assert rows.position_M.tolist() == [1, 2, 2]
    assert rows.turn_M.tolist() == [0, 0, 1]
    assert (rows.joined_episodes, rows.split_episodes) == (0, 1)


def test_an_append_only_episode_makes_one_row():
    episode = make_trajectory(conversation([([1, 2], [7, 8]), ([3], [9]), ([4, 5], [6, 6])]))
    rows = build_rows([episode])
    assert [row(rows, r) for r in range(len(rows))] == [[1, 2, 7, 8, 3, 9, 4, 5, 6]]
    assert rows.position_M.tolist() == [1, 2, 4, 7, 8]
    assert rows.token_M.tolist() == [7, 8, 9, 6, 6]
    assert (rows.joined_episodes, rows.split_episodes) == (1, 0)


def test_one_retokenised_turn_splits_its_own_episode_only():
    good = make_trajectory(conversation([([1], [2]), ([3], [4])]), 0)
    # The second prompt renders the reply 2 as 22.
    bad = make_trajectory([make_turn([1], [2]), make_turn([1, 22, 3], [4])], 1)
    rows = build_rows([good, bad], merge_equal=False)
    assert (rows.joined_episodes, rows.split_episodes) == (1, 1)
    assert [row(rows, r) for r in range(3)] == [[1, 2, 3], [1], [1, 22, 3]]
    assert contexts(rows) == expected_contexts([good, bad])


def test_full_context_names_the_episode_and_turn_that_breaks_it():
    bad = make_trajectory([make_turn([1], [2]), make_turn([1, 9, 3], [4])], 5)
    with pytest.raises(CreditInputError, match="episode-5.*turn 1"):
        build_rows([bad], "full")


def test_turns_that_stand_before_the_same_prompt_share_one_row():
    episodes = [
        make_trajectory([make_turn([1, 2, 3], [a]), make_turn([4, 5], [a])], a) for a in range(4)
    ]
    rows = build_rows(episodes, "window")
    assert len(rows) == 2
    assert rows.num_tokens == 8
    assert contexts(rows) == expected_contexts(episodes)
    assert len(build_rows(episodes, "window", merge_equal=False)) == 8


def test_a_row_that_another_begins_with_is_merged_into_it():
    short, long = make_turn([1, 2], [3]), make_turn([1, 2], [3, 4, 5])
    other = make_turn([1, 9], [3])
    episodes = [make_trajectory([t], k) for k, t in enumerate((short, long, other))]
    rows = build_rows(episodes)
    assert sorted(row(rows, r) for r in range(len(rows))) == [[1, 2, 3, 4], [1, 9]]
    assert contexts(rows) == expected_contexts(episodes)


def test_turns_without_reply_tokens_contribute_nothing():
    episodes = [
        make_trajectory([make_turn([1, 2], [3]), make_turn([5, 6, 7], [])], 0),
        make_trajectory(conversation([([1], [2, 3]), ([4, 4], [])]), 1),
    ]
    for merge in (True, False):
        rows = build_rows(episodes, merge_equal=merge)
        assert contexts(rows) == expected_contexts(episodes)
        assert rows.turn_M.tolist() == [0, 2, 2]
        assert max(rows.length_R) == 2  # nothing of what no token needs


def test_no_episodes_make_empty_tables():
    rows = build_rows([])
    assert (len(rows), rows.num_tokens) == (0, 0)
    assert list(micro_batches(rows, 8)) == []
    assert len(turn_table([])) == len(token_table([])) == 0


def test_reply_tokens_without_a_prompt_are_refused():
    with pytest.raises(CreditInputError, match="episode-0, turn 0 has no prompt"):
        build_rows([make_trajectory([make_turn([], [3])])])


def test_an_unknown_context_names_the_known_ones():
    with pytest.raises(ConfigError, match="Did you mean 'window'"):
        build_rows([], "windows")  # type: ignore[arg-type]


IDS = st.lists(st.integers(0, 2), min_size=1, max_size=4)
REPLY = st.lists(st.integers(0, 2), min_size=0, max_size=3)
EPISODES = st.lists(
    st.tuples(st.booleans(), st.lists(st.tuples(IDS, REPLY), min_size=1, max_size=4)),
    min_size=1,
    max_size=6,
)


def episodes_of(drawn):
    return [
        make_trajectory(
            conversation(parts) if grows else [make_turn(p, r) for p, r in parts], number
        )
        for number, (grows, parts) in enumerate(drawn)
    ]


@settings(max_examples=60)
@given(
    EPISODES,
    st.sampled_from(["auto", "window"]),
    st.booleans(),
    st.integers(1, 40),
    st.sampled_from(["turn", "episode"]),
)
def test_every_token_keeps_its_own_context(drawn, context, merge, budget, units):
    episodes = episodes_of(drawn)
    expected = expected_contexts(episodes)
    rows = build_rows(episodes, context, merge_equal=merge)
    assert contexts(rows) == expected
    assert rows.turn_M.tolist() == token_table(episodes).turn_M.tolist()
    assert contexts(merge_equal(rows)) == expected
    seen = np.zeros(rows.num_tokens, dtype=int)
    total_rows = 0
    whole: dict[str, list[int]] = {"turn": [], "episode": []}
    for batch in micro_batches(rows, budget, merge_equal=False, units=units, pad_id=99):
        alone = len(batch) == 1 if units == "turn" else len(set(batch.episode_M.tolist())) == 1
        assert batch.ids_RL.size <= budget or alone
        total_rows += len(batch)
        whole["turn"] += set(batch.turn_M.tolist())
        whole["episode"] += set(batch.episode_M.tolist())
        assert set(batch.row_M.tolist()) == set(range(len(batch)))
        for r, p, t, m in zip(
            batch.row_M, batch.position_M, batch.token_M, batch.index_M, strict=True
        ):
            assert (batch.ids_RL[r, : p + 1].tolist(), t) == expected[m]
            assert p < batch.length_R[r]
            seen[m] += 1
    assert (seen == 1).all()
    assert len(whole["turn"]) == len(set(whole["turn"]))
    if units == "turn":
        assert total_rows == len(rows)
    else:
        assert len(whole["episode"]) == len(set(whole["episode"]))


@settings(max_examples=40)
@given(EPISODES, st.data())
def test_a_selection_keeps_the_context_of_its_tokens(drawn, data):
    episodes = episodes_of(drawn)
    rows = build_rows(episodes)
    expected = expected_contexts(episodes)
    count = sum(len(e.turns) for e in episodes)
    turns = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1)))), dtype=int)
    part = rows.select_tokens(np.flatnonzero(np.isin(rows.turn_M, turns)))
    assert contexts(part) == [expected[m] for m in part.index_M]
    assert set(part.turn_M.tolist()) == set(turns.tolist()) & set(rows.turn_M.tolist())
    assert all(part.length_R > 0)
    whole = rows.select_episodes(np.arange(len(episodes)))
    assert contexts(whole) == expected


def test_a_selected_early_turn_needs_only_the_beginning_of_its_row():
    episode = make_trajectory(conversation([([1, 2], [7]), ([3], [9]), ([4, 5], [6])]))
    first = build_rows([episode]).select_tokens(np.array([0]))
    assert row(first, 0) == [1, 2]


def test_places_lead_back_to_the_selection_and_to_the_whole_batch():
    episodes = [make_trajectory([make_turn([1, k], [7, 8])], k) for k in range(4)]
    rows = build_rows(episodes)
    part = rows.select_episodes(np.array([1, 3]))
    (batch,) = micro_batches(part, 1000)
    np.testing.assert_array_equal(part.index_M[batch.token_index], batch.index_M)
    assert sorted(batch.index_M.tolist()) == [2, 3, 6, 7]


def test_micro_batches_need_a_positive_budget():
    with pytest.raises(ConfigError, match="token_budget is 0"):
        list(micro_batches(build_rows([]), 0))


# ---- tables -----------------------------------------------------------------------------------


def test_a_turn_table_has_one_line_per_turn():
    first = make_trajectory(
        [make_turn([1], [2], reward=0.5, grounded=False), make_turn([1], [2], reward=1.0)],
        0,
        group=17,
        success=True,
    )
    second = make_trajectory([make_turn([1], [2], reward=-1.0)], 1, group=4, truncated=True)
    table = turn_table([first, second])
    assert table.reward_N.tolist() == [0.5, 1.0, -1.0]
    assert table.return_N.tolist() == [1.5, 1.5, -1.0]
    assert table.episode_N.tolist() == [0, 0, 1]
    assert table.turn_N.tolist() == [0, 1, 0]
    assert table.task_N.tolist() == table.group_N.tolist() == [0, 0, 1]
    assert table.grounded_N.tolist() == [False, True, True]
    assert table.success_N.tolist() == [True, True, False]
    assert table.truncated_N.tolist() == [False, False, True]
    assert table.state_N is not None and table.state_N.tolist() == [1, 1, 1]
    assert table.episode_ids == ("episode-0", "episode-1")


def test_episodes_without_turns_are_left_out_of_every_table():
    episodes = [
        make_trajectory([], 0),
        make_trajectory([make_turn([1], [2])], 1),
        make_trajectory([], 2),
        make_trajectory([make_turn([1], [3])], 3),
    ]
    table = turn_table(episodes)
    assert table.episode_N.tolist() == [0, 1]
    assert table.episode_ids == ("episode-1", "episode-3")
    assert table.num_episodes == 2
    assert build_rows(episodes).episode_M.tolist() == [0, 1]


def test_states_count_only_when_every_turn_has_one():
    table = turn_table([make_trajectory([make_turn([1], [2]), make_turn([1], [2], state=0)])])
    assert table.state_N is None


def test_a_nan_reward_names_the_episode_and_turn():
    turns = [make_turn([1], [2]), make_turn([1], [2], reward=float("nan"))]
    with pytest.raises(CreditInputError, match="episode-3 has reward nan at turn 1"):
        turn_table([make_trajectory([make_turn([1], [2])], 2), make_trajectory(turns, 3)])


def test_missing_logprobs_are_nan_and_a_wrong_number_is_an_error():
    table = token_table([make_trajectory([make_turn([1], [2, 3], logprobs=())])])
    assert np.isnan(table.logprob_M).tolist() == [True, True]
    with pytest.raises(CreditInputError, match="1 log-probabilities for 2 reply tokens"):
        token_table([make_trajectory([make_turn([1], [2, 3], logprobs=(-1.0,))])])
