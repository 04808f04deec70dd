"""The HTML, Markdown and JSON of a report have the same content and never contain markup."""

from __future__ import annotations

import html.parser
import json
import os
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import jsonschema_rs
import numpy as np
import pytest
from typing_extensions import override

from hearthd.baker.compare.measurement.passages import Passage
from hearthd.baker.compare.measurement.position_metrics import measure
from hearthd.baker.compare.measurement.side_by_side import (
    ComparisonResult,
    NotablePosition,
    PassageResult,
)
from hearthd.baker.compare.report.html_page import page
from hearthd.baker.compare.report.markdown import markdown
from hearthd.baker.compare.report.publish import publish
from hearthd.baker.compare.report.summary import Report, build_report
from hearthd.baker.compare.report.summary_tables import passages_table, summary_table
from hearthd.baker.compare.report.thresholds import Limits, failures
from hearthd.baker.compare.sides.prediction import FullPrediction, TopPrediction
from hearthd.baker.compare.sides.side import ALL, SideDescription
from tests.by_day import first_by_day

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hearthd.baker.compare.sides.prediction import Prediction

HOSTILE = "<script>alert('x')</script> | **bold** `code` <img src=http://evil.example/x>"
VOCAB = 12


class Words:
    """A vocabulary in which one token is hostile."""

    vocab_size = VOCAB

    def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(len(word) % VOCAB for word in text.split())

    def detokenize(self, token_ids: Sequence[int]) -> str:
        return "".join(HOSTILE if token == 3 else f" w{token}\n" for token in token_ids)


class Silent:
    """A side; only its name is used."""

    vocabulary = None
    vocab_size = None
    context = None

    def __init__(self, name: str) -> None:
        self.about = SideDescription(
            side_type="bundle", name=name, gives=ALL, details={"precision": HOSTILE}
        )

    def after(self, token_ids: Sequence[int]) -> Prediction:
        raise NotImplementedError

    def read(self, token_ids: Sequence[int], start: int) -> None:
        raise NotImplementedError


def reading(
    name: str, passage_type: str, places: int, *, truncated: bool, seed: int
) -> PassageResult:
    random = np.random.default_rng(seed)
    passage = Passage(
        name=name,
        passage_type=passage_type,  # type: ignore[arg-type]
        token_ids=tuple(int(token) for token in random.integers(0, VOCAB, places + 2)),
        start=2,
    )
    measured, first = [], None
    for place in range(2, places + 2):
        logits = random.standard_normal(VOCAB).astype(np.float32)
        a: Prediction = FullPrediction(logits)
        b = FullPrediction(logits + 0.3 * random.standard_normal(VOCAB).astype(np.float32))
        if truncated:
            a = TopPrediction((3, 4), (float(a.logprobs[3]), float(a.logprobs[4])))
        measured.append(measure(a, b, passage.token_ids[place]))
        if first is None and not measured[-1].agree:
            rows = tuple((token, a.logprob(token), b.logprob(token)) for token in (3, 4, 5))
            first = NotablePosition(passage=passage, position=place, kl=measured[-1].kl, rows=rows)
    return PassageResult(passage=passage, positions=tuple(measured), first_difference=first)


def report(
    *, truncated: bool = False, texts: int = 2, answers: int = 2, places: int = 70
) -> Report:
    readings = [
        *(reading(f"text {n}", "text", places, truncated=truncated, seed=n) for n in range(texts)),
        *(reading(f"a {n}", "answer", 9, truncated=truncated, seed=9 + n) for n in range(answers)),
    ]
    worst = tuple(result.first_difference for result in readings if result.first_difference)
    return build_report(
        Silent("model <a>"),  # type: ignore[arg-type]
        Silent("model_b"),  # type: ignore[arg-type]
        ComparisonResult(passages=tuple(readings), worst=worst),
        Words(),
        [f"a note about {HOSTILE}"],
        created="2026-01-02T03:04:05+00:00",
        hearth="test",
    )


