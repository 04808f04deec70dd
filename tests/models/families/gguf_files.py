"""The weights of a folder as a GGUF file, with the names that the gguf package has for tensors.

What llama.cpp's converter does besides is done here too: it changes the order of the rows of
queries and keys where llama.cpp rotates neighbors, and stores 1 + w for the norms of Gemma.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.models.catalog import ARCHITECTURES, ENCODERS
from hearthd.models.decoder.config.long_rope import LongRopeConfig
from hearthd.models.decoder.drafting.mtp import MtpConfig
from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.decoder.latent_attention import LatentConfig
from hearthd.models.decoder.partial_rope import PartialRopeConfig
from hearthd.models.decoder.recurrent.delta_net import DeltaNetConfig
from hearthd.models.decoder.recurrent.mamba2 import Mamba2Config
from hearthd.models.families.falcon_h1 import Config as FalconConfig
from hearthd.models.families.kimi_linear import Config as KimiConfig
from hearthd.models.families.nanbeige import Config as NanbeigeConfig
from hearthd.models.families.step35 import Config as StepConfig
from tests.models.families import gguf_autumn
from tests.models.families.gguf_delta_nets import delta_net, grouped_delta_net
from tests.models.families.gguf_gemma import gemma3n
from tests.models.families.gguf_gpt_oss import gpt_oss
from tests.models.families.gguf_granite import granite_swa
from tests.models.families.gguf_joined_heads import (
    gpt2,
    heads_in_gguf,
    joins_heads,
    openelm,
    refact,
)
from tests.models.families.gguf_keys import (
    EXTRA_KEYS,
    KEEPS_JOINED,
    LAYER_NORMS,
    SCALED,
)
from tests.models.families.gguf_latent import kimi_linear, latent
from tests.models.families.gguf_mamba import MAMBA2_PARTS, falcon_scales, mamba, mamba2
from tests.models.families.gguf_rwkv import rwkv7
from tests.models.families.gguf_shapes import add_shape
from tests.models.families.gguf_tensor_names import NAMED_AS, OWN_NAMES, RENAMED_PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.decoder.config.decoder_config import DecoderConfig

    Array = NDArray[Any]

# llama.cpp's architectures that rotate neighbors: LLAMA_ROPE_TYPE_NORM.
_ROTATES_NEIGHBORS = (
    "arcee", "baichuan", "bailingmoe", "deci", "deepseek", "internlm2", "llama", "llama-embed",
    "minicpm", "olmo", "xverse", "smollm3", "granite", "granite_swa", "granitehybrid", "granitemoe",
    "mistral3", "muse-glimmer", "nanbeige", "nemotron_h", "nemotron_h_moe",
)  # fmt: skip
# Parts of the names of towers' tensors, and what precedes a text model's beside a tower.
_TOWER = (
    "vision_tower", "vision_model", "connector", "multi_modal_projector", "visual.", "embed_vision",
    "audio_tower", "embed_audio", "image_newline",
    "vision_adapter", "vision_embedder", "vision_encoder", "vision_projection",
    "vit_large_projector", "vpm.", "resampler.", "mlp_AR.",
)  # fmt: skip
_TEXT_MODEL = re.compile(
    r"^(?:language_model\.model|llm\.model|model\.language_model|model\.text_model)\."
)
# Architectures whose norms get 1 added to their weights by the converter.
_STORES_ONE_MORE = ("gemma", "gemma2", "gemma3", "gemma-embedding", "nemotron", "step35")


def write_gguf(
    folder: Path, architecture: str, config: DecoderConfig, special: Sequence[str] = ()
) -> Path:
    """Write the file into the folder; returns its path.

    With `special`, it has a vocabulary: a token for each byte, and these special tokens.
    """
    path = folder / "model.gguf"
    architecture = ARCHITECTURES[architecture].name_in_gguf
    writer = gguf.GGUFWriter(path, architecture)
    add_config(writer, architecture, config)
    if special:
        add_byte_vocabulary(writer, special)
    architectures = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    named_as = NAMED_AS.get(architecture, architecture)
    names = gguf.get_tensor_name_map(architectures[named_as], _blocks(config))
    numbers: dict[str, list[float]] = {}
    for name, values in _split(_tensors(SafetensorsSource(folder)), architecture, config):
        if ".act_fn." in name:
            numbers.setdefault(name.rpartition(".")[2], []).append(values.item())
            continue
        name = f"{name}.weight" if name.endswith("layer_scalar") else name
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if name.endswith(OWN_NAMES):
            stored = re.sub(r"^\w+\.layers", "blk", name)
        elif ".nextn." in name or ".indexer." in name:
            stored = name
        assert stored is not None, name
        writer.add_tensor(stored, _converted(name, values, architecture, config))
    for table, divisors in _rope_tables(architecture, config).items():
        if divisors:
            writer.add_tensor(f"{table}.weight", np.array(divisors, np.float32))
    for key, by_layer in numbers.items():
        writer.add_array(f"xielu.{key}", by_layer)
    return written(writer, path)


def _rope_tables(architecture: str, config: DecoderConfig) -> dict[str, tuple[float, ...]]:
    """The tables of rotary divisors, by name; an empty one is not written."""
    if isinstance(config, LongRopeConfig):
        return {
            "rope_factors_short": config.rope_divisors,
            "rope_factors_long": config.long_divisors,
        }
    if isinstance(config, StepConfig):  # for all columns of a head
        still = (config.local_rotary_width - config.rotary_width) // 2
        return {"rope_freqs": (*config.rope_divisors, *[1.0] * still)}
    return {"rope_freqs": () if architecture in SCALED else config.rope_divisors}


def add_byte_vocabulary(writer: Any, special: Sequence[str]) -> None:
    """Write a vocabulary: a token for each byte, and special tokens."""
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*(f"<0x{byte:02X}>" for byte in range(256)), *special])
    writer.add_token_scores([0.0] * (256 + len(special)))
    types = [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.CONTROL] * len(special)
    writer.add_token_types(types)


def _blocks(config: DecoderConfig) -> int:
    """The blocks of a file: a layer that predicts further tokens is the last one."""
    if isinstance(config, NanbeigeConfig):
        return config.stored_layers
    return config.layers + (isinstance(config, MtpConfig) and config.mtp)


def _converted(name: str, values: Array, architecture: str, config: DecoderConfig) -> Array:
    """The values that llama.cpp's converter stores of a tensor."""
    if name.endswith("conv.conv.weight"):
        values = values.squeeze(1)
    if isinstance(config, FalconConfig):
        values = values * falcon_scales(name, config)
    if architecture in _ROTATES_NEIGHBORS and ("q_proj" in name or "k_proj" in name):
        values = neighbors(values, config.head_dim)
    is_glm4v = architecture == "glm4" and isinstance(config, PartialRopeConfig)
    if is_glm4v and ("q_proj" in name or "k_proj" in name):
        values = _turning_halves(values, config)
    if architecture in _STORES_ONE_MORE and name.endswith("norm.weight"):
        values = values + np.float32(1)
    return values


