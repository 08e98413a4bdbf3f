"""What Java and Apache Kafka make of names and settings: one run of Java for many questions (tests/support/java/SecurityAnswers.java)."""

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
    return _ask([f"map {_encode(rules)} {_encode(name)}" for rules, name in cases])


def kafka_jaas_options(texts: Sequence[str]) -> list[str]:
    """JaasContext's options of each sasl.jaas.config, by name, each `name=value` with a NUL after it, or `!` and an exception's class."""
    return _ask([f"jaas {_encode(text)}" for text in texts])


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _ask(questions: Sequence[str]) -> list[str]:
    command = java_program("SecurityAnswers.java")
    run = subprocess.run(command, input="\n".join(questions) + "\n", capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    answers = [base64.b64decode(line[1:]).decode() if line.startswith("=") else line for line in run.stdout.splitlines()]
    assert len(answers) == len(questions), run.stderr
    return answers
