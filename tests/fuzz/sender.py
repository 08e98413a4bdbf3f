"""Sends inputs one after another over a connection, and judges what comes back: an answer that can be read, or a closed connection."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from protocol import codec
from protocol.apis import DECLARED
from protocol.errors import DecodeError
from protocol.framing import skip_tags
from tests.fuzz.inputs import Input

PARKED_BY_RIGHT = frozenset((0, 1, 11, 14))
"""Produce (no answer with acks=0), Fetch, JoinGroup, SyncGroup: their clients say how long they wait."""
LOGIN_KEYS = (17, 18, 36)
"""SaslHandshake, ApiVersions, SaslAuthenticate."""
SASL_AUTHENTICATE = 36
ILLEGAL_SASL_STATE = (34).to_bytes(2)
PATIENCE_S = 0.1
"""For an answer to one of these."""
ANSWER_TIMEOUT_S = 90.0
"""For any other: on a slow machine, behind the requests of the others."""
DECODED_BYTES_MAX = 1_000_000
RECENT_MAX = 50
SLOW_NS = 5_000_000
SLOW_KEPT = 200_000
FAILURES_KEPT = 10
SHOWN_BYTES_MAX = 200
HEADER_BYTES = 16  # a frame's size, API key, version, correlation id; the client id's size


class Outcome(StrEnum):
    ANSWERED = "answered"
    CLOSED = "closed"
    PARKED = "parked"


class Slow(NamedTuple):
    """An input whose outcome took long. Times are CLOCK_MONOTONIC's nanoseconds."""

    start_ns: int
    end_ns: int
    input: str


@dataclass(slots=True)
class Findings:
    """What all senders of a run have found. Each adds to it under the GIL; nobody reads the tallies before the senders have ended."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By strike and outcome."""
    failures: list[str] = field(default_factory=list)
    slow: deque[Slow] = field(default_factory=lambda: deque(maxlen=SLOW_KEPT))
    closed_whole: Counter[str] = field(default_factory=Counter)
    """Well-formed requests that ended their connection, by API."""

    @property
    def inputs_count(self) -> int:
        return self.outcomes.total()

    def fail(self, found: Input, what: str) -> None:
        if len(self.failures) < FAILURES_KEPT:
            self.failures.append(f"{what}: {found}: {found.data[:SHOWN_BYTES_MAX].hex()}")


Judge = Callable[[Input, bytes], str | None]
"""What is wrong with the answer to an input; None if nothing is."""


