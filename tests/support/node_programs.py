"""Programs for Node.js that the tests run (tests/support/node). Their packages come by npm, once per machine and state of package.json."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.process import cache_dir
from tests.support.requirements import require

INSTALL_TIMEOUT_S = 300
INSTALL_HINT = "install both with: sudo apt-get install -y nodejs npm"


def missing_node() -> str | None:
    """What keeps these programs from running, with the remedy; None when nothing does."""
    missing = [name for name, command in (("Node.js", "node"), ("npm", "npm")) if shutil.which(command) is None]
    return f"missing: {', '.join(missing)}; {INSTALL_HINT}" if missing else None


def node_command(name: str) -> list[str]:
    """What runs the program of that folder, with its packages installed beside a copy of it. Ends the test without Node.js."""
    source = Path(__file__).resolve().parent / "node" / name
    digest = hashlib.sha256()
    for path in sorted(source.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    target = cache_dir() / f"{name}-{digest.hexdigest()[:12]}"
    if not target.is_dir():
        require(missing_node())
        _install(source, target)
    return ["node", str(target / "main.js")]


def _install(source: Path, target: Path) -> None:
    """Beside the target, and then renamed: a folder that exists is whole, however many runs race for it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        shutil.copytree(source, made)
        words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        done = subprocess.run(words, cwd=made, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():
                raise
