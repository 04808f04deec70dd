"""The layer of Qwen3.5 that predicts further tokens: it drafts as the equations do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hearthd.baker.adapters.drafted_weights import mtp_left_out, with_mtp
from hearthd.baker.parameters.parameter_writer import locate, tensors_of, write_parameters
from hearthd.baker.pipeline.opened_model import OpenedModel
from hearthd.baker.reference.numpy_runtime import NumpyRuntime, stored_parameters
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.drafting.mtp import drafted_tokens
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.program import ProgramOptions
from tests.models.families import ours
from tests.models.families.gguf_files import write_gguf
from tests.models.families.mtp_models import CONFIGS, config_with_mtp, write_mtp_model
from tests.models.tiny_configs import tiny

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import WeightSource

    Array = NDArray[Any]

TOKENS = np.random.default_rng(0).integers(0, 256, 24).tolist()
PROMPT, DRAFTS = 14, 3  # tokens of TOKENS that are read as a prompt, and tokens that are drafted
# What an MTP context of llama.cpp (llama-cpp-python 0.3.36, all in f32) drafts after each token
# from TOKENS[PROMPT] on, with the same GGUF files.
LLAMACPP = {
    "qwen35": [
        [170, 65, 92], [226, 175, 226], [145, 222, 118], [230, 133, 164], [7, 171, 115],
        [205, 244, 24], [170, 69, 252], [117, 194, 94], [173, 169, 63], [69, 182, 9],
    ],
    "qwen35moe": [
        [199, 44, 31], [45, 89, 251], [151, 236, 177], [199, 104, 128], [73, 49, 183],
        [35, 5, 111], [24, 13, 9], [113, 254, 130], [28, 31, 110], [204, 21, 14],
    ],
}  # fmt: skip
OPTIONS = ProgramOptions(
    context=64, precision="f32", prefill_tokens=(8,), decode_batches=(1,), verify_tokens=(2,),
    draft_tokens=257,
)  # fmt: skip


class Drafting(NumpyRuntime):
    """A model with the layer, in NumPy."""

    def __init__(
        self,
        source: WeightSource,
        name: str,
        folder: Path,
        options: ProgramOptions = OPTIONS,
    ) -> None:
        architecture = ARCHITECTURES[name]
        config: Any = with_mtp(source, architecture, ours.config_of(source, name))
        assert config.mtp
        program = architecture.program(config, options)
        located = locate(source, architecture, config, program)
        write_parameters(source, located, folder / "p.irpa", lambda _: None)
        parameters = stored_parameters(program.parameters, folder / "p.irpa")
        super().__init__(program, parameters, context=options.context, slots=1)

    def states(self, token: int, position: int) -> Array:
        """Decode a token; its hidden state (1, E)."""
        ((point, graph),) = self._points("decode")
        state: Array = self._run(point, graph, ([token], [position], [0]), 0)[1]
        return state

    def drafts(self, state: Array, token: int, position: int) -> list[Array]:
        """The logits (V,) of some drafts that follow each other."""
        ((_, graph),) = self._points("draft")
        at = [i for i, spec in enumerate(self._program.caches) if spec.drafts]
        drafted = []
        for step in range(DRAFTS):
            numbers = [np.array([value], np.int32) for value in (token, position + step)]
            rows = [self._slot_caches(0)[i] for i in at]
            results = evaluate(graph, [numbers[0], state, numbers[1], *rows], self._parameters)
            logits, state = results[:2]
            for i, cache in zip(at, results[2:], strict=True):
                self._caches[0][i] = cache
            drafted.append(logits[0])
            token = int(logits[0].argmax())
        return drafted


def expected_logits(source: WeightSource, states: Array, tokens: list[int]) -> tuple[Array, Array]:
    """The state and the logits after the last token, (E,) and (V,), in f64.

    From the tensors of a folder, and the states (T, E) before each token: zeros before the first.
    """
    shape, names = CONFIGS["qwen35"], source.names()
    w: dict[str, Array] = {name: source.read(name).astype(np.float64) for name in names}
    layer = {name.removeprefix("mtp.layers.0."): w[name] for name in names}

    def rms(x: Array, weight: Array) -> Array:
        mean: Array = (x**2).mean(-1, keepdims=True)
        return np.asarray(x / np.sqrt(mean + shape["rms_norm_eps"]) * (1 + weight))

    def silu(x: Array) -> Array:
        return np.asarray(x / (1 + np.exp(-x)))

    def rotated(x: Array) -> Array:
        half = int(shape["head_dim"] * 0.25) // 2
        rates = 10000.0 ** (-np.arange(half) / half)
        angles = np.arange(len(x))[:, None, None] * rates
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)

    count, heads, groups = len(tokens), shape["num_attention_heads"], shape["num_key_value_heads"]
    embedded = rms(w["model.embed_tokens.weight"][tokens], w["mtp.pre_fc_norm_embedding.weight"])
    hidden = rms(states.astype(np.float64), w["mtp.pre_fc_norm_hidden.weight"])
    u = np.concatenate([embedded, hidden], axis=1) @ w["mtp.fc.weight"].T
    x = rms(u, layer["input_layernorm.weight"])
    q, gate = np.split(
        (x @ layer["self_attn.q_proj.weight"].T).reshape(count, heads, -1), 2, axis=2
    )
    k, v = (
        (x @ layer[f"self_attn.{part}_proj.weight"].T).reshape(count, groups, -1) for part in "kv"
    )
    q = rotated(rms(q, layer["self_attn.q_norm.weight"]))
    k = rotated(rms(k, layer["self_attn.k_norm.weight"]))
    k, v = (np.repeat(part, heads // groups, axis=1) for part in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) * shape["head_dim"] ** -0.5
    scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = np.einsum("hqk,khd->qhd", weights, v) / (1 + np.exp(-gate))
    u = u + mixed.reshape(count, -1) @ layer["self_attn.o_proj.weight"].T
    x = rms(u, layer["post_attention_layernorm.weight"])
    inner = silu(x @ layer["mlp.gate_proj.weight"].T) * (x @ layer["mlp.up_proj.weight"].T)
    y = rms(u + inner @ layer["mlp.down_proj.weight"].T, w["mtp.norm.weight"])
    return y[-1], y[-1] @ w["lm_head.weight"].T


def test_drafts_are_those_of_the_equations(tmp_path: Path) -> None:
    """After a slot was used, a prompt in two chunks, the last one with padding, and two decodes."""
    source = open_weights(write_mtp_model(tmp_path / "model"))
    model = Drafting(source, "qwen35", tmp_path)
    states = [model.states(token, at) for at, token in enumerate(TOKENS[:-1])]
    model.prefill(0, TOKENS[:8], 0)
    model.prefill(0, TOKENS[8:PROMPT], 8)
    for at in range(PROMPT, len(TOKENS) - 1):
        state = model.states(TOKENS[at], at)
    drafted = model.drafts(state, TOKENS[-1], len(TOKENS) - 1)
    tokens = list(TOKENS)
    states.insert(0, np.zeros_like(states[0]))
    for logits in drafted:
        y, expected = expected_logits(source, np.concatenate(states), tokens)
        assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
        tokens.append(int(logits.argmax()))
        states.append(y[np.newaxis])


def test_only_the_first_tokens_of_a_large_vocabulary_are_drafted(tmp_path: Path) -> None:
    assert [drafted_tokens(size) for size in (257, 65536, 248320)] == [257, 65536, 65536]
    source = open_weights(write_mtp_model(tmp_path / "model"))
    logits = []
    for tokens in (OPTIONS.draft_tokens, 64):
        model = Drafting(source, "qwen35", tmp_path, replace(OPTIONS, draft_tokens=tokens))
        model.prefill(0, TOKENS[:8], 0)
        logits.append(model.drafts(model.states(TOKENS[8], 8), TOKENS[9], 9)[0])
    every, some = logits
    assert some.shape == (64,)
    np.testing.assert_allclose(some, every[:64], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CONFIGS)
def test_drafts_of_a_gguf_file_are_those_of_llamacpp(name: str, tmp_path: Path) -> None:
    """After rejected drafts too."""
    write_mtp_model(tmp_path / "model", name)
    file = open_weights(write_gguf(tmp_path / "model", name, config_with_mtp(name)))
    model, latest, found = Drafting(file, name, tmp_path), PROMPT - 1, []
    model.prefill(0, TOKENS[:8], 0)
    model.prefill(0, TOKENS[8:latest], 8)
    for at in range(latest, len(TOKENS) - 1):
        state = model.states(TOKENS[at], at)
        logits = model.drafts(state, TOKENS[at + 1], at + 1)
        found.append([int(row.argmax()) for row in logits])
    assert found == LLAMACPP[name]


def test_an_incomplete_layer_is_left_out(tmp_path: Path) -> None:
    """As transformers saves a model, without it, and of layers that Hearth would not run whole."""
    folder = write_mtp_model(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    fc = tensors["mtp.fc.weight"]
    without = {name: values for name, values in tensors.items() if not name.startswith("mtp.")}
    for changed in (
        without,
        {**without, "mtp.fc.weight": fc},
        {**tensors, "mtp.embed_tokens.weight": fc},
        {**tensors, "mtp.layers.1.input_layernorm.weight": fc[0]},
    ):
        save_file(changed, folder / "model.safetensors")
        source = open_weights(folder)
        config = ours.config_of(source, "qwen35")
        assert with_mtp(source, ARCHITECTURES["qwen35"], config) == config
        reason = mtp_left_out(OpenedModel(source, ARCHITECTURES["qwen35"], config))
        assert (reason is None) == (changed is without)
        parameters = ARCHITECTURES["qwen35"].model(config).parameters()
        shapes = {name: tensor.shape for name, tensor in parameters.items()}
        tensors_of(source, ARCHITECTURES["qwen35"], config, shapes)


def test_a_model_with_rotary_positions_of_rows_and_columns_has_no_layer(tmp_path: Path) -> None:
    """A draft would rotate by the position in the caches."""
    source, config = open_weights(write_mtp_model(tmp_path / "model")), tiny("qwen35-images")
    assert with_mtp(source, ARCHITECTURES["qwen35-images"], config) == config
    reason = mtp_left_out(OpenedModel(source, ARCHITECTURES["qwen35-images"], config))
    assert reason == "its positions have no rows and columns of images"
    used = with_mtp(source, ARCHITECTURES["qwen35"], tiny("qwen35"))
    assert used != tiny("qwen35")
    assert mtp_left_out(OpenedModel(source, ARCHITECTURES["qwen35"], used)) is None
    llama = mtp_left_out(OpenedModel(source, ARCHITECTURES["llama"], tiny("llama")))
    assert llama == "Hearth has none for llama"
