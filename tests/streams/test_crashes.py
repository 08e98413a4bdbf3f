"""Kafka Streams while brokers are killed: at_least_once, so every number is in the set of its group in the end."""

from __future__ import annotations

import os
from pathlib import Path

from tests.streams.records import PARTITIONS, Topic, sending
from tests.streams.sets import last_sets, sets_of, some_numbers
from tests.streams.topics import create_topics
from tests.support.cluster import Cluster
from tests.support.process import ServerProcess
from tests.support.streams import StreamsHost

NUMBERS = some_numbers(4_000)
TWO_THREADS = {"num.stream.threads": "2"}


def test_nothing_is_lost_when_the_broker_is_killed(
    own_server: ServerProcess, streams_host: StreamsHost, application_id: str, tmp_path: Path
) -> None:
    create_topics(own_server, application_id, "numbers")

    with (
        Topic(own_server.bootstrap, f"{application_id}-output") as output,
        streams_host.start("collect", application_id, own_server.bootstrap, tmp_path / "state", TWO_THREADS) as instance,
    ):
        with sending(own_server.bootstrap, f"{application_id}-numbers", NUMBERS):
            for count in (500, 1_500, 2_500):
                output.wait_count(count)
                own_server.restart(hard=True)
        output.wait(lambda results: last_sets(results) == sets_of(NUMBERS), "all numbers")
        assert instance.store("collected") == sets_of(NUMBERS)
        assert instance.describe().failure is None


def test_nothing_is_lost_when_leaders_are_killed(streams_host: StreamsHost, application_id: str, tmp_path: Path) -> None:
    """Three nodes: one after another they are killed as leaders, and come back. The last begins when the one before is in sync again."""
    kind = os.environ.get("BARNABAS_TEST_SERVER", "barnabas")
    with Cluster(tmp_path, [kind] * 3) as cluster:
        for part in ("numbers", "output"):
            cluster.create_topic(f"{application_id}-{part}", PARTITIONS)
        with (
            Topic(cluster.bootstrap, f"{application_id}-output") as output,
            streams_host.start("collect", application_id, cluster.bootstrap, tmp_path / "state", TWO_THREADS) as instance,
        ):
            with sending(cluster.bootstrap, f"{application_id}-numbers", NUMBERS):
                for count, part in ((500, "by-group-repartition"), (1_500, "collected-changelog")):
                    output.wait_count(count)
                    leader_id = cluster.partition(f"{application_id}-{part}").leader_id
                    cluster.kill(leader_id)
                    output.wait_count(count + 500)
                    cluster.start(leader_id)
                    cluster.wait_in_sync()
            output.wait(lambda results: last_sets(results) == sets_of(NUMBERS), "all numbers")
            assert instance.store("collected") == sets_of(NUMBERS)
            assert instance.describe().failure is None
