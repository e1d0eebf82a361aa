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


def test_a_window_episode_makes_one_row_per_turn_and_a_growing_one_a_single_row():
    window = make_trajectory([make_turn([1, 2], [7, 8]), make_turn([3, 4, 5], [9])])
    grows = make_trajectory(conversation([([1, 2], [7, 8]), ([3], [9]), ([4, 5], [6, 6])]))
    for episode, expected, tokens, places, turns, joined in (
        (window, [[1, 2, 7], [3, 4, 5]], [7, 8, 9], [1, 2, 2], [0, 0, 1], 0),
        (
            grows,
            [[1, 2, 7, 8, 3, 9, 4, 5, 6]],
            [7, 8, 9, 6, 6],
            [1, 2, 4, 7, 8],
            [0, 0, 1, 2, 2],
            1,
        ),
    ):
        rows = build_rows([episode])
        assert sorted(row(rows, r) for r in range(len(rows))) == expected
        assert (rows.token_M.tolist(), rows.position_M.tolist()) == (tokens, places)
        assert rows.turn_M.tolist() == turns
        assert (rows.joined_episodes, rows.split_episodes) == (joined, 1 - joined)


def test_one_retokenised_turn_splits_its_own_episode_only():
    good = make_trajectory(conversation([([1], [2]), ([3], [4])]), 0)
    # The second prompt renders the reply 2 as 22.
    bad = make_trajectory([make_turn([1], [2]), make_turn([1, 22, 3], [4])], 1)
    rows = build_rows([good, bad], merge_equal=False)
    assert (rows.joined_episodes, rows.split_episodes) == (1, 1)
    assert [row(rows, r) for r in range(3)] == [[1, 2, 3], [1], [1, 22, 3]]
    assert contexts(rows) == expected_contexts([good, bad])


def test_turns_with_the_same_prompt_share_one_row():
    episodes = [
        make_trajectory([make_turn([1, 2, 3], [a]), make_turn([4, 5], [a])], a) for a in range(4)
    ]
    rows = build_rows(episodes, "window")
    assert (len(rows), rows.num_tokens) == (2, 8)
    assert contexts(rows) == expected_contexts(episodes)
    assert len(build_rows(episodes, "window", merge_equal=False)) == 8
    # A row that another begins with is merged into it.
    turns = make_turn([1, 2], [3]), make_turn([1, 2], [3, 4, 5]), make_turn([1, 9], [3])
    episodes = [make_trajectory([turn], k) for k, turn in enumerate(turns)]
    rows = build_rows(episodes)
    assert sorted(row(rows, r) for r in range(len(rows))) == [[1, 2, 3, 4], [1, 9]]
    assert contexts(rows) == expected_contexts(episodes)


def test_no_episodes_make_empty_tables():
    rows = build_rows([])
    assert (len(rows), rows.num_tokens) == (0, 0)
    assert list(micro_batches(rows, 8)) == []
    assert len(turn_table([])) == len(token_table([])) == 0


def test_unusable_episodes_and_settings_are_named():
    broken = make_trajectory([make_turn([1], [2]), make_turn([1, 9, 3], [4])], 5)
    with pytest.raises(CreditInputError, match="episode-5.*turn 1"):
        build_rows([broken], "full")
    with pytest.raises(CreditInputError, match="episode-0, turn 0 has no prompt"):
        build_rows([make_trajectory([make_turn([], [3])])])
    with pytest.raises(ConfigError, match="Did you mean 'window'"):
        build_rows([], "windows")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="token_budget is 0"):
        list(micro_batches(build_rows([]), 0))
    turns = [make_turn([1], [2]), make_turn([1], [2], reward=float("nan"))]
    with pytest.raises(CreditInputError, match="episode-3 has reward nan at turn 1"):
        turn_table([make_trajectory([make_turn([1], [2])], 2), make_trajectory(turns, 3)])


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


def test_an_early_turn_alone_needs_only_the_beginning_of_its_row():
    episode = make_trajectory(conversation([([1, 2], [7]), ([3], [9]), ([4, 5], [6])]))
    assert row(build_rows([episode]).select_tokens(np.array([0])), 0) == [1, 2]


def test_token_indices_refer_to_the_selection_and_to_the_whole_batch():
    rows = build_rows([make_trajectory([make_turn([1, k], [7, 8])], k) for k in range(4)])
    part = rows.select_episodes(np.array([1, 3]))
    (batch,) = micro_batches(part, 1000)
    np.testing.assert_array_equal(part.index_M[batch.token_index], batch.index_M)
    assert sorted(batch.index_M.tolist()) == [2, 3, 6, 7]


# ---- tables -----------------------------------------------------------------------------------


def test_a_turn_table_has_one_line_per_turn_and_leaves_out_episodes_without_turns():
    turns = [make_turn([1], [2], reward=r, grounded=g) for r, g in ((0.5, False), (1.0, True))]
    last = make_turn([1], [2], reward=-1.0)
    episodes = [
        make_trajectory(turns, 0, group=17, success=True),
        make_trajectory([], 1),
        make_trajectory([last], 2, group=4, truncated=True),
    ]
    table = turn_table(episodes)
    assert table.reward_N.tolist() == [0.5, 1.0, -1.0]
    assert table.return_N.tolist() == [1.5, 1.5, -1.0]
    assert table.episode_N.tolist() == [0, 0, 1] and table.num_episodes == 2
    assert table.turn_N.tolist() == [0, 1, 0]
    assert table.task_N.tolist() == table.group_N.tolist() == [0, 0, 1]
    assert table.grounded_N.tolist() == [False, True, True]
    assert table.success_N.tolist() == [True, True, False]
    assert table.truncated_N.tolist() == [False, False, True]
    assert table.state_N is not None and table.state_N.tolist() == [1, 1, 1]
    assert table.episode_ids == ("episode-0", "episode-2")
    assert build_rows(episodes).episode_M.tolist() == [0, 0, 1]
    # States count only when every turn has one.
    some = make_trajectory([make_turn([1], [2]), make_turn([1], [2], state=0)])
    assert turn_table([some]).state_N is None


def test_missing_logprobs_are_nan_and_a_wrong_number_is_an_error():
    table = token_table([make_trajectory([make_turn([1], [2, 3], logprobs=())])])
    assert np.isnan(table.logprob_M).tolist() == [True, True]
    with pytest.raises(CreditInputError, match="1 log-probabilities for 2 reply tokens"):
        token_table([make_trajectory([make_turn([1], [2, 3], logprobs=(-1.0,))])])
