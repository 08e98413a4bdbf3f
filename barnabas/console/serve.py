"""Serves the console over HTTP until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import uvicorn

from barnabas.cli.errors import DONE, NotUnderstoodError, RefusedError
from barnabas.console.app import make_app
from barnabas.console.clusters import watchers
from barnabas.console.guard import LOOPBACK
from barnabas.console.logins import takes_passwords
from barnabas.console.sessions import Sessions, make_token, read_token
from barnabas.console.watcher import Watcher

STOP_WAIT_S = 1
"""For requests to end."""


class _Server(uvicorn.Server):
    """Tells the watchers first that it ends, and streams end with them: uvicorn waits for streams, and then cuts them off."""

    def __init__(self, config: uvicorn.Config, known: Iterable[Watcher]) -> None:
        super().__init__(config)
        self._known = tuple(known)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in self._known:
            each.close()
        await super().shutdown(sockets)


def run(options: argparse.Namespace) -> int:
    """Raises CommandError."""
    if options.host not in ("127.0.0.1", "::1", "localhost"):
        raise RefusedError(
            "the console serves on this machine alone (--host 127.0.0.1); a reverse proxy that asks for a login is for others"
        )
    token = _token(options)
    known = watchers(options)
    with_login = [each.name for each in known.values() if takes_passwords(each.settings)] if options.allow_login else []
    if options.allow_login and not with_login:
        raise RefusedError("--allow-login: no cluster here is one whose context has a login by SASL PLAIN or SCRAM")
    listening = _listen(options.host, options.port)
    port = listening.getsockname()[1]
    hosts = {f"{name}:{port}" for name in LOOPBACK} | set(options.allow_host)
    sessions = Sessions(token, port, allows_login=options.allow_login) if token or options.allow_login else None
    config = uvicorn.Config(
        make_app(known, hosts, sessions),
        log_level="warning",
        access_log=False,
        ws="none",
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_WAIT_S,
        h11_max_incomplete_event_size=32_768,
    )
    print(f"console on http://localhost:{port}/ of {', '.join(each.name for each in known.values())}", file=sys.stdout, flush=True)
    if sessions is not None:
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
        logging.getLogger("barnabas.console.audit").setLevel(logging.INFO)
    if with_login:
        print(f"changes are for users who log in to {', '.join(with_login)}", file=sys.stdout, flush=True)
    if token:
        print("changes need this token: " + ("that of --token-file" if options.token_file else token), file=sys.stdout, flush=True)
    if options.end_with_stdin:
        threading.Thread(target=_end_with_stdin, name="barnabas-stdin", daemon=True).start()
    logging.getLogger("uvicorn.error").addFilter(_is_no_cut)
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn ends by it, and raises it once more when it has ended
    try:
        _Server(config, known.values()).run(sockets=[listening])
    except KeyboardInterrupt:
        pass  # uvicorn raises what ended it once more
    finally:
        for each in known.values():
            each.close()
    return DONE


def _is_no_cut(record: logging.LogRecord) -> bool:
    """uvicorn logs a traceback for each request that it cuts off when it ends: a download, or a page that waits for a broker."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _end_with_stdin() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4_096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def _token(options: argparse.Namespace) -> str:
    """ "" if nothing may be changed. Raises NotUnderstoodError."""
    if options.token_file:
        return read_token(Path(options.token_file))
    return make_token() if options.allow_changes else ""


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise NotUnderstoodError(f"--port {port} is no port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()  # before the line that says so: whoever reads it may ask at once
    except OSError as e:
        listening.close()
        raise RefusedError(f"port {port} of {host} cannot be had: {e.strerror}; --port 0 takes a free one") from e
    return listening
