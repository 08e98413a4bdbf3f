"""Joins of Kafka Streams are what Python makes of the same records."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from pathlib import Path

from tests.streams.records import BEGIN_MS, KEYS, LAST_KEYS, Record, Topic, last_values, send
from tests.streams.topics import create_topics
from tests.support.process import ServerProcess
from tests.support.streams import StreamsHost

EMITS_AT_ONCE = {"__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": "0"}
"""Outer joins look at the clock before they tell what found no partner, unless told otherwise."""

Pairs = list[tuple[str, str]]


def test_streams_are_joined(server: ServerProcess, streams_host: StreamsHost, application_id: str, tmp_path: Path) -> None:
    create_topics(server, application_id, "left", "right")
    chance = random.Random(2)
    times_ms = chance.sample(range(BEGIN_MS, BEGIN_MS + 5_000), 120)
    records = {
        part: [Record(chance.choice(KEYS), f"{part}{number}", time_ms) for number, time_ms in enumerate(sorted(times))]
        for part, times in (("left", times_ms[:60]), ("right", times_ms[60:]))
    }
    # What comes ten seconds later closes the windows of all before it.
    for key, (part, sent) in itertools.product(LAST_KEYS, records.items()):
        sent.append(Record(key, f"{part}-{key}", BEGIN_MS + 15_000))
    for part, sent in records.items():
        send(server.bootstrap, f"{application_id}-{part}", sent)
    expected = joined(records["left"], records["right"])

    with Topic(server.bootstrap, f"{application_id}-output") as output:
        with streams_host.start("stream-joins", application_id, server.bootstrap, tmp_path, EMITS_AT_ONCE):
            output.wait_count(sum(map(len, expected.values())))
        results = output.read()

    assert {kind: sorted(values_of(results, kind)) for kind in expected} == {kind: sorted(pairs) for kind, pairs in expected.items()}
    assert len(results) == sum(map(len, expected.values()))
    assert len(expected["outer"]) > len(expected["left"]) > len(expected["inner"]) > 20


def joined(lefts: list[Record], rights: list[Record]) -> dict[str, Pairs]:
    """What the three joins tell: the pairs, and in two of them also what found no partner."""
    inner, met = [], set()
    for left, right in itertools.product(lefts, rights):
        if left.key == right.key and abs(left.timestamp_ms - right.timestamp_ms) <= 100:
            inner.append((left.key, f"{left.value} {right.value}"))
            met |= {left, right}
    alone_left = [(left.key, f"{left.value} null") for left in lefts if left not in met]
    alone_right = [(right.key, f"null {right.value}") for right in rights if right not in met]
    return {"inner": inner, "left": [*inner, *alone_left], "outer": [*inner, *alone_left, *alone_right]}


def test_streams_and_tables_are_joined(server: ServerProcess, streams_host: StreamsHost, application_id: str, tmp_path: Path) -> None:
    """A stream with a table and with a global one, two tables, and two tables by a foreign key."""
    create_topics(server, application_id, *TABLE_PARTS)
    parts = some_updates()
    for part, sent in parts.items():
        send(server.bootstrap, f"{application_id}-{part}", sent)
    of_clicks, outer, foreign = joined_clicks(parts), joined_tables(parts), joined_by_foreign_key(parts)

    with Topic(server.bootstrap, f"{application_id}-output") as output:
        with streams_host.start("table-joins", application_id, server.bootstrap, tmp_path) as instance:
            output.wait(lambda results: last_results(results, "outer") == outer, "the tables' last join")
            output.wait(lambda results: last_results(results, "foreign") == foreign, "the last join by a foreign key")
            output.wait(lambda results: all(len(values_of(results, kind)) >= len(of_clicks[kind]) for kind in of_clicks), "all clicks")
            countries = instance.store("countries")
        results = output.read()

    assert countries == last_values(parts["countries"])
    assert {kind: sorted(values_of(results, kind)) for kind in of_clicks} == {kind: sorted(pairs) for kind, pairs in of_clicks.items()}
    assert min(map(len, [*of_clicks.values(), outer, foreign])) > 3


TABLE_PARTS = ("clicks", "users", "scores", "orders", "countries")


def some_updates() -> dict[str, list[Record]]:
    """Clicks, and updates of the tables, at times of their own. Countries are first: a global table is read before all else."""
    chance = random.Random(3)
    times_ms = iter(sorted(chance.sample(range(BEGIN_MS, BEGIN_MS + 50_000), 170)))
    parts: dict[str, list[Record]] = {part: [] for part in TABLE_PARTS}
    for number in range(10):
        parts["countries"].append(Record(f"country{number % 4}", f"name{number}", next(times_ms)))
    for number in range(40):
        key = chance.choice(KEYS)
        parts["users"].append(Record(key, None if chance.random() < 0.3 else f"user{number}", next(times_ms)))
        parts["clicks"].append(Record(chance.choice(KEYS), f"country{number % 5} click{number}", next(times_ms)))
        parts["scores"].append(Record(key, None if chance.random() < 0.3 else f"score{number}", next(times_ms)))
        parts["orders"].append(Record(f"order{number % 15}", f"{chance.choice(KEYS)} order{number}", next(times_ms)))
    return parts


def joined_clicks(parts: dict[str, list[Record]]) -> dict[str, Pairs]:
    """Each click with its user at that time, and with its country."""
    countries = last_values(parts["countries"])
    clicks = [(click.key, click.value or "", value_at(parts["users"], click)) for click in parts["clicks"]]
    return {
        "left": [(key, f"{click} {user or 'null'}") for key, click, user in clicks],
        "inner": [(key, f"{click} {user}") for key, click, user in clicks if user],
        "global": [(key, f"{click} {countries.get(click.split()[0], 'null')}") for key, click, _ in clicks],
    }


def joined_tables(parts: dict[str, list[Record]]) -> dict[str, str]:
    """What the tables have in the end for each key that one of them has."""
    users, scores = last_values(parts["users"]), last_values(parts["scores"])
    return {key: f"outer {scores.get(key, 'null')} {users.get(key, 'null')}" for key in {*users, *scores}}


def joined_by_foreign_key(parts: dict[str, list[Record]]) -> dict[str, str]:
    """Each order in the end with the user that it names, if there is one."""
    users, orders = last_values(parts["users"]), last_values(parts["orders"])
    return {key: f"foreign {order} {users[order.split()[0]]}" for key, order in orders.items() if order.split()[0] in users}


def values_of(records: Iterable[Record], kind: str) -> Pairs:
    """Keys and values of the results of this kind, without its name."""
    return [(each.key, each.value.removeprefix(f"{kind} ")) for each in records if each.value and each.value.startswith(f"{kind} ")]


def last_results(results: Iterable[Record], kind: str) -> dict[str, str]:
    """The table that the results of this kind make; one without a value takes a key out of it."""
    return last_values(each for each in results if each.value is None or each.value.startswith(f"{kind} "))


def value_at(table: Iterable[Record], record: Record) -> str | None:
    """What the table had for the record's key at the record's time."""
    before = [each.value for each in table if each.key == record.key and each.timestamp_ms <= record.timestamp_ms]
    return before[-1] if before else None
