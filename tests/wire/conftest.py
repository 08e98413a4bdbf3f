"""One hypothesis profile for the wire tests: bounded and the same in every run, so that a failure can be repeated."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("wire", max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
