"""The alert rules: what promtool says of them, and that they fire when brokers of a cluster are killed, a group falls behind or a log
directory cannot be used."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.broker.dashboards.test_dashboards import PARTITIONS, TOPIC, labels_of, use
from tests.clients.adapters import ConfluentKafka
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster, free_ports
from tests.support.messages import Message
from tests.support.prometheus import Prometheus, promtool
from tests.support.small_disk import SmallDisk, missing_small_disk
from tests.support.sources import ROOT

ALERTS = ROOT / "config" / "prometheus" / "alerts.yml"
CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "alerts.yml").read_text())
DISK_BYTES, FILLED_BYTES = 32 << 20, 30 << 20


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    return found


def impatient_rules(path: Path) -> Path:
    """The rules without `for`, and with what waits for minutes or thousands of records made small."""
    text = re.sub(r"^ +for: .*\n", "", ALERTS.read_text(), flags=re.MULTILINE).replace("[15m]", "[1m]").replace("> 1000", "> 10")
    path.write_text(text)
    return path


def test_promtool_takes_the_rules_and_the_configuration_of_docker_compose(tmp_path: Path) -> None:
    config = (ALERTS.parent / "prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(config.replace("/etc/prometheus/alerts.yml", str(ALERTS)))

    assert f"{len(rules())} rules found" in promtool("check", "rules", str(ALERTS))
    assert "is valid prometheus config file" in promtool("check", "config", str(tmp_path / "prometheus.yml"))


def test_each_alert_fires_for_what_it_watches_and_not_for_what_is_in_order(tmp_path: Path) -> None:
    by_name = {rule["alert"]: rule for rule in rules()}
    assert [case["alert"] for case in CASES] == list(by_name)

    # promtool compares annotations too: the tests are of the same rules without them.
    bare = [{key: value for key, value in rule.items() if key != "annotations"} for rule in by_name.values()]
    (tmp_path / "alerts.yml").write_text(json.dumps({"groups": [{"name": "barnabas", "rules": bare}]}))
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": str(values)} for name, values in case["series"].items()],
            "alert_rule_test": [
                {
                    "eval_time": case["after"],
                    "alertname": case["alert"],
                    "exp_alerts": [{"exp_labels": by_name[case["alert"]]["labels"] | case["fires_for"]}],
                }
            ],
        }
        for case in CASES
    ]
    (tmp_path / "tests.yml").write_text(json.dumps({"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": tests}))

    assert "SUCCESS" in promtool("test", "rules", "tests.yml", cwd=tmp_path)


def test_alerts_fire_when_a_group_falls_behind_and_nodes_are_killed(tmp_path: Path) -> None:
    addresses = {node_id: f"127.0.0.1:{port}" for node_id, port in zip((1, 2, 3), free_ports(3), strict=True)}
    settings = {node_id: {"barnabas.metrics.listener": address} for node_id, address in addresses.items()}
    targets = {address: labels_of(node_id) for node_id, address in addresses.items()}
    with (
        Cluster(tmp_path / "cluster", node_settings=settings) as cluster,
        Prometheus(tmp_path, targets, rule_files=[impatient_rules(tmp_path / "impatient.yml")]) as prometheus,
    ):
        killed = 1 + cluster.controller_id() % 3
        cluster.create_topic(TOPIC, partitions=PARTITIONS, config={"min.insync.replicas": "3"})
        cluster.create_topic("alone", assignment=[[killed]])
        messages = [Message(number % PARTITIONS, None, b"x") for number in range(30)]
        ConfluentKafka().produce(cluster.nodes[1], TOPIC, messages)
        use(cluster.bootstrap, count=30)
        assert prometheus.wait_for("sum(kafka_consumergroup_lag_sum) == 0")
        cluster.wait_for(lambda: not prometheus.firing(), "no alert to fire, when all nodes have been scraped")

        def produce() -> bool:
            ConfluentKafka().produce(cluster.nodes[1], TOPIC, messages)
            return "KafkaLagGrows" in prometheus.firing()

        cluster.wait_for(produce, "KafkaLagGrows to fire")
        cluster.kill(killed)
        for name in ("KafkaOfflinePartitions", "KafkaUnderMinIsr", "KafkaUnderReplicated", "KafkaBrokerFenced", "KafkaNodeDown"):
            prometheus.wait_firing(name)
        assert "KafkaNoActiveController" not in prometheus.firing()
        cluster.kill(cluster.controller_id())
        prometheus.wait_firing("KafkaNoActiveController")


@pytest.mark.skipif(missing_small_disk() is not None, reason="mounting small disks needs root")
def test_alerts_fire_for_a_full_disk_and_a_log_directory_that_cannot_be_used(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    disk = SmallDisk(tmp_path / "disk", DISK_BYTES)
    broker = BrokerProcess(
        tmp_path / "broker",
        {"log.dirs": f"{tmp_path / 'disk' / 'data'},{tmp_path / 'lost'}", "barnabas.metrics.listener": address},
    )
    try:
        broker.start()
        broker.stop()
        shutil.rmtree(tmp_path / "lost")
        (tmp_path / "lost").write_text("not a folder")
        broker.start()
        with (tmp_path / "disk" / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, FILLED_BYTES)
        with Prometheus(tmp_path, {address: {}}, rule_files=[impatient_rules(tmp_path / "impatient.yml")]) as prometheus:
            prometheus.wait_firing("KafkaDiskLow")
            prometheus.wait_firing("KafkaLogDirectoryFailed")
            assert prometheus.firing() == {"KafkaDiskLow", "KafkaLogDirectoryFailed"}
    finally:
        broker.kill()
        disk.close()
