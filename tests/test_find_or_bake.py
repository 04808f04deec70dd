"""A file, a folder or a name becomes a bundle, which is found again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from hearthd import find_or_bake as find_or_bake_module
from hearthd import hub_weights
from hearthd.baker.hub.hub_errors import HubError
from hearthd.bundle import MANIFEST, NotABundle, bundle_home, write_manifest
from hearthd.bundle.kept_bundles import FILE
from hearthd.find_or_bake import find, find_or_bake
from hearthd.flags import UsageError
from hearthd.model_weights import Weights
from tests.baker.pipeline.test_bake_encoder import write_model
from tests.baker.small_gemma import small_gemma
from tests.baker.small_whisper import small_whisper
from tests.bundle.example_manifests import ENCODER
from tests.fake_bakes import Bakes, write_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from hearthd.model_requirement import Purpose


@pytest.fixture
def bakes(monkeypatch: pytest.MonkeyPatch) -> Bakes:
    bakes = Bakes()
    monkeypatch.setattr(subprocess, "Popen", bakes)
    return bakes


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def file(home: Path) -> Path:
    """A file that no bake has read."""
    file = home.parent / "my model.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    return file


def bundle_of(model: str | Path, **bake: str) -> Path:
    return find_or_bake(str(model), None, bake)


def test_a_file_is_baked_once_and_kept_by_a_readable_name(
    file: Path, home: Path, bakes: Bakes
) -> None:
    bundle = bundle_of(file.name)
    assert bundle == home / "my-model"
    assert bakes.arguments == [["--", str(file)]]
    assert bundle_of(file) == bundle_of("my-model") == bundle_of(home / "my-model") == bundle
    assert find(str(file), None, {}) == bundle
    file.rename(file.with_name("other.gguf"))
    assert bundle_of("other.gguf") == bundle
    assert len(bakes.arguments) == 1


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"# Read me", "it is a text that starts with '# Read me'; download the model again, or"),
        (b"GGML\0", "it does not start with GGUF; specify a GGUF file or a Hugging Face f"),
        (b"<html>", "a web page"),
        (b"", "it is empty"),
    ],
)
def test_a_file_of_another_format_is_refused_before_the_bake(
    home: Path, bakes: Bakes, contents: bytes, message: str
) -> None:
    file = home.parent / "README.md"
    file.write_bytes(contents)
    with pytest.raises(NotABundle, match=rf"README.md is not a GGUF file: .*{message}"):
        bundle_of(file)
    assert not bakes.arguments


def test_any_shard_of_a_split_file_finds_its_bundle(home: Path, bakes: Bakes) -> None:
    shards = [home.parent / f"big-Q4_K_M-0000{number}-of-00002.gguf" for number in (1, 2)]
    for shard in shards:
        shard.write_bytes(b"GGUF" + bytes(100))
    bundle = bundle_of(shards[1])
    assert bundle == home / "big-Q4_K_M"
    assert bundle_of(shards[0]) == bundle
    assert len(bakes.arguments) == 1
    shards[0].write_bytes(b"GGUF" + b"x" * 100)
    bundle_of(shards[1])
    assert len(bakes.arguments) == 2


def test_other_options_are_another_bundle(file: Path, bakes: Bakes) -> None:
    options: list[Mapping[str, str]] = [
        {},
        {"precision": "int8-g32"},
        {"precision": "int8-g32", "context": "4096"},
        {"slots": "1", "target": "aarch64"},
    ]
    names = ["my-model", "my-model-int8-g32", "my-model-int8-g32-context4096"]
    for _ in range(2):
        found = [bundle_of(file, **bake) for bake in options]
        assert [path.name for path in found] == [*names, "my-model-slots1-aarch64"]
    assert len(bakes.arguments) == len(options)
    assert bakes.arguments[2][:4] == ["--precision", "int8-g32", "--context", "4096"]
    assert bundle_of(file, context=" 4096", precision="int8-g32") == found[2]
    assert bundle_of(file, target="host") == found[0]  # the default
    assert bundle_of(file, precision="f32") == found[0]  # the default bundle's
    assert len(bakes.arguments) == len(options)


def test_a_file_as_an_option_counts_by_its_contents(file: Path, bakes: Bakes) -> None:
    text = file.with_name("text")
    text.write_text("a")
    first = bundle_of(file, calibration=str(text))
    assert first.name == "my-model-calibration-text"
    assert bundle_of(file, calibration=str(text)) == first
    text.write_text("another")
    bundle_of(file, calibration=str(text))
    assert len(bakes.arguments) == 2


def test_a_file_that_changed_is_baked_again_to_the_same_place(file: Path, bakes: Bakes) -> None:
    bundle = bundle_of(file)
    file.write_bytes(b"GGUF" + b"x" * 100)
    assert bundle_of(file) == bundle
    assert len(bakes.arguments) == 2
    assert bundle_of(file) == bundle
    assert len(bakes.arguments) == 2


def test_files_of_one_name_do_not_share_a_bundle(file: Path, home: Path, bakes: Bakes) -> None:
    bundle = bundle_of(file)
    other = home.parent / "folder" / file.name
    other.parent.mkdir()
    other.write_bytes(b"GGUF" + b"y" * 100)
    assert bundle_of(other).name.startswith("my-model-")
    assert bundle_of(file) == bundle
    assert bundle_of(other) != bundle
    assert len(bakes.arguments) == 2


def test_a_bundle_that_another_bake_wrote_is_not_replaced(
    file: Path, home: Path, bakes: Bakes
) -> None:
    (home / "my-model").mkdir(parents=True)
    write_bundle(home / "my-model", context=64)
    first = bundle_of(file)
    assert first.name.startswith("my-model-")
    write_bundle(first, context=128)  # as `hearth bake --out` does
    before = (first / MANIFEST).read_bytes()
    file.touch()
    bundle_of(file)
    assert (first / MANIFEST).read_bytes() == before
    assert len(bakes.arguments) == 2


def test_a_removed_bundle_is_baked_again(file: Path, bakes: Bakes) -> None:
    bundle = bundle_of(file)
    (bundle / MANIFEST).unlink()
    bundle.rmdir()
    assert bundle_of(file) == bundle
    assert len(bakes.arguments) == 2


def test_a_bundle_of_an_older_version_is_replaced(file: Path, bakes: Bakes) -> None:
    bundle = bundle_of(file)
    (bundle / MANIFEST).write_text('{"format": 1}')
    assert bundle_of(file) == bundle
    assert len(bakes.arguments) == 2


def test_a_damaged_record_is_ignored(file: Path, home: Path, bakes: Bakes) -> None:
    home.mkdir()
    (home / FILE).write_bytes(b"\xff\n1 2\n1 2 3 4 5\n")
    bundle = bundle_of(file)
    assert bundle_of(file) == bundle
    assert len(bakes.arguments) == 1


def test_two_processes_at_once_bake_once(
    file: Path, bakes: Bakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock belongs to an open file, so threads wait for each other as processes do."""
    notes: list[str] = []
    monkeypatch.setattr("hearthd.find_or_bake._note", notes.append)

    def others_wait() -> bool:
        return sum("waits for another bake" in note for note in notes) == 2

    bakes.until = others_wait
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(bundle_of(file))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == len(bakes.arguments) == 1
    assert others_wait()


