"""Texts to tokens and back over HTTP, of any length that is accepted."""

from __future__ import annotations

import random
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from hearthd.bundle import CONTEXTS_PER_TEXT
from hearthd.text.tokenizer import Tokenizer
from tests.server import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

LIBRARY = fakes.gemma_like()
CONTEXT = 16_384
LONGEST = CONTEXT * CONTEXTS_PER_TEXT
# About one token per byte.
NOISE = bytes(random.Random(1).choices(range(1, 128), k=LONGEST)).decode()


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(fakes.fake_service(LIBRARY, context=CONTEXT)) as client:
        yield client


@pytest.mark.parametrize("text", ["", "the dog", NOISE, "\N{FOX FACE}" * 1000])
def test_a_text_is_tokenized_in_parts(client: httpx.Client, text: str) -> None:
    tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS)
    body = {"content": text, "add_special": True}
    ids = client.post("/tokenize", json=body).json()["tokens"]
    assert tuple(ids) == tokenizer.encode(text)
    tokens = client.post("/tokenize", json={**body, "with_pieces": True}).json()["tokens"]
    assert [token["id"] for token in tokens] == ids
    pieces = [token["piece"] for token in tokens]
    as_bytes = (bytes(p) if isinstance(p, list) else p.encode() for p in pieces)
    assert b"".join(as_bytes).decode() == f"<bos>{text}"


def test_the_pieces_of_a_long_text_take_little_memory(client: httpx.Client) -> None:
    body = {"content": NOISE, "with_pieces": True}
    tracemalloc.start()
    try:
        with client.stream("POST", "/tokenize", json=body) as response:
            size = sum(map(len, response.iter_raw(4096)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert response.status_code == 200
    assert size > 20 * LONGEST
    assert peak < 100 * LONGEST


def test_as_many_tokens_are_decoded_as_a_text_may_have(client: httpx.Client) -> None:
    """A token of two bytes in a request can be a text of 80."""
    longest = client.post("/detokenize", json={"tokens": [270] * LONGEST})
    assert longest.json()["content"] == LIBRARY.decode([270]) * LONGEST
    refused = client.post("/detokenize", json={"tokens": [270] * (LONGEST + 1)})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], error["expected"]) == ("tokens", f"at most {LONGEST} tokens")
