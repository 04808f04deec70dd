"""`bake` on the real model: other sources, other machines, and what is left when it fails."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typing_extensions import override

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.compiler.targets import embedded_elfs
from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.opened_model import OpenedModel
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.pipeline.shared_stages import program_text
from hearthd.baker.reference.numpy_runtime import program_options, stored_parameters
from hearthd.baker.tokenizer.tokenizer_files import special_tokens, tokenizer_json
from hearthd.baker.weights.open_weights import open_weights
from hearthd.bundle import (
    MANIFEST,
    TOKENIZER,
    VMFB,
    LanguageManifest,
    read_manifest_of,
    verify_files,
    write_manifest,
)
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from hearthd.models.families.gemma3 import Gemma3
from hearthd.models.precision import KV_TOLERANCE
from hearthd.models.program import ProgramOptions, parameter_types
from hearthd.runtime.open_bundle import open_bundle
from hearthd.runtime.system.cpu_features import UnsupportedCpu
from tests.baker.small_gemma import SMALL, small_gemma
from tests.by_day import first_by_day
from tests.conftest import (
    OTHER_TARGET,
    Silent,
    few_entry_points,
    options_for,
    packaged,
)
from tests.models.presets import GEMMA3
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.pipeline.bake_options import BakeOptions
    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.program import Program
    from tests.conftest import Bundles

pytestmark = pytest.mark.slow

CONFIG = {
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 640,
    "intermediate_size": 2048,
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_hidden_layers": 18,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000.0,
    "rope_theta": 1000000.0,
    "sliding_window": 512,
    "vocab_size": 262144,
}
TABLE = "embed_tokens.weight"
_HEARTH = [sys.executable, "-m", "hearthd"]
_COMMAND = [*_HEARTH, "bake"]
_EXECUTABLES = {"x86_64": 62, "aarch64": 183}


def hugging_face_folder(source: WeightSource, bundle: Path, folder: Path) -> Path:
    """The weights of Gemma's GGUF file as Hugging Face stores them, in three shards.

    In the place of the table, which is most of the weights, is a file of zeros that takes no disk.
    """
    folder.mkdir()
    gemma3 = ARCHITECTURES["gemma3"]
    shards: list[dict[str, NDArray[np.float32]]] = [{}, {}]
    index: dict[str, str] = {}
    for i, name in enumerate(Gemma3(GEMMA3["270m"]).parameters()):
        there, here = (
            gemma3.tensors.find(GEMMA3["270m"], name, (), gguf=gguf) for gguf in (True, False)
        )
        if name == TABLE:
            index[here.name] = "table.safetensors"
            write_zeros(folder / "table.safetensors", here.name, source.shape(there.name))
        else:
            shards[i % 2][here.name] = source.read(there.name) - here.offset
    for i, shard in enumerate(shards, start=1):
        file = f"model-{i:05}-of-00002.safetensors"
        save_file(shard, folder / file)
        index |= dict.fromkeys(shard, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    shutil.copy(bundle / TOKENIZER, folder / "tokenizer.json")
    return folder


def write_zeros(path: Path, name: str, shape: tuple[int, ...]) -> None:
    """Write a sparse safetensors file of one f32 tensor."""
    size = 4 * math.prod(shape)
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}
    header = json.dumps({name: entry}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + size)


def program_of(config: Mapping[str, object], bundle: Path) -> Program:
    """The program of a config.json, with a bundle's options."""
    gemma3 = ARCHITECTURES["gemma3"]
    manifest = read_manifest_of(bundle, LanguageManifest)
    return gemma3.program(gemma3.from_hugging_face(config), program_options(manifest))


@pytest.mark.nightly
def test_safetensors_and_gguf_give_equal_bundles(bundles: Bundles, tmp_path: Path) -> None:
    """The same program, weights and tokenizer; all others follow from them.

    The table is only found: that large matrices are copied is tested in test_irpa.py.
    """
    bundle, file = bundles["gemma3"], packaged("gemma3")
    source = open_weights(hugging_face_folder(file, bundle, tmp_path / "hf"))
    gemma3 = ARCHITECTURES["gemma3"]
    config, program = gemma3.from_hugging_face(source.metadata()), program_of(CONFIG, bundle)
    options = ProgramOptions(context=64, precision="f32", prefill_tokens=(16,), decode_batches=(1,))
    exact = gemma3.program(config, options)
    written: list[dict[str, NDArray[Any]]] = []
    for one in (source, file):
        located = locate(one, gemma3, config, exact)
        layers = [part for part in located if set(part.weight.sources) != {TABLE}]
        assert len(layers) == len(located) - 1
        archive = tmp_path / f"{len(written)}.irpa"
        write_parameters(one, layers, archive, lambda _: None)
        written.append(stored_parameters(parameter_types([p.weight for p in layers]), archive))
    read, expected = written
    assert read.keys() == expected.keys()
    assert all(np.array_equal(read[name], expected[name]) for name in expected)
    manifest = read_manifest_of(bundle, LanguageManifest)
    assert sha256(program_text(program.graphs)).hexdigest() == manifest.provenance.graph
    assert tokenizer_json(source) == (bundle / TOKENIZER).read_text("utf-8")
    assert special_tokens(source) == manifest.special_tokens


