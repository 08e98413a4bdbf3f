"""`format("barnabas")` in Spark itself, without a connector on the class path: source and sink, and a query that is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from barnabas.spark.client.cluster import Cluster
from barnabas.spark.client.fetching import EARLIEST, LATEST, Isolation, RangeReader, list_offsets
from barnabas.spark.client.transaction import list_open
from barnabas.spark.records.decode import decode_columns
from broker.cli.authority import Authority
from tests.pipeline.copy_topic import DONE
from tests.pipeline.spark_support import CHECKOUT, kill_group
from tests.support.installed import wait_until
from tests.support.secured_cluster import SecuredCluster

pytestmark = pytest.mark.spark

PARTITIONS = 3
ROWS = 12_000
STEP_S = 180
MODULES = CHECKOUT / "barnabas" / "spark" / "modules"
RIGHTS = ("--read", "written", "--write", "written", "--sink", "write-*")


@pytest.fixture(scope="module")
def broker() -> Iterator[barnabas.Broker]:
    with barnabas.Broker({"num.partitions": PARTITIONS}) as broker:
        yield broker


def committed_values(cluster: Cluster, topic: str) -> Counter[bytes]:
    """The values that a reader of committed records sees, and how often."""
    partitions = list(range(PARTITIONS))
    starts = list_offsets(cluster, topic, partitions, EARLIEST)
    ends = list_offsets(cluster, topic, partitions, LATEST, Isolation.READ_COMMITTED)
    found: Counter[bytes] = Counter()
    for number in partitions:
        reader = RangeReader(cluster, topic, number, start=starts[number], end=ends[number], isolation=Isolation.READ_COMMITTED)
        for payloads in reader:
            found.update(decode_columns(payloads, start_offset=starts[number], end_offset=ends[number]).value.to_pylist())
    return found


def test_what_is_written_is_read_over_tls_and_sasl_and_no_secret_is_shown(tmp_path: Path) -> None:
    """The private key is one that these brokers do not ask for."""
    key = Authority("stranger", int(time.time() * 1000)).pair
    with SecuredCluster(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.server.bootstrap})
        admin.create_topics([NewTopic("written", PARTITIONS)])["written"].result()
        endpoint = cluster.add_user("writer", words=RIGHTS)
        own = {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.key": key.key, "kafka.ssl.keystore.certificate.chain": key.certificate}
        (tmp_path / "options.json").write_text(json.dumps({f"kafka.{name}": text for name, text in endpoint.java.items()} | own))
        driver = start("written_and_read", [str(tmp_path / "options.json"), "written", str(ROWS)])
        try:
            told, _ = driver.communicate(timeout=STEP_S)
        finally:
            kill_group(driver)

    answers = dict(line.split(" ", 1) for line in told.splitlines() if line.startswith(("rows ", "places ", "refusal ")))
    assert answers["rows"] == str([(number, number * 2) for number in range(ROWS)]), told[-3000:]
    assert answers["places"] == str([("written", number, "h", 0) for number in range(PARTITIONS)])
    assert "topic missing: TOPIC_AUTHORIZATION_FAILED" in answers["refusal"]
    assert "== Physical Plan ==" in told
    assert not [secret for secret in (endpoint.login[1], key.key.splitlines()[1]) if secret in told]


def test_a_query_that_is_killed_copies_each_row_once(broker: barnabas.Broker, tmp_path: Path) -> None:
    """kill -9 of the driver, its JVM and its Python workers, in the middle of a batch; then it goes on from its checkpoint."""
    for topic in ("source", "copy"):
        broker.create_topic(topic, PARTITIONS)
    fill(broker, "source")
    cluster = Cluster(broker.bootstrap_servers)
    arguments = [broker.bootstrap_servers, "source", "copy", str(tmp_path / "checkpoint"), "3000"]

    driver = start("copy_topic", arguments)
    try:
        wait_until(lambda: end_of(cluster, "copy") > ROWS // 3, STEP_S, lambda: f"no progress: {output_of(driver)}")
    finally:
        kill_group(driver)
    assert sum(committed_values(cluster, "copy").values()) < ROWS
    driver = start("copy_topic", arguments)
    try:
        told, _ = driver.communicate(timeout=STEP_S)
    finally:
        kill_group(driver)

    assert DONE in told, told[-3000:]
    assert committed_values(cluster, "copy") == Counter({b"value-%d" % number: 1 for number in range(ROWS)})
    assert list_open(cluster, "copy.") == []


def fill(broker: barnabas.Broker, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    for number in range(ROWS):
        producer.produce(topic, key=str(number), value=b"value-%d" % number)
        producer.poll(0)
    assert producer.flush(60) == 0


def start(program: str, arguments: list[str]) -> subprocess.Popen[str]:
    """A driver of its own: Spark looks for data sources when its JVM begins to, with the environment that it has then."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{MODULES}"}
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.pipeline.{program}", *arguments],
        cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def output_of(driver: subprocess.Popen[str]) -> str:
    kill_group(driver)
    assert driver.stdout is not None
    return driver.stdout.read()[-3000:]


def end_of(cluster: Cluster, topic: str) -> int:
    """All offsets that are taken, committed or not."""
    time.sleep(0.02)
    return sum(list_offsets(cluster, topic, list(range(PARTITIONS)), LATEST).values())
