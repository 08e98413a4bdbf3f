"""Frames out of a byte stream: whole frames whatever the cuts, large ones received in place, bad sizes refused."""

from __future__ import annotations

import gc
import mmap
import random
import resource
import struct
import weakref
from collections.abc import Iterator

import pytest

from protocol.errors import DecodeError, RequestLimit, RequestLimitError
from protocol.framing import (
    CROWDED_READ_SIZE,
    FRAMES_PER_QUESTION,
    LONG_READ_SIZE,
    POOLED_BUFFER_SIZE,
    POOLED_FRAME_SIZE_MIN,
    READ_SIZE_MAX,
    SCRATCH_SIZE,
    BufferPool,
    FrameAssembler,
    FrameBuffer,
    decode_client_id,
    has_own_buffer,
    keep,
    skip_tags,
)

MAX_FRAME_SIZE = 8 * 1024 * 1024


class Receiver:
    """An assembler and the copies of the frames that it handed out."""

    def __init__(self, *, takes: int = 1_000_000) -> None:
        self.frames: list[bytes] = []
        self.takes = takes
        self.pool = BufferPool()
        self.assembler = FrameAssembler(self._frame, max_frame_size=MAX_FRAME_SIZE, pool=self.pool)

    def _frame(self, frame: memoryview) -> bool:
        self.frames.append(bytes(frame))
        return len(self.frames) < self.takes

    def feed(self, data: bytes, cut: int = 65536) -> None:
        while data:
            view = self.assembler.get_buffer()
            count = min(len(view), len(data), cut)
            assert count > 0
            view[:count] = data[:count]
            self.assembler.buffer_updated(count)
            data = data[count:]


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@pytest.mark.parametrize("cut", [1, 3, 4, 7, 1000, 65536])
def test_frames_come_out_whole_whatever_the_cuts(cut: int) -> None:
    bodies = [b"", b"a", b"bc" * 50, random.Random(7).randbytes(5000), b"end"]
    receiver = Receiver()

    receiver.feed(framed(*bodies), cut)

    assert receiver.frames == bodies
    assert not receiver.assembler.has_partial_frame


@pytest.mark.parametrize("size", [65531, 65532, 65533, 70_000, 1 << 20, POOLED_BUFFER_SIZE, POOLED_BUFFER_SIZE + 1, 5_000_000])
def test_large_frames_between_small_ones_arrive_intact(size: int) -> None:
    large = random.Random(size).randbytes(size)
    receiver = Receiver()

    receiver.feed(framed(b"before", large, b"after"))

    assert receiver.frames == [b"before", large, b"after"]


def test_a_large_frame_is_received_into_its_own_buffer_to_its_exact_end() -> None:
    receiver = Receiver()
    receiver.feed(struct.pack(">i", 100_000) + b"x" * 10)

    assert len(receiver.assembler.get_buffer()) == 100_000 - 10


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 65536])
def test_a_large_request_is_refused_by_its_api_key_unless_it_is_a_produce(cut: int) -> None:
    frames: list[bytes] = []

    def take(frame: memoryview) -> bool:
        frames.append(bytes(frame))
        return True

    def feed(data: bytes) -> FrameAssembler:
        assembler = FrameAssembler(take, max_frame_size=MAX_FRAME_SIZE, max_request_size=100_000, pool=BufferPool())
        for start in range(0, len(data), cut):
            part = data[start : start + cut]
            assembler.get_buffer()[: len(part)] = part
            assembler.buffer_updated(len(part))
        return assembler

    assert feed(struct.pack(">ih", 100_001, 0)).is_inside_large_frame
    assert feed(struct.pack(">ih", 100_000, 3)).is_inside_large_frame
    assert not feed(struct.pack(">ib", 100_001, 0)).is_inside_large_frame
    with pytest.raises(RequestLimitError) as refusal:
        feed(struct.pack(">ih", 100_001, 3))
    assert (refusal.value.api_key, refusal.value.limit) == (3, RequestLimit.BYTES)


def test_a_rest_is_short_up_to_a_long_read() -> None:
    receiver = Receiver()
    assert not receiver.assembler.has_short_rest

    receiver.feed(struct.pack(">i", LONG_READ_SIZE + 10) + b"x" * 9)
    assert not receiver.assembler.has_short_rest
    receiver.feed(b"x")
    assert receiver.assembler.has_short_rest
    receiver.feed(b"x" * LONG_READ_SIZE)
    assert not receiver.assembler.has_short_rest


