"""Real models by the real `openai` client: llama.cpp's words, whole and in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.server.services.language_service import open_language_service
from tests.server.openai_servers import client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import openai

    from tests.conftest import Bundles
    from tests.e2e.conftest import RealModel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(real_model: RealModel) -> Iterator[openai.OpenAI]:
    with client_of(open_language_service(real_model.bundle)) as client:
        yield client


def test_greedy_text_equals_llama_cpps(client: openai.OpenAI, real_model: RealModel) -> None:
    case = real_model.cases["facts"]
    asked: dict[str, Any] = {
        "model": "gemma",
        "prompt": case["prompt"],
        "max_tokens": 12,
        "temperature": 0,
        "logprobs": 3,
    }
    answer = client.completions.create(**asked)
    text = answer.choices[0].text
    assert case["text"].startswith(text)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(case["prompt_ids"])
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert len(logprobs.tokens or []) == 12
    assert "".join(logprobs.tokens or []) == text
    chunks = list(client.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == text


@pytest.mark.nightly
def test_similar_texts_have_similar_vectors(bundles: Bundles) -> None:
    texts = ["The cat sat on the mat.", "A cat is sitting on a rug.", "def f(x): return x + 1"]
    with client_of(open_language_service(bundles["gemma3"])) as client:
        embeddings = client.embeddings.create(model="gemma", input=texts).data
    cat, other_cat, code = (np.asarray(item.embedding) for item in embeddings)
    assert cat @ other_cat > 0.8 > 0.3 > cat @ code
