"""`barnabas serve --console`: the console is a process that ends with the broker, and not the other way round."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import pytest

from broker.cli.ephemeral_security import AUTHORITY_FILE, open_identity
from tests.support.installed import CHECKOUT
from tests.support.ports import free_port

WAIT_S = 60
SERVE = (sys.executable, "-m", "broker.cli.main", "serve")
SHOWN = re.compile(r"console on (http://localhost:\d+/) of (.*)\n")
CLIENT = """\
bootstrap.servers=127.0.0.1:{port}
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="{password}";
ssl.truststore.type=PEM
ssl.truststore.location={authority}
"""


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


def address(stderr: Path) -> str:
    found = SHOWN.search(stderr.read_text())
    assert found is not None
    return found[1]


def page(stderr: Path) -> str:
    with urllib.request.urlopen(address(stderr), timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def sign_in(stderr: Path, fields: dict[str, str]) -> int:
    """The status of the page that the form leads to."""
    with urllib.request.urlopen(address(stderr), timeout=WAIT_S) as answer:
        cluster = str(answer.geturl()).rstrip("/")  # it leads to its one cluster
    headers = {"Origin": address(stderr).rstrip("/")}
    request = urllib.request.Request(f"{cluster}/sign-in", urlencode(fields).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as e:
        with e:
            return e.code


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


def test_users_and_the_token_sign_in_beside_the_broker(stderr: Path, tmp_path: Path) -> None:
    directory, port, token, client = tmp_path / "data", str(free_port()), tmp_path / "token", tmp_path / "client.properties"
    directory.mkdir()
    identity = open_identity(directory)  # as a first start makes it: the console's file is there before the broker
    client.write_text(CLIENT.format(port=port, password=identity.password, authority=directory / AUTHORITY_FILE))
    token.write_text("the token of this test\n")
    words = (f"--ephemeral={directory}", "--secure", "--port", port, "--console", "0", "--console-config", str(client))
    process = start(stderr, *words, "--console-allow-login", "--console-token-file", str(token))

    tries = (
        {"user": "admin", "password": "another"},
        {"user": "admin", "password": identity.password},
        {"token": "the token of this test"},
    )
    answers = [sign_in(stderr, fields) for fields in tries]
    assert process.stdin is not None
    process.stdin.close()
    process.wait(WAIT_S)

    audit = [line.partition("barnabas.console.audit ")[2] for line in stderr.read_text().splitlines() if "console.audit" in line]
    cluster = f"127.0.0.1-{port}"
    assert answers == [403, 200, 200]
    assert [re.sub(r"session \w+", "session", line) for line in audit] == [
        f"127.0.0.1 on {cluster}: sign-in refused",
        f'session of "admin" from 127.0.0.1 on {cluster}: signed in',
        f"session from 127.0.0.1 on {cluster}: signed in by the token",
    ]
    assert identity.password not in stderr.read_text()


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        (("--console", "many"), "--console many is not a port", 2),
        (("--console-config", "file"), "--console-config is for --console PORT", 2),
        (("--console-allow-login",), "--console-allow-login is for --console PORT", 2),
        (("--console", "0", "--console-allow-login"), "--console-allow-login needs --console-config FILE", 2),
        (("--ephemeral", "--console", "0", "--console-token-file", "no-such-file"), "--console-token-file no-such-file cannot be read", 1),
        (("--ephemeral", "--secure", "--console", "0"), "--console needs a listener that is PLAINTEXT, or --console-config FILE", 1),
    ],
)
def test_what_cannot_be_is_said_before_the_start(words: tuple[str, ...], says: str, code: int) -> None:
    done = subprocess.run([*SERVE, *words], cwd=CHECKOUT, input=b"", capture_output=True, timeout=WAIT_S, check=False)

    assert (done.returncode, done.stdout) == (code, b"")
    assert says in done.stderr.decode() and len(done.stderr.splitlines()) == 1
