"""One broker's process, and what must not outlive its owner: the pipe it lives by, its port, its data, its log.

    owner ── write end of a pipe ──► broker's stdin      it ends at EOF, and removes its data
          ◄─ the ready line, then EOF at its end ── broker's stdout
          ◄─ log: a file without a name ── broker's stderr

The owner is the process that started the broker. Children that it forks get copies of its descriptors; they close them at once, so
that none of them keeps the broker alive, and none of them ends it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

from ._errors import BrokerError

STOP_TIMEOUT_S = 30.0
RELEASE_TIMEOUT_S = 10.0
LOG_TAIL_LINES = 30
LOG_TAIL_BYTES = 8_000
LOG_KEPT_BYTES = 1 << 20  # of a broker's log, once it is released
HOST = "127.0.0.1"
LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")

# Python's variables that say where modules are; the others (PYTHONWARNINGS, PYTHONDEVMODE, …) are meant for the code under test.
KEPT_PYTHON_VARIABLES = frozenset(
    {"PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"}
)
# Settings of another broker, and what would measure the coverage of ours.
FOREIGN_PREFIXES = ("KAFKA_", "COVERAGE_", "COV_CORE_", "PYTHON")

# At EOF its owner has died. The data of a broker that is not running have no owner then, and are removed.
GUARD = "import os, shutil, sys; os.read(0, 1); shutil.rmtree(sys.argv[1], ignore_errors=True)"


class BrokerProcess:
    """Starts, stops and kills one broker on the same port and data, until `release`. Used by one thread at a time."""

    def __init__(
        self,
        overrides: Sequence[str],
        *,
        is_port_given: bool,
        start_timeout_s: float,
        cluster_id: str = "",
        is_secure: bool = False,
        keys_of: BrokerProcess | None = None,
        reservations: Sequence[socket.socket] = (),
    ) -> None:
        """`reservations` keep the ports of which `overrides` speak; they are closed with the broker. A secured broker shares the keys in
        the directory of the process `keys_of`, the first of its cluster."""
        self.owner_pid = os.getpid()
        self.ready: dict[str, Any] = {}  # what the broker last said of itself
        self.was_ended = False  # by us; else a broker that has exited did so by itself
        self.made_at = time.time()
        self.released_at: float | None = None  # time.time()
        self._overrides = overrides
        self._start_timeout_s = start_timeout_s
        self._directory = os.path.join(os.path.abspath(tempfile.gettempdir()), f"barnabas-{os.urandom(8).hex()}")
        self._log_fd = -1
        self._log = ""  # once released
        self._cluster_id = cluster_id
        self._is_secure = is_secure
        self._keys_of = keys_of
        self._is_port_given = is_port_given
        self._reservation = None if is_port_given else reserve_port()
        self._reservations = [*reservations, *([] if self._reservation is None else [self._reservation])]
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline_fd = -1
        self._output_fd = -1
        self._guard: subprocess.Popen[bytes] | None = None
        _known.add(self)

    # -- what it does ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns once the broker serves. Raises BrokerError: its own line if it said why, else the log's end."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Returns at once: a broker of a cluster serves only when enough others have been launched. `wait_ready` comes next."""
        if self.is_running:
            raise BrokerError(f"the broker is running already as process {self.ready['pid']}")
        self._forget_process()
        try:
            self._launch()
        except BaseException:  # an interrupt as well must not leave it behind
            self._end(signal.SIGKILL)
            raise

    def wait_ready(self) -> None:
        """Returns once the launched broker serves. Raises as `start`."""
        try:
            self.ready = self._wait_ready()
        except BaseException:
            self._end(signal.SIGKILL)
            raise
        self._dismiss_guard()  # the broker removes its data again

    def stop(self) -> None:
        """SIGTERM: the broker closes its logs in order. Does nothing to one that has exited."""
        if self.is_running:
            self._post_guard()
            if not self._end(signal.SIGTERM):
                self._end(signal.SIGKILL)
                raise BrokerError(f"the broker did not stop within {STOP_TIMEOUT_S:.0f} s and was killed{self.log_end()}")

    def kill(self) -> None:
        """kill -9, as a crash. Does nothing to one that has exited."""
        if self.is_running:
            self._post_guard()
            self._end(signal.SIGKILL)

    def interrupt(self) -> None:
        """From another thread: let a `start` or `stop` that is under way fail now."""
        process = self._process
        if process is not None:
            process.kill()

    def release(self) -> None:
        """End the broker and remove what it leaves. In a forked child: only drop the handle. May be called again."""
        if self.released_at is not None or os.getpid() != self.owner_pid:
            return
        self.released_at = time.time()
        self.was_ended |= self.is_running
        self._close_lifeline()
        if self._process is not None and not self._wait_exit(RELEASE_TIMEOUT_S):
            self._end(signal.SIGKILL)
        self._forget_process()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._dismiss_guard()
        self._close_reservations()
        if self._log_fd >= 0:
            self._log = self._read_log(LOG_KEPT_BYTES)
            os.close(self._log_fd)

    # -- what it says ---------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        if self._process is None or os.getpid() == self.owner_pid:
            return self._process is not None and self._process.poll() is None
        try:  # a forked child cannot wait for it
            os.kill(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def exits_within(self, timeout_s: float) -> bool:
        """Whether the process has ended, or does in time. For the owner; others see only that it has."""
        return self._wait_exit(timeout_s) if os.getpid() == self.owner_pid else not self.is_running

    @property
    def exit_status(self) -> int | None:
        return None if self._process is None else self._process.poll()

    @property
    def log(self) -> str:
        """What the broker has written so far, over all its starts; the end of it once released."""
        return self._log if self.released_at is not None else self._read_log(None)

    def log_lines(self) -> list[str]:
        """The last lines of the log."""
        log = self._log if self.released_at is not None else self._read_log(LOG_TAIL_BYTES)
        return log[-LOG_TAIL_BYTES:].splitlines()[-LOG_TAIL_LINES:]

    def log_end(self) -> str:
        """The log's last lines as an appendix to a message."""
        lines = self.log_lines()
        return "; the end of its log:\n" + "\n".join(lines) if lines else "; its log is empty"

    # -- steps ----------------------------------------------------------------------------------------------------

    def make_directory(self) -> str:
        """The directory of its data, before its broker makes it: another of its cluster may be the first to put keys there. Once it is
        released nobody makes it again."""
        if self.released_at is None:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
        return self._directory

    def _launch(self) -> None:
        if self._log_fd < 0:
            with tempfile.TemporaryFile() as log:  # it has no name, so a kill leaves nothing of it
                self._log_fd = os.dup(log.fileno())
        arguments = [word for override in self._overrides for word in ("--override", override)]
        # The launcher by its path, and -P: the caller's directory may hold a `barnabas` or a `signal` of its own.
        command = [sys.executable, "-P", LAUNCHER, "serve", f"--ephemeral={self._directory}", *self._port_words(), *arguments]
        if self._is_secure:
            command.append("--secure" if self._keys_of is None else f"--secure={self._keys_of.make_directory()}")
        if self._cluster_id:
            command += ["--cluster-id", self._cluster_id]
        stdin, self._lifeline_fd = os.pipe()
        self._output_fd, stdout = os.pipe()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=self._log_fd,
                env=_environment(),
                start_new_session=True,  # a Ctrl-C is for the tests
            )
            self.was_ended = False
        finally:
            os.close(stdin)
            os.close(stdout)

    def _port_words(self) -> list[str]:
        """The same port at each start, unless the overrides name the ports."""
        if self._is_port_given:
            return []
        port = self._reservation.getsockname()[1] if self._reservation is not None else self.ready.get("port", 0)
        return ["--port", str(port)]

    def _wait_ready(self) -> dict[str, Any]:
        deadline = time.monotonic() + self._start_timeout_s
        line = b""
        while not line.endswith(b"\n"):
            if not _wait_readable(self._output_fd, deadline - time.monotonic()):
                raise BrokerError(f"the broker did not start within {self._start_timeout_s:g} s{self.log_end()}")
            chunk = os.read(self._output_fd, 4096)
            if not chunk:
                raise BrokerError(self._start_failure())
            line += chunk
        ready: dict[str, Any] = json.loads(line)
        return ready

    def _start_failure(self) -> str:
        """The broker's own line where it has one for us: the last of its log, without its name."""
        self._wait_exit(RELEASE_TIMEOUT_S)
        last = self.log.rstrip().rpartition("\n")[2]
        if last.startswith("barnabas: "):
            return last.removeprefix("barnabas: ")
        return f"the broker exited with status {self.exit_status} before it was ready{self.log_end()}"

    def _end(self, number: signal.Signals) -> bool:
        """Whether the process ended after the signal."""
        if self._process is None:
            return True
        self.was_ended = True
        self._process.send_signal(number)
        return self._wait_exit(STOP_TIMEOUT_S)

    def _wait_exit(self, timeout_s: float) -> bool:
        """Whether the process ends in time. The end of its stdout shows it: Popen.wait would poll with sleeps."""
        assert self._process is not None
        if self._process.poll() is None and _wait_readable(self._output_fd, timeout_s, at_end=True):
            self._process.wait()
        return self._process.poll() is not None

    def _forget_process(self) -> None:
        """Close what led to a process that has ended; its exit status stays."""
        self._close_lifeline()
        if self._output_fd >= 0:
            os.close(self._output_fd)
            self._output_fd = -1

    def _close_lifeline(self) -> None:
        if self._lifeline_fd >= 0:
            os.close(self._lifeline_fd)
            self._lifeline_fd = -1

    def _post_guard(self) -> None:
        """A broker that has ended cannot remove its data when we die: until the next start, another process waits for that."""
        if self._guard is None:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", GUARD, self._directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _dismiss_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.wait()
            assert guard.stdin is not None
            guard.stdin.close()

    def _close_reservations(self) -> None:
        for reservation in self._reservations:
            reservation.close()

    def _read_log(self, bytes_max: int | None) -> str:
        if self._log_fd < 0:
            return ""
        size = os.fstat(self._log_fd).st_size
        start = 0 if bytes_max is None else max(0, size - bytes_max)
        return os.pread(self._log_fd, size - start, start).decode(errors="replace")

    def let_go_in_child(self) -> None:
        """After a fork, in the child: the copies of the descriptors by which the broker would outlive its owner."""
        self._close_lifeline()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
        self._close_reservations()
        for process in (self._process, self._guard):
            if process is not None and process.returncode is None:
                process.returncode = 0  # not the child's to wait for, nor to be warned of


