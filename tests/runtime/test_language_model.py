"""The IREE runtime with a small program of the bundle ABI, compared with NumPy."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hearthd.bundle import (
    PARAMETERS,
    VMFB,
    Corrupt,
    LanguageManifest,
    NotABundle,
    write_manifest,
)
from hearthd.runtime.interface import read_prompt
from hearthd.runtime.iree.device import CannotLoad
from hearthd.runtime.language_model import IreeRuntime
from hearthd.runtime.open_bundle import open_bundle
from hearthd.runtime.system.cpu_features import UnsupportedCpu
from tests.server import tiny

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "tiny"
    tiny.write_bundle(path)
    return path


@pytest.fixture(scope="module")
def manifest(bundle: Path) -> LanguageManifest:
    return open_bundle(bundle, threads=None)[0]


@pytest.fixture(scope="module")
def runtime(bundle: Path, manifest: LanguageManifest) -> IreeRuntime:
    return IreeRuntime(bundle, manifest, threads=1)


def close(actual: NDArray[np.float32], tokens: list[int]) -> None:
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, tiny.expected(tokens), rtol=1e-5, atol=1e-5)


def test_the_sizes_are_those_of_the_manifest(runtime: IreeRuntime) -> None:
    assert runtime.vocab_size == tiny.VOCAB
    assert runtime.context == tiny.CONTEXT
    assert runtime.slots == tiny.SLOTS
    assert runtime.chunk == 4
    assert runtime.batch == 3
    assert runtime.row_width == tiny.WIDTH


def test_prefill_and_decode_agree_with_numpy(runtime: IreeRuntime) -> None:
    close(read_prompt(runtime, [1, 2, 3]), [1, 2, 3])
    close(runtime.decode([0], [6], [3])[0], [1, 2, 3, 6])
    close(read_prompt(runtime, [4, 5], start=4), [1, 2, 3, 6, 4, 5])


def test_the_context_can_be_filled_to_its_last_position(runtime: IreeRuntime) -> None:
    tokens = [i % tiny.VOCAB for i in range(tiny.CONTEXT)]
    for start in range(0, tiny.CONTEXT - 1, 4):
        runtime.prefill(0, tokens[start : start + 4][: tiny.CONTEXT - 1 - start], start)
    close(runtime.decode([0], [tokens[-1]], [tiny.CONTEXT - 1])[0], tokens)


def test_verify_returns_all_logits_and_rejected_tokens_are_overwritten(
    runtime: IreeRuntime,
) -> None:
    assert runtime.verify_tokens == (3,)
    runtime.prefill(0, [1, 2], 0)
    first = list(runtime.verify(0, [3, 6, 6], 2))
    second = runtime.verify(0, [4, 5], 3)  # 3 was right, the others were not; and a place is left
    close(next(second), [1, 2, 3, 4])
    close(runtime.decode([0], [5], [4])[0], [1, 2, 3, 4, 5])
    close(next(second), [1, 2, 3, 4, 5])
    assert list(second) == []
    # What was taken belongs to the caller: later calls leave it alone.
    for row, tokens in zip(first, ([1, 2, 3], [1, 2, 3, 6], [1, 2, 3, 6, 6]), strict=True):
        close(row, tokens)


def test_verify_reads_up_to_the_last_position(runtime: IreeRuntime) -> None:
    tokens = [i % tiny.VOCAB for i in range(tiny.CONTEXT)]
    for start in range(0, tiny.CONTEXT - 2, 2):
        runtime.prefill(0, tokens[start : start + 2], start)
    close(list(runtime.verify(0, tokens[-2:], tiny.CONTEXT - 2))[-1], tokens)
    for wrong, start in (([1, 2, 3], tiny.CONTEXT - 2), ([1, 2, 3, 4], 0), ([], 0)):
        with pytest.raises(AssertionError):
            runtime.verify(0, wrong, start)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_embed_sums_and_reads_the_tokens_without_the_padding(
    runtime: IreeRuntime, count: int
) -> None:
    tokens = [5, 6, 2, 1][:count]
    runtime.prefill(0, [1, 2], 0)
    total = runtime.embed(0, tokens, 2)
    assert total.dtype == np.float32
    np.testing.assert_allclose(total, tiny.WEIGHTS[tokens].sum(axis=0), rtol=1e-6)
    close(runtime.decode([0], [3], [2 + count])[0], [1, 2, *tokens, 3])


def test_writing_at_position_0_begins_a_new_sequence(runtime: IreeRuntime) -> None:
    runtime.prefill(0, [1, 2, 3, 4], 0)
    close(read_prompt(runtime, [5]), [5])


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_slots_are_independent(runtime: IreeRuntime, data: st.DataObject) -> None:
    read: dict[int, list[int]] = {slot: [] for slot in range(tiny.SLOTS)}
    ids = st.integers(0, tiny.VOCAB - 1)
    for _ in range(8):
        ready = [slot for slot, tokens in read.items() if 0 < len(tokens) < tiny.CONTEXT]
        decode: bool = data.draw(st.booleans())
        if ready and decode:
            slots = data.draw(st.lists(st.sampled_from(ready), min_size=1, max_size=3, unique=True))
            tokens = [data.draw(ids) for _ in slots]
            rows = runtime.decode(slots, tokens, [len(read[slot]) for slot in slots])
            for slot, token, row in zip(slots, tokens, rows, strict=True):
                read[slot].append(token)
                close(row, read[slot])
        else:
            slot = data.draw(st.integers(0, tiny.SLOTS - 1))
            if len(read[slot]) > tiny.CONTEXT - 4:
                read[slot] = []
            tokens = data.draw(st.lists(ids, min_size=1, max_size=4))
            runtime.prefill(slot, tokens, len(read[slot]))
            read[slot] += tokens


@pytest.mark.parametrize("slots", [[1], [3, 0], [2, 3, 1]])
def test_a_batch_without_an_entry_point_of_its_size_is_padded(
    runtime: IreeRuntime, slots: list[int]
) -> None:
    for slot in range(tiny.SLOTS):
        runtime.prefill(slot, [slot], 0)
    rows = runtime.decode(slots, [6 - slot for slot in slots], [1] * len(slots))
    assert rows.shape == (len(slots), tiny.VOCAB)
    for slot, row in zip(slots, rows, strict=True):
        close(row, [slot, 6 - slot])


def test_logits_belong_to_the_caller(runtime: IreeRuntime) -> None:
    first = runtime.decode([0], [1], [0])
    kept = first.copy()
    runtime.decode([0], [2], [0])
    np.testing.assert_array_equal(first, kept)
    first[:] = 0  # writable


def test_caches_are_updated_in_place(bundle: Path, manifest: LanguageManifest) -> None:
    runtime = IreeRuntime(bundle, manifest, threads=1)
    runtime.prefill(2, [1, 2], 0)
    shape, dtype = (tiny.ROWS, tiny.WIDTH), np.dtype(np.float32)
    # The same device memory is looked at before and after, through the mapping made before.
    before = [cache.map().asarray(shape, dtype) for _, cache in runtime._slot_caches(2)]
    runtime.decode([2], [5], [2])
    rows = tiny.WEIGHTS[[1, 2, 5]]
    np.testing.assert_array_equal(before[0][:3], rows)
    np.testing.assert_allclose(before[1][:3], rows * np.arange(3)[:, None], rtol=1e-6)
    assert not np.array_equal(before[0], before[1])


def test_restored_rows_have_the_bits_of_read_tokens(runtime: IreeRuntime) -> None:
    tokens = [1, 2, 3, 4, 5, 6, 0, 1]
    blocks = []
    for start in (0, 4):
        runtime.prefill(0, tokens[start : start + 4], start)
        blocks.append(runtime.save(0, start, start + 4))
    runtime.prefill(0, [6, 6, 6, 6], 4)  # what is saved is a copy
    runtime.prefill(3, [5, 5, 5, 5], 0)  # a slot that was in use
    runtime.restore(3, 0, blocks[:1])
    runtime.restore(3, 4, blocks[1:])
    close(runtime.decode([3], [2], [8])[0], [*tokens, 2])
    runtime.restore(2, 0, blocks[:1])
    close(read_prompt(runtime, [5, 3], slot=2, start=4), [1, 2, 3, 4, 5, 3])


def test_a_restored_rest_of_a_prompt_has_the_bits_of_read_tokens(runtime: IreeRuntime) -> None:
    runtime.prefill(0, [1, 2, 3, 4], 0)
    blocks = [runtime.save(0, 0, 4)]
    runtime.prefill(0, [5, 6], 4)
    blocks.append(runtime.save(0, 4, 6))
    read = runtime.decode([0], [3], [6])[0]
    runtime.prefill(3, [5, 5, 5, 5], 0)  # a slot that was in use
    runtime.restore(3, 0, blocks)
    np.testing.assert_array_equal(runtime.decode([3], [3], [6])[0], read)


@pytest.mark.parametrize(
    ("slot", "tokens", "start"),
    [
        (-1, [1], 0),
        (4, [1], 0),
        (0, [], 0),
        (0, [7], 0),
        (0, [-1], 0),
        (0, [1], -1),
        (0, [1], 12),
        (0, [1, 1, 1, 1, 1], 0),
    ],
)
def test_values_out_of_range_are_our_bug(
    runtime: IreeRuntime, slot: int, tokens: list[int], start: int
) -> None:
    for read in (runtime.prefill, runtime.embed):
        with pytest.raises(AssertionError):
            read(slot, tokens, start)
    if len(tokens) == 1:
        with pytest.raises(AssertionError):
            runtime.decode([slot], tokens, [start])


def test_a_slot_cannot_be_decoded_twice_at_once(runtime: IreeRuntime) -> None:
    with pytest.raises(AssertionError, match="a slot twice"):
        runtime.decode([0, 0], [1, 1], [0, 0])


# Opening a bundle: every failure has its own error.


READING_ONLY = """
import os, sys
from pathlib import Path
from hearthd.runtime.open_bundle import open_bundle

