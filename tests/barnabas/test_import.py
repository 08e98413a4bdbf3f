"""What `import barnabas` costs a program, and what it does not bring along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from tests.support.installed import CHECKOUT


def modules_after(code: str) -> set[str]:
    """The modules that `code` loads beyond those of a bare interpreter, without anything from site-packages to help it."""
    command = [sys.executable, "-I", "-S", "-c"]
    tail = "print(*sys.modules)"
    path = f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); "
    bare, loaded = (
        set(subprocess.run([*command, path + each + tail], capture_output=True, text=True, timeout=60, check=True).stdout.split())
        for each in ("", code + "; ")
    )
    return loaded - bare


def test_the_checkout_s_package_is_what_is_tested_here() -> None:
    assert Path(barnabas.__file__).parent == CHECKOUT / "barnabas"


def test_importing_loads_next_to_nothing() -> None:
    """Counted, not timed: a machine that is busy would make it fail."""
    loaded = modules_after("import barnabas")

    assert loaded == {"barnabas", "__future__"}


def test_a_broker_needs_the_library_of_python_only() -> None:
    loaded = modules_after("import barnabas; [getattr(barnabas, name) for name in barnabas.__all__]")

    assert {name.partition(".")[0] for name in loaded} <= sys.stdlib_module_names | {"barnabas"}


def test_the_broker_s_own_folders_are_not_part_of_it() -> None:
    assert not {name for name in dir(barnabas) if name.islower() and not name.startswith("_")} & {"broker", "config", "storage"}
    with pytest.raises(AttributeError, match="has no attribute 'Server'"):
        print(barnabas.Server)
