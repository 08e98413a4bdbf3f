"""Every state x request x relation of the request's producer to the known one x transaction version, as tables.

Columns, with the known producer at epoch 3 or more: `older` two epochs before, `retry` one before, `same`, `newer` one above, `other` the
same epoch of another producer id; `none` names no producer. Cells:

    PF      PRODUCER_FENCED                 OK    a record is written, the epoch stays
    ITS     INVALID_TXN_STATE               EB    a record is written, with an epoch bump, which the answer tells
    CT      CONCURRENT_TRANSACTIONS         NEW   a new producer id
    IPM     INVALID_PRODUCER_ID_MAPPING     ABORT CONCURRENT_TRANSACTIONS, and the transaction is aborted with an epoch bump
    TA      TRANSACTION_ABORTABLE           WAIT  no answer until the transaction has ended
    NONE    done, and nothing is written

Source: the table above endTransaction in Kafka's TransactionCoordinator.scala, its code for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker.transactions.transaction import ProducerIdAndEpoch
from tests.broker.transactions.room import Room, producer_of

END_BELOW_2 = """
                    abort                           commit
                    older retry same newer other    older retry same newer other
    unknown         IPM   IPM   IPM  IPM   IPM      IPM   IPM   IPM  IPM   IPM
    Empty           PF    PF    ITS  PF    IPM      PF    PF    ITS  PF    IPM
    Ongoing         PF    PF    OK   PF    IPM      PF    PF    OK   PF    IPM
    pending         PF    PF    CT   PF    IPM      PF    PF    CT   PF    IPM
    PrepareCommit   PF    PF    CT   PF    IPM      PF    PF    CT   PF    IPM
    PrepareAbort    PF    PF    CT   PF    IPM      PF    PF    CT   PF    IPM
    CompleteCommit  PF    PF    ITS  PF    IPM      PF    PF    NONE PF    IPM
    CompleteAbort   PF    PF    NONE PF    IPM      PF    PF    ITS  PF    IPM
"""

END_FROM_2 = """
                    abort                           commit
                    older retry same newer other    older retry same newer other
    unknown         IPM   IPM   IPM  IPM   IPM      IPM   IPM   IPM  IPM   IPM
    Empty           PF    PF    EB   PF    IPM      PF    PF    ITS  PF    IPM
    Ongoing         PF    PF    EB   PF    IPM      PF    PF    EB   PF    IPM
    pending         CT    CT    CT   CT    CT       CT    CT    CT   CT    CT
    PrepareCommit   CT    CT    CT   CT    CT       CT    CT    CT   CT    CT
    PrepareAbort    CT    CT    CT   CT    CT       CT    CT    CT   CT    CT
    CompleteCommit  PF    ITS   EB   PF    IPM      PF    NONE  ITS  PF    IPM
    CompleteAbort   PF    NONE  EB   PF    IPM      PF    ITS   ITS  PF    IPM
"""

INIT_BELOW_2 = """
                    none  older retry same  newer other
    unknown         NEW   NEW   NEW   NEW   NEW   NEW
    Empty           EB    PF    PF    EB    PF    PF
    bumped          EB    PF    OK    EB    PF    PF
    Ongoing         ABORT ABORT ABORT ABORT ABORT PF
    pending         CT    CT    CT    CT    CT    CT
    PrepareCommit   CT    CT    CT    CT    CT    CT
    PrepareAbort    CT    CT    CT    CT    CT    CT
    CompleteCommit  EB    PF    PF    EB    PF    PF
    CompleteAbort   EB    PF    PF    EB    PF    PF
"""

INIT_FROM_2 = """
                    none  older retry same  newer other
    unknown         NEW   NEW   NEW   NEW   NEW   NEW
    Empty           EB    PF    PF    EB    PF    PF
    bumped          EB    PF    OK    EB    PF    PF
    Ongoing         ABORT ABORT ABORT ABORT ABORT PF
    pending         CT    CT    CT    CT    CT    CT
    PrepareCommit   CT    CT    CT    CT    CT    CT
    PrepareAbort    CT    CT    CT    CT    CT    CT
    CompleteCommit  EB    PF    OK    EB    PF    PF
    CompleteAbort   EB    PF    OK    EB    PF    PF
"""

ADD = """
                    a new partition                 one that is part of it
                    older retry same newer other    older retry same newer other
    unknown         IPM   IPM   IPM  IPM   IPM      IPM   IPM   IPM  IPM   IPM
    Empty           PF    PF    OK   PF    IPM      PF    PF    OK   PF    IPM
    Ongoing         PF    PF    OK   PF    IPM      PF    PF    NONE PF    IPM
    PrepareCommit   PF    PF    WAIT PF    IPM      PF    PF    WAIT PF    IPM
    PrepareAbort    PF    PF    WAIT PF    IPM      PF    PF    WAIT PF    IPM
    CompleteCommit  PF    PF    OK   PF    IPM      PF    PF    OK   PF    IPM
    CompleteAbort   PF    PF    OK   PF    IPM      PF    PF    OK   PF    IPM
