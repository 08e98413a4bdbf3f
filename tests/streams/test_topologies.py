"""What Kafka Streams computes on this broker is what Python computes from the same input: counts, joins and windows of all kinds."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from protocol.messages.metadata import MetadataRequest
from tests.clients.topics import eventually
from tests.streams.records import PARTITIONS, Record, Topic, send
from tests.streams.topics import create_topics, internal_topics, topic_configs
from tests.support.messages import RECENT_MS
from tests.support.process import ServerProcess
from tests.support.streams import StreamsHost
from tests.support.wire import WireClient

# Some hours ago, for brokers take no record that is more than an hour ahead of their clocks.
BEGIN_MS = (RECENT_MS - 6 * 3_600_000) // 10_000 * 10_000
HOUR_MS = 3_600_000
WORDS = [f"word{number}" for number in range(20)]
KEYS = [f"key{number}" for number in range(6)]
LAST_KEYS = [f"last{number}" for number in range(16)]  # enough for all partitions to have some
EMITS_AT_ONCE = {"__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": "0"}
"""Outer joins look at the clock before they tell what found no partner, unless told otherwise."""
REPARTITION = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime", "retention.ms": "-1", "segment.bytes": "52428800"}
CHANGELOG = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}


def values_of(records: Iterable[Record], kind: str) -> list[tuple[str, str]]:
    """Keys and values of the results of this kind, without its name."""
    return [(each.key, each.value.removeprefix(f"{kind} ")) for each in records if each.value and each.value.startswith(f"{kind} ")]


def test_words_are_counted(server: ServerProcess, streams_host: StreamsHost, application_id: str, tmp_path: Path) -> None:
    create_topics(server, application_id, "lines")
    chance = random.Random(1)
    lines = [" ".join(chance.choices(WORDS, k=5)) for _ in range(300)]
    send(server.bootstrap, f"{application_id}-lines", [Record(str(number), line) for number, line in enumerate(lines)])

    with Topic(server.bootstrap, f"{application_id}-output") as output:
        with streams_host.start("word-count", application_id, server.bootstrap, tmp_path):
            output.wait_count(1500)
        results = output.read()

    counted: dict[str, list[int]] = defaultdict(list)
    for record in results:
        counted[record.key].append(int(record.value or 0))
    assert counted == {word: list(range(1, count + 1)) for word, count in Counter(" ".join(lines).split()).items()}


def test_internal_topics_are_as_the_program_needs_them(
    server: ServerProcess, streams_host: StreamsHost, application_id: str, tmp_path: Path
) -> None:
    """A repartition topic keeps all that was not read; a changelog keeps the last value of each key."""
    create_topics(server, application_id, "lines")

    with streams_host.start("word-count", application_id, server.bootstrap, tmp_path) as instance:
        instance.wait_running()

    assert internal_topics(server.bootstrap, application_id) == {"words-repartition", "counts-changelog"}
    assert topic_configs(server.bootstrap, f"{application_id}-words-repartition") == REPARTITION
    assert topic_configs(server.bootstrap, f"{application_id}-counts-changelog") == CHANGELOG
    with Topic(server.bootstrap, f"{application_id}-counts-changelog") as changelog:
        assert len(changelog.bounds()) == PARTITIONS


def test_what_was_read_is_deleted_from_repartition_topics(
    server: ServerProcess, streams_host: StreamsHost, application_id: str, tmp_path: Path
) -> None:
    """By DeleteRecords, once it is committed."""
    create_topics(server, application_id, "lines")
    send(server.bootstrap, f"{application_id}-lines", [Record(str(number), " ".join(WORDS)) for number in range(10)])
    often = {"repartition.purge.interval.ms": "200"}

    with streams_host.start("word-count", application_id, server.bootstrap, tmp_path, often) as instance:
        instance.wait_running()
        with Topic(server.bootstrap, f"{application_id}-words-repartition") as repartition:
            eventually(lambda: sum(start for start, _ in repartition.bounds()) == 200)
            bounds = repartition.bounds()

    assert [start for start, _ in bounds] == [end for _, end in bounds]


def test_program_without_its_topics_ends(server: ServerProcess, streams_host: StreamsHost, application_id: str, tmp_path: Path) -> None:
    """They are not made for it, although topics are made for others who ask for them."""
    with streams_host.start("word-count", application_id, server.bootstrap, tmp_path) as instance:
        failure = instance.wait_failed()

    assert "MissingSourceTopicException" in failure
    with WireClient(server.host, server.port) as client:
        topics = client.request(MetadataRequest(topics=None), 12).topics
    assert not [topic.name for topic in topics if topic.name.startswith(application_id)]


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


def joined(lefts: list[Record], rights: list[Record]) -> dict[str, list[tuple[str, str]]]:
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
    create_topics(server, application_id, "clicks", "users", "scores", "orders", "countries")
    chance = random.Random(3)
    times_ms = iter(sorted(chance.sample(range(BEGIN_MS, BEGIN_MS + 50_000), 200)))
    parts: dict[str, list[Record]] = {"clicks": [], "users": [], "scores": [], "orders": [], "countries": []}
    for number in range(10):
        parts["countries"].append(Record(f"country{number % 4}", f"name{number}", next(times_ms)))
    for number in range(40):
        key = chance.choice(KEYS)
        parts["users"].append(Record(key, None if chance.random() < 0.3 else f"user{number}", next(times_ms)))
        parts["clicks"].append(Record(chance.choice(KEYS), f"country{number % 5} click{number}", next(times_ms)))
        parts["scores"].append(Record(key, None if chance.random() < 0.3 else f"score{number}", next(times_ms)))
        parts["orders"].append(Record(f"order{number % 15}", f"{chance.choice(KEYS)} order{number}", next(times_ms)))
    for part, sent in parts.items():
        send(server.bootstrap, f"{application_id}-{part}", sent)
    users, scores = last_values(parts["users"]), last_values(parts["scores"])
    countries, orders = last_values(parts["countries"]), last_values(parts["orders"])
    clicked = [(click, value_at(parts["users"], click)) for click in parts["clicks"]]
    last_outer = {key: f"outer {scores.get(key)} {users.get(key)}".replace("None", "null") for key in {*users, *scores}}
    last_foreign = {key: f"foreign {order} {users[order.split()[0]]}" for key, order in orders.items() if order.split()[0] in users}

    with Topic(server.bootstrap, f"{application_id}-output") as output:
        with streams_host.start("table-joins", application_id, server.bootstrap, tmp_path) as instance:
            output.wait(lambda results: last_results(results, "outer") == last_outer, "the tables' last join")
            output.wait(lambda results: last_results(results, "foreign") == last_foreign, "the last join by a foreign key")
            output.wait(lambda results: len(values_of(results, "left")) == len(clicked), "all clicks")
            assert instance.store("countries") == countries
        results = output.read()

    assert in_pairs(values_of(results, "left")) == in_pairs((click.key, f"{click.value} {user or 'null'}") for click, user in clicked)
    assert in_pairs(values_of(results, "inner")) == in_pairs((click.key, f"{click.value} {user}") for click, user in clicked if user)
    assert in_pairs(values_of(results, "global")) == in_pairs(
        (click.key, f"{click.value} {countries.get((click.value or '').split()[0], 'null')}") for click, _ in clicked
    )
    assert last_foreign
    assert last_outer


def in_pairs(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(pairs)


def last_values(records: Iterable[Record]) -> dict[str, str]:
    """The table that these updates make."""
    last = {each.key: each.value for each in records}
    return {key: value for key, value in last.items() if value is not None}


def last_results(results: Iterable[Record], kind: str) -> dict[str, str]:
    """The table that the results of this kind make; one without a value takes a key out of it."""
    return last_values(each for each in results if each.value is None or each.value.startswith(f"{kind} "))


def value_at(table: Iterable[Record], record: Record) -> str | None:
    """What the table had for the record's key at the record's time."""
    before = [each.value for each in table if each.key == record.key and each.timestamp_ms <= record.timestamp_ms]
    return before[-1] if before else None


def test_windows_are_counted(server: ServerProcess, streams_host: StreamsHost, application_id: str, tmp_path: Path) -> None:
    """Tumbling, hopping, sliding and session windows; and tumbling ones of which only the last count is told, once."""
    create_topics(server, application_id, "events")
    chance = random.Random(4)
    events = [(chance.choice(KEYS), BEGIN_MS + chance.randrange(10_000)) for _ in range(150)]
    last = [Record(key, key, BEGIN_MS + 2 * HOUR_MS) for key in LAST_KEYS]
    expected = {
        f"{kind} {key} {start} {end}": str(count)
        for kind, windows in WINDOWS.items()
        for (key, start, end), count in windows(events).items()
    }
    closed = {key.replace("tumbling", "closed"): count for key, count in expected.items() if key.startswith("tumbling")}
    send(server.bootstrap, f"{application_id}-events", [Record(str(number), key, time_ms) for number, (key, time_ms) in enumerate(events)])

    with Topic(server.bootstrap, f"{application_id}-output") as output:
        with streams_host.start("windows", application_id, server.bootstrap, tmp_path):
            output.wait(lambda results: last_values(results) == expected, "the last counts")
            send(server.bootstrap, f"{application_id}-events", last)
            output.wait(lambda results: len(of_closed_windows(results)) >= len(closed), "the closed windows")
        results = output.read()

    assert sorted(of_closed_windows(results)) == sorted(closed.items())
    changelog = topic_configs(server.bootstrap, f"{application_id}-tumbling-changelog")
    assert changelog == {**CHANGELOG, "cleanup.policy": "compact,delete", "retention.ms": str(1_000 + 2 * 24 * HOUR_MS)}


def of_closed_windows(results: Iterable[Record]) -> list[tuple[str, str]]:
    return [(each.key, each.value or "") for each in results if each.key.startswith("closed")]


Events = list[tuple[str, int]]
Windows = Counter[tuple[str, int, int]]


def tumbling(events: Events) -> Windows:
    return Counter((key, time_ms // 1000 * 1000, time_ms // 1000 * 1000 + 1000) for key, time_ms in events)


def hopping(events: Events) -> Windows:
    begins = [(key, time_ms // 500 * 500 - back) for key, time_ms in events for back in (0, 500)]
    return Counter((key, begin, begin + 1000) for key, begin in begins)


def sliding(events: Events) -> Windows:
    """A window ends at each record, and another begins right behind it if there is something in it."""
    begins = {(key, begin) for key, time_ms in events for begin in (time_ms - 200, time_ms + 1)}
    return Counter(
        (key, begin, begin + 200) for key, begin in begins for other, time_ms in events if other == key and 0 <= time_ms - begin <= 200
    )


def sessions(events: Events) -> Windows:
    counts: Windows = Counter()
    for key in {key for key, _ in events}:
        times_ms = sorted(time_ms for other, time_ms in events if other == key)
        gaps = [index for index in range(1, len(times_ms)) if times_ms[index] - times_ms[index - 1] > 300]
        for begin, end in itertools.pairwise([0, *gaps, len(times_ms)]):
            counts[key, times_ms[begin], times_ms[end - 1]] = end - begin
    return counts


WINDOWS = {"tumbling": tumbling, "hopping": hopping, "sliding": sliding, "session": sessions}
