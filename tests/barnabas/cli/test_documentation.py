"""Every command of docs/cli.md, run as it stands there, one after another on one broker."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from barnabas.cli import verbs
from tests.barnabas.cli.conftest import Command
from tests.support.broker import BrokerProcess
from tests.support.installed import CHECKOUT

PAGE = (CHECKOUT / "docs" / "cli.md").read_text()
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


@pytest.mark.parametrize("server_process", ["barnabas"], indirect=True)
def test_every_command_is_done(command: Command, server_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    for line in LINES:
        run(command, line, tmp_path)

    shown = {found[0] for line in LINES for part in line.split(" | ") if (found := verbs.find(shlex.split(part)[1:]))}
    assert shown == verbs.VERBS.keys()
