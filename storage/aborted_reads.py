"""Finds the aborted transactions of a read, whose records a READ_COMMITTED client leaves out (UnifiedLog.addAbortedTransactions).

Bounds: the segments without an abort marker cost nothing, the others a search in their index. Of transactions that are open over this part
of the log without a record in it, Kafka names all. Here a read of n bytes never names more than n / HEADER_SIZE. Called by Log only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.records import HEADER_SIZE, BatchHeader, iterate_headers
from storage.batch_scan import iterate_batches
from storage.file_slice import FileSlice
from storage.log_segments import LogSegments
from storage.transaction_index import AbortedTransaction


def find_aborted(segments: LogSegments, start_offset: int, records: FileSlice | bytes, log_end_offset: int) -> list[AbortedTransaction]:
    """Returns the aborted transactions that have records in `records`, a read from `start_offset`, in the order of their markers.

    OSError, StorageError or DecodeError when a header or an index cannot be read; ColdRead where that may not wait."""
    if not len(records) or not segments.have_aborted:
        return []
    if isinstance(records, bytes):
        end_offset = max(header.next_offset for _, header in iterate_headers(records))
    else:
        end_offset = segments.end_offset_of_read(start_offset, records, log_end_offset)
    aborted = segments.find_aborted(start_offset, end_offset)
    return aborted if len(aborted) * HEADER_SIZE <= len(records) else _leave_out_absent(aborted, _headers(segments, start_offset, records))


def _headers(segments: LogSegments, start_offset: int, records: FileSlice | bytes) -> Iterator[tuple[int, BatchHeader]]:
    if isinstance(records, bytes):
        return iterate_headers(records)
    file = segments.at(segments.index_of_read(start_offset, records)).file
    return iterate_batches(file, records.position + records.size, records.position)


def _leave_out_absent(aborted: list[AbortedTransaction], headers: Iterable[tuple[int, BatchHeader]]) -> list[AbortedTransaction]:
    """Returns those that have one of these batches."""
    by_producer: dict[int, list[AbortedTransaction]] = {}
    for each in aborted:
        by_producer.setdefault(each.producer_id, []).append(each)
    present: set[AbortedTransaction] = set()
    for _, header in headers:
        if header.is_control or not header.is_transactional:
            continue
        for each in by_producer.get(header.producer_id, ()):
            if each.first_offset <= header.base_offset < each.last_offset:
                present.add(each)
                break
    return [each for each in aborted if each in present]
