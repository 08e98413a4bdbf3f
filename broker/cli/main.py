"""The `barnabas` command: picks the subcommand and turns the errors that a person can mend into one line on stderr.

Exit codes: 0 done, 1 it failed, 2 bad usage, 4 the doctor has found a problem. Subcommands are imported when they run, so that `serve` pays
for nothing else.
"""

from __future__ import annotations

import os
import sys

from config.properties import ConfigError

USAGE = """\
usage: barnabas COMMAND …

  serve         run the broker in the foreground
  cluster       run a cluster on this machine, or show a cluster's state
  health        ask a node whether it answers: the container image's health check
  doctor        look at a configuration, a data folder and this machine, and say what to change
  secure        make a secured broker or cluster, and its users
  format        prepare empty log directories for a cluster id
  random-uuid   print a new cluster id
  pipeline      Spark jobs: archive topics to Parquet, look after archives, replay them

clients of any Kafka cluster (pip install 'barnabas[cli]'):

  topic         list, describe, create, clone, alter, add-partitions, reassign, delete, trim
  produce       write records
  consume       print records
  group         list, describe, reset, delete, delete-offsets, remove-member
  config        list, describe, set, delete: of topics, brokers, groups, client metrics
  acl           list, create, delete, test
  user          list, create, set-password, delete
  quota         list, set, delete
  transaction   list, describe, producers, find-hanging, abort
  cluster       info, health, reassign, elect-leaders, log-dirs, cordon, quorum, features, unregister
  log           segments, batches, indexes, snapshots, checkpoints, verify: of a data folder
  perf          produce, consume: a load, its rate and latency
  top           what brokers, topics and groups do just now
  console       clusters in a browser (pip install 'barnabas[console]')
  completion    of these commands, for bash, zsh and fish
  context       name clusters, and choose one

  --version     print the version
  --help        print this; `barnabas COMMAND --help` says more
"""

EXIT_FAILED = 1
EXIT_USAGE = 2


def main(arguments: list[str]) -> int:
    """Run one command; `arguments` come without the program's name. Returns the exit code."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    try:
        return _run(command, rest)
    except ConfigError as e:
        return _fail(str(e))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output left (`barnabas … | head`). Python would complain about it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _run(command: str, rest: list[str]) -> int:
    if command == "serve":
        from broker.cli.serve import serve

        return serve(rest)
    if command == "cluster":
        from broker.cli.cluster import cluster

        return cluster(rest)
    if command == "health":
        from broker.cli.health import health

        return health(rest)
    if command == "doctor":
        from broker.cli.doctor import doctor

        return doctor(rest)
    if command == "secure":
        from broker.cli.secure import secure

        return secure(rest)
    if command == "format":
        from broker.cli.format import format_storage

        return format_storage(rest)
    if command == "random-uuid":
        from broker.cli.format import random_uuid

        return random_uuid(rest)
    if command == "pipeline":
        from pipeline.cli import main as run_pipeline

        return run_pipeline(rest)
    if command in ("--version", "-V"):
        from broker.server.version import VERSION

        print(f"barnabas {VERSION}")
        return 0
    if command in ("--help", "-h", "help"):
        print(USAGE, end="")
        return 0
    print(f"barnabas: unknown command {command!r}; barnabas --help lists them\n" if command else USAGE, end="", file=sys.stderr)
    return EXIT_USAGE


def _fail(message: str) -> int:
    print(f"barnabas: {message}", file=sys.stderr)
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
