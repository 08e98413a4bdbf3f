"""The site of the documentation: it builds without a warning, each page is in its menu, and nothing in it comes from the network."""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli import verbs
from barnabas.cli.main import make_parser
from broker.cli.main import USAGE
from pipeline.cli import parser as pipeline_parser
from tests.pictures import COMMANDS
from tests.pictures import PATH as PICTURE
from tests.support.sources import ROOT

BUILD_TIMEOUT_S = 280
GUIDES = ("README.md", "docs/getting-started.md", "docs/three-machines.md", "docs/moving.md", "docs/clients.md")
LINES = [line for name in GUIDES for line in re.findall(r"^(?:    )?barnabas (.+)$", (ROOT / name).read_text(), re.MULTILINE)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it."""
    directory = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-q",
            "-c",
            "docs",
            "-d",
            str(directory / "trees"),
            ".",
            str(directory / "html"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return directory / "html"


@pytest.mark.long("builds the whole site")
def test_every_page_is_built(site: Path) -> None:
    """A page that no menu names is a warning, which ends the build."""
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]

    assert [page for page in pages if not (site / page.relative_to(ROOT)).with_suffix(".html").is_file()] == []
    assert "docs/index.html" in (site / "index.html").read_text()


@pytest.mark.long("builds the whole site")
def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    loaded = [
        found
        for page in site.rglob("*.html")
        for found in re.findall(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"((?:https?:)?//[^\"]+)", page.read_text())
    ]
    sheets = [sheet.read_text() for sheet in site.rglob("*.css")]
    imported = [found for text in sheets for found in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", text)]

    assert loaded == [] and imported == []


def test_the_terminal_on_the_first_page_shows_the_commands_that_are_drawn() -> None:
    """Another one of `python -m tests.pictures` is needed where this fails."""
    shown = html.unescape(re.sub(r"<[^>]*>", "", PICTURE.read_text(encoding="utf-8"))).replace("\u00a0", " ")

    assert [command for command in COMMANDS if command not in shown] == []


@pytest.mark.parametrize("line", [*LINES, *(command.partition("barnabas ")[2] for command in COMMANDS)])
def test_commands_of_the_guides_are_understood(line: str) -> None:
    words = shlex.split(line, comments=True)
    found = verbs.find(words)
    if found:
        named, rest = found[0], found[1]
        make_parser(named).parse_intermixed_args(rest)
    elif words[0] == "pipeline":
        pipeline_parser().parse_args(words[1:])
    else:
        assert re.search(rf"^  {words[0]} ", USAGE, re.MULTILINE)
