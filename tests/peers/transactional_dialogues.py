"""What transactional producers, consumers of their topics and coordinators say to a broker, request by request: the same to Barnabas and to
Apache Kafka. Each dialogue is held at request versions on both sides of a change; the server has some transaction.version.

A dialogue waits for the markers of a transaction before it goes on, unless it is about what is answered until they are written (HELD).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tests.peers.transactional_producer import NO_ONE, READ_UNCOMMITTED, TransactionalProducer

Speak = Callable[[TransactionalProducer], None]

LATE_EPOCHS = (-1, 1)


class Dialogue(NamedTuple):
    """`speak` holds it. `version_min` is the lowest transaction.version at which Kafka can serve it."""

    name: str
    speak: Speak
    version_min: int = 0


# Produce: from 11 on TRANSACTION_ABORTABLE, from 12 on the broker adds the partition.


def produce_without_addition(version: int, p: TransactionalProducer) -> None:
    p.init(5)
    p.produce(version)
    p.produce(version, sequence=1)
    p.produce(version, partition=1)
    p.describe()
    p.read(isolation_level=READ_UNCOMMITTED)
    p.end(5 if version >= 12 else 4)
    p.read()


def produce_with_addition(version: int, p: TransactionalProducer) -> None:
    p.init(5)
    p.add(3, 0)
    p.produce(version)
    p.produce(version, sequence=1)
    p.produce(version, sequence=1)  # again
    p.produce(version, sequence=9)
    p.produce(version, sequence=2, is_transactional=False)
    p.produce(version, sequence=2, has_id=False)
    p.produce(version, sequence=2, epoch=-1)
    p.produce(version, sequence=2, epoch=1)
    p.produce(version, sequence=2, producer_id=NO_ONE)
    p.produce(version, name="missing")
    p.read()
    p.read(isolation_level=READ_UNCOMMITTED)
    p.end(4)
    p.read()


def produce_several_partitions(version: int, p: TransactionalProducer) -> None:
    p.init(5)
    p.add(3, 0)
    p.ask("both", p.batch(0, 1), version)
    p.ask("none", p.batch(0, 9), version)
    p.describe()
    p.end(4, commit=False)
    p.read()
    p.read(1)


def produce_late(version: int, p: TransactionalProducer) -> None:
    """After the end, by the epoch of the transaction that has ended, and by others."""
    p.init(5)
    p.add(3, 0)
    p.produce(version)
    before = p.epoch
    p.end(5 if version >= 12 else 4)
    p.produce(version, sequence=1, epoch=before - p.epoch)
    p.produce(version, sequence=1)
    p.produce(version, epoch=-1)
    p.produce(version, epoch=3)
    p.describe()
    p.read()


def produce_after_fencing(version: int, p: TransactionalProducer) -> None:
    p.init(5)
    p.add(3, 0)
    p.produce(version)
    p.init(5)  # aborts
    p.settle()
    p.init(5)
    p.produce(version, sequence=1, epoch=-1)
    p.produce(version, sequence=1, epoch=-2)
    p.read()


def produce_plainly(version: int, p: TransactionalProducer) -> None:
    """An idempotent producer that becomes transactional, and the reverse."""
    p.init(5)
    p.produce(version, is_transactional=False)
    p.add(3, 0)
    p.produce(version, sequence=1)
    p.end(4)
    p.produce(version, sequence=2, is_transactional=False)
    p.read()


# EndTxn: from 5 on each end bumps the epoch.


def end(version: int, commit: bool, p: TransactionalProducer) -> None:
    p.init(5)
    p.end(version, commit=commit)
    p.add(3, 0)
    p.produce(11)
    for epoch in LATE_EPOCHS:
        p.end(version, commit=commit, epoch=epoch)
    p.end(version, commit=commit, producer_id=NO_ONE)
    before = p.epoch
    p.end(version, commit=commit)
    p.end(version, commit=commit, epoch=before - p.epoch)  # a retry
    p.end(version, commit=not commit, epoch=before - p.epoch)
    p.end(version, commit=not commit)
    p.end(version, commit=commit)
    p.read()


def end_two_transactions(version: int, p: TransactionalProducer) -> None:
    p.init(5)
    for commit, sequence in ((True, 0), (False, 1)):
        p.add(3, 0, 1)
        p.produce(11, sequence=0 if version >= 5 else sequence)
        p.produce(11, partition=1, sequence=0 if version >= 5 else sequence)
        p.end(version, commit=commit)
    p.read()
    p.read(1)
    p.read(1, READ_UNCOMMITTED)


# AddPartitionsToTxn: 3 is a client's, 4 and 5 are brokers'.


def add(version: int, p: TransactionalProducer) -> None:
    p.init(5)
    p.add(version, 0)
    p.add(version, 0)
    p.add(version, 0, 1)
    p.add(version, 0, 9)
    p.add(version, 0, name="missing")
    p.add(version)
    for epoch in LATE_EPOCHS:
        p.add(version, 1, epoch=epoch)
    p.add(version, 1, producer_id=NO_ONE)
    p.ask("no id", p.addition(version, 0, transactional_id=""), version)
    p.ask("unknown id", p.addition(version, 0, transactional_id=f"{p.id}-unknown"), version)
    p.describe()
    p.end(5 if version >= 4 else 4)
    p.add(version, 1, epoch=-1)
    p.add(version, 1)
    p.describe()


def verify(version: int, p: TransactionalProducer) -> None:
    p.init(5)
    p.add(version, 0, verify=True)
    p.add(3, 0)
    p.add(version, 0, verify=True)
    p.add(version, 0, 1, verify=True)
    p.add(version, 0, 9, verify=True)
    for epoch in LATE_EPOCHS:
        p.add(version, 0, epoch=epoch, verify=True)
    p.add(version, 0, producer_id=NO_ONE, verify=True)
    p.ask("unknown id", p.addition(version, 0, verify=True, transactional_id=f"{p.id}-unknown"), version)
    p.end(4)
    p.add(version, 0, verify=True)


def add_several(version: int, p: TransactionalProducer) -> None:
    p.init(5)
    request = p.addition(version, 0)
    request.transactions += p.addition(version, 1, transactional_id=f"{p.id}-unknown").transactions
    p.ask("two ids", request, version)
    p.describe()


# InitProducerId: from 4 on PRODUCER_FENCED.


def init(version: int, p: TransactionalProducer) -> None:
    p.init(version)
    p.init(version, epoch=0)
    p.init(version, epoch=-1)
    p.init(version, epoch=-2)
    p.init(version, epoch=3)
    p.init(version)
    p.init(version, timeout_ms=0)
    p.init(version, timeout_ms=900_001)
    p.init(version, transactional_id="")
    p.describe()


def init_within_a_transaction(version: int, p: TransactionalProducer) -> None:
    p.init(version)
    p.add(3, 0)
    p.produce(11)
    p.init(version)
    p.settle()
    p.init(version)
    p.end(4, epoch=-1)
    p.end(4, epoch=-2)
    p.add(3, 0, epoch=-1)
    p.add(3, 0)
    p.produce(11)
    p.init(version, epoch=0)
    p.settle()
    p.init(version, epoch=0)
    p.read()


# AddOffsetsToTxn, TxnOffsetCommit: from 4 on TRANSACTION_ABORTABLE, from 5 on the broker adds the partition.


def commit_offsets_without_addition(version: int, p: TransactionalProducer) -> None:
    p.init(5)
    p.commit_offsets(version, 7)
    p.fetch_offsets(require_stable=True)
    p.end(5 if version >= 5 else 4)
    p.fetch_offsets(require_stable=True)


def commit_offsets(version: int, commit: bool, p: TransactionalProducer) -> None:
    p.init(5)
    p.add_offsets(4)
    p.add_offsets(4, epoch=1)
    p.commit_offsets(version, 7)
    p.commit_offsets(version, 8, partitions=(0, 9))
    p.commit_offsets(version, 8, name="missing")
    for epoch in LATE_EPOCHS:
        p.commit_offsets(version, 9, epoch=epoch)
    p.commit_offsets(version, 9, generation_id=4, member_id="one")
    p.commit_offsets(version, 9, member_id="one")
    p.commit_offsets(version, 9, group_instance_id="one")
    p.fetch_offsets(require_stable=True)
    p.fetch_offsets(require_stable=False)
    before = p.epoch
    p.end(5 if version >= 5 else 4, commit=commit)
    p.fetch_offsets(require_stable=True)
    p.commit_offsets(version, 9, epoch=before - p.epoch)
    p.fetch_offsets(require_stable=True)


def add_offsets(version: int, p: TransactionalProducer) -> None:
    p.init(5)
    p.add_offsets(version, epoch=-1)
    p.add_offsets(version, epoch=1)
    p.add_offsets(version)
    p.describe()
    p.end(4, commit=False)


# WriteTxnMarkers: 2 carries the transaction version.


def write_markers(version: int, level: int, p: TransactionalProducer) -> None:
    """By a coordinator that knows the producer's transactions, or does not."""
    p.init(5)
    p.init(5)
    p.write_marker(version, 0, producer_id=NO_ONE, level=level)
    p.write_marker(version, 9, level=level)
    p.write_marker(version, 0, name="missing", level=level)
    p.add(3, 0, 1)
    p.produce(11)
    p.write_marker(version, 0, epoch=-1, level=level)
    p.write_marker(version, 0, coordinator_epoch=3, level=level)
    p.produce(11, sequence=1)
    p.write_marker(version, 0, coordinator_epoch=3, level=level)
    p.write_marker(version, 0, 1, epoch=1, coordinator_epoch=2, level=level)
    p.write_marker(version, 0, 1, epoch=1, coordinator_epoch=3, commit=False, level=level)
    p.write_marker(version, 0, epoch=1, coordinator_epoch=3, commit=False, level=level)
    p.produce(11, sequence=2)
    p.read()
    p.read(1, READ_UNCOMMITTED)


