"""What `barnabas completion` prints, in bash itself."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.barnabas.cli.conftest import Command, Result


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("topi",), ["topic"]), (("se",), ["secure", "serve"]), (("topic", "tr"), ["trim"]), (("topic", "trim", "--bef"), ["--before"]),
        (("consume", "orders", "--ta"), ["--tail"]), (("group", "reset", "readers", "--shift"), ["--shift-by"]),
    ],
)  # fmt: skip
def test_bash_completes(barnabas_command: Command, words: tuple[str, ...], completed: list[str]) -> None:
    script = barnabas_command.done("completion", "bash").out
    typed = " ".join(("barnabas", *words))

    assert complete(script, typed, len(words)) == completed


def complete(script: str, typed: str, place: int) -> list[str]:
    """What bash offers for the word at this place of the line."""
    asked = f"{script}\nCOMP_WORDS=({typed}); COMP_CWORD={place}; _barnabas; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60, check=True).stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing")
@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("topic", "describe", "-b", "here:1", ""), "topics"), (("consume", ""), "topics"),
        (("group", "reset", "readers", "--topic", ""), "topics"),
        (("group", "describe", ""), "groups"), (("consume", "orders", "-g", ""), "groups"), (("acl", "list", "--group", ""), "groups"),
        (("cluster", "reassign", "status", ""), "topics"), (("topic", "list", "--context", ""), "contexts"),
        (("context", "use", ""), "contexts"),
    ],
)  # fmt: skip
def test_bash_asks_for_names(barnabas_command: Command, words: tuple[str, ...], kind: str) -> None:
    """By a stand-in for the command, which answers with what it is asked."""
    stand_in = 'barnabas() { [ "$1 $2 $4" = "completion names --of" ] && echo "all-$3" "$5" | tr " " "-"; }'
    typed = " ".join(("barnabas", *(word or "''" for word in words)))

    found = complete(f"{barnabas_command.done('completion', 'bash').out}\n{stand_in}", typed, len(words))

    assert f"all-{kind}-{'-'.join(('barnabas', *words))}".rstrip("-") in [name.rstrip("-") for name in found]


def test_names_are_of_the_cluster_that_the_line_is_about(command: Command, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVER")
    command.done("context", "add", "mine", "-b", "127.0.0.1:1")
    command.done("topic", "create", topic_name, "-b", command.bootstrap)
    for group in (f"group-{topic_name}", "$(touch here)", "a b"):
        command.done("group", "reset", "--to", "start", "--topic", topic_name, "--yes", "-b", command.bootstrap, group)

    def names(kind: str, line: str) -> list[str]:
        return command.done("completion", "names", kind, "--of", line).out.split()

    assert topic_name in names("topics", f"barnabas topic describe --bootstrap-server={command.bootstrap} ")
    groups = names("groups", f"barnabas consume {topic_name} -b {command.bootstrap} -g ")
    assert f"group-{topic_name}" in groups and not {"$(touch", "here)", "b"} & {*groups}
    assert names("contexts", "barnabas context use ") == ["mine"]
    for silent in ("barnabas topic describe ", "barnabas topic describe -b ", "barnabas topic describe 'x", "barnabas --timeout x "):
        assert command("completion", "names", "topics", "--of", silent) == Result(0, b"", "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("topic", "describe", ""), ["orders"]), (("topic", "list", "--output", "y"), ["yaml"]),
        (("topic", "list", "--output", "=", "y"), ["yaml"]),
        (("topic", "list", "--output=y"), ["--output=yaml"]),  # zsh leaves it one word
        (("topic", "describe", "--command-config", "o"), []), (("cluster", "reassign", "c"), ["cancel"]),
        (("cluster", "reassign", "status", ""), ["orders"]),
    ],
)  # fmt: skip
def test_bash_offers_what_may_stand_there(barnabas_command: Command, words: tuple[str, ...], completed: list[str]) -> None:
    """Names without options before them, an option's values, none where files are left to the shell, third words in their place alone."""
    stand_in = "barnabas() { echo orders; }"
    typed = " ".join(("barnabas", *(word or "''" for word in words)))

    assert complete(f"{barnabas_command.done('completion', 'bash').out}\n{stand_in}", typed, len(words)) == completed


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is missing")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("topi", ["topic"]), ("topic tr", ["trim"]), ("topic trim --bef", ["--before"]), ("topic describe ", ["orders"]),
        ("topic describe config ", ["orders"]), ("consume -g ", ["orders"]), ("topic list --output y", ["yaml"]),
        ("topic describe --command-config /dev/nul", ["/dev/null"]), ("cluster reassign c", ["cancel"]),
    ],
)  # fmt: skip
def test_fish_completes(barnabas_command: Command, typed: str, completed: list[str]) -> None:
    """A group is offered by the name of the stand-in too: which kind is asked for is in the next test."""
    asked = f"{barnabas_command.done('completion', 'fish').out}\nfunction barnabas; echo orders; end\ncomplete -C 'barnabas {typed}'"

    done = subprocess.run(["fish", "--no-config", "-c", asked], capture_output=True, text=True, timeout=60, check=True)

    assert ([line.partition("\t")[0] for line in done.stdout.splitlines()], done.stderr) == (completed, "")


def test_zsh_takes_bash_s_functions_and_fish_has_lines_of_its_own(barnabas_command: Command) -> None:
    assert "bashcompinit" in barnabas_command.done("completion", "zsh").out
    fish = barnabas_command.done("completion", "fish").out.splitlines()
    groups = "(barnabas completion names groups --of (commandline -cp))"
    assert f"complete -c barnabas -n '__barnabas_begins consume' -s g -x -a '{groups}'" in fish
    assert "complete -c barnabas -f -n '__barnabas_is topic' -a trim -d 'delete records before an offset or a time'" in fish
    assert "complete -c barnabas -n '__barnabas_begins topic describe' -l command-config -r" in fish
