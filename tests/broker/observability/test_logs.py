"""Log lines: what they look like, and that whoever logs never waits for whoever reads."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from broker.observability.log_fields import Fields
from broker.observability.logs import Console, ConsoleHandler, ForeignBudget, JsonFormatter, LineWriter, TextFormatter

TIMEOUT_S = 30


class Pipe:
    """A pipe, both of whose ends this test has."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def read_lines(self, count: int) -> list[str]:
        """The next `count` lines. Waits for them."""
        return [self._read_line() for _ in range(count)]

    def read_until(self, end: str) -> list[str]:
        """The lines up to the one that ends with `end`. Waits for it."""
        lines = [self._read_line()]
        while not lines[-1].endswith(end):
            lines.append(self._read_line())
        return lines

    def _read_line(self) -> str:
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self.reader, 1)
        return line.decode().rstrip("\n")

    def fill(self) -> int:
        """Write until it is full; returns the count of bytes to take out again."""
        os.set_blocking(self.writer, False)
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                count += os.write(self.writer, b"x" * 4096)
        os.set_blocking(self.writer, True)
        return count

    def drain(self, count: int) -> None:
        while count:
            count -= len(os.read(self.reader, count))


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    for descriptor in (made.reader, made.writer):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def describe(count: int) -> bytes:
    return b"%d dropped\n" % count


def record(message: str, *arguments: object, error: BaseException | None = None, name: str = "barnabas.test") -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord(name, logging.INFO, __file__, 1, message, arguments, exc_info)


# LineWriter


def test_lines_are_written_in_order(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writer, describe)

    for number in range(100):
        writer.write(b"%d\n" % number)

    assert pipe.read_lines(100) == [str(number) for number in range(100)]
    assert writer.flush(TIMEOUT_S)


def test_a_line_that_was_written_is_kept_no_longer(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writer, describe)
    line = b"a line " * 10
    holders_before = sys.getrefcount(line)

    writer.write(line)
    assert writer.flush(5.0)

    assert sys.getrefcount(line) == holders_before


def test_what_exceeds_the_queue_is_counted_and_told_where_it_is_missing(pipe: Pipe) -> None:
    writer = LineWriter(pipe.writer, describe, queue_bytes_max=200)  # three lines, and what the thread has taken out already
    filled = pipe.fill()

    for number in range(100):
        writer.write(b"%d\n" % number)
    pipe.drain(filled)

    accounted_count = dropped_count = 0
    while accounted_count < 100:
        (line,) = pipe.read_lines(1)
        if line.endswith(" dropped"):
            count = int(line.split()[0])
            dropped_count += count
        else:
            count = 1
            assert line == str(accounted_count), "a line is missing that nothing told of"
        accounted_count += count
    assert dropped_count >= 90


def test_a_flush_ends_in_time_when_nobody_reads(pipe: Pipe) -> None:
    pipe.fill()
    writer = LineWriter(pipe.writer, describe)
    writer.write(b"unread\n")

    assert not writer.flush(0.01)


def test_a_descriptor_that_does_not_block_gets_every_line_whole(pipe: Pipe) -> None:
    """Node.js gives its children such pipes."""
    os.set_blocking(pipe.writer, False)
    writer = LineWriter(pipe.writer, describe)
    lines = [b"%d" % number + b"." * 1000 for number in range(300)]

    for line in lines:
        writer.write(line + b"\n")

    assert pipe.read_lines(300) == [line.decode() for line in lines]


def test_lines_lost_to_a_failing_descriptor_are_told_when_it_takes_some_again(pipe: Pipe) -> None:
    kept = os.dup(pipe.writer)
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), pipe.writer)
    writer = LineWriter(pipe.writer, describe)
    writer.write(b"lost\n")
    assert writer.flush(TIMEOUT_S)
    os.dup2(kept, pipe.writer)
    os.close(kept)

    writer.write(b"kept\n")

    assert pipe.read_lines(2) == ["kept", "1 dropped"]


def test_a_reader_that_left_is_no_error(pipe: Pipe) -> None:
    os.close(pipe.reader)
    writer = LineWriter(pipe.writer, describe)

    writer.write(b"nobody hears\n")

    assert writer.flush(TIMEOUT_S)


# What is queued


def test_no_frame_and_no_argument_outlives_the_call_that_logs_it(pipe: Pipe) -> None:
    """A traceback holds the frames, and those a frame of megabytes: all for as long as nobody reads the log."""

    class Large:
        pass

    def fail(large: Large) -> None:
        raise ValueError("no")

    console = Console(pipe.writer, pipe.writer, TextFormatter())
    logger = logging.Logger("test")
    logger.addHandler(ConsoleHandler(console))
    pipe.fill()
    large = Large()
    gone = weakref.ref(large)

    try:
        fail(large)
    except ValueError:
        logger.exception("failed with %s", large)
    del large

    assert gone() is None


