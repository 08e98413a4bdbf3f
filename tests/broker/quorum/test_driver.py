"""The driver against a directory: what it writes before it sends, what its listeners hear and when, and what ends it."""

from __future__ import annotations

import asyncio
import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.loop.turns import SLICE_US
from broker.quorum.driver import Peers as DriverPeers
from broker.quorum.driver import QuorumDriver
from broker.quorum.listening import BatchReader, DecodeBatches
from broker.quorum.log import EncodeBatch, QuorumLog, log_config
from broker.quorum.quorum import Batch, QuorumListener, SnapshotReader
from broker.quorum.quorum_state import read_vote, write_vote
from broker.quorum.raft import Outgoing, RaftConfig
from broker.quorum.raft_messages import METADATA_TOPIC_ID
from broker.quorum.replica import RaftReplica
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchRequest, FetchResponse, LeaderIdAndEpoch, PartitionData
from protocol.messages.vote import VoteRequest
from protocol.records import SimpleRecord, build_batch, iterate_headers, iterate_records
from storage.errors import StorageError
from tests.support.clock import LoopTurnsClock
from tests.support.doubles import stands_for

ME, OTHER = ReplicaKey(1, bytes(15) + b"\x01"), ReplicaKey(2, bytes(15) + b"\x02")
ENDPOINTS = {1: {"CONTROLLER": ("one", 9093)}, 2: {"CONTROLLER": ("two", 9093)}}
ALONE = VoterSet([Voter(ReplicaKey(1), ENDPOINTS[1])])
TWO = VoterSet([Voter(ReplicaKey(node_id), ENDPOINTS[node_id]) for node_id in (1, 2)])


def encode(records: Sequence[Any], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    encoded = [SimpleRecord(None, struct.pack(">q", number), (), now_ms) for number in records]
    return build_batch(encoded, base_offset=base_offset, partition_leader_epoch=epoch)


def decode(buffer: memoryview, what: str) -> Iterator[Batch]:
    for position, header in iterate_headers(buffer):
        values = [] if header.is_control else [struct.unpack(">q", each.value or b"")[0] for each in iterate_records(buffer, position)]
        yield Batch(header.base_offset, header.last_offset, header.partition_leader_epoch, values)


@stands_for(QuorumListener, own=("commits", "numbers", "leaders", "snapshots", "error"))
class Listener:
    """Remembers what it heard; `numbers` are the records."""

    def __init__(self) -> None:
        self.commits: list[tuple[int, int]] = []
        self.numbers: list[int] = []
        self.leaders: list[tuple[int, int]] = []
        self.snapshots: list[tuple[int, int]] = []
        self.error: Exception | None = None

    def handle_commit(self, offset: int, epoch: int, records: Sequence[Any]) -> None:
        if self.error is not None:
            raise self.error
        self.commits.append((offset, epoch))
        self.numbers += records

    def handle_load_snapshot(self, reader: SnapshotReader) -> None:
        self.snapshots.append(tuple(reader.snapshot))
        self.numbers = [number for records in reader.batches() for number in records]

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        self.leaders.append((leader_id, epoch))


@stands_for(DriverPeers, own=("sent",))
class Sent:
    """Keeps what is sent, with how to answer it."""

    def __init__(self) -> None:
        self.sent: list[tuple[Outgoing, Callable[[Any | None], None]]] = []

    def send(self, outgoing: Outgoing, on_answer: Callable[[Any | None], None]) -> None:
        self.sent.append((outgoing, on_answer))

    async def close(self) -> None:
        pass


class Node:
    """One driver on a directory. `gate` holds what runs off the loop while it is closed."""

    def __init__(
        self,
        root: Path,
        voters: VoterSet = ALONE,
        *,
        encode_batch: EncodeBatch = encode,
        decode_batches: DecodeBatches = decode,
    ) -> None:
        self.root = root
        self.clock = LoopTurnsClock()
        self.peers = Sent()
        self.failures: list[Exception] = []
        self.error: Exception | None = None
        self.ran: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.log = QuorumLog.open(root, log_config(1 << 20, 1 << 40), encode_batch, now_ms=self.clock.now_ms())
        config = RaftConfig(ME, "cluster", "CONTROLLER", ENDPOINTS[1], (), voters)
        self.replica = RaftReplica(
            config,
            self.log,
            read_vote(self.log.log.directory),
            list(self.log.control_records()),
            random_source=random.Random(1),
            now_ms=self.clock.monotonic_ms(),
        )
        self.listener = Listener()
        self.driver = QuorumDriver(
            self.replica,
            self.log,
            BatchReader(self.log, decode_batches),
            clock=self.clock,
            run_blocking=self._run_blocking,
            write_vote=lambda *vote: write_vote(self.log.log.directory, *vote),
            peers=self.peers,
            on_failure=self.failures.append,
        )
        self.driver.register(self.listener)

    async def _run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        await self.gate.wait()
        self.ran.append(getattr(function, "__name__", "vote"))
        if self.error is not None:
            raise self.error
        return function(*arguments)

    def propose(self, *numbers: int) -> int:
        return self.driver.propose(self.driver.epoch, numbers)

    def kill(self) -> None:
        """What a killed process leaves: everything that was written, and nothing is closed in order."""
        self.driver._is_closed = True
        self.driver._delivery.fail(AssertionError("killed"))
        self.log.close()

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.log.log.directory / "quorum-state").read_text()))


