"""Write a GGUF file with random weights in the shape of a published model.

    python -m benchmarks.synthetic_weights gemma-3-270m-q4_k_m.gguf 4b gemma3-4b-q4_0.gguf
    hearth bake gemma3 --weights gemma3-4b-q4_0.gguf --precision native --slots 1 --out gemma3-4b

The speed, the memory and the time of a bake depend on the shape and the types of a file, and hardly
on its values. So sizes whose weights are not at hand can be measured, in Hearth and in llama.cpp;
what the model answers is noise. The vocabulary and the chat template are the first file's;
of a model with a smaller vocabulary, the first tokens. `--layers` writes fewer layers. An assistant
of Gemma 4 is baked with its model, `hearth bake MODEL --drafter ASSISTANT`.

The types are those that llama-quantize writes for Q4_0: matrices of layers Q4_0, norms F32, and the
embedding table and the output head Q6_K, or Q8_0 if its rows are not a multiple of 256
columns. The values of a matrix have a standard deviation of 1 / sqrt(columns) and a mean of 0, so
its products have the size of its inputs. The weights of the final norm are larger, so that the
logits are about as uneven as Gemma 3 270M's on text, and the two-part head computes as many
of them again: see `final_norm_of`. With 1 they are flat, which is the hard case. The same seed
gives the same file.

The router of a model with experts chooses each of them about as often, the hardest case. With
`--repeat-experts` it prefers some, so that neighboring tokens share as many as in published models:
see `expert_overlap`. It prefers the same experts in the whole text, and a trained router does not:
measure no cache of experts with such a file.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from benchmarks.inputs import existing_path
from benchmarks.synthetic_shapes import (
    DECAYS,
    F32_MATRICES,
    ROUTER,
    SIZES,
    TABLE_NAME,
    architecture_of,
    final_norm_name,
    keys_of,
    tables_of,
    tensors_of,
    window_of,
)
from hearthd.baker.presentation.console import open_console
from hearthd.baker.progress import TerminalProgress
from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.source import BadFile, WeightsError, block_shapes
from hearthd.models.catalog import ASSISTANTS
from hearthd.models.decoder.drafting.mtp import MtpConfig
from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.decoder.gemma4_config import Gemma4Config
from hearthd.models.decoder.shared_cache import SharedCacheConfig
from hearthd.models.dsl.matrix_format import MXFP4

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import BinaryIO

    from numpy.typing import NDArray

    from benchmarks.synthetic_shapes import TensorInfo
    from hearthd.baker.progress import Progress
    from hearthd.models.decoder.config.decoder_config import DecoderConfig

# The mean of the weights of the final norm; other norms have 1. Of 131072 independent logits
# with a standard deviation of 6, divided into blocks of sixteen, 7 % of the blocks have one within
# 11 of the largest. If the head is the table of embeddings, the token's own logit is larger.
_TIED_NORM, _UNTIED_NORM = 4.5, 6.0
# With `--repeat-experts`, the lengths of a router's rows are the ranks of experts to this power. If
# each token chooses 8 of 128, 2, 4 and 8 tokens together then choose as many as published.
_RANK_POWER = -1.2
_VOCABULARY = "tokenizer."  # the keys that are copied
_VOCABULARY_OF = "gemma3"  # the architecture of the file that they are copied from
_TOKENS = "tokenizer.ggml.tokens"


def random_rows(
    tensor: TensorInfo, shape: tuple[int, ...], deviation: float, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """The stored bytes of some rows of a tensor, `shape`, as uint8 (blocks, bytes of a block)."""
    if tensor.name.endswith(F32_MATRICES):
        values = rng.normal(0, deviation, shape).astype("<f4")
        return values.view(np.uint8).reshape(-1, 4)
    if tensor.type == Type.F32:
        sign = -1 if tensor.name.endswith(DECAYS) else 1
        return (sign * rng.uniform(0.9, 1.1, shape)).astype("<f4").view(np.uint8).reshape(-1, 4)
    block, block_bytes = gguf.GGML_QUANT_SIZES[tensor.type]
    count = math.prod(shape) // block
    stored = rng.integers(0, 256, (count, block_bytes), np.uint8)
    _SET_SCALES[tensor.type](stored, deviation, rng)
    return stored


# The layouts of blocks are as in ggml-common.h. `stored` has random bytes; the functions replace
# the bytes of the scales, so that values have the given standard deviation.


def _set_q4_0(stored: NDArray[np.uint8], deviation: float, rng: np.random.Generator) -> None:
    """The f16 scale, then nibbles from -8: their mean is -0.5, so half the scales are negative."""
    scales = _scales(len(stored), deviation / _rms(range(-8, 8)), rng)
    stored[:, :2] = _f16_bytes(scales * rng.choice((-1, 1), len(stored)))


def _set_q8_0(stored: NDArray[np.uint8], deviation: float, rng: np.random.Generator) -> None:
    """The f16 scale, then int8: llama.cpp writes no -128."""
    stored[:, :2] = _f16_bytes(_scales(len(stored), deviation / _rms(range(-127, 128)), rng))
    integers = stored[:, 2:]
    integers[integers == 0x80] = 0


def _set_q6_k(stored: NDArray[np.uint8], deviation: float, rng: np.random.Generator) -> None:
    """192 bytes of integers of 6 bits from -32, 16 scales of int8, the f16 scale of these."""
    scales = rng.integers(64, 128, (len(stored), 16)) * rng.choice((-1, 1), (len(stored), 16))
    stored[:, 192:208] = scales.astype(np.int8).view(np.uint8)
    size = deviation / (_rms(range(-32, 32)) * _rms(range(64, 128)))
    stored[:, 208:] = _f16_bytes(_scales(len(stored), size, rng))


def _set_mxfp4(stored: NDArray[np.uint8], deviation: float, rng: np.random.Generator) -> None:
    """The exponent of a power of two, then floats of 4 bits, whose mean is 0."""
    # Half of the scales are twice the others, so that their mean square is 2.5.
    smaller = deviation / (_rms(MXFP4.values) / 2 * math.sqrt(2.5))
    stored[:, 0] = 127 + round(math.log2(smaller)) + rng.integers(0, 2, len(stored))


_SET_SCALES: Mapping[Type, Callable[[NDArray[np.uint8], float, np.random.Generator], None]] = {
    Type.Q4_0: _set_q4_0,
    Type.Q8_0: _set_q8_0,
    Type.Q6_K: _set_q6_k,
    Type.MXFP4: _set_mxfp4,
}


def final_norm_of(config: DecoderConfig) -> float:
    """The mean of the weights of the final norm, by which logits are as uneven as on text."""
    norm = _TIED_NORM if config.tied else _UNTIED_NORM
    divisor: float = getattr(config, "logit_scale", 1.0)
    if config.tied and _has_large_table(config):
        divisor *= config.hidden**-0.5
    return norm * divisor


def deviation_of(config: DecoderConfig, tensor: TensorInfo) -> float:
    """The standard deviation of a matrix: its products have the size of its inputs.

    With experts, embeddings are as large as what a layer adds to them. Otherwise the hidden states
    of all tokens are alike after the first layers, and the router sends them to the same experts.
    """
    if tensor.name == TABLE_NAME and _has_large_table(config):
        return 1.0
    return float(tensor.shape[-1] ** -0.5)


def _has_large_table(config: DecoderConfig) -> bool:
    """Whether embeddings are stored as large as that; Gemma 4 stores small ones and scales them."""
    return isinstance(config, ExpertsConfig) and not isinstance(config, Gemma4Config)


def _rms(integers: Iterable[int]) -> float:
    return float(np.sqrt(np.mean(np.square([*integers]))))


def _scales(count: int, rms: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Random positive scales: the smallest is a third of the largest."""
    return rng.uniform(0.5, 1.5, count) * (rms / math.sqrt(1 + 1 / 12))


