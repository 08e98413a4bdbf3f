"""A program of Kafka Streams that counts words, and the topics that it makes for itself."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from protocol.messages.metadata import MetadataRequest
from tests.clients.topics import eventually
from tests.streams.records import PARTITIONS, Record, Topic, send
from tests.streams.topics import CHANGELOG, create_topics, internal_topics, topic_configs
from tests.support.process import ServerProcess
from tests.support.secured_cluster import Endpoint
from tests.support.streams import StreamsHost
from tests.support.wire import WireClient

WORDS = [f"word{number}" for number in range(20)]
REPARTITION = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime", "retention.ms": "-1", "segment.bytes": "52428800"}


@pytest.mark.secured
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_words_are_counted(endpoint: Endpoint, streams_host: StreamsHost, application_id: str, guarantee: str, tmp_path: Path) -> None:
    create_topics(endpoint.server, application_id, "lines")
    chance = random.Random(1)
    lines = [" ".join(chance.choices(WORDS, k=5)) for _ in range(300)]
    send(endpoint.server.bootstrap, f"{application_id}-lines", [Record(str(number), line) for number, line in enumerate(lines)])

    settings = {**endpoint.security(), "processing.guarantee": guarantee}
    with Topic(endpoint.server.bootstrap, f"{application_id}-output") as output:
        with streams_host.start("word-count", application_id, endpoint.bootstrap, tmp_path, settings):
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
