"""POST /run, on a real server with functions that need no compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hearthd.server.api.native.array_bodies import FUNCTION, INPUTS, OUTPUTS, RAW
from hearthd.server.app import Guards, create_app
from tests.patience import PATIENCE
from tests.server import fakes, functions
from tests.server.api.operator.test_operator_routes import figure, figures
from tests.server.api.test_openapi import CHECKS, document_of
from tests.server.functions import POISON, FakeFunctions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

X = np.arange(6, dtype=np.float32).reshape(2, 3) - np.float32(1.3)
H = X.T.reshape(2, 3) / np.float32(7)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(functions.service()) as client:
        yield client


def post_json(client: httpx.Client, name: str, **inputs: object) -> httpx.Response:
    lists = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in inputs.items()}
    return client.post("/run", json={"function": name, "inputs": lists})


def post_raw(client: httpx.Client, name: str, **inputs: Array) -> httpx.Response:
    """The request, and the wish for an answer, as raw bytes."""
    shapes = [f"{k}={'x'.join(map(str, v.shape))}" for k, v in inputs.items()]
    headers = {
        "Content-Type": RAW,
        "Accept": RAW,
        FUNCTION: name,
        INPUTS: ", ".join(shapes),
    }
    body = b"".join(array.astype("<f4").tobytes() for array in inputs.values())
    return client.post("/run", content=body, headers=headers)


def test_a_duplicate_key_is_rejected_by_name(client: httpx.Client) -> None:
    body = '{"function": "run", "inputs": {"x": [], "x": []}}'
    refused = client.post("/run", content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "x")


def from_raw(response: httpx.Response) -> dict[str, Array]:
    """The arrays of an answer, by its headers alone."""
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == RAW
    outputs, start = {}, 0
    for part in response.headers[OUTPUTS].split(", "):
        name, _, sizes = part.partition("=")
        shape = tuple(int(size) for size in sizes.split("x") if size)
        count = int(np.prod(shape))
        values = np.frombuffer(response.content, "<f4", count, start)
        outputs[name] = values.reshape(shape)
        start += 4 * count
    assert start == len(response.content)
    return outputs


def from_json(response: httpx.Response) -> dict[str, Array]:
    assert response.status_code == 200, response.text
    return {k: np.array(v, np.float32) for k, v in response.json()["outputs"].items()}


def refused(response: httpx.Response, field: str, expected: str) -> None:
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == field
    assert expected in error["expected"]


# What is computed.


def test_json_arrays_go_in_and_come_out(client: httpx.Client) -> None:
    response = post_json(client, "step", x=X, h=H)
    assert response.json()["function"] == "step"
    assert list(response.json()["outputs"]) == ["y", "h"]
    outputs = from_json(response)
    np.testing.assert_array_equal(outputs["y"], 2 * X + H)
    np.testing.assert_array_equal(outputs["h"], H + X)


def test_an_absent_state_is_zeros(client: httpx.Client) -> None:
    for answer in (
        from_json(post_json(client, "step", x=X)),
        from_raw(post_raw(client, "step", x=X)),
    ):
        np.testing.assert_array_equal(answer["y"], 2 * X)


def test_a_state_travels_with_the_requests(client: httpx.Client) -> None:
    first = from_raw(post_raw(client, "step", x=X))
    second = from_raw(post_raw(client, "step", x=H, h=first["h"]))
    np.testing.assert_array_equal(second["h"], X + H)


def test_raw_inputs_are_in_the_order_of_the_header(client: httpx.Client) -> None:
    np.testing.assert_array_equal(from_raw(post_raw(client, "step", h=H, x=X))["y"], 2 * X + H)


finite = st.floats(-(2.0**100), 2.0**100, width=32)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(x=arrays.arrays(np.float32, (2, 3), elements=finite))
def test_json_and_raw_have_the_same_bits(client: httpx.Client, x: Array) -> None:
    in_json, raw = (
        from_json(post_json(client, "step", x=x)),
        from_raw(post_raw(client, "step", x=x)),
    )
    for name in ("y", "h"):
        assert in_json[name].tobytes() == raw[name].tobytes()


@pytest.mark.parametrize("raw", [False, True])
def test_the_accept_header_selects_the_format(client: httpx.Client, raw: bool) -> None:
    """Whatever form the request has: JSON for a raw request, and the other way round."""
    body = {"function": "step", "inputs": {"x": X.tolist()}}
    if raw:
        headers = {"Content-Type": RAW, FUNCTION: "step", INPUTS: "x=2x3"}
        outputs = from_json(client.post("/run", content=X.tobytes(), headers=headers))
    else:
        outputs = from_raw(client.post("/run", json=body, headers={"Accept": f"text/plain, {RAW}"}))
    np.testing.assert_array_equal(outputs["y"], 2 * X)


def test_infinity_and_nan_are_null_in_json_and_kept_in_raw(client: httpx.Client) -> None:
    x = np.array([4, -1, 0, 9], np.float32)
    assert post_json(client, "root", x=x).json()["outputs"] == {"y": [2, None, 0, 3], "sum": 12}
    raw = from_raw(post_raw(client, "root", x=x))
    np.testing.assert_array_equal(raw["y"], np.array([2, np.nan, 0, 3], np.float32))
    assert raw["sum"].shape == ()


def test_an_integer_is_a_number(client: httpx.Client) -> None:
    response = post_json(client, "step", x=[[1, 2, 3], [4, 5, 2**60]])
    assert from_json(response)["y"][1, 2] == np.float32(2.0**61)


# What is refused.


@pytest.mark.parametrize(
    ("x", "field", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], "inputs.x", "a list of 2: an array of shape 2x3"),
        ([[1, 2, 3]], "inputs.x", "a list of 2"),
        ([[1, 2, 3], [4, 5]], "inputs.x[1]", "a list of 3"),
        ([[1, 2, 3], 4], "inputs.x[1]", "a list of 3"),
        ([[1, 2, 3], [4, 5, [6]]], "inputs.x[1][2]", "a number"),
        ([[1, 2, 3], [4, 5, True]], "inputs.x[1][2]", "a number"),
        ([[1, 2, 3], [4, 5, None]], "inputs.x[1][2]", "a number"),
        ([[1, 2, "3"], [4, 5, 6]], "inputs.x[0][2]", "a number"),
        (7, "inputs.x", "a list of 2"),
        ("AAAA", "inputs.x", "a list of 2"),
        ({"0": [1, 2, 3]}, "inputs.x", "a list of 2"),
        ([[1, 2, 3], [4, 5, 1e39]], "inputs.x[1][2]", "a finite 32-bit number"),
        ([[1, 2, 3], [4, 5, 10**400]], "inputs.x", "finite 32-bit numbers"),
    ],
    ids=repr,
)
def test_json_of_another_shape_is_rejected(
    client: httpx.Client, x: object, field: str, expected: str
) -> None:
    refused(post_json(client, "step", x=x), field, expected)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_json_with_infinity_or_nan_is_rejected(client: httpx.Client, word: str) -> None:
    text = f'{{"function": "root", "inputs": {{"x": [1, 2, {word}, 4]}}}}'
    headers = {"Content-Type": "application/json"}
    refused(
        client.post("/run", content=text, headers=headers), "inputs.x[2]", "a finite 32-bit number"
    )


@pytest.mark.parametrize(
    ("body", "field", "expected"),
    [
        ({"function": "stop", "inputs": {}}, "function", "one of step, root"),
        ({"function": 3, "inputs": {}}, "function", "string"),
        ({"inputs": {}}, "function", "a value"),
        ({"function": "step"}, "inputs", "a value"),
        ({"function": "step", "inputs": [1]}, "inputs", "object"),
        ({"function": "step", "inputs": {}}, "inputs.x", "an array of shape 2x3"),
        ({"function": "root", "inputs": {"x": [0] * 4, "h": 0}}, "inputs.h", "one of x"),
        ({"function": "step", "inputs": {}, "stream": True}, "stream", "no field of this name"),
        ([], "body", "a JSON object"),
    ],
    ids=repr,
)
def test_json_with_wrong_names_is_rejected(
    client: httpx.Client, body: object, field: str, expected: str
) -> None:
    refused(client.post("/run", json=body), field, expected)


@pytest.mark.parametrize(
    "text",
    ['{"function', "", "[" * 100_000, "1" * 5000, "\xff\xfe"],
    ids=["cut", "empty", "deep", "long", "bytes"],
)
def test_unreadable_json_is_rejected(client: httpx.Client, text: str) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    response = client.post("/run", content=text.encode("latin-1"), headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(
        ("body: not JSON", "body: not readable JSON")
    )


def test_deeply_nested_json_is_rejected(client: httpx.Client) -> None:
    """Just deep enough to be read, wherever the limit is."""
    for depth in range(960, 1000):
        text = f'{{"function": "step", "inputs": {"[" * depth}{"]" * depth}}}'
        headers = {"Content-Type": "application/json"}
        assert client.post("/run", content=text, headers=headers).status_code == 400, depth


@pytest.mark.parametrize(
    ("headers", "size", "field", "expected"),
    [
        ({FUNCTION: "stop"}, 24, FUNCTION, "one of step, root"),
        ({FUNCTION: None}, 24, FUNCTION, "one of step, root"),
        ({INPUTS: None}, 24, INPUTS, "the inputs in the body with their shapes, of x=2x3, h=2x3"),
        ({INPUTS: ""}, 24, INPUTS, "of x=2x3, h=2x3"),
        ({INPUTS: "x=3x2"}, 24, INPUTS, "of x=2x3, h=2x3"),
        ({INPUTS: "x"}, 24, INPUTS, "of x=2x3, h=2x3"),
        ({INPUTS: "x=2x3, x=2x3"}, 48, INPUTS, "of x=2x3, h=2x3"),
        ({INPUTS: "x=2x3; h=2x3"}, 48, INPUTS, "of x=2x3, h=2x3"),
        ({INPUTS: "x=2x3, z=2x3"}, 48, INPUTS, "of x=2x3, h=2x3"),
        ({INPUTS: "h=2x3"}, 24, "inputs.x", "an array of shape 2x3"),
        ({}, 20, "body", "24 bytes, little-endian float32 of x=2x3"),
        ({}, 0, "body", "24 bytes"),
        ({}, 25, "body", "24 bytes"),
        ({INPUTS: "x=2x3, h=2x3"}, 24, "body", "48 bytes, little-endian float32 of x=2x3, h=2x3"),
        ({"Content-Type": "text/plain"}, 24, "Content-Type", f"application/json or {RAW}"),
        ({"Content-Type": None}, 24, "Content-Type", f"application/json or {RAW}"),
    ],
    ids=str,
)
def test_raw_bytes_with_wrong_headers_are_rejected(
    client: httpx.Client, headers: dict[str, str | None], size: int, field: str, expected: str
) -> None:
    whole = {"Content-Type": RAW, FUNCTION: "step", INPUTS: "x=2x3", **headers}
    sent = {name: value for name, value in whole.items() if value is not None}
    refused(client.post("/run", content=bytes(size), headers=sent), field, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_raw_infinity_and_nan_are_rejected(client: httpx.Client, value: float) -> None:
    x = X.copy()
    x[1, 0] = value
    refused(post_raw(client, "step", x=x), "inputs.x[1][0]", "a finite 32-bit number")


def test_a_failed_function_is_a_500_and_the_next_call_succeeds(client: httpx.Client) -> None:
    response = post_json(client, "root", x=[POISON, 0, 0, 0])
    assert response.status_code == 500
    message = response.json()["error"]["message"]
    assert message == "root failed: RuntimeError: poison"
    assert post_json(client, "root", x=[1, 1, 1, 1]).status_code == 200


# Around it.


def test_an_array_program_has_its_own_routes(client: httpx.Client) -> None:
    health = client.get("/health").json()
    assert health["model"] == {
        "architecture": "fake",
        "precision": "f32",
        "target": "host",
        "functions": ["step", "root"],
    }
    assert health["self_test"]["steps"] == 4
    assert client.get("/health/ready").status_code == 200
    assert client.get("/v1/bundle").json()["kind"] == "arrays"
    for path in ("/", "/generate", "/v1/chat/completions", "/props", "/slots"):
        assert client.get(path).status_code == 404, path
    assert set(client.get("/openapi.json").json()["paths"]) == {
        "/run", "/health", "/health/ready", "/metrics", "/v1/bundle", "/v1/bundle/reload",
        "/v1/models", "/v1/models/{name}", "/models/load", "/models/unload", "/api/version",
        "/api/tags", "/api/ps", "/api/show", "/api/copy", "/api/create", "/api/delete",
        "/api/pull", "/api/v0/models", "/api/v0/models/{name}", "/v1beta/models",
        "/v1beta/models/{model}",
    }  # fmt: skip


def test_a_language_model_has_no_run_route() -> None:
    with fakes.running(fakes.fake_service(fakes.gemma_like())) as client:
        response = post_json(client, "step", x=X)
        assert response.status_code == 404
        message = response.json()["error"]["message"]
        assert message == (
            "/run: this server has no model for this route, which needs array functions; serve one"
        )


def test_run_has_the_middleware_of_every_route() -> None:
    guards = Guards(api_keys=("secret-key",), cors_origins=("https://page.example",))
    pool = fakes.pool(functions.service(), max_body_bytes=200)
    with fakes.running(pool, guards=guards) as client:
        assert client.get("/health").status_code == 200
        assert post_json(client, "step", x=X).status_code == 401
        client.headers["Authorization"] = "Bearer secret-key"
        client.headers["X-Request-Id"] = "mine"
        client.headers["Origin"] = "https://page.example"
        response = post_raw(client, "step", x=X)
        assert response.status_code == 200
        assert response.headers["X-Request-Id"] == "mine"
        assert OUTPUTS in response.headers["Access-Control-Expose-Headers"]
        assert post_json(client, "step", x=X.repeat(20, axis=1)).status_code == 413


def test_metrics_count_runs(client: httpx.Client) -> None:
    before = figures(client)
    post_json(client, "step", x=X)
    post_json(client, "step", x=[])
    post_json(client, "root", x=[POISON, 0, 0, 0])
    after = figures(client)

    def more(name: str, *labels: str) -> float:
        return figure(after, name, *labels) - figure(before, name, *labels)

    assert more("runs_total", "step", "done") == 1
    assert more("runs_total", "root", "failed") == 1
    assert more("run_seconds_count", "step") == 1
    assert more("queue_seconds_count") == 1
    assert more("http_requests_total", "/run", "400") == 1
    assert figure(after, "slots") == 1
    assert figure(after, "queue_limit") == 8
    assert figure(after, "self_test_passed") == 1


def test_a_program_that_fails_the_self_test_rejects_calls() -> None:
    with fakes.running(functions.service(FakeFunctions(wrong=True))) as client:
        response = post_json(client, "step", x=X)
        assert response.status_code == 503
        assert "a value differs by 1 at step: y" in response.json()["error"]["message"]
        assert client.get("/health/ready").status_code == 503


@pytest.fixture(scope="module")
def document() -> schemathesis.BaseSchema:
    return document_of(create_app(fakes.pool(functions.service())))


def require_answers_as_documented(case: schemathesis.Case[Any], client: httpx.Client) -> None:
    case.call_and_validate(base_url=str(client.base_url), timeout=PATIENCE, checks=CHECKS)


GENERATED = settings(
    max_examples=30,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@schemathesis.pytest.from_fixture("document").include(path="/run").parametrize()
@GENERATED
def test_no_generated_request_breaks_the_server(
    case: schemathesis.Case[Any], client: httpx.Client
) -> None:
    require_answers_as_documented(case, client)


@pytest.mark.nightly
@schemathesis.pytest.from_fixture("document").exclude(path="/run").parametrize()
@GENERATED
def test_no_generated_request_of_another_route_breaks_the_server(
    case: schemathesis.Case[Any], client: httpx.Client
) -> None:
    require_answers_as_documented(case, client)
