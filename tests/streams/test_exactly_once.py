"""Kafka Streams with exactly_once_v2 while brokers and instances are killed: each record is counted once, and each count comes out once."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.streams.records import PARTITIONS, Record, Topic, sending
from tests.streams.topics import create_topics
from tests.support.cluster import Cluster
from tests.support.process import ServerProcess
from tests.support.streams import StreamsHost

WORDS = 8
LINES = [Record(str(number), f"word{number % WORDS}") for number in range(3_200)]
EXPECTED = {f"word{number}": [str(count) for count in range(1, len(LINES) // WORDS + 1)] for number in range(WORDS)}
EXACTLY_ONCE = {"processing.guarantee": "exactly_once_v2", "num.stream.threads": "2"}
SHORT_SESSIONS = {"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "1500"}
QUICK_ABORTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


def counts(results: Iterable[Record]) -> dict[str, list[str]]:
    """What came out for each word, in its order."""
    found: dict[str, list[str]] = defaultdict(list)
    for each in results:
        found[each.key].append(each.value or "")
    return dict(found)


def test_each_record_counts_once_while_the_broker_is_killed(
    own_server: ServerProcess, streams_host: StreamsHost, application_id: str, tmp_path: Path
) -> None:
    create_topics(own_server, application_id, "lines")

    with (
        Topic(own_server.bootstrap, f"{application_id}-output") as output,
        streams_host.start("word-count", application_id, own_server.bootstrap, tmp_path / "state", EXACTLY_ONCE) as instance,
    ):
        with sending(own_server.bootstrap, f"{application_id}-lines", LINES):
            for count in (400, 1_200, 2_000):
                output.wait_count(count)
                own_server.restart(hard=True)
        output.wait_count(len(LINES))
        assert counts(output.read()) == EXPECTED
        assert instance.describe().failure is None


def test_each_record_counts_once_while_an_instance_is_killed(
    make_server: Callable[[dict[str, str]], ServerProcess],
    streams_host: StreamsHost,
    new_host: Callable[[], StreamsHost],
    application_id: str,
    tmp_path: Path,
) -> None:
    """The transactions of the one that is killed are aborted after their timeout, and its share is taken over."""
    server = make_server(QUICK_ABORTS)
    create_topics(server, application_id, "lines")
    killed = new_host()

    with Topic(server.bootstrap, f"{application_id}-output") as output:
        killed.start("word-count", application_id, server.bootstrap, tmp_path / "killed", EXACTLY_ONCE | SHORT_SESSIONS)
        with sending(server.bootstrap, f"{application_id}-lines", LINES):
            output.wait_count(800)
            killed.kill()
            with streams_host.start("word-count", application_id, server.bootstrap, tmp_path / "next", EXACTLY_ONCE) as instance:
                output.wait_count(len(LINES))
                assert instance.describe().failure is None
        assert counts(output.read()) == EXPECTED


def test_each_record_counts_once_while_coordinators_and_leaders_are_killed(
    streams_host: StreamsHost, application_id: str, tmp_path: Path
) -> None:
    kind = os.environ.get("BARNABAS_TEST_SERVER", "barnabas")
    with Cluster(tmp_path, [kind] * 3, settings={"transaction.state.log.num.partitions": "1"}) as cluster:
        for part in ("lines", "output"):
            cluster.create_topic(f"{application_id}-{part}", PARTITIONS)
        with (
            Topic(cluster.bootstrap, f"{application_id}-output") as output,
            streams_host.start("word-count", application_id, cluster.bootstrap, tmp_path / "state", EXACTLY_ONCE) as instance,
        ):
            with sending(cluster.bootstrap, f"{application_id}-lines", LINES):
                for count, topic in ((400, "__transaction_state"), (1_300, f"{application_id}-counts-changelog")):
                    output.wait_count(count)
                    leader_id = cluster.partition(topic).leader_id
                    cluster.kill(leader_id)
                    output.wait_count(count + 400)
                    cluster.start(leader_id)
                    cluster.wait_in_sync()
            output.wait_count(len(LINES))
            assert counts(output.read()) == EXPECTED
            assert instance.describe().failure is None
