"""Whatever reading the tokenizer can find is found before a bake waits for the compiler."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.baker.weights.source import TokenizerError
from tests.baker.pipeline.test_bake_encoder import encoder_options, write_model
from tests.baker.small_gemma import small_gemma
from tests.by_day import first_by_day
from tests.conftest import Silent, few_entry_points, options_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMPILES = "wait for the compiler"


class Compiled(Exception):
    """The bake waits for the compiler."""


class UntilCompiled(Silent):
    """A Progress that ends the bake when it would wait for the compiler."""

    @override
    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Any]:
        """Raises Compiled for that stage."""
        if name == COMPILES:
            raise Compiled
        with super().stage(name, total) as advance:
            yield advance


def bake_until_compiled(out: Path, weights: Path) -> None:
    with few_entry_points():
        bake(options_for(out, weights=weights, slots=1), UntilCompiled())


def damage(folder: Path, name: str, **change: Any) -> None:
    path = folder / name
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | change))


def test_an_intact_model_is_compiled(tmp_path: Path) -> None:
    weights = small_gemma(tmp_path / "weights")
    with pytest.raises(Compiled):
        bake_until_compiled(tmp_path / "out", weights)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    first_by_day(
        [
            ("tokenizer.json", {"model": None}, "model: got None"),
            ("tokenizer.json", {"decoder": {"type": "CTC"}}, "decoder: CTC is not supported"),
            ("tokenizer.json", {"pre_tokenizer": {"type": "?"}}, "did not match any variant"),
            ("config.json", {"eos_token_id": 999}, "special token 999 is outside the vocabulary"),
            ("config.json", {"eos_token_id": []}, "no eos token"),
            (
                "tokenizer_config.json",
                {"chat_template": "{% if %}"},
                "the chat template is not valid Jinja: .*; correct it in the file, or remove it$",
            ),
        ]
    ),
)
def test_a_language_model_is_refused(
    tmp_path: Path, file: str, change: dict[str, Any], message: str
) -> None:
    weights = small_gemma(tmp_path / "weights")
    damage(weights, file, **change)
    with pytest.raises(TokenizerError, match=message):
        bake_until_compiled(tmp_path / "out", weights)


class UntilTraced(Silent):
    """A Progress that ends the bake when it traces the model."""

    @override
    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Any]:
        """Raises Compiled for that stage."""
        if name == "trace the model":
            raise Compiled
        with super().stage(name, total) as advance:
            yield advance


def test_a_folder_that_cannot_be_written_is_named_before_the_model_is_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the default one, whose name the weights decide."""
    weights = small_gemma(tmp_path / "weights")
    with pytest.raises(Compiled):
        bake(bake_options({"weights": weights, "out": tmp_path / "out"}), UntilTraced())
    monkeypatch.chdir("/proc")
    with pytest.raises(BakeError, match=r"^--out: /proc/gemma3-custom-\S* cannot be written: "):
        bake(bake_options({"weights": weights}), UntilTraced())


def test_an_encoder_is_refused(tmp_path: Path) -> None:
    weights = write_model(tmp_path / "weights")
    with pytest.raises(Compiled):
        bake(encoder_options(weights, tmp_path / "out"), UntilCompiled())
    damage(weights, "tokenizer.json", pre_tokenizer={"type": "?"})
    with pytest.raises(TokenizerError, match="did not match any variant"):
        bake(encoder_options(weights, tmp_path / "out"), UntilCompiled())
