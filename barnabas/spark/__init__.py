"""Spark and Kafka's protocol without a JAR: a source, and a sink that writes each row once. `format("barnabas")`; see docs/pipeline.md.

This runs in processes that are not ours: Spark's driver and its Python workers, where a module of the user's may be called `protocol` or
`config`. So it reaches our folders as parts of `barnabas` alone, by relative imports. In a checkout `barnabas/protocol` is a link to
`protocol/`, in a wheel it is the folder itself.
"""

from __future__ import annotations

import os
import sys

INTERPRETER = "PYSPARK_PYTHON"


def prepare() -> None:
    """Call this before the first SparkSession. Spark looks for data sources, and runs their code, with the `python3` of the PATH unless
    PYSPARK_PYTHON says otherwise: this names the interpreter that runs now, where barnabas is installed."""
    os.environ.setdefault(INTERPRETER, sys.executable)
