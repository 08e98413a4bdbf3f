"""Attacks by those who have not logged in: storms of handshakes and logins, half ones, cut records, tokens that nobody signed.

Each needs a broker with a Guard, and judges it: nobody gets in, and whoever does not come to an end is closed in time.
"""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from protocol import codec
from protocol.messages.metadata import MetadataRequest
from tests.attack.attacker import Attacker, drop_answer, framed
from tests.attack.canary import with_left_out
from tests.attack.connection_attacks import FLOOD_LIMIT
from tests.attack.guard import SASL_AUTHENTICATE, SASL_HANDSHAKE, Guard
from tests.attack.report import Latency, latency_of
from tests.attack.storm import Counts, run_storm
from tests.attack.target import HONEST_TOPIC
from tests.attack.tls_sink import SinkProcess
from tests.support.jwts import raw_token, token
from tests.support.secured import PASSWORD, USER

STORM_PER_SECOND = 500
STORM_S = 30.0
HALF = 1_000
DEADLINE_S = 10.0  # barnabas.authentication.timeout.ms
PATIENCE_S = 6.0
"""Behind a deadline: it is looked at once a second, and the machine has other work."""
LOGINS = 20_000
WORKERS = 16
AHEAD = 25
"""Logins that a worker has under way: the answer to each comes connection.failed.authentication.delay.ms later."""
FRAME_MAX = 524_288
HUGE_FRAMES = 300
CUTS = 3_000
FLOOD = 20_000
NAMES = (USER, "nobody", "x" * 200, "a=2Cb")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def storm_with_handshakes(attacker: Attacker) -> None:
    """500 handshakes a second: first against another process, then against the broker. The canary's difference is noted."""
    _storm(attacker, _guard(attacker).port("SASL_SSL"))


def storm_above_the_rate(attacker: Attacker) -> None:
    """The same against a listener that takes 100 connections a second: the others wait unaccepted."""
    _storm(attacker, _guard(attacker).port("SASL_SSL"))


LIMITED = {"listener.name.sasl_ssl.max.connection.creation.rate": "100"}


def _storm(attacker: Attacker, port: int) -> None:
    seconds = max(STORM_S * attacker.scale, 2.0)
    sink = SinkProcess()
    try:
        other, _ = _measured(attacker, "another process", sink.port, sink.pid, seconds)
    finally:
        sink.stop()
    own, counts = _measured(attacker, "the broker", port, attacker.broker.pid, seconds)
    attacker.notes.append(
        f"the canary's p99 is {own.p99_ms - other.p99_ms:+.1f} ms, its maximum {own.max_ms - other.max_ms:+.0f} ms beside it"
    )
    attacker.tally.answered += counts.done
    attacker.tally.closed += counts.failed
    if counts.failed:
        attacker.failures.append(f"{counts.failed} of {counts.done + counts.failed} handshakes failed")


def _measured(attacker: Attacker, name: str, port: int, pid: int, seconds: float) -> tuple[Latency, Counts]:
    cpu_s, start_ns = _cpu_s(pid), time.monotonic_ns()
    with attacker.step(f"storm against {name}"):
        counts = run_storm(port, STORM_PER_SECOND, seconds)
    end_ns = time.monotonic_ns()
    cpu_s, took_s = _cpu_s(pid) - cpu_s, (end_ns - start_ns) / 1e9
    canary = attacker.broker.canaries["small"]
    samples = canary.samples(start_ns, end_ns)
    found = latency_of(list(with_left_out((sample.duration_ns for sample in samples), canary.interval_ns)), 0)
    attacker.notes.append(
        f"against {name} {counts.done} handshakes in {took_s:.1f} s ({counts.failed} failed), its CPU {cpu_s / took_s:.2f} of a core; "
        f"canary p50 / p99 / max {found.p50_ms:.1f} / {found.p99_ms:.1f} / {found.max_ms:.0f} ms"
    )
    return found, counts


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def hold_half_handshakes(attacker: Attacker) -> None:
    """Connections that stop before, in or right after the handshake, or within a login, and stay: each is closed 10 s later."""
    guard, held = _guard(attacker), []
    starts: tuple[Callable[[socket.socket], socket.socket], ...] = (
        lambda connection: connection,
        lambda connection: _sent(connection, client_hello()[:20]),
        lambda connection: _sent(connection, client_hello()),
        guard.shake_hands,
        lambda connection: _sent(guard.shake_hands(connection), handshake("SCRAM-SHA-256") + authenticate(scram_first(USER))),
    )
    for number in range(attacker.count(HALF, at_least=50)):
        held.append((starts[number % len(starts)](attacker.dial(guard.port("SASL_SSL"))), time.monotonic()))
    for connection, opened_s in held:
        end_s = opened_s + DEADLINE_S + PATIENCE_S
        is_closed = _is_closed_by(connection, max(end_s, time.monotonic() + 1.0))
        attacker.note(False if is_closed else None)
        connection.close()
    if attacker.tally.silent:
        attacker.failures.append(f"{attacker.tally.silent} connections that did not log in are open {DEADLINE_S + PATIENCE_S} s later")


