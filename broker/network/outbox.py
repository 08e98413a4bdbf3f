"""The queue of one connection's responses: bytes and slices of segment files. The only writer of its connection.

Its transport layer sends the bytes. When the peer is slow, the outbox is behind, and the owner stops reading that peer's requests. So the
queue is bounded by one response for each request read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future

from broker.loop.cpu_time import UNMEASURED, NetworkTime
from broker.network.transport_layer import MSG_MORE, TransportLayer
from storage.file_slice import FileSlice
from storage.page_cache import is_resident, read_in

Chunk = bytes | bytearray | memoryview | FileSlice

READ_AHEAD_SIZE = 4 * 1024 * 1024  # bytes read ahead behind a large slice: a client that reads one old megabyte reads the next
RESIDENCY_CHECK_SIZE = 32 * 1024  # bytes; smaller slices are tail reads, whose pages were just written
# Bytes; smaller slices are read, and sent in one call with the bytes around them. For 1 KB that is 8 µs of CPU against 14 µs for a send, a
# sendfile and another send, each of which wakes the peer; from about 64 KB on the copy costs more than it saves.
INLINE_SIZE = 16 * 1024
TURN_SIZE = 2 * 1024 * 1024  # bytes sent before other clients get a turn: half a millisecond of calls, one if copied
RUN_SIZE = 64 * 1024
"""Bytes from which on nothing more is joined for one call. An answer in many pieces would be joined whole, again and again."""


class Outbox:
    """The queue of chunks and the layer that sends them, which this outbox closes.

    `on_writable()` is called after an outbox that `is_behind` has caught up. `on_broken(reason)` is called once when the socket or a file
    fails; nothing is sent afterwards. `time` measures the sending. A FileSlice is owned from `push` on and released when sent or dropped.
    """

    __slots__ = (
        "_executor",
        "_is_closed",
        "_is_reading_ahead",
        "_layer",
        "_loop",
        "_on_broken",
        "_on_writable",
        "_queue",
        "_reading_in",
        "_send",
        "_sent_of_head",
        "_time",
        "_turn_left",
        "_waits_for_writable",
        "is_behind",
        "pushed_size",
    )

    def __init__(
        self,
        layer: TransportLayer,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        *,
        on_writable: Callable[[], None],
        on_broken: Callable[[str], None],
        time: NetworkTime = UNMEASURED,
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._layer = layer
        self._send = layer.send  # bound once: it is called for every response
        self._on_writable = on_writable
        self._on_broken = on_broken
        self._time = time
        self._queue: deque[Chunk] = deque()
        self._sent_of_head = 0  # bytes of a FileSlice at the head that are sent already
        self._turn_left = TURN_SIZE  # bytes
        self._waits_for_writable = False
        self._reading_in: FileSlice | None = None  # the slice whose pages a thread is fetching
        self._is_closed = False
        self._is_reading_ahead = False
        self.pushed_size = 0  # bytes queued since the last flush
        self.is_behind = False
        """Whether the next request should wait: the peer or the disk is slower than we are, so that the last flush left something to
        send, or the pages that it will ask for are on their way."""

    @property
    def awaits_peer(self) -> bool:
        """Whether the socket is full."""
        return self._waits_for_writable

    @property
    def queued_size(self) -> int:
        """Bytes of memory that wait to be sent, without slices of files."""
        return sum(len(chunk) for chunk in self._queue if type(chunk) is not FileSlice)

    @property
    def is_reset(self) -> bool:
        """Whether the peer has reset the connection. A connection that does not read from it has to ask."""
        return self._layer.is_reset

    @property
    def has_unread_bytes(self) -> bool:
        """Whether the peer has sent what the transport has not read."""
        return self._layer.has_unread_bytes

    def push(self, chunk: Chunk) -> None:
        """Queue `chunk`; `flush` sends it."""
        self._queue.append(chunk)
        self.pushed_size += len(chunk)

    def flush(self, read_in: FileSlice | None = None) -> None:
        """Send as much as the socket takes now, at most TURN_SIZE; the rest is sent when it is writable again. `read_in` is the head of
        the queue if a thread has just read its pages into memory."""
        self.pushed_size = 0
        if self._waits_for_writable or self._reading_in is not None or self._is_closed:
            return
        self._turn_left = TURN_SIZE
        queue, time = self._queue, self._time
        begun = time.begin() if time.meter.is_on else None
        try:
            if read_in is not None:
                self._send_read_in(read_in)
            while queue:
                head = queue[0]
                if type(head) is FileSlice:
                    if not self._send_slice(head):
                        return
                elif self._turn_left <= 0:
                    raise BlockingIOError  # others first; the socket is writable again at once
                else:
                    self._send_bytes()
        except (BlockingIOError, InterruptedError):
            self._wait_for_writable()
        except OSError as e:
            self._break(str(e))
        finally:
            if begun is not None:
                time.end(begun)

    def pause_writing(self) -> None:
        """Called by asyncio: the transport's queue is full."""
        self._layer.pause_writing()

    def resume_writing(self) -> None:
        """Called by asyncio: the transport takes more again."""
        self._layer.resume_writing()

    def close(self) -> None:
        """Drop what is queued; the transport is the owner's. To be called before it closes. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._waits_for_writable = False
        self._update()
        self._layer.close()
        for chunk in self._queue:
            if type(chunk) is FileSlice and chunk is not self._reading_in:
                chunk.release()
        self._queue.clear()
        self._on_writable, self._on_broken = _nothing, _nothing  # they refer to the owner: break the cycle

    def _send_bytes(self) -> None:
        """Send the run of bytes and small slices at the head with one call; raises BlockingIOError with the rest still queued."""
        queue = self._queue
        data: Chunk = queue.popleft()
        if queue and len(data) < RUN_SIZE and (type(queue[0]) is not FileSlice or queue[0].size < INLINE_SIZE):
            data = self._take_run(data)
        try:
            sent = self._send(data, MSG_MORE if queue else 0)  # type: ignore[arg-type]
        except (BlockingIOError, InterruptedError):
            queue.appendleft(data)
            raise
        if sent < len(data):
            queue.appendleft(memoryview(data)[sent:])  # type: ignore[arg-type]
            raise BlockingIOError
        if queue:
            self._turn_left -= sent

    def _take_run(self, first: Chunk) -> bytes:
        """Takes `first` and the following bytes and small slices from the queue, and returns them as one piece. A slice counts towards
        the turn like the largest one that is copied, because the call is its cost."""
        queue = self._queue
        run = [first]
        run_size = len(first)
        while queue and run_size < RUN_SIZE:
            head = queue[0]
            size = len(head)
            if type(head) is FileSlice:
                if size >= INLINE_SIZE or self._turn_left <= 0:
                    break
                head_bytes = head.disk.pread(head.fd, size, head.position)
                if len(head_bytes) < size:
                    raise OSError("segment ended before its slice")
                self._turn_left -= INLINE_SIZE
                head.release()
                run.append(head_bytes)
            else:
                run.append(head)
            run_size += size
            queue.popleft()
        return b"".join(run)  # type: ignore[arg-type]

    def _send_slice(self, head: FileSlice) -> bool:
        """Send a slice; False when a thread reads its pages in first. Raises BlockingIOError when the socket is full."""
        size = len(head)
        if self._sent_of_head == 0 and size >= RESIDENCY_CHECK_SIZE and not is_resident(head.fd, head.position, size, head.disk):
            self._read_in(head)
            return False
        while self._sent_of_head < size:
            if self._turn_left <= 0:
                raise BlockingIOError  # others first; the socket is writable again at once
            sent = self._layer.send_file(head.fd, head.position + self._sent_of_head, min(size - self._sent_of_head, self._turn_left))
            if sent == 0:  # the file was truncated under us: the announced size can't be kept
                raise OSError("segment ended before its slice")
            self._sent_of_head += sent
            self._turn_left -= sent
        self._queue.popleft()
        self._sent_of_head = 0
        if (
            size >= RESIDENCY_CHECK_SIZE
            and not self._is_reading_ahead
            and not is_resident(head.fd, head.position + size + READ_AHEAD_SIZE // 2, 1, head.disk)
        ):
            self._read_ahead(head)
        else:
            head.release()
        return True

    def _read_ahead(self, sent: FileSlice) -> None:
        """Read the pages after a sent slice into memory, so that neither the next search nor the next sendfile waits for the disk."""
        self._is_reading_ahead = self.is_behind = True
        future = self._executor.submit(read_in, sent.fd, sent.position + len(sent), READ_AHEAD_SIZE, sent.disk)
        future.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._read_ahead_done, sent))

    def _read_ahead_done(self, sent: FileSlice) -> None:
        self._is_reading_ahead = False
        self._update()
        sent.release()
        self._tell_if_caught_up()

    def _read_in(self, head: FileSlice) -> None:
        self._reading_in = head
        self.is_behind = True
        future = self._executor.submit(read_in, head.fd, head.position, len(head), head.disk)
        future.add_done_callback(lambda f: self._loop.call_soon_threadsafe(self._read_in_done, head, f))

    def _read_in_done(self, head: FileSlice, future: Future[None]) -> None:
        self._reading_in = None
        self._update()
        if self._is_closed:
            head.release()
            return
        error = future.exception()
        if error is not None:
            self._break(f"reading a segment: {error}")
            return
        self.flush(head)
        self._tell_if_caught_up()

    def _send_read_in(self, head: FileSlice) -> None:
        """Send a slice whose pages were just read, without another check of their residency. If memory is so short that they were
        evicted again, sendfile waits for the disk."""
        size = len(head)
        sent = self._layer.send_file(head.fd, head.position, min(size, self._turn_left))
        if sent == 0:
            raise OSError("segment ended before its slice")
        self._turn_left -= sent
        if sent == size:
            self._queue.popleft()
            head.release()
        else:
            self._sent_of_head = sent

    def _wait_for_writable(self) -> None:
        self._waits_for_writable = self.is_behind = True
        self._layer.when_writable(self._writable)

    def _writable(self) -> None:
        self._waits_for_writable = False
        self._update()
        self.flush()
        self._tell_if_caught_up()

    def _update(self) -> None:
        """Update `is_behind` after one of its reasons has ended."""
        self.is_behind = self._waits_for_writable or self._reading_in is not None or self._is_reading_ahead

    def _tell_if_caught_up(self) -> None:
        if not self.is_behind and not self._is_closed:
            self._on_writable()

    def _break(self, reason: str) -> None:
        on_broken = self._on_broken
        self.close()
        on_broken(reason)


def _nothing(*_arguments: object) -> None:
    pass
