"""Looks for the brokers without Spark and without Java: before a job starts, which takes seconds, and beside it while it runs.

The topics are asked for where no encryption or login stands in between; else only whether something listens: Java's own settings for
those are known to Java's client alone, which asks again inside Spark.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from pipeline.errors import PipelineError
from pipeline.options import servers

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 10.0
WATCH_INTERVAL_S = 2.0
REMINDER_INTERVAL_S = 60.0
MISSES_UNTIL_AWAY = 2
"""One alone may be a restart that is over before anyone has read of it."""
# ApiVersions v0: the one request that every broker of every version answers before anything else. Key, version, correlation id, client id.
PING = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class BrokerError(PipelineError):
    """The brokers cannot be reached, or lack what the job needs."""


def require_topics(bootstrap_servers: str, properties: Mapping[str, str], topics: Sequence[str]) -> None:
    """Raises BrokerError within seconds when no broker answers, or when one of the topics does not exist."""
    why = probe(bootstrap_servers, properties)
    if why is not None:
        raise BrokerError(f"no broker at {bootstrap_servers}: {why}")
    if not topics or not _is_plaintext(properties):
        return
    existing = _topics(bootstrap_servers)
    for topic in topics:
        if topic not in existing:
            raise BrokerError(f"topic {topic} does not exist at {bootstrap_servers}")


def probe(bootstrap_servers: str, properties: Mapping[str, str]) -> str | None:
    """None when one of the servers answers, else why the last of them does not."""
    why: str | None = None
    for host, port in servers(bootstrap_servers):
        try:
            with socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S) as connection:
                if not _is_encrypted(properties):
                    connection.sendall(PING)
                    if not connection.recv(1):
                        why = "it closes the connection: no Kafka listener, or one for TLS (--consumer-property security.protocol=SSL)"
                        continue
                return None
        except TimeoutError:
            why = f"no answer within {CONNECT_TIMEOUT_S:.0f} s"
        except OSError as e:
            why = (e.strerror or str(e)).lower()
    return why


def _topics(bootstrap_servers: str) -> Mapping[str, object]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    silent = logging.getLogger("pipeline.brokers")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}, logger=silent)
    try:
        # All of them: asking for one that does not exist may create it.
        topics: Mapping[str, object] = client.list_topics(timeout=ANSWER_TIMEOUT_S).topics
    except KafkaException as e:
        raise BrokerError(f"{bootstrap_servers}: {e.args[0].str()}") from e
    return topics


def _is_plaintext(properties: Mapping[str, str]) -> bool:
    return properties.get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT"


def _is_encrypted(properties: Mapping[str, str]) -> bool:
    return properties.get("security.protocol", "PLAINTEXT").upper() in ("SSL", "SASL_SSL")


class AwayNotice:
    """Turns a row of probes into few lines: that the brokers are away, once a minute that they still are, and that they are back."""

    def __init__(self, bootstrap_servers: str, complain: Callable[[str], None]) -> None:
        self._servers = bootstrap_servers
        self._complain = complain
        self._misses = 0
        self._first_miss_s = 0.0
        self._reminded_s = 0.0
        self.outages = 0
        self.is_away = False

    def observe(self, why: str | None, now_s: float) -> None:
        """`why` is what `probe` returned at that moment of a monotonic clock."""
        if why is None:
            if self.is_away:
                self._complain(f"{self._servers} is back after {_duration_text(now_s - self._first_miss_s)}")
            self._misses, self.is_away = 0, False
            return
        self._misses += 1
        if self._misses == 1:
            self._first_miss_s = now_s
        if not self.is_away and self._misses >= MISSES_UNTIL_AWAY:
            self.is_away, self._reminded_s = True, now_s
            self.outages += 1
            self._complain(f"no broker at {self._servers}: {why}; waiting for it")
        elif self.is_away and now_s - self._reminded_s >= REMINDER_INTERVAL_S:
            self._reminded_s = now_s
            self._complain(f"still no broker at {self._servers} after {_duration_text(now_s - self._first_miss_s)}: {why}")


class BrokerWatch:
    """Probes on a thread of its own while a job runs, which `close` ends."""

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        complain: Callable[[str], None],
        *,
        interval_s: float = WATCH_INTERVAL_S,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._properties = properties
        self._interval_s = interval_s
        self._notice = AwayNotice(bootstrap_servers, complain)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker-watch", daemon=True)
        self._thread.start()

    @property
    def is_away(self) -> bool:
        return self._notice.is_away

    @property
    def outages(self) -> int:
        """How often they went away so far."""
        return self._notice.outages

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(self._interval_s):
            self._notice.observe(probe(self._bootstrap_servers, self._properties), time.monotonic())


def _duration_text(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
