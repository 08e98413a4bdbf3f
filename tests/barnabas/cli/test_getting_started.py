"""The commands of docs/getting-started.md for who looks into topics, run as they stand there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.barnabas.cli.conftest import Command
from tests.support.installed import CHECKOUT

PAGE = (CHECKOUT / "docs" / "getting-started.md").read_text()
(LOOKING,) = re.findall(r"## You want to see.*?```sh\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("server_process", ["barnabas"], indirect=True)
def test_every_command_for_looking_is_done(command: Command, tmp_path: Path) -> None:
    command("topic", "delete", "orders", "--yes")  # of another page's commands, at the same server
    printed = []
    for line in LOOKING.splitlines():
        first, _, second = line.partition(" | ")
        given = subprocess.run(["/bin/sh", "-ec", first], capture_output=True, check=True).stdout if second else b""
        printed.append(command.done(*(second or first).split()[1:], stdin=given).raw)

    assert b"one book" in printed[3] and b'"value"' in printed[4]