def reserve_port() -> socket.socket | None:
    """A socket that keeps a free port ours while no broker has it, between its start and its restart.

    Both sockets have SO_REUSEADDR and this one never listens. So Linux lets the broker bind beside it and refuses sockets without that
    option, and it does not give the port to an outgoing connection. Elsewhere the broker takes a free port and a restart asks for the same.
    """
    if sys.platform != "linux":
        return None
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind((HOST, 0))
    return reservation


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key in KEPT_PYTHON_VARIABLES or not key.startswith(FOREIGN_PREFIXES)}


def _wait_readable(descriptor: int, timeout_s: float, *, at_end: bool = False) -> bool:
    """Whether the pipe has something to read, or with `at_end` has no writer any more, in time. poll takes any descriptor's number."""
    poll = select.poll()
    poll.register(descriptor, 0 if at_end else select.POLLIN)  # POLLHUP is always told
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


# The brokers of this process, as long as someone has them. A fork needs to know them, and the pytest plugin shows their logs.
_known: WeakSet[BrokerProcess] = WeakSet()


def known() -> list[BrokerProcess]:
    """The brokers that this process owns, and those it has released but still holds."""
    return [process for process in _known if process.owner_pid == os.getpid()]


def _let_go_in_child() -> None:
    for process in list(_known):
        process.let_go_in_child()


os.register_at_fork(after_in_child=_let_go_in_child)
