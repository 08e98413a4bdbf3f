"""Frames and request headers, without I/O: bytes arrive in buffers that this module hands out, whole frames come back.

A frame is an int32 size, big endian, and that many bytes (NetworkReceive in Kafka). Small frames are cut from a scratch
buffer that all connections share; the rest of a frame that came in part is received straight into a buffer of its own, so that
a 1 MB produce is copied once by the kernel and never by us. Frames are writable views: the log patches offsets in place.

A frame from the scratch is valid only until the callback that receives it returns. A frame with a buffer of its own is handed over:
it stays valid as long as any view of it is referenced, and its memory is free when the last view is gone, without a call of
`close` or `release`. `keep` turns either into a view that stays valid. A kept frame keeps its memory beyond its request's end.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from sys import getrefcount

from .errors import DecodeError, RequestLimit, RequestLimitError
from .foreign_protocols import refused_size

SCRATCH_SIZE = 8 * 1024  # bytes received at once: about 40 of the smallest produce requests, half a millisecond's work
FRAMES_PER_QUESTION = 4  # whether there is time for more: 0.3 µs
HELD_SIZE_MAX = 4 * 1024
"""Bytes; the beginning of a larger frame gets a buffer of the frame's size, that of a smaller one is copied at the next read."""
POOLED_FRAME_SIZE_MIN = 64 * 1024  # bytes; a smaller frame is worth its own allocation, two microseconds, and no megabyte
POOLED_BUFFER_SIZE = 1024 * 1024 + 64 * 1024  # bytes; room for a client's 1 MiB batch and its request around it
POOLED_BUFFERS_MAX = 8
READ_SIZE_MAX = 256 * 1024  # bytes received at once into a larger frame: a tenth of a millisecond before others are looked at
LONG_READ_SIZE = 128 * 1024  # bytes; whether there is time is asked before a read of more than this
CROWDED_READ_SIZE = 32 * 1024  # bytes received instead when there is none

_SIZE = struct.Struct(">i")
REQUEST_HEADER = struct.Struct(">hhih")  # API key, API version, correlation id, client id's size (-1: null); then the client id
API_KEY_SIZE = 2  # bytes; the first of a request
_PRODUCE = b"\x00\x00"  # its API key
HEADER_SIZE_MIN = REQUEST_HEADER.size  # bytes; header v2 has a tag section behind the client id, see `skip_tags`


class SmallFrameBuffer(bytearray):
    """The buffer of one frame up to POOLED_FRAME_SIZE_MIN. A type of its own, so that it is told from the scratch and weakly referenced."""

    __slots__ = ("__weakref__",)


FrameBuffer = SmallFrameBuffer | mmap.mmap
"""The buffer of one frame. An mmap is address space: a page costs memory when its first byte arrives (CVE-2022-34917: never trust a
declared size), and nothing is copied for a frame to grow. It is never closed, for that fails while views exist; it goes with them."""


def has_own_buffer(frame: memoryview) -> bool:
    """Whether `frame`, or what it is a part of, stays valid as long as it is referenced; else only until the callback returns."""
    exporter = type(frame.obj)
    return exporter is mmap.mmap or exporter is SmallFrameBuffer


def keep(frame: memoryview) -> memoryview:
    """A view of the same bytes that stays valid and writable: `frame` itself if its buffer is its own, else a copy."""
    return frame if has_own_buffer(frame) else memoryview(SmallFrameBuffer(frame))


def _map_memory(size: int) -> mmap.mmap:
    """Zeroed memory that costs nothing before it is touched. MemoryError when the address space, or a limit on it, is used up."""
    try:
        mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as e:
        raise MemoryError(f"no memory for a frame of {size} bytes: {e.strerror}") from e
    if _NO_HUGE_PAGES is not None:
        try:
            mapped.madvise(_NO_HUGE_PAGES)  # else the first byte costs two megabytes where huge pages are always on
        except OSError:
            pass  # a kernel without huge pages
    return mapped


_NO_HUGE_PAGES: int | None = getattr(mmap, "MADV_NOHUGEPAGE", None)  # Linux


class BufferPool:
    """Receive buffers that the connections of one event loop share.

    All connections share `scratch`: a read is one uninterrupted call, so one is enough, and an idle connection holds no
    memory. Large buffers are kept for reuse: a fresh megabyte costs about 50 µs of page faults, a used one nothing.
    """

    __slots__ = ("_free", "scratch")

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_SIZE))
        self._free: list[mmap.mmap] = []

    def take(self) -> mmap.mmap:
        """A buffer of POOLED_BUFFER_SIZE bytes with arbitrary contents. Raises MemoryError."""
        return self._free.pop() if self._free else _map_memory(POOLED_BUFFER_SIZE)

    def give_back(self, buffer: FrameBuffer) -> None:
        """Keep `buffer` for the next large frame, or drop it. Only the caller still refers to it, and not for long."""
        if len(buffer) == POOLED_BUFFER_SIZE and type(buffer) is mmap.mmap and len(self._free) < POOLED_BUFFERS_MAX:
            self._free.append(buffer)


