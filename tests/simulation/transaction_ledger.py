"""What transactional clients did in a simulated run, and what may be seen of it.

Each attempt at a transaction has a number, which is in each of its values: a reader that sees a value knows whose it is. `Attempt.asked`
is what the client has asked for; what the coordinators decided comes from the watch (tests/simulation/transaction_watch.py).

Below transaction version 2 a late request of a producer cannot be told from a timely one of its next transaction, which has the same epoch
(KAFKA-17754): an attempt that such a request has touched is counted and named, and its records are not judged together any more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.simulation.history import History, Key
from tests.simulation.trace import Trace
from tests.support.history_checker import Position

Producer = tuple[int, int]
"""Producer id and epoch."""

KNOWN_FLAW = "KAFKA-17754: "
OPEN, COMMITTED, ABORTED, UNKNOWN = "open", "ok", "fail", "info"


@dataclass(slots=True, eq=False)
class Attempt:
    """One transaction as its client sees it. `asked`: whether to commit; None before it has asked. `decided`: what the coordinator has
    written that it is to be; None before. `settled`: the same, once it cannot be lost any more. `is_misjudged`: a coordinator was asked for
    the end whose office another broker has by now."""

    number: int
    client: str
    transactional_id: str
    producer: Producer
    began_s: float
    polled: dict[Key, list[Position]] = field(default_factory=dict)
    sends: list[tuple[Key, int | None, str]] = field(default_factory=list)
    offsets: dict[Key, int] = field(default_factory=dict)
    asked: bool | None = None
    decided: bool | None = None
    settled: bool | None = None
    is_touched: bool = False
    is_misjudged: bool = False
    outcome: str = OPEN
    ended_s: float = 0.0


class TransactionLedger:
    """Owner: the world. `source_keys` are the partitions that are copied."""

    def __init__(self, history: History, trace: Trace) -> None:
        self.history = history
        self._trace = trace
        self.attempts: list[Attempt] = []
        self._current: dict[Producer, Attempt] = {}
        self._open: dict[int, Attempt] = {}  # that neither client nor coordinator wants to end, by number
        self._ended: list[Attempt] = []
        self._late_offsets: set[tuple[Key, int]] = set()
        self._is_misled = False

    # -- what clients tell -------------------------------------------------------------------------------------------

    def begin(self, client: str, transactional_id: str, producer: Producer, now_s: float) -> Attempt:
        attempt = Attempt(len(self.attempts), client, transactional_id, producer, now_s)
        self.attempts.append(attempt)
        self._open[attempt.number] = attempt
        self._current[producer] = attempt
        return attempt

    def ask(self, attempt: Attempt, *, is_commit: bool) -> None:
        """The client is about to ask for the end."""
        attempt.asked = is_commit
        self._open.pop(attempt.number, None)

    def end(self, attempt: Attempt, outcome: str, now_s: float) -> None:
        attempt.outcome, attempt.ended_s = outcome, now_s
        self._ended.append(attempt)

    # -- what the watch tells ----------------------------------------------------------------------------------------

    def current(self, producer: Producer) -> Attempt | None:
        """The newest attempt of a producer id and epoch."""
        return self._current.get(producer)

    def decide(self, attempt: Attempt, *, is_commit: bool) -> None:
        """A coordinator has written what it is to be. If that is lost, a later one may decide otherwise."""
        attempt.decided = is_commit
        self._open.pop(attempt.number, None)

    def find_open_keys(self) -> list[Key]:
        """The partitions in which a transaction is open, as far as client and coordinator know."""
        return [key for attempt in self._open.values() for key, offset, _ in attempt.sends if offset is not None]

    def touched(self, attempt: Attempt, how: str) -> None:
        """A late request below transaction version 2 counts for this later transaction, as with Kafka."""
        if not attempt.is_touched:
            self._trace.cover(KNOWN_FLAW + how)
        attempt.is_touched = True

    def came_late(self, offsets: dict[Key, int]) -> None:
        """Offsets of an earlier attempt are part of one that was touched."""
        self._late_offsets.update(offsets.items())

    def misled(self) -> None:
        """A former coordinator has told the offsets of the group, which are old."""
        self._trace.cover("offsets of a former coordinator")
        self._is_misled = True

    # -- what readers see --------------------------------------------------------------------------------------------

    def saw(self, reader: str, polled: dict[Key, list[Position]], now_s: float) -> None:
        """A reader of committed records has got these."""
        for key, positions in polled.items():
            for offset, value in positions:
                attempt = self.attempt_of(value)
                if attempt is not None and attempt.asked is not True and not attempt.is_touched:
                    self.history.find("read-before-commit", (round(now_s, 6), reader, key, offset, value, attempt.client, attempt.asked))

    def saw_last_stable_offset(self, reader: str, key: Key, offset: int, now_s: float) -> None:
        """It is not above a record of a transaction that is open, as far as client and coordinator know."""
        for attempt in self._open.values():
            if not attempt.is_touched:
                for sent_key, sent_offset, value in attempt.sends:
                    if sent_key == key and sent_offset is not None and sent_offset < offset:
                        self.history.find("last-stable-offset-passed", (round(now_s, 6), reader, key, offset, sent_offset, value))
                        return

    def saw_committed_offset(self, reader: str, key: Key, offset: int, now_s: float) -> None:
        """It was sent in a transaction that was to be committed."""
        if offset <= 0 or (key, offset) in self._late_offsets:
            return
        if not any(each.offsets.get(key) == offset and (each.asked or each.is_touched) for each in self.attempts):
            self.history.find("pending-offset-visible", (round(now_s, 6), reader, key, offset))

    def attempt_of(self, value: str) -> Attempt | None:
        """Whose value it is; None for one that was not sent in a transaction."""
        _, slash, number = value.rpartition("/")
        return self.attempts[int(number)] if slash else None

    # -- at the end --------------------------------------------------------------------------------------------------

    def write_history(self) -> None:
        """All attempts as operations, in the order of their ends."""
        for attempt in self._ended:
            polls = [("poll", attempt.polled)] if attempt.polled else []
            sends = [("send", *send) for send in attempt.sends]
            where, times = attempt.client, (attempt.began_s, attempt.ended_s)
            if not attempt.is_touched:
                self.history.add(where, "txn", attempt.outcome, [*polls, *sends], *times, rebalanced=list(attempt.polled))
                continue
            for send in sends:
                self.history.add(where, "send", UNKNOWN, [send], *times)

    def check_copies(self, final: dict[Key, list[Position]], committed: dict[Key, int], copied: list[Key], ids: dict[Key, str]) -> None:
        """Each record of the partitions `ids`, below the offset that is committed there, is in `copied` once, and in its order; no other
        one is. `ids` are the transactional ids that copy them. Not so where a former coordinator has told one of them where to begin."""
        if self._is_misled:
            return
        outputs: dict[str, list[tuple[Key, int]]] = defaultdict(list)
        for key in copied:
            for offset, value in final[key]:
                outputs[value.rpartition("/")[0]].append((key, offset))
        for key, transactional_id in ids.items():
            if any(each.is_touched for each in self.attempts if each.transactional_id == transactional_id):
                continue
            last: Counter[Key] = Counter()
            for offset, value in final[key]:
                places = outputs.get(value, [])
                wanted = 1 if offset < committed[key] else 0
                if len(places) != wanted:
                    what = "not-copied" if len(places) < wanted else "copied-twice" if wanted else "copied-without-offset"
                    self.history.find(what, (key, offset, value, committed[key], places))
                for place, at in places:
                    if at < last[place]:
                        self.history.find("copied-out-of-order", (key, offset, value, place, at))
                    last[place] = at
