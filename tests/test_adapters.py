"""Files, time, randomness and sockets come in by adapters, so that a simulated world can stand in for the machine.

storage/ reaches files through storage/disk.py alone. In broker/ the list below names the files that reach the machine themselves: it may
only become shorter. What is listed and needed no more fails too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.sources import ROOT, tree_of

FILES, TIME, RANDOMNESS, SOCKETS, PROCESSES = "files", "time", "randomness", "sockets", "processes"

MODULES = {
    "ctypes": PROCESSES,
    "datetime": TIME,
    "fcntl": FILES,
    "glob": FILES,
    "mmap": FILES,
    "multiprocessing": PROCESSES,
    "random": RANDOMNESS,
    "secrets": RANDOMNESS,
    "select": SOCKETS,
    "selectors": SOCKETS,
    "shutil": FILES,
    "signal": PROCESSES,
    "socket": SOCKETS,
    "ssl": SOCKETS,
    "subprocess": PROCESSES,
    "tempfile": FILES,
    "time": TIME,
    "urllib.request": SOCKETS,
    "uuid": RANDOMNESS,
}
HARMLESS_NAMES = {
    "random.Random",  # a class, whose seed the caller chooses
    "socket.AF_INET", "socket.AF_INET6", "socket.inet_ntop", "socket.inet_pton",  # an address as bytes or as text
    # TLS between buffers in memory:
    "ssl.SSLContext", "ssl.MemoryBIO", "ssl.PROTOCOL_TLS_SERVER", "ssl.PROTOCOL_TLS_CLIENT", "ssl.TLSVersion", "ssl._SSLMethod",
    "ssl.CERT_NONE", "ssl.CERT_OPTIONAL", "ssl.CERT_REQUIRED", "ssl.VERIFY_X509_PARTIAL_CHAIN",
    "ssl.OP_NO_COMPRESSION", "ssl.OP_NO_RENEGOTIATION",
    "ssl.SSLError", "ssl.SSLCertVerificationError", "ssl.SSLEOFError", "ssl.SSLWantReadError", "ssl.SSLZeroReturnError",
}  # fmt: skip
JUDGED_BY_NAME = ("random", "socket", "ssl")
"""Modules whose import says nothing: what is taken of them is judged where it stands."""
OF_OS = {"urandom": RANDOMNESS, "getrandom": RANDOMNESS, "times": TIME, "sendfile": SOCKETS} | dict.fromkeys(
    ("abort", "cpu_count", "environ", "fork", "getpid", "getppid", "kill", "sched_getaffinity", "sysconf", "_exit", "execv"), PROCESSES
)
HARMLESS_OF_OS = ("PathLike", "fsdecode", "fsencode", "fspath", "path", "strerror")  # of os.path, only what looks at files counts
PATH_METHODS = (
    "chmod", "exists", "expanduser", "getsize", "glob", "hardlink_to", "is_dir", "is_file", "is_symlink", "iterdir", "lstat",
    "mkdir", "read_bytes", "read_text", "readlink", "realpath", "rglob", "rmdir", "samefile", "stat", "symlink_to", "touch",
    "unlink", "write_bytes", "write_text",
)  # fmt: skip
DISK_NAMES = ("disk", "_disk")

ADAPTERS = {
    "broker/background/cleaning_job.py",
    "broker/loop/clock.py",
    "broker/descriptors.py",
    "broker/observability/logs.py",
    "broker/network/listening_sockets.py",
    "broker/network/sockets.py",
    "broker/network/transport_layer.py",
    "broker/platform.py",
    "broker/security/tls/files.py",
    "broker/server/https_get.py",
    "broker/server/process.py",
    "broker/server/service_manager.py",
    "broker/server/unused_memory.py",
    "storage/disk.py",
}
OTHER_PROCESSES = ("broker/cli/", "broker/worker/")  # what a broker calls of them itself takes a disk, or has an implementation inline
STILL_IN_STORAGE: dict[str, set[str]] = {}
STILL_IN_BROKER: dict[str, set[str]] = {
    "broker/dispatch.py": {TIME},
}


class Finder(ast.NodeVisitor):
    """Collects the kinds of things that a module takes from the machine itself."""

    def __init__(self) -> None:
        self.found: dict[str, list[int]] = {}

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name in MODULES and alias.name not in JUDGED_BY_NAME:
                self._note(MODULES[alias.name], node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if node.module in MODULES and f"{node.module}.{alias.name}" not in HARMLESS_NAMES:
                self._note(MODULES[str(node.module)], node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name):
            module, name = node.value.id, node.attr
            if module == "os" and name.islower() and name not in HARMLESS_OF_OS:
                self._note(OF_OS.get(name, FILES), node)
            elif module in JUDGED_BY_NAME and f"{module}.{name}" not in HARMLESS_NAMES:
                self._note(MODULES[module], node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            self._note(FILES, node)
        elif isinstance(called, ast.Attribute) and not _is_disk(called.value):
            first = node.args[0] if node.args else None
            opens_path = called.attr == "open" and isinstance(first, ast.Constant) and isinstance(first.value, str)
            renames_path = called.attr in ("replace", "rename") and len(node.args) == 1 and not node.keywords
            if called.attr in PATH_METHODS or opens_path or renames_path:
                self._note(FILES, node)
        self.generic_visit(node)

    def _note(self, kind: str, node: ast.stmt | ast.expr) -> None:
        self.found.setdefault(kind, []).append(node.lineno)


def _is_disk(receiver: ast.expr) -> bool:
    return (isinstance(receiver, ast.Name) and receiver.id in DISK_NAMES) or (
        isinstance(receiver, ast.Attribute) and receiver.attr in DISK_NAMES
    )


def taken_from_the_machine(source: ast.Module) -> dict[str, list[int]]:
    finder = Finder()
    finder.visit(source)
    return finder.found


def modules_of(folder: str) -> Iterator[str]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name not in ADAPTERS and not name.startswith(OTHER_PROCESSES):
            yield name


def check(folder: str, still_allowed: dict[str, set[str]]) -> None:
    taken = {name: taken_from_the_machine(tree_of(ROOT / name)) for name in modules_of(folder)}
    new = {
        f"{name}: {kind} in lines {lines}"
        for name, kinds in taken.items()
        for kind, lines in kinds.items()
        if kind not in still_allowed.get(name, ())
    }
    needless = {f"{name}: {kind}" for name, kinds in still_allowed.items() for kind in kinds if kind not in taken.get(name, {})}
    assert not new, "give it an adapter by its constructor"
    assert not needless, "take it off the list"


def test_storage_takes_its_disk_by_constructor_and_nothing_else_from_the_machine() -> None:
    check("storage", STILL_IN_STORAGE)


def test_broker_takes_no_more_from_the_machine_than_is_listed() -> None:
    check("broker", STILL_IN_BROKER)


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("os.pread(fd, 1, 0)", {FILES}),
        ("os.O_RDONLY | os.RWF_NOWAIT", set()),
        ("call = os.fsync", {FILES}),
        ("os.urandom(8)", {RANDOMNESS}),
        ("open('file')", {FILES}),
        ("path.open('wb')", {FILES}),
        ("log.open(directory)", set()),
        ("path.read_bytes()", {FILES}),
        ("path.replace(other)", {FILES}),
        ("text.replace('a', 'b')", set()),
        ("disk.exists(path); self._disk.mkdir(path)", set()),
        ("import time", {TIME}),
        ("from time import monotonic", {TIME}),
        ("import random\nrandom.random()", {RANDOMNESS}),
        ("import random\ndraw: random.Random", set()),
        ("import socket\nsocket.socket()", {SOCKETS}),
        ("import socket\nsocket.inet_ntop(socket.AF_INET, packed)", set()),
        ("if TYPE_CHECKING:\n    import socket", set()),
        ("def f():\n    import shutil", {FILES}),
    ],
)
def test_what_the_lint_sees(source: str, kinds: set[str]) -> None:
    assert set(taken_from_the_machine(ast.parse(source))) == kinds
