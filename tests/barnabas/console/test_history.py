"""What the history keeps, and what it forgets."""

from __future__ import annotations

import tracemalloc

from barnabas.console.history import BYTES_MAX, COARSE, FINE, SERIES_BYTES, SERIES_MAX, History

NOON_S = 1_800_000_000


def test_values_of_one_step_are_their_mean() -> None:
    history = History()

    for second, value in ((0, 10.0), (5, 20.0), (10, 7.0)):
        history.add(NOON_S + second, {"lag": value})

    assert history.hour("lag") == [(NOON_S, 15.0), (NOON_S + 10, 7.0)]
    assert history.day("lag") == [(NOON_S, 37.0 / 3)]


def test_what_is_older_than_an_hour_is_left_in_the_day() -> None:
    history = History()

    for minute in range(3 * 60):
        history.add(NOON_S + 60 * minute, {"lag": float(minute)})

    newest = NOON_S + 60 * 179
    assert history.hour("lag")[0][0] > newest - FINE.span_s and history.hour("lag")[-1] == (newest, 179.0)
    assert history.day("lag")[0] == (NOON_S, 2.0) and len(history.day("lag")) == 36


def test_time_when_nothing_was_measured_has_no_values() -> None:
    history = History()
    history.add(NOON_S, {"lag": 1.0, "gone": 1.0})
    history.add(NOON_S + FINE.span_s + 50, {"lag": 2.0})

    assert history.hour("lag") == [(NOON_S + FINE.span_s + 50, 2.0)]
    assert history.hour("gone") == [] and history.day("gone") == [(NOON_S, 1.0)]
    history.add(NOON_S + 2 * COARSE.span_s, {"lag": 3.0})
    assert history.day("gone") == []


def test_memory_is_bounded_by_the_number_of_series() -> None:
    history = History(series_max=2)
    history.add(NOON_S, {"a": 1.0, "b": 1.0, "c": 1.0})

    assert history.hour("c") == [] and history.hour("b")
    history.keep({"a"})
    history.add(NOON_S, {"c": 1.0})
    assert history.hour("b") == [] and history.hour("c") == [(NOON_S, 1.0)]
    assert SERIES_MAX * SERIES_BYTES <= BYTES_MAX and SERIES_MAX > 11_000


def test_memory_of_all_series_with_the_longest_names_is_within_its_limit() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        history = History()
        history.add(NOON_S, {f"topic {number:0249}": float(number) for number in range(SERIES_MAX + 100)})
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert history.hour(f"topic {SERIES_MAX - 1:0249}") and not history.hour(f"topic {SERIES_MAX:0249}")
    assert used - before <= BYTES_MAX


def test_slope_is_by_second() -> None:
    history = History()
    for tick in range(60):
        history.add(NOON_S + 10 * tick, {"lag": 100.0 + 20 * tick})

    assert history.slope("lag") is not None and abs((history.slope("lag") or 0) - 2.0) < 1e-9
    assert history.slope("nothing") is None
