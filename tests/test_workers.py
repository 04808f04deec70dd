"""pytest-xdist runs each test file in one worker, so that its fixtures are made once."""

from __future__ import annotations

import pytest


def test_a_test_file_is_a_group(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("needs --dist loadgroup, as in scripts/test")
    assert request.node.nodeid.endswith("@tests/test_workers.py-fast")
