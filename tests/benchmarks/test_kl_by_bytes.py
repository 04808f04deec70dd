"""The benchmark of KL divergence by bytes per token, on models without weights."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from benchmarks import kl_by_bytes
from benchmarks.engines.step_bytes import step_bytes
from benchmarks.kl_by_bytes import Quality, Reference, main, quality, read_some, table_of
from hearthd.baker.compare.measurement.passages import Passage
from hearthd.baker.compare.measurement.position_metrics import measure
from hearthd.baker.compare.sides.side import LlamaSide, ReaderSide, SideDescription, SideError
from hearthd.baker.weights.gguf import GgufSource
from tests.fake_runtime import FakeRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.models.bundle import LanguageManifest

VOCAB = 40
ABOUT = SideDescription(side_type="bundle", name="fake", gives="", details={})
PASSAGES = [
    Passage(name=f"{size}", passage_type="text", token_ids=tuple(range(size)), start=1)
    for size in (11, 3, 20)
]


class Words:
    """Ten tokens for any text."""

    vocab_size = VOCAB

    def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(ord(letter) % VOCAB for letter in text[:10])

    def detokenize(self, token_ids: Any) -> str:
        return f"{token_ids}"


def fake(*, vocab_size: int = VOCAB, context: int = 64, spread: float = 3.0) -> ReaderSide:
    runtime = FakeRuntime(vocab_size=vocab_size, context=context, spread=spread)
    return ReaderSide(runtime, ABOUT, Words())


def reference(folder: Path, every: int = 3) -> Reference:
    return Reference.of(fake(), PASSAGES, every, folder / "logits")


def test_each_nth_position_is_compared_with_its_next_token(tmp_path: Path) -> None:
    read = list(read_some(fake(), PASSAGES, 3))
    positions = [(one, at) for one in PASSAGES for at in range(2, len(one.token_ids), 3)]
    assert [token for token, _ in read] == [one.token_ids[at] for one, at in positions]
    expected = [fake().after(one.token_ids[:at]).logits for one, at in positions]
    np.testing.assert_array_equal([prediction.logits for _, prediction in read], expected)
    np.testing.assert_array_equal(reference(tmp_path).logits, expected)


def test_the_mean_is_that_of_the_divergences_from_the_reference(tmp_path: Path) -> None:
    summary = reference(tmp_path).summary(fake(spread=2.0))
    kl = [
        measure(fake().after(one.token_ids[:at]), fake(spread=2.0).after(one.token_ids[:at]), 0).kl
        for one in PASSAGES
        for at in range(2, len(one.token_ids), 3)
    ]
    assert summary.positions == len(kl) == 10
    assert summary.kl_mean == pytest.approx(np.mean(kl), rel=1e-4)
    assert summary.kl_error == pytest.approx(np.std(kl, ddof=1) / len(kl) ** 0.5, rel=1e-4)
    assert summary.kl_median == pytest.approx(np.median(kl), rel=1e-4)
    assert reference(tmp_path).summary(fake()).kl_mean == 0


@pytest.mark.parametrize(
    ("side", "message"),
    [
        (fake(vocab_size=VOCAB + 1), "41 tokens in its vocabulary, the reference has 40"),
        (fake(context=18), "18 positions, expected 19"),
    ],
)
def test_another_vocabulary_or_a_short_context_is_an_error(
    side: ReaderSide, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SideError, match=message):
        reference(tmp_path).summary(side)


def gguf_file(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    for name, dtype in (("a", np.float16), ("b", np.float16), ("c", np.float32)):
        writer.add_tensor(name, np.zeros((32, 32), dtype))
    writer.add_tensor("norm", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Llama(FakeRuntime):
    """llama.cpp without a model."""

    weights_bytes = 5_250_000

    def logits_after_each(self, read: tuple[int, ...], first: int) -> Iterator[np.ndarray]:
        side = fake(spread=2.0)
        return (side.after(read[:end]).logits for end in range(first, len(read) + 1))


def llama() -> LlamaSide:
    engine: Any = Llama(vocab_size=VOCAB, context=64)
    engine.tokenize = Words().tokenize
    return LlamaSide(engine, replace(ABOUT, side_type="llama.cpp"))


def test_a_gguf_file_has_the_size_of_its_weights_and_the_types_of_its_matrices(
    tmp_path: Path,
) -> None:
    path = gguf_file(tmp_path / "model.gguf")
    measured = quality(str(path), llama(), reference(tmp_path))
    assert (measured.name, measured.is_hearth, measured.step_bytes) == ("Q4_K_M", False, 5_250_000)
    assert measured.types == {"f16": 2, "f32": 1}
    assert measured.kl_mean == reference(tmp_path).summary(fake(spread=2.0)).kl_mean > 0
    (row,) = table_of([measured]).rows
    assert row[:2] == ("llama.cpp Q4_K_M", "5.2")
    assert row[-1] == "2 f16, 1 f32"


def test_an_unknown_file_type_is_shown_by_its_number(tmp_path: Path) -> None:
    source = GgufSource(gguf_file(tmp_path / "model.gguf"))
    metadata: Any = source.metadata()
    metadata["general.file_type"] = 9999
    assert kl_by_bytes.type_name(source) == "type 9999"


def test_a_step_skips_what_refines_the_head_unless_logits_are_exact() -> None:
    class Manifest:
        statistics = {"weights_bytes": 100, "refining_bytes": 30}  # noqa: RUF012

    manifest: LanguageManifest = Manifest()  # type: ignore[assignment]
    assert step_bytes(manifest, exact=False) == 70
    assert step_bytes(manifest, exact=True) == 100


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A GGUF file as the model, and a side with other predictions as the reference."""
    sides = {"f32": fake(), "model.gguf": llama()}

    @contextlib.contextmanager
    def opened(name: str, _: object) -> Iterator[Any]:
        yield sides[Path(name).name]

    monkeypatch.setattr(kl_by_bytes, "opened", opened)
    return gguf_file(tmp_path / "model.gguf")


