"""What `barnabas completion` prints, in bash itself."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.barnabas.cli.conftest import Command


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

    asked = f"{script}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words)}; _barnabas; printf '%s\\n' \"${{COMPREPLY[@]}}\""

    assert subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60, check=True).stdout.split() == completed


def test_zsh_takes_bash_s_functions_and_fish_has_lines_of_its_own(barnabas_command: Command) -> None:
    assert "bashcompinit" in barnabas_command.done("completion", "zsh").out
    fish = barnabas_command.done("completion", "fish").out.splitlines()
    assert all(line.startswith("complete -c barnabas ") for line in fish)
    assert any("__fish_seen_subcommand_from topic" in line and "-a trim" in line for line in fish)
