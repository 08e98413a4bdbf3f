"""How Java and Apache Kafka write the name of a TLS client: one run of Java for many questions (tests/support/java/SecurityNames.java)."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Sequence

from tests.support.kafka import java_program

TIMEOUT_S = 120


def java_names(names: Sequence[bytes]) -> list[str]:
    """X500Principal.getName() of each Name's DER, or `!` and an exception's class."""
    return _ask([f"name {der.hex()}" for der in names])


def kafka_principals(cases: Sequence[tuple[str, str]]) -> list[str]:
    """SslPrincipalMapper's result for each pair of rules and a distinguished name, or `!` and an exception's class."""
    return _ask([" ".join(("map", *(base64.b64encode(text.encode()).decode() for text in case))) for case in cases])


def _ask(questions: Sequence[str]) -> list[str]:
    command = java_program("SecurityNames.java")
    run = subprocess.run(command, input="\n".join(questions) + "\n", capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    answers = [base64.b64decode(line[1:]).decode() if line.startswith("=") else line for line in run.stdout.splitlines()]
    assert len(answers) == len(questions), run.stderr
    return answers
