"""What the controller answers to a leader that proposes an ISR, and what it writes: AlterPartition."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.image import PartitionImage
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from protocol.messages.stored.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from tests.broker.controller.cluster import TOPIC_ID, Cluster, collected, directory
from tests.broker.metadata.room import NODE_ID, creation, open_room

TOPIC_RESOURCE = 2
RECOVERING = 1


class LedCluster(Cluster):
    """Brokers 1 to 4, and partition a-0 that broker 1 leads for replicas 1, 2 and 3, at leader epoch 5 and partition epoch 7."""

    def __init__(self) -> None:
        super().__init__()
        self.join(1, 2, 3, 4)
        self.append(
            [
                TopicRecord(name="a", topic_id=TOPIC_ID),
                PartitionRecord(
                    partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2, 3], isr=[1, 2], leader=1, leader_epoch=5, partition_epoch=7,
                    directories=[directory(1), directory(2), directory(3)],
                ),
            ]
        )  # fmt: skip

    @property
    def image(self) -> PartitionImage:
        return self.controller.state.topics["a"].partitions[0]

    def change(self, **changes: Any) -> None:
        self.append([PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **changes)])

    def configure(self, **settings: str) -> None:
        self.append(
            [
                ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="a", name=name.replace("_", "."), value=value)
                for name, value in settings.items()
            ]
        )

    def propose(
        self, *isr: int, broker: int = 1, topic_id: bytes = TOPIC_ID, members: list[BrokerState] | None = None, **facts: Any
    ) -> AlterPartitionResponsePartitionData:
        """Broker `broker` proposes `isr`, by default as one that knows everything; the records are committed."""
        asked = AlterPartitionRequestPartitionData(
            partition_index=facts.get("index", 0),
            leader_epoch=facts.get("leader_epoch", self.image.leader_epoch),
            partition_epoch=facts.get("partition_epoch", self.image.partition_epoch),
            leader_recovery_state=facts.get("recovery_state", 0),
            new_isr_with_epochs=members or [BrokerState(broker_id=each, broker_epoch=self.epochs.get(each, -1)) for each in isr],
        )
        request = AlterPartitionRequest(
            broker_id=broker,
            broker_epoch=facts.get("broker_epoch", self.epochs[broker]),
            topics=[AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[asked])],
        )
        result = collected(self.controller.partitions.alter_partition(request))
        self.append(result.records)
        (topic,) = result.response.topics
        assert topic.topic_id == topic_id
        return topic.partitions[0]


@pytest.fixture
def cluster() -> LedCluster:
    return LedCluster()


PARTITIONS = 500


def proposals(cluster: LedCluster, topic_ids: list[bytes], isr: list[int]) -> AlterPartitionRequest:
    """One of broker 1's for PARTITIONS partitions of each topic, made as one of them is."""
    members = [BrokerState(broker_id=each, broker_epoch=cluster.epochs[each]) for each in isr]
    asked = [
        AlterPartitionRequestPartitionData(partition_index=index, leader_epoch=0, partition_epoch=0, new_isr_with_epochs=members)
        for index in range(PARTITIONS)
    ]
    topics = [AlterPartitionRequestTopicData(topic_id=topic_id, partitions=asked) for topic_id in topic_ids]
    return AlterPartitionRequest(broker_id=1, broker_epoch=cluster.epochs[1], topics=topics)


def many_partitions(cluster: LedCluster) -> bytes:
    topic_id = bytes(15) + b"\x09"
    directories = [directory(each) for each in (1, 2, 3)]
    partitions = [
        PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=[1, 2, 3],
            isr=[1, 2],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=directories,
        )
        for index in range(PARTITIONS)
    ]
    cluster.append([TopicRecord(name="many", topic_id=topic_id), *partitions])
    return topic_id


def test_proposals_for_many_partitions_are_decided_in_steps(cluster: LedCluster) -> None:
    many, unknown = many_partitions(cluster), bytes(15) + b"\x77"
    steps = cluster.controller.partitions.alter_partition(proposals(cluster, [many, unknown], [1, 2, 3]))

    sizes = []
    with pytest.raises(StopIteration) as ended:
        while True:
            records = list(next(steps))
            cluster.append(records)
            sizes.append(len(records))

    answers = [[each.error_code for each in topic.partitions] for topic in ended.value.value.topics]
    assert answers == [[ErrorCode.NONE] * PARTITIONS, [ErrorCode.UNKNOWN_TOPIC_ID] * PARTITIONS]
    assert (sum(sizes), max(sizes)) == (PARTITIONS, 25)
    assert len(sizes) >= 2 * PARTITIONS / 25
    assert {partition.isr for partition in cluster.controller.state.topics["many"].partitions} == {(1, 2, 3)}