def dribble_logins(attacker: Attacker) -> None:
    """Logins that come byte by byte, too slowly: each byte is progress, and the deadline is for the whole all the same."""
    guard = _guard(attacker)
    login = handshake("PLAIN") + authenticate(plain(USER, PASSWORD))
    start_s = time.monotonic()
    held = [attacker.dial(guard.port("SASL_PLAINTEXT")) for _ in range(attacker.count(300, at_least=20))]
    place = 0
    while time.monotonic() < start_s + DEADLINE_S + PATIENCE_S:
        for connection in held:
            with suppress(OSError):
                connection.sendall(login[place : place + 1])
        place = min(place + 1, len(login) - 2)  # the last one never comes
        time.sleep(0.3)
    for connection in held:
        is_closed = _is_closed_by(connection, time.monotonic() + 1.0)
        attacker.note(False if is_closed else None)
        connection.close()
    if attacker.tally.silent:
        attacker.failures.append(f"{attacker.tally.silent} slow logins were not ended")


def send_huge_frames(attacker: Attacker) -> None:
    """Frames as large as a login's may be, but for their last byte, more than the limit of request memory, with an honest producer of
    megabytes beside them; and frames of one byte more, which are closed at once."""
    guard, body = _guard(attacker), bytes(FRAME_MAX - 1)
    attacker.broker.start_canary("large", HONEST_TOPIC)
    held = []
    for number in range(attacker.count(HUGE_FRAMES, at_least=20)):
        connection = attacker.dial(guard.port("SASL_PLAINTEXT"), timeout_s=5.0)
        if number % 3 == 1:
            connection = guard.shake_hands(attacker.dial(guard.port("SASL_SSL"), timeout_s=5.0))
        with suppress(OSError):
            if number % 3 == 2:
                connection.sendall((FRAME_MAX + 1).to_bytes(4) + b"\0\x12")
                attacker.note(drop_answer(connection))
                continue
            connection.sendall(FRAME_MAX.to_bytes(4) + body)
        held.append(connection)
        attacker.tally.silent += 1
    if attacker.tally.answered:
        attacker.failures.append("a frame above sasl.server.max.receive.size was answered")
    time.sleep(DEADLINE_S + 2)
    for connection in held:
        connection.close()
    attacker.broker.stop_canary("large")


def storm_with_logins(attacker: Attacker) -> None:
    """Wrong passwords and unknown users, by PLAIN and SCRAM, many at once. Nobody gets in."""

    def logins(source: random.Random) -> Iterator[list[bytes]]:
        while True:
            name = source.choice(NAMES)
            if source.random() < 0.5:
                yield [handshake("PLAIN") + authenticate(plain(name, source.randbytes(12).hex()))]
            else:
                yield [handshake("SCRAM-SHA-256") + authenticate(scram_first(name)), authenticate(b"c=biws,r=fyko,p=" + b"A" * 44)]

    _log_in_often(attacker, logins)


