"""Programs of Debian's packages for the tests, unpacked once per machine, as any user and without installing anything."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.process import cache_dir
from tests.support.requirements import require

INSTALL_TIMEOUT_S = 300
STATUS_FILE = Path("/var/lib/dpkg/status")  # what the machine has, which need not be fetched


def unpacked(package: str) -> Path:
    """A folder with the package's files and those of what it needs beyond the machine's packages. Ends the test where there is no package
    client of Debian."""
    target = cache_dir() / package
    if not target.is_dir():
        missing = shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None
        require(f"missing: {package}; install it with: sudo apt-get install -y {package}" if missing else None)
        _unpack(package, target)
    return target


def _unpack(package: str, target: Path) -> None:
    """Fetch them beside the target; then rename: a folder that exists is whole, however many runs race for it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        state, cache, made = (Path(scratch) / name for name in ("state", "cache", "made"))
        for directory in (state / "lists/partial", cache / "archives/partial", made):
            directory.mkdir(parents=True)
        words = ["-q", "-o", f"Dir::State={state}", "-o", f"Dir::State::status={STATUS_FILE}", "-o", f"Dir::Cache={cache}"]
        _run("apt-get", *words, "-o", "APT::Sandbox::User=", "update", cwd=scratch)
        planned = _run("apt-get", *words, "--simulate", "--no-install-recommends", "install", package, cwd=scratch)
        _run("apt-get", *words, "-o", "APT::Sandbox::User=", "download", *re.findall(r"^Inst (\S+)", planned, re.MULTILINE), cwd=scratch)
        for each in Path(scratch).glob("*.deb"):
            _run("dpkg-deb", "--extract", str(each), str(made), cwd=scratch)
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():
                raise


def _run(*command: str, cwd: str) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