def test_a_console_is_closed_in_time_though_nobody_reads(pipe: Pipe) -> None:
    pipe.fill()
    console = Console(pipe.writer, pipe.writer, TextFormatter())
    console.announce("ready")
    console.log(record("stopped"))
    closed = threading.Thread(target=console.close, args=(0.01,), daemon=True)

    closed.start()
    closed.join(TIMEOUT_S)

    assert not closed.is_alive()


def test_a_line_whose_arguments_do_not_fit_is_written_all_the_same(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    handler = ConsoleHandler(Console(pipe.writer, pipe.writer, TextFormatter()))

    handler.emit(record("%d partitions", "many"))

    (line,) = pipe.read_lines(1)
    assert line.endswith("%d partitions (this line's arguments do not fit it)")
    assert capsys.readouterr().err == ""


def test_a_library_that_logs_without_end_is_cut_short(pipe: Pipe) -> None:
    """asyncio logs each callback that failed, as often as a client can make it fail."""
    now_s = [0.0]
    console = Console(pipe.writer, pipe.writer, TextFormatter())
    handler = ConsoleHandler(console, ForeignBudget(lambda: now_s[0]))

    for number in range(100):
        handler.emit(record("%d", number, name="asyncio"))
    handler.emit(record("ours"))
    now_s[0] = 60.0
    handler.emit(record("later", name="asyncio"))

    messages = [line.split(" ", 4)[4] for line in pipe.read_until("later")]
    assert messages == [*map(str, range(10)), "ours", "90 lines of asyncio were left out", "later"]


# Text


def test_a_line_of_text_has_time_level_logger_and_message() -> None:
    line = TextFormatter().format(record("topic created %s", Fields(topic="orders", partitions=3)))

    date, time, rest = line.split(" ", 2)
    assert len(date) == 10 and len(time) == 12
    assert rest == "INFO barnabas.test topic created topic=orders partitions=3"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ('a"b', '"a\\"b"'),
        ("a=b", '"a=b"'),
        ("a\nb", '"a\\nb"'),
        ("é", '"\\u00e9"'),
    ],
)
def test_a_field_is_quoted_where_it_must_be(value: str, shown: str) -> None:
    assert str(Fields(name=value)) == f"name={shown}"


def test_facts_that_are_not_known_are_left_out() -> None:
    assert str(Fields(a=None, b=0, c=False)) == "b=0 c=False"


def test_a_peer_cannot_make_a_line_of_its_own() -> None:
    line = TextFormatter().format(record("client %s left", "x\n2025-01-01 00:00:00,000 INFO barnabas forged\x1b[2J\u202e"))

    assert line.endswith("client x\\n2025-01-01 00:00:00,000 INFO barnabas forged\\x1b[2J\\u202e left")


def test_a_traceback_is_indented_so_that_no_line_of_it_looks_like_another_record() -> None:
    try:
        raise ValueError("bad\n2025-01-01 00:00:00,000 INFO barnabas forged")
    except ValueError as e:
        head, *rest = TextFormatter().format(record("failed", error=e)).split("\n")

    assert head.endswith("failed")
    assert rest and all(line.startswith("  ") for line in rest)


def test_a_message_without_end_is_cut() -> None:
    line = TextFormatter().format(record("%s", "x" * 100_000))

    assert len(line) < 9_000 and line.endswith("(100000 characters)")


# JSON


def test_a_line_of_json_is_one_object_with_the_fields() -> None:
    line = JsonFormatter().format(record("topic created %s", Fields(topic="a b\n", partitions=3, level="mine")))

    entry = json.loads(line)
    assert "\n" not in line
    assert entry.pop("ts").endswith("Z")
    assert entry == {
        "level": "INFO",
        "logger": "barnabas.test",
        "message": 'topic created topic="a b\\n" partitions=3 level=mine',
        "topic": "a b\n",
        "partitions": 3,
    }


def test_json_has_the_traceback_in_a_member() -> None:
    try:
        raise ValueError("bad")
    except ValueError as e:
        line = JsonFormatter().format(record("failed", error=e))

    assert json.loads(line)["exception"].endswith("ValueError: bad")


def test_a_refusal_to_start_is_json_too(pipe: Pipe) -> None:
    console = Console(pipe.writer, pipe.writer, JsonFormatter())

    console.report_start_failure("no such directory")

    (line,) = pipe.read_lines(1)
    assert json.loads(line)["message"] == "no such directory"


def test_a_refusal_as_text_is_for_a_person(pipe: Pipe) -> None:
    Console(pipe.writer, pipe.writer, TextFormatter()).report_start_failure("no such directory")

    assert pipe.read_lines(1) == ["barnabas: no such directory"]
