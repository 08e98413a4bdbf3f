"""What a differential fuzzer is: steps that a seed draws, and a session that plays them against one broker.

A fuzzer makes a list of random steps from a seed. The comparison plays the same steps against Apache Kafka and against Barnabas, in a
session each, and compares what the sessions return. So whatever a session returns is plain (`plain`): dicts, lists, numbers and text,
without what differs between two brokers by nature, such as random ids, ports and times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from protocol.schema import Message
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

ANSWER_TIMEOUT_S = 15.0
WAIT_S, WAIT_INTERVAL_S = 20.0, 0.005
NAMING = (
    "resource_type", "resource_name", "name", "topic", "partition", "partition_index", "index", "partition_id", "producer_id", "group_id",
    "feature",
)  # fmt: skip
"""Fields that say what a part of an answer is about, where it has them."""
CLOSED, SILENT = "the connection was closed", "no answer"

Step = Any
"""What to do, as a value whose repr a reader understands. It names nothing that a broker has answered: steps are played without those
that were dropped, so a step says "the member's present epoch" where it means that."""


class Session(Protocol):
    """The steps of one seed against one broker, in a namespace of their own."""

    def run(self, step: Step) -> Any:
        """Does the step and returns the plain answer. Asked once."""

    def describe(self) -> Any:
        """What others see now, plain. Changes nothing: where the two brokers differ, it is asked again for a while."""

    def log(self) -> Any:
        """What has been stored, plain. Asked once, after the last step."""

    def close(self) -> None:
        """Lets go of connections."""


class Fuzzer(Protocol):
    """One kind of steps."""

    @property
    def name(self) -> str:
        """Chosen by --fuzzer."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Broker settings beside the tests' common ones, the same for both brokers."""

    def steps(self, seed: int) -> list[Step]:
        """The steps of the seed, always the same."""

    def begin(self, server: ServerProcess, namespace: str) -> Session:
        """A session that is ready for its first step: what it needs exists. Topics, groups and the like begin with `namespace`, which
        is the same on both brokers and new for each session."""


class Connection:
    """A connection to one broker that is opened anew when the broker has closed it."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._client: WireClient | None = None

    def ask(self, message: Any, version: int) -> Any:
        """The decoded answer; CLOSED or SILENT where there is none."""
        try:
            return self._opened().request(message, version)
        except TimeoutError:
            self.close()
            return SILENT
        except (EOFError, ConnectionError):
            self.close()
            return CLOSED

    def tell(self, message: Any, version: int) -> None:
        """Sends what is not answered. The next answer is CLOSED where the broker does not like it."""
        self._opened().tell(message, version)

    def _opened(self) -> WireClient:
        if self._client is None:
            self._client = WireClient(self._server.host, self._server.port, timeout_s=ANSWER_TIMEOUT_S)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def plain(value: Any, *, left_out: Collection[str] = (), names: Mapping[Any, Any] | None = None, in_order: Collection[str] = ()) -> Any:
    """A message, or a dict or list of them, as dicts and lists, without the fields of `left_out`.

    `names` replaces values wherever they stand, such as topic ids by the topics' names, and parts of the keys of dicts. Lists are sorted,
    since Kafka's order is often that of a hash map, but for those in the fields of `in_order`, where the order says something."""

    def renamed(name: str) -> str:
        for old, new in (names or {}).items():
            name = name.replace(old, new) if isinstance(old, str) else name
        return name

    def of(value: Any, field: str) -> Any:
        if isinstance(value, Message):
            return {name: of(getattr(value, name), name) for name in value.__slots__ if name not in left_out}
        if isinstance(value, dict):
            return {renamed(name): of(each, name) for name, each in value.items()}
        if isinstance(value, list):
            elements = [of(each, field) for each in value]
            return elements if field in in_order else sorted(elements, key=repr)
        if isinstance(value, memoryview):
            value = bytes(value)
        return names.get(value, value) if names else value

    return of(value, "")


def by_name(value: Any) -> Any:
    """Lists of what has a name of its own as dicts, so that the places where they differ have names. Those that name one twice stay."""
    if isinstance(value, dict):
        return {key: by_name(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    elements = [by_name(each) for each in value]
    names = [_name(each) for each in elements]
    return (
        dict(zip(map(str, names), elements, strict=True)) if names and None not in names and len(set(names)) == len(elements) else elements
    )


def _name(value: Any) -> str | None:
    """Of a resource, a topic, a config or a partition; None for what has none."""
    if not isinstance(value, dict) or "source" in value:
        return None
    fields = [str(value[field]) for field in NAMING if value.get(field) is not None]
    return " ".join(fields) if fields else None


def await_that(is_done: Callable[[], bool], otherwise: str) -> None:
    """Asks again until it is done. AssertionError when that takes too long."""
    assert is_met_within(WAIT_S, is_done), otherwise


def is_met_within(wait_s: float, is_met: Callable[[], bool]) -> bool:
    """Asks again until it is met, or the time is over."""
    deadline_s = time.monotonic() + wait_s
    while not is_met():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(WAIT_INTERVAL_S)
    return True
