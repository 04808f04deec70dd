"""How long a test waits for what must come. Limits that a test is about are not these."""

from __future__ import annotations

PATIENCE = 60.0  # seconds: the machine may be loaded
