"""What the controller makes of registrations, heartbeats and silence: who is a broker, who leads, who may go."""

from __future__ import annotations

from typing import Any

import pytest

from broker.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import Feature
from protocol.messages.stored.metadata_records import FeatureLevelRecord
from tests.broker.controller.cluster import EMBEDDED, SESSION_MS, TOPIC_ID, Cluster, directory


def refusal(cluster: Cluster, node_id: int = 2, **facts: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        cluster.register(node_id, **facts)
    return refused.value.code


def test_a_broker_registers_fenced_and_is_unfenced_when_it_has_heard_of_it() -> None:
    cluster = Cluster()
    epoch = cluster.register(2)
    broker = cluster.controller.state.brokers[2]

    early = cluster.heartbeat(2, current_metadata_offset=epoch - 1)
    was_fenced = cluster.is_fenced(2)
    caught_up = cluster.heartbeat(2, current_metadata_offset=epoch)

    assert (epoch, broker.is_fenced, broker.rack, broker.log_dirs) == (101, True, "r", (directory(2),))
    assert broker.endpoints == {"PLAINTEXT": ("host-2", 9092), "INTERNAL": ("in", 1)}
    assert (early.is_caught_up, early.is_fenced, was_fenced) == (False, True, True)
    assert (caught_up.is_caught_up, caught_up.is_fenced, cluster.is_fenced(2)) == (True, False, False)


def test_registrations_that_kafka_refuses_are_refused() -> None:
    cluster = Cluster()
    cluster.join(3)
    old = Feature(name="metadata.version", min_supported_version=7, max_supported_version=24)

    assert refusal(cluster, cluster_id="other") is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert refusal(cluster, log_dirs=[]) is ErrorCode.INVALID_REGISTRATION
    assert refusal(cluster, log_dirs=[UNASSIGNED_DIRECTORY]) is ErrorCode.INVALID_REGISTRATION
    assert refusal(cluster, log_dirs=[directory(2), directory(2)]) is ErrorCode.INVALID_REGISTRATION
    assert refusal(cluster, log_dirs=[directory(3)]) is ErrorCode.INVALID_REGISTRATION
    assert refusal(cluster, features=[]) is ErrorCode.INVALID_REGISTRATION
    assert refusal(cluster, features=[old]) is ErrorCode.UNSUPPORTED_VERSION
    assert list(cluster.controller.state.brokers) == [3]


def test_another_incarnation_waits_for_the_end_of_the_first_ones_session() -> None:
    cluster = Cluster()
    cluster.join(2)

    assert refusal(cluster, incarnation_id=bytes(15) + b"\x07") is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += SESSION_MS

    assert cluster.register(2, incarnation=7) > 0


def test_the_same_incarnation_amends_its_registration() -> None:
    cluster = Cluster()
    cluster.join(2)

    epoch = cluster.register(2, rack="other")

    assert (epoch, cluster.controller.state.brokers[2].rack, cluster.is_fenced(2)) == (101, "other", False)


def test_a_new_incarnation_of_the_embedded_broker_waits_for_nobody() -> None:
    """A new controller finds it unfenced in the log: the process that it was is gone."""
    cluster = Cluster()
    cluster.join(EMBEDDED, 2)
    cluster.make_controller(state=cluster.controller.state)

    assert cluster.register(EMBEDDED, incarnation=7) > 0
    assert refusal(cluster, 2, incarnation_id=bytes(15) + b"\x07", log_dirs=[directory(7)]) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_new_incarnation_on_the_same_directories_replaces_one_that_a_new_controller_never_heard_of() -> None:
    """All nodes died at once: the directories' locks were free, so the older process is gone. Kafka's broker waits for 9 s."""
    cluster = Cluster()
    cluster.join(2)
    cluster.make_controller(state=cluster.controller.state)

    assert cluster.register(2, incarnation=7, log_dirs=[directory(2), directory(7)]) > 0


def test_a_new_incarnation_does_not_replace_one_that_the_new_controller_has_heard_of() -> None:
    """Two machines may have been made of one image: with the same broker id, and the same directory ids."""
    cluster = Cluster()
    cluster.join(2)
    cluster.make_controller(state=cluster.controller.state)
    cluster.heartbeat(2)

    assert refusal(cluster, 2, incarnation_id=bytes(15) + b"\x07") is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_new_incarnation_that_lacks_a_directory_waits_for_the_session_also_at_a_new_controller() -> None:
    """The older one may still hold the lock of that directory."""
    cluster = Cluster()
    cluster.register(2, log_dirs=[directory(2), directory(7)])
    cluster.heartbeat(2)
    cluster.make_controller(state=cluster.controller.state)

    assert refusal(cluster, 2, incarnation_id=bytes(15) + b"\x07") is ErrorCode.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize("epoch", [5, 10**6])
def test_a_heartbeat_of_another_epoch_is_refused(epoch: int) -> None:
    cluster = Cluster()
    cluster.join(2)
    cluster.epochs[2] = epoch

    with pytest.raises(KafkaError) as refused:
        cluster.heartbeat(2)

    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_an_unfenced_broker_leads_what_nobody_leads() -> None:
    cluster = Cluster()
    cluster.join(2)
    cluster.partition(3, isr=(3,), leader=-1)
    cluster.register(3)

    cluster.heartbeat(3)

    assert cluster.facts == (3, 1, (3,))


def test_a_silent_broker_is_fenced_and_others_of_the_isr_lead() -> None:
    cluster = Cluster()
    cluster.join(2, 3)
    cluster.partition(2, 3)

    cluster.pass_time(SESSION_MS - 1_000, 3)
    before = cluster.facts
    cluster.pass_time(1_000, 3)

    assert before == (2, 0, (2, 3))
    assert cluster.is_fenced(2) and not cluster.is_fenced(3)
    assert cluster.facts == (3, 1, (3,))


def test_the_isrs_last_member_stays_in_it_and_leads_again_when_it_is_back() -> None:
    cluster = Cluster()
    cluster.join(2)
    cluster.partition(2)
    cluster.pass_time(SESSION_MS)
    gone = cluster.facts

    cluster.register(2, incarnation=7)
    cluster.heartbeat(2)

    assert gone == (-1, 1, (2,))
    assert cluster.facts == (2, 2, (2,))


def test_the_controllers_own_silence_fences_nobody() -> None:
    """Its process stood still: nobody could be heard."""
    cluster = Cluster()
    cluster.join(2)
    cluster.pass_time(2_000, 2)

    cluster.now_ms += 10 * SESSION_MS
    at_once = cluster.expire()
    cluster.pass_time(SESSION_MS)

    assert at_once == [] and cluster.is_fenced(2)


def test_the_embedded_broker_lives_as_long_as_the_controller() -> None:
    cluster = Cluster()
    cluster.join(EMBEDDED)

    cluster.pass_time(10 * SESSION_MS)

    assert not cluster.is_fenced(EMBEDDED)


def test_a_restart_that_nobody_noticed_gives_the_leadership_to_others() -> None:
    cluster = Cluster()
    cluster.join(2, 3)
    cluster.partition(2, 3)
    cluster.now_ms += SESSION_MS

    cluster.register(2, incarnation=7)

    assert cluster.facts == (3, 1, (3,))


def test_a_controlled_shutdown_hands_over_and_waits_until_others_know() -> None:
    cluster = Cluster()
    cluster.join(2, 3)
    cluster.partition(2, 3)
    cluster.heartbeat(3)

    asked = cluster.heartbeat(2, want_shut_down=True)
    after = cluster.facts
    again = cluster.heartbeat(2, want_shut_down=True)
    cluster.heartbeat(3)
    granted = cluster.heartbeat(2, want_shut_down=True)

    assert (asked.should_shut_down, again.should_shut_down, granted.should_shut_down) == (False, False, True)
    assert after == (3, 1, (3,))
    assert cluster.is_fenced(2)


def test_a_node_that_nobody_can_take_over_from_may_go_at_once_and_only_its_fencing_is_written() -> None:
    """It leads as before: a record for each partition would say what its next start takes back."""
    cluster = Cluster()
    cluster.join(EMBEDDED)
    cluster.partition(EMBEDDED)
    offset = cluster.offset

    answer = cluster.heartbeat(EMBEDDED, want_shut_down=True)

    assert answer.should_shut_down and cluster.offset == offset + 1
    assert cluster.is_fenced(EMBEDDED)
    assert cluster.facts == (EMBEDDED, 0, (EMBEDDED,))


def test_the_only_broker_of_a_controller_elsewhere_leads_nothing_after_its_stop() -> None:
    cluster = Cluster()
    cluster.register(2)
    cluster.heartbeat(2)
    cluster.partition(2)

    answer = cluster.heartbeat(2, want_shut_down=True)

    assert answer.should_shut_down and cluster.is_fenced(2)
    assert cluster.facts == (-1, 1, (2,))


def test_a_directory_that_fails_leaves_its_replicas_without_a_leader_in_the_isr() -> None:
    cluster = Cluster()
    cluster.register(2, log_dirs=[directory(2), directory(9)])
    cluster.heartbeat(2)
    cluster.partition(2, directories=[directory(9)])

    cluster.heartbeat(2, offline_log_dirs=[directory(9)])
    offset = cluster.offset
    cluster.heartbeat(2, offline_log_dirs=[directory(9)])

    assert cluster.facts == (-1, 1, (2,)) and cluster.offset == offset
    assert cluster.controller.state.brokers[2].log_dirs == (directory(2),)
    assert cluster.controller.state.topics["t"].partitions[0].directories == (directory(9),)


def test_replicas_are_assigned_to_directories() -> None:
    cluster = Cluster()
    cluster.join(2)
    cluster.partition(2, directories=[UNASSIGNED_DIRECTORY])

    def assign(target: bytes, index: int, topic_id: bytes = TOPIC_ID) -> int:
        partitions = [AssignReplicasToDirsRequestPartitionData(partition_index=index)]
        topics = [AssignReplicasToDirsRequestTopicData(topic_id=topic_id, partitions=partitions)]
        directories = [AssignReplicasToDirsRequestDirectoryData(id=target, topics=topics)]
        request = AssignReplicasToDirsRequest(broker_id=2, broker_epoch=cluster.epochs[2], directories=directories)
        result = cluster.controller.brokers.assign_replicas(request)
        cluster.append(result.records)
        return int(result.response.directories[0].topics[0].partitions[0].error_code)

    errors = [assign(directory(2), 0), assign(directory(2), 7), assign(directory(2), 0, bytes(16))]
    assigned = cluster.controller.state.topics["t"].partitions[0].directories
    leader_then = cluster.facts[0]
    assign(LOST_DIRECTORY, 0)

    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
    assert assigned == (directory(2),) and leader_then == 2
    assert cluster.facts == (-1, 1, (2,))


def _cluster_that_cordons(*node_ids: int) -> Cluster:
    """Node 2 is in it."""
    cluster = Cluster()
    cluster.join(*(node_ids or (2,)))
    cluster.append([FeatureLevelRecord(name="metadata.version", feature_level=30)])
    return cluster


def _cordoned(cluster: Cluster) -> tuple[bytes, ...] | None:
    return cluster.controller.state.brokers[2].cordoned_log_dirs


def test_a_heartbeat_tells_which_directories_are_cordoned() -> None:
    cluster = _cluster_that_cordons()
    before = _cordoned(cluster)

    cluster.heartbeat(2, cordoned_log_dirs=[directory(2)])
    cordoned = _cordoned(cluster)
    cluster.heartbeat(2, cordoned_log_dirs=None)
    not_told = _cordoned(cluster)
    cluster.heartbeat(2, cordoned_log_dirs=[])

    assert (before, cordoned, not_told, _cordoned(cluster)) == (None, (directory(2),), (directory(2),), ())
    assert not cluster.is_fenced(2)


def test_cordoned_directories_make_a_record_only_when_they_change() -> None:
    cluster = _cluster_that_cordons()
    others = [directory(7), directory(2)]
    cluster.heartbeat(2, cordoned_log_dirs=others)
    offset = cluster.offset

    cluster.heartbeat(2, cordoned_log_dirs=others[::-1])

    assert cluster.offset == offset


def test_below_4_3_no_directory_is_cordoned() -> None:
    cluster = Cluster()
    cluster.join(2)

    cluster.heartbeat(2, cordoned_log_dirs=[directory(2)])

    assert _cordoned(cluster) is None


def test_a_broker_is_unfenced_after_its_directories_are_cordoned() -> None:
    """What is placed between the two records does not go there."""
    cluster = _cluster_that_cordons(EMBEDDED, 2)
    cluster.run(cluster.controller.brokers.fence(2))
    seen = []

    request = BrokerHeartbeatRequest(
        broker_id=2, broker_epoch=cluster.epochs[2], current_metadata_offset=cluster.offset, cordoned_log_dirs=[directory(2)]
    )
    for records in cluster.controller.brokers.heartbeat(request, lambda: cluster.offset, cluster.now_ms):
        cluster.append(list(records))
        seen.append((cluster.is_fenced(2), _cordoned(cluster)))

    assert seen[0] == (True, (directory(2),)) and seen[-1] == (False, (directory(2),))
