"""The server stands alone: no baker, no model DSL, no compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORBIDDEN = ("baker", "models.dsl", "models.gemma3", "iree.compiler", "safetensors", "gguf")


@pytest.mark.parametrize("module", ["server.app", "server.cli"])
def test_a_fresh_process_that_imports_the_server(module: str) -> None:
    code = f"import sys, {module}; print('\\n'.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = result.stdout.split()
    assert module in loaded
    assert not [name for name in loaded if name.startswith(FORBIDDEN)]
