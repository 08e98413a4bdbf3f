"""kcat, an old librdkafka's command line, for the tests: the machine's own, or Debian's packages, unpacked once per machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.process import ServerProcess, cache_dir
from tests.support.requirements import require

INSTALL_TIMEOUT_S = 300
RUN_TIMEOUT_S = 60
INSTALL_HINT = "install it with: sudo apt-get install -y kcat"
STATUS_FILE = Path("/var/lib/dpkg/status")  # what the machine has, which need not be fetched


def kcat(server: ServerProcess, *arguments: str, stdin: str = "", expected_status: int = 0) -> str:
    """What kcat prints. Ends the test where there is neither kcat nor Debian's package client."""
    program, environment = _find()
    done = subprocess.run(
        [program, "-b", server.bootstrap, *arguments],
        input=stdin, capture_output=True, text=True, env=environment, timeout=RUN_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == expected_status, done.stdout + done.stderr
    return done.stdout if not expected_status else done.stderr


def _find() -> tuple[str, dict[str, str]]:
    """The program and its environment."""
    installed = shutil.which("kcat") or shutil.which("kafkacat")
    if installed:
        return installed, dict(os.environ)
    target = cache_dir() / "kcat"
    if not target.is_dir():
        missing = shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None
        require(f"missing: kcat; {INSTALL_HINT}" if missing else None)
        _unpack(target)
    libraries = ":".join(str(path.parent) for path in target.glob("usr/lib/*/librdkafka.so.1"))
    return str(target / "usr/bin/kcat"), {**os.environ, "LD_LIBRARY_PATH": libraries}


def _unpack(target: Path) -> None:
    """Fetch kcat and what it needs beyond the machine's packages, as any user and without installing anything, beside the target; then
    rename: a folder that exists is whole, however many runs race for it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        state, cache, made = (Path(scratch) / name for name in ("state", "cache", "made"))
        for directory in (state / "lists/partial", cache / "archives/partial", made):
            directory.mkdir(parents=True)
        words = ["-q", "-o", f"Dir::State={state}", "-o", f"Dir::State::status={STATUS_FILE}", "-o", f"Dir::Cache={cache}"]
        _run("apt-get", *words, "-o", "APT::Sandbox::User=", "update", cwd=scratch)
        planned = _run("apt-get", *words, "--simulate", "--no-install-recommends", "install", "kcat", cwd=scratch)
        _run("apt-get", *words, "-o", "APT::Sandbox::User=", "download", *re.findall(r"^Inst (\S+)", planned, re.MULTILINE), cwd=scratch)
        for package in Path(scratch).glob("*.deb"):
            _run("dpkg-deb", "--extract", str(package), str(made), cwd=scratch)
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():
                raise


def _run(*command: str, cwd: str) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
