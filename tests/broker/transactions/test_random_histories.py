"""Random histories of three transactional ids: producers, zombies among them, that retry and give up; commits that come late; leaders
that die with and without their last records; late markers; timeouts and expiry. What must hold is checked as it happens:

- A marker is sent only for an outcome that the log has as committed, and that no later leader can lack.
- An answer without an error is in the committed log.
- The log holds only changes that the table of states allows, and producers of an id only go up: a new epoch, or a producer id never used.
- From transaction version 2 on no transaction, which an epoch names, has two outcomes.
- No two producers are given the same id and epoch.
- What a load makes of the log is what was lived through.
- In the end every decided transaction is complete.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from broker.transactions.add_partitions import AddPartitions
from broker.transactions.answers import ProducerAnswer
from broker.transactions.end_transaction import EndTransaction
from broker.transactions.init_producer_id import InitProducerId
from broker.transactions.state import ALLOWED_BEFORE, COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARED, RESTING
from broker.transactions.transaction import LAST_CLIENT_EPOCH, ProducerIdAndEpoch, Transaction, from_value, new_transaction
from protocol.errors import ErrorCode
from protocol.records import iterate_headers
from tests.broker.coordination.memory_log import MemoryLog
from tests.broker.transactions.room import FIRST_PRODUCER_ID, TIMEOUT_MS, HeldMarkers, Room, partitions_of

COMPLETE = (COMPLETE_COMMIT, COMPLETE_ABORT)
IDS = ("t", "u", "v")
STEPS = 400
EXPIRATION_MS = 20 * TIMEOUT_MS
NEAR_THE_END = LAST_CLIENT_EPOCH - 3


class LateLog(MemoryLog):
    """Appends are committed up to an offset when the history says so. `committed_for_ever` is the highest that ever was."""

    def __init__(self) -> None:
        super().__init__()
        self.committed_for_ever = 0
        self.waiting: list[tuple[int, Callable[[ErrorCode], None]]] = []

    def _append(self, batch: bytearray, on_committed: Callable[[ErrorCode], None]) -> None:
        if self.fail_with is not None:
            on_committed(self.fail_with)
            return
        self.append_batch(batch)
        self.waiting.append((self.next_offset, on_committed))

    def when_committed(self, partition: int, end_offset: int, on_committed: Callable[[ErrorCode], None]) -> None:
        self.waiting.append((end_offset, on_committed))

    def commit_to(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, offset)
        self.committed_for_ever = max(self.committed_for_ever, offset)
        told = [on_committed for end_offset, on_committed in self.waiting if end_offset <= offset]
        self.waiting = [each for each in self.waiting if each[0] > offset]
        for on_committed in told:
            on_committed(ErrorCode.NONE)

    def cut(self, end_offset: int) -> None:
        """What the next leader has."""
        self.batches = [batch for batch in self.batches if next_offset_of(batch) <= end_offset]
        self.next_offset = next_offset_of(self.batches[-1]) if self.batches else 0


def next_offset_of(batch: bytearray) -> int:
    ((_, header),) = iterate_headers(batch)
    return header.next_offset


class CheckedMarkers(HeldMarkers):
    """Looks at the log when it is asked for markers."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history
        self.outcomes: dict[ProducerIdAndEpoch, bool] = {}

    def send(self, transactional_id: str, transaction: Transaction, coordinator_epoch: int, on_written: Callable[[], None]) -> None:
        committed = self._history.committed_state(transactional_id)
        assert committed is not None
        assert committed.state in PREPARED
        assert (committed.state, committed.producer_id, committed.producer_epoch, committed.partitions) == (
            transaction.state, transaction.producer_id, transaction.producer_epoch, transaction.partitions
        )  # fmt: skip
        if transaction.client_transaction_version >= 2:
            producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
            assert self.outcomes.setdefault(producer, transaction.is_commit) == transaction.is_commit, "torn"
        super().send(transactional_id, transaction, coordinator_epoch, on_written)

    def write_one(self, source: random.Random) -> None:
        if self.held:
            self.held.pop(source.randrange(len(self.held)))[1]()


