"""The commands that docs/pipeline.md shows are such as the command takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pipeline.cli import parser
from pipeline.jobs import read_jobs
from tests.support.sources import ROOT

TEXT = (ROOT / "docs" / "pipeline.md").read_text()
COMMANDS = sorted(set(re.findall(r"^    barnabas pipeline (.+)$", TEXT, re.MULTILINE)))


@pytest.mark.parametrize("command", COMMANDS)
def test_command_has_valid_options(command: str, tmp_path: Path) -> None:
    """Files that are in /etc there are in this folder here."""
    (tmp_path / "archivist.properties").write_text("bootstrap.servers=one:9092\n")

    arguments = parser().parse_args(shlex.split(command.replace("/etc/barnabas", str(tmp_path))))

    assert callable(arguments.run)


def test_file_of_jobs_is_valid(tmp_path: Path) -> None:
    (lines,) = re.findall(r"^    # nightly.toml\n((?:    .*\n|\n(?=    ))+)", TEXT, re.MULTILINE)
    path = tmp_path / "nightly.toml"
    path.write_text(re.sub(r"^    ", "", lines, flags=re.MULTILINE))

    assert [job.name for job in read_jobs(str(path), parser)] == ["orders", "merge", "check"]


def test_commands_are_found() -> None:
    assert {command.split()[0] for command in COMMANDS} >= {"archive", "replay", "status"}