def test_what_happened_between_two_steps_counts(cluster: LedCluster) -> None:
    """The topic is deleted; later the broker that asks is unregistered."""
    many, other = many_partitions(cluster), TOPIC_ID
    steps = cluster.controller.partitions.alter_partition(proposals(cluster, [many, other], [1, 2, 3]))
    cluster.append(list(next(steps)))

    cluster.append([RemoveTopicRecord(topic_id=many)])
    refused = list(next(steps))
    cluster.append([UnregisterBrokerRecord(broker_id=1, broker_epoch=cluster.epochs[1])])

    assert refused == []
    with pytest.raises(KafkaError) as stale:
        next(steps)
    assert stale.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_refusals_of_many_proposals_write_few_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="barnabas.controller")
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("many", partitions=PARTITIONS))
    asked = [AlterPartitionRequestPartitionData(partition_index=index, leader_epoch=-1, partition_epoch=-1) for index in range(PARTITIONS)]
    topics = [AlterPartitionRequestTopicData(topic_id=room.cache.state.topics["many"].topic_id, partitions=asked)]
    epoch = room.cache.state.brokers[NODE_ID].epoch

    response = await room.local.alter_partition(AlterPartitionRequest(broker_id=NODE_ID, broker_epoch=epoch, topics=topics))
    refusals = [record.getMessage() for record in caplog.records if "ISR change" in record.getMessage()]
    caplog.clear()
    room.clock.advance(10_000)

    assert {each.error_code for each in response.topics[0].partitions} == {ErrorCode.FENCED_LEADER_EPOCH}
    assert len(refusals) == 20
    assert "partition=many-0 error=FENCED_LEADER_EPOCH: the leader epoch is 0, not -1" in refusals[0]
    assert [record.getMessage() for record in caplog.records] == ["ISR changes refused: 480 more lines were left out in the last 10 s"]
    await room.close()


def test_an_isr_grows_and_shrinks_in_one_leader_epoch(cluster: LedCluster) -> None:
    grown = cluster.propose(1, 2, 3)
    shrunk = cluster.propose(1)

    assert (grown.error_code, grown.isr, grown.leader_id, grown.leader_epoch, grown.partition_epoch) == (0, [1, 2, 3], 1, 5, 8)
    assert (shrunk.error_code, shrunk.isr, shrunk.leader_id, shrunk.leader_epoch, shrunk.partition_epoch) == (0, [1], 1, 5, 9)
    assert (cluster.image.isr, cluster.image.leader_epoch, cluster.image.partition_epoch) == ((1,), 5, 9)


def test_the_isr_that_is_already_there_is_confirmed_without_a_record(cluster: LedCluster) -> None:
    answer = cluster.propose(1, 2)

    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [1, 2], 7)
    assert cluster.image.partition_epoch == 7


def test_version_2_names_the_members_without_their_epochs(cluster: LedCluster) -> None:
    asked = AlterPartitionRequestPartitionData(partition_index=0, leader_epoch=5, partition_epoch=7, new_isr=[1, 2, 3])
    topics = [AlterPartitionRequestTopicData(topic_id=TOPIC_ID, partitions=[asked])]
    request = AlterPartitionRequest(broker_id=1, broker_epoch=cluster.epochs[1], topics=topics)

    result = collected(cluster.controller.partitions.alter_partition(request))

    assert result.response.topics[0].partitions[0].isr == [1, 2, 3]


@pytest.mark.parametrize(
    ("error", "isr", "facts"),
    [
        (ErrorCode.UNKNOWN_TOPIC_ID, (1,), {"topic_id": bytes(16)}),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (1,), {"index": 1}),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (1,), {"index": -1}),
        (ErrorCode.NOT_CONTROLLER, (1,), {"leader_epoch": 6}),
        (ErrorCode.NOT_CONTROLLER, (1,), {"partition_epoch": 8}),
        (ErrorCode.NOT_CONTROLLER, (1,), {"leader_epoch": 4, "partition_epoch": 8}),  # the newer one counts
        (ErrorCode.FENCED_LEADER_EPOCH, (1,), {"leader_epoch": 4}),
        (ErrorCode.INVALID_REQUEST, (1, 2), {"broker": 2}),  # it does not lead
        (ErrorCode.INVALID_UPDATE_VERSION, (1,), {"partition_epoch": 6}),
        (ErrorCode.INVALID_REQUEST, (1, 4), {}),  # no replica
        (ErrorCode.INVALID_REQUEST, (1, 2, 2), {}),
        (ErrorCode.INVALID_REQUEST, (2, 3), {}),  # without the leader
        (ErrorCode.INVALID_REQUEST, (1, 2), {"recovery_state": RECOVERING}),
        (ErrorCode.INVALID_REQUEST, (1,), {"recovery_state": RECOVERING}),  # it has recovered already
        (ErrorCode.INVALID_REQUEST, (1,), {"recovery_state": 2}),
    ],
)
def test_refused(cluster: LedCluster, error: ErrorCode, isr: tuple[int, ...], facts: dict[str, Any]) -> None:
    before = cluster.image

    answer = cluster.propose(*isr, **facts)

    assert answer.error_code == error
    assert cluster.image is before


