"""Task sets: selection, filters, draws and data folders."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from creditrl.envs.tasks import Coverage, TaskList, data_home, draw_task, meant_folder, warn_of_gaps
from creditrl.errors import ConfigError, IncompleteDataWarning, UnknownNameError
from creditrl.types import FloatArray, Task


@pytest.fixture
def tasks() -> TaskList:
    return TaskList(
        [
            Task(f"t/{i}", "odd" if i % 2 else "even", "train", i, difficulty=float(i))
            for i in range(8)
        ]
    )


def test_filters_by_type_difficulty_and_condition(tasks: TaskList):
    assert [t.index for t in tasks.filter(types=["odd"])] == [1, 3, 5, 7]
    assert [t.index for t in tasks.filter(difficulty=(2, 4))] == [2, 3, 4]
    chosen = tasks.filter(types=["odd"], where=lambda t: t.index > 3)
    assert [t.index for t in chosen] == [5, 7]
    assert chosen[0].index == 5 and chosen.find("t/7").index == 7 and len(chosen) == 2
    assert [t.index for t in chosen.filter(difficulty=(6, 9))] == [7]
    with pytest.raises(ConfigError, match="Widen the filter"):
        tasks.filter(types=["none"])
    with pytest.raises(UnknownNameError, match="filtered out"):
        chosen.find("t/2")


def test_sets_join_in_order_index_like_sequences_and_refuse_empty_and_duplicate_tasks(
    tasks: TaskList,
):
    other = TaskList([Task("u/0", "new", "train", 0)])
    joined = TaskList.join(other, tasks)
    assert [t.id for t in joined][:2] == ["u/0", "t/0"] and len(joined) == 9
    # An unknown difficulty is in no range.
    assert len(joined.filter(difficulty=(0, 9))) == 8
    with pytest.raises(ConfigError, match="'t/0'"):
        TaskList.join(tasks, tasks)
    with pytest.raises(ConfigError, match="at least one"):
        TaskList([])
    assert tasks[-1].index == 7
    with pytest.raises(IndexError, match="8 tasks"):
        tasks[8]


def test_filtered_and_joined_sets_keep_the_coverage():
    half = TaskList([Task("a", "x", "train", 0), Task("b", "y", "train", 1)], Coverage("as", 2, 4))
    full = TaskList([Task("c", "x", "train", 0)], Coverage("cs", 9, 9, "not said where all is"))
    assert half.filter(types=["x"]).coverage == half.coverage
    joined = TaskList.join(half, full).filter(types=["x"])
    assert len(joined) == 2 and str(joined.coverage) == "11 of 13 as and cs (not said where all is)"
    with pytest.warns(IncompleteDataWarning, match="There are only 11 of 13 as and cs"):
        warn_of_gaps(joined)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_gaps(full)
        warn_of_gaps(TaskList([Task("a", "x", "train", 0)]))  # made here


def test_the_intended_folder_is_a_parent_or_the_only_child(tmp_path: Path):
    def holds(folder: Path) -> bool:
        return (folder / "games").exists()

    home, other = tmp_path / "one", tmp_path / "two"
    (home / "games" / "a").mkdir(parents=True)
    (home / "games" / "a" / "file").touch()
    for given in ("games", "games/a", "games/a/file", "not there", "games/a/file/not there"):
        assert meant_folder(home / given, holds) == home
    assert meant_folder(tmp_path, holds) == home
    (other / "games").mkdir(parents=True)
    assert meant_folder(tmp_path, holds) is None  # ambiguous
    assert meant_folder(tmp_path / "none", holds) is None


def test_draws_cover_the_set_and_repeat_with_the_seed(tasks: TaskList):
    def drawn(seed: int) -> list[tuple[str, int]]:
        rng = np.random.default_rng(seed)
        pairs = [draw_task(tasks, rng, None) for _ in range(60)]
        return [(task.id, number) for task, number in pairs]

    assert drawn(1) == drawn(1)
    assert {task_id for task_id, _ in drawn(1)} == {t.id for t in tasks}
    assert all(0 <= number < 2**63 for _, number in drawn(1))


class Weighted(TaskList):
    """The second of eight is three times as likely as the others, the third never drawn."""

    given: Sequence[float] = (1.0, 3.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0)

    def weights(self) -> FloatArray:
        return np.array(self.given)


def test_draws_follow_the_weights_even_of_filtered_tasks(tasks: TaskList):
    weighted, rng = Weighted(list(tasks)), np.random.default_rng(0)
    odd = weighted.filter(types=["odd"])
    np.testing.assert_array_equal(odd.weights(), [3.0, 1.0, 1.0, 1.0])
    for some in (weighted, odd):
        draws = int(1000 * some.weights().sum())
        counts = np.bincount([some.draw(rng) for _ in range(draws)], minlength=len(some))
        np.testing.assert_allclose(counts, 1000 * some.weights(), atol=150)
    assert tasks.weights() is None and tasks.filter(types=["odd"]).weights() is None
    for wrong in ([0.0] * 8, [1.0] * 7, [2.0, -1.0] * 4, [np.nan] * 8):
        fresh = Weighted(list(tasks))
        fresh.given = wrong
        with pytest.raises(ConfigError, match="No task can be drawn by these weights"):
            fresh.draw(rng)


def test_a_chosen_task_still_draws_its_seed(tasks: TaskList):
    task, one = draw_task(tasks, np.random.default_rng(1), "t/3")
    _, other = draw_task(tasks, np.random.default_rng(2), 3)
    assert task.index == 3 and one != other


def test_data_home_is_argument_then_variable_then_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("CREDITRL_TOY_DATA", raising=False)
    monkeypatch.delenv("CREDITRL_CACHE", raising=False)
    assert data_home("toy") == Path.home() / ".cache/creditrl/toy"
    monkeypatch.setenv("CREDITRL_CACHE", "~/c")
    assert data_home("toy") == Path.home() / "c/toy"
    monkeypatch.setenv("CREDITRL_TOY_DATA", str(tmp_path))
    assert data_home("toy") == tmp_path
    assert data_home("toy", "~/x") == Path.home() / "x"
