"""The built wheel in a virtual environment of its own, and pytest run there on a project of a few lines, as a user has it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess

CHECKOUT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 240


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory))
    return next(directory.glob("*.whl"))


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it; the libraries it needs are borrowed from the tests' own."""
    directory = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", str(directory))
    run(sys.executable, "-m", "pip", "--python", str(directory), "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (site_packages(directory) / "borrowed.pth").write_text("\n".join(borrowed))
    return directory


def run(*command: str) -> str:
    finished = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def site_packages(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


class InstalledBroker(BrokerProcess):
    """The installed command instead of the checkout."""

    def __init__(self, environment: Path, directory: Path) -> None:
        super().__init__(directory)
        self.barnabas = str(environment / "bin" / "barnabas")

    def command(self) -> list[str]:
        command = super().command()
        return [self.barnabas, *command[command.index("serve") :]]


class Project:
    """A user's project: files in a directory of its own, and a TMPDIR of its own that shows what is left there."""

    def __init__(self, environment: Path, directory: Path) -> None:
        self.python = str(environment / "bin" / "python")
        self.directory = directory / "project"
        self.temporary = directory / "temporary files"  # a path with a blank in it
        self.directory.mkdir()
        self.temporary.mkdir()
        # An ini file ends pytest's search for one, and keeps this project's apart from the checkout's.
        self.write("pytest.ini", "[pytest]\n")

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def command(self, *arguments: str) -> list[str]:
        return [self.python, "-m", "pytest", "-p", "no:cacheprovider", *arguments]

    def environ(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "KAFKA_", "PYTHON"))}
        return {**kept, "TMPDIR": str(self.temporary)}

    def pytest(self, *arguments: str, code: str = "", environ: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> PytestRun:
        """Run pytest on the project's files; `code` becomes test_it.py first."""
        if code:
            self.write("test_it.py", code)
        finished = subprocess.run(
            self.command(*arguments),
            cwd=self.directory,
            env={**self.environ(), **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return PytestRun(finished.stdout)

    def leftovers(self) -> list[str]:
        """Brokers and guards of this project that still run, and directories that they left."""
        return leftovers(self.temporary)


class PytestRun:
    """What pytest printed, and its outcomes: {"passed": 3, "failed": 1}."""

    def __init__(self, output: str) -> None:
        self.output = output
        last = output.strip().splitlines()[-1] if output.strip() else ""
        self.outcomes = {word.removesuffix("s"): int(count) for count, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", last)}

    def __repr__(self) -> str:
        return self.output


def leftovers(temporary: Path) -> list[str]:
    """Brokers and guards with data in `temporary` that still run, and directories that they left there."""
    return commands_with(str(temporary)) + [str(path) for path in temporary.glob("barnabas-*")]


def commands_with(text: str) -> list[str]:
    """The processes that run now and have `text` in their command line. For Linux; elsewhere none are seen."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended
        if text in command:
            found.append(f"process {path.parent.name}: {command}")
    return found


def wait_until(condition: Callable[[], bool], timeout_s: float, what: Callable[[], object]) -> None:
    """Returns once `condition` holds; a failure shows `what` stands in its way. For what other processes do."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


@pytest.fixture
def project(environment: Path, tmp_path: Path) -> Project:
    return Project(environment, tmp_path)