class FrameAssembler:
    """Cuts a byte stream into frames.

    The owner calls `get_buffer()`, receives into the view at once, and calls `buffer_updated(count)`, which calls `on_frame(view)` for
    every whole frame in order. `on_frame` returns False to stop for now: frames already received stay, and `resume()` goes on.
    `on_kept(buffer)` is called after an `on_frame` whose frame was handed over and is still referenced: it is memory of its own from
    then on, until the buffer is gone (a weak reference tells).
    `has_time_left()`, if given, is asked after the first small frame of a read if there is more, and then after each FRAMES_PER_QUESTION.
    When it returns False, the frames left stay too and `is_interrupted` says so; the owner calls `resume()` in a later turn
    of the loop and reads nothing before. It is also asked before each long read into a large frame: megabytes for each of many
    connections take as long as their requests.
    `max_request_size`, if given, bounds every request but a Produce. Its API key tells, before memory is taken for it.

    Raises from `buffer_updated` and `resume` RequestLimitError for a request above `max_request_size`, DecodeError for a frame size below 0
    or above `max_frame_size`, MemoryError for a frame that there is no memory for. The owner closes the connection then.
    """

    __slots__ = (
        "_has_time_left",
        "_held",
        "_large",
        "_large_position",
        "_large_read_size",
        "_large_size",
        "_large_view",
        "_on_frame",
        "_on_kept",
        "_pool",
        "_scratch",
        "has_partial_frame",
        "is_interrupted",
        "max_frame_size",
        "max_request_size",
    )

    def __init__(
        self,
        on_frame: Callable[[memoryview], bool],
        *,
        max_frame_size: int,
        max_request_size: int | None = None,
        pool: BufferPool,
        on_kept: Callable[[FrameBuffer], None] | None = None,
        has_time_left: Callable[[], bool] | None = None,
    ) -> None:
        self.max_frame_size = max_frame_size
        self.max_request_size = max_frame_size if max_request_size is None else max_request_size
        self._on_frame = on_frame
        self._on_kept = on_kept
        self._has_time_left = has_time_left
        self.is_interrupted = False
        self._pool = pool
        self._scratch = pool.scratch
        self._held: bytes | bytearray = b""  # received and not handed out: the beginning of a small frame, or frames that wait
        self._large: FrameBuffer | None = None  # the frame being received on its own, without its size field
        self._large_view: memoryview | None = None  # of all of it, to receive into
        self._large_size = 0
        self._large_position = 0
        self._large_read_size = 0  # bytes to be received at once
        self.has_partial_frame = False
        """Whether bytes of a frame that is not complete, or not yet taken, are held."""

    @property
    def is_inside_large_frame(self) -> bool:
        """Whether what comes next goes on with a frame that has a buffer of its own."""
        return self._large is not None

    @property
    def has_short_rest(self) -> bool:
        """Whether a large frame has begun and no more than LONG_READ_SIZE bytes of it are to come."""
        return self._large is not None and self._large_size - self._large_position <= LONG_READ_SIZE

    @property
    def held_size(self) -> int:
        """Bytes that have arrived and were not handed out: the memory that frames in progress cost."""
        return len(self._held) + (self._large_position if self._large is not None else 0)

    def get_buffer(self) -> memoryview:
        """The writable, never empty view to receive into next; valid until the next call of anyone who shares the pool."""
        if self._large_view is not None:
            position = self._large_position
            size = self._large_read_size
            if size > LONG_READ_SIZE and self._has_time_left is not None and not self._has_time_left():
                size = CROWDED_READ_SIZE
            return self._large_view[position : position + size]
        if not self._held:
            return self._scratch
        size = len(self._held)
        assert size < SCRATCH_SIZE, "nothing is read while frames wait"
        self._scratch[:size] = self._held
        return self._scratch[size:]

    def buffer_updated(self, count: int) -> None:
        """Account for `count` bytes received into the last view of `get_buffer`."""
        if self._large is not None:
            self._large_position += count
            if self._large_position == self._large_size:
                self._finish_large()
            return
        end = len(self._held) + count
        self._held = b""
        self._cut(self._scratch, end)

    def resume(self) -> None:
        """Hand out the whole frames that are held, until none is left or `on_frame` asks to stop."""
        self.is_interrupted = False
        if self._held:
            held = bytearray(self._held)
            self._held = b""
            self._cut(memoryview(held), len(held))

    def close(self) -> None:
        """Let go of everything that has arrived, and of the owner. What still comes is dropped."""
        self._held = b""
        self._large = self._large_view = None  # not given back to the pool: a read may still be under way
        self.has_partial_frame = False
        self._on_frame = _drop
        self._on_kept = self._has_time_left = None
        self.is_interrupted = False

    def _cut(self, view: memoryview, end: int) -> None:
        """Hand out the frames in `view[:end]` and keep what is left."""
        self.has_partial_frame = False
        start = 0
        unasked = 1  # frames
        while end - start >= 4:
            (size,) = _SIZE.unpack_from(view, start)
            if not 0 <= size <= self.max_frame_size:
                raise refused_size(size, self.max_frame_size)
            frame_end = start + 4 + size
            if frame_end > end:
                if size > self.max_request_size:
                    if start + 4 + API_KEY_SIZE > end:
                        break  # the API key says whether this is too large
                    self._check_request_size(size, view[start + 4 : start + 4 + API_KEY_SIZE])
                if size > HELD_SIZE_MAX:
                    self._begin_large(size, view[start + 4 : end])
                    return
                break
            wants_more = self._on_frame(view[start + 4 : frame_end])
            start = frame_end
            if not wants_more:
                break
            unasked -= 1
            if unasked <= 0 and start != end and self._has_time_left is not None:
                if not self._has_time_left():
                    self.is_interrupted = True
                    break
                unasked = FRAMES_PER_QUESTION
        if start != end:
            self._held = bytes(view[start:end])
            self.has_partial_frame = True

    def _check_request_size(self, size: int, api_key: memoryview) -> None:
        if api_key != _PRODUCE:
            message = f"{size} bytes; at most {self.max_request_size} are accepted"
            raise RequestLimitError(int.from_bytes(api_key, signed=True), RequestLimit.BYTES, message)

    def _begin_large(self, size: int, arrived: memoryview) -> None:
        """Receive this frame into a buffer that it has for itself; what has arrived of it moves along."""
        if size <= POOLED_FRAME_SIZE_MIN:
            self._large = SmallFrameBuffer(size)
        else:
            self._large = self._pool.take() if size <= POOLED_BUFFER_SIZE else _map_memory(size)
        self.has_partial_frame = True
        self._large_view = memoryview(self._large)[:size]
        self._large_view[: len(arrived)] = arrived
        self._large_size = size
        self._large_position = len(arrived)
        self._large_read_size = size if size <= POOLED_BUFFER_SIZE else READ_SIZE_MAX

    def _finish_large(self) -> None:
        buffer = self._large
        assert buffer is not None
        self._large = self._large_view = None
        self.has_partial_frame = False
        references = getrefcount(buffer)  # each memoryview(buffer), with all its slices, is one
        self._on_frame(memoryview(buffer)[: self._large_size])
        if getrefcount(buffer) > references:
            if self._on_kept is not None:
                self._on_kept(buffer)
        else:
            self._pool.give_back(buffer)