def refuse(event, arguments):
    if event == "open" and str(arguments[0]).startswith(sys.argv[1]):
        if arguments[2] & os.O_ACCMODE != os.O_RDONLY:
            raise PermissionError(arguments[0])

sys.addaudithook(refuse)
open_bundle(Path(sys.argv[1]), threads=1)
"""


def test_a_bundle_may_be_on_a_read_only_disk(bundle: Path) -> None:
    subprocess.run([sys.executable, "-c", READING_ONLY, bundle], check=True)


@pytest.fixture
def broken(bundle: Path, tmp_path: Path) -> Path:
    """A copy of the bundle, to be broken."""
    path = tmp_path / "broken"
    path.mkdir()
    for file in bundle.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    return path


def test_a_folder_without_a_manifest_is_not_a_bundle(tmp_path: Path) -> None:
    with pytest.raises(NotABundle, match=r"manifest\.json"):
        open_bundle(tmp_path, threads=None)


def test_a_bundle_for_another_cpu_is_rejected(broken: Path, manifest: LanguageManifest) -> None:
    target = replace(manifest.target, features=("no-such-feature",))
    write_manifest(broken, replace(manifest, target=target))
    with pytest.raises(UnsupportedCpu, match="lacks no-such-feature"):
        open_bundle(broken, threads=None)


@pytest.mark.parametrize("name", [VMFB, PARAMETERS])
def test_a_missing_file_is_corrupt(broken: Path, name: str) -> None:
    (broken / name).unlink()
    with pytest.raises(Corrupt, match=f"{name}: missing file"):
        open_bundle(broken, threads=None)


@pytest.mark.parametrize("name", [VMFB, PARAMETERS])
def test_a_truncated_file_is_corrupt(broken: Path, name: str) -> None:
    content = (broken / name).read_bytes()
    (broken / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(Corrupt, match=f"{name}: wrong size: got {len(content) // 2} bytes"):
        open_bundle(broken, threads=None)


@pytest.mark.parametrize("name", [VMFB, PARAMETERS])
def test_a_changed_byte_is_corrupt(broken: Path, name: str) -> None:
    content = bytearray((broken / name).read_bytes())
    content[-1] ^= 1
    (broken / name).write_bytes(content)
    with pytest.raises(Corrupt, match=f"{name}: wrong sha256"):
        open_bundle(broken, threads=None)


def test_a_program_that_iree_cannot_load_is_an_error(
    broken: Path, manifest: LanguageManifest
) -> None:
    (broken / VMFB).write_bytes(b"no program")
    with pytest.raises(CannotLoad, match=r"IREE cannot load it: .*; bake it again"):
        IreeRuntime(broken, manifest, threads=None)


@pytest.mark.parametrize("start", [0, 8, 16, 40])
def test_weights_that_iree_cannot_parse_are_an_error(
    broken: Path, manifest: LanguageManifest, start: int
) -> None:
    with (broken / PARAMETERS).open("r+b") as file:
        file.seek(start)
        file.write(b"\xff" * 40)
    with pytest.raises(CannotLoad, match=r"IREE cannot load it: .*; bake it again"):
        IreeRuntime(broken, manifest, threads=None)


def test_missing_weights_are_an_error(broken: Path, manifest: LanguageManifest) -> None:
    import iree.runtime as rt

    rt.save_archive_file({"other": tiny.WEIGHTS}, broken / PARAMETERS)
    with pytest.raises(CannotLoad, match="IREE cannot load"):
        IreeRuntime(broken, manifest, threads=None)


def test_a_missing_entry_point_is_an_error(bundle: Path, manifest: LanguageManifest) -> None:
    renamed = tuple(replace(e, name=f"{e.name}_x") for e in manifest.entry_points)
    with pytest.raises(CannotLoad, match="missing entry point 'prefill_4_x'"):
        IreeRuntime(bundle, replace(manifest, entry_points=renamed), threads=None)


@pytest.mark.parametrize(
    "missing", [("prefill_4", "prefill_2"), ("decode_1",), ("embed_4",)], ids=str
)
def test_a_bundle_needs_a_prefill_an_embed_and_a_decode_of_one(
    bundle: Path, manifest: LanguageManifest, missing: tuple[str, ...]
) -> None:
    entries = tuple(e for e in manifest.entry_points if e.name not in missing)
    assert len(entries) == len(manifest.entry_points) - len(missing)
    with pytest.raises(CannotLoad, match="expected a prefill, an embed and a decode of batch 1"):
        IreeRuntime(bundle, replace(manifest, entry_points=entries), threads=None)
