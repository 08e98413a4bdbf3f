"""The archive and replay jobs against a secured broker, by the file for Java of a user that may read one topic and write the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer

from config.loading import read_properties
from tests.broker.test_secure_command import Secured, librdkafka, run, run_init
from tests.pipeline.spark_support import CHECKOUT, COMMAND_TIMEOUT_S, DRIVER_MEMORY, MASTER, environment, needs_java
from tests.support.ports import neighbours

RECORDS = 100


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
        archived = run_job("archive", directory, "--topics", "orders", "--to", str(tmp_path / "archive"))
        words = ("--from", str(tmp_path / "archive"), "--topic", "again", "--source-topic", "orders", "--at-least-once")
        replayed = run_job("replay", directory, *words)
    finally:
        node.stop()

    assert archived.returncode == 0, archived.stderr
    assert replayed.returncode == 0, replayed.stderr
    password = read_properties(directory / "archivist.properties")["sasl.jaas.config"].split('"')[3]
    assert password not in archived.stdout + archived.stderr + replayed.stdout + replayed.stderr


def send(directory: Path, topic: str, count: int) -> None:
    producer = Producer({**librdkafka(directory, "client"), "allow.auto.create.topics": True})
    producer.list_topics(topic, timeout=30)
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0


def run_job(command: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = ["--command-config", str(directory / "archivist.properties"), "--master", MASTER, "--conf", DRIVER_MEMORY, *arguments]
    return subprocess.run(
        [sys.executable, "-m", "broker.cli.main", "pipeline", command, *words],
        cwd=CHECKOUT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
        start_new_session=True,
    )