def _drop(_frame: memoryview) -> bool:
    return True


def decode_client_id(raw: memoryview, declared_size: int) -> str:
    """The client id as text, "" for null; `raw` is what the frame holds of it. Raises DecodeError when it is cut or not UTF-8."""
    if declared_size < -1 or len(raw) != max(declared_size, 0):
        raise DecodeError(f"client id of {declared_size} bytes, {len(raw)} are there")
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as e:
        raise DecodeError("client id is not UTF-8") from e


TAGS_PER_HEADER_MAX = 16  # CVE-2026-111115: a flood of two-byte tags must not cost memory before authentication


def skip_tags(frame: memoryview, position: int) -> int:
    """The position after the tag section at `position`; raises DecodeError. Header v2 defines no tags, so all are skipped."""
    if position < len(frame) and frame[position] == 0:  # nearly always
        return position + 1
    count, position = _read_uvarint(frame, position)
    if count > TAGS_PER_HEADER_MAX:
        raise DecodeError(f"{count} tagged fields in a request header; at most {TAGS_PER_HEADER_MAX} are accepted")
    for _ in range(count):
        _, position = _read_uvarint(frame, position)
        size, position = _read_uvarint(frame, position)
        position += size
    if position > len(frame):
        raise DecodeError("tagged field runs past the frame")
    return position


def _read_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(frame):
            raise DecodeError("varint runs past the frame")
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError("varint of more than five bytes")
