"""Reading batches that arrive together: from a leader (several, offsets assigned) or from the broker itself. Called by Log only."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.records import MAGIC_V2, BatchHeader, crc_is_valid, iterate_headers


def read_replicated_batches(records: memoryview, log_end_offset: int) -> list[BatchHeader]:
    """The headers of the whole batches in `records`, each checked: checksum, format, offsets that ascend from the log's end."""
    headers: list[BatchHeader] = []
    next_offset = log_end_offset
    try:
        for position, header in iterate_headers(records):
            if header.magic != MAGIC_V2 or not crc_is_valid(records, position, header.size_bytes):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} from the leader is corrupt")
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"a batch at offset {header.base_offset} came where {next_offset} was next")
            headers.append(header)
            next_offset = header.next_offset
    except DecodeError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a malformed batch came from the leader: {error}") from error
    return headers


def split_batches(records: memoryview) -> Iterator[memoryview]:
    """One view per batch; the last may be partial, for the validation to refuse."""
    position = 0
    for position, header in iterate_headers(records):
        yield records[position : position + header.size_bytes]
        position += header.size_bytes
    if position < len(records):
        yield records[position:]
