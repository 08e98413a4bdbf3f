"""Checks the brokers without Spark and without Java: before a job starts, which takes seconds, and while it runs.

On a listener without TLS and SASL it asks for the topics. On others it only checks that something listens, because only Java's client knows
Java's settings for these; it asks again inside Spark.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pipeline.errors import PipelineError
from pipeline.options import joined_servers, servers

Address = tuple[str, int]

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 10.0
WATCH_INTERVAL_S = 2.0
REMINDER_INTERVAL_S = 60.0
LEARN_INTERVAL_S = 60.0
MISSES_UNTIL_AWAY = 2
"""Failed probes before a message: a single one may be a restart that is over at once."""
# ApiVersions v0, which every version of every broker answers as the first request. Key, version, correlation id, client id.
PING = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class BrokerError(PipelineError):
    """The brokers cannot be reached, or lack what the job needs."""


def require_topics(bootstrap_servers: str, properties: Mapping[str, str], topics: Sequence[str]) -> None:
    """Raises BrokerError within seconds when no broker answers, or when one of the topics does not exist."""
    why = probe(servers(bootstrap_servers), properties)
    if why is not None:
        raise BrokerError(f"no broker at {bootstrap_servers}: {why}")
    if not topics or not _is_plaintext(properties):
        return
    existing = _topics(bootstrap_servers)
    for topic in topics:
        if topic not in existing:
            raise BrokerError(f"topic {topic} does not exist at {bootstrap_servers}")


def probe(addresses: Iterable[Address], properties: Mapping[str, str]) -> str | None:
    """None if a broker answers, else the reason why the last one does not. Asks the brokers in order, up to the first answer."""
    why: str | None = None
    for address in addresses:
        why = _probe_one(address, properties)
        if why is None:
            return None
    return why


def _probe_one(address: Address, properties: Mapping[str, str]) -> str | None:
    try:
        with socket.create_connection(address, timeout=CONNECT_TIMEOUT_S) as connection:
            if not _is_encrypted(properties):
                connection.sendall(PING)
                if not connection.recv(1):
                    return "it closes the connection: no Kafka listener, or one for TLS (--consumer-property security.protocol=SSL)"
            return None
    except TimeoutError:
        return f"no answer within {CONNECT_TIMEOUT_S:.0f} s"
    except OSError as e:
        return (e.strerror or str(e)).lower()


def _topics(bootstrap_servers: str) -> Mapping[str, object]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    silent = logging.getLogger("pipeline.brokers")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}, logger=silent)
    try:
        # All topics, because a request that names a missing topic may create it.
        topics: Mapping[str, object] = client.list_topics(timeout=ANSWER_TIMEOUT_S).topics
    except KafkaException as e:
        raise BrokerError(f"{bootstrap_servers}: {e.args[0].str()}") from e
    return topics


def _is_plaintext(properties: Mapping[str, str]) -> bool:
    return properties.get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT"


def _is_encrypted(properties: Mapping[str, str]) -> bool:
    return properties.get("security.protocol", "PLAINTEXT").upper() in ("SSL", "SASL_SSL")


class AwayNotice:
    """Makes few lines of many probes: one when no broker answers, one each minute after that, and one when a broker answers again."""

    def __init__(self, bootstrap_servers: str, complain: Callable[[str], None]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._complain = complain
        self._misses = 0
        self._first_miss_s = 0.0
        self._reminded_s = 0.0
        self.outages = 0
        self.reason: str | None = None
        """Which brokers do not answer, and why. None while one answers."""

    @property
    def is_away(self) -> bool:
        return self.reason is not None

    def observe(self, why: str | None, now_s: float, *, learned: int = 0) -> None:
        """`why` is the result of `probe` at `now_s` of a monotonic clock. `learned` counts the brokers that were asked besides the
        bootstrap servers."""
        if why is None:
            if self.is_away:
                self._complain(f"{self._bootstrap_servers} is back after {_duration_text(now_s - self._first_miss_s)}")
            self._misses, self.reason = 0, None
            return
        asked = self._bootstrap_servers + (f" or the {learned} others that its cluster named" if learned > 1 else "")
        asked += " or the other one that its cluster named" if learned == 1 else ""
        self._misses += 1
        if self._misses == 1:
            self._first_miss_s = now_s
        if not self.is_away and self._misses >= MISSES_UNTIL_AWAY:
            self._reminded_s = now_s
            self.outages += 1
            self._complain(f"no broker at {asked}: {why}; waiting for it")
        elif not self.is_away:
            return
        elif now_s - self._reminded_s >= REMINDER_INTERVAL_S:
            self._reminded_s = now_s
            self._complain(f"still no broker at {asked} after {_duration_text(now_s - self._first_miss_s)}: {why}")
        self.reason = f"no broker at {asked}: {why}"


class BrokerWatch:
    """Probes on a thread of its own while a job runs, which `close` ends: the bootstrap servers, and the brokers that `learn` names."""

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        complain: Callable[[str], None],
        *,
        learn: Callable[[], Sequence[Address]] = tuple,
        interval_s: float = WATCH_INTERVAL_S,
        learn_interval_s: float = LEARN_INTERVAL_S,
    ) -> None:
        """`learn` asks the cluster for the addresses of its brokers. It is called here, and its exception is raised. The thread calls it
        too while brokers answer, and ignores its PipelineError."""
        self._bootstrap_servers = bootstrap_servers
        self._bootstrap = servers(bootstrap_servers)
        self._learned = self._beside_bootstrap(learn())
        self._learned_s = time.monotonic()
        self._answered: Address | None = None
        self._properties = properties
        self._learn = learn
        self._interval_s = interval_s
        self._learn_interval_s = learn_interval_s
        self._notice = AwayNotice(bootstrap_servers, complain)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker-watch", daemon=True)
        self._thread.start()

    @property
    def is_away(self) -> bool:
        return self._notice.is_away

    @property
    def reason(self) -> str | None:
        """Which brokers do not answer, and why. None while one answers."""
        return self._notice.reason

    @property
    def outages(self) -> int:
        """The number of outages so far."""
        return self._notice.outages

    @property
    def servers(self) -> str:
        """The bootstrap servers and the brokers learned so far. A client with this list starts even if a bootstrap server is down."""
        return joined_servers(self._bootstrap_servers, self._learned)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(self._interval_s):
            why = probe(self._to_ask(), self._properties)
            if self._closed.is_set():
                return
            self._notice.observe(why, time.monotonic(), learned=len(self._learned))
            if why is None and time.monotonic() - self._learned_s >= self._learn_interval_s:
                self._learn_again()

    def _to_ask(self) -> Iterator[Address]:
        """The addresses to ask. The broker that answered last comes first, so that one connection suffices. Ends when the watch closes."""
        addresses = [*self._bootstrap, *self._learned]
        for address in sorted(addresses, key=lambda address: address != self._answered):
            if self._closed.is_set():
                return
            self._answered = address
            yield address

    def _learn_again(self) -> None:
        self._learned_s = time.monotonic()
        try:
            self._learned = self._beside_bootstrap(self._learn())
        except PipelineError:
            return  # they stopped answering just now; the next probe says so

    def _beside_bootstrap(self, addresses: Sequence[Address]) -> list[Address]:
        return [address for address in addresses if address not in self._bootstrap]


def _duration_text(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
