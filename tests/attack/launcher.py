"""`barnabas` with a meter on its loop: `python -m tests.attack.launcher HOLDS_FILE STACKS_FILE|- serve …`.

The broker's own code runs as it is; only the loop that it is given has one more timer.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop

from tests.attack.census import take_census_on_signal
from tests.attack.loop_meter import LoopMeter, StackSampler

NO_STACKS = "-"
CENSUS_FILE = "census.txt"


def main(arguments: list[str]) -> int:
    holds_path, stacks_path, *rest = arguments
    new_event_loop = uvloop.new_event_loop

    def new_metered_loop() -> asyncio.AbstractEventLoop:
        loop = new_event_loop()
        meter = LoopMeter(loop, Path(holds_path))
        meter.start()
        if stacks_path != NO_STACKS:
            StackSampler(meter, Path(stacks_path))
        return loop

    take_census_on_signal(Path(holds_path).with_name(CENSUS_FILE))
    uvloop.new_event_loop = new_metered_loop  # type: ignore[assignment]
    from broker.cli.main import main as barnabas

    return barnabas(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
