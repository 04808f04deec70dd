"""How long tests wait for what must come. A test of a timeout has one of its own."""

from __future__ import annotations

PATIENCE = 60.0  # seconds: the machine may be loaded
