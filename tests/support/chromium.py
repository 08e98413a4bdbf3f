"""Chromium, of the machine or of Debian's package, for playwright's `launch`."""

from __future__ import annotations

import os
import shutil
from typing import Any

from tests.support.debian import unpacked


def launch_options() -> dict[str, Any]:
    """Where the program is and what it needs. Ends the test where it is missing and cannot be fetched."""
    options: dict[str, Any] = {"args": ["--no-sandbox"]}
    found = shutil.which("chromium")
    if found is None:
        folder = unpacked("chromium") / "usr/lib"
        libraries = folder / f"{os.uname().machine}-linux-gnu"
        found = str(folder / "chromium/chromium")
        options["env"] = {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{libraries / 'pulseaudio'}"}
    return {**options, "executable_path": found}
