"""Every encoder against transformers, on random weights that transformers saved.

Where transformers is not installed, what it computed is read from tests/golden/encoders.npz, which
`python -m tests.models.families.record_families` writes.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.reference.numpy_runtime import stored_parameters
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.models.catalog import ARCHITECTURES, ENCODERS
from hearthd.models.config import ConfigError
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.encoder.encoder_entry_points import EncoderOptions
from tests.models.compiled import Compiled
from tests.models.families.encoders.encoder_cases import (
    COUNTS,
    ENCODER_CASES,
    LENGTH,
    TEXTS,
    recorded_encoder,
    token_types,
)
from tests.models.families.gguf_files import write_encoder
from tests.models.families.test_compiled import with_parameters_as_inputs
from tests.models.families.test_families import close
from tests.models.numpy_device import random_arrays

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.config import ModelConfig
    from hearthd.models.program import ArraysProgram

    Array = NDArray[Any]

TOLERANCE = 1e-5  # of the largest value
HAS_TRANSFORMERS = all(map(importlib.util.find_spec, ("torch", "transformers")))
OPTIONS = EncoderOptions(precision="f32", lengths=(LENGTH,), rows=len(COUNTS) * LENGTH)


@dataclass(frozen=True)
class Opened:
    """An encoder in a folder or a GGUF file, with its parameters as a bake writes them."""

    config: ModelConfig
    program: ArraysProgram
    parameters: Mapping[str, Array]


def opened(path: Path, architecture: str, options: EncoderOptions = OPTIONS) -> Opened:
    source, family = open_weights(path), ENCODERS[architecture]
    metadata = source.metadata()
    if source.format == "gguf":
        shapes = {name: source.shape(name) for name in source.names()}
        config: ModelConfig = family.from_gguf(metadata, shapes, source.read)
    else:
        config = family.from_hugging_face(metadata)
    program = family.program(config, options)
    archive = path.with_suffix(".irpa")
    write_parameters(source, locate(source, family, config, program), archive, lambda _: None)
    return Opened(config, program, stored_parameters(program.parameters, archive))


def padded(name: str, length: int, texts: list[list[int]]) -> list[Array]:
    """The tokens, types and counts of texts of a case."""
    rows = [(text, token_types(ENCODER_CASES[name], len(text))) for text in texts]
    tokens, types = (
        np.array([[*row[part], *[7] * (length - len(row[part]))] for row in rows], np.int32)
        for part in (0, 1)
    )
    return [tokens, np.minimum(types, 1), np.array([len(text) for text in texts], np.int32)]


@pytest.mark.parametrize("name", ENCODER_CASES)
def test_vectors_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    case, recording = ENCODER_CASES[name], recorded_encoder(name)
    folder = tmp_path / "model"
    folder.mkdir()
    if HAS_TRANSFORMERS:
        from tests.models.families.encoders import encoder_oracle

        close(recording.vectors, encoder_oracle.record(case, folder).vectors, 1e-5)
    else:
        recording.write(folder)
    model = opened(folder, case.architecture)
    (graph,) = model.program.graphs
    (actual,) = evaluate(graph, padded(name, LENGTH, TEXTS), model.parameters)
    close(actual, recording.vectors, TOLERANCE)


# GGUF files have no head of BERT's own kind, and lack a bias of experts; llama.cpp has no GTE.
@pytest.mark.parametrize(
    "name",
    [
        name
        for name in ENCODER_CASES
        if name not in ("bert-rank", "gte", "gte-cls") and not name.startswith("nomic-moe")
    ],
)
def test_a_gguf_file_holds_the_same_encoder(name: str, tmp_path: Path) -> None:
    """The same vectors; XLM-RoBERTa is stored as BERT."""
    case, recording = ENCODER_CASES[name], recorded_encoder(name)
    folder = tmp_path / "model"
    folder.mkdir()
    recording.write(folder)
    config: Any = opened(folder, case.architecture).config
    stored_as = "bert" if case.architecture == "xlm-roberta" else case.architecture
    path = write_encoder(SafetensorsSource(folder), tmp_path / "model.gguf", stored_as, config)
    model = opened(path, stored_as)
    different = {"skipped": None, "labels": None, "yes": None, "no": None, "tied": None}
    assert asdict(model.config) | different == pytest.approx(asdict(config) | different)
    (actual,) = evaluate(model.program.graphs[0], padded(name, LENGTH, TEXTS), model.parameters)
    close(actual, recording.vectors, TOLERANCE)


@pytest.mark.parametrize("name", ["nomic-moe", "nomic-moe-third"])
def test_a_gguf_file_has_the_experts_without_their_bias(name: str, tmp_path: Path) -> None:
    folder, architecture = tmp_path / "model", ENCODER_CASES[name].architecture
    folder.mkdir()
    recorded_encoder(name).write(folder)
    tensors = load_file(folder / "model.safetensors")
    for bias in (name for name in tensors if name.endswith("experts.bias")):
        tensors[bias] = np.zeros_like(tensors[bias])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = opened(folder, architecture)
    config: Any = model.config
    path = tmp_path / "stored.gguf"
    stored = opened(
        write_encoder(SafetensorsSource(folder), path, architecture, config), architecture
    )
    assert asdict(stored.config) == pytest.approx(asdict(config) | {"sum_bias": False})
    vectors = [
        evaluate(each.program.graphs[0], padded(name, LENGTH, TEXTS), each.parameters)[0]
        for each in (model, stored)
    ]
    close(vectors[1], vectors[0], TOLERANCE)


def test_older_files_of_jina_v2_have_gate_and_up_apart(tmp_path: Path) -> None:
    folder, path = tmp_path / "model", tmp_path / "model.gguf"
    folder.mkdir()
    recording = recorded_encoder("jina-v2")
    recording.write(folder)
    config: Any = opened(folder, "jina-bert-v2").config
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if "gated_layers" in name]:
        gate, up = np.split(tensors.pop(name), 2)
        tensors[name.replace("layers.", "layers_w.")] = gate
        tensors[name.replace("layers.", "layers_v.")] = up
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = opened(
        write_encoder(SafetensorsSource(folder), path, "jina-bert-v2", config), "jina-bert-v2"
    )
    (graph,) = model.program.graphs
    (actual,) = evaluate(graph, padded("jina-v2", LENGTH, TEXTS), model.parameters)
    close(actual, recording.vectors, TOLERANCE)


@pytest.mark.parametrize("name", ["bert", "jina-v2", "jina-v2-code"])
def test_models_with_the_type_bert_are_told_apart(name: str, tmp_path: Path) -> None:
    recorded_encoder(name).write(tmp_path)
    family = identify(open_weights(tmp_path), None)
    assert (family.name, family.architecture) == (name, ENCODER_CASES[name].architecture)


# --- compiled, with matrices of int8

SHORT = 16
SHAPE: dict[str, Any] = {
    "layers": 2, "hidden": 64, "ffn": 96, "heads": 2, "kv_heads": 2, "head_dim": 32,
    "max_context": 64, "vocab_size": 67, "norm_eps": 1e-6,
}  # fmt: skip
BERT: dict[str, Any] = {**SHAPE, "token_types": 2}
COMPILED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", BERT),
    "ranks": ("bert", {**BERT, "pooling": "rank"}),
    "qwen3-reranker": (
        "qwen3-reranker",
        {**SHAPE, "pooling": "rank", "rope_base": 1e4, "tied": True, "yes": 9, "no": 4},
    ),
    "nomic-bert": ("nomic-bert", {**BERT, "rope_base": 1e3}),
    "nomic-bert-moe": (
        "nomic-bert-moe",
        {
            **BERT,
            "rope_base": 1e4,
            "experts": 4,
            "experts_per_token": 2,
            "expert_ffn": 96,
            "routed": (False, True),
            "normalized": False,
            "sum_bias": True,
        },
    ),
    "jina-v3": ("jina-bert-v3", {**BERT, "rope_base": 2e4}),
    "eurobert": ("eurobert", {**SHAPE, "rope_base": 1e4}),
    "llama-embed": ("llama-embed", {**SHAPE, "rope_base": 1e4}),
    "gte": ("gte", {**BERT, "rope_base": 1e3}),
    "jina-v2": ("jina-bert-v2", BERT),
    "jina-v2-code": ("jina-bert-v2-code", BERT),
    "modernbert": (
        "modern-bert",
        {**SHAPE, "rope_base": 1e4, "local_rope_base": 1e3, "windows": (None, 4)},
    ),
    "embeddinggemma": (
        "gemma-embedding",
        {**SHAPE, "rope_base": 1e4, "query_scale": 0.2, "windows": (4, None), "dense": (96, 32)},
    ),
}
SHORT_TEXTS = [[5, 9, 33, 2, 60, 17], [41], [*range(20, 36)], [8, 8, 1, 30, 7, 9, 4]]


@functools.cache
def compiled_program(name: str) -> ArraysProgram:
    """The program of an encoder in a precision, named "ENCODER PRECISION"."""
    encoder, precision = name.split()
    architecture, arguments = COMPILED[encoder]
    family = ENCODERS[architecture]
    options = EncoderOptions(precision=precision, lengths=(SHORT,), rows=4 * SHORT)
    return family.program(family.config(**arguments), options)


PROGRAMS = [f"{name} {precision}" for name in COMPILED for precision in ("f32", "int8-g32")]
BY_DAY = "bert int8-g32"


@pytest.fixture(scope="module")
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    names = PROGRAMS if "nightly" in request.config.option.markexpr else [BY_DAY]
    graphs = [
        with_parameters_as_inputs(f"{graph.name}_{PROGRAMS.index(name)}", graph)
        for name in names
        for graph in compiled_program(name).graphs
    ]
    return Compiled(graphs, tmp_path_factory.mktemp("encoders"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == BY_DAY else [pytest.mark.nightly])
        for name in PROGRAMS
    ],
)
def test_other_texts_do_not_change_the_bits_of_a_compiled_vector(
    name: str, compiled: Compiled
) -> None:
    program, index = compiled_program(name), PROGRAMS.index(name)
    weights = random_arrays(program.parameters, SHAPE["hidden"])
    (graph,) = program.graphs

    def call(texts: list[list[int]]) -> Array:
        arrays = padded("bert", SHORT, texts)
        parameters = [weights[parameter] for parameter in graph.parameters]
        (actual,) = compiled(f"{graph.name}_{index}", *arrays, *parameters)
        (expected,) = evaluate(graph, arrays, weights)
        np.testing.assert_allclose(actual, expected, atol=2e-3 * np.abs(expected).max())
        return actual

    together = call(SHORT_TEXTS)
    np.testing.assert_array_equal(call(SHORT_TEXTS[::-1])[::-1], together)
    for text, vector in zip(SHORT_TEXTS, together, strict=True):
        np.testing.assert_array_equal(call([text, [1], [1], [1]])[0], vector)


# --- what is rejected


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("bert", {"hidden_act": "relu"}, "hidden_act = 'relu', supported is 'gelu'"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type = "),
        ("bert", {"rotary_dims": 2}, "unknown key rotary_dims"),
        ("bert-rank", {"id2label": {"0": "a", "1": "b"}}, "id2label: got 2 labels, supported is 1"),
        ("bert-rank", {"id2label": None}, "id2label: got 2 labels, supported is 1"),
        ("bert-cls", {"1_Pooling/config.json": "max"}, "pooling: got 'max', supported: mean, "),
        ("modernbert", {"hidden_activation": "relu"}, "got 'relu', supported: gelu, silu"),
        ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling: got 'max', supported: "),
        (
            "eurobert",
            {"architectures": ["EuroBertForSequenceClassification"], "id2label": {"0": "a"}},
            "architectures: supported are models without a head",
        ),
        ("llama-embed", {"pooling": "max"}, "pooling: got 'max', supported: avg, cls, last"),
        ("gte", {"logn_attention_scale": True}, "logn_attention_scale = True, supported is False"),
        (
            "gte",
            {"rope_parameters": None, "rope_scaling": {"type": "ntk", "factor": 8.0}},
            "type 'ntk' is not supported",
        ),
        ("jina-v2", {"feed_forward_type": "reglu"}, "feed_forward_type = 'reglu', supported is "),
        ("jina-v2", {"position_embedding_type": "absolute"}, "position_embedding_type: supported "),
        ("jina-v2-code", {"auto_map": None}, "auto_map: qk-post-norm is for the models for code"),
        ("nomic-bert", {"moe_every_n_layers": 2}, "moe_every_n_layers is for models with experts"),
        ("nomic-moe", {"moe_every_n_layers": 0}, "moe_every_n_layers is missing in models"),
        ("nomic-moe", {"num_shared_experts": 1}, "num_shared_experts = 1, supported is 0"),
        ("jina-v3", {"position_embedding_type": "absolute"}, "unknown key position_embedding_type"),
        ("nomic-bert", {"head_dim": 16}, "head_dim = 16, supported is 12"),
        ("nomic-bert", {"qkv_proj_bias": True}, "qkv_proj_bias = True, supported is False"),
        ("qwen3-reranker", {}, "1_Pooling/config.json: got a model that embeds texts"),
        (
            "qwen3-reranker",
            {"1_Pooling/config.json": None, "1_LogitScore/config.json": None},
            "tokens of yes and no: got 9693 and 2152, expected ids below the 97",
        ),
        ("embeddinggemma", {"use_bidirectional_attention": False}, "supported is True"),
        ("embeddinggemma", {"final_logit_softcapping": 30.0}, "final_logit_softcapping = 30.0"),
        ("embeddinggemma", {"4_Dense/config.json": {}}, "unknown key 4_Dense/config.json"),
        (
            "embeddinggemma",
            {"2_Dense/config.json": {"out_features": 8, "bias": True}},
            "2_Dense/config.json: bias = True, supported is False",
        ),
    ],
    ids=str,
)
def test_unsupported_configurations_are_rejected(
    name: str, changes: dict[str, Any], message: str
) -> None:
    files = dict(recorded_encoder(name).files)
    config = files.pop("config.json") | files | {"1_Pooling/config.json": "mean"} | changes
    with pytest.raises(ConfigError, match=message):
        ENCODERS[ENCODER_CASES[name].architecture].from_hugging_face(config)


def test_older_keys_of_modernbert_mean_the_same() -> None:
    config = recorded_encoder("modernbert").files["config.json"]
    older = {key: config[key] for key in config if key not in ("layer_types", "rope_parameters")}
    keys = {"global_rope_theta": 160_000.0, "local_rope_theta": 1e4}
    older |= keys | {"global_attn_every_n_layers": 3, "position_embedding_type": "absolute"}
    read = ENCODERS["modern-bert"].from_hugging_face
    assert read(older) == read(config)
    assert read(older).windows == (None, 25, 25, None, 25)
    changed = read(older | {"local_rope_theta": 5e3, "global_attn_every_n_layers": 2})
    assert (changed.local.rope_base, changed.windows[2]) == (5e3, None)


def test_older_keys_of_nomic_bert_mean_the_same() -> None:
    """As nomic-embed-text-v1.5 has them."""
    config = recorded_encoder("nomic-bert").files["config.json"]
    later = {
        "n_layer": "num_hidden_layers", "n_embd": "hidden_size", "n_inner": "intermediate_size",
        "n_head": "num_attention_heads", "n_positions": "max_position_embeddings",
        "layer_norm_epsilon": "layer_norm_eps",
    }  # fmt: skip
    older = {key: config[key] for key in config if key not in (*later.values(), "rope_parameters")}
    older |= {old: config[new] for old, new in later.items()}
    older |= {"activation_function": "swiglu", "causal": False, "rotary_emb_scale_base": None}
    read = ENCODERS["nomic-bert"].from_hugging_face
    assert read(older | {"rotary_emb_base": 1000}) == read(config)
    trained = read(older | {"rotary_emb_base": 5000, "max_trained_positions": 64})
    assert (trained.rope_base, trained.max_context) == (5000.0, 64)


def test_a_decoder_rejects_what_only_encoders_compute() -> None:
    config = recorded_encoder("embeddinggemma").files["config.json"]
    with pytest.raises(ConfigError, match="use_bidirectional_attention = True, supported is False"):
        ARCHITECTURES["gemma3"].from_hugging_face(config)
