"""Which tests are run in one lane, in which order lanes begin, and what is said of lanes that pass, fail, crash and hang."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.installed import commands_with, wait_until
from tests.support.lanes import BELOW_BROKER, LONGEST, SECOND_RUNS_MAX, SPARK, Lane, Result, lanes_of, run_lanes, summary
from tests.support.process import checkout

LANE_MAX_S = 300.0


def run(root: Path, *, lane_max_s: float = LANE_MAX_S, **files: str) -> Result:
    """Run these files, a lane each."""
    (root / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (root / f"test_{name}.py").write_text(text)
    return run_lanes(root, [Lane(name, (f"test_{name}.py",)) for name in files], 2, lane_max_s=lane_max_s)


def names(*files: str) -> list[str]:
    return [lane.name for lane in lanes_of(files)]


def test_all_that_needs_spark_is_one_lane() -> None:
    files = {str(path.relative_to(checkout())): path.read_text() for path in (checkout() / "tests").rglob("test_*.py")}
    needing = {name for name, text in files.items() if re.search(r"^(import|from) pyspark|^@?pytest.*mark\.spark", text, re.MULTILINE)}

    assert names(*needing) == [SPARK]
    assert "tests/clients/test_spark_sink.py" in needing


def test_a_folder_is_a_lane_and_a_file_that_takes_long_another() -> None:
    files = ("tests/wire/test_b.py", "tests/wire/test_a.py", "tests/mixed/test_live_move.py", "tests/mixed/test_takeover.py")

    assert lanes_of(files) == [
        Lane("tests/mixed", ("tests/mixed/test_live_move.py",)),
        Lane("tests/mixed/test_takeover.py", ("tests/mixed/test_takeover.py",)),
        Lane("tests/wire", ("tests/wire/test_a.py", "tests/wire/test_b.py")),
    ]


def test_folders_below_the_brokers_are_one_lane() -> None:
    files = ("tests/broker/test_a.py", "tests/broker/network/test_b.py", "tests/broker/security/tls/test_c.py")

    assert lanes_of(files) == [Lane("tests/broker", files[:1]), Lane(BELOW_BROKER, files[1:])]


def test_what_is_said_to_take_long_is_there() -> None:
    assert not [name for name in LONGEST if name not in (SPARK, BELOW_BROKER) and not (checkout() / name).exists()]


def test_outcomes_of_all_lanes_are_added_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skipping = "import pytest\ndef test_a(): pytest.skip('no Java here')\ndef test_b(): pass\n"
    broken = "import pytest\n@pytest.fixture\ndef x(): raise OSError\ndef test_e(x): pass\n"

    total = run(tmp_path, good=skipping, bad="def test_c(): pass\ndef test_d(): assert 7 == 8\n", broken=broken)

    assert dict(total.counts) == {"passed": 2, "failed": 2, "skipped": 1}
    assert sorted(total.failures) == ["test_bad.py::test_d", "test_broken.py::test_e"]
    assert "assert 7 == 8" in capsys.readouterr().out
    lines = summary(total).splitlines()
    assert lines[lines.index("no Java here:") + 1] == "    test_good.py::test_a"
    assert "assert 7 == 8" in lines[lines.index("    test_bad.py::test_d") + 1]
    assert lines[-1] == "2 passed, 2 failed, 1 skipped"


def test_a_test_that_fails_beside_others_runs_once_more_and_is_named_either_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marks = "import pathlib, pytest\nmark = pathlib.Path(__file__).with_suffix('.mark')\n"
    once = "def fail_once():\n  try: mark.touch(exist_ok=False)\n  except FileExistsError: return\n  assert 7 == 8\n"
    rare = f"{marks}{once}class TestIt:\n  @pytest.mark.parametrize('a', ['x y/z'])\n  def test_a(self, a): fail_once()\n"

    total = run(tmp_path, rare=rare, bad="def test_b(): assert 5 == 6\n", good="def test_c(): pass\n")

    assert dict(total.counts) == {"passed": 2, "failed": 1}
    assert total.failures == ["test_bad.py::test_b"]
    lines = summary(total).splitlines()
    found = lines.index("failed beside others and passed alone:")
    assert lines[found + 1] == "    test_rare.py::TestIt::test_a[x y/z]" and "assert 7 == 8" in lines[found + 2]
    assert capsys.readouterr().out.count("assert 5 == 6") >= 2  # both times


def test_nothing_runs_once_more_where_one_failure_tells_or_many_failed(tmp_path: Path) -> None:
    once = "import pathlib\ndef test_a():\n  try: pathlib.Path(__file__).with_suffix('.mark').touch(exist_ok=False)\n"
    once += "  except FileExistsError: return\n  assert 7 == 8\n"
    (tmp_path / "tests" / "faults").mkdir(parents=True)
    (tmp_path / "tests" / "faults" / "test_rare.py").write_text(once)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    total = run_lanes(tmp_path, [Lane("faults", ("tests/faults/test_rare.py",))], 1)
    many = run(tmp_path, **{f"rare{number}": once for number in range(SECOND_RUNS_MAX + 1)})

    assert total.failures == ["tests/faults/test_rare.py::test_a"]
    assert len(many.failures) == SECOND_RUNS_MAX + 1 and not many.passed_alone


def test_a_seed_that_is_to_be_replaced_is_told(tmp_path: Path) -> None:
    """A warning of a lane that passes would be seen by nobody."""
    warning = "import warnings\ndef test_a(): warnings.warn('seed 7 does not show it any more: keep 8', stacklevel=1)\n"

    assert "warning: seed 7 does not show it any more: keep 8" in summary(run(tmp_path, seeds=warning)).splitlines()


@pytest.mark.parametrize("death", ["os._exit(0)", "os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_lane_that_dies_fails_and_takes_nothing_with_it(tmp_path: Path, death: str) -> None:
    """Whatever its exit status: without a report nobody knows what its tests came to."""
    total = run(tmp_path, dead=f"import os\ndef test_a(): {death}\n", good="def test_b(): pass\n")

    assert dict(total.counts) == {"passed": 1, "failed": 1}
    assert total.failures[0].startswith("dead: pytest ended with status ")


def test_a_lane_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    hanging = f"import subprocess\ndef test_a(): subprocess.run(['sh', '-c', 'sleep 1000; : {tmp_path}'])\n"

    total = run(tmp_path, hanging=hanging, lane_max_s=3.0)

    assert total.failures == ["hanging: pytest did not end within 3.0 s"]
    wait_until(lambda: commands_with(f": {tmp_path}") == [], 30.0, lambda: commands_with(f": {tmp_path}"))


def test_files_without_a_test_are_a_failure(tmp_path: Path) -> None:
    assert run(tmp_path, empty="").failures == ["empty: pytest ended with status 5"]
