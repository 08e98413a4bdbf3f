"""`barnabas.Broker`: a broker of its own process, for as long as a `with` block."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from ._create_topic import create_topic, partitions_by_topic
from ._errors import BrokerError
from ._process import BrokerProcess

if TYPE_CHECKING:
    from ._secure import Administrator
    from ._wire import Login

START_TIMEOUT_S = 30.0
EXIT_S = 1.0
OWN_OF_SECURE = frozenset({"listeners", "listener.security.protocol.map", "log.dir", "log.dirs"})


class Broker:
    """One Kafka-speaking broker on 127.0.0.1, on a free port, with data in a temporary directory.

    `config` holds broker properties by Kafka's names ("log.retention.ms"); a wrong key or value raises BrokerError at the start.
    A value of None leaves the default. `topics` are there once it has started, with so many partitions: {"orders": 3}, or ["orders"] for
    the broker's default. `with` starts and closes it; without `with`, `start` and `close` do.
    With `secure` its listener has TLS and SASL, with an authority of its own, and `client_config` tells clients how to log in.
    It keeps its port and its data over `stop`, `kill` and `restart`, until `close`. It ends with the process that started it, however
    that ends. Not to be used by several threads at once, nor given to another process: `bootstrap_servers` is what others need.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        topics: Mapping[str, int] | Iterable[str] = (),
        *,
        secure: bool = False,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        config = config or {}
        check_config(config, is_secure=secure)
        process = BrokerProcess(
            overrides_of(config), is_port_given="listeners" in config, is_secure=secure, start_timeout_s=start_timeout_s
        )
        self._adopt(process, partitions_by_topic(topics), is_secure=secure)

    def _adopt(self, process: BrokerProcess, topics: Mapping[str, int | None], *, is_secure: bool) -> None:
        self._process = process
        self._topics = topics
        self._is_secure = is_secure
        self._administrator: Administrator | None = None
        # For a broker without a call of `close`: its process ends when this object is collected, or with the interpreter.
        self._release = weakref.finalize(self, self._process.release)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = self._state()
        return f"<barnabas.Broker {self._process.ready.get('bootstrap_servers', '')}{' ' if self._process.ready else ''}{state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a barnabas.Broker belongs to the process that made it; give others its bootstrap_servers")

    # -- its life -------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it, or start it again after `stop` or `kill`. Returns itself once it serves and the topics are there.

        Raises BrokerError with the broker's own line (a wrong setting), or with the end of its log.
        """
        self._check_owner()
        self._process.start()
        try:
            for name, partitions in self._topics.items():
                self.create_topic(name, partitions, exist_ok=True)
        except BaseException:
            self.close()
            raise
        self._topics = {}
        return self

    def stop(self) -> None:
        """Stop it in good order (SIGTERM); its data and port are kept. Does nothing to a broker that does not run."""
        self._check_owner()
        self._process.stop()

    def kill(self) -> None:
        """Kill it (kill -9), as a crash would; its data and port are kept. Does nothing to a broker that does not run."""
        self._check_owner()
        self._process.kill()

    def restart(self) -> None:
        """Stop it if it runs, and start it again on the same port with its data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End it and remove its data. May be called again. In a process that was forked from the owner's it does nothing."""
        self._release()

    def interrupt(self) -> None:
        """For another thread: end the process at once, so that a `start` or `stop` under way fails."""
        self._process.interrupt()

    # -- what it offers -------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """ "127.0.0.1:PORT", also while the broker is stopped. Raises BrokerError before the first start."""
        return str(self._ready("bootstrap_servers"))

    @property
    def host(self) -> str:
        return str(self._ready("host"))

    @property
    def port(self) -> int:
        return int(self._ready("port"))

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        return int(self._ready("pid"))

    @property
    def data_dir(self) -> str:
        """The directory of its data, in Kafka's format; gone after `close`."""
        return str(self._ready("data_dir"))

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    @property
    def log(self) -> str:
        """What it has logged so far, over all its starts. After `close`: the last megabyte."""
        return self._process.log

    def client_config(self, user: str | None = None) -> dict[str, str]:
        """How librdkafka's clients connect: `Producer(broker.client_config("alice"))`. A new dict each time.

        On a secure broker as `user`, who is made at the first call, with a password of its own; None is the administrator, who may do
        everything. Users may do what no ACL is about; an ACL on a resource leaves it to those that it names. Raises BrokerError where the
        broker is not secure and a user is named, is not running or refuses.
        """
        config = {"bootstrap.servers": self.bootstrap_servers}
        if not self._is_secure:
            if user is not None:
                raise BrokerError(f"there is no user {user}: the broker is not secure; make it by barnabas.Broker(secure=True)")
            return config
        try:
            return config | self._admin().config(self._addresses(), user)
        except OSError as e:
            raise BrokerError(f"cannot make user {user}: the broker {self._state()}: {e}") from e

    @property
    def ca_file(self) -> str:
        """Of a secure broker: the file of the authority that its clients have to trust, in PEM; gone after `close`."""
        if not self._is_secure:
            raise BrokerError("the broker is not secure; make it by barnabas.Broker(secure=True)")
        return self._admin().authority_file

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic; it is usable when this returns. None partitions or replicas: the broker's num.partitions, which is 1, and its
        default.replication.factor.

        `config` holds topic properties ("cleanup.policy"). Raises BrokerError where the broker refuses; one that exists already is
        refused unless `exist_ok`, and then left as it is.
        """
        settings = {key: _text(value) for key, value in (config or {}).items()}
        why = self._state()
        if self.is_running:
            try:
                address = (self.host, self.port)
                create_topic(
                    address, name, partitions, settings, replication_factor=replication_factor, exist_ok=exist_ok, login=self._login()
                )
                return
            except OSError as e:
                # A broker that was just killed still has its connections, and is seen to be gone a moment later.
                why = self._state() if self._process.exits_within(EXIT_S) else f"does not answer: {e}"
        raise BrokerError(f"cannot create topic {name}: the broker {why}{self._process.log_end() if self._has_crashed() else ''}")

    # -- helpers --------------------------------------------------------------------------------------------------

    def _ready(self, key: str) -> Any:
        if not self._process.ready:
            raise BrokerError("the broker was not started: use `with barnabas.Broker() as broker:`, or call start()")
        return self._process.ready[key]

    def _admin(self) -> Administrator:
        from ._secure import Administrator  # late: ssl takes 30 ms to import

        self._administrator = self._administrator or Administrator(self.data_dir)
        return self._administrator

    def _login(self) -> Login | None:
        """How to log in as the administrator; None to a broker that is not secure."""
        return self._admin().login if self._is_secure else None

    def _addresses(self) -> list[tuple[str, int]]:
        """Where users are made, and have to be known before their clients come."""
        return [(self.host, self.port)]

    def _state(self) -> str:
        if self._process.released_at is not None:
            return "is closed"
        if self.is_running:
            return "is running"
        status = self._process.exit_status
        if status is None:
            return "was not started"
        if self._has_crashed():
            return f"has exited by itself with status {status}"
        return "is stopped"

    def _has_crashed(self) -> bool:
        return not self.is_running and self._process.exit_status is not None and not self._process.was_ended

    def _check_owner(self) -> None:
        if self._process.owner_pid != os.getpid():
            raise BrokerError(f"this broker belongs to process {self._process.owner_pid}, which forked this one")
        if self._process.released_at is not None:
            raise BrokerError("the broker is closed; make a new one")


def check_config(config: Mapping[str, object], *, is_secure: bool) -> None:
    """Raises BrokerError for settings that would open a secure broker."""
    if is_secure and config.keys() & OWN_OF_SECURE:
        raise BrokerError(
            f"a secure broker has listeners and a directory of its own: config may not have {', '.join(sorted(OWN_OF_SECURE))}"
        )


def overrides_of(config: Mapping[str, object]) -> list[str]:
    """Properties as `--override` takes them; None leaves the default."""
    return [f"{key}={_text(value)}" for key, value in config.items() if value is not None]


def _text(value: object) -> str:
    """A setting as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(_text(each) for each in value)
    return str(value)
