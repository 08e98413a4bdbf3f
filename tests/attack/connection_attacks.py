"""Attacks by connections: floods of them, talkers of other protocols, slow ones, and ones that only stay."""

from __future__ import annotations

import random
import socket
import struct
import time
from contextlib import suppress

from protocol import codec
from protocol.messages.metadata import MetadataRequest
from tests.attack.attacker import Attacker, drop_answer, framed

FLOOD = 20_000
FLOOD_LIMIT = 20
FLOOD_SETTINGS = {"max.connections.per.ip": str(FLOOD_LIMIT), "max.connections.per.ip.overrides": "127.0.0.1:1000"}
TALKERS = 3_000
SLOW = 300
HALF_OPEN = 1_000
DRIBBLE_INTERVAL_S = 0.02
ANSWER_TIMEOUT_S = 2.0

TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(189))
FOREIGN = (
    TLS_HELLO,
    b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    b"POST /v1/traces HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"EHLO mail\r\n",
    b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"\x00" * 64,
    b"\xff" * 64,
)


def flood_connections(attacker: Attacker) -> None:
    """Connections beyond the limit of their address."""
    held = [attacker.connect() for _ in range(FLOOD_LIMIT)]
    for _ in range(attacker.count(FLOOD)):
        with attacker.dial(attacker.next_way().port) as connection:
            attacker.note(_is_open(connection))
    for connection in held:
        connection.close()


def speak_other_protocols(attacker: Attacker) -> None:
    """TLS, HTTP, SSH and others: each is told off with one line at most, and closed."""
    for number in range(attacker.count(TALKERS)):
        with attacker.connect(timeout_s=0.2) as connection:
            try:
                connection.sendall(FOREIGN[number % len(FOREIGN)])
                outcome = drop_answer(connection)
                attacker.note(outcome)
                if outcome:
                    attacker.failures.append(f"{FOREIGN[number % len(FOREIGN)][:20]!r} was answered")
            except OSError:
                attacker.tally.closed += 1


def reset_connections(attacker: Attacker) -> None:
    """Connections that are reset at once, before or within a request, or while its answer is under way."""
    request = framed(3, 9, codec.encode(MetadataRequest(topics=None), 9))
    for number in range(attacker.count(6_000)):
        connection = attacker.connect()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(request[: (0, 5, 20, len(request))[number % 4]])
        connection.close()
        attacker.tally.silent += 1


def dribble(attacker: Attacker) -> None:
    """Requests that arrive byte by byte over many connections; all are answered in the end."""
    request = framed(3, 9, codec.encode(MetadataRequest(topics=[]), 9))
    connections = [attacker.connect(timeout_s=ANSWER_TIMEOUT_S) for _ in range(attacker.count(SLOW, at_least=30))]
    for place in range(len(request)):
        for connection in connections:
            connection.sendall(request[place : place + 1])
        time.sleep(DRIBBLE_INTERVAL_S)
    for connection in connections:
        outcome = drop_answer(connection)
        attacker.note(outcome)
        if not outcome:
            attacker.failures.append("a request that came byte by byte was not answered")
        connection.close()


def hold_half_open(attacker: Attacker) -> None:
    """Connections that say nothing, a size, or half a header, and stay; some have shut their sending side."""
    source = random.Random(attacker.source.random())
    connections = [attacker.connect() for _ in range(attacker.count(HALF_OPEN, at_least=50))]
    for connection in connections:
        connection.sendall(source.choice((b"", b"\x00", b"\x00\x00\x01\x00", struct.pack(">ihh", 200, 3, 9))))
        if source.random() < 0.3:
            with suppress(OSError):  # the broker may have closed a stranger's
                connection.shutdown(socket.SHUT_WR)
        attacker.tally.silent += 1
    time.sleep(max(10 * attacker.scale, 1))
    for connection in connections:
        connection.close()


def _is_open(connection: socket.socket) -> bool:
    """Whether the broker keeps the connection: it closes refused ones at once."""
    connection.settimeout(0.2)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False
