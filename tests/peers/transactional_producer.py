"""A transactional producer that says exactly what a dialogue tells it to, and keeps what it is answered."""

from __future__ import annotations

import select
import time
from collections.abc import Collection
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from protocol.records import SimpleRecord, build_batch, iterate_headers
from tests.peers.answers import plain
from tests.peers.odd_request import topic
from tests.support.wire import WireClient

NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
SETTLE_S = 20.0
UNANSWERED_S = 0.5  # then a request waits
GROUP, TRANSACTIONAL_ID = 0, 1
TIMEOUT_MS = 60_000
NO_ONE = 999_999
"""A producer id that was not given out."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST = -1
EARLY = "early "
"""Begins the words of a request that was sent before the markers of the transaction before were written."""
TOPIC_RESOURCE, SET = 2, 0
LEFT_OUT = {"error_message", "transaction_start_time_ms", "log_append_time_ms", "topic_id", "port"}

Step = tuple[str, Any]
"""What was asked, and the answer as dicts and lists."""


class TransactionalProducer:
    """Speaks to one server over one connection. Owns `topic`, which it has made, of two partitions; the topic `stuck` is there
    for dialogues that hold a transaction before its end. Epochs that a dialogue gives are relative to the producer's present one."""

    def __init__(self, host: str, port: int, client: WireClient, name: str) -> None:
        self._address = host, port
        self._client = client
        self.id = self.group = name
        self.topic, self.stuck = f"{name}-topic", f"{name}-stuck"
        self.producer_id = self.epoch = -1
        self.transcript: list[Step] = []
        self._names: list[int] = []
        for key_type in (GROUP, TRANSACTIONAL_ID):
            self._await_coordinator(key_type)
        (created,) = client.request(CreateTopicsRequest(topics=[topic(self.topic, 2)], timeout_ms=30_000), 7).topics
        assert created.error_code == 0, created
        self._await_leaders()

    def _await_coordinator(self, key_type: int) -> None:
        """The first search of each type makes the broker create its topic."""
        end_s = time.monotonic() + SETTLE_S
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[self.id])
        while self._client.request(request, 4).coordinators[0].error_code:
            assert time.monotonic() < end_s, f"no coordinator of type {key_type}"
            time.sleep(0.02)

    def _await_leaders(self) -> None:
        """Kafka answers the creation of a topic before it leads the partitions."""
        end_s = time.monotonic() + SETTLE_S
        partitions = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in (0, 1)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self.topic, partitions=partitions)])
        while _codes(plain(self._client.request(request, 5), ())) != {0}:
            assert time.monotonic() < end_s, "partitions without leaders"
            time.sleep(0.02)

    # What producers and brokers ask.

    def init(self, version: int, *, epoch: int | None = None, timeout_ms: int = TIMEOUT_MS, transactional_id: str | None = None) -> None:
        """With `epoch` the producer names itself."""
        named = (-1, -1) if epoch is None else (self.producer_id, self.epoch + epoch)
        request = InitProducerIdRequest(
            transactional_id=self.id if transactional_id is None else transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=named[0],
            producer_epoch=named[1],
        )
        answer = self._ask(f"init {timeout_ms} {epoch}", request, version)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def add(
        self, version: int, *partitions: int, epoch: int = 0, producer_id: int | None = None, name: str | None = None, verify: bool = False
    ) -> None:
        """Partitions of `topic`, or of another topic of that name."""
        request = self.addition(version, *partitions, epoch=epoch, producer_id=producer_id, name=name, verify=verify)
        self._ask(f"{'verify' if verify else 'add'} {partitions} {epoch} {producer_id}", request, version)

    def addition(
        self,
        version: int,
        *partitions: int,
        epoch: int = 0,
        producer_id: int | None = None,
        name: str | None = None,
        verify: bool = False,
        transactional_id: str | None = None,
    ) -> AddPartitionsToTxnRequest:
        transactional_id = self.id if transactional_id is None else transactional_id
        producer_id = self.producer_id if producer_id is None else producer_id
        topics = [AddPartitionsToTxnTopic(name=name or self.topic, partitions=list(partitions))]
        if version >= 4:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=self.epoch + epoch,
                verify_only=verify,
                topics=topics,
            )
            return AddPartitionsToTxnRequest(transactions=[transaction])
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=self.epoch + epoch,
            v3_and_below_topics=topics,
        )

    def add_offsets(self, version: int, *, epoch: int = 0) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch + epoch, group_id=self.group
        )
        self._ask(f"add offsets {epoch}", request, version)

    def produce(
        self,
        version: int,
        *,
        partition: int = 0,
        name: str | None = None,
        sequence: int = 0,
        epoch: int = 0,
        producer_id: int | None = None,
        is_transactional: bool = True,
        has_id: bool = True,
    ) -> None:
        request = self.batch(
            partition, name=name, sequence=sequence, epoch=epoch, producer_id=producer_id, is_transactional=is_transactional, has_id=has_id
        )
        words = f"produce {partition} {sequence} {epoch} {is_transactional} {has_id}"
        self._ask(words, request, version)

    def batch(
        self,
        *partitions: int,
        name: str | None = None,
        sequence: int = 0,
        epoch: int = 0,
        producer_id: int | None = None,
        is_transactional: bool = True,
        has_id: bool = True,
    ) -> ProduceRequest:
        records = build_batch(
            [SimpleRecord(b"key", b"value", (), int(time.time() * 1000))],
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch + epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        data = [PartitionProduceData(index=each, records=memoryview(records)) for each in partitions]
        return ProduceRequest(
            transactional_id=self.id if has_id else None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=name or self.topic, partition_data=data)],
        )

    def commit_offsets(self, version: int, offset: int, *, epoch: int = 0, partitions: Collection[int] = (0,), **member: Any) -> None:
        request = self.offsets(offset, epoch=epoch, partitions=partitions, **member)
        self._ask(f"commit offset {offset} {partitions} {epoch} {member}", request, version)

    def offsets(
        self, offset: int, *, epoch: int = 0, partitions: Collection[int] = (0,), name: str | None = None, **member: Any
    ) -> TxnOffsetCommitRequest:
        positions = [TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset) for index in partitions]
        return TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch + epoch,
            topics=[TxnOffsetCommitRequestTopic(name=name or self.topic, partitions=positions)],
            **member,
        )

    def end(self, version: int, *, commit: bool = True, epoch: int = 0, producer_id: int | None = None, is_settled: bool = True) -> None:
        """With `is_settled` the next request comes when the markers are written."""
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch + epoch,
            committed=commit,
        )
        answer = self._ask(f"{'commit' if commit else 'abort'} {epoch} {producer_id}", request, version)
        if not answer.error_code and version >= 5 and answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        if is_settled:
            self.settle()

    def write_marker(
        self,
        version: int,
        *partitions: int,
        epoch: int = 0,
        commit: bool = True,
        name: str | None = None,
        producer_id: int | None = None,
        coordinator_epoch: int = 0,
        level: int = 0,
    ) -> None:
        """As a coordinator of the dialogue's own. `level` is the transaction version of the marker, which version 2 carries."""
        marker = WritableTxnMarker(
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch + epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=name or self.topic, partition_indexes=list(partitions))],
            coordinator_epoch=coordinator_epoch,
            transaction_version=level,
        )
        words = f"marker {partitions} {epoch} {commit} {coordinator_epoch} {level}"
        self._ask(words, WriteTxnMarkersRequest(markers=[marker]), version)

    # What follows from it.

    def settle(self) -> None:
        """Wait for the markers, and note what the coordinator has then."""
        request = DescribeTransactionsRequest(transactional_ids=[self.id])
        end_s = time.monotonic() + SETTLE_S
        while self._client.request(request, 0).transaction_states[0].transaction_state.startswith("Prepare"):
            assert time.monotonic() < end_s, "the markers are not written"
            time.sleep(0.002)
        self.describe()

    def describe(self) -> None:
        self._ask("describe", DescribeTransactionsRequest(transactional_ids=[self.id]), 0)

    def read(self, partition: int = 0, isolation_level: int = READ_COMMITTED, *, name: str | None = None) -> None:
        """What a consumer gets: the offsets, the aborted transactions, and of each batch what it is."""
        asked = FetchTopic(
            topic=name or self.topic, partitions=[FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)]
        )
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=isolation_level, topics=[asked])
        answer = self._client.request(request, 11)
        (found,) = answer.responses[0].partitions
        batches = [
            (header.base_offset, header.last_offset_delta, header.attributes, self._name_of(header.producer_id), header.producer_epoch)
            for _, header in iterate_headers(found.records or b"")
        ]
        aborted = [(self._name_of(each.producer_id), each.first_offset) for each in found.aborted_transactions or ()]
        offsets = (found.error_code, found.high_watermark, found.last_stable_offset)
        self.transcript.append((f"read {partition} {isolation_level}", [offsets, batches, aborted]))

    def fetch_offsets(self, *, require_stable: bool) -> None:
        asked = OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0, 1])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=[asked])], require_stable=require_stable)
        self._ask(f"offsets {require_stable}", request, 9)

    # Transactions that are held.

    def await_stuck(self) -> None:
        """Wait until only `stuck` lacks its marker, and note what the coordinator has then."""
        request = DescribeTransactionsRequest(transactional_ids=[self.id])
        end_s = time.monotonic() + SETTLE_S
        while [each.topic for each in self._client.request(request, 0).transaction_states[0].topics] != [self.stuck]:
            assert time.monotonic() < end_s, "the markers of the other partitions are not written"
            time.sleep(0.002)
        self.describe()

    def release(self) -> None:
        """Let `stuck` take markers."""
        config = AlterableConfig(name="min.insync.replicas", config_operation=SET, value="1")
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=self.stuck, configs=[config])
        with WireClient(*self._address) as other:
            (answer,) = other.request(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert answer.error_code == 0, answer

    def ask_and_release(self, words: str, request: Any, version: int) -> None:
        """The markers of the transaction before can be written only after the request was sent. It is sent once more when they are written,
        as a client does that was told to try again."""
        self._client.send(request, version)
        select.select([self._client], [], [], UNANSWERED_S)
        self.release()
        self._note(f"{EARLY}{words}", request, version, self._plain(self._client.receive()))
        end_s = time.monotonic() + SETTLE_S
        while ErrorCode.CONCURRENT_TRANSACTIONS in _codes(shown := self._plain(self._client.request(request, version))):
            assert time.monotonic() < end_s, shown
            time.sleep(0.02)
        self._note(words, request, version, shown)

    # The transcript.

    def ask(self, words: str, request: Any, version: int) -> None:
        self._ask(words, request, version)

    def _ask(self, words: str, request: Any, version: int) -> Any:
        end_s = time.monotonic() + SETTLE_S
        while True:
            answer = self._client.request(request, version)
            shown = self._plain(answer)
            if not _codes(shown) & NOT_YET:
                break
            assert time.monotonic() < end_s, answer
            time.sleep(0.02)
        self._note(words, request, version, shown)
        return answer

    def _note(self, words: str, request: Any, version: int, shown: Any) -> None:
        self.transcript.append((f"{type(request).__name__.removesuffix('Request')} v{version}, {words}", shown))

    def _plain(self, answer: Any) -> Any:
        return self._named(plain(answer, LEFT_OUT))

    def _named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._name_of(each) if key == "producer_id" else self._named(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._named(each) for each in (sorted(value) if value and isinstance(value[0], int) else value)]
        return value

    def _name_of(self, producer_id: int) -> int:
        """Producer ids by the order in which they come."""
        if producer_id in (-1, NO_ONE):
            return producer_id
        if producer_id not in self._names:
            self._names.append(producer_id)
        return self._names.index(producer_id)


def _codes(value: Any) -> set[int]:
    if isinstance(value, dict):
        found = {each for key, each in value.items() if key.endswith("error_code")}
        return found.union(*map(_codes, value.values()))
    return set[int]().union(*map(_codes, value)) if isinstance(value, list) else set()
