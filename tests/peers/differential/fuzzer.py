"""What a differential fuzzer is: steps that a seed draws, and a session that plays them against one broker.

A fuzzer makes a list of random steps from a seed. The comparison plays the same steps against Apache Kafka and against Barnabas, in a
session each, and compares what the sessions return. So whatever a session returns is plain (`plain`): dicts, lists, numbers and text,
without what differs between two brokers by nature, such as random ids, ports and times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from protocol.schema import Message
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

ANSWER_TIMEOUT_S = 15.0
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
        if self._client is None:
            self._client = WireClient(self._server.host, self._server.port, timeout_s=ANSWER_TIMEOUT_S)
        try:
            return self._client.request(message, version)
        except TimeoutError:
            self.close()
            return SILENT
        except (EOFError, ConnectionError):
            self.close()
            return CLOSED

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def plain(value: Any, *, left_out: Collection[str] = (), names: Mapping[Any, Any] | None = None, in_order: Collection[str] = ()) -> Any:
    """A message as dicts and lists, without the fields of `left_out`.

    `names` replaces values wherever they stand, such as topic ids by the topics' names. Lists are sorted, since Kafka's order is often
    that of a hash map, but for those in the fields of `in_order`, where the order says something."""

    def of(value: Any, field: str) -> Any:
        if isinstance(value, Message):
            return {name: of(getattr(value, name), name) for name in value.__slots__ if name not in left_out}
        if isinstance(value, list):
            elements = [of(each, field) for each in value]
            return elements if field in in_order else sorted(elements, key=repr)
        if isinstance(value, memoryview):
            value = bytes(value)
        return names.get(value, value) if names else value

    return of(value, "")
