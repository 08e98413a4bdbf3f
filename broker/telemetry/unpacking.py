"""What a client pushed, decompressed: little at once, more by the worker, because 100 bytes can become 2 MB.

`Unpacking` is the loop's part, owned by ClientMetricsManager; `unpack` is the worker's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import Any, TypeVar

from broker.loop.deferred import Deferred
from broker.worker.jobs import Outcome, Worker
from protocol.compression import Buffer, Compression, decompress
from protocol.errors import DecodeError, OversizedError

Read = TypeVar("Read")

DECOMPRESSED_BYTES_MAX = 2 * 1024 * 1024
"""Of one push. Ours."""

DECOMPRESSED_AT_ONCE_MAX = 64 * 1024
"""Bytes that are decompressed on the loop, in 0.1 ms; a Java client's hundred metrics are a tenth of it."""

UNPACKED_AT_ONCE_MAX = 8
"""Pushes of up to 2 MB that are decompressed by the worker and read; others wait compressed."""

UNPACK = "broker.telemetry.unpacking:unpack"


class Line:
    """First come, first served, `places` at a time.

    Who joins gets a ticket, a Deferred that is complete once it is its turn, and leaves with it, whatever happens."""

    __slots__ = ("_places", "_tickets")

    def __init__(self, places: int) -> None:
        self._places = places
        self._tickets: dict[Deferred, None] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def join(self) -> Deferred:
        ticket = Deferred()
        self._tickets[ticket] = None
        self._serve()
        return ticket

    def leave(self, ticket: Deferred) -> None:
        del self._tickets[ticket]
        self._serve()

    def _serve(self) -> None:
        for ticket in islice(self._tickets, self._places):
            if not ticket.is_done:
                ticket.complete(None)


class Unpacking:
    """See the module's docstring."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._line = Line(UNPACKED_AT_ONCE_MAX)

    def read(
        self, codec: Compression, data: bytes, reader: Callable[[memoryview], Generator[None, None, Read]]
    ) -> Generator[Deferred | None, Any, Read]:
        """What `reader` makes of the decompressed bytes. DecodeError if they are corrupt, or too many."""
        if codec is Compression.NONE:
            return (yield from reader(memoryview(decompress(codec, data, max_bytes=DECOMPRESSED_BYTES_MAX))))
        try:
            unpacked = decompress(codec, data, max_bytes=DECOMPRESSED_AT_ONCE_MAX)
        except OversizedError:
            return (yield from self._read_by_worker(codec, data, reader))
        return (yield from reader(memoryview(unpacked)))

    def _read_by_worker(
        self, codec: Compression, data: bytes, reader: Callable[[memoryview], Generator[None, None, Read]]
    ) -> Generator[Deferred | None, Any, Read]:
        ticket = self._line.join()
        try:
            if not ticket.is_done:
                yield ticket
            outcome: Outcome = yield self._worker.submit(UNPACK, codec, [memoryview(data)], is_short=True)
            if outcome.value is not None:
                raise DecodeError(outcome.value)
            return (yield from reader(memoryview(outcome.buffers[0])))
        finally:
            self._line.leave(ticket)


def unpack(codec: Compression, buffers: Sequence[memoryview]) -> Generator[None, None, tuple[str | None, Sequence[Buffer]]]:
    """The worker's job. Returns what is wrong, or the decompressed bytes."""
    yield
    try:
        return None, [decompress(codec, buffers[0], max_bytes=DECOMPRESSED_BYTES_MAX)]
    except DecodeError as error:
        return str(error), []
