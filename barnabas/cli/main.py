"""Runs one client command: finds it by its words, and turns what stops it into one line on stderr and an exit code.

Exit codes: 0 done, 1 refused or failed, 2 not understood, 3 no broker answers, 4 answered and unhealthy (errors.py).
"""

from __future__ import annotations

import importlib
import os
import re
import sys

from barnabas.cli import verbs
from barnabas.cli.errors import CLOSED, DONE, FAILED, INTERRUPTED, NO_BROKER, USAGE, CommandError
from broker.cli.one_line_parser import OneLineParser
from config.properties import ConfigError

KAFKA_TOOL = "kafka-tool"
LIBRARIES = {
    **dict.fromkeys(("rich", "confluent_kafka", "jmespath", "yaml"), "cli"),
    **dict.fromkeys(("fastavro", "google"), "schemas"),
    **dict.fromkeys(("jinja2", "markupsafe", "starlette", "uvicorn"), "console"),
}
"""With the extra that has them."""
RANGE = re.compile(r"-\d+:")


def main(arguments: list[str]) -> int:
    """Run the command; `arguments` come without the program's name. Returns the exit code."""
    try:
        return _run(arguments)
    except CommandError as e:
        return _fail(arguments, str(e), e.exit_code)
    except (ConfigError, OSError) as e:
        if isinstance(e, BrokenPipeError):
            # The reader of our output has enough (`barnabas consume … | head`). Python would complain about it once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return DONE
        if isinstance(e, ConnectionResetError):
            return _fail(arguments, f"no broker answers: {CLOSED}", NO_BROKER)
        return _fail(arguments, str(e), FAILED)
    except ModuleNotFoundError as e:
        library = (e.name or "").partition(".")[0]
        if library not in LIBRARIES:
            raise
        return _fail(arguments, f"{library} is not installed: pip install 'barnabas[{LIBRARIES[library]}]'", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def make_parser(words: verbs.Words) -> OneLineParser:
    """The command's parser, which knows its module's options."""
    module = importlib.import_module(f"barnabas.cli.{verbs.VERBS[words].module}")
    parser = OneLineParser(prog=f"barnabas {' '.join(words)}", description=module.__doc__, allow_abbrev=False)
    module.add_arguments(parser)
    return parser


def _run(arguments: list[str]) -> int:
    if arguments[:1] == [KAFKA_TOOL]:
        from barnabas.cli.kafka_tools.run import run_tool

        return run_tool(arguments[1:])
    found = verbs.find(arguments)
    if found is None:
        return _help(arguments)
    words, rest = found
    options = make_parser(words).parse_intermixed_args(_joined(rest))
    code: int = importlib.import_module(f"barnabas.cli.{verbs.VERBS[words].module}").run(options)
    sys.stdout.flush()
    return code


def _joined(words: list[str]) -> list[str]:
    """With `-o -7:-2` in one word: argparse takes a number with a sign for a value, and anything else for an option."""
    joined: list[str] = []
    for word in words:
        if RANGE.match(word) and joined and joined[-1].startswith("-"):
            joined[-1] += f"={word}" if joined[-1].startswith("--") else word
        else:
            joined.append(word)
    return joined


def _help(arguments: list[str]) -> int:
    """The commands of a family, on stdout if somebody asked for them."""
    name = arguments[0] if arguments else ""
    known = verbs.family(name) or verbs.VERBS
    lines = "".join(f"  {' '.join(words):28} {verb.summary}\n" for words, verb in known.items())
    text = f"usage: barnabas {name} COMMAND …\n\n{lines}\n`barnabas {name} COMMAND --help` says more.\n"
    if arguments[1:] and arguments[1] not in ("--help", "-h", "help"):
        print(f"barnabas {name}: unknown command {arguments[1]!r}; barnabas {name} --help lists them", file=sys.stderr)
        return USAGE
    print(text, end="", file=sys.stdout if arguments[1:] else sys.stderr)
    return DONE if arguments[1:] else USAGE


def _fail(arguments: list[str], message: str, exit_code: int) -> int:
    found = verbs.find(arguments)
    line = " ".join(message.split("\n"))
    print(f"barnabas {' '.join(found[0]) if found else ''}: {line}", file=sys.stderr)
    return exit_code
