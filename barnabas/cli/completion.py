"""Print what completes commands and options in a shell, bash, zsh or fish.

bash: `source <(barnabas completion bash)`; zsh: the same after `autoload -U compinit; compinit`; fish: `barnabas completion fish | source`.
"""

from __future__ import annotations

import argparse

from barnabas.cli import verbs
from barnabas.cli.errors import DONE

SHELLS = ("bash", "zsh", "fish")
OF_THE_BROKER = ("doctor", "format", "health", "pipeline", "random-uuid", "secure", "serve")
"""Commands of broker/cli/main.py."""

BASH = """\
_barnabas() {
    local words first second
    COMPREPLY=()
    first="${COMP_WORDS[1]}"; second="${COMP_WORDS[2]}"
    case "$COMP_CWORD" in
        1) words="@FIRST@" ;;
        2) case "$first" in
@SECOND@
        esac ;;
    esac
    if [ -z "$words" ]; then
        case "$first $second" in
@OPTIONS@
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
    [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -F _barnabas barnabas
"""
ZSH_BEFORE = "autoload -U +X bashcompinit && bashcompinit\n"
"""zsh takes bash's functions."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(options: argparse.Namespace) -> int:
    if options.shell == "fish":
        print(_fish(), end="")
    else:
        print((ZSH_BEFORE if options.shell == "zsh" else "") + _bash(), end="")
    return DONE


def _options() -> dict[verbs.Words, list[str]]:
    """The long options of each command."""
    from barnabas.cli.main import make_parser

    return {
        words: sorted(flag for action in make_parser(words)._actions for flag in action.option_strings if flag.startswith("--"))
        for words in verbs.VERBS
    }


def _by_two_words() -> dict[verbs.Words, list[str]]:
    """Third words and long options by the first two: those of all commands that begin so."""
    found: dict[verbs.Words, list[str]] = {}
    for words, flags in _options().items():
        known = found.setdefault(words[:2], verbs.next_words(words[:2]) if len(words) > 1 else [])
        known += [flag for flag in flags if flag not in known]
    return found


def _families() -> dict[str, list[str]]:
    """The second words by the first; none for a command of one word."""
    families = {words[0]: verbs.next_words(words[:1]) for words in verbs.VERBS}
    families["cluster"] += ["status", "up"]  # the broker's
    return families


def _bash() -> str:
    families = _families()
    second = [f'            {name}) words="{" ".join(words)}" ;;' for name, words in families.items() if words]
    options = []
    for words, flags in _by_two_words().items():
        pattern = f'"{words[0]} {words[1]}"' if len(words) == 2 else f'"{words[0]} "*'
        options.append(f'            {pattern}) words="{" ".join(flags)}" ;;')
    text = BASH.replace("@FIRST@", " ".join(sorted([*families, *OF_THE_BROKER])))
    return text.replace("@SECOND@", "\n".join(second)).replace("@OPTIONS@", "\n".join(options))


def _fish() -> str:
    families = _families()
    lines = [f"complete -c barnabas -f -n __fish_use_subcommand -a '{' '.join(sorted([*families, *OF_THE_BROKER]))}'"]
    for words, verb in verbs.VERBS.items():
        if len(words) == 3:
            condition = f"__fish_seen_subcommand_from {words[0]}; and __fish_seen_subcommand_from {words[1]}"
            lines.append(f"complete -c barnabas -f -n '{condition}' -a {words[2]} -d '{verb.summary.replace(chr(39), '')}'")
        if len(words) == 2:
            seen = " ".join(families[words[0]])
            condition = f"__fish_seen_subcommand_from {words[0]}; and not __fish_seen_subcommand_from {seen}"
            summary = verb.summary.replace("'", "\\'")
            lines.append(f"complete -c barnabas -f -n '{condition}' -a {words[1]} -d '{summary}'")
    for words, flags in _options().items():
        condition = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)
        lines += [f"complete -c barnabas -n '{condition}' -l {flag[2:]}" for flag in flags]
    return "\n".join(lines) + "\n"