def test_a_home_that_is_not_a_folder_is_refused(file: Path, bakes: Bakes) -> None:
    with pytest.raises(NotABundle, match=f"^--home: {file} cannot keep bundles: File exists; name"):
        find_or_bake(str(file), file, {})
    assert not bakes.arguments


def test_a_bake_that_fails_is_not_recorded(file: Path, home: Path, bakes: Bakes) -> None:
    for status, error in ((1, SystemExit), (-9, NotABundle)):
        bakes.status = status
        with pytest.raises(error, match=r"1|killed by SIGKILL"):
            bundle_of(file)
    assert list(bundle_home.bundles_in(home)) == []
    bakes.status = 0
    assert bundle_of(file).name == "my-model"


def test_a_bundle_takes_no_options_of_a_bake(home: Path, bakes: Bakes) -> None:
    (home / "gemma").mkdir(parents=True)
    write_bundle(home / "gemma", context=64)
    for model in ("gemma", str(home / "gemma")):
        with pytest.raises(UsageError, match=r"^--context: .* is a bundle, .*; omit the option"):
            bundle_of(model, context="64")
    assert bakes.arguments == []


def test_options_are_checked_before_the_bake(file: Path, bakes: Bakes) -> None:
    with pytest.raises(UsageError, match="--context: got 'x', expected"):
        bundle_of(file, context="x")
    assert bakes.arguments == []


