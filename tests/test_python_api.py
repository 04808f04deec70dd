"""`hearthd.load`: a model in this process."""

from __future__ import annotations

import subprocess
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hearthd
from hearthd.bundle import BundleError
from hearthd.model import Model
from hearthd.text.errors import InvalidRequest, RequestError
from tests.server import encoders, fakes
from tests.server.openai_servers import LIBRARY, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MESSAGES = [{"role": "user", "content": "the dog"}]


@pytest.fixture
def chat() -> Iterator[Model]:
    with Model(scripted("Hello there!")) as model:
        yield model


@pytest.fixture
def model() -> Iterator[Model]:
    with Model(fakes.fake_service(LIBRARY, slots=1)) as model:
        yield model


def test_a_stream_joins_to_the_answer(chat: Model) -> None:
    assert chat.chat("the dog") == chat.chat(MESSAGES) == "Hello there!"
    pieces = list(chat.stream(MESSAGES))
    assert chat.chat([MappingProxyType(message) for message in MESSAGES]) == "Hello there!"
    assert len(pieces) > 1
    assert "".join(pieces) == "Hello there!"


def test_the_options_of_a_request_are_those_of_the_server(model: Model) -> None:
    options: dict[str, Any] = {"seed": 5, "temperature": 1.5, "max_tokens": 12}
    text = model.generate("the dog", **options)
    assert text == model.generate("the dog", **options) != model.generate("the dog", max_tokens=12)
    with fakes.running(fakes.fake_service(LIBRARY, slots=1)) as client:
        body = {"prompt": "the dog", **options}
        assert client.post("/generate", json=body).json()["text"] == text


def test_a_stream_that_is_left_is_cancelled() -> None:
    service = fakes.fake_service(LIBRARY, slots=1, delay=0.01)
    with Model(service) as model:
        for piece in model.stream("the dog", max_tokens=60):
            assert piece
            break
        assert model.generate("the dog", max_tokens=2)
        model.close()  # once more at the end of the block
    samples = [sample for metric in service.metrics.collect() for sample in metric.samples]
    outcomes = {
        sample.labels["outcome"]: sample.value
        for sample in samples
        if sample.name == "hearth_completions_total"
    }
    assert outcomes == {"cancelled": 1, "length": 1}


def test_a_wrong_option_is_named(model: Model) -> None:
    with pytest.raises(InvalidRequest, match=r"temperature: got .*hot"):
        model.generate("x", temperature="hot")
    with pytest.raises(TypeError, match="unknown option 'max_new_tokens'"):
        model.generate("x", max_new_tokens=3)
    with pytest.raises(RequestError, match="prompt is too long"):
        model.generate("the dog " * 3000)
    with pytest.raises(InvalidRequest, match="chat template"):
        model.chat("x")


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "boss", "content": "x"}, r"messages\[0\].role: got .*boss"),
        (
            {"role": "user", "content": "x", "mood": 1},
            r"messages\[0\].mood: got 1, expected no field",
        ),
        ("user", r"messages\[0\]: got \"user\", expected a JSON object"),
        ({"role": "user"}, r"messages\[0\].content: got null, expected a value"),
        ({"role": "user", "content": [{"type": "image"}]}, r"content\[0\]: .* cannot read images"),
    ],
)
def test_a_wrong_message_is_named(chat: Model, message: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        chat.chat([message])


def test_embeddings_are_rows(model: Model) -> None:
    rows = model.embed(["the dog", "the fox"])
    assert rows.dtype == np.float32
    assert np.array_equal(rows[1], model.embed("the fox"))
    assert not np.array_equal(rows[0], rows[1])
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1)


def test_an_encoder_embeds_and_does_not_answer() -> None:
    with Model(encoders.service(scores=False)) as model:
        assert model.embed(["a b", "a"]).shape[0] == 2
        with pytest.raises(TypeError, match="is an encoder"):
            model.generate("x")


def test_a_bundle_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="not a bundle"):
        hearthd.load(tmp_path / "absent")


def test_importing_the_package_imports_no_server() -> None:
    code = "import sys, hearthd; print(*sorted(m for m in sys.modules if 'hearthd' in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "hearthd\n"
