"""`barnabas serve --console`: the console is a process that ends with the broker, and not the other way round."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.support.installed import CHECKOUT

WAIT_S = 60
SERVE = (sys.executable, "-m", "broker.cli.main", "serve")
SHOWN = re.compile(r"console on (http://localhost:\d+/) of (.*)\n")


@pytest.fixture
def stderr(tmp_path: Path) -> Path:
    return tmp_path / "stderr"


def start(stderr: Path, *words: str) -> subprocess.Popen[bytes]:
    """Returns when the console has said where it is, so that it serves."""
    with stderr.open("wb") as said:
        process = subprocess.Popen([*SERVE, *words], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
    assert process.stdout is not None and process.stdout.readline()
    with stderr.open() as reading:
        text = ""
        while not SHOWN.search(text):
            assert process.poll() is None, text
            text += reading.readline()
    return process


def wait_for_figures(stderr: Path) -> None:
    """The first page comes before the figures, which the console asks for then."""
    deadline_s = time.monotonic() + WAIT_S
    while "Metadata quorum" not in (shown := page(stderr)):
        assert time.monotonic() < deadline_s, shown
        time.sleep(0.05)


def page(stderr: Path) -> str:
    found = SHOWN.search(stderr.read_text())
    assert found is not None
    with urllib.request.urlopen(found[1], timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def console_of(process: subprocess.Popen[bytes]) -> int:
    """Its process id."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (found,) = (int(each) for each in children if b"console" in Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0"))
    return found


def wait_gone(pid: int) -> None:
    descriptor = os.pidfd_open(pid)
    try:
        assert select.select([descriptor], [], [], WAIT_S)[0], "the console goes on"
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_console_shows_the_broker_and_ends_with_it(stderr: Path, number: signal.Signals) -> None:
    process = start(stderr, "--ephemeral", "--console", "0")
    wait_for_figures(stderr)
    pid = console_of(process)

    process.send_signal(number)
    wait_gone(pid)

    assert process.wait(WAIT_S) == (0 if number is signal.SIGTERM else -signal.SIGKILL)


def test_broker_goes_on_without_its_console(stderr: Path) -> None:
    process = start(stderr, "--ephemeral", "--console", "0")

    os.kill(console_of(process), signal.SIGKILL)

    assert process.stdin is not None and process.poll() is None
    process.stdin.close()
    assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        (("--console", "many"), "--console many is not a port", 2),
        (("--console-config", "file"), "--console-config is for --console PORT", 2),
        (("--ephemeral", "--secure", "--console", "0"), "--console needs a listener that is PLAINTEXT, or --console-config FILE", 1),
    ],
)
def test_what_cannot_be_is_said_before_the_start(words: tuple[str, ...], says: str, code: int) -> None:
    done = subprocess.run([*SERVE, *words], cwd=CHECKOUT, input=b"", capture_output=True, timeout=WAIT_S, check=False)

    assert (done.returncode, done.stdout) == (code, b"")
    assert says in done.stderr.decode() and len(done.stderr.splitlines()) == 1
