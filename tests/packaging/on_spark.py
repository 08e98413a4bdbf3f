"""The wheel on a standalone Spark cluster, as a user has it: `make package-spark`.

The wheel is built, and installed with its extra `pipeline` into an environment of its own. A master and two workers of one core each run
that environment's Spark; no path of the checkout, no connector and no other jar is theirs. Then the examples of docs/pipeline.md that need
no connector run as a program of a user's, against the installed broker: a stream by the source and the sink, and the log directory as a
table. Whether both workers had part in it, and by which Python, is asked of them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import venv
from pathlib import Path
from typing import Any

from pipeline.errors import PipelineError
from pipeline.session import require_java
from tests.clients.topics import create_topic
from tests.packaging.package import ROOT, PackageError, build
from tests.packaging.package import run as run_command
from tests.pipeline.spark_cluster import CLIENT_SETTINGS, SparkCluster
from tests.pipeline.spark_support import produce
from tests.support.installed import InstalledBroker, site_packages
from tests.support.messages import Message

PROGRAM_TIMEOUT_S = 600
ORDERS = 1000
PARTITIONS = 4
FACTS = "FACTS "
AFTERWARDS = """
import json, os, sys
from py4j.protocol import Py4JJavaError

query.processAllAvailable()
query.stop()
numbers = spark.range(1000).selectExpr("cast(id as string) as value")
numbers.write.format("barnabas").option(*brokers).option("topic", "numbers").mode("append").save()

def values(topic):
    read = spark.read.format("barnabas").option(*brokers).option("subscribe", topic).load()
    return sorted(row[0] for row in read.selectExpr("cast(value as string)").collect())

def where(_):
    import barnabas

    yield sys.executable, os.path.dirname(barnabas.__file__), os.environ.get("PYTHONPATH", ""), os.getcwd()

try:
    spark._jvm.org.apache.spark.util.Utils.classForName("org.apache.spark.sql.kafka010.KafkaSourceProvider", True, False)
    has_connector = True
except Py4JJavaError:
    has_connector = False
on_workers = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(where).collect()
print("FACTS " + json.dumps({
    "loud": values("loud-orders"),
    "numbers": values("numbers"),
    "files": sorted(row[0] for row in rows.selectExpr("cast(value as string)").collect()),
    "has_connector": has_connector,
    "workers": on_workers,
}))
spark.stop()
"""


def main() -> int:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        try:
            require_java(os.environ)
            wheel, _ = build(ROOT, directory / "dist")
            environment = directory / "environment"
            venv.create(environment, with_pip=True)
            python = str(environment / "bin" / "python")
            run_command(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[pipeline]", cwd=directory)
            installed_s = time.monotonic() - begin
            check(environment, directory)
        except (PackageError, PipelineError) as error:
            print(f"make package-spark: {error}", file=sys.stderr)
            return 1
    print(
        f"{wheel.name} in an environment of its own, {installed_s:.0f} s; on two workers without a connector, "
        f"{time.monotonic() - begin - installed_s:.0f} s: the examples wrote and read each row once"
    )
    return 0


def check(environment: Path, directory: Path) -> None:
    """Raises PackageError for what is not as the docs say."""
    broker = InstalledBroker(environment, directory / "broker")
    spark_home = site_packages(environment) / "pyspark"
    cluster = SparkCluster(directory, workers=2, cores_each=1, home=spark_home, environment=clean_environment(directory))
    try:
        broker.start()
        for topic in ("orders", "loud-orders", "numbers"):
            create_topic(broker, topic, partitions=PARTITIONS)
        produce(broker, "orders", [Message(number % PARTITIONS, None, b"order %d" % number) for number in range(ORDERS)])
        broker.stop()  # notes the high watermark, up to which the log directory is read
        broker.start()
        cluster.start()
        facts = run_examples(environment, directory, cluster, broker)
    finally:
        cluster.stop()
        broker.kill()
    judge(facts, environment)


def run_examples(environment: Path, directory: Path, cluster: SparkCluster, broker: InstalledBroker) -> dict[str, Any]:
    """What the program has printed."""
    settings = (f"spark.master={cluster.url}", *CLIENT_SETTINGS)
    (directory / "conf").mkdir()
    (directory / "conf" / "spark-defaults.conf").write_text("".join(f"{setting.replace('=', ' ', 1)}\n" for setting in settings))
    text = program()
    for shown, own in (("one:9092,two:9092", broker.bootstrap), ("/var/lib/kafka/data", str(broker.data_dir))):
        if shown not in text:
            raise PackageError(f"the examples of docs/pipeline.md do not name {shown}")
        text = text.replace(shown, own)
    (directory / "program.py").write_text(text)
    finished = subprocess.run(
        [str(environment / "bin" / "python"), "program.py"],
        cwd=directory,
        env=clean_environment(directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    told = [line.removeprefix(FACTS) for line in finished.stdout.splitlines() if line.startswith(FACTS)]
    if finished.returncode or len(told) != 1:
        raise PackageError(f"the examples of docs/pipeline.md end with {finished.returncode}:\n{finished.stdout[-3000:]}")
    return dict(json.loads(told[0]))


def program() -> str:
    """The docs' examples of the source, the sink and log directories, and what tells how they went."""
    page = (ROOT / "docs" / "pipeline.md").read_text()
    examples = []
    for heading in (
        '## Each row once, without a connector: `format("barnabas")`',
        '## Log directories as a table: `format("barnabas-log")`',
    ):
        found = re.search(rf"^{re.escape(heading)}\n(?s:.*?)\n((?:    .*\n|\n(?=    ))+)", page, re.MULTILINE)
        if found is None:
            raise PackageError(f"docs/pipeline.md has no example below {heading!r}")
        examples.append(textwrap.dedent(found[1]))
    return "\n".join([*examples, AFTERWARDS])


def clean_environment(directory: Path) -> dict[str, str]:
    """This process's, without what would lead to another Python or Spark."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV"))}
    return {**kept, "SPARK_CONF_DIR": str(directory / "conf")}


def judge(facts: dict[str, Any], environment: Path) -> None:
    expected = {
        "loud": sorted(f"ORDER {number}" for number in range(ORDERS)),
        "files": sorted(f"order {number}" for number in range(ORDERS)),
        "numbers": sorted(str(number) for number in range(1000)),
    }
    for name, values in expected.items():
        if facts[name] != values:
            raise PackageError(f"of {name} there are {len(facts[name])} rows, and not those {len(values)} that were written")
    if facts["has_connector"]:
        raise PackageError("Spark's connector is on the class path: this shows nothing")
    folders = {place[-1].split("/app-")[0] for place in facts["workers"]}
    if len(folders) != 2:
        raise PackageError(f"two tasks at once ran on {len(folders)} workers")
    for python, package, python_path, _ in facts["workers"]:
        if not python.startswith(f"{environment}/") or not package.startswith(f"{environment}/") or str(ROOT) in python_path:
            raise PackageError(f"a worker runs {python} with {package} and PYTHONPATH={python_path}: not those of the environment")


if __name__ == "__main__":
    sys.exit(main())
