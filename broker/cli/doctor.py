"""`barnabas doctor`: looks at a configuration, its data folders and this machine, and says what to change. It changes nothing and asks no
broker."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from broker.cli.doctor_findings import ADVICE, FINE, PROBLEM, Finding
from broker.cli.doctor_folders import examine_folders
from broker.cli.doctor_machine import Machine, examine_machine
from broker.cli.one_line_parser import OneLineParser
from config.exposure import log_exposure
from config.loading import load_server_config, log_warnings
from config.properties import ConfigError

if TYPE_CHECKING:
    from config.server import ServerConfig

EXIT_UNHEALTHY = 4
DESCRIPTION = """\
Look at a node's configuration, its data folders and this machine, and say what to change. Nothing is changed, and no broker is asked: run
it beside one or before its start, as the same user. Exit code 0, or 4 if there is a problem; advice is none.
"""


def doctor(arguments: list[str]) -> int:
    """Print what is found; returns the exit code."""
    parser = OneLineParser(prog="barnabas doctor", description=DESCRIPTION)
    parser.add_argument("data_dir", nargs="?", metavar="DATA_DIR", help="a log directory (default: those of the configuration)")
    parser.add_argument("--config", "-c", metavar="FILE", help="a server.properties (default: that of barnabas serve, without DATA_DIR)")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="set one property; may be given many times")
    parser.add_argument("--verbose", "-v", action="store_true", help="name what is in order, too")
    parser.add_argument("--output", "-o", choices=("text", "json"), default="text", help="json: a list of what was looked at")
    options = parser.parse_args(arguments)

    findings: list[Finding] = []
    config = None
    if options.config is not None or options.data_dir is None:
        config = _examine_configuration(options.config, options.override, findings)
    folders = [options.data_dir] if options.data_dir is not None else [] if config is None else _folders_of(config)
    partitions_count = examine_folders([Path(folder) for folder in folders], config, Machine(), time.time(), findings)
    findings += examine_machine(Machine(), config, partitions_count)
    if options.output == "json":
        print(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        print("\n".join(_lines(findings, is_verbose=options.verbose)))
    return EXIT_UNHEALTHY if any(finding.level == PROBLEM for finding in findings) else 0


def _folders_of(config: ServerConfig) -> list[str]:
    return list(dict.fromkeys((config.metadata_log_dir, *config.log_dirs)))


def _examine_configuration(path: str | None, overrides: list[str], findings: list[Finding]) -> ServerConfig | None:
    """The configuration; None if `serve` would refuse it. What a start would warn of is advice."""
    try:
        config = load_server_config(path, os.environ, overrides)
    except ConfigError as error:
        findings.append(Finding("configuration", PROBLEM, str(error), "a start is refused with this line"))
        return None
    kept = _KeptLines()
    logger = logging.getLogger("barnabas")
    before = logger.propagate
    logger.addHandler(kept)
    logger.propagate = False
    try:
        log_warnings(config)
        log_exposure(config)
    finally:
        logger.removeHandler(kept)
        logger.propagate = before
    findings += [Finding("configuration", ADVICE, line, "docs/operations.md says more") for line in kept.lines]
    if not kept.lines:
        findings.append(Finding("configuration", FINE, f"{path or 'the default one'} can be used"))
    return config


class _KeptLines(logging.Handler):
    """Keeps the messages of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _lines(findings: list[Finding], *, is_verbose: bool) -> Iterator[str]:
    shown = (PROBLEM, ADVICE, FINE) if is_verbose else (PROBLEM, ADVICE)
    for level in shown:
        for finding in findings:
            if finding.level == level:
                yield f"{level + ':':<9}{finding.check}: {finding.found}" + (f"; {finding.advice}" if finding.advice else "")
    counts = {level: sum(finding.level == level for finding in findings) for level in (PROBLEM, ADVICE, FINE)}
    yield f"{counts[PROBLEM]} problems, {counts[ADVICE]} advice, {counts[FINE]} in order"
