"""The readers of weights: GGUF, safetensors, configurations and tokenizers."""

from __future__ import annotations

import contextlib
import functools
import json
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from safetensors.numpy import save

from hearthd.baker.tokenizer.gguf_vocabulary import convert, gguf_specials
from hearthd.baker.tokenizer.tokenizer_files import chat_template, special_tokens, tokenizer_json
from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.safetensors import SafetensorsFile, SafetensorsSource, read_json
from hearthd.baker.weights.source import WeightsError
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from tests.baker.tokenizer.test_gguf_vocabulary import METADATA
from tests.models.families.family_recording import recorded
from tests.models.families.gemma3.test_gemma3_config import HF_1B_NEW, HF_4B, HF_270M
from tests.models.families.llama.test_llama_config import HF_SMOLLM2
from tests.server import fakes, templates
from tools.fuzz.mutations import damaged_bytes, damaged_json
from tools.fuzz.reader import Reader, in_json, written

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from random import Random

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import WeightSource
    from tools.fuzz.reader import Files


@functools.cache
def _gguf() -> Files:
    def write(path: Path) -> None:
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in _llama_metadata().items():
            if key != "general.architecture":
                writer.add_key_value(key, value, *_gguf_type(value))
        values = np.linspace(-1, 1, 256, dtype=np.float32).reshape(4, 64)
        kinds = gguf.GGMLQuantizationType
        for name, quantization in (("token_embd.weight", kinds.Q8_0), ("norm", kinds.F16)):
            writer.add_tensor(name, gguf.quantize(values, quantization), raw_dtype=quantization)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    return {"model.gguf": written(write)}


def _gguf_type(value: object) -> tuple[gguf.GGUFValueType, gguf.GGUFValueType | None]:
    value_type = gguf.GGUFValueType.get_type(value)
    return value_type, gguf.GGUFValueType.get_type(value[0]) if isinstance(value, list) else None


def _llama_metadata() -> dict[str, object]:
    return {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.context_length": 64,
        "llama.embedding_length": 64,
        "llama.feed_forward_length": 64,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        **METADATA,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": templates.CHATML,
    }


def _gemma_metadata() -> dict[str, object]:
    vocabulary = ["<unk>", "<bos>", "<eos>", "a", "b", "ab", "\u2581", "x y"]
    return {
        "general.architecture": "gemma3",
        "gemma3.block_count": 2,
        "gemma3.context_length": 64,
        "gemma3.embedding_length": 64,
        "gemma3.feed_forward_length": 64,
        "gemma3.attention.head_count": 2,
        "gemma3.attention.head_count_kv": 1,
        "gemma3.attention.key_length": 32,
        "gemma3.attention.value_length": 32,
        "gemma3.attention.sliding_window": 16,
        "gemma3.attention.layer_norm_rms_epsilon": 1e-5,
        "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": vocabulary,
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 4],
        "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0, -1000.0],
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def _read_source(source: WeightSource) -> None:
    for name in source.names():
        with contextlib.suppress(WeightsError), np.errstate(all="ignore"):
            source.dtype(name)
            source.read(name)
    source.files()


def _read_gguf(folder: Path) -> None:
    source = GgufSource(folder / "model.gguf")
    _read_source(source)
    _read_metadata(source.metadata(), {name: source.shape(name) for name in source.names()})
    tokenizer_json(source)
    special_tokens(source)


def _read_metadata(metadata: Mapping[str, object], tensors: Mapping[str, tuple[int, ...]]) -> None:
    """Both halves: damage to one must not hide the other."""
    refused: Exception | None = None
    try:
        architecture = metadata.get("general.architecture")
        if isinstance(architecture, str) and architecture in ARCHITECTURES:
            ARCHITECTURES[architecture].from_gguf(
                metadata, tensors, lambda _: np.ones(16, np.float32)
            )
    except ConfigError as error:
        refused = error
    gguf_specials(metadata)
    convert(metadata).encode("ab x y \u2581 <user>")
    if refused:
        raise refused


def _read_gguf_metadata(folder: Path) -> None:
    for path in folder.iterdir():
        try:
            metadata = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            continue  # not what this reader is about
        if isinstance(metadata, dict):
            _read_metadata(metadata, {"token_embd.weight": (8, 64)})


TENSORS: dict[str, NDArray[Any]] = {
    "embed": np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8),
    "half": np.zeros((2, 2, 3), np.float16),
    "norm": np.ones(6, np.float32),
    "scalar": np.array(2.5, np.float32),
}


