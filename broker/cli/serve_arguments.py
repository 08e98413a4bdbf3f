"""What the command line of `barnabas serve` says.

argparse is not used on this path: it takes 6 ms to import, and a start has few to spare. A few options do not need it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from config.endpoints import PORT_MAX

USAGE = """\
usage: barnabas serve [--config FILE] [--port PORT] [--override KEY=VALUE]… [--cluster-id ID] [--console PORT] [--log-level LEVEL] …
       barnabas serve --ephemeral[=DIR] [--secure[=KEYS]] [--port PORT] [--override KEY=VALUE]… [--cluster-id ID] …

Runs the broker in the foreground until SIGTERM or SIGINT. One line on stdout says where it serves; the log goes to stderr.

  -c, --config FILE      a Kafka server.properties (default: the shipped one, one node on localhost:9092)
  --port PORT            as --override listeners=PLAINTEXT://localhost:PORT; 0 takes a free port and tells it
  --override KEY=VALUE   set one property; may be given many times, and wins over file and environment
  --cluster-id ID        the cluster's id, for a directory that is formatted at this start (default: a random one)
  --console PORT         the console beside it, on localhost:PORT (0: a free one), a process that ends with the broker; it only reads
  --console-config FILE  how the console logs in, as a Java client's properties; needed if no listener is PLAINTEXT
  --console-allow-login  changes in the console, for users of the cluster by password, with their own rights; needs --console-config
                         with a login by SASL PLAIN or SCRAM
  --console-token-file FILE  changes in the console, as its own user, for whoever signs in with the token in this file
  --log-level LEVEL      debug, info (default), warning, error or critical: what is less important is not logged
  --log-format FORMAT    text (default), or json: one object a line, with ts, level, logger, message and the line's facts
  --ephemeral            for tests: data in a temporary directory that is removed at the end, a free port on 127.0.0.1 unless --port
                         gives one, one line of JSON when ready, and the end when standard input (a pipe) closes. Reads no file and no
                         environment variables. With DIR the data are there and outlive a stop, but not standard input
  --settings FILE        with --ephemeral: a file of properties, for what may not be in a command line; --override wins
  --secure[=KEYS]        with --ephemeral: TLS and SASL, with keys of its own; the directory's barnabas-ca.pem is what clients trust, and
                         its barnabas-secure.json has the administrator's password. The nodes of one cluster name the same directory KEYS:
                         the first that starts makes their keys there

KAFKA_… environment variables set properties as in the official container image: KAFKA_LOG_DIRS is log.dirs. CLUSTER_ID is the
cluster id of a directory that is formatted at this start.
"""

LOG_LEVELS = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "critical": 50}  # as in logging, which is loaded later
LOG_FORMATS = ("text", "json")
WITH_VALUE = frozenset({
    "--config", "-c", "--override", "--port", "--cluster-id", "--console", "--console-config", "--console-token-file",
    "--settings", "--log-level", "--log-format",
})  # fmt: skip


class UsageError(Exception):
    """The command line cannot be understood."""


@dataclass(slots=True, repr=False)
class ServeOptions:
    """What the command line says. `config_path` None stands for the shipped file. Overrides may have passwords, so there is no repr."""

    config_path: str | None = None
    overrides: list[str] = field(default_factory=list)
    log_level: int = LOG_LEVELS["info"]
    log_format: str = "text"
    port: int | None = None
    cluster_id: str = ""
    console_port: int | None = None
    console_config: str = ""
    console_allows_login: bool = False
    console_token_file: str = ""
    ephemeral_directory: str | None = None
    """Of --ephemeral: "" for a temporary one, None without the option."""
    settings_path: str = ""
    """Of --settings: a file of further properties of an ephemeral broker."""
    is_secure: bool = False
    keys_directory: str = ""
    """Of --secure: where the nodes of a cluster have their keys; "" for a broker by itself."""


def parse_arguments(arguments: list[str]) -> ServeOptions:
    """As in kafka-server-start, the file may also come without --config."""
    options = ServeOptions()
    rest = iter(arguments)
    for argument in rest:
        option, has_value, value = argument.partition("=")
        if option == "--ephemeral":
            options.ephemeral_directory = value
        elif option == "--secure":
            options.is_secure = True
            options.keys_directory = value
        elif argument == "--console-allow-login":
            options.console_allows_login = True
        elif option in WITH_VALUE:
            if not has_value:
                value = next(rest, "")
            if not value:
                raise UsageError(f"{option} needs a value")
            _take_option(options, option, value)
        elif argument.startswith("-") or options.config_path is not None:
            raise UsageError(f"unknown argument {argument}")
        else:
            options.config_path = argument
    if options.config_path is not None and options.ephemeral_directory is not None:
        raise UsageError("--ephemeral reads no file; give settings by --override")
    if options.settings_path and options.ephemeral_directory is None:
        raise UsageError("--settings is for --ephemeral; --config reads a broker's file")
    _check_console(options)
    if options.is_secure and options.ephemeral_directory is None:
        raise UsageError("--secure is for --ephemeral; barnabas secure init makes a broker that stays")
    if options.port is not None and "listeners" in (override.partition("=")[0].strip() for override in options.overrides):
        raise UsageError(f"--port {options.port} would be lost beside --override listeners, which names the ports; give one of the two")
    return options


def _check_console(options: ServeOptions) -> None:
    of_console = {
        "--console-config": options.console_config,
        "--console-allow-login": options.console_allows_login,
        "--console-token-file": options.console_token_file,
    }
    alone = [name for name, value in of_console.items() if value]
    if alone and options.console_port is None:
        raise UsageError(f"{alone[0]} is for --console PORT")
    if options.console_allows_login and not options.console_config:
        raise UsageError("--console-allow-login needs --console-config FILE, with a login by SASL PLAIN or SCRAM")


def _take_option(options: ServeOptions, option: str, value: str) -> None:
    if option == "--override":
        options.overrides.append(value)
    elif option in ("--port", "--console"):
        if not (value.isascii() and value.isdigit() and int(value) <= PORT_MAX):
            raise UsageError(f"{option} {value} is not a port")
        if option == "--port":
            options.port = int(value)
        else:
            options.console_port = int(value)
    elif option == "--console-config":
        options.console_config = value
    elif option == "--console-token-file":
        options.console_token_file = value
    elif option == "--cluster-id":
        options.cluster_id = value
    elif option == "--settings":
        options.settings_path = value
    elif option == "--log-level":
        if value.lower() not in LOG_LEVELS:
            raise UsageError(f"--log-level {value} is none of debug, info, warning, error, critical")
        options.log_level = LOG_LEVELS[value.lower()]
    elif option == "--log-format":
        if value not in LOG_FORMATS:
            raise UsageError(f"--log-format {value} is none of text, json")
        options.log_format = value
    else:
        options.config_path = value
