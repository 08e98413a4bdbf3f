"""google-re2, which a broker needs for the regular expressions of KIP-848 groups."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.support.requirements import needs


def needs_re2() -> pytest.MarkDecorator:
    return needs(None if find_spec("re2") else "google-re2 is not installed")