def small_options(out: Path, weights: Path) -> BakeOptions:
    return options_for(out, weights=weights, slots=1, kv_cache="f16")


@pytest.fixture(scope="session")
def small_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gemma(tmp_path_factory.mktemp("small") / "weights")


@pytest.fixture(scope="session")
def small_bundle(small_weights: Path) -> Path:
    """A bundle of a small model for this machine."""
    with few_entry_points():
        return bake(small_options(small_weights.parent / "bundle", small_weights), Silent())


@pytest.mark.nightly
def test_another_target_has_the_same_golden_values(
    small_weights: Path, small_bundle: Path, tmp_path: Path
) -> None:
    request = small_options(tmp_path / "other", small_weights)
    with few_entry_points():
        there = bake(request.model_copy(update={"target": OTHER_TARGET}), Silent())
    machine = OTHER_TARGET.split("-")[0]
    machines = {elf.machine for elf in embedded_elfs((there / VMFB).read_bytes())}
    assert machines == {_EXECUTABLES[machine]}
    ours, theirs = (read_manifest_of(path, LanguageManifest) for path in (small_bundle, there))
    verify_files(there, theirs)
    assert theirs.golden == ours.golden
    assert theirs.statistics == ours.statistics
    assert {spec.dtype for spec in ours.caches} == {program_options(ours).kv_cache} == {"f16"}
    assert ours.provenance.options["kv_cache"] == "f16"
    assert ours.tolerance > KV_TOLERANCE["f16"]  # weights and arithmetic round, too
    with pytest.raises(UnsupportedCpu, match=machine):
        open_bundle(there, threads=None)


def test_a_folder_that_is_not_a_bundle_is_not_replaced(tmp_path: Path) -> None:
    weights, out = small_gemma(tmp_path / "weights"), tmp_path / "out"
    occupied = out / "notes"
    occupied.mkdir(parents=True)
    (occupied / "letter.txt").write_text("dear all")
    with pytest.raises(BakeError, match="not a bundle"):
        bake(options_for(occupied, weights=weights), Silent())
    assert [path.name for path in out.iterdir()] == ["notes"]
    assert [path.name for path in occupied.iterdir()] == ["letter.txt"]


class InterruptedAtLowering(Silent):
    @override
    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:
        if name == "lower to StableHLO":
            raise KeyboardInterrupt
        with super().stage(name, total) as advance:
            yield advance


def test_a_bundle_of_another_version_stays_until_it_is_replaced(tmp_path: Path) -> None:
    weights, out = small_gemma(tmp_path / "weights"), tmp_path / "out"
    old = out / "bundle"
    old.mkdir(parents=True)
    (old / "manifest.json").write_text('{"format": 1}')
    with pytest.raises(KeyboardInterrupt):
        bake(options_for(old, weights=weights), InterruptedAtLowering())
    assert [path.name for path in out.iterdir()] == ["bundle"]
    assert [path.name for path in old.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"context": 40000}, RecipeError, "--context 40000 is out of range: expected 64 to 32768"),
        ({"context": 63}, RecipeError, "--context 63 is out of range: expected 64 to 32768"),
        (
            {"activations": "int8", "precision": "bf16"},
            RecipeError,
            "--activations: bf16 multiplies floats and rounds no activations to int8; specify "
            "--precision int12-g32 or int8-g32 or native",
        ),
    ],
)
def test_an_invalid_request_is_an_error_and_leaves_nothing(
    tmp_path: Path, change: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        bake(options_for(tmp_path / "bundle", **change), Silent())
    assert not list(tmp_path.iterdir())


def test_a_size_that_is_not_that_of_the_weights_is_rejected(tmp_path: Path) -> None:
    (weights,) = packaged("gemma3").files()
    options = options_for(tmp_path / "bundle", weights=weights, size="1b")
    with pytest.raises(RecipeError, match="--size 1b: the weights have size 270m"):
        bake(options, Silent())
    assert not list(tmp_path.iterdir())


def test_an_unknown_config_key_is_rejected_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, "mixture_of_depths": 3}))
    save_file({"model.norm.weight": np.zeros(640, np.float32)}, folder / "model.safetensors")
    with pytest.raises(ConfigError, match="mixture_of_depths"):
        bake(options_for(tmp_path / "bundle", weights=folder), Silent())


