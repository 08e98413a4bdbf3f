"""A broker that a controller takes for one, and that holds nothing."""

from __future__ import annotations

import time

from broker.metadata.feature_levels import FEATURES
from broker.metadata.features import METADATA_VERSION_FEATURE
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.support.cluster import CLUSTER_ID
from tests.support.wire import WireClient

NODE_ID, PHANTOM_ID = 1, 2
WAIT_S = 30.0
FAR_OFFSET = 2**40  # beyond the end of the metadata log
CLOSED_PORT = 1
LEVEL_MAX = 100  # above all that any server finalizes


def make_stuck_topics(controller: tuple[str, int], node: tuple[str, int], names: list[str]) -> None:
    """Topics that node 1 leads and whose other replica, of a phantom, is out of sync: with min.insync.replicas=2 they take nothing that
    waits for all replicas, and so no markers."""
    with WireClient(*controller) as client, WireClient(*node) as of_node:
        registration = BrokerRegistrationRequest(
            broker_id=PHANTOM_ID,
            cluster_id=CLUSTER_ID,
            incarnation_id=bytes(range(16)),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=CLOSED_PORT)],
            features=[
                Feature(name=name, min_supported_version=0, max_supported_version=100) for name in (METADATA_VERSION_FEATURE, *FEATURES)
            ],
            log_dirs=[bytes(range(16, 32))],
            rack=None,
        )
        registered = client.request(registration, 4)
        assert registered.error_code == 0, registered
        _beat(client, registered.broker_epoch, is_fenced=False)
        replicas = [CreatableReplicaAssignment(partition_index=0, broker_ids=[NODE_ID, PHANTOM_ID])]
        configs = [CreatableTopicConfig(name="min.insync.replicas", value="2")]
        topics = [
            CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=replicas, configs=configs) for name in names
        ]
        created = of_node.request(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
        assert {each.error_code for each in created.topics} == {0}, created
        _beat(client, registered.broker_epoch, is_fenced=True)


def _beat(client: WireClient, broker_epoch: int, *, is_fenced: bool) -> None:
    end_s = time.monotonic() + WAIT_S
    heartbeat = BrokerHeartbeatRequest(
        broker_id=PHANTOM_ID, broker_epoch=broker_epoch, current_metadata_offset=FAR_OFFSET, want_fence=is_fenced
    )
    while (answer := client.request(heartbeat, 1)).error_code or answer.is_fenced is not is_fenced:
        assert time.monotonic() < end_s, answer
        time.sleep(0.05)
