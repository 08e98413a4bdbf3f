"""A double that is not what it stands for is refused when its class is defined."""

from __future__ import annotations

import pytest

from tests.support.doubles import stands_for


class Real:
    @property
    def size(self) -> int:
        return 0

    def read(self, offset: int, *, limit: int = 1) -> bytes:
        return b""


def test_a_double_of_the_same_shape_is_taken() -> None:
    @stands_for(Real, own=("fail_next",))
    class Double:
        size = 3

        def read(self, offset: int, *, limit: int = 1) -> bytes:
            return b"x"

        def fail_next(self) -> None:
            return None

    assert Double().read(0) == b"x"


def test_a_method_that_the_real_one_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Double.fetch stands for nothing: Real has no fetch"):

        @stands_for(Real)
        class Double:
            def fetch(self) -> None:
                return None


def test_a_method_that_is_called_otherwise_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Double.read\(.* is not called as Real.read"):

        @stands_for(Real)
        class Double:
            def read(self, position: int) -> bytes:
                return b""
