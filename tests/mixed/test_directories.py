"""Where replicas are, told by a broker of one kind to a controller of the other (AssignReplicasToDirs, KIP-858)."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.meta_properties import read_meta_properties
from tests.broker.test_log_directories import known_directories
from tests.support.cluster import BARNABAS, BROKER_ONLY, CONTROLLER_ONLY, KAFKA, Cluster
from tests.support.kafka import missing_java
from tests.support.requirements import needs

TOPIC = "orders"
PARTITIONS = 4


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