def _turning_halves(values: Array, config: Any) -> Array:
    """Put the columns that turn half after half, as llama.cpp's M-RoPE reads them."""
    width = config.rotary_width
    heads = values.reshape(-1, config.head_dim, *values.shape[1:])
    turning = np.concatenate([heads[:, 0:width:2], heads[:, 1:width:2]], axis=1)
    return np.concatenate([turning, heads[:, width:]], axis=1).reshape(values.shape)


def is_of_tower(name: str) -> bool:
    """Whether a tensor of a folder is one of a tower of images, or projects what it computes."""
    return any(part in name for part in _TOWER)


def _tensors(source: SafetensorsSource) -> Iterator[tuple[str, Array]]:
    """The tensors by name; the matrices of experts, which follow each other, are one (X, N, K)."""
    experts: dict[str, list[Array]] = {}
    names = [name for name in source.names() if not is_of_tower(name)]
    for name in sorted(names, key=lambda name: [int(x) for x in re.findall(r"\d+", name)]):
        together, replaced = re.subn(r"\.experts\.\d+\.", ".experts.", name)
        if replaced:
            experts.setdefault(together, []).append(source.read(name))
        else:
            yield _in_text_model(name), source.read(name)
    for name, matrices in experts.items():
        yield _in_text_model(name), np.stack(matrices)


