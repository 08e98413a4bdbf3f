"""What must hold in a cluster after every event, checked where it could cease to hold: one leader in each epoch, committed records that
nobody loses or changes, high watermarks that only rise in an epoch, ISRs within the replicas, and the same metadata on every node.

The brokers are watched from inside: for as long as `ClusterWatch.watching` lasts, some methods of the product tell the watch when they
have returned. What is committed is what some leader's high watermark has passed; the watch reads it from that leader's disk.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, NamedTuple
from unittest.mock import patch

from broker.cluster.broker_lifecycle import BrokerLifecycle
from broker.metadata.publisher import MetadataPublisher
from broker.quorum.raft_state import RaftState
from broker.replication.partition import Partition
from broker.replication.partition_role import PartitionRole
from protocol.records import HEADER_SIZE, LOG_OVERHEAD, crc_is_valid, iterate_records, read_header
from storage.log import Log
from tests.simulation.compacted_watch import CommittedRecords, KeyedRecord
from tests.simulation.history import History
from tests.simulation.loop import current_life
from tests.simulation.node import Node

TopicPartition = tuple[bytes, int]  # topic id and partition

_BATCH_START = struct.Struct(">qi")  # base offset, batch length


class Batch(NamedTuple):
    """What all replicas of a batch share."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int