@pytest.mark.parametrize("size", [POOLED_FRAME_SIZE_MIN, POOLED_BUFFER_SIZE, MAX_FRAME_SIZE])
def test_only_bytes_that_have_arrived_count(size: int) -> None:
    receiver = Receiver()

    receiver.feed(struct.pack(">i", size) + b"x" * 10)

    assert receiver.assembler.held_size == 10


def test_a_declared_size_costs_no_memory_before_its_bytes_arrive() -> None:
    """CVE-2022-34917."""
    pool = BufferPool()
    assemblers = [FrameAssembler(lambda frame: True, max_frame_size=1 << 30, pool=pool) for _ in range(40)]
    before = _resident_bytes()

    for assembler in assemblers:
        data = struct.pack(">i", 1 << 28) + b"x"
        assembler.get_buffer()[: len(data)] = data
        assembler.buffer_updated(len(data))

    assert _resident_bytes() - before < 4 << 20


def test_a_large_frame_is_received_in_reads_that_leave_time_for_others() -> None:
    receiver = Receiver()

    receiver.feed(struct.pack(">i", MAX_FRAME_SIZE) + b"x")

    assert len(receiver.assembler.get_buffer()) == READ_SIZE_MAX


@pytest.mark.parametrize("size", [POOLED_BUFFER_SIZE, MAX_FRAME_SIZE])
def test_a_large_frame_is_received_in_small_reads_once_the_turn_is_over(size: int) -> None:
    receiver = Receiver()
    turns_left = [True]
    receiver.assembler = FrameAssembler(
        receiver._frame, max_frame_size=MAX_FRAME_SIZE, pool=receiver.pool, has_time_left=lambda: turns_left[0]
    )
    receiver.feed(struct.pack(">i", size) + b"x")

    sizes = []
    for turns_left[0] in (True, False, True):
        sizes.append(len(receiver.assembler.get_buffer()))

    whole = READ_SIZE_MAX if size > POOLED_BUFFER_SIZE else size - 1
    assert sizes == [whole, CROWDED_READ_SIZE, whole]


def test_no_memory_for_a_frame_is_a_memory_error(little_address_space: None) -> None:
    receiver = Receiver()

    with pytest.raises(MemoryError):
        receiver.feed(struct.pack(">i", MAX_FRAME_SIZE) + b"x")

    assert len(receiver.assembler.get_buffer()) > 0


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_FRAME_SIZE + 1, 2**31 - 1])
def test_a_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(DecodeError):
        Receiver().feed(struct.pack(">i", size))


def test_frames_already_received_wait_until_resume() -> None:
    receiver = Receiver(takes=1)
    receiver.feed(framed(b"one", b"two", b"three"))
    assert receiver.frames == [b"one"]

    receiver.takes = 10
    receiver.assembler.resume()

    assert receiver.frames == [b"one", b"two", b"three"]


class Keeper:
    """An assembler whose owner keeps a view of the last 10 bytes of each frame, as a request keeps its records."""

    def __init__(self) -> None:
        self.views: list[memoryview] = []
        self.kept: list[weakref.ref[FrameBuffer]] = []
        self.pool = BufferPool()
        self.assembler = FrameAssembler(
            self._frame, max_frame_size=MAX_FRAME_SIZE, pool=self.pool, on_kept=lambda buffer: self.kept.append(weakref.ref(buffer))
        )

    def _frame(self, frame: memoryview) -> bool:
        self.views.append(frame[-10:])
        return True

    def feed(self, data: bytes) -> None:
        Receiver.feed(self, data)  # type: ignore[arg-type]


LARGE_SIZES = [SCRATCH_SIZE, POOLED_FRAME_SIZE_MIN + 1, POOLED_BUFFER_SIZE, POOLED_BUFFER_SIZE + 1]


@pytest.mark.parametrize("size", LARGE_SIZES)
def test_a_large_frame_stays_as_it_is_while_a_view_of_it_is_referenced(size: int) -> None:
    keeper = Keeper()
    bodies = [random.Random(seed).randbytes(size) for seed in range(3)]

    keeper.feed(framed(*bodies))

    assert [bytes(view) for view in keeper.views] == [body[-10:] for body in bodies]
    assert all(has_own_buffer(view) and not view.readonly for view in keeper.views)
    assert all(keep(view) is view for view in keeper.views)


