"""How commands are found, and how they end when they cannot be done."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas import __main__ as launcher
from barnabas.__main__ import CLIENT_COMMANDS, CLIENTS_OF_CLUSTER
from barnabas.cli import verbs
from barnabas.cli.main import make_parser
from tests.barnabas.cli.conftest import Command
from tests.support.installed import CHECKOUT
from tests.support.ports import free_port


def test_launcher_knows_the_first_word_of_every_command() -> None:
    known = {*verbs.VERBS, *verbs.ALIASES}
    of_cluster = {words for words in known if words[0] == "cluster"}

    assert {words[0] for words in known - of_cluster} == CLIENT_COMMANDS
    assert {words[1] for words in of_cluster} == CLIENTS_OF_CLUSTER


def test_launcher_calls_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr("barnabas.cli.main.main", called.append)
    monkeypatch.setattr(sys, "path", [*sys.path])
    asked = [[*words, "--help"] for words in (*verbs.VERBS, *verbs.ALIASES)]

    for words in asked:
        monkeypatch.setattr(sys, "argv", ["barnabas", *words])
        launcher.main()

    assert called == asked


def test_every_other_word_means_a_command() -> None:
    assert set(verbs.ALIASES.values()) <= verbs.VERBS.keys() and not verbs.ALIASES.keys() & verbs.VERBS.keys()
    assert verbs.find(["delete", "topic", "x"]) == (("topic", "delete"), ["x"])
    assert verbs.find(["topic"]) is None


@pytest.mark.parametrize("words", verbs.VERBS, ids=" ".join)
def test_every_command_explains_itself(words: verbs.Words) -> None:
    parser = make_parser(words)

    assert parser.prog == f"barnabas {' '.join(words)}" and parser.format_help() and parser.description


def test_family_and_mistakes(barnabas_command: Command) -> None:
    assert "topic trim" in barnabas_command.done("topic", "--help").out
    assert (barnabas_command("topic").code, barnabas_command("topic", "lits").code) == (2, 2)
    mistaken = barnabas_command("topic", "list", "--nonsense")
    assert mistaken.code == 2 and mistaken.err.count("\n") == 1
    unknown = barnabas_command("topic", "list", "-X", "no.such=1")
    assert unknown.code == 2 and "no.such" in unknown.err


def test_no_broker_is_an_exit_code_of_its_own(barnabas_command: Command) -> None:
    nobody = barnabas_command("topic", "list", "-b", f"127.0.0.1:{free_port()}")

    assert nobody.code == 3 and "no broker answers" in nobody.err and "refused" in nobody.err and nobody.err.count("\n") == 1


@pytest.mark.parametrize("library", ["rich", "confluent_kafka"])
def test_missing_library_is_one_line(barnabas_command: Command, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    users = ("barnabas.cli.topic", "barnabas.cli.connection", "barnabas.cli.cluster_facts")
    for name in [name for name in sys.modules if name.partition(".")[0] == library or name.startswith(users)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    words = ("context", "list") if library == "rich" else ("topic", "list")

    missing = barnabas_command(*words)

    assert missing.code == 1 and missing.err.endswith(f"{library} is not installed: pip install 'barnabas[cli]'\n")


def test_broker_loads_none_of_it() -> None:
    code = (
        "import sys; sys.argv = ['barnabas', 'serve', '--help']; from barnabas.__main__ import main; main(); "
        "import broker.server.process, broker.server.server; print(*sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=True).stdout

    loaded = printed.split()
    assert "broker.server.server" in loaded
    assert not [name for name in loaded if name.partition(".")[0] in ("rich", "confluent_kafka", "yaml") or name.startswith("barnabas.cli")]


@pytest.mark.parametrize("server_process", ["barnabas"], indirect=True)
@pytest.mark.parametrize("words", [("topic", "describe", "-a"), ("consume", "-e")])
def test_closed_pipe_ends_quietly(command: Command, topic_name: str, words: tuple[str, ...]) -> None:
    command.done("topic", "create", topic_name)
    command.done("produce", topic_name, stdin="x\n" * 10_000)
    asked = [sys.executable, "-m", "barnabas", *words, topic_name, "-b", command.bootstrap]
    process = subprocess.Popen(asked, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()

    _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (0, b"")
