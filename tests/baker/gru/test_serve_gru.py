"""A served GRU answers what the formula says."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from tests.baker.gru.gru_example import (
    expected,
)
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.float32]


def command(name: str, *arguments: object, env: dict[str, str] | None = None) -> list[Any]:
    environment = {"PATH": "", "PYTHONPATH": ".", "NO_COLOR": "1", "COLUMNS": "200", **(env or {})}
    return [[sys.executable, "-m", "hearthd", name, *map(str, arguments)], environment]


@pytest.fixture(scope="module")
def client(bundle: Path) -> Iterator[httpx.Client]:
    line, environment = command("serve", bundle, "--port", "0", "--threads", "1")
    with subprocess.Popen(
        line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            match = re.search(r"serves gru \(f32\) at (http://127\.0\.0\.1:\d+)", said)
            assert match, said
            with httpx.Client(base_url=match[1], timeout=PATIENCE) as client:
                yield client
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def run_json(client: httpx.Client, function: str, **inputs: Array) -> dict[str, Array]:
    body = {"function": function, "inputs": {k: v.tolist() for k, v in inputs.items()}}
    response = client.post("/run", json=body)
    assert response.status_code == 200, response.text
    return {k: np.array(v, np.float32) for k, v in response.json()["outputs"].items()}


def run_raw(client: httpx.Client, function: str, **inputs: Array) -> dict[str, Array]:
    shapes = (f"{name}={'x'.join(map(str, array.shape))}" for name, array in inputs.items())
    response = client.post(
        "/run",
        content=b"".join(array.tobytes() for array in inputs.values()),
        headers={
            "Content-Type": "application/octet-stream",
            "Accept": "application/octet-stream",
            "X-Hearth-Function": function,
            "X-Hearth-Inputs": ", ".join(shapes),
        },
    )
    assert response.status_code == 200, response.text
    values, outputs = np.frombuffer(response.content, "<f4"), {}
    for part in response.headers["X-Hearth-Outputs"].split(", "):
        name, sizes = part.split("=")
        shape = tuple(map(int, sizes.split("x")))
        outputs[name] = values[: np.prod(shape)].reshape(shape)
        values = values[np.prod(shape) :]
    assert not values.size
    return outputs


@pytest.mark.parametrize("ask", [run_json, run_raw])
def test_results_equal_the_formula(
    client: httpx.Client,
    sequence: tuple[Array, Array],
    ask: Callable[..., dict[str, Array]],
) -> None:
    x, h0 = sequence
    for case in ({"x": x, "h0": h0}, {"x": x}):
        y, h_n = expected(x, case.get("h0", np.zeros_like(h0)))
        outputs = ask(client, "run", **case)
        np.testing.assert_allclose(outputs["y"], y, rtol=0, atol=2e-6)
        np.testing.assert_allclose(outputs["h_n"], h_n, rtol=0, atol=2e-6)


def test_json_and_binary_results_have_the_same_bits(
    client: httpx.Client, sequence: tuple[Array, Array]
) -> None:
    x, h0 = sequence
    in_json, raw = (ask(client, "run", x=x, h0=h0) for ask in (run_json, run_raw))
    assert {k: v.tobytes() for k, v in in_json.items()} == {k: v.tobytes() for k, v in raw.items()}


def test_calling_step_repeatedly_equals_run(
    client: httpx.Client, sequence: tuple[Array, Array]
) -> None:
    x, h = sequence
    whole = run_raw(client, "run", x=x, h0=h)
    for row, expected_row, ask in zip(
        x, whole["y"], itertools.cycle((run_raw, run_json)), strict=False
    ):
        outputs = ask(client, "step", x=row, h=h)
        np.testing.assert_allclose(outputs["y"], expected_row, rtol=0, atol=1e-6)
        h = outputs["h"]
    np.testing.assert_allclose(h, whole["h_n"], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        (("--cache-ram", "0"), {}, "cache_ram: only valid for language models.*(from --cache-ram)"),
        pytest.param(
            (),
            {"HEARTH_CACHE_DIR": "c"},
            "cache_dir: only valid for .*(from HEARTH_CACHE_DIR)",
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["flag", "environment"],
)
def test_settings_of_language_models_are_rejected(
    bundle: Path, arguments: tuple[str, ...], env: dict[str, str], message: str
) -> None:
    line, environment = command("serve", bundle, "--port", "0", *arguments, env=env)
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(message.replace("(", r"\(").replace(")", r"\)"), done.stderr), done.stderr


@pytest.mark.nightly
def test_text_commands_need_a_language_model(bundle: Path) -> None:
    line, environment = command("generate", bundle, "Once upon a time")
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert "not a language model, which the generation of text needs" in done.stderr
    assert "Traceback" not in done.stderr