# Until the markers are written.


def held(ask: str, version: int, commit: bool, p: TransactionalProducer) -> None:
    """The transaction before is decided, and a partition takes no marker yet."""
    p.init(5)
    p.add(3, 0)
    p.produce(11)
    p.add(3, 0, name=p.stuck)
    before = p.epoch
    end_version = 5 if (ask, version) in NEEDS_BUMP else 4
    p.end(end_version, commit=commit, is_settled=False)
    p.await_stuck()
    p.read()
    late = before - p.epoch
    match ask:
        case "end":
            p.end(version, commit=commit, epoch=late, is_settled=False)
            p.end(version, commit=not commit, is_settled=False)
            p.end(version, producer_id=NO_ONE, is_settled=False)
        case "init":
            p.init(version)
            p.init(version, epoch=0)
        case "late produce":
            p.produce(version, partition=0, sequence=1, epoch=late)
        case "verify":
            p.add(version, 0, verify=True)
            p.add(version, 0, epoch=late, verify=True)
        case "add":
            p.ask_and_release("add", p.addition(version, 1), version)
        case "produce":
            p.ask_and_release("produce", p.batch(1), version)
        case "commit offsets":
            p.ask_and_release("commit offsets", p.offsets(7), version)
    p.release()
    p.settle()
    p.read()