def _f16_bytes(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """(N,) values as (N, 2) bytes."""
    return values.astype("<f2").view(np.uint8).reshape(-1, 2)


def read_vocabulary(path: Path) -> dict[str, object]:
    """The keys of the tokenizer of a GGUF file of Gemma 3; raises a WeightsError."""
    metadata = GgufSource(path).metadata()
    architecture = metadata.get("general.architecture")
    if architecture != _VOCABULARY_OF or not metadata.get(_TOKENS):
        raise BadFile(
            f"{path}: got the architecture {architecture!r} "
            f"{'with' if metadata.get(_TOKENS) else 'without'} a vocabulary, expected "
            f"{_VOCABULARY_OF!r} with one; give a GGUF file of Gemma 3, such as the 270M's"
        )
    return {key: value for key, value in metadata.items() if key.startswith(_VOCABULARY)}


def write_header(
    path: Path, config: DecoderConfig, vocabulary: Mapping[str, object], name: str
) -> None:
    """Write the keys and the list of tensors, without the padding before the first tensor."""
    architecture = architecture_of(config).name_in_gguf
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(config.max_context)
    writer.add_embedding_length(config.hidden)
    writer.add_block_count(config.layers + (isinstance(config, MtpConfig) and config.mtp))
    keys = {
        "feed_forward_length": config.ffn,
        "attention.head_count_kv": config.kv_heads,
        **keys_of(config),
    }
    for key, value in keys.items():
        _add_key(writer, f"{architecture}.{key}", value)
    writer.add_head_count(config.heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    if (window := window_of(config)) is not None:
        writer.add_sliding_window(window)
    writer.add_rope_freq_base(config.rope_base)
    if config.rope_factor != 1:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope_factor)
    for key, value in vocabulary.items():
        _add_key(writer, key, value)
    for tensor in tensors_of(config):
        writer.add_tensor_info(
            tensor.name, tensor.shape, np.dtype(np.float32), tensor.stored_bytes, tensor.type
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


def _add_key(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    """Add a key. Integers are u32, and those in arrays i32, which the writer infers."""
    type_ = gguf.GGUFValueType.get_type(value)
    is_integer = type_ == gguf.GGUFValueType.INT32
    writer.add_key_value(key, value, gguf.GGUFValueType.UINT32 if is_integer else type_)


def write_tensors(
    file: BinaryIO,
    config: DecoderConfig,
    rng: np.random.Generator,
    wrote: Callable[[int], None],
    final_norm: float | None = None,
    *,
    repeat_experts: bool = False,
) -> None:
    """Append the tensors, a few megabytes at a time; `wrote` is called with their bytes.

    final_norm      the mean of the weights of the final norm; None: `final_norm_of`
    repeat_experts  whether routers prefer some experts
    """
    mean, final = np.float32(final_norm or final_norm_of(config)), final_norm_name(config)
    tables = tables_of(config)
    for tensor in tensors_of(config):
        file.write(bytes(-file.tell() % gguf.GGUF_DEFAULT_ALIGNMENT))
        for shape in block_shapes(tensor.shape):
            rows = random_rows(tensor, shape, deviation_of(config, tensor), rng)
            if tensor.name in tables:
                rows = np.array(tables[tensor.name], "<f4").view(np.uint8)
            if tensor.name == final:
                rows = (rows.view("<f4") * mean).view(np.uint8)
            if repeat_experts and tensor.name.endswith(ROUTER):
                rows = (rows.view("<f4").reshape(shape) * _uneven(shape[0], rng)).view(np.uint8)
            wrote(file.write(rows.data))
    file.write(bytes(-file.tell() % gguf.GGUF_DEFAULT_ALIGNMENT))


def _uneven(experts: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """The lengths of a router's rows (experts, 1), whose mean square is 1, in a random order."""
    lengths = np.arange(1.0, experts + 1) ** _RANK_POWER
    lengths /= np.sqrt(np.mean(np.square(lengths)))
    return rng.permutation(lengths).astype("<f4")[:, None]


def write_synthetic(
    vocabulary: Path,
    config: DecoderConfig,
    out: Path,
    *,
    name: str,
    seed: int,
    final_norm: float | None,
    repeat_experts: bool,
    progress: Progress,
) -> None:
    """Write the file, with one row of embeddings for each token of the vocabulary.

    Raises a WeightsError, or an OSError if the file cannot be written.
    """
    keys = read_vocabulary(vocabulary)
    tokens = keys[_TOKENS]
    assert isinstance(tokens, list), "read_vocabulary checks it"
    config = replace(config, vocab_size=min(config.vocab_size, len(tokens)))
    keys = {
        key: value[: config.vocab_size] if isinstance(value, list) else value
        for key, value in keys.items()
    }
    total = sum(tensor.stored_bytes for tensor in tensors_of(config))
    with tempfile.TemporaryDirectory(prefix=".hearth.", dir=out.parent) as folder:
        unfinished = Path(folder) / out.name
        write_header(unfinished, config, keys, name)
        with (
            unfinished.open("ab") as file,
            progress.stage(f"write {total / 1e6:.0f} MB", total) as wrote,
        ):
            rng = np.random.default_rng(seed)
            write_tensors(file, config, rng, wrote, final_norm, repeat_experts=repeat_experts)
        unfinished.replace(out)


def with_layers(config: DecoderConfig, layers: int) -> DecoderConfig:
    """A shape with the first layers alone."""
    fields = {name: getattr(config, name)[:layers] for name in config.by_layer}
    if isinstance(config, SharedCacheConfig):
        fields["caching_layers"] = min(layers, config.caching_layers)
    return replace(config, layers=min(layers, config.layers), **fields)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="python -m benchmarks.synthetic_weights",
    )
    parser.add_argument("vocabulary", type=existing_path, help="GGUF file of Gemma 3 of any size")
    parser.add_argument("size", choices=SIZES, help="size whose shape the weights have")
    parser.add_argument("out", type=Path, help="GGUF file to write")
    parser.add_argument("--layers", type=int, help="write this number of layers (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: 0)")
    parser.add_argument(
        "--final-norm",
        type=float,
        help="mean of the weights of the final norm; 1 gives flat logits (default: as on text)",
    )
    parser.add_argument(
        "--repeat-experts",
        action="store_true",
        help="neighboring tokens share as many experts as in published models (default: few)",
    )
    options = parser.parse_args(arguments)
    config = SIZES[options.size]
    console = open_console(stderr=True, highlight=False, soft_wrap=True)
    try:
        if options.out.exists() and options.out.samefile(options.vocabulary):
            raise BadFile(f"{options.out}: got the file of the vocabulary, expected another file")
        write_synthetic(
            options.vocabulary,
            with_layers(config, options.layers or config.layers),
            options.out,
            name=f"{architecture_of(config).name} {options.size} with random weights",
            seed=options.seed,
            final_norm=options.final_norm,
            repeat_experts=options.repeat_experts,
            progress=TerminalProgress(console),
        )
    except (OSError, WeightsError) as error:
        sys.exit(f"synthetic_weights: {error}")
    console.print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")
    is_assistant = architecture_of(config).name in ASSISTANTS
    console.print(f"next: hearth bake {'MODEL --drafter ' if is_assistant else ''}{options.out}")


if __name__ == "__main__":
    main()
