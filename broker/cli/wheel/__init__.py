"""The package `barnabas` of an installed wheel: the launcher, with Barnabas's own folders (broker, config, …) beside it.

The wheel adds this one name to an environment. The folders import each other by their literal names, so the launcher puts the
folder that holds them first on the path of its own process: it must be the process, and nothing of yours may run in it.
In a checkout this file is only source for the wheel.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Run the `barnabas` command and return its exit code."""
    sys.path.insert(0, str(Path(__file__).parent))
    from broker.cli.main import main as command

    return command(sys.argv[1:])
