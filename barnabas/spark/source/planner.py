"""Plans the batches of a stream, and notes its progress in a group.

Spark 4.0 and 4.1 ask for the latest offsets without telling where the stream stands: of a new query they ask only then where it begins, and
after a restart nobody knows it here before the first batch is planned. With maxOffsetsPerTrigger the group then says where: before a batch
may begin, its end is noted there, beside what has been read. The stream stands at the newest noted end, or before it if Spark has not begun
that batch; what is planned from it is never behind the stream, as long as the notes are this query's and the newest. From 4.2 on Spark
tells it (`next_offsets`), and no note is needed.

    offset      where the batches that are done end
    metadata    `planned=<offset>`: where the batch ends that may have begun; written with maxOffsetsPerTrigger only

The checkpoint stays the truth: nothing is read again or left out because of what the group has.

Source: MicroBatchExecution.constructNextBatch, runBatch (Spark 4.0.0).
"""

from __future__ import annotations

import logging
import re
import time

from ..client.cluster import Cluster, Place
from ..client.fetching import LATEST
from ..client.groups import Committed, commit_offsets, fetch_offsets, open_group_cluster
from ..errors import BrokerError, RefusedError
from . import offsets as positions
from .offsets import DataLossError, Offsets, TopicOffsets
from .options import SourceOptions
from .reading import Range, ranges_between

log = logging.getLogger("barnabas.spark")

PLANNED = re.compile(r"planned=([0-9]{1,19})")
RENEWAL_S = 3600.0
"""An unchanged offset is committed again after so long: brokers forget those of groups without members (offsets.retention.minutes)."""