def _damaged_header(data: bytes, random: Random) -> bytes:
    """A safetensors file whose JSON says something else of the same values."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = damaged_json(data[8:end], random)
    return len(header).to_bytes(8, "little") + header + data[end:]


def _read_folder(folder: Path) -> None:
    source = SafetensorsSource(folder)
    _read_source(source)
    source.metadata()


def _read_config(folder: Path) -> None:
    config = read_json(folder / "config.json")
    model_type = config.get("model_type")
    family = next(
        (
            architecture
            for architecture in ARCHITECTURES.values()
            if model_type in architecture.model_types
        ),
        None,
    )
    (family or ARCHITECTURES["llama"]).from_hugging_face(config)


def _read_tokenizer(folder: Path) -> None:
    source = SafetensorsSource(folder)
    special_tokens(source)
    tokenizer_json(source)
    chat_template(source)


def _tokenizer_folder() -> Files:
    special = {"bos_token": "<bos>", "eos_token": {"content": "<eos>"}, "add_bos_token": True}
    several = [{"name": "default", "template": templates.GEMMA}]
    return {
        "config.json": in_json({"text_config": {"eos_token_id": 1}, "bos_token_id": 2}),
        "model.safetensors": save(TENSORS),
        "generation_config.json": in_json({"eos_token_id": [1, 5], "bos_token_id": 2}),
        "tokenizer_config.json": in_json({**special, "chat_template": several}),
        "tokenizer.json": fakes.gemma_like(special=templates.GEMMA_SPECIAL).to_str().encode(),
    }


def _shards() -> Files:
    shards = {"a.safetensors": ("embed", "norm"), "b.safetensors": ("half", "scalar")}
    files = {
        shard: save({name: TENSORS[name] for name in names}) for shard, names in shards.items()
    }
    weight_map = {name: shard for shard, names in shards.items() for name in names}
    index = in_json({"metadata": {}, "weight_map": weight_map})
    return {"config.json": b"{}", "model.safetensors.index.json": index, **files}


WEIGHTS = (
    Reader(
        name="gguf",
        files=_gguf,
        damage={"model.gguf": damaged_bytes},
        read=_read_gguf,
        refusals=(WeightsError, ConfigError),
    ),
    *(
        Reader(
            name=f"gguf-{name}",
            files=functools.partial(dict, {"metadata.json": in_json(metadata())}),
            damage={"metadata.json": damaged_json},
            read=_read_gguf_metadata,
            refusals=(WeightsError, ConfigError),
        )
        for name, metadata in (("llama", _llama_metadata), ("gemma3", _gemma_metadata))
    ),
    Reader(
        name="safetensors",
        files=functools.cache(lambda: {"model.safetensors": save(TENSORS)}),
        damage={"model.safetensors": damaged_bytes},
        read=lambda folder: _read_source(SafetensorsFile(folder / "model.safetensors")),
        refusals=(WeightsError,),
    ),
    Reader(
        name="safetensors-header",
        files=functools.cache(lambda: {"model.safetensors": save(TENSORS)}),
        damage={"model.safetensors": _damaged_header},
        read=lambda folder: _read_source(SafetensorsFile(folder / "model.safetensors")),
        refusals=(WeightsError,),
    ),
    Reader(
        name="safetensors-index",
        files=functools.cache(_shards),
        damage={"model.safetensors.index.json": damaged_json, "a.safetensors": damaged_bytes},
        read=_read_folder,
        refusals=(WeightsError,),
    ),
    *(
        Reader(
            name=f"config-{name}",
            files=functools.partial(dict, {"config.json": in_json(config)}),
            damage={"config.json": damaged_json},
            read=_read_config,
            refusals=(WeightsError, ConfigError),
        )
        for name, config in (
            ("gemma3", HF_270M),
            ("gemma3-rope", HF_1B_NEW),
            ("gemma3-text", HF_4B),
            ("llama", HF_SMOLLM2),
            ("lfm2", recorded("lfm2-lfm2").config),
            ("phi3", recorded("phi3-long").config),
            ("qwen3", recorded("qwen3-window").config),
        )
    ),
    Reader(
        name="tokenizer-folder",
        files=functools.cache(_tokenizer_folder),
        damage={
            "tokenizer.json": damaged_json,
            "tokenizer_config.json": damaged_json,
            "generation_config.json": damaged_json,
            "config.json": damaged_json,
        },
        read=_read_tokenizer,
        refusals=(WeightsError,),
    ),
)
