"""The limit on the size of one answer: a request of a few KB must not cause hundreds of megabytes by naming the same thing repeatedly.

Kafka has no such limit. A handler whose answer may be much larger than its request counts the parts that it adds. A part that does not fit
is answered with an error.
"""

from __future__ import annotations

from protocol.errors import ErrorCode, KafkaError

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""The configs of 5,000 topics with their documentation, or the offsets of a million partitions."""


class AnswerSize:
    """Counts the bytes of one answer, roughly."""

    __slots__ = ("_left_bytes",)

    def __init__(self, limit_bytes: int = ANSWER_BYTES_MAX) -> None:
        self._left_bytes = limit_bytes

    def take(self, size_bytes: int) -> None:
        """Count a part. Raises KafkaError POLICY_VIOLATION if it does not fit any more; smaller parts still may."""
        if size_bytes > self._left_bytes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "The answer would be too large: ask for less in one request.")
        self._left_bytes -= size_bytes
