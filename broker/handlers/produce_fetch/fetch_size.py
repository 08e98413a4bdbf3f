"""How large a Fetch response will be, which counts for its client's quota before the response is made (FetchResponse.sizeOf)."""

from __future__ import annotations

from collections.abc import Iterable

from broker.replication.fetch.fetch_data import PartitionRead
from protocol.uvarint import uvarint

SIZE_FIELD_BYTES = 4  # Kafka counts the frame's size, but not the response's header
SESSIONS_VERSION_MIN = 7
LOG_START_OFFSET_VERSION_MIN = 5
PREFERRED_REPLICA_VERSION_MIN = 11
FLEXIBLE_VERSION_MIN = 12
TOPIC_IDS_VERSION_MIN = 13
TOPIC_ID_BYTES = 16
ABORTED_TRANSACTION_BYTES = 16


def response_size(version: int, reads: Iterable[PartitionRead], *, is_incremental: bool) -> int:
    """Returns the bytes of the response with `reads`, which are in the order of their topics. Those without records and news count only
    if the response is not one of a session: it may leave them out. Not counted are tagged fields, such as a new leader."""
    is_flexible = version >= FLEXIBLE_VERSION_MIN
    count_bytes, tags_bytes = (1, 1) if is_flexible else (4, 0)
    size = SIZE_FIELD_BYTES + 4 + count_bytes + tags_bytes
    if version >= SESSIONS_VERSION_MIN:
        size += 2 + 4
    of_partition = 4 + 2 + 8 + 8 + count_bytes + tags_bytes
    if version >= LOG_START_OFFSET_VERSION_MIN:
        of_partition += 8
    if version >= PREFERRED_REPLICA_VERSION_MIN:
        of_partition += 4
    topic: str | bytes | None = None
    for read in reads:
        records_bytes, target = read.size_bytes, read.target
        if is_incremental and not records_bytes and not read.has_news:
            continue
        name = target.topic_id if version >= TOPIC_IDS_VERSION_MIN else target.topic or ""
        if name != topic:
            topic = name
            size += count_bytes + tags_bytes + _name_bytes(name, is_flexible=is_flexible)
        size += of_partition + records_bytes + (len(uvarint(records_bytes + 1)) if is_flexible else 4)
        if read.aborted_transactions:
            size += len(read.aborted_transactions) * (ABORTED_TRANSACTION_BYTES + tags_bytes)
    return size


def _name_bytes(name: str | bytes, *, is_flexible: bool) -> int:
    if isinstance(name, bytes):
        return TOPIC_ID_BYTES
    length = len(name.encode())
    return length + (len(uvarint(length + 1)) if is_flexible else 2)
