"""Fixtures of the server's tests."""

import random
import secrets

import pytest


@pytest.fixture(autouse=True)
def fixed_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests without a seed have the same seeds in each run of a test."""
    monkeypatch.setattr(secrets, "randbelow", random.Random(0).randrange)
