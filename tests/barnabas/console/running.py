"""`barnabas console` as a process of its own, and what its server has."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.installed import CHECKOUT
from tests.support.process import ServerProcess

SEEN_S = 60
HOSTILE = '<script>document.title="caught"</script><img src=x onerror=alert(1)>"\''
"""As a key, a value, a header and a group's id."""
TOPIC, BEHIND, RECORDS = "orders", "billing", 30


@dataclass(frozen=True, slots=True)
class Answer:
    """Of the console; the body as text."""

    status: int
    headers: http.client.HTTPMessage
    text: str


class Console:
    """`barnabas console` of this checkout; `port` is where it serves, `base` the path of its first cluster."""

    def __init__(self, *words: str, environment: Mapping[str, str], log: Path | None = None) -> None:
        command = [sys.executable, "-m", "barnabas", "console", "--port", "0", *words]
        with open(log or os.devnull, "wb") as stderr:
            self.process = subprocess.Popen(command, cwd=CHECKOUT, env=dict(environment), stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("console on http://localhost:"), line
        self.port = int(line.split()[2].rstrip("/").rpartition(":")[2])
        self.base = urlsplit(self.get("/").headers["location"]).path

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def ask(self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: str | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True)
            sent = {"Host": f"localhost:{self.port}", **(headers or {})}
            if body is not None:
                sent |= {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(len(body.encode()))}
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders(None if body is None else body.encode())
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())
        finally:
            connection.close()

    def page(self, path: str, *, until: str = "") -> str:
        """A page of the first cluster as the script asks for it; once `until` is in it."""
        deadline = time.monotonic() + SEEN_S
        while True:
            answer = self.get(self.base + path, x_again="1")
            if answer.status == 200 and until in answer.text:
                return answer.text
            assert time.monotonic() < deadline, f"{path}: {answer.status}, without {until!r}: {answer.text[-3_000:]}"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        assert self.process.wait(30) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()


def environment(home: Path, server: ServerProcess) -> dict[str, str]:
    """Without the contexts of whoever runs the tests."""
    kept = {name: value for name, value in server.environment().items() if not name.startswith("BARNABAS_")}
    return {**kept, "XDG_CONFIG_HOME": str(home)}
