"""Print what completes commands and options in a shell, bash, zsh or fish.

bash: `source <(barnabas completion bash)`; zsh: the same after `autoload -U compinit; compinit`; fish: `barnabas completion fish | source`.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from barnabas.cli import verbs
from barnabas.cli.errors import DONE

SHELLS = ("bash", "zsh", "fish")
OF_THE_BROKER = ("doctor", "format", "health", "pipeline", "random-uuid", "secure", "serve")
"""Commands of broker/cli/main.py."""

BASH = """\
_barnabas_names() {
    barnabas completion names "$1" --of "${COMP_WORDS[*]}" 2>/dev/null
}
_barnabas() {
    local words kind first second current previous
    COMPREPLY=()
    first="${COMP_WORDS[1]}"; second="${COMP_WORDS[2]}"
    current="${COMP_WORDS[COMP_CWORD]}"; previous="${COMP_WORDS[COMP_CWORD-1]}"
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
        case "$kind:$current" in
            =*) words="$(_barnabas_names "${kind#=}")" ;;
            :* | *:-*) ;;
            *) words="$words $(_barnabas_names "$kind")" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$current"))
}
complete -F _barnabas barnabas
"""
"""A kind is what names an argument is of; with = before it, the value of the option before."""
ZSH_BEFORE = "autoload -U +X bashcompinit && bashcompinit\n"
"""zsh takes bash's functions."""
NAMES = "(barnabas completion names {} --of (commandline -cp))"
"""Of fish."""
KINDS = {"TOPIC": "topics", "GROUP": "groups"}
"""What an argument is of, by how its metavar begins."""
BY_OPTION = {"--topic": "topics", "--group": "groups", "--context": "contexts"}
OF_CONTEXTS = (("context", "use"), ("context", "show"), ("context", "remove"))
OF_NEW_NAMES = (("topic", "create"), ("context", "add"))
"""Commands whose argument is a name that is not there yet."""


class Completed(NamedTuple):
    """Of one command. `argument` is the kind of its arguments, "" for none; `by_option` are kinds by the names of options."""

    flags: list[str]
    argument: str
    by_option: dict[str, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(options: argparse.Namespace) -> int:
    if options.shell == "fish":
        print(_fish(), end="")
    else:
        print((ZSH_BEFORE if options.shell == "zsh" else "") + _bash(), end="")
    return DONE


def _kind(action: argparse.Action) -> str:
    """What its value is a name of; "" for anything else."""
    by_option = [BY_OPTION[flag] for flag in action.option_strings if flag in BY_OPTION and action.nargs != 0]
    by_metavar = [kind for word, kind in KINDS.items() if str(action.metavar or "").startswith(word)]
    return next(iter(by_option + by_metavar), "")


def _of_command(words: verbs.Words) -> Completed:
    from barnabas.cli.main import make_parser

    actions = make_parser(words)._actions
    flags = sorted(flag for action in actions for flag in action.option_strings if flag.startswith("--"))
    by_option = {flag: kind for action in actions if (kind := _kind(action)) for flag in action.option_strings}
    arguments = [] if words in OF_NEW_NAMES else [kind for action in actions if not action.option_strings and (kind := _kind(action))]
    return Completed(flags, "contexts" if words in OF_CONTEXTS else next(iter(arguments), ""), by_option)


def _by_two_words() -> dict[verbs.Words, Completed]:
    """By the first two words: third words and long options, those of all commands that begin so."""
    found: dict[verbs.Words, Completed] = {}
    for words in verbs.VERBS:
        own = _of_command(words)
        before = found.get(words[:2]) or Completed(verbs.next_words(words[:2]) if len(words) > 1 else [], "", {})
        flags = [*before.flags, *(flag for flag in own.flags if flag not in before.flags)]
        found[words[:2]] = Completed(flags, before.argument or own.argument, {**before.by_option, **own.by_option})
    return found


def _families() -> dict[str, list[str]]:
    """The second words by the first; none for a command of one word."""
    families = {words[0]: verbs.next_words(words[:1]) for words in verbs.VERBS}
    families["cluster"] += ["status", "up"]  # the broker's
    families["completion"] += SHELLS
    return families


def _bash() -> str:
    families = _families()
    second = [f'            {name}) words="{" ".join(words)}" ;;' for name, words in families.items() if words]
    options = []
    for words, own in _by_two_words().items():
        pattern = f'"{words[0]} {words[1]}"' if len(words) == 2 else f'"{words[0]} "*'
        values = " ".join(f"{flag}) kind==" + kind + " ;;" for flag, kind in own.by_option.items())
        case = f' case "$previous" in {values} esac' if values else ""
        options.append(f'            {pattern}) words="{" ".join(own.flags)}"; kind={own.argument};{case} ;;')
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
    for words in verbs.VERBS:
        own = _of_command(words)
        condition = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)
        if own.argument:
            lines.append(f"complete -c barnabas -n '{condition}' -f -a '{NAMES.format(own.argument)}'")
        for flag in own.flags:
            names = f" -x -a '{NAMES.format(own.by_option[flag])}'" if flag in own.by_option else ""
            lines.append(f"complete -c barnabas -n '{condition}' -l {flag[2:]}{names}")
    return "\n".join(lines) + "\n"