class ClusterWatch:
    """Owner: the world. `nodes` by their hosts, which are the names of their lives. `has_compaction`: the cleaners have something to do."""

    def __init__(self, nodes: dict[str, Node], history: History, *, has_compaction: bool = False) -> None:
        self._nodes = nodes
        self._history = history
        self.committed: dict[TopicPartition, dict[int, Batch]] = defaultdict(dict)  # by base offset
        self.committed_ends: dict[TopicPartition, int] = defaultdict(int)
        self._committed_in: dict[TopicPartition, int] = defaultdict(int)  # the newest leader epoch that committed something
        self._leaders: dict[tuple[TopicPartition, int], str] = {}
        self._controllers: dict[int, int] = {}
        self._high_watermarks: dict[tuple[TopicPartition, int, str, int], int] = {}
        self._metadata: dict[int, tuple[int, str]] = {}
        self._verified: dict[tuple[TopicPartition, str, int], int] = {}
        self._hints: dict[str, tuple[int, int]] = {}  # file: an offset and where its batch begins
        self.replicas: dict[tuple[TopicPartition, str], Partition] = {}
        self.publishers: dict[str, MetadataPublisher] = {}
        self._incarnations: dict[str, tuple[int, bytes]] = {}  # by host: of its process, counted, with which it registers
        self._has_compaction = has_compaction
        self._committed_records = CommittedRecords()

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, told in (
                (Partition, "make_leader", self._made_leader),
                (Partition, "make_follower", self._made_follower),
                (Partition, "maybe_advance_high_watermark", self._maybe_advanced),
                (Partition, "append_as_follower", self._appended_as_follower),
                (BrokerLifecycle, "_registration", self._registers),
                (MetadataPublisher, "handle_commit", self._metadata_committed),
                (MetadataPublisher, "handle_load_snapshot", self._snapshot_loaded),
                (MetadataPublisher, "handle_leader_change", self._controller_changed),
                (RaftState, "become_leader", self._leads_quorum),
            ):
                stack.enter_context(patch.object(owner, name, _telling(getattr(owner, name), told)))
            yield

    # -- partitions --------------------------------------------------------------------------------------------------

    def _made_leader(self, partition: Partition, *_: Any, **__: Any) -> None:
        host, key = self._note_replica(partition)
        if not partition.is_leader:
            return
        leader = self._leaders.setdefault((key, partition.leader_epoch), host)
        if leader != host:
            self._history.find("two-leaders", (repr(partition), partition.leader_epoch, leader, host))
        if (key, host, self._nodes[host].starts_count) not in self._verified or self._is_new_epoch(key, partition.leader_epoch, host):
            self._check_leader_is_complete(partition, key, host)

    def _is_new_epoch(self, key: TopicPartition, leader_epoch: int, host: str) -> bool:
        return (key, leader_epoch, host, self._nodes[host].starts_count) not in self._high_watermarks

    def _made_follower(self, partition: Partition, *_: Any, **__: Any) -> None:
        self._note_replica(partition)

    def _note_replica(self, partition: Partition) -> tuple[str, TopicPartition]:
        host, key = _host(), self.place_of(partition)
        self.replicas[key, host] = partition
        return host, key

    def _check_leader_is_complete(self, partition: Partition, key: TopicPartition, host: str) -> None:
        """Every committed record is in a new leader's log, as it was. One that learns late that it led once need not have them."""
        if partition.leader_epoch < self._committed_in[key]:
            return
        end_offset = self.committed_ends[key]
        if not self._may_be_lost(partition):
            self._compare(partition, key, host, partition.log.log_start_offset, end_offset, "committed-lost")
        elif partition.log.log_end_offset < end_offset:
            self._forget_from(key, partition.log.log_end_offset)

    def _may_be_lost(self, partition: Partition) -> bool:
        """A power cut may have taken what was not flushed, and an unclean election anything."""
        if partition.topic in self._history.lossy_topics:
            return True
        return bool(self._history.power_cuts_s) and not self._history.is_durable((partition.topic, partition.partition))

    def _forget_from(self, key: TopicPartition, offset: int) -> None:
        batches = self.committed[key]
        for base_offset in [base_offset for base_offset, batch in batches.items() if batch.next_offset > offset]:
            del batches[base_offset]
        self._committed_records.forget_from(key, offset)
        self.committed_ends[key] = offset

    def _maybe_advanced(self, partition: Partition, *_: Any, **__: Any) -> None:
        if partition.role is not PartitionRole.LEADER:
            return
        host, key = _host(), self.place_of(partition)
        high_watermark = partition.log.high_watermark
        seen_as = (key, partition.leader_epoch, host, self._nodes[host].starts_count)
        seen = self._high_watermarks.get(seen_as, -1)
        if high_watermark == seen:
            return
        self._high_watermarks[seen_as] = high_watermark
        if high_watermark < seen:
            self._history.find("high-watermark-regression", (repr(partition), partition.leader_epoch, host, seen, high_watermark))
        start_offset = self.committed_ends[key]
        if high_watermark > start_offset:
            self._check_copies(partition, key, high_watermark)
            if self._is_compacted(partition):
                self._committed_records.note(key, self.records(partition, host, start_offset, high_watermark))
            for batch in self._batches(partition.log, host, start_offset, high_watermark):
                self.committed[key][batch.base_offset] = batch
            self.committed_ends[key] = high_watermark
            self._committed_in[key] = max(self._committed_in[key], partition.leader_epoch)

    def _check_copies(self, partition: Partition, key: TopicPartition, high_watermark: int) -> None:
        """What is committed is in as many logs as min.insync.replicas says."""
        wanted = min(partition.log.config.min_insync_replicas, len(partition.replicas))
        hosts = [f"node{node_id}" for node_id in partition.replicas if (key, f"node{node_id}") in self.replicas]
        holders = [host for host in hosts if self.replicas[key, host].log.log_end_offset >= high_watermark]
        if self._may_be_lost(partition):
            # A power cut may have taken it from a replica that has acknowledged it. Not once the leader knows that it was restarted.
            leader_host = _host()
            holders += [host for host in hosts if host not in holders and not self.is_known(host, leader_host)]
        if len(holders) < wanted:
            self._history.find("below-min-isr", (repr(partition), partition.leader_epoch, high_watermark, holders, partition.isr))

    def is_known(self, host: str, leader_host: str) -> bool:
        """Whether the metadata of `leader_host` name the process that runs on `host` now."""
        node, publisher = self._nodes[host], self.publishers.get(leader_host)
        broker = None if publisher is None else publisher._cache.state.brokers.get(int(host.removeprefix("node")))
        return broker is not None and node.is_up and self._incarnations.get(host) == (node.starts_count, broker.incarnation_id)

    def _registers(self, _: BrokerLifecycle, incarnation_id: bytes, *__: Any) -> None:
        host = _host()
        self._incarnations[host] = self._nodes[host].starts_count, incarnation_id

    def _appended_as_follower(self, partition: Partition, *_: Any, **__: Any) -> None:
        host, key = _host(), self.place_of(partition)
        seen_as = (key, host, self._nodes[host].starts_count)
        high_watermark = partition.log.high_watermark
        verified = max(self._verified.get(seen_as, 0), partition.log.log_start_offset)  # which DeleteRecords moves
        if high_watermark > verified and not self._may_be_lost(partition):
            self._compare(partition, key, host, verified, high_watermark, "committed-changed")
            self._verified[seen_as] = high_watermark

    def _compare(self, partition: Partition, key: TopicPartition, host: str, start_offset: int, end_offset: int, anomaly: str) -> None:
        """This replica's log against what was committed of it."""
        if self._is_compacted(partition):
            records = self.records(partition, host, start_offset, end_offset)
            differing = self._committed_records.find_differing(key, records, start_offset, end_offset)
            if differing:
                where = f"{start_offset}..{end_offset}"
                self._history.find(anomaly, (repr(partition), partition.leader_epoch, host, where, differing[:3]))
            return
        found = {batch.base_offset: batch for batch in self._batches(partition.log, host, start_offset, end_offset)}
        wanted = {at: batch for at, batch in self.committed[key].items() if start_offset <= at < end_offset}
        if found != wanted:
            evidence = sorted(set(wanted.values()) - set(found.values()))[:3], sorted(set(found.values()) - set(wanted.values()))[:3]
            self._history.find(anomaly, (repr(partition), partition.leader_epoch, host, f"{start_offset}..{end_offset}", *evidence))

    def _is_compacted(self, partition: Partition) -> bool:
        return self._has_compaction and partition.log.config.is_compacted

    def _batches(self, log: Log, host: str, start_offset: int, end_offset: int) -> Iterator[Batch]:
        """The batches of a log in [start_offset, end_offset)."""
        for content, position in self._places_of(log, host, start_offset, end_offset):
            header = read_header(content, position)
            yield Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)

    def _places_of(self, log: Log, host: str, start_offset: int, end_offset: int) -> Iterator[tuple[bytearray, int]]:
        """The files and positions of these batches, read from the disk without the broker's help."""
        if start_offset >= end_offset:
            return
        disk = self._nodes[host].disk
        for segment in log.segments.from_index(log.segments.floor_index(start_offset)):
            path = str(segment.log_path)
            content = disk.find(path).content  # type: ignore[union-attr]
            hinted_offset, position = self._hints.get(path, (start_offset + 1, 0))
            if hinted_offset > start_offset or not _begins_at(content, position, hinted_offset):
                position = 0
            while position < len(content):
                offset, size = _BATCH_START.unpack_from(content, position)
                if offset >= end_offset:
                    self._hints[path] = offset, position
                    return
                if offset >= start_offset:
                    yield content, position
                position += size + LOG_OVERHEAD

    def batches(self, partition: Partition, host: str, start_offset: int, end_offset: int) -> list[Batch]:
        return list(self._batches(partition.log, host, start_offset, end_offset))

    def records(self, partition: Partition, host: str, start_offset: int, end_offset: int) -> list[KeyedRecord]:
        """The records of a replica in [start_offset, end_offset)."""
        places = self._places_of(partition.log, host, start_offset, end_offset)
        return [KeyedRecord.of(record) for content, position in places for record in iterate_records(content, position)]

    @staticmethod
    def place_of(partition: Partition) -> TopicPartition:
        return bytes(partition.topic_id), partition.partition

    # -- metadata ----------------------------------------------------------------------------------------------------

    @property
    def controller_host(self) -> str | None:
        """Of the latest epoch that has one."""
        return f"node{self._controllers[max(self._controllers)]}" if self._controllers else None

    @property
    def controller_epoch(self) -> int:
        return max(self._controllers, default=-1)

    def _controller_changed(self, publisher: MetadataPublisher, leader_id: int, epoch: int) -> None:
        self.publishers[_host()] = publisher
        self._note_controller(leader_id, epoch)

    def _leads_quorum(self, state: RaftState, *_: Any, **__: Any) -> None:
        """Before it has committed anything, and listeners hear of it."""
        self._note_controller(state.me.node_id, state.epoch)

    def _note_controller(self, leader_id: int, epoch: int) -> None:
        if leader_id >= 0 and self._controllers.setdefault(epoch, leader_id) != leader_id:
            self._history.find("two-controllers", (epoch, self._controllers[epoch], leader_id))

    def _snapshot_loaded(self, publisher: MetadataPublisher, _: Any) -> None:
        self.publishers[_host()] = publisher

    def _metadata_committed(self, publisher: MetadataPublisher, offset: int, epoch: int, records: Any) -> None:
        host = _host()
        self.publishers[host] = publisher
        told = (epoch, repr(records))
        if self._metadata.setdefault(offset, told) != told:
            self._history.find("metadata-differs", (host, offset, self._metadata[offset], told))
        state = publisher._cache.state
        for record in records:
            topic = state.topics_by_id.get(getattr(record, "topic_id", b""))
            if topic is None or not hasattr(record, "partition_id"):
                continue
            image = topic.partitions[record.partition_id]
            if not set(image.isr) <= set(image.replicas):
                self._history.find("isr-beyond-replicas", (host, topic.name, record.partition_id, image))
            if image.leader >= 0 and image.leader not in image.isr:
                self._history.find("leader-out-of-sync", (host, topic.name, record.partition_id, image))


def _host() -> str:
    life = current_life()
    assert life is not None, "a broker's code runs outside of its process"
    return life.name


def _begins_at(content: bytearray, position: int, offset: int) -> bool:
    """Eight bytes of a batch's middle may say the same as an offset: its producer's epoch and a sequence, for instance."""
    if position + HEADER_SIZE > len(content):
        return False
    found_offset, size = _BATCH_START.unpack_from(content, position)
    size += LOG_OVERHEAD
    return found_offset == offset and HEADER_SIZE <= size <= len(content) - position and crc_is_valid(content, position, size)


def _telling(method: Callable[..., Any], told: Callable[..., None]) -> Callable[..., Any]:
    @wraps(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        result = method(self, *arguments, **named)
        told(self, *arguments, **named)
        return result

    return wrapper
