"""The task of extracting orders: its sentences have right answers, and answers are scored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pytest
from typer.testing import CliRunner

from examples.order_extraction import SENTENCES, app, is_right, orders

if TYPE_CHECKING:
    from pathlib import Path


def test_sentences_have_their_fields_and_are_all_different() -> None:
    made = orders(0, 400)
    assert made == orders(0, 400)
    assert made != orders(1, 400)
    assert len({text for text, _ in made}) == 400
    for text, order in made:
        assert order.item in text
        assert order.city in text
    words = {text.split()[0] for text, _ in made}
    assert len(words) > len(SENTENCES)  # sentences that begin with a number or a city


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (' {"count": 2, "item": "red mug", "city": "Oslo"}', True),
        ('{"city":"Oslo","item":"red mug","count":2}', True),
        (' {"count": 2, "item": "red mugs", "city": "Oslo"}', False),
        (' {"count": 2, "item": "red mug", "city": "Oslo", "x": 1}', False),
        (' {"count": 2', False),
        ("", False),
    ],
)
def test_an_answer_is_right_if_it_has_exactly_the_fields(answer: str, right: bool) -> None:
    assert is_right(answer, ' {"count": 2, "item": "red mug", "city": "Oslo"}') == right


def test_the_score_is_the_share_of_right_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CliRunner()
    options = ["--learned", "30", "--tested", "20"]
    assert run.invoke(app, ["make", "--out", str(tmp_path), *options]).exit_code == 0
    learned, tested = (
        (tmp_path / f"{name}.jsonl").read_text().splitlines() for name in ("train", "test")
    )
    assert (len(learned), len(tested)) == (30, 20)
    assert not {*learned} & {*tested}
    answers = {case["prompt"]: case["completion"] for case in map(json.loads, tested)}
    wrong = next(iter(answers))

    def handle(request: httpx.Request) -> httpx.Response:
        prompt = json.loads(request.content)["prompt"]
        text = "?" if prompt == wrong else answers[prompt]
        return httpx.Response(200, json={"choices": [{"text": text}]})

    client = httpx.Client(transport=httpx.MockTransport(handle), base_url="http://server")
    monkeypatch.setattr("examples.order_extraction.httpx.Client", lambda **_: client)
    result = run.invoke(app, ["score", "--data", str(tmp_path / "test.jsonl")])
    assert "19 of 20 right: 95.0%" in result.output
