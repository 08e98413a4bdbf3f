"""GroupLag: how far groups are behind, and what partitions there are, under the names of kafka_exporter
(github.com/danielqsj/kafka_exporter), which asks the brokers for it from outside.

Each series is told by one broker, so that sums over all brokers are right: a partition's by its leader, a group's by its coordinator, and
the number of a topic's partitions by the leader of its first partition that has one. A lag needs the end of a partition that another broker
may lead: `refresh` asks the leaders for it before a scrape. Where one does not answer, its partitions have no lag at that scrape, nor have
the sums that they are part of: no number is better than a wrong one.

There are at most `series_max` series. What does not fit is left out as a whole, the details first, and counted in
barnabas_lag_series_left_out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.metadata.image import NO_LEADER
from broker.network.client import State
from broker.observability.metrics import GaugeSample
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic

if TYPE_CHECKING:
    from broker.cluster.peer_connections import PeerConnections
    from broker.groups.committed_offset import CommittedOffset
    from broker.groups.coordinator import GroupCoordinator
    from broker.metadata.metadata_cache import MetadataCache
    from broker.replication.replica_manager import ReplicaManager

CONSUMER_ID = -1
LATEST = -1
ASK_TIMEOUT_MS = 1_000
PARTITIONS_PER_REQUEST = 2_000
"""Far below the limit of a request's entries (barnabas.request.entries.max)."""

Ends = dict[tuple[str, int], int]
"""High watermarks by topic and partition."""

Row = tuple[tuple[str, ...], float]
PARTITION_LABELS = ("topic", "partition")
GROUP_TOPIC_LABELS = ("consumergroup", "topic")
GROUP_PARTITION_LABELS = ("consumergroup", "topic", "partition")


class _Committed(NamedTuple):
    """What one group has committed in one topic."""

    group_id: str
    topic: str
    offsets: Mapping[int, CommittedOffset]


