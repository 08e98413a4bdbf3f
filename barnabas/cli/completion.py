"""Print what completes commands and options in a shell, bash, zsh or fish.

bash: `source <(barnabas completion bash)`; zsh: `source <(barnabas completion zsh)` after `autoload -U compinit; compinit`; fish:
`barnabas completion fish | source`.
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
    local words flags kind first second current previous prefix
    COMPREPLY=()
    first="${COMP_WORDS[1]}"; second="${COMP_WORDS[2]}"
    current="${COMP_WORDS[COMP_CWORD]}"; previous="${COMP_WORDS[COMP_CWORD-1]}"
    # --option=value: bash makes three words of it, zsh one.
    [ "$previous" != "=" ] || previous="${COMP_WORDS[COMP_CWORD-2]}"
    case "$current" in
        =) current="" ;;
        --*=*) prefix="${current%%=*}="; previous="${prefix%=}"; current="${current#*=}" ;;
    esac
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
            =:*) words="" ;;
            ==*) words="${kind#==}" ;;
            =*) words="$(_barnabas_names "${kind#=}")" ;;
            *:-*) words="$flags" ;;
            :*) ;;
            *) words="$words $(_barnabas_names "$kind")" ;;
        esac
        [ -n "${words# }" ] || [ "${kind#=}" != "$kind" ] || words="$flags"
    fi
    [ -z "$words" ] || COMPREPLY=($(compgen -P "$prefix" -W "$words" -- "$current"))
}
complete -o default -F _barnabas barnabas
"""
"""`kind` says what is completed: `topics` are names of topics, as the command's argument; `=topics` the same, as the value of the option
before; `==json yaml` is a value out of these words; `=` alone is any value, which may be a file. The shell itself completes files
(-o default), since zsh's compgen -f knows those of the working directory only."""
ZSH_BEFORE = "autoload -U +X bashcompinit && bashcompinit\n"
"""zsh takes bash's functions."""
FISH = """\
function __barnabas_is
    set -l words (commandline -opc)
    set -e words[1]
    test "$words" = "$argv"
end
function __barnabas_begins
    set -l words (commandline -opc)
    set -e words[1]
    set -l begin $words[1..(count $argv)]
    test "$begin" = "$argv"
end
"""
"""Whether the line so far is these words, or begins with them: a topic may be named as a command is."""
NAMES = "(barnabas completion names {} --of (commandline -cp))"
"""Of fish."""
KINDS = {"TOPIC": "topics", "GROUP": "groups"}
"""What an argument is of, by how its metavar begins."""
BY_OPTION = {"--topic": "topics", "--group": "groups", "--context": "contexts"}
OF_CONTEXTS = (("context", "use"), ("context", "show"), ("context", "remove"))
OF_NEW_NAMES = (("topic", "create"), ("context", "add"))
"""Commands whose argument is a name that is not there yet."""


class Completed(NamedTuple):
    """Of one command. `argument` is the kind of its arguments, "" for none; `by_option` has the options that take a value, a name each:
    the kind of the value, = and the values that there are, or "" for anything. `third` are third words."""

    flags: list[str]
    argument: str
    by_option: dict[str, str]
    third: list[str]


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
    by_option = [BY_OPTION[flag] for flag in action.option_strings if flag in BY_OPTION]
    by_metavar = [kind for word, kind in KINDS.items() if str(action.metavar or "").startswith(word)]
    return next(iter(by_option + by_metavar), "")


def _value(action: argparse.Action) -> str:
    return "=" + " ".join(map(str, action.choices)) if action.choices else _kind(action)


def _of_command(words: verbs.Words) -> Completed:
    from barnabas.cli.main import make_parser

    actions = make_parser(words)._actions
    flags = sorted(flag for action in actions for flag in action.option_strings if flag.startswith("--"))
    by_option = {flag: _value(action) for action in actions if action.nargs != 0 for flag in action.option_strings}
    arguments = [] if words in OF_NEW_NAMES else [kind for action in actions if not action.option_strings and (kind := _kind(action))]
    return Completed(flags, "contexts" if words in OF_CONTEXTS else next(iter(arguments), ""), by_option, [])


def _by_two_words() -> dict[verbs.Words, Completed]:
    """By the first two words: third words, and the options of all commands that begin so."""
    found: dict[verbs.Words, Completed] = {}
    for words in verbs.VERBS:
        own = _of_command(words)
        third = verbs.next_words(words[:2]) if len(words) > 1 else []
        before = found.get(words[:2]) or Completed([], "", {}, third)
        flags = [*before.flags, *(flag for flag in own.flags if flag not in before.flags)]
        found[words[:2]] = Completed(flags, before.argument or own.argument, {**before.by_option, **own.by_option}, third)
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
        third = f' [ "$COMP_CWORD" != 3 ] || words="{" ".join(own.third)}";' if own.third else ""
        by_value: dict[str, list[str]] = {}
        for flag, value in own.by_option.items():
            by_value.setdefault(value, []).append(flag)
        values = " ".join(f'{"|".join(flags)}) kind="={value}" ;;' for value, flags in by_value.items())
        case = f' case "$previous" in {values} esac' if values else ""
        options.append(f'            {pattern}) flags="{" ".join(own.flags)}"; kind={own.argument};{third}{case} ;;')
    text = BASH.replace("@FIRST@", " ".join(sorted([*families, *OF_THE_BROKER])))
    return text.replace("@SECOND@", "\n".join(second)).replace("@OPTIONS@", "\n".join(options))


def _fish() -> str:
    families = _families()
    lines = [f"complete -c barnabas -f -n __barnabas_is -a '{' '.join(sorted([*families, *OF_THE_BROKER]))}'"]
    for words, verb in verbs.VERBS.items():
        if len(words) > 1:
            summary = verb.summary.replace("'", "\\'")
            lines.append(f"complete -c barnabas -f -n '__barnabas_is {' '.join(words[:-1])}' -a {words[-1]} -d '{summary}'")
    lines += [f"complete -c barnabas -f -n '__barnabas_is completion' -a '{' '.join(SHELLS)}'"]
    lines += ["complete -c barnabas -f -n '__barnabas_is cluster' -a 'status up'"]
    for words in verbs.VERBS:
        own = _of_command(words)
        begin = f"complete -c barnabas -n '__barnabas_begins {' '.join(words)}'"
        if own.argument:
            lines.append(f"{begin} -f -a '{NAMES.format(own.argument)}'")
        for flag in [*own.flags, *(flag for flag in own.by_option if not flag.startswith("--"))]:
            lines.append(f"{begin} {'-l' if flag.startswith('--') else '-s'} {flag.lstrip('-')}{_of_value(own.by_option.get(flag))}")
    return FISH + "\n".join(lines) + "\n"


def _of_value(value: str | None) -> str:
    """Of an option in fish; None for one that takes none."""
    if value is None:
        return ""
    if not value:
        return " -r"
    return f" -x -a '{value[1:] if value.startswith('=') else NAMES.format(value)}'"
