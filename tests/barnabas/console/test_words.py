"""Figures, tables and charts as the pages write them."""

from __future__ import annotations

from barnabas.console import charts, words
from barnabas.console.tables import ROWS, page_of


def test_rates_have_three_digits() -> None:
    shown = [words.rate(value).replace(words.THIN, " ") for value in (None, 0, 0.04, 0.44, 12.3, 3_449, 25_600, 4e6)]

    assert shown == ["–", "0", "0", "0.4", "12", "3.4 k", "26 k", "4.0 M"]


def test_trend_says_when_a_lag_is_gone() -> None:
    assert words.trend(-10.0, 600) == "↘ falls, done in 1m 0s"
    assert words.trend(5.0, 600) == "↗ grows by 5.0/s"
    assert (words.trend(0.0, 600), words.trend(0.0, 0), words.trend(None, 600)) == ("steady", "", "")


def test_pages_are_sorted_with_what_is_not_known_last() -> None:
    rows = [{"name": f"t{number:03}", "size": None if number == 7 else number} for number in range(120)]
    columns = {key: (lambda row, key=key: row[key]) for key in ("name", "size")}

    first = page_of(rows, {"x": "1"}, columns, name=columns["name"], default="size")
    last = page_of(rows, {"page": "9", "sort": "size", "desc": "0"}, columns, name=columns["name"], default="size")

    assert first.rows[0]["size"] == 119 and (len(first.rows), first.pages, first.count) == (ROWS, 3, 120)
    assert last.number == 3 and last.rows[-1]["name"] == "t007"
    assert first.link(page=2) == "?x=1&sort=size&desc=1&page=2"


def test_filter_is_text_and_no_pattern() -> None:
    rows = ["Orders", "order.*", "payments"]
    columns = {"name": str}

    assert page_of(rows, {"filter": "ORDER"}, columns, name=str, default="name").count == 2
    assert page_of(rows, {"filter": ".*"}, columns, name=str, default="name").rows == ["order.*"]


def test_chart_is_broken_where_nothing_was_measured() -> None:
    points = [*((float(second), 1.0) for second in range(0, 300, 10)), *((float(second), 4.0) for second in range(600, 900, 10))]

    drawn = charts.chart("Rate", points, 900.0, 3_600.0, str)

    assert drawn.svg.count("<polyline") == 2 and (drawn.top, drawn.newest, drawn.since) == ("5.0", "4.0", "30 min ago")
    assert charts.chart("Rate", [], 900.0, 3_600.0, str).is_empty


def test_scale_ends_at_a_round_number() -> None:
    assert [charts.nice(value) for value in (0, 0.3, 1, 1.2, 2.4, 7, 99, 100, 101)] == [1, 0.5, 1, 2, 2.5, 10, 100, 100, 200]
