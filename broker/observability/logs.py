"""What a broker process prints: the ready line on stdout, the log on stderr. Writing never waits for the reader.

A pipe without a reader, a stopped terminal and a full disk block a write for ever, so the loop must not write. Lines are formatted where
they are logged, and a thread writes them (`LineWriter`). Lines that do not fit into its bounded queue are counted, and the count is
logged when the reader goes on. A stopping broker waits a second at most for the thread.

Nothing but text is queued: no record, argument, exception or frame lives longer than the call that logs it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from broker.observability.log_fields import Fields, shortened

QUEUE_BYTES_MAX = 1 << 20
"""Lines that wait for the thread; as much again may be on its way out."""

LINE_COST_BYTES = 64
"""What a queued line takes beside its text."""

MESSAGE_CHARACTERS_MAX = 8_192
"""Of one line; peers' strings may be part of it."""

EXCEPTION_CHARACTERS_MAX = 32_768
"""The last ones of a traceback, where the cause is."""

FOREIGN_LINES_MAX = 10
FOREIGN_INTERVAL_S = 60.0
"""Of one library's logger in an interval: asyncio's and others' know no budget, and a client may cause them."""

CLOSE_TIMEOUT_S = 1.0
"""How long a stopping broker waits for its last lines to leave."""

WRITABLE_POLL_MS = 1_000

OWN_LOGGERS = "barnabas."

_log = logging.getLogger("barnabas.log")
# Control characters, line separators, and what turns the direction of text: a peer's string must not look like a line of ours.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class _Formatter(logging.Formatter):
    """What both formats share: limits, so that no line takes memory without bound."""

    def message(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if len(message) <= MESSAGE_CHARACTERS_MAX:
            return message
        return f"{message[:MESSAGE_CHARACTERS_MAX]}… ({len(message)} characters)"

    def exception(self, record: logging.LogRecord) -> str:
        """The traceback, "" without one."""
        if not record.exc_info or record.exc_info[1] is None:
            return ""
        text = self.formatException(record.exc_info)
        return text if len(text) <= EXCEPTION_CHARACTERS_MAX else f"… {text[-EXCEPTION_CHARACTERS_MAX:]}"


class TextFormatter(_Formatter):
    """`2025-06-01 12:00:00,123 INFO barnabas.server message`: one line; the lines of a traceback follow, indented."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname} {record.name} {_escaped(self.message(record))}"
        exception = self.exception(record)
        return line if not exception else line + "".join(f"\n  {_escaped(each)}" for each in exception.split("\n"))


class JsonFormatter(_Formatter):
    """One JSON object: ts (UTC), level, logger, message, the line's fields, and exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, Any] = {
            "ts": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": self.message(record),
        }
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, Fields):
                entry |= {name: shortened(value) for name, value in argument.values.items() if name not in entry}
        exception = self.exception(record)
        if exception:
            entry["exception"] = exception
        return json.dumps(entry)


