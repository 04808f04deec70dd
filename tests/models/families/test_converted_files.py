"""GGUF files as llama.cpp's converter writes them: they hold the model of the folder.

The files of the other tests are written by gguf_files.py: their tensors are the converter's. Its
keys are read here as it wrote them.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.models.catalog import ARCHITECTURES, ENCODERS
from hearthd.models.decoder.drafting.mtp import MtpConfig
from tests.models.families import ours
from tests.models.families.cases import CASES
from tests.models.families.converted_files import NOT_CONVERTED, converted, digest
from tests.models.families.encoders.encoder_cases import ENCODER_CASES, recorded_encoder
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.gguf_files import write_encoder, write_gguf
from tests.models.families.mtp_models import add_predicting_layer
from tests.models.families.test_families import NOT_IN_GGUF, about

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.decoder.architecture import ArchitectureFiles

# The converter writes other values than the folder's for these: the context, one for Phi-3 that has
# no use, the growth of Mistral 4's queries, which it leaves out, and for the shared experts of
# ERNIE 4.5 a width that only published shapes have. And it leaves out rows of
# positions that RoBERTa skips, and a bias of experts.
OTHERS = {
    "chatglm": "max_context", "falcon-": "max_context", "granite": "max_context",
    "hunyuan": "max_context", "nemotron_h": "max_context",
    "nomic-bert": "max_context", "nomic-moe": "max_context sum_bias", "jina-v3": "max_context",
    "mistral4": "query_growth", "phi3-window": "original_context",
    "ernie4_5-moe-shared": "shared_ffn", "roberta": "skipped", "xlm-roberta": "skipped",
}  # fmt: skip
NO_VALUES = np.empty(0, np.float32)
# Tensors of values that are computed, whose last bits depend on the library.
COMPUTED = ("rope_freqs.weight", ".ssm_a")
# The converter writes how YaRN is computed, the tests' files an exact table.
YARN = {"arcee-arcee", "llama-yarn", "mellum-mellum", "qwen2-yarn", "olmo2-olmo3_yarn"}
NAMES = [name for name in CASES if name not in NOT_CONVERTED | (NOT_IN_GGUF - YARN)]
# A file does not say whether Qwen3 reranks, or which layers of EmbeddingGemma have a window.
ENCODER_NAMES = [
    name
    for name in ENCODER_CASES
    if name not in NOT_CONVERTED | {"qwen3-reranker", "qwen3-reranker-untied", "embeddinggemma-odd"}
]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_as_llamacpps_converter_writes_it_is_read(name: str, tmp_path: Path) -> None:
    architecture = ARCHITECTURES[CASES[name].architecture]
    write_folder(recorded(name), tmp_path)
    config: Any = ours.config_of(open_weights(tmp_path), architecture.name)
    written = config
    if isinstance(config, MtpConfig):
        add_predicting_layer(tmp_path / "model.safetensors", recorded(name).config)
        written = replace(config, mtp=True)
    file = open_weights(write_gguf(tmp_path, architecture.name, written))
    same_file(name, architecture, file, config)


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name.startswith(("qwen35", "qwen3next"))]
)
def test_the_layer_that_predicts_further_tokens_is_found(name: str) -> None:
    """All tensors of the converter's last block are read, and no other one."""
    architecture, recording = ARCHITECTURES[CASES[name].architecture], converted(name)
    shapes = {tensor: shape for tensor, (shape, _) in recording.tensors.items()}
    config: Any = architecture.from_gguf(recording.metadata, shapes, lambda _: NO_VALUES)
    model = architecture.model(replace(config, mtp=True))
    found = {
        tensor.name
        for parameter in model.parameters()
        for tensor in architecture.tensors.parts(config, parameter, tuple(shapes), gguf=True)
    }
    assert found == shapes.keys()


@pytest.mark.parametrize("name", ENCODER_NAMES)
def test_an_encoder_as_llamacpps_converter_writes_it_is_read(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    recorded_encoder(name).write(folder)
    architecture = ENCODERS[ENCODER_CASES[name].architecture]
    source = SafetensorsSource(folder)
    config = architecture.from_hugging_face(source.metadata())
    if architecture.name == "xlm-roberta":  # is stored as BERT
        architecture = ENCODERS["bert"]
    path = write_encoder(source, tmp_path / "model.gguf", architecture.name, config)
    same_file(name, architecture, open_weights(path), config)


def same_file(
    name: str,
    architecture: ArchitectureFiles[Any],
    file: WeightSource,
    config: Any,
) -> None:
    """Assert that a file that the tests wrote has what the converter made of a case."""
    recording, names = converted(name), set(file.names())
    for tensor, (shape, values) in recording.tensors.items():
        if tensor in names:
            assert (tensor, file.shape(tensor)) == (tensor, shape)
            if not tensor.endswith(COMPUTED):
                assert (tensor, digest(file.read(tensor))) == (tensor, values)
        else:
            assert architecture.tensors.is_other_part(tensor, recording.tensors), tensor
    assert names - recording.tensors.keys() == ({"rope_freqs.weight"} if name in YARN else set())
    shapes = {tensor: shape for tensor, (shape, _) in recording.tensors.items()}
    same: Any = architecture.from_gguf(recording.metadata, shapes, file.read)
    expected = {key: getattr(config, key) for key in asdict(same)}
    for start, keys in OTHERS.items():
        if name.startswith(start):
            expected |= {key: getattr(same, key) for key in keys.split()}
    for key, value in expected.items():
        assert getattr(same, key) == about(value), key