class StreamPlanner:
    """One object, in one process of the driver, plans all batches of a query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._initial: Offsets | None = None
        self._planned: Offsets | None = None  # the end of the batch that was planned last; where the stream begins before the first one
        self._target: Offsets | None = None  # of availableNow: no batch ends behind it
        self._group = None if options.group is None else _Group(options, options.group)

    def initial_offsets(self) -> Offsets:
        """Where a new query begins. Spark asks after it has fixed where the first batch ends, and again if that batch is repeated."""
        self._initial = self._planned = positions.starting_offsets(self._options.open(), self._options, default=LATEST)
        if self._group is not None and self._group.has_found_notes:
            log.warning("the group %s of a new query has planned ends of another: they end its first batch", self._options.group)
        return self._initial

    def latest_offsets(self) -> Offsets:
        """Where the next batch ends. Spark asks when the one before has ended. BrokerError with maxOffsetsPerTrigger if the group cannot
        be read after a restart, or can never note it."""
        end = positions.latest_offsets(self._options.open(), self._options)
        limit, group = self._options.offsets_per_trigger, self._group
        if limit is None:
            if group is not None and self._planned is not None:
                group.note_read(self._planned)
            return end
        begun = self._planned
        if begun is None and group is not None:
            begun = group.find_planned(end)
        if begun is None:
            return end
        end = positions.limited(begun, end, limit)
        if group is not None and not group.note_planned(self._planned, end):
            return _held(begun, end)
        return end

    def next_offsets(self, start: Offsets, limit: int | None) -> Offsets:
        """Where the batch ends that begins at `start`, for a Spark that says so. All before `start` has been read."""
        end = positions.latest_offsets(self._options.open(), self._options)
        if self._group is not None:
            self._group.note_read(start)
        if self._target is not None:
            end = _bounded(start, end, self._target)
        return end if limit is None else positions.limited(start, end, limit)

    def end_here(self) -> None:
        """The stream ends where the topics end now."""
        self._target = positions.latest_offsets(self._options.open(), self._options)

    def ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """The ranges of a batch. DataLossError if it ends before it begins."""
        self._planned = end
        if start == self._initial:
            start = self._begun_by(start, end)
        elif self._group is not None and self._options.offsets_per_trigger is not None:
            self._refuse_foreign_notes(start, end)
        return ranges_between(start, end, self._options, self._options.open())

    def _begun_by(self, start: Offsets, end: Offsets) -> Offsets:
        """Where a new query begins, but where it begins at a partition's end, that is no later than the first batch's end, which was fixed
        before: what came in between is of the next batch."""
        ends = _places(end)

        def begun(topic: str, number: int, offset: int) -> int:
            return min(offset, ends.get((topic, number), offset)) if self._options.begins_at_end(topic, number) else offset

        return {
            topic: TopicOffsets(told.topic_id, {number: begun(topic, number, offset) for number, offset in told.offsets.items()})
            for topic, told in start.items()
        }

    def _refuse_foreign_notes(self, start: Offsets, end: Offsets) -> None:
        """DataLossError for a batch that ends before the stream, although the partition does not: its end comes from notes of others."""
        latest = None
        for (topic, number), last in _places(end).items():
            first = start[topic].offsets.get(number, 0) if topic in start else 0
            if first > last:
                latest = latest or _places(positions.latest_offsets(self._options.open(), self._options))
                if latest.get((topic, number), 0) >= first:
                    raise DataLossError(
                        f"the query has read {topic}-{number} up to offset {first}, and its next batch would end at {last}: the group "
                        f"{self._options.group} has notes of another query, or of this one before it ran without the group. Delete the "
                        "group, and the newest file of the checkpoint's folder `offsets`, which has none of its number in `commits`"
                    )

    def commit(self, end: Offsets) -> None:
        """The batch that ends there is done: with availableNow Spark says so instead of asking for the latest offsets."""
        if self._group is not None and self._options.offsets_per_trigger is None:
            self._group.note_read(end)


class _Group:
    """Where a query notes its progress. What fails is one warning, until it succeeds again."""

    def __init__(self, options: SourceOptions, name: str) -> None:
        self._options = options
        self._name = name
        self._cluster: Cluster | None = None
        self._noted: dict[Place, Committed] = {}
        self._noted_s = 0.0
        self._is_failing = False
        self.has_found_notes = False

    def find_planned(self, end: Offsets) -> Offsets | None:
        """Where the stream stands at most, by the group. A partition of which it has no such note stands at `end` at most. None if there
        is none at all. BrokerError if the group cannot be reached: a batch without its note would make the notes old."""
        found = fetch_offsets(self._options.open(), self._name, _places(end))
        self._noted = found
        planned = {place: int(note[1]) for place, told in found.items() if (note := PLANNED.fullmatch(told.metadata))}
        if not planned:
            return None
        self.has_found_notes = True
        return {
            topic: TopicOffsets(told.topic_id, {number: planned.get((topic, number), offset) for number, offset in told.offsets.items()})
            for topic, told in end.items()
        }

    def note_read(self, read: Offsets) -> None:
        """Raises nothing."""
        try:
            self._note({place: Committed(offset) for place, offset in _places(read).items()})
        except (BrokerError, OSError) as error:
            self._warn(error)

    def note_planned(self, read: Offsets | None, planned: Offsets) -> bool:
        """Whether it is noted. `read` is None after a restart: then what the group has stays. RefusedError if it never can be."""
        before = {place: told.offset for place, told in self._noted.items()} if read is None else _places(read)
        ends = _places(planned)
        notes = {place: Committed(offset, f"planned={ends[place]}") for place, offset in before.items() if place in ends}
        try:
            self._note(notes)
        except RefusedError:
            raise
        except (BrokerError, OSError) as error:
            self._warn(error, "; no batch begins before, as maxOffsetsPerTrigger counts from it")
            return False
        return True

    def _note(self, notes: dict[Place, Committed]) -> None:
        if not notes or (notes == self._noted and time.monotonic() - self._noted_s < RENEWAL_S):
            return
        commit_offsets(self._open(), self._name, notes)
        self._noted, self._noted_s, self._is_failing = notes, time.monotonic(), False

    def _open(self) -> Cluster:
        if self._cluster is None:
            self._cluster = open_group_cluster(self._options.servers, self._options.security)
        return self._cluster

    def _warn(self, error: Exception, rest: str = "") -> None:
        if not self._is_failing:
            log.warning("the progress of a stream is not noted in the group %s: %s%s", self._name, error, rest)
        self._is_failing = True


def _places(offsets: Offsets) -> dict[Place, int]:
    return {(topic, number): offset for topic, told in offsets.items() for number, offset in told.offsets.items()}


def _held(begun: Offsets, end: Offsets) -> Offsets:
    """No further than `begun`, where it has the partition."""
    places = _places(begun)
    return {
        topic: TopicOffsets(told.topic_id, {number: places.get((topic, number), offset) for number, offset in told.offsets.items()})
        for topic, told in end.items()
    }


def _bounded(start: Offsets, end: Offsets, target: Offsets) -> Offsets:
    """`end`, but nowhere behind `target`, nor before `start`; without partitions that are newer than the target."""
    begun, last = _places(start), _places(target)
    bounded: Offsets = {}
    for topic, told in end.items():
        known = {number: min(offset, last[topic, number]) for number, offset in told.offsets.items() if (topic, number) in last}
        if known:
            offsets = {number: max(offset, begun.get((topic, number), offset)) for number, offset in known.items()}
            bounded[topic] = TopicOffsets(told.topic_id, offsets)
    return bounded
