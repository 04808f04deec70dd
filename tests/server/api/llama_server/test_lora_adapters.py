"""LoRA adapters in requests: loaded, chosen, listed and unloaded while the server runs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.bundle.lora.adapter_folder import TENSORS
from tests.patience import wait_until
from tests.server import adapter_folders as folders
from tests.server import fakes
from tests.server.generate_client import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

LONG = list(range(5, 35))  # three chunks


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed, name in enumerate(("sql", "json", "other")):
        folders.write(tmp_path / "adapters" / name, folders.tensors(seed))
    return tmp_path / "adapters"


@pytest.fixture
def client(root: Path) -> Iterator[httpx.Client]:
    with fakes.running(service(root)) as client:
        yield client


def service(root: Path, **fields: Any) -> Any:
    return fakes.fake_service(
        LIBRARY, lora_dir=root, adapters=folders.PLACES, slots=2, batch=2, **fields
    )


def load(client: httpx.Client, path: str, **body: Any) -> httpx.Response:
    return client.post("/lora-adapters/load", json={"path": path, **body})


def complete(client: httpx.Client, **body: Any) -> dict[str, Any]:
    fields = {"prompt": LONG, "max_tokens": 6, "temperature": 0, **body}
    response = client.post("/v1/completions", json=fields)
    assert response.status_code == 200, response.text
    data: dict[str, Any] = response.json()
    return data


def text(client: httpx.Client, **body: Any) -> str:
    answer: str = complete(client, **body)["choices"][0]["text"]
    return answer


def problem(response: httpx.Response) -> str:
    assert response.status_code == 400, response.text
    message: str = response.json()["error"]["message"]
    assert "\n" not in message
    return message


def names(client: httpx.Client) -> list[str]:
    return [one["name"] for one in client.get("/lora-adapters").json()]


def test_a_request_chooses_an_adapter_by_name_or_number(client: httpx.Client) -> None:
    base = complete(client)
    assert load(client, "sql").json()["id"] == 0
    assert load(client, "json", name="objects").json()["id"] == 1
    named = complete(client, model="fake-model:sql")
    assert named["model"] == "fake-model:sql"
    assert named["choices"][0]["text"] != base["choices"][0]["text"]
    assert named["system_fingerprint"] != base["system_fingerprint"]
    numbered = complete(client, lora=[{"id": 1, "scale": 0.0}, {"id": 0, "scale": 1.0}])
    assert numbered["choices"] == named["choices"]
    assert numbered["system_fingerprint"] == named["system_fingerprint"]
    halved = complete(client, lora=[{"id": 0, "scale": 0.5}])
    assert halved["system_fingerprint"] != named["system_fingerprint"]
    assert halved["choices"] != named["choices"]
    assert complete(client, lora=[])["choices"] == base["choices"]
    assert text(client, model="fake-model:objects") not in (
        base["choices"][0]["text"],
        named["choices"][0]["text"],
    )


def test_the_default_adapter_is_for_requests_that_choose_none(client: httpx.Client) -> None:
    base = complete(client)
    load(client, "sql")
    load(client, "json")
    assert client.post("/lora-adapters", json=[{"id": 1, "scale": 1.0}]).json()["success"]
    assert [one["scale"] for one in client.get("/lora-adapters").json()] == [0.0, 1.0]
    assert complete(client)["choices"] == complete(client, model="fake-model:json")["choices"]
    assert complete(client, lora=[])["choices"] == base["choices"]
    client.post("/lora-adapters", json=[])
    assert complete(client)["choices"] == base["choices"]


def test_every_route_with_a_model_takes_an_adapter(client: httpx.Client) -> None:
    load(client, "sql")
    bodies: dict[str, dict[str, Any]] = {
        "/generate": {"prompt": "the dog", "temperature": 0},
        "/completion": {"prompt": "the dog", "temperature": 0},
        "/v1/embeddings": {"input": "the dog"},
    }
    for path, body in bodies.items():
        base, adapted = (
            {**client.post(path, json={**body, "model": model}).json(), "timings": None}
            for model in ("", "fake-model:sql")
        )
        assert {**base, "model": None} != {**adapted, "model": None}, path


def test_the_list_of_models_has_the_adapters(client: httpx.Client) -> None:
    load(client, "sql")
    listed = [model["id"] for model in client.get("/v1/models").json()["data"]]
    assert listed == ["fake-model", "fake-model:sql"]
    assert client.get("/v1/models/fake-model:sql").json()["id"] == "fake-model:sql"
    assert client.get("/v1/models/fake-model:json").status_code == 404


def test_adapters_are_answered_together_as_alone(client: httpx.Client) -> None:
    load(client, "sql")
    load(client, "json")
    models = ["fake-model", "fake-model:sql", "fake-model:json"] * 2
    alone = [text(client, model=model) for model in models]
    together: dict[int, str] = {}

    def ask(number: int) -> None:
        together[number] = text(client, model=models[number])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[i] for i in range(len(models))] == alone
    assert len(set(alone)) == 3


def test_the_prefix_cache_is_of_one_adapter_and_scale(client: httpx.Client, root: Path) -> None:
    load(client, "sql")
    load(client, "json")

    def cached(**body: Any) -> int:
        tokens: int = complete(client, **body)["usage"]["prompt_tokens_details"]["cached_tokens"]
        return tokens

    requests: list[dict[str, Any]] = [
        {},
        {"model": "fake-model:sql"},
        {"model": "fake-model:json"},
        {"lora": [{"id": 0, "scale": 0.5}]},
    ]
    answers = [
        (cached(**request), text(client, **request), cached(**request)) for request in requests
    ]
    assert [(first, later) for first, _, later in answers] == [(0, 29)] * 4
    with fakes.running(service(root)) as fresh:
        load(fresh, "sql")
        load(fresh, "json")
        expected = [text(fresh, cache_prompt=False, **request) for request in requests]
    assert [answer for _, answer, _ in answers] == expected


def test_an_adapter_that_is_loaded_again_gives_the_same_answers(client: httpx.Client) -> None:
    load(client, "sql")
    before = complete(client, model="fake-model:sql")
    assert client.post("/lora-adapters/unload", json={"id": 0}).json()["success"]
    assert names(client) == []
    load(client, "other")
    load(client, "sql")
    after = complete(client, model="fake-model:sql")
    assert after["choices"] == before["choices"]
    assert after["system_fingerprint"] == before["system_fingerprint"]


def test_unloading_waits_for_the_requests_that_use_the_adapter(root: Path) -> None:
    with fakes.running(service(root, delay=0.02)) as client:
        load(client, "sql")
        expected = text(client, model="fake-model:sql", max_tokens=30)
        answers: list[str] = []

        def ask() -> None:
            answers.append(text(client, model="fake-model:sql", max_tokens=30))

        def unload() -> None:
            client.post("/lora-adapters/unload", json={"id": 0})
            answers.append("unloaded")

        threads = [threading.Thread(target=work) for work in (ask, unload)]
        threads[0].start()
        wait_until(lambda: client.get("/lora-adapters").json()[0]["requests"] == 1)
        threads[1].start()
        wait_until(lambda: not accepts(client))
        for thread in threads:
            thread.join()
        # The adapter is unloaded after the last byte of the answer is sent: either is read first.
        assert sorted(answers) == sorted([expected, "unloaded"])
        assert names(client) == []


def accepts(client: httpx.Client) -> bool:
    body = {"model": "fake-model:sql", "prompt": [5], "max_tokens": 1}
    return client.post("/v1/completions", json=body).status_code == 200


def test_the_tag_latest_is_an_adapter_only_if_there_is_one(root: Path) -> None:
    folders.write(root / "latest", folders.tensors(5))
    with fakes.running(service(root)) as client:
        plain = text(client)
        assert text(client, model="fake-model:latest") == plain
        load(client, "latest")
        assert text(client, model="fake-model:latest") != plain


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"model": "fake-model:nope"}, "a loaded adapter: sql (id 0), json (id 1)"),
        ({"lora": [{"id": 3, "scale": 1}]}, "lora: got 3, expected a loaded adapter"),
        ({"lora": [{"id": 0}, {"id": 1}]}, "expected at most one adapter"),
        ({"model": "fake-model:sql", "lora": [{"id": 0}]}, "expected none: the model names one"),
        ({"lora": [{"id": -1, "scale": 1}]}, "lora[0].id: got -1, expected"),
        ({"lora": [{"scale": 1}]}, "lora[0].id"),
        ({"lora": 5}, "lora"),
        ({"lora": [{"id": 0, "scale": 1e300}]}, "lora[0].scale"),
    ],
)
def test_a_bad_choice_is_rejected(client: httpx.Client, body: dict[str, Any], message: str) -> None:
    load(client, "sql")
    load(client, "json")
    response = client.post("/v1/completions", json={"prompt": "the", **body})
    assert message in problem(response)


def test_the_defaults_are_at_most_one_adapter(client: httpx.Client) -> None:
    load(client, "sql")
    load(client, "json")
    scales = [{"id": 0, "scale": 1.0}, {"id": 1, "scale": 1.0}]
    assert "at most one adapter" in problem(client.post("/lora-adapters", json=scales))
    assert "loaded adapter" in problem(client.post("/lora-adapters", json=[{"id": 7}]))
    assert [one["scale"] for one in client.get("/lora-adapters").json()] == [0.0, 0.0]


def truncated(root: Path) -> None:
    path = folders.write(root / "bad", folders.tensors(7)) / TENSORS
    path.write_bytes(path.read_bytes()[:-10])


def changed(**tensors: Any) -> Callable[[Path], object]:
    factors = {**folders.tensors(7), **tensors}
    kept = {name: factor for name, factor in factors.items() if factor is not None}
    return lambda root: folders.write(root / "bad", kept)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "rank": (
        lambda root: folders.write(root / "bad", folders.tensors(7, rank=5), rank=5),
        "adapter_config.json: r: got 5, expected at most 4, the --rank of the bundle",
    ),
    "NaN": (
        changed(**{folders.B: np.full((folders.ROWS, folders.RANK), np.nan, np.float32)}),
        "values that are not finite",
    ),
    "missing": (changed(**{folders.B: None}), "lora_B.weight is missing"),
    "extra": (
        changed(**{"base_model.model.lm_head.lora_A.weight": np.zeros((4, 8), np.float32)}),
        "does not fit any matrix of this model",
    ),
    "another model": (
        changed(**{folders.A: np.zeros((folders.RANK, 9), np.float32)}),
        "has shape (4, 9), expected (4, 8)",
    ),
    "integers": (
        changed(**{folders.A: np.zeros((folders.RANK, folders.COLUMNS), np.int32)}),
        "'I32', expected F32, F16, BF16",
    ),
    "truncated": (truncated, "not a complete safetensors file"),
    "DoRA": (
        lambda root: folders.write(root / "bad", folders.tensors(7), use_dora=True),
        "use_dora: got True, expected False",
    ),
    "no tensors": (lambda root: folders.write(root / "bad", {}), "has no tensors"),
    "too large": (
        changed(x=np.zeros(1 << 20, np.float32)),
        "expected at most",
    ),
    "no files": (lambda root: (root / "bad").mkdir(), "adapter_config.json"),
    "huge alpha": (
        lambda root: folders.write(root / "bad", folders.tensors(7), alpha=1e300),
        "which is too large",
    ),
}


@pytest.mark.parametrize("problem_name", BAD)
def test_a_bad_adapter_changes_nothing(client: httpx.Client, root: Path, problem_name: str) -> None:
    make, message = BAD[problem_name]
    make(root)
    load(client, "sql")
    before = text(client, model="fake-model:sql")
    message_of_error = problem(load(client, "bad"))
    assert message in message_of_error
    assert str(root) not in message_of_error  # clients do not learn where the server's files are
    assert names(client) == ["sql"]
    assert text(client, model="fake-model:sql") == before
    assert load(client, "json").status_code == 200  # the place is free


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", ".", "sql/adapter_config.json", "x\0"])
def test_only_folders_in_lora_dir_are_loaded(client: httpx.Client, root: Path, path: str) -> None:
    folders.write(root.parent / "elsewhere", folders.tensors(1))
    assert "a folder in --lora-dir" in problem(load(client, path))
    (root / "link").symlink_to(root.parent / "elsewhere")
    assert "a folder in --lora-dir" in problem(load(client, "link"))


def test_a_gguf_file_is_loaded_by_its_name(client: httpx.Client, root: Path) -> None:
    folders.write_gguf(root / "orders.gguf", folders.tensors(0))
    listed = load(client, "orders.gguf").json()
    assert (listed["name"], listed["path"]) == ("orders", "orders.gguf")
    load(client, "sql")  # with the same factors
    assert text(client, model="fake-model:orders") == text(client, model="fake-model:sql")
    assert text(client, model="fake-model:orders") != text(client)
    client.post("/lora-adapters/unload", json={"id": 1})
    folders.write_gguf(root / "other.gguf", folders.tensors(0), keys={"adapter.type": "x"})
    assert "other.gguf: adapter.type: got 'x', expected 'lora'" in problem(
        load(client, "other.gguf")
    )


def test_more_adapters_than_places_and_a_name_twice_are_rejected(client: httpx.Client) -> None:
    load(client, "sql")
    assert "a name that is not in use" in problem(load(client, "json", name="sql"))
    load(client, "json")
    assert "at most 2 adapters, the places of the bundle" in problem(load(client, "other"))
    assert "loaded adapter" in problem(client.post("/lora-adapters/unload", json={"id": 5}))


def test_of_two_loads_with_one_name_one_is_rejected(client: httpx.Client) -> None:
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda path: load(client, path, name="same"), ("sql", "json")))
    assert sorted(answer.status_code for answer in answers) == [200, 400]
    assert names(client) == ["same"]


def test_a_server_without_a_folder_or_places_says_so(root: Path) -> None:
    with fakes.running(fakes.fake_service(LIBRARY, adapters=folders.PLACES)) as client:
        assert "without --lora-dir" in problem(load(client, "sql"))
    with fakes.running(fakes.fake_service(LIBRARY, lora_dir=root)) as client:
        assert client.get("/lora-adapters").json() == []
        assert "bake it again with --adapters" in problem(load(client, "sql"))
