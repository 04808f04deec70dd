"""The real Gemma 3 by the real `openai` client: llama.cpp's words, whole and in pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import openai
import pytest

from hearthd.server.services.language_service import open_language_service
from tests.server.openai_servers import client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Bundles

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent.parent / "golden" / "gemma3_270m_llamacpp_f32.json"
CASE: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]["story"]


@pytest.fixture(scope="module")
def client(bundles: Bundles) -> Iterator[openai.OpenAI]:
    with client_of(open_language_service(bundles["int8-g32"])) as client:
        yield client


def test_greedy_text_equals_llama_cpps(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "gemma",
        "prompt": CASE["prompt"],
        "max_tokens": 12,
        "temperature": 0,
        "logprobs": 3,
    }
    answer = client.completions.create(**asked)
    text = answer.choices[0].text
    assert CASE["text"].startswith(text)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(CASE["prompt_ids"])
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert len(logprobs.tokens or []) == 12
    assert "".join(logprobs.tokens or []) == text
    chunks = list(client.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == text


def test_similar_texts_have_similar_vectors(client: openai.OpenAI) -> None:
    texts = ["The cat sat on the mat.", "A cat is sitting on a rug.", "def f(x): return x + 1"]
    embeddings = client.embeddings.create(model="gemma", input=texts).data
    cat, other_cat, code = (np.asarray(item.embedding) for item in embeddings)
    assert cat @ other_cat > 0.8 > 0.3 > cat @ code


def test_a_base_model_does_not_chat(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="this bundle has no chat template"):
        client.chat.completions.create(
            model="gemma", messages=[{"role": "user", "content": "Hello"}]
        )