def test_an_unsupported_width_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenedModel, "tokenizer", None)  # which is empty
    folder = tmp_path / "hf"
    folder.mkdir()
    config = {**CONFIG, "hidden_size": 648, "num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").touch()
    save_file({"model.norm.weight": np.zeros(1, np.float32)}, folder / "model.safetensors")
    options = options_for(tmp_path / "bundle", weights=folder, precision="int8-g32")
    refused = r"int8-g32 does not support this model: .* 32 columns, .* x 648; --precision bf16 "
    with pytest.raises(BakeError, match=refused):
        bake(options, Silent())
    # `auto` tries the next precisions and names the reason for each.
    refused = (
        r"no precision qualifies: native: stores these weights as int8-g32; "
        r"int8-g32: does not support this model.*; bf16: needs .*; f32: needs .*0.1 MB"
    )
    options = options.model_copy(update={"precision": "auto", "max_memory": 1000})
    with pytest.raises(BakeError, match=refused):
        bake(options, Silent())


def start(out: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*_COMMAND, "gemma3", "--out", str(out / "bundle"), *options],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def interrupt(process: subprocess.Popen[str], stop: signal.Signals, after: str) -> None:
    """Stop a bake a little after the end of a stage."""
    assert process.stderr is not None
    for line in process.stderr:
        if after in line:
            break
    time.sleep(0.2)
    process.send_signal(stop)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "interrupted" in errors


@pytest.mark.nightly
def test_an_interrupt_while_writing_weights_leaves_nothing(tmp_path: Path) -> None:
    interrupt(start(tmp_path), signal.SIGINT, after="lower to StableHLO")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stop", first_by_day([signal.SIGTERM, signal.SIGINT]))
def test_an_interrupt_while_compiling_leaves_nothing(tmp_path: Path, stop: signal.Signals) -> None:
    weights, out = small_gemma(tmp_path / "weights"), tmp_path / "out"
    out.mkdir()
    process = start(out, "--weights", str(weights), "--precision", "f32")
    interrupt(process, stop, after="read the tokenizer")
    assert not list(out.iterdir())


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a disk: the kernel refuses the write."""
    weights, out = small_gemma(tmp_path / "weights", replace(SMALL, ffn=8192)), tmp_path / "out"
    out.mkdir()
    options = ("--weights", str(weights), "--precision", "f32", "--out", str(out / "bundle"))
    limit = 6 << 20

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(
        [*_COMMAND, "gemma3", *options],
        capture_output=True,
        text=True,
        preexec_fn=limited,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("hearth bake: params.irpa cannot be written (File too large): ")
    assert f"{out} has " in last
    assert "Traceback" not in done.stderr
    assert not list(out.iterdir())


def hearth(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*_HEARTH, *arguments], capture_output=True, text=True, check=False)


def test_inspect_shows_a_real_bundle(bundles: Bundles) -> None:
    shown = hearth("inspect", str(bundles["smollm2"]), "--all").stdout
    assert all(fact in shown for fact in ("smollm2", "prefill_128", "decode_1", "params.irpa"))


@pytest.mark.nightly
def test_a_real_bundle_is_verified(bundles: Bundles) -> None:
    assert "passed" in hearth("verify", str(bundles["gemma3"])).stdout


@pytest.mark.nightly
def test_verify_rejects_wrong_golden_values(small_bundle: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in small_bundle.iterdir():
        if file.name != MANIFEST:
            (broken / file.name).hardlink_to(file)
    manifest = read_manifest_of(small_bundle, LanguageManifest)
    first, *others = manifest.golden
    step, *later = first.steps
    wrong = replace(step, logits=(step.logits[0] + 0.1, *step.logits[1:]))
    golden = (replace(first, steps=(wrong, *later)), *others)
    write_manifest(broken, replace(manifest, golden=golden))
    refused = hearth("verify", str(broken))
    assert (refused.returncode, "the self-test failed" in refused.stdout) == (1, True)
