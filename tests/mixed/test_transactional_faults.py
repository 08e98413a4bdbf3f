"""Copiers in transactions on two nodes of Apache Kafka 4.3.1 and two of ours: the transaction coordinators are of one kind, and the
partitions that transactions write to, those of groups' offsets among them, are of the other. Nodes of both kinds and clients are killed.

No partition is ever without a leader: a Kafka node that coordinates would leave the transaction open there (KAFKA-20734). So all replicas
are in sync before the next node is killed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.transactional_campaign import KILL_CLIENT, KILL_COORDINATOR, KILL_GROUP_COORDINATOR, TransactionalCampaign
from tests.faults.transactional_load import PYTHON_PIPELINES
from tests.support.cluster import BARNABAS, KAFKA, Cluster
from tests.support.kafka import missing_java
from tests.support.requirements import needs

KINDS = (KAFKA, BARNABAS, KAFKA, BARNABAS)
FAULTS = (KILL_COORDINATOR, "kill-leader", KILL_CLIENT, KILL_GROUP_COORDINATOR, KILL_CLIENT)
SETTINGS = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "min.insync.replicas": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}


@needs(missing_java())
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("coordinators", "level"), [(KAFKA, 0), (BARNABAS, 2)])
def test_a_coordinator_of_one_kind_ends_transactions_in_partitions_of_the_other(tmp_path: Path, coordinators: str, level: int) -> None:
    ids = [node_id for node_id, kind in enumerate(KINDS, start=1) if kind == coordinators]
    others = [node_id for node_id, kind in enumerate(KINDS, start=1) if kind != coordinators]
    with Cluster(tmp_path, KINDS, settings=SETTINGS, features=[f"transaction.version={level}"]) as cluster:
        compacted = {"cleanup.policy": "compact", "compression.type": "uncompressed"}
        cluster.create_topic("__transaction_state", assignment=[ids, ids[::-1]], config=compacted)
        cluster.create_topic("__consumer_offsets", assignment=[others, others[::-1]], config={"cleanup.policy": "compact"})
        partitions = [others, others[::-1], others]
        campaign = TransactionalCampaign(cluster, PYTHON_PIPELINES, seed=1, pause_s=0, assignment=partitions)
        try:
            window = campaign.run_during(lambda: [campaign.run_fault(kind) for kind in FAULTS])
            assert window.anomalies == {}, window
            assert campaign.check_all() == {}
        finally:
            campaign.close()
