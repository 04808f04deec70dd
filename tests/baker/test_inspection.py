"""What `hearth inspect` shows of a bundle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from hearthd.baker.checks.inspect_cli import app
from hearthd.baker.checks.inspection import _maker_rows
from hearthd.bundle import (
    CHAT_TEMPLATE,
    DEFAULT_PREFIX_CACHE,
    FileRecord,
    Preset,
    Serving,
    megabytes,
    write_manifest,
)
from tests.bundle.example_manifests import ARRAYS, ENCODER, EXAMPLE

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.bundle import Manifest

POINTS = [point.name for point in EXAMPLE.entry_points]
COUNTS = ("weights_bytes", "parameters", "cache_bytes_per_slot", *(f"ops.{p}" for p in POINTS))
COUNTED = replace(EXAMPLE, statistics=dict.fromkeys(COUNTS, 1))


def test_the_command_has_every_option_that_was_given() -> None:
    options = {"precision": "auto", "max_kl": 0.0, "adapters": None, "batch_first": False}
    origin = replace(EXAMPLE.provenance, options=options)
    command = next(_maker_rows(origin))[1]
    assert command.endswith(" --precision auto --max-kl 0.0")


def test_weights_of_no_package_are_named_by_a_placeholder() -> None:
    (source, *others) = EXAMPLE.provenance.sources
    sources = (replace(source, package=None, version=None), *others)
    origin = replace(EXAMPLE.provenance, sources=sources, options={})
    assert next(_maker_rows(origin))[1] == "hearth bake WEIGHTS"


def inspected(folder: Path, manifest: Manifest, *options: str) -> str:
    write_manifest(folder, manifest)
    result = CliRunner().invoke(app, [str(folder), *options], catch_exceptions=False)
    assert result.exit_code == 0
    return " ".join(result.output.split())


def test_a_page_says_what_a_user_wants_to_know(tmp_path: Path) -> None:
    storages = {"a": "int4-g32", "b": "int8-g32", "c": "int4-g32"}
    shown = inspected(tmp_path, replace(EXAMPLE, storages=storages))
    memory, cache = EXAMPLE.memory, DEFAULT_PREFIX_CACHE
    for fact in (
        f"{tmp_path.name} model gemma3 precision bf16 matrices 2 in int4-g32, 1 in int8-g32",
        "context 2,048 tokens",
        "slots 2, for requests",
        "adapters 2 places of rank 4",
        f"memory {megabytes(memory.needed(1))} MB for one slot",
        f"at most {megabytes(memory.needed(2, cache))} MB for all",
        "chat no: it has no chat template",
        "runs on host (avx2)",
        "made from model.gguf of weights 1.0",
    ):
        assert fact in shown
    assert "entry points" not in shown
    record = FileRecord(name=CHAT_TEMPLATE, bytes=3_000_000, sha256="ab")
    shown = inspected(tmp_path, replace(EXAMPLE, files=(record,)))
    assert "chat yes size 3.0 MB on disk" in shown


def test_a_page_says_what_drafts_tokens(tmp_path: Path) -> None:
    assert "drafter none" in inspected(tmp_path, COUNTED, "--all")
    tuned = replace(EXAMPLE, draft_tokens=4096)
    assert "drafter tuned, drafts 4,096 different tokens" in inspected(tmp_path, tuned)
    caches = tuple(replace(cache, drafts=True) for cache in EXAMPLE.caches)
    shown = inspected(tmp_path, replace(tuned, caches=caches))
    assert "drafter the layer of the weights that predicts further tokens (MTP)" in shown


def test_the_least_memory_is_that_of_the_shortest_context_that_a_server_uses(
    tmp_path: Path,
) -> None:
    serving = Serving(activations="int8", max_memory=None, auto_context=True)
    manifest = replace(COUNTED, serving=serving, context=32768)
    least = megabytes(manifest.memory_of(2048).needed(1))
    assert f"memory {least} MB for one slot" in inspected(tmp_path, manifest)
    assert f"one slot {least} MB" in inspected(tmp_path, manifest, "--all")
    assert least != megabytes(manifest.memory.needed(1))


def test_a_bundle_without_golden_values_was_not_compared(tmp_path: Path) -> None:
    shown = inspected(tmp_path, replace(EXAMPLE, golden=()))
    assert "golden none: not compared with NumPy yet, see hearth verify" in shown


def test_all_prints_the_whole_manifest(tmp_path: Path) -> None:
    shown = inspected(tmp_path, COUNTED, "--all")
    for fact in (*POINTS, "peak while serving", "linear_int8_g32", "hearth bake gemma3", "-O2"):
        assert fact in shown


@pytest.mark.parametrize("manifest", [ARRAYS, ENCODER], ids=["arrays", "encoder"])
def test_a_page_of_array_functions_names_them(manifest: Manifest, tmp_path: Path) -> None:
    assert "functions " in inspected(tmp_path, manifest)


def test_a_page_shows_what_a_modelfile_set(tmp_path: Path) -> None:
    preset = Preset(sampling={"top_k": 20}, stop=("<|end|>",), system="Be\nterse.", license="MIT")
    shown = inspected(tmp_path, replace(EXAMPLE, preset=preset))
    assert 'parameters top_k 20, stop "<|end|>" system Be terse. license MIT' in shown