"""

VERIFY = """
                    a new partition                 one that is part of it
                    older retry same newer other    older retry same newer other
    unknown         IPM   IPM   IPM  IPM   IPM      IPM   IPM   IPM  IPM   IPM
    Empty           PF    PF    TA   PF    IPM      PF    PF    TA   PF    IPM
    Ongoing         PF    PF    TA   PF    IPM      PF    PF    NONE PF    IPM
    pending         PF    PF    TA   PF    IPM      PF    PF    NONE PF    IPM
    PrepareCommit   PF    PF    CT   PF    IPM      PF    PF    CT   PF    IPM
    PrepareAbort    PF    PF    CT   PF    IPM      PF    PF    CT   PF    IPM
    CompleteCommit  PF    PF    TA   PF    IPM      PF    PF    TA   PF    IPM
    CompleteAbort   PF    PF    TA   PF    IPM      PF    PF    TA   PF    IPM
"""

ERRORS = {
    "PF": "PRODUCER_FENCED",
    "ITS": "INVALID_TXN_STATE",
    "CT": "CONCURRENT_TRANSACTIONS",
    "IPM": "INVALID_PRODUCER_ID_MAPPING",
    "TA": "TRANSACTION_ABORTABLE",
}

DISTANCES = {"older": -2, "retry": -1, "same": 0, "newer": 1, "other": 0}
COLUMNS = {"none", *DISTANCES}
FIRST_EPOCH = 3

Cell = tuple[str, str, str, str]
"""The row, the half of the table (abort or commit; empty for a table of one part), the column, and what is expected."""


def cells(table: str) -> list[Cell]:
    """The cells of a table."""
    columns: list[str] = []
    found: list[Cell] = []
    for line in table.splitlines():
        words = line.split()
        if words and COLUMNS.issuperset(words):
            columns = words
        elif words and columns:
            for place, (column, expected) in enumerate(zip(columns, words[1:], strict=True)):
                half = "" if "none" in columns else "first" if place < len(columns) / 2 else "second"
                found.append((words[0], half, column, expected))
    return found


def rows(table: str) -> list[object]:
    """The cells of a table, one parameter for each row: a test for each cell would take longer to set up than to run."""
    by_state: dict[str, list[Cell]] = {}
    for cell in cells(table):
        by_state.setdefault(cell[0], []).append(cell)
    return [pytest.param(row, id=state) for state, row in by_state.items()]


@contextmanager
def in_cell(cell: Cell) -> Iterator[None]:
    """Names the cell where an assertion fails."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"in the cell {'-'.join(cell)}")
        raise


class Known(Room):
    """A room in which the id "t" is in a state, at the version of its client; markers are held."""

    def __init__(self, version: int, client_version: int, state: str) -> None:
        super().__init__(version, is_holding_markers=True)
        self.client_version = client_version
        if state == "unknown":
            self.producer = ProducerIdAndEpoch(1000, FIRST_EPOCH)
            return
        for _ in range(1 + FIRST_EPOCH):
            answer = self.init("t")
        producer = answer.split()[1]
        if state == "bumped":
            self.init("t", producer)
        elif state != "Empty":
            self.add("t", producer, "a-0", version=client_version)
        if state.startswith(("Prepare", "Complete")):
            self.end("t", producer, commit=state.endswith("Commit"), version=client_version)
        if state.startswith("Complete"):
            self.markers.write_all()
        if state == "pending":
            self.log.is_holding = True
            self.add("t", producer, "b-0", version=client_version)
        transaction = self.machine.table.find("t")
        assert transaction is not None
        self.producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        self.markers.sent.clear()

    def sender(self, column: str) -> str | None:
        """The producer of a request in that relation to the known one."""
        if column == "none":
            return None
        producer_id = 9999 if column == "other" else self.producer.producer_id
        return f"{producer_id}:{self.producer.producer_epoch + DISTANCES[column]}"

    def expect(self, expected: str, answer: str, *, does_answer_tell: bool, records_before: int, state: str) -> None:
        """Check the answer, and what was written, if anything."""
        name, _, told = answer.partition(" ")
        assert name == ERRORS.get(expected, "NONE"), answer
        if expected in ERRORS or expected == "NONE":
            assert len(self.records()) == records_before
            return
        assert len(self.records()) == records_before + 1
        bump = expected == "EB"
        written = ProducerIdAndEpoch(self.producer.producer_id, self.producer.producer_epoch + bump)
        assert self.state("t").split()[:2] == [state, f"{written.producer_id}:{written.producer_epoch}"]
        assert told == (f"{written.producer_id}:{written.producer_epoch}" if does_answer_tell else "")