def flood_with_tokens(attacker: Attacker) -> None:
    """JSON Web Tokens with unknown key ids, a new one each time; without an algorithm, with a wrong key or audience, huge, mutated."""
    now_s = int(time.time())
    claims = {"sub": USER, "aud": "brokers", "iat": now_s, "exp": now_s + 3_600}
    good = token(claims)
    wrong = [
        raw_token({"alg": "none"}, json.dumps(claims).encode()),
        good.rpartition(".")[0] + ".",
        token(claims, name="another", headers={"kid": "a"}),
        token({**claims, "aud": "others"}),
        token({**claims, "exp": now_s - 3_600}),
        good + "A" * 400_000,
        raw_token({"alg": "ES256", "kid": "a", "x": "y" * 300_000}, b"{}"),
        "." * 100_000,
    ]

    def logins(source: random.Random) -> Iterator[list[bytes]]:
        while True:
            kind = source.random()
            if kind < 0.5:
                text = token({**claims, "jti": source.random()}, headers={"kid": source.randbytes(8).hex()})
            elif kind < 0.8:
                text = source.choice(wrong)
            else:
                place = source.randrange(len(good))
                text = good[:place] + source.choice("Ax.=é\0") + good[place + 1 :]
                if _means_the_same(text, good):
                    continue
            yield [handshake("OAUTHBEARER") + authenticate(b"n,,\x01auth=Bearer " + text.encode() + b"\x01\x01"), authenticate(b"\x01")]

    _log_in_often(attacker, logins)


def _means_the_same(text: str, other: str) -> bool:
    """Base64 may write the last bits of a part in several ways."""

    def parts(each: str) -> list[bytes]:
        return [base64.urlsafe_b64decode(part + "===") for part in each.split(".")]

    try:
        return parts(text) == parts(other)
    except ValueError:
        return False


def mutate_logins(attacker: Attacker) -> None:
    """The frames of logins, changed, cut, repeated and in any order. Nobody gets in but by the right password."""
    whole = [
        framed(18, 3, b"\x02a\x02b\0"),
        handshake("PLAIN"),
        handshake("SCRAM-SHA-256"),
        handshake("OAUTHBEARER"),
        authenticate(plain(USER, "wrong")),
        authenticate(scram_first(USER)),
        authenticate(b"p=tls-unique,,n=alice,r=fyko"),
        authenticate(b"y,,n=alice,r=fyko"),
        authenticate(b"n,a=admin,n=alice,r=fyko"),
        authenticate(b"c=biws,r=fyko,p=AAAA"),
        authenticate(b"\x01"),
        authenticate(b""),
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        framed(3, 9, codec.encode(MetadataRequest(topics=None), 9)),
    ]

    def logins(source: random.Random) -> Iterator[list[bytes]]:
        while True:
            frames = []
            for _ in range(source.randint(1, 5)):
                frame = bytearray(source.choice(whole))
                for _ in range(source.choice((0, 0, 1, 3))):
                    frame[source.randrange(len(frame))] = source.getrandbits(8)
                frames.append(bytes(frame if source.random() < 0.8 else frame[: source.randrange(len(frame) + 1)]))
            yield [b"".join(frames)]

    _log_in_often(attacker, logins)


def _log_in_often(attacker: Attacker, logins: Callable[[random.Random], Iterator[list[bytes]]]) -> None:
    count = attacker.count(LOGINS) // WORKERS
    workers = [_Stormer(attacker, logins(random.Random(attacker.source.random())), count) for _ in range(WORKERS)]
    start_s = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        attacker.failures += worker.failures
    took_s = time.monotonic() - start_s
    attacker.notes.append(f"{attacker.tally.total} logins in {took_s:.1f} s, {attacker.tally.total / took_s:.0f} a second")


