"""`barnabas pipeline`, of which `compact` and `replay` visit a gate keeper at each of their steps, who may hold the process there.

python -m tests.pipeline.job_kills.gated_command compact …

Points of `compact` are `compact:<step>`, of its steps. Those of `replay` are `replay:planned`, before it looks into the ledger,
`replay:begin`, and `replay:step` after each step; its sink has those of the sink's campaign, in Spark's Python processes (`environment`).
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from barnabas.spark.archives import compaction
from barnabas.spark.archives import replay as replays
from pipeline import cli, commands
from tests.pipeline.sink_campaign.gated_sink import POINTS
from tests.pipeline.sink_campaign.gates import ADDRESS, visit
from tests.pipeline.spark_support import CHECKOUT
from tests.pipeline.spark_support import environment as usual_environment

MOVES = "BARNABAS_TEST_MOVES"
"""If this is set, the file system cannot exchange folders: `compact` moves single files."""
EXCHANGE_POINTS = ("compact:written", "compact:linked", "compact:exchanged")
MOVE_POINTS = ("compact:written", "compact:planned", "compact:hidden", "compact:published", "compact:noted")
REPLAY_POINTS = (
    "replay:planned", "replay:begin", "replay:step",
    *(point for point in POINTS if point.startswith(("plan:", "task:", "commit:")) and point not in
      ("plan:adopted", "plan:aborted", "plan:ended", "task:ended", "commit:aborted")),
)  # fmt: skip
"""Those that each replay passes: the others come after a kill only."""
SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
}
MODULE = '''"""What Spark finds by its name, with the gates."""

from tests.pipeline.sink_campaign.gated_sink import GatedSource


class DefaultSource(GatedSource):
    @classmethod
    def name(cls):
        return "barnabas"
'''


def environment(directory: Path, gates_port: int, *, moves: bool = False) -> dict[str, str]:
    """Of a gated command. In `directory` a module is made that takes the place of the product's data source."""
    directory.mkdir(exist_ok=True)
    (directory / "pyspark_barnabas.py").write_text(MODULE)
    return {
        **usual_environment(),
        "PYTHONPATH": f"{directory}{os.pathsep}{CHECKOUT}",
        ADDRESS: str(gates_port),
        **({MOVES: "yes"} if moves else {}),
    }


def command_line(*arguments: str) -> list[str]:
    """It lives for seconds, in which Spark would only compile."""
    conf = [word for key, value in SETTINGS.items() for word in ("--conf", f"{key}={value}")]
    return [sys.executable, "-m", "tests.pipeline.job_kills.gated_command", *arguments, *conf]


def gated_replay(*arguments: Any, say: Any, **options: Any) -> int:
    def gated(line: str) -> None:
        say(line)
        visit("replay:step" if line.startswith("step ") else "replay:begin")

    return replays.replay(*arguments, say=gated, **options)


class GatedLedger(replays.Ledger):
    """Its topic is made when the plan has been kept."""

    def prepare(self) -> None:
        visit("replay:planned")
        super().prepare()


def without_exchange(first: str, second: str) -> None:
    raise OSError(22, "as on a file system that cannot do it")


def main(arguments: list[str]) -> int:
    commands.compact = partial(compaction.compact, step=lambda name: visit(f"compact:{name}"))  # type: ignore[assignment]
    commands.replay_once = gated_replay  # type: ignore[assignment]
    replays.Ledger = GatedLedger  # type: ignore[misc]
    if MOVES in os.environ:
        compaction.exchange = without_exchange
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