class Sender(threading.Thread):
    """One connection at a time, opened anew when the broker has closed it. Ends with its inputs or at `is_over`."""

    def __init__(
        self,
        connect: Callable[[float], socket.socket],
        inputs: Iterator[Input],
        is_over: Callable[[], bool],
        findings: Findings,
        judge: Judge | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self._judge = judge or judge_answer
        self._connect = connect
        self._inputs = inputs
        self._is_over = is_over
        self._findings = findings
        self._connection: socket.socket | None = None
        self.recent: deque[Input] = deque(maxlen=RECENT_MAX)
        """The last inputs, for whoever looks for the one that made the broker log a traceback."""

    def run(self) -> None:
        for found in self._inputs:
            if self._is_over():
                break
            self.recent.append(found)
            start_ns = time.monotonic_ns()
            try:
                outcome = self._send(found)
            except ConnectionRefusedError:
                self._findings.fail(found, "the broker accepts no connection any more, before")
                break
            end_ns = time.monotonic_ns()
            self._findings.outcomes[found.strike, outcome] += 1
            if end_ns - start_ns >= SLOW_NS:
                self._findings.slow.append(Slow(start_ns, end_ns, str(found)))
        self._close()

    def _send(self, found: Input) -> Outcome:
        outcome = self._exchange(found)
        if outcome is not Outcome.ANSWERED:
            self._close()
        if outcome is Outcome.ANSWERED and found.is_incomplete:
            self._findings.fail(found, "answered although it is no whole request")
        elif outcome is Outcome.CLOSED and found.strike == "whole":
            self._findings.closed_whole[f"{found.api.name} v{found.version}"] += 1
        elif outcome is Outcome.PARKED and not _may_park(found):
            self._findings.fail(found, f"neither answered nor closed within {ANSWER_TIMEOUT_S} s")
        return outcome

    def _exchange(self, found: Input) -> Outcome:
        timeout_s = PATIENCE_S if _may_park(found) else ANSWER_TIMEOUT_S
        try:
            if self._connection is None:
                self._connection = self._connect(ANSWER_TIMEOUT_S)
            self._connection.settimeout(ANSWER_TIMEOUT_S)
            with suppress(BrokenPipeError, ConnectionResetError):  # it has closed before all was sent: its answer may be there
                self._connection.sendall(found.data)
                if found.ends:  # not SSLSocket's own, which would forget that there is TLS
                    socket.socket.shutdown(self._connection, socket.SHUT_WR)
            self._connection.settimeout(timeout_s)
            answer = receive_frame(self._connection)
        except TimeoutError:
            return Outcome.PARKED
        except ConnectionRefusedError:
            raise
        except OSError:
            return Outcome.CLOSED
        if answer is None:
            return Outcome.CLOSED
        fault = self._judge(found, answer)
        if fault is not None:
            self._findings.fail(found, fault)
        return Outcome.ANSWERED

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def judge_answer(found: Input, answer: bytes) -> str | None:
    """What is wrong with it: it must be of the API, the version and the correlation id that the input has named, and complete."""
    key, version = struct.unpack_from(">hh", found.data, 4)
    api = DECLARED.get(key)
    if api is None or len(answer) < 4:
        return f"answered with {answer[:SHOWN_BYTES_MAX].hex()}"
    if answer[:4] != found.data[8:12]:
        return "answered with another correlation id"
    if len(answer) <= DECODED_BYTES_MAX:
        known = version if api.serves(version) else 0  # of ApiVersions, which answers an unknown version so
        try:
            position = skip_tags(memoryview(answer), 4) if api.response_header_version(known) >= 1 else 4
            end = codec.decode(api.response_class, known, answer, position)[1]
        except (DecodeError, ValueError) as error:
            return f"its answer cannot be read ({error})"
        if end != len(answer):
            return f"{len(answer) - end} bytes behind its answer"
    return None


def judge_stranger(found: Input, answer: bytes) -> str | None:
    """As `judge_answer`, of somebody who has not logged in: only a login is answered, and what comes after a SaslHandshake, by an error.
    A token without a header, after a handshake of version 0, is no request: it has no such answer."""
    (key,) = struct.unpack_from(">h", found.data, 4)
    if key not in LOGIN_KEYS and ILLEGAL_SASL_STATE not in answer:
        return f"answered before the login with {answer[:SHOWN_BYTES_MAX].hex()}"
    if key == SASL_AUTHENTICATE and answer[4:6] == b"\0\0":
        return "logged in"
    return judge_answer(found, answer)


def _may_park(found: Input) -> bool:
    """Whether it may rightly have no answer for a while: a request that waits, or a frame of which more is to come."""
    if found.is_incomplete or len(found.data) < 6:
        return not found.ends and not found.is_incomplete
    size, key = struct.unpack_from(">ih", found.data)
    return key in PARKED_BY_RIGHT or (size > len(found.data) - 4 and not found.ends)


def receive_frame(connection: socket.socket) -> bytes | None:
    """One answer without its size; None when the connection is closed before its end. TimeoutError when nothing comes."""
    head = _receive(connection, 4)
    return None if head is None else _receive(connection, struct.unpack(">i", head)[0])


def _receive(connection: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(min(size - len(received), 1 << 20))
        if not part:
            return None
        received += part
    return bytes(received)
