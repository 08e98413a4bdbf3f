"""`barnabas cluster up`: a cluster on this machine, a process for each broker, until SIGTERM or SIGINT.

Each broker is `barnabas serve --ephemeral` with a pipe from this process at its standard input: none outlives it, however it ends. Their
data are in one folder (cluster_folder.py) and are kept, but for --ephemeral. A broker that exits is reported and started again, at most
RESTARTS_MAX times in RESTARTS_WINDOW_S; with --ephemeral it stays away, as a test that kills it wants. The others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.cli.cluster_folder import DEFAULT_DIRECTORY, ClusterFolder, FolderError, lock_folder, open_folder
from broker.cli.cluster_security import tell_servers
from broker.cli.ready_bar import ready_bar
from broker.cli.secured_folder import AUTHORITY_FILE, CLIENT_FILE, EXAMPLE_FILE, LIBRDKAFKA_FILE
from broker.cli.serve_arguments import LOG_LEVELS
from storage.errors import StorageError

if TYPE_CHECKING:
    import argparse

BROKERS_MAX = 100
FIRST_PORT_MAX = 65_535 - BROKERS_MAX
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0
RESTARTS_MAX = 3
RESTARTS_WINDOW_S = 600.0
RESTART_DELAY_S = 1.0
STDIN = 0
STDOUT = 1
# As barnabas/__main__.py does it: the folder that this code was imported from comes first, whatever the caller's directory holds.
PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from broker.cli.main import main; sys.exit(main(sys.argv[1:]))"
SECURED = f"""
secured:   TLS, SCRAM, ACLs; the files with keys and passwords are readable by you alone
connect:   {{directory}}/{CLIENT_FILE} (Java, Kafka's tools: --command-config), {LIBRDKAFKA_FILE} (kcat -F), {EXAMPLE_FILE}
state:     barnabas cluster status --directory {{directory}}
add users: barnabas secure add-user NAME --read TOPIC --write TOPIC --group GROUP --directory {{directory}}"""
HOME = Path(__file__).resolve().parents[2]


class UpError(Exception):
    """The cluster cannot be started; `str()` is the line to print."""


def up(arguments: list[str]) -> int:
    """Run the cluster; returns the exit code. Raises ConfigError for a wrong setting."""
    options = _parser().parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-cluster-") if options.ephemeral else options.directory)
    try:
        port = 0 if options.ephemeral and options.port is None else options.port
        lock_folder(directory.absolute(), is_secure=options.secure)  # until this process ends
        folder = open_folder(directory.absolute(), options.brokers, port, is_secure=options.secure)
        folder.format(options.override)
        return asyncio.run(LocalCluster(folder, options).run())
    except (FolderError, UpError) as e:
        print(f"barnabas cluster up: {e}", file=sys.stderr)
        return 1
    finally:
        if options.ephemeral:
            shutil.rmtree(directory, ignore_errors=True)


class LocalCluster:
    """Owns the processes of the brokers."""

    def __init__(self, folder: ClusterFolder, options: argparse.Namespace) -> None:
        self._folder = folder
        self._options = options
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._ready: dict[int, dict[str, Any]] = {}
        self._stop_asked = asyncio.Event()
        self._keepers: list[asyncio.Future[None]] = []

    async def run(self) -> int:
        """Start all, say so, and wait for the end. Raises UpError if a broker does not come up."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop_asked.set)
        if self._options.ephemeral:
            threading.Thread(target=self._watch_stdin, args=(loop,), name="barnabas-stdin", daemon=True).start()
        started_s = time.monotonic()
        stopping = asyncio.ensure_future(self._stop_asked.wait())
        try:
            starting = asyncio.ensure_future(self._start())
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                return 0
            starting.result()
            self._announce(time.monotonic() - started_s)
            self._keepers = [asyncio.ensure_future(self._keep(node_id)) for node_id in self._processes]
            everyone = asyncio.ensure_future(asyncio.wait(self._keepers))
            await asyncio.wait((everyone, stopping), return_when=asyncio.FIRST_COMPLETED)
            return 0 if self._stop_asked.is_set() else 1
        finally:
            self._stop_asked.set()
            stopping.cancel()
            for keeper in self._keepers:
                keeper.cancel()
            await asyncio.gather(*self._keepers, return_exceptions=True)
            await self._stop()

    async def _start(self) -> None:
        for node_id in self._folder.node_ids:
            self._processes[node_id] = await self._launch(node_id)
        try:
            async with asyncio.timeout(READY_TIMEOUT_S), ready_bar(lambda: len(self._ready), len(self._processes)):
                for node_id, process in self._processes.items():
                    assert process.stdout is not None
                    line = await process.stdout.readline()
                    if not line:
                        raise UpError(f"node {node_id} did not start: {_last_line(self._folder.log_path(node_id))}")
                    self._ready[node_id] = json.loads(line)
        except TimeoutError as e:
            waiting = [node_id for node_id in self._processes if node_id not in self._ready]
            raise UpError(f"nodes {waiting} were not ready within {READY_TIMEOUT_S:.0f} s; see {self._folder.log_path(waiting[0])}") from e
        self._folder = self._folder.with_ports({node_id: ready["port"] for node_id, ready in self._ready.items()})
        try:
            self._folder.save()
            if self._folder.is_secure:
                tell_servers(self._folder.directory, self._bootstrap_servers)
        except (OSError, StorageError) as e:
            raise UpError(f"cannot write in {self._folder.directory}: {e}") from e

    @property
    def _bootstrap_servers(self) -> str:
        return ",".join(ready["bootstrap_servers"] for ready in self._ready.values())

    async def _launch(self, node_id: int) -> asyncio.subprocess.Process:
        """The broker's process, in a group of its own: a SIGINT of the terminal reaches this process alone, which stops them in order."""
        folder = self._folder
        data = folder.data_directory(node_id)
        is_owned = self._options.ephemeral  # the broker then removes its data if this process dies
        settings = [*folder.settings(node_id, self._options.override), *([] if is_owned else [f"log.dirs={data}"])]
        words = [word for setting in settings for word in ("--override", setting)]
        secrets = [] if folder.settings_file is None else ["--settings", str(folder.settings_file)]
        serve = ["serve", f"--ephemeral={data if is_owned else ''}", "--log-level", self._options.log_level, *secrets, *words]
        pipe = asyncio.subprocess.PIPE
        with folder.log_path(node_id).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", PROGRAM, str(HOME), *serve), stdin=pipe, stdout=pipe, stderr=log, start_new_session=True
            )

    def _announce(self, seconds: float) -> None:
        directory, servers = self._folder.directory, self._bootstrap_servers
        if self._options.ephemeral or self._options.json:
            brokers = [{"node_id": node_id, **ready} for node_id, ready in self._ready.items()]
            said = {"bootstrap_servers": servers, "cluster_id": self._folder.cluster_id, "brokers": brokers}
            files = {"ca_file": str(directory / AUTHORITY_FILE), "client_properties": str(directory / CLIENT_FILE)}
            text = json.dumps(said | (files if self._folder.is_secure else {}))
        else:
            text = f"barnabas cluster of {len(self._ready)} ready on {servers} data={directory} in {seconds:.1f} s"
            if self._folder.is_secure:
                text += SECURED.format(directory=directory)
        with contextlib.suppress(BrokenPipeError):  # the reader has left: it serves all the same, as `barnabas serve` does
            os.write(STDOUT, f"{text}\n".encode())

    async def _keep(self, node_id: int) -> None:
        """Report each end of the node's process, and start it again. Returns once it is left ended."""
        restarted_s: list[float] = []
        while True:
            status = await self._processes[node_id].wait()
            if self._stop_asked.is_set():
                return
            now_s = time.monotonic()
            restarted_s = [each_s for each_s in restarted_s if now_s - each_s < RESTARTS_WINDOW_S]
            is_left = self._options.ephemeral or len(restarted_s) == RESTARTS_MAX
            self._report_exit(node_id, status, is_left=is_left)
            if is_left:
                return
            restarted_s.append(now_s)
            await asyncio.sleep(RESTART_DELAY_S)
            self._processes[node_id] = await self._launch(node_id)

    def _report_exit(self, node_id: int, status: int, *, is_left: bool) -> None:
        how = f"was killed by signal {-status}" if status < 0 else f"has exited with status {status}"
        if not is_left:
            following = "and is started again"
        elif self._options.ephemeral:
            following = "and is not started again"
        else:
            following = f"and is not started again, as {RESTARTS_MAX} starts did not help: stop this command and give it anew"
        print(f"barnabas cluster up: node {node_id} {how} {following}; see {self._folder.log_path(node_id)}", file=sys.stderr, flush=True)

    async def _stop(self) -> None:
        """SIGTERM to all at once, then kill -9 to those that take too long."""
        running = [process for process in self._processes.values() if process.returncode is None]
        for process in running:
            _send(process, signal.SIGTERM)
        if not running:
            return
        waits = [asyncio.ensure_future(process.wait()) for process in running]
        _, late = await asyncio.wait(waits, timeout=STOP_TIMEOUT_S)
        for process in running if late else ():
            if process.returncode is None:
                _send(process, signal.SIGKILL)
                await process.wait()

    def _watch_stdin(self, loop: asyncio.AbstractEventLoop) -> None:
        """End when the other end of standard input is closed, if that is a pipe."""
        mode = os.fstat(STDIN).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return
        with contextlib.suppress(OSError):
            while os.read(STDIN, 4096):
                pass
        with contextlib.suppress(RuntimeError):  # the loop has closed: it was stopping already
            loop.call_soon_threadsafe(self._stop_asked.set)