def test_the_name_of_a_package_is_a_model(
    home: Path, bakes: Bakes, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    from hearthd.baker.weights import open_weights

    monkeypatch.setattr(open_weights, "packaged_file", lambda _: file)
    assert bundle_of("gemma3") == home / "gemma3"
    assert bundle_of("gemma3", context="4096") == home / "gemma3-context4096"
    assert bakes.arguments == [["--", "gemma3"], ["--context", "4096", "--", "gemma3"]]
    file.unlink()
    assert bundle_of("gemma3") == home / "gemma3"  # by its name


def test_a_reference_is_downloaded_and_baked(
    home: Path, bakes: Bakes, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    downloads: list[str] = []

    def download(reference: str, *_: object, **__: object) -> Path:
        downloads.append(reference)
        if "none" in reference:
            raise HubError("no such model")
        return file

    monkeypatch.setattr(hub_weights, "download", download)
    assert bundle_of("hf:org/repo:Q4_K_M").parent == home
    assert downloads == ["hf:org/repo:Q4_K_M"]
    assert bakes.arguments == [["--", str(file)]]
    with pytest.raises(NotABundle, match=r"^no such model$"):
        bundle_of("https://huggingface.co/org/none")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("hf:org", "got 'hf:org', expected hf:ORG/REPO, "),
        ("gemm3", "gemm3: not a bundle: .*; specify a GGUF file, .*hf:ORG/REPO, .*: gemma3$"),
        ("my-modle", "^my-modle: not a bundle: .*, or one of: my-model$"),
        ("unlike", "^unlike: not a bundle: .*, or one of: gemma3, my-model, smollm2$"),
        (
            "qwen3",
            "^qwen3: no package contains .* of qwen3; .* or hf:ORG/REPO in place of the name$",
        ),
        ("llama3.2:1b", "^llama3.2:1b: not a bundle: .*, give ollama:llama3.2:1b, and .* hf:ORG/"),
        ("Qwen/Qwen3-0.6B-GGUF", "; for a model on huggingface.co, give hf:Qwen/Qwen3-0.6B-GGUF$"),
        ("hf.co/Qwen", "^got 'hf.co/Qwen', expected hf:ORG/REPO, "),
        ("https://a.example/b.gguf", "^https://a.example/b.gguf: .*; download the file and give "),
        ("missing/model.gguf", "^missing/model.gguf: not a bundle: there is no such path; check "),
        ("unlike.gguf", "^unlike.gguf: not a bundle: there is no such path; check its spelling"),
        ("Modelfile", "^Modelfile: not a bundle: there is no such path; check its spelling and"),
        ("my/Modelfile", "^my/Modelfile: not a bundle: there is no such path; check its spell"),
        ("file:///no/m.gguf", "^file:///no/m.gguf: not a bundle: .*; check its spelling and the"),
        ("pipe", "pipe: not a bundle: got "),
        ("foldr", "^foldr: not a bundle: there is no such path; did you mean folder[?]$"),
        ("folder/b.gguf", "did you mean folder/a.gguf[?]$"),
        ("folder/a", "did you mean folder/a.gguf[?]$"),
        ("folder/A.GGUF", "did you mean folder/a.gguf[?]$"),
        ("link", "^link: a symbolic link to gone.gguf, which does not exist; copy or download "),
    ],
)
def test_other_files_say_why(
    model: str, message: str, home: Path, tmp_path: Path, bakes: Bakes
) -> None:
    (home / "my-model").mkdir(parents=True)
    write_bundle(home / "my-model", 64)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.gguf").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("gone.gguf")
    with pytest.raises(NotABundle, match=message):
        bundle_of(model)
    assert bakes.arguments == []


