"""What an attack has at hand: connections, the size of the campaign, steps that are measured apart, and a tally of the answers."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from protocol import codec
from protocol.apis import APIS
from tests.attack.guard import Way
from tests.attack.target import AttackedBroker
from tests.support.wire import WireClient, frame

ANSWER_TIMEOUT_S = 90.0
ATTACKER_ADDRESS = "127.0.0.9"
"""Attackers come from an address of their own, so that limits by address strike them and not the canary."""
RECEIVE_SIZE = 1 << 20


@dataclass(slots=True)
class Tally:
    """What became of the requests."""

    answered: int = 0
    closed: int = 0
    silent: int = 0
    """Neither answered nor closed in the time that the attack gave."""

    @property
    def total(self) -> int:
        return self.answered + self.closed + self.silent


@dataclass(frozen=True, slots=True)
class Step:
    """A part of an attack. Times are CLOCK_MONOTONIC's nanoseconds."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Attacker:
    """Given to each attack. `scale` 1 is the full campaign; `deadline_s` is when to come to an end, by time.monotonic()."""

    broker: AttackedBroker
    source: random.Random
    scale: float
    deadline_s: float
    tally: Tally = field(default_factory=Tally)
    steps: list[Step] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """What an attack found wrong in the answers, one line each."""
    notes: list[str] = field(default_factory=list)
    """What an attack has measured itself, one line each."""
    suspects: list[bytes] = field(default_factory=list)
    """Frames sent shortly before the first traceback came into the log."""
    ways: Iterator[Way] | None = None
    """To the listeners that are attacked, each for one connection; by default that of the broker's clients."""
    address: str = ATTACKER_ADDRESS

    def count(self, full: int, at_least: int = 1) -> int:
        """How many of `full` in a campaign of this size."""
        return max(int(full * self.scale), at_least)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline_s

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self.steps.append(Step(name, start_ns, time.monotonic_ns()))

    def connect(self, timeout_s: float = ANSWER_TIMEOUT_S) -> socket.socket:
        """A connection by the next way, logged in if that leads there. `timeout_s` counts from then on."""
        way = self.next_way()
        connected = way.enter(self.dial(way.port))
        connected.settimeout(timeout_s)
        return connected

    def next_way(self) -> Way:
        return self.broker.way if self.ways is None else next(self.ways)

    def dial(self, port: int, timeout_s: float = ANSWER_TIMEOUT_S) -> socket.socket:
        """A bare connection."""
        connected = socket.create_connection((self.broker.host, port), timeout_s, source_address=(self.address, 0))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def client(self) -> WireClient:
        """Of the broker's clients, logged in where they have to be."""
        way = self.broker.way
        return WireClient(self.broker.host, way.port, timeout_s=ANSWER_TIMEOUT_S, enter=way.enter)

    def ask(self, name: str, message: Any, version: int, *, connection: socket.socket | None = None) -> None:
        """Send one request as a step of this name and drop its answer, which may be large. A closed connection is an answer too."""
        key = next(key for key, api in APIS.items() if api.request_class is type(message))
        data = framed(key, version, codec.encode(message, version))
        opened = connection or self.connect()
        try:
            with self.step(name):
                opened.sendall(data)
                self.note(drop_answer(opened))
        except OSError:
            self.tally.closed += 1
        finally:
            if connection is None:
                opened.close()

    def ask_refused(self, message: Any, version: int) -> None:
        """Send a request beyond a limit: its connection has to be closed without an answer."""
        key = next(key for key, api in APIS.items() if api.request_class is type(message))
        data = framed(key, version, codec.encode(message, version))
        with self.connect() as opened:
            try:
                opened.sendall(data)
                was_answered = drop_answer(opened)
            except OSError:
                was_answered = False
        self.note(was_answered)
        if was_answered is not False:
            self.failures.append(f"{APIS[key].name} v{version} of {len(data)} bytes was not refused")

    def note(self, was_answered: bool | None) -> None:
        """Count one outcome: True answered, False closed, None silent."""
        if was_answered is None:
            self.tally.silent += 1
        elif was_answered:
            self.tally.answered += 1
        else:
            self.tally.closed += 1


def framed(key: int, version: int, body: bytes) -> bytes:
    request = frame(key, version, body)
    return struct.pack(">i", len(request)) + request


def drop_answer(connection: socket.socket) -> bool | None:
    """Receive one answer and forget it: True; False when the connection is closed before its end, None when nothing comes."""
    try:
        head = _receive(connection, 4)
        if len(head) < 4:
            return False
        (left,) = struct.unpack(">i", head)
        while left > 0:
            part = connection.recv(min(left, RECEIVE_SIZE))
            if not part:
                return False
            left -= len(part)
    except TimeoutError:
        return None
    except OSError:
        return False
    return True


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size and (part := connection.recv(size - len(received))):
        received += part
    return received
