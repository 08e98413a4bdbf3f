"""`barnabas secure`: a secured broker in one command (`init`), its users (`add-user`), its certificates (`renew`)."""

from __future__ import annotations

import sys

USAGE = """\
usage: barnabas secure init DIR [--host NAME]… [--nodes N] [--port PORT]
       barnabas secure add-user NAME [--read TOPIC]… [--write TOPIC]… [--group GROUP]… [--sink ID]… [--directory DIR]
       barnabas secure renew DIR [--host NAME]… [--authority trust|change|drop]

  init       make keys, certificates, an administrator and the configuration of a secured broker or cluster
  add-user   make a user of the running broker, with a password and rights, and its client's configuration
  renew      make new certificates of the nodes, or in three steps another authority; running nodes take them up

`barnabas secure init --help`, and --help of the others, say more.
"""


def secure(arguments: list[str]) -> int:
    """Run one of its commands; returns the exit code. Raises ConfigError for a wrong setting."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command == "init":
        from broker.cli.secure_init import init

        return init(rest)
    if command == "add-user":
        from broker.cli.secure_user import add_user

        return add_user(rest)
    if command == "renew":
        from broker.cli.secure_renew import renew

        return renew(rest)
    if command in ("--help", "-h", "help"):
        print(USAGE, end="")
        return 0
    print(f"barnabas secure: unknown command {command!r}; it is init, add-user or renew\n" if command else USAGE, end="", file=sys.stderr)
    return 2