def _in_text_model(name: str) -> str:
    """The name that a tensor of a text model has where there is no tower."""
    inner = _TEXT_MODEL.sub("model.", name)
    return inner.removeprefix("language_model.").removeprefix("llm.")


_GATE_AND_UP = "input_linear"  # of Granite: an MLP, or a tensor of experts


def _transposed_experts(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """A tensor of Llama 4 or Qwen3-VL with experts, whose matrices folders have transposed."""
    if ".experts." not in name:
        yield name, values
        return
    rows = np.ascontiguousarray(values.swapaxes(1, 2))
    both = zip(("gate", "up"), np.split(rows, 2, axis=1), strict=True)
    for part, matrices in both if "gate_up" in name else [("down", rows)]:
        yield re.sub(r"(gate_up|down)_proj", f"{part}_proj.weight", name), matrices


# What the converter makes of a tensor, by architecture.
_CONVERTED = {
    "bloom": lambda name, values: iter([(name.removeprefix("transformer."), values)]),
    "gpt-oss": gpt_oss,
    "gpt2": gpt2,
    "granite_swa": granite_swa,
    "hy_v3": lambda name, values: iter([(name, values)]),
    "jamba": mamba,
    "llama4": _transposed_experts,
    "mamba": mamba,
    "openelm": openelm,
    "qwen3vlmoe": _transposed_experts,
    "refact": refact,
}

# The same of all tensors, by architecture.
_OF_MODELS = {"gemma3n": gemma3n, "rwkv7": rwkv7}


def _by_shape(
    architecture: str, config: Any
) -> Callable[[str, Array, Any], Iterator[tuple[str, Array]]] | None:
    """What the converter makes of a tensor of models of this shape; None: it depends on names."""
    if isinstance(config, DeltaNetConfig):
        return grouped_delta_net if architecture == "qwen3next" else delta_net
    if architecture in gguf_autumn.CONVERTED:
        return gguf_autumn.CONVERTED[architecture]
    if isinstance(config, KimiConfig):
        return kimi_linear
    is_latent = isinstance(config, LatentConfig) and architecture not in KEEPS_JOINED
    return latent if is_latent else None


def _split(
    tensors: Iterator[tuple[str, Array]], architecture: str, config: DecoderConfig
) -> Iterator[tuple[str, Array]]:
    """The tensors as the converter has them: Granite's as other architectures'."""
    if architecture in _OF_MODELS:
        yield from _OF_MODELS[architecture](tensors)
        return
    is_granite = architecture.startswith("granite") and isinstance(config, ExpertsConfig)
    mlp = "mlp.shared_experts" if is_granite else "mlp"
    renamed = {
        "shared_mlp.output_linear": f"{mlp}.down_proj",
        "block_sparse_moe.output_linear": "mlp.experts.down_proj",
        **RENAMED_PARTS,
    }
    convert = _by_shape(architecture, config)
    for name, values in tensors:
        if convert is not None:
            yield from convert(name, values, config)
        elif joins_heads(architecture, name):
            yield from heads_in_gguf(name, values, config)
        elif architecture in _CONVERTED:
            yield from _CONVERTED[architecture](name, values)
        elif isinstance(config, Mamba2Config) and re.search(MAMBA2_PARTS, name):
            yield mamba2(name, values, config)
        elif _GATE_AND_UP in name:
            is_shared = "shared_mlp" in name
            module = mlp if is_shared else "mlp.experts"
            block = f"{'shared_mlp' if is_shared else 'block_sparse_moe'}.{_GATE_AND_UP}"
            for part, rows in zip(("gate", "up"), np.split(values, 2, axis=-2), strict=True):
                yield name.replace(block, f"{module}.{part}_proj"), rows
        else:
            old = next((old for old in renamed if re.search(rf"\d\.{old}($|\.weight)", name)), None)
            yield (name if old is None else name.replace(old, renamed[old])), values


def neighbors(rows: Array, width: int) -> Array:
    """Rows of heads in the order 0, D/2, 1, D/2 + 1, ..., as convert_hf_to_gguf.py has them."""
    return np.ascontiguousarray(
        rows.reshape(-1, 2, width // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
    )


def add_config(writer: Any, architecture: str, config: DecoderConfig) -> None:
    """Write the metadata of a configuration."""
    _add_extra_keys(writer, architecture, config)
    writer.add_block_count(_blocks(config))
    writer.add_context_length(config.max_context)
    writer.add_embedding_length(config.hidden)
    add_shape(writer, architecture, config)
    has_layer_norm = architecture in LAYER_NORMS
    (writer.add_layer_norm_eps if has_layer_norm else writer.add_layer_norm_rms_eps)(
        config.norm_eps
    )
    writer.add_vocab_size(config.vocab_size)
    if config.pooling != "mean":
        writer.add_pooling_type(gguf.PoolingType[config.pooling.upper()])
    if config.rope_factor != 1.0:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope_factor)


def _add_extra_keys(writer: Any, architecture: str, config: Any) -> None:
    for name, value in EXTRA_KEYS.get(architecture, lambda _: {})(config).items():
        kind = gguf.GGUFValueType.get_type(value)
        if kind == gguf.GGUFValueType.INT32:
            kind = gguf.GGUFValueType.UINT32
        writer.add_key_value(f"{architecture}.{name}", value, kind)


def write_encoder(source: SafetensorsSource, path: Path, architecture: str, config: Any) -> Path:
    """Write an encoder's file; returns its path."""
    if architecture == "qwen3-reranker":
        return _write_reranker(source, path, config)
    architecture = ENCODERS[architecture].name_in_gguf
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_causal_attention(False)
    if architecture in ("eurobert", "gemma-embedding", "llama-embed"):
        add_config(writer, architecture, config)
    else:
        _add_encoder(writer, architecture, config)
    numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(numbers[architecture], config.layers)
    for name in source.names():
        values = source.read(name)
        name = re.sub(
            r"^(?:bert|model|roberta)\.", "", re.sub(r"(\d)_Dense\.linear", r"dense_\1_out", name)
        )
        name = re.sub(r"^classifier\.(weight|bias)$", r"classifier.out_proj.\1", name)
        if name.startswith("pooler.") or name.endswith("mlp.experts.bias"):
            continue
        if name.endswith(("mlp.w1", "mlp.w2")):
            values = values.reshape(config.experts, -1, config.hidden)
            values = values.swapaxes(1, 2) if name.endswith("w2") else values
            name += ".weight"
        if "position_embeddings" in name:
            values = values[config.skipped or 0 :]
        if architecture in _STORES_ONE_MORE and name.endswith("norm.weight"):
            values = values + np.float32(1)
        if architecture in _ROTATES_NEIGHBORS and ("q_proj" in name or "k_proj" in name):
            values = neighbors(values, config.head_dim)
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        writer.add_tensor(stored, values)
    return written(writer, path)


def _add_encoder(writer: Any, architecture: str, config: Any) -> None:
    _add_extra_keys(writer, architecture, config)
    writer.add_block_count(config.layers)
    writer.add_context_length(config.max_context)
    writer.add_embedding_length(config.hidden)
    writer.add_feed_forward_length(config.ffn)
    writer.add_head_count(config.heads)
    writer.add_layer_norm_eps(config.norm_eps)
    writer.add_pooling_type(gguf.PoolingType[config.pooling.upper()])


def _write_reranker(source: SafetensorsSource, path: Path, config: Any) -> Path:
    """As the converter writes a reranker: in place of a head, the rows of yes and no."""
    writer = gguf.GGUFWriter(path, "qwen3")
    add_config(writer, "qwen3", config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config.layers)
    for name in source.names():
        values = source.read(name)
        is_head = name == ("model.embed_tokens.weight" if config.tied else "lm_head.weight")
        if name == "score.weight":
            writer.add_tensor("cls.output.weight", values)
        elif is_head and config.labels is None:
            writer.add_tensor("cls.output.weight", values[[config.yes, config.no]])
        if name not in ("score.weight", "lm_head.weight"):
            stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert stored is not None, name
            writer.add_tensor(stored, values)
    return written(writer, path)


def written(writer: gguf.GGUFWriter, path: Path) -> Path:
    """Write the file; returns its path."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
