"""A file that describes jobs: `barnabas pipeline run FILE.toml`.

    bootstrap-servers = "one:9092,two:9092"    # keys above the first table are for all jobs
    master = "local[*]"

    [[job]]
    name = "orders"
    command = "archive"
    topics = "orders"                          # the names of the command's options
    to = "archive"

The words of each job go through the parser of the command line, so that a file takes what that takes, with the same errors.
"""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

from pipeline.errors import UsageError

OF_SESSION = ("master", "conf", "jars", "log-level")
"""Options of the one session: they stand above the first table."""
OF_ALL = ("bootstrap-servers", "command-config", *OF_SESSION)
"""What may stand there: the first two are for the jobs that do not have their own."""
COMMANDS = ("archive", "replay", "verify", "compact", "status")
WITH_ARCHIVE = ("verify", "compact", "status")
"""Commands whose argument is the archive: here the key `archive`."""
NAME = re.compile(r"[\w.-]+")
Parser = Callable[[type[argparse.ArgumentParser]], argparse.ArgumentParser]


@dataclass(frozen=True, slots=True)
class Job:
    """`arguments` are what the command line would have made of it."""

    name: str
    command_line: str
    arguments: argparse.Namespace


class _Refusing(argparse.ArgumentParser):
    """Raises what is wrong, and takes no shortened names: a file is to be read later too."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{**settings, "allow_abbrev": False, "add_help": False})

    def error(self, message: str) -> Never:
        raise UsageError(message)


def read_jobs(path: str, parser: Parser) -> list[Job]:
    """In the order of the file. Raises UsageError with file, line, job and key."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        told = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{path} cannot be read: {e}") from e
    except tomllib.TOMLDecodeError as e:
        raise UsageError(f"{path}: {e}") from e
    reader = _Reader(path, text, parser(_Refusing))
    tables = told.pop("job", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables) or not tables:
        raise UsageError(f"{path}: there is no table [[job]]")
    common = reader.common(told)
    jobs = [reader.job(number, table, common) for number, table in enumerate(tables)]
    for number, job in enumerate(jobs):
        if job.name in {other.name for other in jobs[:number]}:
            raise reader.error(number, "name", f"another job is called {job.name}")
        if getattr(job.arguments, "follow", False) and number < len(jobs) - 1:
            raise reader.error(number, "follow", "only the last job may follow its topics: others would never begin")
    return jobs


def chosen(jobs: Sequence[Job], names: Sequence[str], path: str) -> list[Job]:
    """Those of these names, all if there are none. Raises UsageError for a name that no job has."""
    unknown = [name for name in names if name not in {job.name for job in jobs}]
    if unknown:
        raise UsageError(f"{path} has no job {unknown[0]}: it has {', '.join(job.name for job in jobs)}")
    return [job for job in jobs if not names or job.name in names]


class _Reader:
    """One file."""

    def __init__(self, path: str, text: str, parser: argparse.ArgumentParser) -> None:
        self._path = path
        self._lines = text.splitlines()
        self._parser = parser

    def common(self, told: Mapping[str, Any]) -> dict[str, Any]:
        for key in told:
            if key not in OF_ALL:
                raise self.error(None, key, f"it is none of {', '.join(OF_ALL)}; what is of a job stands below its [[job]]")
        return dict(told)

    def job(self, number: int, table: dict[str, Any], common: Mapping[str, Any]) -> Job:
        name, command = table.pop("name", None), table.pop("command", None)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise self.error(number, "name", "a job needs a name of letters, digits, points and hyphens")
        if command not in COMMANDS:
            raise self.error(number, "command", f"it is one of {', '.join(COMMANDS)}")
        for key in table:
            if key in OF_SESSION:
                raise self.error(number, key, "it is for all jobs, and stands above the first [[job]]")
        options = {**common, **table}
        if command in WITH_ARCHIVE and not isinstance(options.get("archive"), str):
            raise self.error(number, "archive", f"{command} needs it, a folder or the URI of one")
        archive = options.pop("archive", None) if command in WITH_ARCHIVE else None
        words = [word for key, value in options.items() for word in self._words(number, key, value)]
        words = [command, *words, *([] if archive is None else ["--", archive])]
        try:
            arguments = self._parser.parse_args(words)
        except UsageError as e:
            named = re.search(r"--([a-z-]+)", str(e))
            raise self.error(number, named[1] if named else "command", str(e)) from e
        arguments.command = command
        return Job(name, shlex.join(["barnabas", "pipeline", *words]), arguments)

    def _words(self, number: int, key: str, value: Any) -> list[str]:
        if value is True:
            return [f"--{key}"]
        if value is False:
            raise self.error(number, key, "an option without a value is true, or is left out")
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(each, str | int | float) and not isinstance(each, bool) for each in values):
            raise self.error(number, key, "it is a text, a number, true or a list of texts")
        return [f"--{key}={each}" for each in values]

    def error(self, number: int | None, key: str, why: str) -> UsageError:
        """About a key of the job of that number, or above the first one."""
        headers = [index for index, line in enumerate(self._lines) if re.match(r"\s*\[\[\s*job\s*\]\]", line)]
        begin = -1 if number is None else headers[number] if number < len(headers) else -1
        end = next((index for index in headers if index > begin), len(self._lines))
        of_key = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
        line = next((index for index in range(max(begin, 0), end) if of_key.match(self._lines[index])), max(begin, 0))
        return UsageError(f"{self._path} line {line + 1}: {key}: {why}")
