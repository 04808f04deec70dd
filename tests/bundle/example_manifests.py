"""A manifest of each kind of bundle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.bundle import (
    ENCODER_INPUTS,
    FORMAT,
    AdapterArray,
    AdapterMatrix,
    AdapterPlaces,
    ArraysManifest,
    CacheSpec,
    Compiler,
    EncoderManifest,
    EntryPoint,
    FileRecord,
    Footprint,
    FunctionSpec,
    Golden,
    GoldenStep,
    GridInput,
    Hearth,
    ImageInput,
    ImageTiles,
    InputSpec,
    KernelBuild,
    LanguageManifest,
    OutputSpec,
    Preset,
    PresetMessage,
    Provenance,
    Serving,
    SoundInput,
    SourceRecord,
    SpecialTokens,
    Target,
    TriedPrecision,
    record_file,
    write_manifest,
)

if TYPE_CHECKING:
    from pathlib import Path

ORIGIN = Provenance(
    model="gemma3",
    options={"precision": "auto", "slots": 2},
    tried=(
        TriedPrecision(precision="int8-g32", kl=0.5, positions=64, refused="too much"),
        TriedPrecision(precision="bf16", kl=1e-4, positions=64, refused=None),
    ),
    hearth=Hearth(version="0.1.0", revision="ef", modified=False),
    sources=(
        SourceRecord(name="model.gguf", bytes=9, sha256="ab", package="weights", version="1.0"),
    ),
    graph="01",
    compiler=Compiler(name="iree", version="3.13.0", flags=("-O2",)),
    kernels=KernelBuild(names=("linear_int8_g32",), instructions="avx2"),
    tools={"numpy": "2.3"},
)
EXAMPLE = LanguageManifest(
    format=FORMAT, architecture="gemma3", config={"layers": 18, "hidden": 640, "eps": 1e-6},
    precision="bf16", storages={}, vocab_size=262144, context=2048,
    slots=2, serving=Serving(activations="int8", max_memory=10**9), tolerance=0.05,
    special_tokens=SpecialTokens(bos=2, eos=(1, 106)),
    caches=(CacheSpec(name="layers.0.key", rows=640, width=256, dtype="f32"),),
    entry_points=(
        EntryPoint(name="prefill_16", kind="prefill", batch=1, tokens=16, keys=64),
        EntryPoint(name="decode_1", kind="decode", batch=1, tokens=1, keys=64),
    ),
    images=ImageInput(
        side=64, rows=16, longest_edge=256, resampling="lanczos", mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5), marker="<image>", placeholder="<image>",
        tile="<row_{row}_col_{column}>", line_end="\n", start="<global-img>", end="<end>",
    ),
    image_grid=GridInput(
        patch=16, merged=2, min_pixels=65536, max_pixels=2**20, resampling="bicubic",
        mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), marker="<i>", start="<start>",
        placeholder="<image>", end="<end>", axes=3,
        tiles=ImageTiles(
            side=64, min_count=2, max_count=4, min_pixels=2**20, start="<{row}_{column}>",
            thumbnail="<whole>",
        ),
    ),
    sound=SoundInput(
        features="log_mel", width=128, frames=4, max_rows=750, marker="<a>", start="<start>",
        placeholder="<a>", end="<end>",
    ),
    target=Target(name="host", triple="x86_64-linux-gnu", cpu="host", features=("avx2",)),
    statistics={"nodes": 3},
    provenance=ORIGIN,
    golden=(
        Golden(
            prompt="Hé", prompt_ids=(2, 7), steps=(GoldenStep(token_ids=(5,), logits=(1.5,)),)
        ),
    ),
    adapters=AdapterPlaces(
        count=2, rank=4,
        arrays=(
            AdapterArray(name="a", shape=(2, 4, 8), dtype="f16"),
            AdapterArray(name="b", shape=(2, 3, 4, 16), dtype="f16"),
        ),
        matrices=(
            AdapterMatrix(
                module="m", rows=34, columns=8, gguf="g", interleaved=2, folder_interleaved=True,
                gguf_interleaved=False,
                down=0, first_term=0,
                up=1, first_block=0,
            ),
        ),
        gguf_architecture="llama",
    ),
    footprint=Footprint(laid_out=5, read=1, looked_up=4, calls={"prefill_16": 6, "decode_1": 2}),
    files=(FileRecord(name="model.vmfb", bytes=3, sha256="cd"),),
)  # fmt: skip


ARRAYS = ArraysManifest(
    format=FORMAT, architecture="gru", config={"hidden": 3}, precision="f32", tolerance=1e-4,
    target=EXAMPLE.target, statistics={"ops.step": 9}, provenance=ORIGIN, files=EXAMPLE.files,
    functions=(
        FunctionSpec(
            name="step",
            inputs=(InputSpec(name="h", shape=(1, 2, 3), dtype="f32", default="zeros"),),
            outputs=(OutputSpec(name="h", shape=(1, 2, 3), dtype="f32", takes="h"),),
        ),
    ),
)  # fmt: skip
ENCODER = EncoderManifest(
    format=FORMAT, architecture="bert", config={"hidden": 3}, precision="f32", tolerance=1e-4,
    target=EXAMPLE.target, statistics={"ops.encode_1x16": 9}, provenance=ORIGIN,
    files=EXAMPLE.files, vocab_size=99, footprint=EXAMPLE.footprint,
    functions=(
        FunctionSpec(
            name="encode_1x16",
            inputs=tuple(
                InputSpec(name=name, shape=(1, 16), dtype="i32", default="zeros")
                for name in ENCODER_INPUTS
            ),
            outputs=(OutputSpec(name="vectors", shape=(1, 3), dtype="f32", takes=None),),
        ),
    ),
)  # fmt: skip
EXAMPLES = {"language": EXAMPLE, "arrays": ARRAYS, "encoder": ENCODER}

# Every field of a preset.
PRESET = Preset(
    sampling={"temperature": 0.5},
    stop=("a", "b"),
    seed=-1,
    max_tokens=3,
    context=4,
    system="S",
    messages=(PresetMessage(role="user", content="M"),),
    license="L",
)


def small_bundle(folder: Path) -> Path:
    """Write a bundle of one file; returns its folder."""
    folder.mkdir()
    (folder / "model.vmfb").write_bytes(b"program")
    files = (record_file(folder / "model.vmfb"),)
    write_manifest(folder, replace(EXAMPLE, files=files))
    return folder
