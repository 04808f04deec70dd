"""The server stands alone: no baker, no model DSL, no compiler; nothing that nobody asked for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hearthd.server.app import create_app
from tests.server import fakes
from tests.server.openai_servers import LIBRARY

FORBIDDEN = (
    "hearthd.baker",
    "hearthd.models.dsl",
    "hearthd.models.decoder",
    "iree.compiler",
    "safetensors",
    "gguf",
)
LEAN = """
import json, sys
from hearthd.server.process.lazy_imports import build_models_lazily
build_models_lazily()
from tests.server.process.test_imports import document
from hearthd.server.api.openai.chat import ChatRequest
print(json.dumps([document(), ChatRequest.__pydantic_complete__, list(sys.modules)]))
"""


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout


def document() -> str:
    app = create_app(fakes.pool(fakes.fake_service(LIBRARY)))
    return json.dumps(app.openapi(), sort_keys=True)


@pytest.mark.parametrize("module", ["hearthd.server.app", "hearthd.server.cli"])
def test_the_server_imports_neither_baker_nor_compiler_nor_jinja(module: str) -> None:
    loaded = run(f"import sys, {module}; print('\\n'.join(sys.modules))").split()
    assert module in loaded
    assert not [name for name in loaded if name.startswith((*FORBIDDEN, "jinja2"))]


def test_settings_import_no_command_line() -> None:
    loaded = run("import sys, hearthd.server.settings; print('\\n'.join(sys.modules))").split()
    assert "hearthd.server.settings" in loaded
    assert not {"typer", "click"} & {*loaded}


@pytest.mark.nightly
def test_lazily_built_models_give_the_same_openapi_document() -> None:
    lean, built, modules = json.loads(run(LEAN))
    assert lean == document()
    assert not built
    assert "pydantic.v1.main" not in modules