@pytest.mark.parametrize("size", LARGE_SIZES)
def test_the_memory_of_a_frame_that_was_kept_goes_with_its_last_view(size: int, no_collector: None) -> None:
    keeper = Keeper()
    keeper.feed(framed(bytes(size)))
    (reference,) = keeper.kept
    part = keeper.views[0][:5]

    keeper.views.clear()
    assert reference() is not None
    del part

    assert reference() is None


def test_frames_wait_when_the_owner_may_not_go_on() -> None:
    receiver = Receiver()
    bodies = [b"%d" % number for number in range(FRAMES_PER_QUESTION + 3)]
    answers = iter([True, False, False])
    receiver.assembler = FrameAssembler(
        receiver._frame, max_frame_size=MAX_FRAME_SIZE, pool=receiver.pool, has_time_left=lambda: next(answers)
    )

    receiver.feed(framed(*bodies))
    assert receiver.frames == bodies[: 1 + FRAMES_PER_QUESTION]
    assert receiver.assembler.is_interrupted
    receiver.assembler.resume()
    assert receiver.frames == bodies[:-1]
    receiver.assembler.resume()

    assert receiver.frames == bodies
    assert not receiver.assembler.is_interrupted
    assert not receiver.assembler.has_partial_frame


def test_a_small_frame_is_kept_by_a_copy() -> None:
    copies: list[memoryview] = []

    def take(frame: memoryview) -> bool:
        assert not has_own_buffer(frame)
        copies.append(keep(frame))
        return True

    assembler = FrameAssembler(take, max_frame_size=100, pool=BufferPool())
    for body in (b"one", b"two"):
        assembler.get_buffer()[:7] = framed(body)
        assembler.buffer_updated(7)

    assert [bytes(copy) for copy in copies] == [b"one", b"two"]
    assert all(has_own_buffer(copy) and not copy.readonly for copy in copies)


def test_a_frame_that_nobody_keeps_is_not_told_of_and_its_buffer_is_used_again() -> None:
    kept: list[FrameBuffer] = []
    exporters: set[int] = set()

    def take(frame: memoryview) -> bool:
        exporters.add(id(frame.obj))
        return True

    receiver = Receiver()
    receiver.assembler = FrameAssembler(take, max_frame_size=MAX_FRAME_SIZE, pool=receiver.pool, on_kept=kept.append)
    for _ in range(5):
        receiver.feed(framed(b"x" * 1_000_000))

    assert kept == []
    assert len(exporters) == 1


@pytest.mark.parametrize("size", [POOLED_FRAME_SIZE_MIN, POOLED_BUFFER_SIZE, MAX_FRAME_SIZE])
def test_a_partial_frame_is_free_once_its_assembler_is_closed(size: int, no_collector: None) -> None:
    receiver = Receiver()
    receiver.feed(struct.pack(">i", size) + b"x" * 10)
    buffer = weakref.ref(receiver.assembler.get_buffer().obj)

    receiver.assembler.close()

    assert buffer() is None
    assert receiver.assembler.held_size == 0
    receiver.feed(framed(b"what still came"))
    assert receiver.frames == []


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def little_address_space() -> Iterator[None]:
    """What is used now and less than a large frame more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_FRAME_SIZE // 2, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * mmap.PAGESIZE


def test_client_id_as_text() -> None:
    assert decode_client_id(memoryview(b"kcat!"), 5) == "kcat!"
    assert decode_client_id(memoryview(b""), -1) == ""


@pytest.mark.parametrize(("raw", "declared_size"), [(b"abc", 4), (b"", -2), (b"\xff", 1)])
def test_a_bad_client_id_is_a_decode_error(raw: bytes, declared_size: int) -> None:
    with pytest.raises(DecodeError):
        decode_client_id(memoryview(raw), declared_size)


@pytest.mark.parametrize("tags", [b"", b"\x11" + b"\x00\x00" * 17, b"\x01\x00\x05ab", b"\xff\xff\xff\xff\xff\x01", b"\x80"])
def test_bad_header_tags_are_a_decode_error(tags: bytes) -> None:
    with pytest.raises(DecodeError):
        skip_tags(memoryview(tags), 0)


def test_unknown_header_tags_are_skipped() -> None:
    assert skip_tags(memoryview(b"\x02\x00\x01a\x07\x02bcBODY"), 0) == 8