class LineWriter:
    """Writes to one descriptor from a thread, which is started by the first line. `write` may be called from any thread.

    `describe_dropped` makes the line that says how many were dropped. Other code must not write to the descriptor: it would block.

    logging's QueueHandler and QueueListener do not do: their queue's lock is not reentrant, so that a finalizer that logs while the
    collector runs within `put` waits for itself; `stop` raises where the queue is full; dropped lines are neither counted nor told.
    """

    def __init__(self, descriptor: int, describe_dropped: Callable[[int], bytes], *, queue_bytes_max: int = QUEUE_BYTES_MAX) -> None:
        self._descriptor = descriptor
        self._describe_dropped = describe_dropped
        self._queue_bytes_max = queue_bytes_max
        self._changed = threading.Condition()  # guards all below. Reentrant: the garbage collector may log in the middle of `write`
        self._lines: list[bytes] = []
        self._lines_bytes = 0
        self._dropped_count = 0
        self._is_writing = False
        self._thread: threading.Thread | None = None

    def write(self, line: bytes) -> None:
        """Queue `line`, which ends with a newline, or count it as dropped when the queue is full."""
        with self._changed:
            cost_bytes = len(line) + LINE_COST_BYTES
            if self._lines_bytes + cost_bytes > self._queue_bytes_max:
                self._dropped_count += 1
                return
            self._lines.append(line)
            self._lines_bytes += cost_bytes
            if self._thread is None:
                self._start_thread()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until all lines are written; False when that took longer than `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._lines and not self._is_writing, timeout_s)

    def _start_thread(self) -> None:
        # A daemon: the interpreter must not wait at its end for a write to a pipe without a reader.
        thread = threading.Thread(target=self._run, name=f"barnabas-log-{self._descriptor}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return  # the system has no thread to give; the next line tries again
        self._thread = thread

    def _run(self) -> None:
        lost_count = 0
        while True:
            with self._changed:
                self._dropped_count += lost_count
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines)
                lines, self._lines, self._lines_bytes = self._lines, [], 0
                dropped_count, self._dropped_count = self._dropped_count, 0
                self._is_writing = True
            if dropped_count:
                # The queue was full to its last line, so they were dropped behind it.
                lines.append(self._describe_dropped(dropped_count))
            lost_count = 0 if self._write_out(b"".join(lines)) else len(lines) - bool(dropped_count) + dropped_count
            lines = []  # the next ones may be a long time in coming

    def _write_out(self, data: bytes) -> bool:
        """Write all of `data`, however long that takes. False when it cannot be written: a closed pipe, a full disk."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                # Some parents give their children descriptors that do not block.
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll(WRITABLE_POLL_MS)
            except OSError:
                return False
        return True


class Console:
    """stdout and stderr of this process, each behind a LineWriter. Made by `open_console`; `run` closes it last."""

    def __init__(self, stdout: int, stderr: int, formatter: logging.Formatter) -> None:
        self._formatter = formatter
        self._stdout = LineWriter(stdout, self._dropped_line)
        self._stderr = LineWriter(stderr, self._dropped_line)

    def announce(self, line: str) -> None:
        """Write the ready line to stdout, for the process that started the broker."""
        self._stdout.write(_encoded(line))

    def report_start_failure(self, message: str) -> None:
        """Write why the broker does not start to stderr, after the log lines: as plain text, unless the log is JSON."""
        if isinstance(self._formatter, JsonFormatter):
            self.log(_record(logging.CRITICAL, "%s", message))
        else:
            self._stderr.write(_encoded(f"barnabas: {_escaped(message)}"))

    def log(self, record: logging.LogRecord) -> None:
        """One line, or more with a traceback."""
        self._stderr.write(_encoded(self._formatter.format(record)))

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Let the last lines leave, for at most `timeout_s`: a log without a reader must not keep the process."""
        deadline_s = time.monotonic() + timeout_s
        self._stdout.flush(timeout_s)
        self._stderr.flush(max(0.0, deadline_s - time.monotonic()))

    def _dropped_line(self, count: int) -> bytes:
        message = "%d lines were dropped because nobody read the log, or it could not be written"
        return _encoded(self._formatter.format(_record(logging.WARNING, message, count)))


class ForeignBudget:
    """Counts the lines of libraries' loggers, so that the first ones of an interval are written and the others told as a number."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._intervals: dict[str, tuple[float, int]] = {}  # its begin and its lines by logger; libraries have few loggers

    def takes(self, name: str) -> bool:
        begin_s, count = self._intervals.get(name, (-FOREIGN_INTERVAL_S, 0))
        if self._now_s() - begin_s >= FOREIGN_INTERVAL_S:
            self._intervals[name] = (self._now_s(), 1)
            return True
        self._intervals[name] = (begin_s, count + 1)
        return count < FOREIGN_LINES_MAX

    def end_interval(self, name: str) -> int:
        """How many lines of the logger were left out in an interval that is over now."""
        begin_s, count = self._intervals.get(name, (0.0, 0))
        if count <= FOREIGN_LINES_MAX or self._now_s() - begin_s < FOREIGN_INTERVAL_S:
            return 0
        return count - FOREIGN_LINES_MAX


class ConsoleHandler(logging.Handler):
    """Hands every record of this process to the console, as text."""

    def __init__(self, console: Console, foreign: ForeignBudget | None = None) -> None:
        super().__init__()
        self._console = console
        self._foreign = foreign or ForeignBudget()

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith(OWN_LOGGERS):
            left_out_count = self._foreign.end_interval(record.name)
            if not self._foreign.takes(record.name):
                return
            if left_out_count:
                self._console.log(_record(logging.WARNING, f"%d lines of {record.name} were left out", left_out_count))
        try:
            self._console.log(record)
        except Exception:
            # A call with arguments that do not fit its message is our bug, and neither the caller's nor a reason to write to stderr.
            record.msg, record.args, record.exc_info = "%s (this line's arguments do not fit it)", (str(record.msg),), None
            self._console.log(record)


def open_console(level: int, log_format: str) -> Console:
    """Send all that this process logs to stderr from now on, at `level` and above. Once a process.

    Warnings of libraries, and exceptions without a caller, are logged too instead of being written to stderr.
    """
    _keep_standard_descriptors()
    console = Console(1, 2, JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.addHandler(ConsoleHandler(console))
    root.setLevel(level)
    logging.captureWarnings(True)
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_thread_failure
    return console


def _keep_standard_descriptors() -> None:
    """A process that was started with stdin, stdout or stderr closed would get a listener or a segment's file by that number, and
    write its log into it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def _log_unraisable(unraisable: Any) -> None:
    _log.error("%s: %r", unraisable.err_msg or "Exception ignored in", unraisable.object, exc_info=unraisable.exc_value)


def _log_thread_failure(failure: Any) -> None:
    _log.error("thread %s failed", failure.thread.name if failure.thread else "?", exc_info=failure.exc_value)


def _record(level: int, message: str, argument: Any) -> logging.LogRecord:
    return _log.makeRecord(_log.name, level, __file__, 0, message, (argument,), None)


def _escaped(text: str) -> str:
    if not _UNPRINTABLE.search(text):
        return text
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "backslashreplace") + b"\n"