def earlier(name: str, positions: int) -> Quality:
    return Quality(
        name=name, is_hearth=True, step_bytes=1_000_000, types={}, positions=positions,
        kl_mean=0.5, kl_error=0.1, kl_median=0.4, agreement=0.75,
    )  # fmt: skip


def run(models: Path, *arguments: str) -> None:
    main(["f32", str(models), "--every", "2", "--threads", "1", *arguments])


def test_the_files_of_a_run_are_read_by_a_later_one(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, svg = (tmp_path / name for name in ("a.json", "b.json", "kl.svg"))
    run(models, "--json", str(first))
    (entry,) = json.loads(first.read_text())["models"]
    assert entry["positions"] == 8  # 2 texts of 10 tokens: 2, 4, 6 and 8
    data = {"reference": "f32", "models": [vars(earlier("int4-g32", 8))]}
    first.write_text(json.dumps(data))
    run(models, "--earlier", str(first), "--json", str(second), "--svg", str(svg))
    names = [one["name"] for one in json.loads(second.read_text())["models"]]
    assert names == ["int4-g32", "Q4_K_M"]
    assert all(f">{name}</text>" in svg.read_text() for name in names)
    assert "Hearth int4-g32" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reference", "positions", "message"),
    [("bf16", 8, "reference bf16, expected f32"), ("f32", 7, "7 positions, expected 8")],
)
def test_earlier_figures_of_another_measurement_are_rejected(
    reference: str, positions: int, message: str, models: Path, tmp_path: Path
) -> None:
    file = tmp_path / "a.json"
    file.write_text(
        json.dumps({"reference": reference, "models": [vars(earlier("int4-g32", positions))]})
    )
    with pytest.raises(SystemExit, match=message):
        run(models, "--earlier", str(file))
