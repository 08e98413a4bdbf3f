"""The pipeline on a standalone Spark cluster: executors are processes of their own, without Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.topics import create_topic
from tests.pipeline.spark_cluster import CLIENT_SETTINGS, SparkCluster
from tests.pipeline.spark_support import DRIVER_MEMORY, needs_java, positions, produce, read_archive, run_jobs, unsorted_files
from tests.support.messages import Message
from tests.support.process import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), needs_java()]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    spark_cluster = SparkCluster(tmp_path)
    try:
        yield spark_cluster.start()
    finally:
        spark_cluster.stop()


JOBS = """
bootstrap-servers = "{servers}"
master = "{master}"
conf = {settings}
[[job]]
name = "to-files"
command = "archive"
topics = "{source}"
to = "{archive}"
[[job]]
name = "and-back"
command = "replay"
from = "{archive}"
source-topic = "{source}"
topic = "{target}"
at-least-once = true
"""


def test_archive_and_replay_run_on_the_executors_of_a_cluster(
    cluster: SparkCluster, server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    source, target, archive = f"{topic_name}-from", f"{topic_name}-to", tmp_path / "archive"
    for topic in (source, target):
        create_topic(server, topic, partitions=2)
    produce(server, source, [Message(i % 2, None, b"%d" % i) for i in range(2000)])
    file = tmp_path / "jobs.toml"
    settings = json.dumps([DRIVER_MEMORY, *CLIENT_SETTINGS])
    file.write_text(
        JOBS.format(servers=server.bootstrap, master=cluster.url, settings=settings, source=source, target=target, archive=archive)
    )

    outcome = run_jobs(file)

    assert outcome.returncode == 0, outcome.stderr[-2000:]
    assert positions(read_archive(archive)) == sorted((source, i % 2, i // 2) for i in range(2000))
    assert not list(unsorted_files(archive))
    assert cluster.executors() == 1, "one executor for the two jobs' session"
    assert outcome.stdout.splitlines()[-1] == "done: 2,000 records"
