"""PeerTraffic: what one kind of connections to other nodes has sent and received."""

from __future__ import annotations

from collections.abc import Iterable, Sized

SIZE_BYTES = 4  # of the length before each frame


class PeerTraffic:
    """Counters of Kafka's NetworkClient metrics. The connections that share it add to it. Bytes are of frames, without TLS."""

    __slots__ = ("bytes_in", "bytes_out", "requests_count", "responses_count")

    def __init__(self) -> None:
        self.requests_count = 0
        self.responses_count = 0
        self.bytes_in = 0
        self.bytes_out = 0

    def count_request(self, chunks: Iterable[Sized]) -> None:
        """A request of these bytes, with its length, was sent."""
        self.requests_count += 1
        self.bytes_out += sum(map(len, chunks))

    def count_response(self, frame: Sized) -> None:
        """A response came; `frame` is without its length."""
        self.responses_count += 1
        self.bytes_in += SIZE_BYTES + len(frame)
