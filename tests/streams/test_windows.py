"""Windows of Kafka Streams have the counts that Python finds in the same events."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.streams.records import BEGIN_MS, HOUR_MS, KEYS, LAST_KEYS, Record, Topic, last_values, send
from tests.streams.topics import CHANGELOG, create_topics, topic_configs
from tests.support.process import ServerProcess
from tests.support.streams import StreamsHost


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
