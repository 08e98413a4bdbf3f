"""Where replicas are, and are not to be, told by a broker of one kind to a controller of the other (KIP-858, KIP-1066)."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from storage.meta_properties import read_meta_properties
from tests.broker.test_log_directories import known_directories
from tests.support.cluster import BARNABAS, BROKER_ONLY, CONTROLLER_ONLY, KAFKA, Cluster
from tests.support.kafka import missing_java
from tests.support.requirements import needs

TOPIC = "orders"
PARTITIONS = 4
METADATA_VERSION_4_3 = 30


@needs(missing_java())
@pytest.mark.parametrize("kinds", [(KAFKA, BARNABAS), (BARNABAS, KAFKA)], ids=["by us to Kafka", "by Kafka to us"])
def test_a_controller_of_the_other_kind_notes_where_replicas_are(tmp_path: Path, kinds: tuple[str, str]) -> None:
    log_dirs = [tmp_path / "a", tmp_path / "b"]
    roles = {
        1: {"process.roles": CONTROLLER_ONLY},
        2: {"process.roles": BROKER_ONLY, "log.dirs": ",".join(map(str, log_dirs))},
    }
    with Cluster(tmp_path, kinds, node_settings=roles) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, replication_factor=1)
        metadata_log_dir = log_dirs[0] if kinds[1] == BARNABAS else cluster.nodes[1].data_dir

        def are_known() -> bool:
            ids = {path: meta.directory_id for path in log_dirs if (meta := read_meta_properties(path)) is not None}
            places = {int(each.name.rpartition("-")[2]): ids[path] for path in log_dirs for each in path.glob(f"{TOPIC}-*")}
            return len(places) == PARTITIONS and len(set(places.values())) == 2 and known_directories(metadata_log_dir) == places

        assert cluster.wait_for(are_known, "the metadata to say where each replica is")


@needs(missing_java())
@pytest.mark.parametrize("kinds", [(KAFKA, BARNABAS), (BARNABAS, KAFKA)], ids=["by us to Kafka", "by Kafka to us"])
def test_a_controller_of_the_other_kind_hears_which_directories_are_cordoned(tmp_path: Path, kinds: tuple[str, str]) -> None:
    """KIP-1066: at the start from the properties, then as the config is altered, by way of the broker that has the directories."""
    log_dirs = [tmp_path / "a", tmp_path / "b"]
    roles = {
        1: {"process.roles": CONTROLLER_ONLY},
        2: {"process.roles": BROKER_ONLY, "log.dirs": ",".join(map(str, log_dirs)), "cordoned.log.dirs": "*"},
    }
    with Cluster(tmp_path, kinds, node_settings=roles) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

        def cordon(value: str) -> None:
            entry = ConfigEntry("cordoned.log.dirs", value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.BROKER, "2", incremental_configs=[entry])
            for future in admin.incremental_alter_configs([resource]).values():
                future.result()

        def refusal() -> str | None:
            future = admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)], validate_only=True)[TOPIC]
            error = future.exception()
            return None if error is None else str(error)

        level = FeatureUpdateKey(feature="metadata.version", max_version_level=METADATA_VERSION_4_3)
        below = refusal()
        cluster.ask_node(2, UpdateFeaturesRequest(feature_updates=[level]), 1)
        by_the_file = cluster.wait_for(lambda: "all their log directories cordoned" in (refusal() or ""), "the controller to refuse")
        cordon(str(log_dirs[0]))
        assert by_the_file and below is None
        assert cluster.wait_for(lambda: refusal() is None, "the controller to take topics again")
        cordon("*")
        assert cluster.wait_for(lambda: refusal() is not None, "the controller to refuse again")
