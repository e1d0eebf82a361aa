"""The stopwatch: parts within parts by hand, and what a run says of its time."""

from __future__ import annotations

import pytest

from creditrl.trainers.stopwatch import CPU_PREFIX, Stopwatch, sum_parts, time_line


class Clock:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_part_within_another_stops_that_one():
    clock = Clock()
    watch = Stopwatch(clock)
    with watch.part("other"):
        clock.now += 1
        for _ in range(2):
            with watch.part("environment"):
                clock.now += 2
                with watch.part("generation"):
                    clock.now += 5
                clock.now += 3
        clock.now += 4
    clock.now += 50  # in no part
    found = watch.take()
    assert found == {"other": 5.0, "environment": 10.0, "generation": 10.0}
    assert sum(found.values()) == 25.0
    assert watch.take() == {}


def test_processor_time_is_counted_by_the_same_parts():
    clock, cpu = Clock(), Clock()
    watch = Stopwatch(clock, cpu)
    with watch.part("other"):
        clock.now += 4  # waits for somebody
        cpu.now += 1
        with watch.part("models"):
            clock.now += 2
            cpu.now += 2
    assert watch.take() == {"other": 4.0, "models": 2.0}
    assert watch.take_cpu() == {"other": 1.0, "models": 2.0}
    assert watch.take_cpu() == {}
    rows = [{"cpu/explore": 5.0, "cpu/models": 1.0}, {"cpu/models": 2.0, "seconds/models": 9.0}]
    assert sum_parts(rows, CPU_PREFIX) == {"explore": 5.0, "models": 3.0}


def test_a_part_that_ends_with_an_error_counts():
    clock = Clock()
    watch = Stopwatch(clock)
    with pytest.raises(ValueError, match="x"), watch.part("update"):
        clock.now += 3
        raise ValueError("x")
    with watch.part("credit"):
        clock.now += 1
    assert watch.take() == {"update": 3.0, "credit": 1.0}


def test_parts_add_up_over_updates_and_are_one_line():
    rows = [
        {"phase": "train", "seconds/update": 1.0, "seconds/generation": 5.0, "loss": 0.1},
        {"phase": "train", "seconds/update": 2.0, "seconds/generation": 2.0},
        {"phase": "validation", "success": 0.5},
    ]
    parts = sum_parts(rows)
    assert list(parts.items()) == [("generation", 7.0), ("update", 3.0)]
    assert time_line(parts) == "Updates: generation 70 %, update 30 % of 10 s."
    ahead = {"waiting": 1.0, "update": 3.0, "beside_environment": 1.0, "beside_generation": 2.0}
    assert time_line(ahead) == (
        "Updates: waiting 25 %, update 75 % of 4 s; episodes were collected beside for 3 s."
    )
    assert time_line({}) == ""
