"""A bundle of experts that are larger than its memory limit: baked, verified and read."""

from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save_file

from examples.train_tiny_gemma import tokenizer
from hearthd.baker.checks.verification import verify
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.memory_plan import program_memory
from hearthd.baker.reference.numpy_runtime import traced
from hearthd.bundle import VMFB, LanguageManifest, read_manifest_of
from hearthd.models.catalog import ARCHITECTURES
from hearthd.runtime.interface import ALL_LOGITS
from hearthd.runtime.language_model import IreeRuntime
from tests.conftest import Silent, options_for
from tests.models.families.cases import random_tensors
from tests.models.families.mtp_models import shapes_in_folder

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 256,
    "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "max_position_embeddings": 4096, "vocab_size": 257, "rms_norm_eps": 1e-6, "eos_token_id": 256,
    "tie_word_embeddings": True, "num_experts": 16, "num_experts_per_tok": 2,
    "moe_intermediate_size": 128, "norm_topk_prob": True, "rope_theta": 10000.0,
}  # fmt: skip


def write_model(folder: Path) -> Path:
    folder.mkdir()
    architecture = ARCHITECTURES["qwen3moe"]
    config = architecture.from_hugging_face(CONFIG)
    save_file(random_tensors(shapes_in_folder(architecture, config)), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def logits(bundle: Path, manifest: LanguageManifest) -> NDArray[np.float32]:
    runtime = IreeRuntime(bundle, manifest, threads=2)
    caches = runtime.device.expert_caches
    assert (caches is not None and 0 < caches.slots < 16) == (manifest.footprint.experts > 0)
    runtime.prefill(0, list(range(40)), 0)
    return np.array(runtime.decode([0], [40], [40], [ALL_LOGITS]))


@pytest.mark.nightly
@pytest.mark.slow
def test_verify_accepts_streamed_experts_whose_bits_are_those_of_others(tmp_path: Path) -> None:
    weights = write_model(tmp_path / "weights")
    options = {"model": None, "weights": weights, "slots": 1, "precision": "int8-g32"}
    usual = bake(options_for(tmp_path / "usual", context=2048, **options), Silent())
    manifest = read_manifest_of(usual, LanguageManifest)
    limit = program_memory(traced(manifest), 2048, streamed=True).needed(1) + 60_000
    streamed = bake(
        options_for(tmp_path / "streamed", max_memory=limit, context="auto", **options), Silent()
    )
    found = read_manifest_of(streamed, LanguageManifest)
    assert found.footprint.experts > 0 == manifest.footprint.experts
    assert 2048 <= found.context < 4096
    said = StringIO()
    assert verify(streamed, Console(file=said, width=200), Silent())[VMFB].passed
    assert "graph: traced again, equal" in said.getvalue()
    assert "golden values of model.vmfb" in said.getvalue()
    assert np.array_equal(logits(streamed, found), logits(usual, manifest))