@pytest.mark.parametrize("row", rows(END_BELOW_2))
@pytest.mark.parametrize("version", [0, 1, 2])
def test_end_of_a_transaction_below_version_2(version: int, row: list[Cell]) -> None:
    for cell in row:
        with in_cell(cell):
            check_end_of_a_transaction_below_version_2(version, *cell)


def check_end_of_a_transaction_below_version_2(version: int, state: str, half: str, column: str, expected: str) -> None:
    room = Known(version, 0, state)
    records_before, is_commit = len(room.records()), half == "second"

    answer = room.end("t", str(room.sender(column)), commit=is_commit, version=0)

    decided = "PrepareCommit" if is_commit else "PrepareAbort"
    room.expect(expected, answer, does_answer_tell=False, records_before=records_before, state=decided)


@pytest.mark.parametrize("row", rows(END_FROM_2))
@pytest.mark.parametrize("version", [1, 2])
def test_end_of_a_transaction_from_version_2(version: int, row: list[Cell]) -> None:
    """A request of version 5 at transaction.version 1 follows the rules of 2, as in Kafka."""
    for cell in row:
        with in_cell(cell):
            check_end_of_a_transaction_from_version_2(version, *cell)


def check_end_of_a_transaction_from_version_2(version: int, state: str, half: str, column: str, expected: str) -> None:
    room = Known(version, 2, state)
    records_before, is_commit = len(room.records()), half == "second"

    answer = room.end("t", str(room.sender(column)), commit=is_commit, version=2)

    if expected == "NONE":
        assert answer == f"NONE {room.producer.producer_id}:{room.producer.producer_epoch}"
    if expected == "EB" and not room.markers.held:
        # A transaction without partitions needs no markers, so that it is complete at once.
        assert room.state("t").startswith(f"CompleteAbort {room.producer.producer_id}:{room.producer.producer_epoch + 1}")
        return
    decided = "PrepareCommit" if is_commit else "PrepareAbort"
    room.expect(expected, answer, does_answer_tell=True, records_before=records_before, state=decided)


@pytest.mark.parametrize(("table", "version"), [(INIT_BELOW_2, 0), (INIT_BELOW_2, 1), (INIT_FROM_2, 2)], ids=["v0", "v1", "v2"])
def test_initialization_of_a_producer(table: str, version: int) -> None:
    checked = 0
    for state, _, column, expected in cells(table):
        room = Known(version, 2 if version == 2 else 0, state)
        records_before = len(room.records())

        answer = room.init("t", room.sender(column))

        if expected == "NEW":
            assert (answer, room.state("t")) == ("NONE 1000:0", "Empty 1000:0"), (state, column)
        elif expected == "ABORT":
            assert answer == "CONCURRENT_TRANSACTIONS", (state, column)
            assert room.state("t") == f"PrepareAbort {room.producer.producer_id}:{room.producer.producer_epoch + 1} a-0"
        else:
            room.expect(expected, answer, does_answer_tell=True, records_before=records_before, state="Empty")
        checked += 1
    assert checked == 9 * 6


@pytest.mark.parametrize("row", rows(ADD))
@pytest.mark.parametrize("version", [0, 1, 2])
def test_addition_of_partitions(version: int, row: list[Cell]) -> None:
    for cell in row:
        with in_cell(cell):
            check_addition_of_partitions(version, *cell)


def check_addition_of_partitions(version: int, state: str, half: str, column: str, expected: str) -> None:
    room = Known(version, 2 if version == 2 else 0, state)
    records_before = len(room.records())

    answer = room.add("t", str(room.sender(column)), "n-0" if half == "first" else "a-0")

    if expected == "WAIT":
        assert answer == "waits"
        assert len(room.records()) == records_before
    else:
        room.expect(expected, answer, does_answer_tell=False, records_before=records_before, state="Ongoing")


@pytest.mark.parametrize("row", rows(VERIFY))
@pytest.mark.parametrize("version", [0, 1, 2])
def test_verification_of_partitions(version: int, row: list[Cell]) -> None:
    for cell in row:
        with in_cell(cell):
            check_verification_of_partitions(version, *cell)


def check_verification_of_partitions(version: int, state: str, half: str, column: str, expected: str) -> None:
    room = Known(version, 2 if version == 2 else 0, state)
    records_before = len(room.records())
    partition = "n-0" if half == "first" else "a-0"

    found = room.verify("t", str(room.sender(column)), partition)

    name = ERRORS.get(expected, "NONE")
    assert found == (f"{partition}={name}" if expected in ("TA", "NONE") else name)
    assert len(room.records()) == records_before


def test_tables_name_each_state_once() -> None:
    for table in (END_BELOW_2, END_FROM_2, ADD, VERIFY):
        rows = [cell[0] for cell in cells(table)]
        assert len(rows) == 10 * len(set(rows))
        assert set(rows) >= {"unknown", "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}
    assert producer_of("9999:3") == ProducerIdAndEpoch(9999, FIRST_EPOCH)
