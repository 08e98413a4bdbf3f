"""What is printed for a person."""

from __future__ import annotations

import pytest

from barnabas.cli.errors import NotUnderstoodError, RefusedError
from barnabas.cli.output import Column, Output, confirm, human_bytes, human_duration
from barnabas.cli.times import parse_duration_ms, parse_time_ms, to_text

NOW_MS = 1_700_000_000_000


def test_what_a_cluster_says_gives_a_terminal_no_orders(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table").rows([{"name": "a\x1b[2J\r\nb\u202ec", "size": None}], [Column("name", "NAME"), Column("size", "SIZE")])

    assert capsys.readouterr().out == "NAME                  SIZE\na\\x1b[2J\\r\\nb\\u202ec  -\n"


def test_table_of_no_terminal_is_cut_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table").rows([{"name": "x" * 500}], [Column("name", "NAME"), Column("more", "MORE", is_wide=True)])

    assert capsys.readouterr().out == f"NAME\n{'x' * 500}\n"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (999_999, "1.0 MB"), (1_234_567, "1.2 MB"), (10**16, "10000.0 TB")]
)
def test_bytes_for_a_person(size: int, text: str) -> None:
    assert human_bytes(size) == text


@pytest.mark.parametrize(
    ("duration_ms", "text"), [(1_250, "1.2s"), (60_000, "1m 0s"), (3_725_000, "1h 2m"), (90_000_000, "1d 1h"), (-5, "0.0s")]
)
def test_duration_for_a_person(duration_ms: int, text: str) -> None:
    assert human_duration(duration_ms) == text


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1700000000", NOW_MS), ("1700000000123", NOW_MS + 123), ("now", NOW_MS), ("-1h30m", NOW_MS - 5_400_000),
        ("2023-11-14T22:13:20", NOW_MS), ("2023-11-14T23:13:20+01:00", NOW_MS), ("-P1D", NOW_MS - 86_400_000),
    ],
)  # fmt: skip
def test_time_as_people_write_it(text: str, time_ms: int) -> None:
    assert parse_time_ms(text, NOW_MS) == time_ms


@pytest.mark.parametrize("text", ["", "tomorrow", "-", "-1x", "-P", "2023-99-99"])
def test_other_words_are_no_time(text: str) -> None:
    with pytest.raises(NotUnderstoodError):
        parse_time_ms(text, NOW_MS)


def test_duration_and_time_as_text() -> None:
    assert parse_duration_ms("1d2h3m4s5ms") == parse_duration_ms("P1DT2H3M4S") + 5 == 93_784_005
    assert (to_text(NOW_MS + 7), to_text(10**18)) == ("2023-11-14T22:13:20.007Z", str(10**18))


@pytest.mark.parametrize(("answer", "is_done"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_person_is_asked(answer: str, is_done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return answer

    monkeypatch.setattr("sys.stdin", Terminal())

    if is_done:
        assert confirm(["delete"], dry_run=False, yes=False)
    else:
        with pytest.raises(RefusedError, match="nothing was done"):
            confirm(["delete"], dry_run=False, yes=False)
