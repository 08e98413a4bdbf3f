"""The archive and replay jobs against a secured broker, by the file for Java of a user that may read one topic and write the other."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from config.loading import read_properties
from tests.broker.test_secure_command import Secured, librdkafka, run, run_init
from tests.pipeline.spark_support import DRIVER_MEMORY, MASTER, needs_java, run_jobs
from tests.support.ports import neighbours

RECORDS = 100
JOBS = f"""
command-config = "{{config}}"
master = "{MASTER}"
conf = ["{DRIVER_MEMORY}"]
[[job]]
name = "to-files"
command = "archive"
topics = "orders"
to = "{{archive}}"
[[job]]
name = "and-back"
command = "replay"
from = "{{archive}}"
source-topic = "orders"
topic = "again"
at-least-once = true
"""


@needs_java()
def test_topics_are_archived_and_replayed_over_tls_and_sasl(tmp_path: Path) -> None:
    directory = tmp_path / "made"
    run_init(directory, "--port", str(neighbours(2)))
    node = Secured(directory)
    node.start()
    try:
        send(directory, "orders", RECORDS)
        send(directory, "again", 0)
        made = run("secure", "add-user", "archivist", "--read", "orders", "--write", "again", "--directory", str(directory))
        assert made.returncode == 0, made.stderr
        file = tmp_path / "jobs.toml"
        file.write_text(JOBS.format(config=directory / "archivist.properties", archive=tmp_path / "archive"))
        outcome = run_jobs(file)
    finally:
        node.stop()

    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.splitlines()[-1] == f"done: {RECORDS} records"
    password = read_properties(directory / "archivist.properties")["sasl.jaas.config"].split('"')[3]
    assert password not in outcome.stdout + outcome.stderr


def send(directory: Path, topic: str, count: int) -> None:
    producer = Producer({**librdkafka(directory, "client"), "allow.auto.create.topics": True})
    producer.list_topics(topic, timeout=30)
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0
