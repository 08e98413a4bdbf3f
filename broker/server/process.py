"""A broker as a process: its loop, console, signals, ready line and memory. SIGTERM and SIGINT both stop it cleanly."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

import uvloop

from broker.descriptors import make_table
from broker.observability.log_fields import Fields
from broker.observability.logs import Console, open_console
from broker.platform import system_platform
from broker.server.garbage import THRESHOLDS, GarbageCollection
from broker.server.node import StartError
from broker.server.server import Broker
from broker.server.service_manager import READY, STOPPING, notify
from broker.server.unused_memory import UnusedMemory
from broker.server.version import VERSION
from config.exposure import log_exposure
from config.loading import log_warnings
from config.server import ServerConfig

log = logging.getLogger("barnabas.server")

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may compute while another one waits for the interpreter. The loop gives it away in each of its system calls; with
the interpreter's default, 5 ms, it waits so long for it again, several times in a turn, while a thread makes or deletes logs."""


def run(
    config: ServerConfig,
    *,
    log_level: int = logging.INFO,
    log_format: str = "text",
    new_cluster_id: str = "",
    on_start: Callable[[Broker], None] | None = None,
    ready_line: Callable[[Broker], str] | None = None,
    on_ready: Callable[[Broker], None] | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the exit code.

    `on_start` is called before the broker starts; `ready_line`, called when it serves, returns the line for stdout; `on_ready` is called
    after that line. All run on the loop.
    """
    make_table()
    console = open_console(log_level, log_format)
    try:
        log_warnings(config)
        log_exposure(config)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(config, console, new_cluster_id, on_start, ready_line, on_ready))
    except Exception:
        # The interpreter would wait for the reader of stderr.
        log.critical("the broker failed", exc_info=True)
        return 1
    finally:
        console.close()


async def _run(
    config: ServerConfig,
    console: Console,
    new_cluster_id: str = "",
    on_start: Callable[[Broker], None] | None = None,
    ready_line: Callable[[Broker], str] | None = None,
    on_ready: Callable[[Broker], None] | None = None,
) -> int:
    gc.set_threshold(*THRESHOLDS)
    gc.enable()  # `barnabas serve` imports without it
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    loop = asyncio.get_running_loop()
    platform = system_platform(loop)
    broker = Broker(config, new_cluster_id=new_cluster_id, platform=platform)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, broker.request_stop, 0, number.name)
    if on_start is not None:
        on_start(broker)
    try:
        await broker.start()
    except StartError as e:
        exit_code = await broker.wait_stopped() if broker.stop_reason else 1
        if exit_code:
            console.report_start_failure(broker.stop_reason or str(e))
        else:
            log.info("stopped before it was ready %s", Fields(reason=broker.stop_reason))
        return exit_code
    _say_ready(broker, console, ready_line)
    notify(READY)
    if on_ready is not None:
        on_ready(broker)
    collection = GarbageCollection(platform.clock)
    collection.start()
    unused_memory = UnusedMemory(platform.clock, broker.run_blocking)
    unused_memory.start()
    exit_code = await broker.wait_stopped()
    notify(STOPPING)
    collection.stop()
    unused_memory.stop()
    log.log(logging.ERROR if exit_code else logging.INFO, "stopping %s", Fields(reason=broker.stop_reason))
    await broker.stop()
    log.info("stopped %s", Fields(exit_code=exit_code))
    return exit_code


def _say_ready(broker: Broker, console: Console, ready_line: Callable[[Broker], str] | None) -> None:
    """Write the ready line to stdout for the parent process, and a line with the time to the log."""
    config = broker.config
    addresses = [
        f"{endpoint.listener_name}://{endpoint.host or socket.gethostname()}:{listener.port}"
        for endpoint, listener in zip(
            config.client_listeners or config.controller_listeners, broker.listeners or broker.controller_listeners, strict=True
        )
    ]
    data = ",".join(config.log_dirs)
    line = f"barnabas {VERSION} ready on {' '.join(addresses)} data={data} node={broker.node_id} in {_process_age_s():.2f} s"
    console.announce(line if ready_line is None else ready_line(broker))
    facts = Fields(
        version=VERSION, listeners=",".join(addresses), data=data, node=broker.node_id, cluster=broker.cluster_id, pid=os.getpid()
    )
    log.info("ready %s", facts)


def _process_age_s() -> float:
    """Returns the seconds since this process was started, including the interpreter's start if the system tells."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            started_ticks = int(stat.read().rpartition(b")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return time.process_time()
