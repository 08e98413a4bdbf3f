"""A client in another language as a child process, which answers each line of JSON on its standard input with a line of JSON."""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

CLOSE_TIMEOUT_S = 60.0
LOG_TAIL_CHARACTERS = 4_000


class ProgramError(AssertionError):
    """A command failed in the program."""


class JsonProgram:
    """Owns the process. Calls are synchronous and answered in order; `close` ends it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._name = command[0]
        self._log = tempfile.TemporaryFile("a+")  # noqa: SIM115 - open as long as the program runs
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True)

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to the command. ProgramError if it is an error."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"{self._name} is gone\n{self.log_tail()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ProgramError(f"{self._name}: {answer['error']}\n{self.log_tail()}")
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(CLOSE_TIMEOUT_S)
        self._log.close()

    def kill(self) -> None:
        """kill -9: what runs in it is gone without a farewell."""
        self._process.kill()
        self._process.wait(CLOSE_TIMEOUT_S)

    def log_tail(self) -> str:
        """The end of what it wrote to standard error."""
        self._log.seek(0)
        return self._log.read()[-LOG_TAIL_CHARACTERS:]


def to_text(data: bytes | None) -> str | None:
    """Bytes as they are in JSON."""
    return None if data is None else base64.b64encode(data).decode()


def to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
