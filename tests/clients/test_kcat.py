"""kcat: an old librdkafka by its command line."""

from __future__ import annotations

import json

import pytest

from tests.clients.adapters import CODECS, ConfluentKafka
from tests.clients.topics import create_topic
from tests.support.kcat import kcat
from tests.support.messages import RECENT_MS, Message
from tests.support.process import ServerProcess

LINES = [f"key-{number}:value-{number}" for number in range(100)]


@pytest.mark.parametrize("codec", CODECS)
def test_what_kcat_produces_it_and_others_read(server: ServerProcess, topic_name: str, codec: str) -> None:
    create_topic(server, topic_name, partitions=3)

    kcat(server, "-P", "-t", topic_name, "-K", ":", "-z", codec, "-H", "origin=kcat", stdin="\n".join(LINES) + "\n")
    printed = kcat(server, "-C", "-t", topic_name, "-e", "-q", "-f", "%k:%s|%h\n")
    read = ConfluentKafka().consume(server, topic_name, len(LINES))

    assert sorted(printed.splitlines()) == sorted(f"{line}|origin=kcat" for line in LINES)
    assert sorted(f"{(record.key or b'').decode()}:{(record.value or b'').decode()}" for record in read) == sorted(LINES)
    assert all(record.headers == (("origin", b"kcat"),) for record in read)


def test_a_group_of_kcat_goes_on_where_it_committed(server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, [Message(0, None, b"%d" % number) for number in range(10)])

    first = kcat(server, "-G", topic_name, "-c", "4", "-q", "-X", "auto.offset.reset=earliest", topic_name)
    second = kcat(server, "-G", topic_name, "-c", "6", "-q", "-X", "auto.offset.reset=earliest", topic_name)

    assert (first + second).split() == [str(number) for number in range(10)]


def test_kcat_lists_and_queries(server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name, partitions=2)
    ConfluentKafka().produce(server, topic_name, [Message(1, None, b"v", timestamp_ms=RECENT_MS + number) for number in range(5)])

    listed = json.loads(kcat(server, "-L", "-J", "-t", topic_name))
    by_time = kcat(server, "-Q", "-t", f"{topic_name}:1:{RECENT_MS + 3}")
    end = kcat(server, "-Q", "-t", f"{topic_name}:1:-1")

    (topic,) = listed["topics"]
    assert (topic["topic"], [partition["partition"] for partition in topic["partitions"]]) == (topic_name, [0, 1])
    assert by_time.split()[-1] == "3"
    assert end.split()[-1] == "5"


def test_kcat_is_told_of_a_topic_that_is_not_there(server: ServerProcess, topic_name: str) -> None:
    refused = kcat(server, "-C", "-t", f"{topic_name}-missing", "-e", expected_status=1)

    assert "Unknown topic or partition" in refused
