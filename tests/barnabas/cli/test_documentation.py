"""Every command of docs/cli.md, run as it stands there, one after another on one broker."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.cli import verbs
from tests.barnabas.cli.conftest import Command
from tests.support.broker import BrokerProcess
from tests.support.installed import CHECKOUT

JOIN_S = 60
PAGE = (CHECKOUT / "docs" / "cli.md").read_text()
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}]}'
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line]


def run(command: Command, line: str, directory: Path) -> None:
    """A line of one or more commands with pipes between them; those that are not ours run in a shell."""
    passed = b""
    for part in line.split(" | "):
        words = shlex.split(part)
        if words[0] == "barnabas":
            passed = command.done(*words[1:], stdin=passed).raw
        else:
            passed = subprocess.run(
                ["/bin/sh", "-ec", part], input=passed, cwd=directory, capture_output=True, timeout=60, check=True
            ).stdout


@contextlib.contextmanager
def prepared(command: Command, line: str) -> Iterator[None]:
    """What a line is about beside topics: a static member to remove, a transactional id."""
    if "transaction abort" in line:
        command.done("topic", "create", "hanging")
        producer = Producer({"bootstrap.servers": command.bootstrap, "transactional.id": "lost"})
        producer.init_transactions(JOIN_S)
        producer.begin_transaction()
        producer.produce("hanging", "x")
        producer.flush(JOIN_S)
        yield
        return
    if "transaction describe" in line:
        producer = Producer({"bootstrap.servers": command.bootstrap, "transactional.id": "payments"})
        producer.init_transactions(JOIN_S)
        yield
        return
    if "remove-member" not in line:
        yield
        return
    who = {"group.id": "dashboard", "group.instance.id": "host-7", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": command.bootstrap, **who})
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + JOIN_S
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    yield
    consumer.close()


@pytest.mark.parametrize("server_process", ["barnabas"], indirect=True)
def test_every_command_is_done(command: Command, server_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(server_process.data_dir)
    (tmp_path / "order.avsc").write_text(ORDER)

    for line in LINES:
        with prepared(command, line):
            run(command, line, tmp_path)

    shown = {found[0] for line in LINES for part in line.split(" | ") if (found := verbs.find(shlex.split(part)[1:]))}
    assert shown == verbs.VERBS.keys() - {("console",)}  # which does not end; docs/console.md is about it
