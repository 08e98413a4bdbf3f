"""Connection: a command's clients of one cluster: librdkafka's administrator, consumers and producers, and the wire for what it lacks."""

from __future__ import annotations

import concurrent.futures
import functools
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from barnabas.cli.errors import CLOSED, CommandError, NoBrokerError, NotLetInError, NotUnderstoodError, RefusedError
from barnabas.cli.progress import Bar
from barnabas.cli.settings import Settings
from broker.cli.wire_client import WireClient
from config.endpoints import parse_host_and_port
from config.properties import ConfigError
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.cli.client_security import ClientSecurity

POLL_S = 0.1
GRACE_S = 1.0
"""After librdkafka has found all brokers down: a name may have further addresses, of which it tries one after another."""
CLIENT_ID = "barnabas"
UNREACHABLE = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT)
NOT_LET_IN = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED)
_NOISE = re.compile(r"^\S+/(?:bootstrap|\d+): | \(after \d+ms in state [^)]*\)")
"""The broker's name, and how long librdkafka has tried."""
_Key = TypeVar("_Key")


class Connection:
    """Owns the administrator and the connections of the wire; `close` ends the latter."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.timeout_s = settings.timeout_s
        self.timeout_ms = int(settings.timeout_s * 1_000)
        if settings.unread:
            print(f"barnabas: properties without a meaning here: {', '.join(settings.unread)}", file=sys.stderr)
        self._last_error = ""
        self._refusal: NotLetInError | None = None
        self._down_since_s: float | None = None
        self._wires: dict[int, WireClient] = {}

    def config(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """What a client of librdkafka is made with. Its own log is silent: errors come by its callback, in one line."""
        silent = {"log_level": 0} if "debug" not in self.settings.librdkafka else {}
        return {"client.id": CLIENT_ID, **silent, "error_cb": self._hear, **extra, **self.settings.librdkafka}

    @functools.cached_property
    def admin(self) -> AdminClient:
        admin: AdminClient = make(AdminClient, self.config({"socket.timeout.ms": self.timeout_ms}))
        return admin

    def result(self, future: concurrent.futures.Future[Any]) -> Any:
        """What the administrator answers. Raises CommandError."""
        return self.results({None: future})[None]

    def results(self, futures: Mapping[_Key, concurrent.futures.Future[Any]]) -> dict[_Key, Any]:
        """What the administrator answers to all. Raises the first refusal, a CommandError."""
        answers = self.attempts(futures)
        for answer in answers.values():
            if isinstance(answer, CommandError):
                raise answer
        return answers

    def attempts(self, futures: Mapping[_Key, concurrent.futures.Future[Any]]) -> dict[_Key, Any]:
        """As `results`, but a refusal is among the answers, as a CommandError. Raises NoBrokerError."""
        deadline = time.monotonic() + self.timeout_s
        with Bar("waiting for answers") as bar:
            while True:
                done, pending = concurrent.futures.wait(futures.values(), timeout=POLL_S)
                self.admin.poll(0)
                if not pending:
                    self.is_answered()
                    return {key: self._answer(future) for key, future in futures.items()}
                bar.show(len(done), len(futures))
                self.check()
                if time.monotonic() > deadline:
                    raise NoBrokerError(f"no answer from {self.settings.address} within {self.timeout_s:g} s {self._last_error}".rstrip())

    def check(self) -> None:
        """Raises what the clients' callbacks have heard of: NoBrokerError, or NotLetInError if a broker does not let us in."""
        self.check_let_in()
        if self.down_for_s() > GRACE_S:
            raise NoBrokerError(f"no broker answers at {self.settings.address}: {self._last_error or CLOSED}")

    def check_let_in(self) -> None:
        """Raises NotLetInError if a broker does not let us in."""
        if self._refusal is not None:
            raise self._refusal

    def down_for_s(self) -> float:
        """How long no broker answers; 0 while one does."""
        return 0.0 if self._down_since_s is None else time.monotonic() - self._down_since_s

    def is_answered(self) -> None:
        """A consumer has got something: brokers answer."""
        self._down_since_s = None

    def metadata(self) -> Any:
        """Of all topics, which makes none of them. Raises CommandError."""
        self.result(self.admin.describe_cluster(request_timeout=self.timeout_s))
        return attempt(lambda: self.admin.list_topics(timeout=self.timeout_s))

    def wire(self, broker_id: int | None = None, *, address: str = "") -> WireClient:
        """A connection to that broker, or to the first of the addresses that answers. `address` is the broker's, where it is known. Raises
        NoBrokerError."""
        key = -1 if broker_id is None else broker_id
        if key not in self._wires:
            self._wires[key] = self._open([self.settings.address if broker_id is None else address or self._address_of(broker_id)])
        return self._wires[key]

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *of_error: object) -> None:
        self.close()

    @functools.cached_property
    def _security(self) -> ClientSecurity | None:
        """Raises RefusedError: librdkafka may know a login that the wire's client does not."""
        from broker.cli.client_security import client_security

        try:
            return client_security(self.settings.java)
        except ConfigError as e:
            raise RefusedError(f"this part does not go through librdkafka, and cannot log in: {e}") from e

    def _address_of(self, broker_id: int) -> str:
        brokers = self.metadata().brokers
        if broker_id not in brokers:
            raise NoBrokerError(f"broker {broker_id} is not there")
        return f"{brokers[broker_id].host}:{brokers[broker_id].port}"

    def _open(self, addresses: Iterable[str]) -> WireClient:
        why = []
        for address in (each.strip() for text in addresses for each in text.split(",") if each.strip()):
            host, port = parse_host_and_port("--bootstrap-server", address)
            try:
                return WireClient(host, port, timeout_s=self.timeout_s, security=self._security)
            except OSError as e:
                from broker.cli.client_security import LoginError  # with TLS and SASL, which most commands do without

                if isinstance(e, LoginError):
                    raise NotLetInError(address, str(e)) from e
                why.append(f"{address}: {e.strerror or e}")
        raise NoBrokerError(f"no broker answers: {'; '.join(why)}")

    def _answer(self, future: concurrent.futures.Future[Any]) -> Any:
        try:
            return future.result()
        except KafkaException as e:
            return from_kafka(e)
        except (ValueError, TypeError) as e:
            return NotUnderstoodError(str(e))

    def _hear(self, error: KafkaError) -> None:
        """What librdkafka says of its connections, on the thread that polls it."""
        text = _NOISE.sub("", error.str())
        if error.code() in NOT_LET_IN:
            self._refusal = NotLetInError(self.settings.address, text)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._down_since_s = self._down_since_s or time.monotonic()
        else:
            self._last_error = text


def make(kind: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> Any:
    """A client of librdkafka. Raises NotUnderstoodError for a property that it does not take."""
    try:
        return kind(config)
    except KafkaException as e:
        raise NotUnderstoodError(f"librdkafka: {e.args[0].str()}") from e


def attempt(call: Callable[[], Any]) -> Any:
    """What `call` returns. Raises CommandError."""
    try:
        return call()
    except KafkaException as e:
        raise from_kafka(e) from e


def from_kafka(error: KafkaException) -> CommandError:
    """In the words of the broker, with the error's name."""
    cause = error.args[0]
    if cause.code() in UNREACHABLE:
        return NoBrokerError(f"no broker answers: {cause.str()}")
    code = cause.code()
    return RefusedError(f"{ErrorCode(code).name}: {cause.str()}" if code in set(ErrorCode) else cause.str())