class Seen(html.parser.HTMLParser):
    """The elements and the cells of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []
        self._in_cell = False

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "tr":
            self.rows.append([])
        self._in_cell = tag in ("td", "th")
        if self._in_cell:
            self.rows[-1].append("")

    @override
    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    @override
    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data


def seen(text: str) -> Seen:
    parser = Seen()
    parser.feed(text)
    return parser


def cells_of_markdown(text: str) -> list[list[str]]:
    """The rows of its tables, with the escapes taken back."""
    rows = []
    for line in text.splitlines():
        if line.startswith("| "):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            cells = [cell.replace("&emsp;", "") for cell in cells]  # an indented name
            rows.append([re.sub(r"\\(.)", r"\1", cell).strip() for cell in cells])
    return rows


@pytest.mark.parametrize("truncated", first_by_day([False, True]))
def test_html_markdown_and_json_have_the_same_figures(tmp_path: Path, truncated: bool) -> None:
    made = report(truncated=truncated)
    files = {path.name: path.read_text("utf-8") for path in publish(made, tmp_path / "out")}
    again = Report.model_validate_json(files["report.json"])
    assert again == made
    in_page = seen(files["report.html"]).rows
    in_markdown = cells_of_markdown(files["report.md"])
    for table in (summary_table(again), passages_table(again)):
        for row in (table.headings, *table.rows):
            cells = [cell.strip() for cell in row]
            assert cells in [[cell.strip() for cell in page_row] for page_row in in_page]
            assert cells in in_markdown
    assert [len(row) for row in in_page] == [len(row) for row in in_markdown]


def test_the_json_is_valid_under_its_schema() -> None:
    data = json.loads(report(truncated=True).model_dump_json(), parse_constant=pytest.fail)
    schema = Report.model_json_schema()
    jsonschema_rs.meta.validate(schema)
    jsonschema_rs.validate(schema, data)
    for passage in data["passages"]:
        assert len(passage["kl"]) == len(passage["agree"]) == passage["summary"]["positions"]


@pytest.mark.nightly
def test_a_report_of_top_tokens_states_the_missing_probability() -> None:
    exact, bound = report(), report(truncated=True)
    assert exact.exact
    assert exact.computed == "KL(A || B) over the whole vocabulary, exact."
    assert not bound.exact
    assert bound.texts is not None
    assert bound.answers is not None
    positions = bound.texts.positions, bound.answers.positions
    mass = np.average([bound.texts.mass_a, bound.answers.mass_a], weights=positions)
    assert "lower bound" in bound.computed
    assert f"{1 - mass:.2%} of A's probability" in bound.computed
    assert summary_table(bound).rows[1][0] == "KL divergence, at least: mean"
    assert "lower bound" in page(bound)


@pytest.mark.nightly
def test_text_of_a_model_never_becomes_markup() -> None:
    text = page(report())
    parsed = seen(text)
    assert "script" not in parsed.tags
    assert "img" not in parsed.tags
    assert "link" not in parsed.tags
    assert not [
        name for name, _ in parsed.attributes if name in ("src", "href") or name[:2] == "on"
    ]
    assert "default-src 'none'" in text
    assert "&lt;script&gt;" in text
    in_markdown = markdown(report())
    assert "<script>" not in in_markdown.replace(r"\<", "")
    assert not re.search(r"(?<!\\)<img", in_markdown)


@pytest.mark.parametrize(
    ("texts", "answers", "places"), [(2, 2, 70), (0, 1, 70), (1, 0, 1), (9, 0, 3)]
)
@pytest.mark.nightly
def test_every_plot_has_a_name(texts: int, answers: int, places: int) -> None:
    text = page(report(texts=texts, answers=answers, places=places))
    plots = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(plots) == 2 * (bool(texts) + bool(answers)) + 2
    for plot in plots:
        svg = ET.fromstring(plot)
        assert svg.get("role") == "img"
        assert svg.get("aria-label")


@pytest.mark.nightly
def test_a_report_without_differences_can_be_drawn() -> None:
    made = report()
    passages = [
        passage.model_copy(
            update={"kl": [0.0] * len(passage.kl), "agree": [True] * len(passage.agree)}
        )
        for passage in made.passages
    ]
    assert "<svg" in page(made.model_copy(update={"passages": passages, "worst": []}))


def test_an_exceeded_limit_is_named() -> None:
    made = report()
    assert made.texts is not None
    nothing = Limits(max_kl=None, max_difference=None, min_agreement=None)
    assert failures(made, nothing) == []
    at = Limits(
        max_kl=max(s.kl_mean for s in (made.texts, made.answers) if s),
        max_difference=max(s.largest_difference for s in (made.texts, made.answers) if s),
        min_agreement=min(s.agreement for s in (made.texts, made.answers) if s),
    )
    assert failures(made, at) == []
    strict = Limits(max_kl=0.0, max_difference=0.0, min_agreement=1.0)
    said = failures(made, strict)
    assert len(said) == 6
    assert said[0] == f"texts: the mean KL divergence is {made.texts.kl_mean:.6g}, the limit is 0"
    assert made.texts.agree < made.texts.positions
    assert (
        f"{made.texts.agree} of {made.texts.positions} positions, the limit is 100.00%" in said[2]
    )


@pytest.mark.nightly
def test_an_interrupted_report_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(report(), tmp_path)
    old = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    synced, fsync = [], os.fsync

    def interrupted(file: int) -> None:
        synced.append(file)
        if len(synced) == len(old):
            raise KeyboardInterrupt
        fsync(file)

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish(report(truncated=True), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == old
