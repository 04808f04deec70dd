"""`bake` on the real model: other sources, other machines, and what is left when it fails."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import save_file

from baker.pipeline import bake
from baker.recipe import RecipeError
from baker.staging import BakeError
from baker.targets import embedded_elfs
from baker.tokenizer import tokenizer_json
from models.bundle import (
    MANIFEST,
    VMFB,
    LanguageManifest,
    read_manifest_of,
    verify_files,
    write_manifest,
)
from models.config import ConfigError
from models.gemma3 import stored_tensor
from models.gemma3_config import PRESETS
from server.runtime.base import read_prompt
from server.runtime.cpu import UnsupportedCpu
from server.runtime.load import open_bundle
from tests.conftest import OTHER_TARGET, Silent, order, packaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from baker.weights.source import WeightSource
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
_COMMAND = [sys.executable, "-c", "from baker.cli import main; main()"]
_EXECUTABLES = {"x86_64": 62, "aarch64": 183}


def hugging_face_folder(source: WeightSource, folder: Path) -> Path:
    """The GGUF's dequantised weights as Hugging Face stores them: w for norms, in two shards."""
    folder.mkdir()
    parameters = ["embed_tokens.weight", "norm.weight"]
    inner = [
        *(f"self_attn.{name}.weight" for name in "q_proj k_proj v_proj o_proj".split()),
        *(f"self_attn.{name}_norm.weight" for name in "qk"),
        *(f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
        *(
            f"{name}_layernorm.weight"
            for name in "input post_attention pre_feedforward post_feedforward".split()
        ),
    ]
    parameters += [f"layers.{layer}.{name}" for layer in range(18) for name in inner]
    shards: list[dict[str, NDArray[np.float32]]] = [{}, {}]
    for i, name in enumerate(parameters):
        stored = stored_tensor(PRESETS["gemma3-270m"], name, source.names(), gguf=True)
        values = source.read(stored.name)
        shards[i % 2][f"model.{name}"] = values - 1 if name.endswith("norm.weight") else values
    index: dict[str, str] = {}
    for i, shard in enumerate(shards, start=1):
        file = f"model-{i:05}-of-00002.safetensors"
        save_file(shard, folder / file)
        index |= dict.fromkeys(shard, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text(tokenizer_json(source), encoding="utf-8")
    return folder


def test_safetensors_and_gguf_give_the_same_bits(bundles: Bundles, tmp_path: Path) -> None:
    folder = hugging_face_folder(packaged("gemma3"), tmp_path / "hf")
    made = bake(order(tmp_path / "bundle", weights=folder, slots=1), Silent())
    digests = [
        {file.name: file.sha256 for file in read_manifest_of(path, LanguageManifest).files}
        for path in (made, bundles["f32"])
    ]
    assert digests[0]["params.irpa"] == digests[1]["params.irpa"]
    (_, ours), (_, theirs) = (open_bundle(path, threads=None) for path in (made, bundles["f32"]))
    prompt = list(range(1000, 1100))
    np.testing.assert_array_equal(read_prompt(ours, prompt), read_prompt(theirs, prompt))


def test_another_machine_from_the_same_trace(bundles: Bundles) -> None:
    made, machine = bundles["other"], OTHER_TARGET.split("-")[0]
    machines = {elf.machine for elf in embedded_elfs((made / VMFB).read_bytes())}
    assert machines == {_EXECUTABLES[machine]}
    here, there = (read_manifest_of(path, LanguageManifest) for path in (bundles["f32"], made))
    verify_files(made, there)
    assert there.golden == here.golden
    assert there.statistics == here.statistics
    with pytest.raises(UnsupportedCpu, match=machine):
        open_bundle(made, threads=None)


def test_what_is_not_a_bundle_is_not_replaced(tmp_path: Path) -> None:
    occupied = tmp_path / "notes"
    occupied.mkdir()
    (occupied / "letter.txt").write_text("dear all")
    with pytest.raises(BakeError, match="not a bundle"):
        bake(order(occupied), Silent())
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


class InterruptedAtLowering(Silent):
    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:
        if name == "lower to StableHLO":
            raise KeyboardInterrupt
        with super().stage(name, total) as advance:
            yield advance


def test_a_bundle_of_another_version_may_be_replaced_and_stays_until_then(tmp_path: Path) -> None:
    old = tmp_path / "bundle"
    old.mkdir()
    (old / "manifest.json").write_text('{"format": 1}')
    with pytest.raises(KeyboardInterrupt):
        bake(order(old), InterruptedAtLowering())
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert [path.name for path in old.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"size": "1b"}, RecipeError, "no package holds weights of gemma3 1b: give --weights"),
        ({"context": 40000}, RecipeError, "--context 40000: wanted 64 to 32768"),
        ({"context": 63}, RecipeError, "--context 63: wanted 64 to 32768"),
        ({"slots": 0}, RecipeError, "--slots 0"),
    ],
)
def test_orders_that_do_not_fit(
    tmp_path: Path, change: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        bake(replace(order(tmp_path / "bundle"), **change), Silent())  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_another_size_than_the_weights_have_is_refused(tmp_path: Path) -> None:
    (weights,) = packaged("gemma3").files()
    asked = replace(order(tmp_path / "bundle"), weights=weights, size="1b")
    with pytest.raises(RecipeError, match="--size 1b: the weights are of size 270m"):
        bake(asked, Silent())
    assert not list(tmp_path.iterdir())


def test_an_unknown_config_key_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, "mixture_of_depths": 3}))
    save_file({"model.norm.weight": np.zeros(640, np.float32)}, folder / "model.safetensors")
    with pytest.raises(ConfigError, match="mixture_of_depths"):
        bake(order(tmp_path / "bundle", weights=folder), Silent())