class GroupLag:
    """See the module's docstring. `connections` are None for a broker without others. Owner: client_server.py."""

    def __init__(
        self,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        coordinator: GroupCoordinator,
        connections: PeerConnections | None,
        *,
        listener_name: str,
        series_max: int,
    ) -> None:
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._coordinator = coordinator
        self._connections = connections
        self._listener_name = listener_name
        self._series_max = series_max
        self._other_ends: Ends = {}
        """Of partitions that others lead, as they told them last."""

    # -- before a scrape -------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Ask the other leaders for the ends of what groups of this broker have read. Takes at most ASK_TIMEOUT_MS."""
        connections = self._connections
        if connections is None or len(self._metadata.brokers) <= 1:
            return
        answers = []
        for leader_id, partitions in self._led_elsewhere().items():
            address = self._metadata.find_address(leader_id, self._listener_name)
            if address is not None:
                answers += [_ask(connections, address, each) for each in _pieces(sorted(partitions), PARTITIONS_PER_REQUEST)]
        ends: Ends = {}
        for answer in await asyncio.gather(*answers):
            ends |= answer
        self._other_ends = ends

    def _led_elsewhere(self) -> dict[int, set[tuple[str, int]]]:
        """The committed partitions that other brokers lead, by their leader."""
        found: dict[int, set[tuple[str, int]]] = {}
        for _, topic, offsets in self._gather()[1]:
            for index in offsets:
                image = self._metadata.find_partition(topic, index)
                if image is not None and image.leader not in (NO_LEADER, self._metadata.node_id):
                    found.setdefault(image.leader, set()).add((topic, index))
        return found

    # -- at a scrape -----------------------------------------------------------------------------------------------

    def collect(self) -> Iterable[GaugeSample]:
        """A collector of Metrics: copies what it tells."""
        budget = _Budget(self._series_max)
        samples = [*self._broker_samples(budget), *self._topic_samples(budget)]
        groups, committed, left_out = self._gather()
        budget.left_out += left_out
        if groups and budget.take(len(groups) + 2 * len(committed)):
            samples += self._group_samples(groups, committed, budget)
        samples += self._partition_samples(budget)
        samples.append(_sample("barnabas_lag_series_left_out", "beyond barnabas.metrics.lag.series.max", (), [((), budget.left_out)]))
        return samples

    def _gather(self) -> tuple[list[Row], list[_Committed], int]:
        """Groups with the number of their members, what they have committed, and 0. If that is more than `series_max` alone: nothing, and
        that number. It looks no further then, so that the loop is not held."""
        groups: list[Row] = []
        committed: list[_Committed] = []
        for group_id, members_count, topics in self._coordinator.consumption():
            groups.append(((group_id,), members_count))
            committed += [_Committed(group_id, topic, offsets) for topic, offsets in topics if topic in self._metadata.topics]
            series_count = len(groups) + 2 * len(committed)
            if series_count > self._series_max:
                return [], [], series_count
        return groups, committed, 0

    def _broker_samples(self, budget: _Budget) -> Iterator[GaugeSample]:
        broker = self._metadata.brokers.get(self._metadata.node_id)
        if broker is not None and broker.endpoints and budget.take(1):
            host, port = next(iter(broker.endpoints.values()))
            yield _sample("kafka_broker_info", "a broker", ("id", "address"), [((str(broker.node_id), f"{host}:{port}"), 1)])

    def _topic_samples(self, budget: _Budget) -> Iterator[GaugeSample]:
        rows: list[Row] = []
        for name, topic in self._metadata.topics.items():
            first_leader = next((each.leader for each in topic.partitions if each.leader != NO_LEADER), NO_LEADER)
            if first_leader == self._metadata.node_id:
                rows.append(((name,), len(topic.partitions)))
        if budget.take(len(rows)):
            yield _sample("kafka_topic_partitions", "partitions of a topic, by the leader of its first one", ("topic",), rows)

    def _group_samples(self, groups: list[Row], committed: list[_Committed], budget: _Budget) -> Iterator[GaugeSample]:
        prefix = "kafka_consumergroup"
        yield _sample(f"{prefix}_members", "members of a group", ("consumergroup",), groups)
        has_details = budget.take(2 * sum(len(each.offsets) for each in committed))
        offsets: list[Row] = []
        lags: list[Row] = []
        offset_sums: list[Row] = []
        lag_sums: list[Row] = []
        for group_id, topic, by_partition in committed:
            of_topic = [(index, each.offset) for index, each in by_partition.items() if self._metadata.find_partition(topic, index)]
            ends = {index: end for index, _ in of_topic if (end := self._find_end(topic, index)) is not None}
            if not of_topic:
                continue
            offset_sums.append(((group_id, topic), sum(offset for _, offset in of_topic)))
            known = [(index, max(ends[index] - offset, 0)) for index, offset in of_topic if index in ends]
            if len(known) == len(of_topic):
                lag_sums.append(((group_id, topic), sum(lag for _, lag in known)))
            if has_details:
                offsets += [((group_id, topic, str(index)), offset) for index, offset in of_topic]
                lags += [((group_id, topic, str(index)), lag) for index, lag in known]
        yield _sample(f"{prefix}_current_offset_sum", "committed offsets of a topic", GROUP_TOPIC_LABELS, offset_sums)
        yield _sample(f"{prefix}_lag_sum", "records of a topic that a group has not committed", GROUP_TOPIC_LABELS, lag_sums)
        yield _sample(f"{prefix}_current_offset", "committed offset", GROUP_PARTITION_LABELS, offsets)
        yield _sample(f"{prefix}_lag", "records of a partition that a group has not committed", GROUP_PARTITION_LABELS, lags)

    def _find_end(self, topic: str, index: int) -> int | None:
        """The high watermark of the partition; None if it is not known."""
        image = self._metadata.find_partition(topic, index)
        if image is None or image.leader != self._metadata.node_id:
            return self._other_ends.get((topic, index))
        partition = self._replica_manager.find_partition(topic, index)
        return None if partition is None or not partition.is_leader else partition.log.high_watermark

    def _partition_samples(self, budget: _Budget) -> Iterator[GaugeSample]:
        """Of the partitions that this broker leads: first their ends, then, if there is room, what the metadata say."""
        led = [each for each in self._replica_manager.partitions() if each.is_leader]
        node_id = self._metadata.node_id

        def sample(name: str, documentation: str, values: Iterable[float]) -> GaugeSample:
            rows: list[Row] = [((each.topic, str(each.partition)), value) for each, value in zip(led, values, strict=True)]
            return _sample(f"kafka_topic_partition_{name}", f"{documentation} of a partition", PARTITION_LABELS, rows)

        if budget.take(2 * len(led)):
            yield sample("current_offset", "high watermark, the end for consumers,", [each.log.high_watermark for each in led])
            yield sample("oldest_offset", "start", [each.log.log_start_offset for each in led])
        if budget.take(5 * len(led)):
            yield sample("leader", "leader", [node_id] * len(led))
            yield sample("replicas", "number of replicas", [len(each.replicas) for each in led])
            yield sample("in_sync_replica", "number of replicas in sync", [len(each.isr) for each in led])
            yield sample("leader_is_preferred", "1 for the first replica as the leader", [each.replicas[0] == node_id for each in led])
            yield sample("under_replicated_partition", "1 for replicas out of sync", [len(each.isr) < len(each.replicas) for each in led])


class _Budget:
    """How many series may still be told."""

    def __init__(self, series_max: int) -> None:
        self._left = series_max
        self.left_out = 0

    def take(self, count: int) -> bool:
        """Whether so many fit; if so, they are taken."""
        if count > self._left:
            self.left_out += count
            return False
        self._left -= count
        return True


def _sample(name: str, documentation: str, labels: tuple[str, ...], rows: Sequence[Row]) -> GaugeSample:
    return GaugeSample(name, documentation, labels, tuple(rows))


def _ask(connections: PeerConnections, address: tuple[str, int], partitions: list[tuple[str, int]]) -> asyncio.Future[Ends]:
    """The ends that the broker at this address tells; none if it does not answer in time."""
    answer: asyncio.Future[Ends] = asyncio.get_running_loop().create_future()
    connection = connections.get(*address)
    if connection.state is State.BACKING_OFF:
        answer.set_result({})
        return answer

    def answered(response: Any | None) -> None:
        if not answer.done():
            answer.set_result({} if response is None else _ends_in(response))

    connection.send(_latest_offsets(partitions), answered, timeout_ms=ASK_TIMEOUT_MS)
    return answer


def _latest_offsets(partitions: list[tuple[str, int]]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=index, timestamp=LATEST))
    return ListOffsetsRequest(
        replica_id=CONSUMER_ID, topics=[ListOffsetsTopic(name=topic, partitions=each) for topic, each in topics.items()]
    )


def _ends_in(response: ListOffsetsResponse) -> Ends:
    return {
        (topic.name, each.partition_index): each.offset
        for topic in response.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }


def _pieces(found: list[tuple[str, int]], size: int) -> Iterator[list[tuple[str, int]]]:
    return (found[start : start + size] for start in range(0, len(found), size))
