"""Real models behind the real server: a process, a port, llama.cpp's words."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import jsonschema_rs
import pytest

from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import RealModel

pytestmark = pytest.mark.slow

# The server's environment holds the compiler, as this one does: it must not be touched.
_SERVE = "import sys; sys.modules['iree.compiler'] = None; from hearthd.cli import main; main()"


@pytest.fixture(scope="module")
def server(real_model: RealModel) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """`hearth serve` on a free port, and a client of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, "serve", str(real_model.bundle), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    ready = process.stdout.readline()
    address = re.search(r"http://\S+", ready)
    assert address, f"no address in {ready!r}"
    with httpx.Client(base_url=address.group(), timeout=120) as client:
        yield process, client
    process.kill()
    process.wait()
    process.stdout.close()


def test_health_reports_the_self_test(server: tuple[subprocess.Popen[str], httpx.Client]) -> None:
    health = server[1].get("/health")
    assert health.status_code == 200
    assert health.json()["self_test"]["passed"] is True


@pytest.mark.parametrize("name", ["facts", "code", "french", "spaces"])
def test_greedy_text_equals_llama_cpps(
    server: tuple[subprocess.Popen[str], httpx.Client], real_model: RealModel, name: str
) -> None:
    case = real_model.cases[name]
    body = {"prompt": case["prompt"], "max_tokens": 12, "temperature": 0}
    answer = server[1].post("/generate", json=body).json()
    assert answer["usage"]["prompt_tokens"] == len(case["prompt_ids"])
    assert answer["token_ids"] == case["greedy_ids"][:12]
    assert case["text"].startswith(answer["text"])
    assert answer["finish_reason"] == "length"


def test_a_stream_has_the_same_answer(
    server: tuple[subprocess.Popen[str], httpx.Client], real_model: RealModel
) -> None:
    body = {
        "prompt": real_model.cases["french"]["prompt"],
        "max_tokens": 8,
        "seed": 7,
        "logprobs": 2,
    }
    whole = server[1].post("/generate", json=body).json()
    pieces, ids, last = "", [], None
    with server[1].stream("POST", "/generate", json={**body, "stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data:"):
                last = json.loads(line.removeprefix("data:"))
                pieces += last["text"]
                ids += last["token_ids"]
    assert last is not None
    assert (pieces, ids) == (whole["text"], whole["token_ids"])
    assert (last["finish_reason"], last["usage"]) == (whole["finish_reason"], whole["usage"])


def test_a_prompt_longer_than_gemmas_window_has_llama_cpps_tokens(
    server: tuple[subprocess.Popen[str], httpx.Client], real_model: RealModel
) -> None:
    case = real_model.cases["fdl_1290"]
    body = {"prompt": case["prompt_ids"], "max_tokens": 8, "temperature": 0}
    assert server[1].post("/generate", json=body).json()["token_ids"] == case["greedy_ids"][:8]


def test_answers_follow_a_json_schema(server: tuple[subprocess.Popen[str], httpx.Client]) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 30},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "likes": {"type": "array", "items": {"enum": ["tea", "coffee"]}, "maxItems": 3},
        },
        "required": ["name", "age", "likes"],
        "additionalProperties": False,
    }
    prompt = "Ann is 41 years old and drinks nothing but tea. As JSON:\n"
    for fields in ({"temperature": 0}, {"seed": 2, "temperature": 1.5}):
        body = {"prompt": prompt, "max_tokens": 120, "json_schema": schema, **fields}
        answer = server[1].post("/generate", json=body).json()
        assert answer["finish_reason"] == "stop"
        jsonschema_rs.Draft202012Validator(schema).validate(json.loads(answer["text"]))
    body = {"prompt": prompt, "json_schema": {"not": {}}}
    assert server[1].post("/generate", json=body).status_code == 400


def test_sigterm_ends_the_server(server: tuple[subprocess.Popen[str], httpx.Client]) -> None:
    process, _ = server
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) == 0