def test_a_broker_of_another_incarnation_is_refused_as_a_whole(cluster: LedCluster) -> None:
    with pytest.raises(KafkaError) as refusal:
        cluster.propose(1, broker_epoch=cluster.epochs[1] - 1)

    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_fenced_brokers_and_those_being_fenced_are_not_eligible(cluster: LedCluster) -> None:
    cluster.heartbeat(2, want_fence=True)
    assert cluster.propose(1, 2).error_code == ErrorCode.INELIGIBLE_REPLICA

    cluster.change(leader=3, isr=[3])  # broker 3 has something to hand over, so that its shutdown takes a while
    cluster.heartbeat(3, want_shut_down=True)
    cluster.change(leader=1, isr=[1])
    assert cluster.propose(1, 3).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_member_that_was_restarted_since_it_fetched_is_not_eligible(cluster: LedCluster) -> None:
    """KIP-903: what it had may be gone."""
    old_epoch = cluster.epochs[3]
    cluster.now_ms += 60_000
    cluster.register(3, incarnation=2)
    cluster.heartbeat(3)
    members = [BrokerState(broker_id=1, broker_epoch=cluster.epochs[1]), BrokerState(broker_id=3, broker_epoch=old_epoch)]

    refused = cluster.propose(members=members)
    members[1].broker_epoch = -1
    unchecked = cluster.propose(members=members)

    assert refused.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert unchecked.error_code == 0


def test_a_leader_tells_that_it_has_recovered_from_an_unclean_election(cluster: LedCluster) -> None:
    cluster.change(isr=[1], leader_recovery_state=RECOVERING)

    still = cluster.propose(1, recovery_state=RECOVERING)
    too_many = cluster.propose(1, 2, recovery_state=RECOVERING)
    recovered = cluster.propose(1, 2)

    assert (still.error_code, still.leader_recovery_state) == (0, RECOVERING)
    assert too_many.error_code == ErrorCode.INVALID_REQUEST
    assert (recovered.error_code, recovered.leader_recovery_state, cluster.image.leader_recovery_state) == (0, 0, 0)


def test_the_isr_that_completes_a_reassignment_drops_the_old_replicas_in_a_new_leader_epoch(cluster: LedCluster) -> None:
    cluster.change(
        replicas=[1, 2, 3, 4], adding_replicas=[4], removing_replicas=[2], directories=[directory(each) for each in (1, 2, 3, 4)]
    )
    cluster.change(isr=[1, 2, 3])

    answer = cluster.propose(1, 2, 3, 4)

    partition = cluster.image
    assert (answer.error_code, answer.isr, answer.leader_epoch, answer.partition_epoch) == (0, [1, 3, 4], 6, 10)
    assert (partition.replicas, partition.isr, partition.adding_replicas, partition.removing_replicas) == ((1, 3, 4), (1, 3, 4), (), ())
    assert (partition.directories, partition.leader_epoch) == ((directory(1), directory(3), directory(4)), 6)


def test_the_leader_that_its_own_proposal_removes_is_told_that_another_leads(cluster: LedCluster) -> None:
    cluster.change(
        replicas=[1, 2, 3, 4], adding_replicas=[4], removing_replicas=[1], directories=[directory(each) for each in (1, 2, 3, 4)]
    )
    cluster.change(isr=[1, 2, 3])

    answer = cluster.propose(1, 2, 3, 4)

    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert (cluster.image.leader, cluster.image.leader_epoch, cluster.image.replicas) == (2, 6, (2, 3, 4))


def test_who_leaves_an_isr_that_gets_too_small_stays_eligible_as_leader(cluster: LedCluster) -> None:
    """KIP-966: the high watermark stands still from there on, so it has everything that is committed."""
    cluster.append([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])
    cluster.configure(min_insync_replicas="2")
    cluster.propose(1)
    below = cluster.image

    cluster.propose(1, 3)

    assert (below.isr, below.eligible_leader_replicas) == ((1,), (2,))
    assert (cluster.image.isr, cluster.image.eligible_leader_replicas) == ((1, 3), ())


def test_without_the_feature_nobody_is_eligible_outside_the_isr(cluster: LedCluster) -> None:
    cluster.configure(min_insync_replicas="2")

    cluster.propose(1)

    assert (cluster.image.isr, cluster.image.eligible_leader_replicas) == ((1,), ())


def test_who_leaves_an_isr_below_its_minimum_stays_eligible_until_the_minimum_is_reached_again() -> None:
    """KIP-966: the high watermark does not move meanwhile."""
    cluster = LedCluster()
    cluster.enable_elr()
    cluster.configure(min_insync_replicas="2")

    cluster.propose(1)
    below = cluster.image.isr, cluster.image.eligible_leader_replicas
    cluster.propose(1, 3)

    assert below == ((1,), (2,))
    assert (cluster.image.isr, cluster.image.eligible_leader_replicas) == ((1, 3), ())


def test_an_unclean_leader_that_has_recovered_says_so_when_its_isr_grows() -> None:
    cluster = LedCluster()
    cluster.change(leader=1, isr=[1], leader_recovery_state=RECOVERING)

    answer = cluster.propose(1, 2)

    assert (answer.error_code, answer.leader_recovery_state, cluster.image.leader_recovery_state) == (0, 0, 0)
