"""Ranges of offsets as record batches of Arrow, in the columns of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from ...protocol.errors import DecodeError
from ..client.cluster import Cluster
from ..client.fetching import EARLIEST, OffsetError, RangeReader, list_offsets
from ..records.batches import chunks_of, to_record_batch
from ..records.decode import Payload, decode_columns
from .offsets import DataLossError, Offsets
from .options import SourceOptions


class Range(NamedTuple):
    """Offsets of one partition: `end` is exclusive."""

    topic: str
    partition: int
    start: int
    end: int


def ranges_between(start: Offsets, end: Offsets, options: SourceOptions, cluster: Cluster) -> list[Range]:
    """The ranges of a batch. A partition or topic that `start` does not have begins at its first offset. DataLossError for a topic that
    was made anew or has ended before where the query stands, unless failOnDataLoss is false: then it begins at its first offset again. A
    batch that was planned before its topic was made anew has no range of it: its records are gone."""
    found: list[Range] = []
    cluster.refresh(end)  # Spark may run a batch of its log again, long after it was planned
    for topic, told in end.items():
        before, existing = start.get(topic), cluster.topic(topic)
        is_gone = existing is None or existing.topic_id.hex() != told.topic_id
        is_new = before is not None and before.topic_id != told.topic_id
        if (is_gone or is_new) and options.fails_on_data_loss:
            if existing is None:
                raise DataLossError(f"topic {topic} was deleted, and the query has yet to read records of it")
            raise DataLossError(
                f"topic {topic} was deleted and made again: its offsets are of other records now (failOnDataLoss=false reads the new one)"
            )
        if is_gone:
            continue
        begun = {} if before is None or is_new else before.offsets
        unknown = [number for number in told.offsets if number not in begun]
        firsts = list_offsets(cluster, topic, unknown, EARLIEST) if unknown else {}
        for number, last in told.offsets.items():
            first = begun.get(number, firsts.get(number, 0))
            if first > last:
                if options.fails_on_data_loss:
                    raise DataLossError(
                        f"{topic}-{number} ends at offset {last}, and the query has read up to {first}: records were lost by an unclean "
                        "election, or the topic is another one"
                    )
                first = last
            if first < last:
                found.append(Range(topic, number, first, last))
    return [part for each in found for part in _divided(each, options.rows_per_task)]


def _divided(whole: Range, rows: int | None) -> Iterator[Range]:
    if rows is None:
        yield whole
        return
    for start in range(whole.start, whole.end, rows):
        yield whole._replace(start=start, end=min(start + rows, whole.end))


def read_range(options: SourceOptions, part: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range. Raises DataLossError where they are gone, unless failOnDataLoss is false."""
    cluster = options.open()
    start = part.start
    while True:
        reader = RangeReader(cluster, part.topic, part.partition, start=start, end=part.end, isolation=options.isolation)
        try:
            for payloads in reader:
                for chunk in chunks_of(payloads):
                    batch = _batch(options, part, start, chunk)
                    if batch.num_rows:
                        yield batch
            return
        except OffsetError as error:
            if options.fails_on_data_loss:
                raise DataLossError(f"{error}: records that this query has yet to read were deleted, by retention or by hand") from error
            first = list_offsets(cluster, part.topic, [part.partition], EARLIEST)[part.partition]
            if first <= reader.position:
                return
            start = first


def _batch(options: SourceOptions, part: Range, start: int, payloads: list[Payload]) -> pa.RecordBatch:
    try:
        columns = decode_columns(payloads, start_offset=start, end_offset=part.end)
    except DecodeError as error:
        offset = payloads[0].header.base_offset
        raise DataLossError(f"{part.topic}-{part.partition} has a damaged batch at or after offset {offset}: {error}") from error
    return to_record_batch(columns, part.topic, part.partition, has_headers=options.has_headers)
