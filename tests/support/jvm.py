"""What the JVMs of the tests need not do anew: compile the tests' programs, and load and check the classes of their jars.

Both are kept in the tests' cache, by content: once per machine and Java. An archive of classes is one of Java's dynamic ones (JEP 350): it
belongs to one class path, and a JVM that cannot use it runs without.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import itertools
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.process import cache_dir

COMPILER_FLAGS = ("-J-Xshare:auto", "-J-XX:TieredStopAtLevel=1")
COMPILE_TIMEOUT_S = 120
VERSION_TIMEOUT_S = 60
SILENT = "-Xlog:disable"
"""A JVM that cannot use an archive, or leaves a class out of one, says so on its standard output otherwise."""
MADE_AT_S = 1_000_000_000
"""The time of a jar, which an archive of its classes has to find unchanged."""
_numbers = itertools.count()


@functools.cache
def _java() -> bytes:
    """Which Java it is."""
    return subprocess.run(["java", "-version"], capture_output=True, timeout=VERSION_TIMEOUT_S, check=True).stderr


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join((_java(), *parts))).hexdigest()[:12]


def programs_jar(
    name: str, sources: Sequence[Path], class_path: str, *, flags: Sequence[str] = (), more: Mapping[str, str] | None = None
) -> Path:
    """A jar with the compiled sources, and with `more` files by their names in it."""
    more = more or {}
    texts = [text for path in sources for text in (path.name.encode(), path.read_bytes())]
    jar = cache_dir() / f"{name}-{_digest(class_path.encode(), *texts, repr((flags, sorted(more.items()))).encode())}.jar"
    if not jar.exists():
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jar.parent) as scratch:
            classes, made = Path(scratch) / "classes", Path(scratch) / "made.jar"
            command = ["javac", *COMPILER_FLAGS, *flags, "-cp", class_path, "-d", str(classes), *map(str, sources)]
            subprocess.run(command, check=True, timeout=COMPILE_TIMEOUT_S)
            with zipfile.ZipFile(made, "w") as file:
                for path in sorted(classes.rglob("*.class")):
                    file.writestr(zipfile.ZipInfo(str(path.relative_to(classes))), path.read_bytes())
                for member, text in more.items():
                    file.writestr(zipfile.ZipInfo(member), text)
            os.utime(made, (MADE_AT_S, MADE_AT_S))
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.link(made, jar)
    return jar


class KeptClasses:
    """The classes of a class path as a JVM has left them at its end, for those that come after it."""

    def __init__(self, name: str, class_path: str) -> None:
        self.path = cache_dir() / f"{name}-classes-{_digest(class_path.encode())}.jsa"
        self._left = self.path.with_name(f"{self.path.stem}.{os.getpid()}-{next(_numbers)}.jsa")

    def flags(self) -> tuple[str, ...]:
        """Of a JVM that takes them; none if nothing is kept."""
        return (SILENT, f"-XX:SharedArchiveFile={self.path}") if self.path.exists() else ()

    def flags_to_leave(self) -> tuple[str, ...]:
        """Of a JVM that leaves its classes if it ends in good order. Call `keep` then."""
        return SILENT, f"-XX:ArchiveClassesAtExit={self._left}"

    def keep(self) -> None:
        """Keep what the JVM has left. If it was killed, nothing is kept."""
        if self._left.exists():
            self._left.rename(self.path)


def make_once(name: str, is_made: Callable[[], bool], make: Callable[[], None]) -> None:
    """Calls `make` unless that was done on this machine. Returns at once if another process does it now: this one's JVMs do without."""
    if is_made():
        return
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f"{name}.lock").open("w") as lock, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_made():
            make()