class History(Room):
    """One seed's history."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.late_log = LateLog()
        self.decoded: dict[int, tuple[bytearray, list[tuple[str, Transaction | None]]]] = {}
        self.given: dict[ProducerIdAndEpoch, int] = {}
        self.requests = 0
        self.known: list[ProducerIdAndEpoch] = [ProducerIdAndEpoch(9999, 0)]
        super().__init__(self.random.choice([0, 1, 2, 2, 2]), is_holding_markers=True, log=self.late_log, id_expiration_ms=EXPIRATION_MS)
        self.markers = CheckedMarkers(self)
        if self.random.random() < 0.3:
            self._begin_near_the_last_epoch()
        self.elect()

    def _begin_near_the_last_epoch(self) -> None:
        machine = self.machine
        for transactional_id in IDS:
            old = new_transaction(self._produce_id(), TIMEOUT_MS, self.clock.now_ms())  # type: ignore[arg-type]
            producer = ProducerIdAndEpoch(old.producer_id, NEAR_THE_END)
            machine._write(transactional_id, old.with_producer(producer, -1, TIMEOUT_MS, self.clock.now_ms()), lambda error: None)
            self.known.append(producer)
        self.late_log.commit_to(self.late_log.next_offset)

    # What is in the log.

    def logged(self, end_offset: int) -> list[tuple[str, Transaction | None]]:
        """The records below the offset. Decoded once: each step looks at all of them."""
        found: list[tuple[str, Transaction | None]] = []
        for batch in self.late_log.batches:
            if id(batch) not in self.decoded:
                self.decoded[id(batch)] = (batch, [(key, value and from_value(value)) for key, value in self.records([batch])])
            found += self.decoded[id(batch)][1]
        return found[:end_offset]

    def committed_state(self, transactional_id: str) -> Transaction | None:
        """By the records that no leader can lack."""
        found = None
        for logged_id, transaction in self.logged(self.late_log.committed_for_ever):
            if logged_id == transactional_id:
                found = transaction
        return found

    # Steps.

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (6, self._init), (10, self._add), (10, self._end), (14, self._commit), (8, lambda: self.markers.write_one(self.random)),
            (3, self._pass_time), (1, self._die), (1, self._resign), (1, self._refuse), (1, self._finalize_version),
        ]  # fmt: skip
        weights, actions = [weight for weight, _ in steps], [action for _, action in steps]
        self.random.choices(actions, weights)[0]()

    def _id(self) -> str:
        return self.random.choice(IDS)

    def _producer(self) -> ProducerIdAndEpoch:
        """Mostly one that was given lately, in the hands of the right client or not."""
        recent = self.known[-6:] if self.random.random() < 0.9 else self.known
        chosen = self.random.choice(recent)
        return chosen if self.random.random() < 0.95 else chosen._replace(producer_epoch=max(0, chosen.producer_epoch - 1))

    def _current(self, transactional_id: str) -> ProducerIdAndEpoch:
        """Mostly the one that may go on."""
        transaction = self.machine.table.find(transactional_id) if self.random.random() < 0.7 else None
        if transaction is None or transaction.producer_epoch < 0:
            return self._producer()
        return ProducerIdAndEpoch(transaction.producer_id, min(transaction.producer_epoch, LAST_CLIENT_EPOCH))

    def _init(self) -> None:
        transactional_id = self._id()
        expected = self._current(transactional_id) if self.random.random() < 0.4 else None
        self.requests += 1
        answer = partial(self._on_init, transactional_id, expected, self.requests)
        self.machine.init_producer_id(transactional_id, InitProducerId(TIMEOUT_MS, expected), answer)

    def _on_init(self, transactional_id: str, expected: ProducerIdAndEpoch | None, request: int, answer: ProducerAnswer) -> None:
        if answer.error is not ErrorCode.NONE:
            return
        producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        assert answer.producer_epoch <= LAST_CLIENT_EPOCH
        self._expect_logged(transactional_id, lambda each: each.state is EMPTY and _producer_of(each) == producer)
        if expected is None:  # else it may be a retry
            assert self.given.setdefault(producer, request) == request, "given twice"
        self.known.append(producer)

    def _add(self) -> None:
        transactional_id = self._id()
        producer = self._current(transactional_id)
        partition = f"{self.random.choice('ab')}-{self.random.randrange(3)}"
        request = AddPartitions(producer, partitions_of(partition), self._client_version(None))

        def on_answer(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                topic, _, index = partition.partition("-")
                self._expect_logged(
                    transactional_id, lambda each: each.state is ONGOING and _producer_of(each) == producer and each.has(topic, int(index))
                )

        self.machine.add_partitions(transactional_id, request, self.random.choice([0, 10, TIMEOUT_MS]), on_answer)

    def _end(self) -> None:
        transactional_id = self._id()
        producer, is_commit = self._current(transactional_id), self.random.random() < 0.6
        version = self._client_version(None)
        request = EndTransaction(producer, is_commit, version)

        def on_answer(answer: ProducerAnswer) -> None:
            if answer.error is not ErrorCode.NONE:
                return
            self._expect_logged(transactional_id, lambda each: _is_end(each, producer, is_commit))
            if answer.producer_id >= 0:
                self.known.append(ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch))

        self.machine.end_transaction(transactional_id, request, on_answer)

    def _expect_logged(self, transactional_id: str, is_it: Callable[[Transaction], bool]) -> None:
        records = self.logged(self.late_log.committed_for_ever)
        assert any(logged_id == transactional_id and transaction and is_it(transaction) for logged_id, transaction in records)

    def _commit(self) -> None:
        log = self.late_log
        ends = [next_offset_of(batch) for batch in log.batches if next_offset_of(batch) > log.high_watermark]
        if ends:
            log.commit_to(self.random.choice(ends) if self.random.random() < 0.5 else ends[-1])

    def _pass_time(self) -> None:
        self.clock.advance(self.random.choice([1, 100, 1_000, TIMEOUT_MS // 2, TIMEOUT_MS + 1, EXPIRATION_MS]))
        if self.runtime.active_shards():
            for _ in self.random.choice([self.machine.abort_timed_out, self.machine.expire])():
                pass

    def _die(self) -> None:
        """The next leader may lack what is not committed, and may not know yet how much is."""
        log = self.late_log
        log.cut(self.random.randint(log.committed_for_ever, log.next_offset))
        log.waiting.clear()
        log.high_watermark = self.random.randint(0, log.committed_for_ever)
        self.elect()
        if self.random.random() < 0.5:
            log.commit_to(log.next_offset)
        self._wait_for_the_shard()

    def _resign(self) -> None:
        self.runtime.on_resigned(0)
        self._die()

    def _wait_for_the_shard(self) -> None:
        if not self.runtime.active_shards():
            self.clock.advance(self.settings.write_timeout_ms)

    def _refuse(self) -> None:
        self.log.fail_with = None if self.log.fail_with else ErrorCode.NOT_ENOUGH_REPLICAS

    def _finalize_version(self) -> None:
        if self.random.random() < 0.2:
            self.version = self.random.choice([0, 1, 2])

    # The end.

    def settle(self) -> None:
        self.log.fail_with = None
        for _ in range(10):
            self.late_log.commit_to(self.late_log.next_offset)
            self.markers.write_all()
            self.clock.advance(1_000)
        self.late_log.commit_to(self.late_log.next_offset)

    def check_log(self) -> None:
        """The records of each id, in their order."""
        used = set()
        for transactional_id in IDS:
            before: Transaction | None = None
            for found in (found for logged_id, found in self.logged(self.late_log.next_offset) if logged_id == transactional_id):
                if found is None:
                    assert before is None or before.state in RESTING
                    before = None
                    continue
                if before is None:
                    assert found.state is EMPTY
                else:
                    assert before.state in ALLOWED_BEFORE[found.state]
                if before is not None and found.producer_id == before.producer_id:
                    assert found.producer_epoch >= before.producer_epoch
                else:
                    assert found.producer_id not in used
                used.add(found.producer_id)
                before = found

    def check_load(self) -> None:
        lived = {each: self.machine.table.find(each) for each in IDS}
        counts = self.machine.table.counts
        assert Counter(each.state for each in lived.values() if each is not None) == Counter(counts)
        self.elect()
        self._wait_for_the_shard()
        for transactional_id, transaction in lived.items():
            loaded = self.machine.table.find(transactional_id)
            assert loaded == (None if transaction is None else transaction._replace(last_producer_epoch=-1))
        assert self.machine.table.counts == counts


def _producer_of(transaction: Transaction) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)


def _is_end(transaction: Transaction, producer: ProducerIdAndEpoch, is_commit: bool) -> bool:
    """Whether this is an end of the producer's transaction. A retry below version 2 may also mean the end before the producer's epoch."""
    if transaction.state in COMPLETE and _producer_of(transaction) == producer:
        return transaction.is_commit == is_commit
    epochs = (producer.producer_epoch, producer.producer_epoch + 1)
    is_producers = transaction.producer_id == producer.producer_id and transaction.producer_epoch in epochs
    return transaction.state in PREPARED and transaction.is_commit == is_commit and is_producers


@pytest.mark.parametrize("seed", range(30))
def test_random_history(seed: int) -> None:
    history = History(seed)

    for _ in range(STEPS):
        history.step()
    history.settle()

    history.check_log()
    states = {each: history.committed_state(each) for each in IDS}
    assert not [each for each in states.values() if each is not None and each.state in PREPARED]
    history.check_load()
    assert history.next_producer_id > FIRST_PRODUCER_ID
