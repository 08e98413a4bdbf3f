"""`make check`: `python -m tests.support.check` runs types and the tests that start no other process, three processes side by side.

Each pytest takes half of the tests' files and collects no others. If pytest-xdist shares the tests, each of its workers collects all files,
which takes a fifth of the time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.support.process import checkout
from tests.support.scratch import make_scratch

PYTEST = ("-m", "pytest", "--in-process", "-q")
BROKER = "tests/broker"
"""A half of the tests; the other one has mypy beside it."""


def commands(root: Path, scratch: Path) -> dict[str, tuple[str, ...]]:
    """What runs, by the name that a failure is told by. Tests have their files in `scratch`."""
    others = sorted(str(path.relative_to(root)) for path in (root / "tests").iterdir() if _has_tests(path) and path != root / BROKER)
    return {
        "types": ("-m", "mypy"),
        BROKER: (*PYTEST, f"--basetemp={scratch / 'broker'}", BROKER),
        "other tests": (*PYTEST, f"--basetemp={scratch / 'others'}", *others),
    }


def _has_tests(path: Path) -> bool:
    return any(path.rglob("test_*.py")) if path.is_dir() else path.match("test_*.py")


def run(root: Path, words: tuple[str, ...]) -> tuple[int, str]:
    """The exit code, and what was printed."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def main() -> int:
    scratch, failed = make_scratch("check-", in_memory=True), False
    try:
        with ThreadPoolExecutor() as threads:
            running = {threads.submit(run, checkout(), words): name for name, words in commands(checkout(), scratch).items()}
            for future in as_completed(running):
                code, printed = future.result()
                failed |= code != 0
                sys.stdout.write(f"{running[future]}: {printed if code else printed.splitlines()[-1]}\n")
                sys.stdout.flush()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