NEEDS_BUMP = {("add", 4), ("add", 5), ("produce", 12), ("commit offsets", 5), ("end", 5), ("late produce", 12)}
"""What a producer asks that follows transaction version 2."""


def _held(ask: str, *versions: int) -> list[Dialogue]:
    return [
        Dialogue(
            f"until markers are written, {ask} v{version} after {_word(commit)}",
            partial(held, ask, version, commit),
            1 if (ask, version) in NEEDS_BUMP else 0,
        )
        for version in versions
        for commit in (True, False)
    ]


def _word(commit: bool) -> str:
    return "a commit" if commit else "an abort"


DIALOGUES = [
    *(
        Dialogue(f"{name} v{version}", partial(speak, version), 1 if version >= 12 else 0)
        for name, speak in (
            ("produce without addition", produce_without_addition),
            ("produce with addition", produce_with_addition),
            ("produce to several partitions", produce_several_partitions),
            ("produce late", produce_late),
            ("produce after fencing", produce_after_fencing),
            ("produce plainly", produce_plainly),
        )
        for version in (10, 11, 12)
    ),
    *(
        Dialogue(f"{'commit' if commit else 'abort'} v{version}", partial(end, version, commit), 1 if version >= 5 else 0)
        for version in (1, 2, 3, 4, 5)
        for commit in (True, False)
    ),
    *(Dialogue(f"two transactions v{version}", partial(end_two_transactions, version), 1 if version >= 5 else 0) for version in (4, 5)),
    *(Dialogue(f"add v{version}", partial(add, version), 1 if version >= 4 else 0) for version in (1, 2, 3, 4, 5)),
    *(Dialogue(f"verify v{version}", partial(verify, version)) for version in (4, 5)),
    *(Dialogue(f"add for several ids v{version}", partial(add_several, version), 1) for version in (4, 5)),
    *(Dialogue(f"init v{version}", partial(init, version)) for version in (3, 4, 5)),
    *(Dialogue(f"init within a transaction v{version}", partial(init_within_a_transaction, version)) for version in (3, 4, 5)),
    *(Dialogue(f"add offsets v{version}", partial(add_offsets, version)) for version in (1, 2, 3, 4)),
    *(
        Dialogue(f"commit offsets without addition v{version}", partial(commit_offsets_without_addition, version), 1 if version >= 5 else 0)
        for version in (3, 4, 5)
    ),
    *(
        Dialogue(
            f"offsets of {'a commit' if commit else 'an abort'} v{version}",
            partial(commit_offsets, version, commit),
            1 if version >= 5 else 0,
        )
        for version in (3, 4, 5)
        for commit in (True, False)
    ),
    *(
        Dialogue(f"markers v{version} of level {level}", partial(write_markers, version, level))
        for version, level in ((1, 0), (2, 0), (2, 1), (2, 2))
    ),
]

HELD = [
    *_held("end", 4, 5),
    *_held("init", 3, 4, 5),
    *_held("late produce", 10, 11, 12),
    *_held("verify", 4, 5),
    *_held("add", 3, 4, 5),
    *_held("produce", 12),
    *_held("commit offsets", 5),
]
"""For producers whose topic `stuck` takes no marker before `release`."""
