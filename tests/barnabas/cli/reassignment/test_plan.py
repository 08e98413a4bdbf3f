"""Where replicas are put: few moves, equal loads, racks apart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.reassignment.plan import Assignment, spread
from barnabas.cli.reassignment.plan_file import read_plan, write_plan
from barnabas.cli.reassignment.throttle import parse_rate


def without_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def copied(before: Assignment, after: Assignment) -> int:
    return sum(len({*after[each]} - {*before[each]}) for each in before)


def loads(planned: Assignment) -> Counter[int]:
    return Counter(broker for replicas in planned.values() for broker in replicas)


def test_what_is_balanced_stays() -> None:
    current = {("t", index): [1 + index % 3, 1 + (index + 1) % 3] for index in range(6)}

    assert spread(current, without_racks(1, 2, 3)) == current


def test_new_broker_gets_its_share_and_no_more_is_copied() -> None:
    current = {("t", index): [1 + index % 3, 1 + (index + 1) % 3] for index in range(12)}

    planned = spread(current, without_racks(1, 2, 3, 4))

    assert loads(planned) == {1: 6, 2: 6, 3: 6, 4: 6} and copied(current, planned) == 6
    leaders = Counter(replicas[0] for replicas in planned.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1


def test_broker_that_may_have_none_is_emptied() -> None:
    current = {("t", index): [1, 2 + index % 2] for index in range(8)}

    planned = spread(current, without_racks(2, 3, 4))

    assert 1 not in loads(planned) and set(loads(planned).values()) <= {5, 6} and copied(current, planned) <= 9


@pytest.mark.parametrize("replication_factor", [1, 3])
def test_replication_factor_changes_what_it_must(replication_factor: int) -> None:
    current = {("t", index): [1 + index % 4, 1 + (index + 1) % 4] for index in range(8)}

    planned = spread(current, without_racks(1, 2, 3, 4), replication_factor)

    assert all(len({*replicas}) == replication_factor == len(replicas) for replicas in planned.values())
    assert copied(current, planned) == (8 if replication_factor == 3 else 0)
    assert set(loads(planned).values()) == {2 * replication_factor}


def test_racks_are_kept_apart() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}

    planned = spread({("t", index): [1 + index % 4] for index in range(8)}, racks, 2)

    assert all({racks[broker] for broker in replicas} == {"a", "b"} for replicas in planned.values())
    assert set(loads(planned).values()) == {4}


def test_plan_is_written_and_read_as_kafka_has_it(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan(path, {("t", 1): [3, 2], ("t", 0): [1]})

    assert path.read_text() == (
        '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["any"]}, '
        '{"topic": "t", "partition": 1, "replicas": [3, 2], "log_dirs": ["any", "any"]}]}\n'
    )
    assert read_plan(str(path)) == ({("t", 0): [1], ("t", 1): [3, 2]}, {})
    path.write_text('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/data/2"]}]}')
    assert read_plan(str(path)).directories == {(("t", 0), 2): "/data/2"}


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"partitions": []}', '{"version": 2, "partitions": []}', '{"partitions": [{"topic": "t", "partition": 0}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": []}]}'.replace("[]", '["any", "any"]'),
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}, {"topic": "t", "partition": 0, "replicas": [2]}]}',
    ],
)  # fmt: skip
def test_file_that_is_no_plan_is_not_understood(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)

    with pytest.raises(NotUnderstoodError, match=str(path)):
        read_plan(str(path))


def test_rates_are_bytes_a_second() -> None:
    assert [parse_rate(text) for text in ("1000", "10MB", "512k", "2 MiB/s", "1G")] == [
        1_000,
        10_000_000,
        512_000,
        2_097_152,
        1_000_000_000,
    ]
    for text in ("", "0", "fast", "-1", "1.5M"):
        with pytest.raises(NotUnderstoodError):
            parse_rate(text)
