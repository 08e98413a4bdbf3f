"""The test of docs/getting-started.md, run by pytest where the wheel is installed."""

from __future__ import annotations

import re

from tests.support.installed import CHECKOUT, Project

PAGE = (CHECKOUT / "docs" / "getting-started.md").read_text()
(TEST,) = re.findall(r"```python\n# test_orders.py\n(.*?)```", PAGE, re.DOTALL)


def test_the_test_passes(project: Project) -> None:
    project.write("test_orders.py", TEST)

    assert project.pytest().outcomes == {"passed": 1}