def test_a_base_model_is_told_apart_before_its_weights_are_read(home: Path, bakes: Bakes) -> None:
    folder = small_gemma(home.parent / "tiny gemma")
    message = "a base model, .*: use `hearth generate 'tiny gemma' PROMPT`"
    with pytest.raises(NotABundle, match=message):
        find_or_bake("tiny gemma", None, {}, purpose="chat")
    assert not list(bundle_home.bundles_in(home))
    assert isinstance(find("tiny gemma", None, {}), Weights)
    bundle = bundle_of("tiny gemma")
    with pytest.raises(NotABundle, match=message):
        find_or_bake("tiny gemma", None, {}, purpose="chat")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert find_or_bake("tiny gemma", None, {}, purpose="chat") == bundle
    assert bakes.waited == 2


def test_a_base_model_that_another_process_bakes_meanwhile_is_told_apart(
    home: Path, bakes: Bakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_gemma(home.parent / "tiny gemma")
    locked = find_or_bake_module._bake_lock

    @contextlib.contextmanager
    def wait_for_another(home: Path, on_wait: Callable[[], None]) -> Iterator[None]:
        monkeypatch.setattr(find_or_bake_module, "_bake_lock", locked)
        bundle_of(folder)
        with locked(home, on_wait):
            yield

    monkeypatch.setattr(find_or_bake_module, "_bake_lock", wait_for_another)
    with pytest.raises(NotABundle, match="a base model"):
        find_or_bake(str(folder), None, {}, purpose="chat")
    assert len(bakes.arguments) == 1


def test_a_model_without_a_template_does_not_wait_for_another_bake(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(_: int, *, wait: bool = False) -> None:
        assert not wait
        raise BlockingIOError

    monkeypatch.setattr(find_or_bake_module, "lock", held)
    folder = small_gemma(home.parent / "tiny gemma")
    with pytest.raises(NotABundle, match="a base model"):
        find_or_bake(str(folder), None, {}, purpose="chat")


@pytest.mark.parametrize(
    ("purpose", "needs"), [("chat", "a chat"), ("text", "the generation of text")]
)
def test_a_model_that_generates_no_text_is_refused_before_a_bake(
    home: Path, bakes: Bakes, purpose: Purpose, needs: str
) -> None:
    write_model(home.parent / "tiny bert")
    small_whisper(home.parent / "tiny whisper")
    (home / "encoder").mkdir(parents=True)
    write_manifest(home / "encoder", ENCODER)
    for model, shown in (("tiny bert", "'tiny bert'"), ("tiny whisper", ".*"), ("encoder",) * 2):
        message = f"not a language model, which {needs} needs: use `hearth serve {shown}`"
        with pytest.raises(NotABundle, match=message):
            find_or_bake(model, None, {}, purpose=purpose)
    assert bakes.waited == 0


def test_a_file_that_is_not_a_model_is_refused_before_a_chat(file: Path, bakes: Bakes) -> None:
    with pytest.raises(NotABundle, match=r"my model\.gguf"):
        find_or_bake(str(file), None, {}, purpose="chat")
    assert bakes.waited == 0