async def let_run(turns_count: int = 20) -> None:
    for _ in range(turns_count):
        await asyncio.sleep(0)


async def started(root: Path, voters: VoterSet = ALONE) -> Node:
    node = Node(root, voters)
    node.driver.start()
    if voters is ALONE:
        await node.driver.caught_up()
    await let_run()
    return node


async def test_the_only_voter_leads_at_once_and_says_so_when_it_is_durable(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.gate.clear()

    node.driver.start()
    await let_run()
    before = (node.driver.leader_id, node.driver.committed_end_offset, list(node.listener.leaders))
    node.gate.set()
    await node.driver.caught_up()

    assert before == (1, None, [(-1, 1)])
    assert node.listener.leaders == [(-1, 1), (1, 1)] and node.listener.commits == [(0, 1)]
    assert node.state["leaderEpoch"] == 1 and node.clock.monotonic_ms() == 0


async def test_what_was_committed_is_heard_again_after_a_kill_in_a_new_epoch(tmp_path: Path) -> None:
    node = await started(tmp_path)
    node.propose(7, 8)
    node.propose(9)
    await let_run()
    node.kill()

    again = await started(tmp_path)

    assert node.listener.numbers == again.listener.numbers == [7, 8, 9]
    assert again.listener.commits == [(0, 1), (2, 1), (3, 1), (4, 2)]
    assert again.listener.leaders[-1] == (1, 2)


async def test_nothing_is_heard_before_it_is_durable_and_proposals_share_an_fsync(tmp_path: Path) -> None:
    node = await started(tmp_path)
    node.gate.clear()
    runs_count = len(node.ran)

    offsets = [node.propose(number) for number in range(50)]
    await let_run()
    heard_before = list(node.listener.numbers)
    node.gate.set()
    await let_run()

    assert offsets == list(range(1, 51))
    assert heard_before == [] and node.listener.numbers == list(range(50))
    assert len(node.ran) - runs_count <= 2


async def test_a_close_makes_durable_and_tells_what_was_proposed(tmp_path: Path) -> None:
    node = await started(tmp_path)
    node.propose(7)

    await node.driver.close()
    with pytest.raises(KafkaError) as refused:
        node.propose(8)

    assert node.listener.numbers == [7]
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_a_failed_fsync_is_the_end_of_this_nodes_part(tmp_path: Path) -> None:
    node = await started(tmp_path)
    node.error = StorageError("no space")

    node.propose(7)
    await let_run()
    with pytest.raises(KafkaError) as refused:
        node.propose(8)

    assert [str(failure) for failure in node.failures] == ["no space"]
    assert node.listener.numbers == []
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_a_listener_that_fails_stops_the_node(tmp_path: Path) -> None:
    node = await started(tmp_path)
    node.listener.error = AssertionError("contradiction")

    node.propose(7)
    await let_run()

    assert len(node.failures) == 1


async def test_a_start_that_cannot_be_understood_raises_why(tmp_path: Path) -> None:
    node = await started(tmp_path)
    node.propose(7)
    await let_run()
    node.kill()

    again = Node(tmp_path)
    again.listener.error = StorageError("damaged")
    again.driver.start()
    with pytest.raises(StorageError, match="damaged"):
        await again.driver.caught_up()


async def test_a_late_listener_hears_everything_and_others_hear_nothing_twice(tmp_path: Path) -> None:
    node = await started(tmp_path)
    node.propose(7)
    await let_run()

    late = Listener()
    node.driver.register(late)
    node.propose(8)
    await let_run()

    assert (late.numbers, node.listener.numbers) == ([7, 8], [7, 8])
    assert late.leaders[-1] == (1, 1)


async def test_a_resigned_leader_is_told_at_once_and_proposes_no_more(tmp_path: Path) -> None:
    node = await started(tmp_path)

    node.driver.resign(1)
    await let_run()
    told = node.listener.leaders[-1]
    with pytest.raises(KafkaError) as refused:
        node.propose(7)
    for _ in range(10):
        node.clock.advance(1_000)
        await let_run()

    assert told == (-1, 1) and refused.value.code is ErrorCode.NOT_CONTROLLER
    assert node.listener.leaders[-1] == (1, 3)
    assert node.propose(8) == node.log.end_offset - 1


async def before_the_slices(root: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Ten batches are proposed; each turn of the loop tells one of them once the gate is opened."""
    node = await started(root)
    node.gate.clear()
    for number in range(10):
        node.propose(number)
    monkeypatch.setattr(node.clock, "monotonic_us", iter(range(0, 10**9, SLICE_US)).__next__)  # each look is at the end of the slice
    return node


async def until_some_are_told(node: Node) -> None:
    node.gate.set()
    while len(node.listener.numbers) < 3:
        await asyncio.sleep(0)


async def test_many_committed_batches_are_told_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await before_the_slices(tmp_path, monkeypatch)

    node.gate.set()
    counts = []
    while len(node.listener.numbers) < 10:
        await asyncio.sleep(0)
        counts.append(len(node.listener.numbers))

    assert sorted(set(counts)) == list(range(11))


async def test_a_close_between_two_slices_tells_the_rest_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await before_the_slices(tmp_path, monkeypatch)
    await until_some_are_told(node)
    told_before = len(node.listener.numbers)

    await node.driver.close()
    await let_run()

    assert told_before < 10 and node.listener.numbers == list(range(10))


async def test_a_failure_between_two_slices_ends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await before_the_slices(tmp_path, monkeypatch)
    await until_some_are_told(node)

    def fail(*, now_ms: int) -> None:
        raise StorageError("no space")

    node.driver._step(fail)
    told_before = list(node.listener.numbers)
    await let_run()

    assert node.listener.numbers == told_before == list(range(len(told_before))) and len(told_before) < 10
    assert [str(failure) for failure in node.failures] == ["no space"]


async def test_a_listener_that_fails_between_two_slices_hears_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await before_the_slices(tmp_path, monkeypatch)
    await until_some_are_told(node)
    told_before = list(node.listener.numbers)

    node.listener.error = AssertionError("contradiction")
    await let_run()
    node.listener.error = None
    await let_run()

    assert node.listener.numbers == told_before
    assert [str(failure) for failure in node.failures] == ["contradiction"]


# -- with another voter ----------------------------------------------------------------------------------------------------------------


def fetched(*batches: bytearray, high_watermark: int, epoch: int = 5, diverging: tuple[int, int] | None = None) -> FetchResponse:
    data = PartitionData(
        partition_index=0,
        high_watermark=high_watermark,
        current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=epoch),
        records=b"".join(batches),
    )
    if diverging is not None:
        data.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[data])])


async def answer_fetch(node: Node, response: FetchResponse) -> None:
    _, on_answer = next(each for each in reversed(node.peers.sent) if isinstance(each[0].request, FetchRequest))
    on_answer(response)
    await let_run()


async def follow(node: Node, epoch: int = 5) -> None:
    """Node 2 leads."""
    node.replica.raft.become_follower(epoch, 2, ENDPOINTS[2], node.clock.monotonic_ms())
    node.driver._step(node.replica.poll)
    await let_run()


def batch(base_offset: int, *numbers: int, epoch: int = 5) -> bytearray:
    return encode(numbers, base_offset=base_offset, epoch=epoch, now_ms=0)


async def test_a_vote_is_written_before_it_is_asked_for(tmp_path: Path) -> None:
    node = await started(tmp_path, TWO)
    node.gate.clear()
    node.replica.raft.become_prospective(node.clock.monotonic_ms())
    node.replica.raft.become_candidate(node.clock.monotonic_ms())

    node.driver._step(node.replica.poll)
    await let_run()
    asked_before = [outgoing for outgoing, _ in node.peers.sent if isinstance(outgoing.request, VoteRequest)]
    node.gate.set()
    await let_run()

    assert asked_before == []
    assert node.state["votedId"] == 1 and node.state["leaderEpoch"] == 1
    assert [outgoing.node.node_id for outgoing, _ in node.peers.sent if isinstance(outgoing.request, VoteRequest)] == [2]


async def test_catching_up_ends_where_the_quorum_was_committed_not_where_this_log_ended(tmp_path: Path) -> None:
    """A log that ends early is consistent in itself; what is missing there must not be taken for deleted (KAFKA: MetadataLoader)."""
    node = await started(tmp_path, TWO)
    await follow(node)
    caught_up = asyncio.ensure_future(node.driver.caught_up())

    await answer_fetch(node, fetched(batch(0, 1, 2), high_watermark=4))
    too_early = (caught_up.done(), list(node.listener.numbers))
    await answer_fetch(node, fetched(batch(2, 3, 4), high_watermark=9))
    await let_run()

    assert too_early == (False, [1, 2])
    assert caught_up.done() and node.listener.numbers == [1, 2, 3, 4]


async def test_catching_up_ends_where_nothing_is_committed_after_the_leader_said_how_far_it_is(tmp_path: Path) -> None:
    """As after a snapshot that holds all there is: the start of a node in an idle cluster would wait for the next commit."""
    node = await started(tmp_path, TWO)
    await follow(node)
    await answer_fetch(node, fetched(batch(0, 1, 2), high_watermark=2))
    await follow(node, epoch=6)
    caught_up = asyncio.ensure_future(node.driver.caught_up())
    await let_run()
    too_early = caught_up.done()

    await answer_fetch(node, fetched(high_watermark=2, epoch=6))
    await let_run()

    assert not too_early and caught_up.done()


async def test_proposals_that_were_cut_off_are_never_heard(tmp_path: Path) -> None:
    """Their offsets are taken by another leader's records."""
    node = await started(tmp_path)
    node.propose(7)
    await let_run()
    node.kill()
    node = await started(tmp_path, TWO)
    node.replica.raft.become_prospective(node.clock.monotonic_ms())
    node.replica.raft.become_candidate(node.clock.monotonic_ms())
    election = node.replica.raft.state.role.election  # type: ignore[union-attr]
    election.note(2, is_granted=True)
    node.replica.raft.maybe_advance_election(node.clock.monotonic_ms())
    node.driver._step(node.replica.poll)
    await let_run()
    lost = node.propose(100, 101)

    await follow(node, epoch=9)
    await answer_fetch(node, fetched(epoch=9, high_watermark=2, diverging=(1, 2)))
    cut_to = node.log.end_offset
    await answer_fetch(node, fetched(batch(2, 20, epoch=9), batch(3, 21, 22, epoch=9), epoch=9, high_watermark=5))

    assert (lost, cut_to) == (4, 2)
    assert node.listener.numbers == [7, 20, 21, 22]
    assert node.failures == []


async def test_a_cut_below_what_is_committed_stops_the_node(tmp_path: Path) -> None:
    node = await started(tmp_path, TWO)
    await follow(node)
    await answer_fetch(node, fetched(batch(0, 1, 2), high_watermark=2))

    await answer_fetch(node, fetched(high_watermark=2, diverging=(0, 0)))

    assert len(node.failures) == 1 and "below what is committed" in str(node.failures[0])
    assert node.listener.numbers == [1, 2]


async def test_damaged_batches_of_a_leader_are_left_out_and_fetched_again(tmp_path: Path) -> None:
    node = await started(tmp_path, TWO)
    await follow(node)
    damaged = batch(1, 2)
    damaged[-1] ^= 1

    await answer_fetch(node, fetched(batch(0, 1), damaged, high_watermark=2))
    await answer_fetch(node, fetched(batch(0, 1), batch(1, 2), high_watermark=2))

    assert node.listener.numbers == [1, 2] and node.failures == []