def _last_line(path: Path) -> str:
    """The end of a node's log, which says why it did not start."""
    lines = path.read_text(errors="replace").splitlines()
    return lines[-1].removeprefix("barnabas: ") if lines else "it said nothing"


def _parser() -> argparse.ArgumentParser:
    from broker.cli.one_line_parser import OneLineParser

    parser = OneLineParser(
        prog="barnabas cluster up",
        description="Run a cluster on this machine, a process for each broker, until SIGTERM or SIGINT. One line on stdout says where it "
        "serves, when all do. Reads no file and no KAFKA_… variables.",
    )
    add = parser.add_argument
    add("--brokers", type=_brokers_count, metavar="N", help="how many (default: as many as the folder has, 3 at first)")
    add("--directory", default=DEFAULT_DIRECTORY, metavar="DIR", help="where the data are, and stay (default: ./cluster)")
    add("--port", type=_port, help="the first broker's, the others follow (default: 9092 at first, then as before); 0 takes free ones")
    add("--override", action="append", default=[], metavar="KEY=VALUE", help="set one property of every node; may be given many times")
    add("--secure", action="store_true", help="with TLS, SCRAM and ACLs; the folder has the authority, and what clients need to log in")
    add("--json", action="store_true", help="the line on stdout is JSON")
    add(
        "--ephemeral",
        action="store_true",
        help="for tests: data in a temporary folder that is removed at the end, free ports, --json, and the end when standard input "
        "(a pipe) closes",
    )
    add("--log-level", default="info", choices=LOG_LEVELS, help="what is less important is not logged")
    return parser


def _send(process: asyncio.subprocess.Process, number: int) -> None:
    """Not by the process's own methods: they ask for its exit status, which the loop is waiting for, and takes for lost then."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def _brokers_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= BROKERS_MAX):
        raise _not_in_range(text, 1, BROKERS_MAX)
    return int(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= FIRST_PORT_MAX):
        raise _not_in_range(text, 0, FIRST_PORT_MAX)
    return int(text)


def _not_in_range(text: str, lowest: int, highest: int) -> argparse.ArgumentTypeError:
    import argparse

    return argparse.ArgumentTypeError(f"{text!r} is not a number from {lowest} to {highest}")