def test_a_vocabulary_that_our_kernels_cannot_have(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": 262145}))
    save_file({str(i): np.zeros(1, np.float32) for i in range(18)}, folder / "model.safetensors")
    asked = order(tmp_path / "bundle", weights=folder, precision="int8-g32")
    refused = r"int8-g32 is not for this model: .* 16 rows .* is 262145 x 640; --precision bf16 "
    with pytest.raises(BakeError, match=refused):
        bake(asked, Silent())
    # `auto` goes on to the next ones, and says of each what is wrong with it.
    refused = r"none will do: int8-g32: not for this model.*; bf16: needs .*; f32: needs .*0.1 MB"
    with pytest.raises(BakeError, match=refused):
        bake(replace(asked, precision="auto", max_memory=1000), Silent())


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*_COMMAND, "gemma3", "--out", str(folder / "bundle"), *options],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", ["lower to StableHLO", "write the tokenizer"])
def test_an_interrupted_bake_leaves_nothing(
    tmp_path: Path, stop: signal.Signals, after: str
) -> None:
    process = start(tmp_path)
    assert process.stderr is not None
    for line in process.stderr:
        if after in line:
            break
    time.sleep(0.2)
    process.send_signal(stop)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a disk: the kernel refuses the write."""
    limit = 100 << 20

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(
        [*_COMMAND, "gemma3", "--out", str(tmp_path / "bundle")],
        capture_output=True,
        text=True,
        preexec_fn=limited,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "bake: params.irpa cannot be written (File too large): a bundle of about"
    )
    assert f"is to lie in {tmp_path}, which has " in last
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_inspect_and_verify(bundles: Bundles, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*_COMMAND, *arguments], capture_output=True, text=True, check=False)

    bundle = bundles["f32"]
    shown = run("inspect", str(bundle))
    assert shown.returncode == 0
    for fact in ("gemma3", "prefill_128", "decode_2", "params.irpa", "cache"):
        assert fact in shown.stdout

    verified = run("verify", str(bundle))
    assert (verified.returncode, verified.stderr) == (0, "")
    assert "passed" in verified.stdout

    broken = tmp_path / "broken"
    broken.mkdir()
    for file in bundle.iterdir():
        if file.name != MANIFEST:
            (broken / file.name).hardlink_to(file)
    manifest = read_manifest_of(bundle, LanguageManifest)
    first, *others = manifest.golden
    step = first.steps[0]
    wrong = replace(step, logits=(step.logits[0] + 0.1, *step.logits[1:]))
    golden = (replace(first, steps=(wrong, *first.steps[1:])), *others)
    write_manifest(broken, replace(manifest, golden=golden))
    refused = run("verify", str(broken))
    assert refused.returncode == 1
    assert "the self-test failed" in refused.stdout
