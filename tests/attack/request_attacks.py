"""Requests about many things: each is legal, or is refused only after it was read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch
from tests.attack.attacker import Attacker
from tests.attack.target import ATTACKED_TOPIC

PARTITIONS = 9_000
MANY_TOPICS = 4_500
TOPICS_PER_REQUEST = 500
ENTRIES = 19_900  # below barnabas.request.entries.max, 20,000
FETCHED_ENTRIES = 29_900  # half more in a Fetch
BYTES_MAX = 16 << 20  # barnabas.request.bytes.max
WIDE_TOPIC = "wide"
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
FETCHED_BYTES_MAX = 1 << 20
SESSIONS = 20
METADATA_BYTES = 4_000  # just below offset.metadata.max.bytes
LONG_METADATA_BYTES = 30_000


def describe_one_many_times(attacker: Attacker) -> None:
    """DescribeConfigs of the same resource 4,000 times, with documentation."""
    for kind, name in ((TOPIC_RESOURCE, ATTACKED_TOPIC), (BROKER_RESOURCE, "1")):
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        count = attacker.count(4_000)
        message = DescribeConfigsRequest(resources=[resource] * count, include_synonyms=True, include_documentation=True)
        attacker.ask(f"DescribeConfigs, {count} × type {kind}", message, 4)


def find_long_keys(attacker: Attacker) -> None:
    """FindCoordinator of 550 keys of 30 KB, twice: the second time from a cache, if there is one. 20 more keys are refused."""
    count = attacker.count(550)
    keys = [f"{number:05}" + "k" * 29_995 for number in range(count)]
    for _ in range(2):
        attacker.ask(f"FindCoordinator, {count} keys of 30 KB", FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4)
    many = FindCoordinatorRequest(key_type=0, coordinator_keys=["k" * 30_000] * (BYTES_MAX // 30_000 + 1))
    attacker.ask_refused(many, 4)


def ask_for_many_topics(attacker: Attacker) -> None:
    """Metadata of 4,500 topics, of 19,900 names that do not exist, and of names that would be created."""
    names = [f"many-{number:05}" for number in range(attacker.count(MANY_TOPICS))]
    _create(attacker, dict.fromkeys(names, 1))
    for _ in range(3):
        attacker.ask(f"Metadata of all {len(names)} topics", MetadataRequest(topics=None), 12)
    missing = [MetadataRequestTopic(name=f"missing-{number}") for number in range(attacker.count(ENTRIES))]
    attacker.ask(f"Metadata of {len(missing)} missing names", MetadataRequest(topics=missing, allow_auto_topic_creation=False), 12)
    unknown = [MetadataRequestTopic(topic_id=number.to_bytes(16), name=None) for number in range(1, attacker.count(ENTRIES, 2))]
    attacker.ask(f"Metadata of {len(unknown)} unknown ids", MetadataRequest(topics=unknown, allow_auto_topic_creation=False), 12)
    created = [MetadataRequestTopic(name=f"auto-{number}") for number in range(attacker.count(4_000))]
    attacker.ask(f"Metadata that creates {len(created)} topics", MetadataRequest(topics=created, allow_auto_topic_creation=True), 12)
    _delete(attacker, [*names, *(f"auto-{number}" for number in range(len(created)))])


def fetch_many_partitions(attacker: Attacker) -> None:
    """Fetch that names 9,000 partitions, then 29,900 entries, twice: new to the broker and known."""
    with _wide_topic(attacker) as count:
        for entries in (count, attacker.count(FETCHED_ENTRIES - 1)):
            partitions = [_fetched(number % count) for number in range(entries)]
            for _ in range(2):
                attacker.ask(f"Fetch of {entries} entries", _fetch(partitions), 12)
        missing = attacker.count(FETCHED_ENTRIES // 2)
        unknown = [FetchTopic(topic=f"missing-{number}", partitions=[_fetched(0)]) for number in range(missing)]
        attacker.ask(f"Fetch of {len(unknown)} missing topics", _fetch([], unknown), 12)


def open_many_sessions(attacker: Attacker) -> None:
    """Fetch sessions of 9,000 partitions each; a few requests to each."""
    with _wide_topic(attacker) as count:
        for number in range(attacker.count(SESSIONS, at_least=2)):
            with attacker.client() as client, attacker.step(f"session of {count} partitions, full fetch") as _:
                first = client.request(_fetch([_fetched(place) for place in range(count)], epoch=0), 12)
                attacker.tally.answered += 1
                for epoch in (1, 2):
                    client.request(_fetch([_fetched(place) for place in range(number)], session_id=first.session_id, epoch=epoch), 12)
                    attacker.tally.answered += 1


def produce_to_many_partitions(attacker: Attacker) -> None:
    """Produce to 9,000 partitions at once, and to 19,800 that do not exist."""
    batch = build_batch([SimpleRecord(None, b"x" * 50)])
    with _wide_topic(attacker) as count:
        for entries in (count, count, attacker.count(ENTRIES - 100)):
            data = [PartitionProduceData(index=number, records=bytes(batch)) for number in range(entries)]
            topic = TopicProduceData(name=WIDE_TOPIC, partition_data=data)
            attacker.ask(f"Produce to {entries} partitions", ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)


def create_and_delete(attacker: Attacker) -> None:
    """Topics of 9,000 and 10,000 partitions made and deleted, and 19,900 names that cannot be either."""
    for count in (attacker.count(9_000), attacker.count(9_990), attacker.count(20_000)):
        topic = CreatableTopic(name=f"large-{count}", num_partitions=count, replication_factor=1)
        attacker.ask(f"CreateTopics of {count} partitions", CreateTopicsRequest(topics=[topic]), 7)
        _delete(attacker, [f"large-{count}"])
    refused = [CreatableTopic(name=f"bad/{number}", num_partitions=1, replication_factor=1) for number in range(attacker.count(ENTRIES))]
    attacker.ask(f"CreateTopics of {len(refused)} bad names", CreateTopicsRequest(topics=refused), 7)
    _delete(attacker, [f"missing-{number}" for number in range(attacker.count(ENTRIES))], chunk=ENTRIES)


def commit_megabytes(attacker: Attacker) -> None:
    """OffsetCommit of 16 MB: metadata that may be kept, and metadata that is too long. More is refused."""
    with _wide_topic(attacker) as count:
        for length, entries in ((METADATA_BYTES, attacker.count(4_100)), (LONG_METADATA_BYTES, attacker.count(550))):
            text = "m" * length
            partitions = [
                OffsetCommitRequestPartition(partition_index=number % count, committed_metadata=text) for number in range(entries)
            ]
            topic = OffsetCommitRequestTopic(name=WIDE_TOPIC, partitions=partitions)
            attacker.ask(f"OffsetCommit of {entries} × {length} B", OffsetCommitRequest(group_id="megabytes", topics=[topic]), 8)
        many = [OffsetCommitRequestPartition(committed_metadata="m" * METADATA_BYTES)] * (BYTES_MAX // METADATA_BYTES + 1)
        refused = OffsetCommitRequest(group_id="megabytes", topics=[OffsetCommitRequestTopic(name=WIDE_TOPIC, partitions=many)])
        attacker.ask_refused(refused, 8)


def _fetched(partition: int) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=FETCHED_BYTES_MAX)


def _fetch(partitions: list[FetchPartition], topics: Iterable[FetchTopic] = (), *, session_id: int = 0, epoch: int = -1) -> FetchRequest:
    named = [FetchTopic(topic=WIDE_TOPIC, partitions=partitions)] if partitions else []
    return FetchRequest(max_bytes=FETCHED_BYTES_MAX, session_id=session_id, session_epoch=epoch, topics=[*named, *topics])


@contextmanager
def _wide_topic(attacker: Attacker) -> Iterator[int]:
    """A topic of 9,000 partitions, as many in a smaller campaign as it has; deleted afterwards."""
    count = attacker.count(PARTITIONS)
    _create(attacker, {WIDE_TOPIC: count})
    yield count
    _delete(attacker, [WIDE_TOPIC])


def _create(attacker: Attacker, topics: dict[str, int]) -> None:
    """In requests of 500 topics: one operation of the controller may write 10,000 records."""
    names = list(topics)
    with attacker.connect() as connection:
        for place in range(math.ceil(len(names) / TOPICS_PER_REQUEST)):
            part = names[place * TOPICS_PER_REQUEST : (place + 1) * TOPICS_PER_REQUEST]
            wanted = [CreatableTopic(name=name, num_partitions=topics[name], replication_factor=1) for name in part]
            attacker.ask(
                f"CreateTopics of {len(part)}, {topics[part[0]]} partitions", CreateTopicsRequest(topics=wanted), 7, connection=connection
            )


def _delete(attacker: Attacker, names: list[str], *, chunk: int = TOPICS_PER_REQUEST) -> None:
    with attacker.connect() as connection:
        for place in range(math.ceil(len(names) / chunk)):
            states = [DeleteTopicState(name=name) for name in names[place * chunk : (place + 1) * chunk]]
            attacker.ask(f"DeleteTopics of {len(states)}", DeleteTopicsRequest(topics=states, timeout_ms=30_000), 6, connection=connection)
