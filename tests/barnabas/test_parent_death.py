"""A broker ends with the process that started it, however that ends, and whatever that forked. Nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installed import CHECKOUT, leftovers, wait_until

TIMEOUT_S = 60
HOLD = "\nimport sys, time\nprint('ready', flush=True)\ntime.sleep(600)\n"

INTERRUPTIBLE = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A shell's background job ignores SIGINT, and so do the processes that it starts."""
RUNNING = "import barnabas\nbroker = barnabas.Broker(topics={'a': 3}).start()"
KILLED = f"{RUNNING}\nbroker.kill()"
STOPPED = f"{RUNNING}\nbroker.stop()"
RESTARTED = f"{RUNNING}\nbroker.kill()\nbroker.restart()"
TWO = f"{RUNNING}\nother = barnabas.Broker().start()"
IN_A_THREAD = """
import threading, barnabas
brokers = []
starter = threading.Thread(target=lambda: brokers.append(barnabas.Broker().start()))
starter.start()
starter.join()
"""
FORKED = f"""
{RUNNING}
import os, time
if os.fork() == 0:
    open(os.environ['CHILD'], 'w').write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists(os.environ['CHILD']): time.sleep(0.01)
"""
SPAWNED = """
import multiprocessing, os, time
def child():
    open(os.environ['CHILD'], 'w').write(str(os.getpid()))
    time.sleep(600)
if __name__ == '__main__':
    import barnabas
    broker = barnabas.Broker().start()
    multiprocessing.get_context('spawn').Process(target=child, daemon=True).start()
    while not os.path.exists(os.environ['CHILD']): time.sleep(0.01)
"""


class Parent:
    """A program that starts brokers and then sleeps."""

    def __init__(self, code: str, directory: Path) -> None:
        self.temporary = directory / "temporary files"
        self.temporary.mkdir()
        self.child = directory / "child"
        hold = HOLD if "__main__" not in code else HOLD.replace("\n", "\n    ")
        (directory / "parent.py").write_text(code + hold)
        self.process = subprocess.Popen(
            [sys.executable, str(directory / "parent.py")],
            stdout=subprocess.PIPE,
            text=True,
            cwd=directory,
            env={**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": str(CHECKOUT), "CHILD": str(self.child)},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def leftovers(self) -> list[str]:
        return leftovers(self.temporary)

    def end(self) -> None:
        self.process.kill()
        if self.child.exists():  # before the parent's output is read to its end, which this one holds open
            os.kill(int(self.child.read_text()), signal.SIGKILL)
        self.process.communicate(timeout=TIMEOUT_S)


@pytest.fixture
def parents() -> Iterator[list[Parent]]:
    started: list[Parent] = []
    yield started
    for parent in started:
        parent.end()


@pytest.mark.parametrize(
    "code",
    [RUNNING, KILLED, STOPPED, RESTARTED, TWO, IN_A_THREAD, FORKED, SPAWNED],
    ids=["running", "killed", "stopped", "restarted", "two", "in a thread", "forked", "spawned"],
)
def test_nothing_is_left_when_the_parent_is_killed(code: str, tmp_path: Path, parents: list[Parent]) -> None:
    parent = Parent(code, tmp_path)
    parents.append(parent)
    assert parent.leftovers()

    parent.process.kill()

    wait_until(lambda: parent.leftovers() == [], TIMEOUT_S, parent.leftovers)


def test_an_interrupted_program_leaves_nothing(tmp_path: Path, parents: list[Parent]) -> None:
    """Ctrl-C in a terminal reaches the program's whole group; the broker is not in it and ends with the program."""
    parent = Parent(INTERRUPTIBLE + RUNNING, tmp_path)
    parents.append(parent)

    parent.process.send_signal(signal.SIGINT)
    parent.process.wait(TIMEOUT_S)

    assert parent.leftovers() == []


def test_a_thread_that_ends_does_not_take_the_broker_along(tmp_path: Path, parents: list[Parent]) -> None:
    """As PR_SET_PDEATHSIG would."""
    parent = Parent(IN_A_THREAD + "brokers[0].create_topic('after-the-thread')", tmp_path)
    parents.append(parent)

    assert parent.leftovers()
