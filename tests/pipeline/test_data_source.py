"""`format("barnabas")` in Spark itself, without a connector on the class path: source and sink. Kills are in test_sink_campaign."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key

from broker.cli.authority import Authority
from tests.pipeline.spark_support import CHECKOUT, kill_group
from tests.support.secured_cluster import SecuredCluster

pytestmark = pytest.mark.spark

PARTITIONS = 3
ROWS = 12_000
STEP_S = 180
MODULES = CHECKOUT / "barnabas" / "spark" / "modules"
KEY_PASSWORD = "open-the-key"
RIGHTS = ("--read", "written", "--write", "written", "--sink", "write-*")


def test_what_is_written_is_read_over_tls_and_sasl_and_no_secret_is_shown(tmp_path: Path) -> None:
    """The private key is one that these brokers do not ask for. Spark may show a text of one, so that it has to be encrypted."""
    key = Authority("stranger", int(time.time() * 1000)).pair
    encryption = BestAvailableEncryption(KEY_PASSWORD.encode())
    encrypted = load_pem_private_key(key.key.encode(), None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
    with SecuredCluster(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.server.bootstrap})
        admin.create_topics([NewTopic("written", PARTITIONS)])["written"].result()
        endpoint = cluster.add_user("writer", words=RIGHTS)
        own = {
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.key": encrypted,
            "kafka.ssl.keystore.certificate.chain": key.certificate,
            "kafka.ssl.key.password": KEY_PASSWORD,
        }
        (tmp_path / "options.json").write_text(json.dumps({f"kafka.{name}": text for name, text in endpoint.java.items()} | own))
        directory = str(cluster.server.data_dir)
        driver = start("written_and_read", [str(tmp_path / "options.json"), "written", str(ROWS), directory])
        try:
            told, _ = driver.communicate(timeout=STEP_S)
        finally:
            kill_group(driver)

    answers = dict(
        line.split(" ", 1) for line in told.splitlines() if line.startswith(("audit ", "rows ", "files ", "places ", "refusal "))
    )
    assert answers["rows"] == str([(number, number * 2) for number in range(ROWS)]), told[-3000:]
    assert answers["files"] == answers["rows"]
    assert answers["audit"] == "['topic', 'partition', 'file', 'position', 'offset', 'problem'] []"
    assert answers["places"] == str([("written", number, "h", 0) for number in range(PARTITIONS)])
    assert "topic missing: TOPIC_AUTHORIZATION_FAILED" in answers["refusal"]
    assert "== Parsed Logical Plan ==" in told
    assert told.count("kafka.ssl.key.password=") == told.count("kafka.ssl.key.password=*********(redacted)")  # 4.3's plan has no options
    assert not [secret for secret in (endpoint.login[1], KEY_PASSWORD) if secret in told]


def start(program: str, arguments: list[str]) -> subprocess.Popen[str]:
    """A driver of its own: Spark looks for data sources when its JVM begins to, with the environment that it has then."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{MODULES}"}
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.pipeline.{program}", *arguments],
        cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
