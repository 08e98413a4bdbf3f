"""Programs in Go that the tests run (tests/support/go), compiled once per machine and state of their source.

Modules come by Go's own client, from its proxy.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.process import cache_dir
from tests.support.requirements import require

BUILD_TIMEOUT_S = 600
INSTALL_HINT = "install Go 1.26 or later from https://go.dev/dl"


def missing_go() -> str | None:
    """What keeps these programs from being compiled, with the remedy; None when nothing does."""
    return None if shutil.which("go") else f"missing: Go; {INSTALL_HINT}"


def go_program(name: str) -> Path:
    """The program of that folder, compiled at the first call on this machine. Ends the test without Go."""
    source = Path(__file__).resolve().parent / "go" / name
    digest = hashlib.sha256()
    for path in sorted(source.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    target = cache_dir() / f"{name}-{digest.hexdigest()[:12]}"
    if not target.exists():
        require(missing_go())
        _compile(source, target)
    return target


def _compile(source: Path, target: Path) -> None:
    """Beside the target, and then renamed: a program that exists is whole, however many runs race for it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        done = subprocess.run(
            ["go", "build", "-o", str(made), "."], cwd=source, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        made.rename(target)
