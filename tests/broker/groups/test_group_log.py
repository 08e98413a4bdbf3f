"""What the log says of groups: one line for a new generation, and no more than a budget, whoever comes and goes."""

from __future__ import annotations

import logging

import pytest

from tests.broker.groups.transcript import Transcript


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_a_consumer_s_life_is_a_line_for_each_generation(caplog: pytest.LogCaptureFixture) -> None:
    script = Transcript()

    script.join("a")
    script.advance(0)
    script.sync("a", a="t-0")
    script.leave("a")

    assert [without_reason(message) for message in caplog.messages] == [
        "group rebalanced group=g generation=1 members=1",
        "group rebalanced group=g generation=2 members=0",
    ]


def without_reason(message: str) -> str:
    return message.partition(" reason=")[0]


def test_a_generation_s_line_says_why_there_is_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    script = Transcript()
    script.join("a")
    script.advance(0)
    script.sync("a", a="t-0")
    caplog.clear()

    script.advance(10_000)

    (message,) = caplog.messages
    assert "generation=2 members=0" in message
    assert "no heartbeat within its session timeout" in message


def test_a_flood_of_groups_is_a_few_lines_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    script = Transcript()

    for number in range(1_000):
        script.member_ids.clear()
        script.join("a", group_id=f"group-{number}")
    script.advance(0)

    assert len(caplog.messages) == 60
    script.advance(60_000)  # in which all members are dropped again
    assert "group rebalanced: 1940 more lines were left out in the last 60 s" in caplog.messages


def test_names_that_no_record_holds_are_told_within_the_budget(caplog: pytest.LogCaptureFixture) -> None:
    """An offset commit for a group whose name is longer than a stored string may be."""
    script = Transcript()

    for number in range(100):
        script.commit(number, group_id="g" * 40_000)

    assert 0 < len(caplog.messages) <= 60


def test_loading_is_told_once_for_all_partitions(caplog: pytest.LogCaptureFixture) -> None:
    script = Transcript()
    script.join("a")
    script.advance(0)
    script.sync("a", a="t-0")
    caplog.clear()

    script.restart()

    assert caplog.messages == ["groups loaded groups=1 partitions=1"]