class _Stormer(threading.Thread):
    """Logins, AHEAD of them at once. Each is a list of what is sent: the next part follows an answer. At the end METADATA is asked: it must
    not be answered by brokers."""

    def __init__(self, attacker: Attacker, logins: Iterator[list[bytes]], count: int) -> None:
        super().__init__(daemon=True)
        self._attacker = attacker
        self._logins = logins
        self._count = count
        self.failures: list[str] = []

    def run(self) -> None:
        port = self._attacker.broker.guard.port("SASL_PLAINTEXT")  # type: ignore[union-attr]
        for _ in range(0, self._count, AHEAD):
            if self._attacker.is_over:
                return
            under_way = []
            try:
                for login in (next(self._logins) for _ in range(AHEAD)):
                    connection = self._attacker.dial(port, timeout_s=30.0)
                    under_way.append((connection, login))
                    connection.sendall(login[0])
                for connection, login in under_way:
                    self._attacker.note(self._finish(connection, login))
            except ConnectionRefusedError:
                self.failures.append("the broker accepts no connection any more")
                return
            except OSError:
                self._attacker.tally.closed += 1
            finally:
                for connection, _ in under_way:
                    connection.close()

    def _finish(self, connection: socket.socket, login: list[bytes]) -> bool | None:
        """Whether it was answered before its end; None if the broker neither answers nor closes."""
        received = bytearray()
        try:
            for part in login[1:]:
                received += connection.recv(4096)
                connection.sendall(part)
            connection.sendall(framed(3, 9, codec.encode(MetadataRequest(topics=[]), 9)))
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                received += part
        except TimeoutError:
            self.failures.append("a login was neither answered nor closed")
            return None
        except OSError:
            pass
        if b"127.0.0.1" in received:  # the address of a broker, in an answer to Metadata
            self.failures.append(f"let in by {login!r:.300}")
        return bool(received)


def flood_connections(attacker: Attacker) -> None:
    """Connections to the TLS listener beyond the limit of their address: refused ones have no outbox, and may leave nothing behind."""
    guard = _guard(attacker)
    held = [attacker.dial(guard.port("SASL_SSL")) for _ in range(FLOOD_LIMIT)]
    opened_s = time.monotonic()
    for _ in range(attacker.count(FLOOD)):
        if time.monotonic() > opened_s + DEADLINE_S / 2:  # before they are closed for want of a login
            opened_s = time.monotonic()
            for connection in held:
                connection.close()
            held = [attacker.dial(guard.port("SASL_SSL")) for _ in range(FLOOD_LIMIT)]
        with attacker.dial(guard.port("SASL_SSL")) as connection:
            attacker.note(not _is_closed_by(connection, time.monotonic() + 0.2))
    for connection in held:
        connection.close()


def cut_records(attacker: Attacker) -> None:
    """First flights of TLS that are cut or altered anywhere, then closed, reset or left; and garbage behind a handshake."""
    guard, source, hello, held = _guard(attacker), attacker.source, client_hello(), []
    for number in range(attacker.count(CUTS)):
        if attacker.is_over:
            break
        connection = attacker.dial(guard.port("SASL_SSL"), timeout_s=5.0)
        with suppress(OSError):
            if number % 5 == 4:
                secured = guard.shake_hands(connection)
                if source.random() < 0.5:
                    secured.sendall(source.randbytes(source.choice((1, 4, 100, 20_000))))  # inside of TLS
                    connection = secured
                else:
                    connection = socket.socket(fileno=secured.detach())
                    connection.settimeout(5.0)
                    connection.sendall(b"\x17\x03\x03" + source.randbytes(source.choice((1, 3, 100))))
            elif number % 5 == 3:
                altered = bytearray(hello)
                altered[source.randrange(len(altered))] ^= 1 << source.randrange(8)
                connection.sendall(altered)
            else:
                connection.sendall(hello[: source.randrange(len(hello))])
        if number % 3 == 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        attacker.tally.silent += 1
        if number % 7 == 0:
            held.append(connection)
        else:
            connection.close()
    for connection in held:
        connection.close()


# -- what is said --------------------------------------------------------------------------------------------------------


def client_hello() -> bytes:
    """The first flight of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def handshake(mechanism: str) -> bytes:
    return framed(SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism.encode())


def authenticate(auth_bytes: bytes) -> bytes:
    return framed(SASL_AUTHENTICATE, 0, struct.pack(">i", len(auth_bytes)) + auth_bytes)


def plain(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def scram_first(user: str) -> bytes:
    return f"n,,n={user},r=fyko".encode()


def _guard(attacker: Attacker) -> Guard:
    assert attacker.broker.guard is not None, "an attack on a secured broker"
    return attacker.broker.guard


def _sent(connection: socket.socket, data: bytes) -> socket.socket:
    connection.sendall(data)
    return connection


def _is_closed_by(connection: socket.socket, end_s: float) -> bool:
    """Whether the broker has closed it by then, whatever it says before."""
    try:
        while True:
            connection.settimeout(max(end_s - time.monotonic(), 0.01))
            if not connection.recv(65536):
                return True
    except TimeoutError:
        return False
    except OSError:
        return True
