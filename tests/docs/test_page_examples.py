"""Examples in the documentation run: Python in this process, curl against a fake model's server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pytest

from hearthd.bundle import (
    FunctionSpec,
    InputSpec,
    OutputSpec,
)
from hearthd.model import Model
from hearthd.runtime.checks.golden_arrays import GoldenExample
from hearthd.server.services.array_service import ArrayService
from tests.docs.pages import ROOT, Example, examples
from tests.patience import PATIENCE
from tests.server import encoders, fakes, templates
from tests.server.fake_models import FakeModel, pool
from tests.server.functions import local_calls, manifest_of
from tests.server.openai_servers import scripted
from tests.server.speech import speech_services
from tests.server.speech.listeners import ScriptedListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hearthd.runtime.array_bytes import Arrays
    from hearthd.server.services.model_pool import ModelPool
    from hearthd.server.services.service import Service

_PATH = re.compile(r"/[a-z_0-9{}/-]+")
ADDRESS = "http://127.0.0.1:8080"
Shape = tuple[int, ...]


def _function(name: str, x: Shape, state: Shape, y: Shape, names: tuple[str, str]) -> FunctionSpec:
    return FunctionSpec(
        name=name,
        inputs=(
            InputSpec(name="x", shape=x, dtype="f32", default="none"),
            InputSpec(name=names[0], shape=state, dtype="f32", default="zeros"),
        ),
        outputs=(
            OutputSpec(name="y", shape=y, dtype="f32", takes=None),
            OutputSpec(name=names[1], shape=state, dtype="f32", takes=names[0]),
        ),
    )


FUNCTIONS = {
    "run": _function("run", (100, 1, 2), (1, 1, 16), (100, 1, 16), ("h0", "h_n")),
    "step": _function("step", (1, 2), (1, 1, 16), (1, 16), ("h", "h")),
}


class ZeroGru:
    """The functions of a GRU with 2 inputs and 16 states; every value is zero."""

    def run(self, function: str, inputs: Arrays) -> Arrays:  # noqa: ARG002
        outputs = FUNCTIONS[function].outputs
        return {output.name: np.zeros(output.shape, np.float32) for output in outputs}


def gru_service() -> ArrayService:
    """A service with the functions of a GRU."""
    manifest = manifest_of(*FUNCTIONS.values())
    x = {"x": np.zeros((1, 2), np.float32)}
    golden = GoldenExample(function="step", inputs=x, outputs=ZeroGru().run("step", x))
    return ArrayService(*local_calls(ZeroGru(), manifest, [golden]), manifest)


def two_models() -> ModelPool:
    """A server with two models that chat."""
    fields = {"template": templates.CHATML}
    return pool(*(FakeModel(name=name, fields=fields) for name in ("gemma3-270m", "smollm2-135m")))


SERVICES: dict[str, Callable[[], Service | ModelPool]] = {
    "gru": gru_service,
    "language": lambda: scripted("Hello!"),
    "models": two_models,
}


def loaded(name: str) -> Model:
    """What hearthd.load would return for a model of this name."""
    return Model(encoders.service(scores=False) if "minilm" in name else scripted("Hello!"))


@contextmanager
def server(example: Example) -> Iterator[str]:
    """The address of the server that an example needs, if any; without one it may load models."""
    if example.server is None:
        yield ADDRESS
        return
    if example.server == "loaded":
        with mock.patch("hearthd.load", loaded):
            yield ADDRESS
        return
    with fakes.running(SERVICES[example.server]()) as client:
        yield str(client.base_url).rstrip("/")


def marked(language: str) -> list[object]:
    return [
        pytest.param(one, id=f"{one.page}:{one.line}") for one in examples(language) if one.marked
    ]


@pytest.mark.parametrize("example", marked("python"))
def test_python_examples_run(example: Example) -> None:
    with server(example) as address:
        source = "\n" * example.line + example.text.replace(ADDRESS, address)
        exec(compile(source, example.page, "exec"), {"__name__": "example"})


@pytest.mark.parametrize("example", marked("bash"))
def test_shell_examples_run(example: Example) -> None:
    assert shutil.which("curl"), "the examples need curl"
    with server(example) as address:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", example.text.replace(ADDRESS, address)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert '"error"' not in done.stdout, done.stdout


def test_every_python_example_is_marked_to_run() -> None:
    assert [f"{one.page}:{one.line}" for one in examples("python") if not one.marked] == []


def test_the_api_pages_list_every_route() -> None:
    names = ("api", "compatible-apis")
    pages = "".join((ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in names)
    listed = {
        path
        for row in re.findall(r"^\| (`.+?) \|", pages, re.M)
        for path in _PATH.findall(row)
        if "{" not in path
    }
    with (
        fakes.running(scripted("Hello!")) as model,
        fakes.running(gru_service()) as arrays,
        fakes.running(speech_services.service(ScriptedListener([]))) as speech,
    ):
        schemas = [client.get("/openapi.json").json() for client in (model, arrays, speech)]
    served = {path for schema in schemas for path in schema["paths"] if "{" not in path}
    assert listed == served
