"""Downloads from a local hub: what arrives, what is asked, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import constants, try_to_load_from_cache
from typing_extensions import override

from hearthd.baker.hub.download import download
from hearthd.baker.hub.hub_errors import DoesNotFit, HubError
from hearthd.baker.weights.gguf import tensor_ranges
from hearthd.bundle.projector_files import projectors_beside
from hearthd.cli import main
from hearthd.server.process.memory_limit import Limit
from tests.baker.hub.local_hub import COMMIT
from tests.baker.small_gemma3 import CONFIG, SPECIAL, small_gemma3
from tests.baker.small_whisper import small_whisper
from tests.conftest import Silent
from tests.models.families.gguf_files import write_gguf
from tests.models.families.gguf_projector import write_projector

if TYPE_CHECKING:
    from tests.baker.hub.conftest import Files
    from tests.baker.hub.local_hub import LocalHub

pytestmark = pytest.mark.usefixtures("hub")

# Enough for Python, and not for a model.
TOO_LITTLE = 120_000_000


class Notes(Silent):
    """A Progress that keeps the notes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @override
    def note(self, text: str) -> None:
        self.lines.append(text)


def test_a_gguf_file_arrives_after_the_verdict(small: Files) -> None:
    notes = Notes()
    path = download("hf:a/gguf", notes)
    assert (path.name, path.read_bytes()) == ("model-Q4_K_M.gguf", small.gguf)
    name, model, memory, speed = notes.lines
    assert name == f"hf:a/gguf: model-Q4_K_M.gguf, {len(small.gguf) / 1e6:.1f} MB"
    assert model == "gemma3 in int8-g32, 2048 tokens of context or more, 4 slots"
    assert memory.startswith("memory: 1")
    assert " tokens/s: a token reads 0.1 MB of weights, and memory is read at 20 GB/s" in speed


def test_a_projector_arrives_beside_the_model(hub: LocalHub, small: Files) -> None:
    """It is no model: nothing is said of its memory."""
    hub.repositories["a/gguf"] = {"m-Q4_K_M.gguf": small.gguf, "mmproj-m-f16.gguf": b"GGUF"}
    notes = Notes()
    path = download("hf:a/gguf/mmproj-m-f16.gguf", notes)
    assert (path.read_bytes(), notes.lines) == (b"GGUF", [])
    assert projectors_beside(download("hf:a/gguf", notes)) == (path,)


def test_a_model_that_reads_images_comes_with_its_projector(hub: LocalHub, tmp_path: Path) -> None:
    """The one of the closest bits, as with llama-server; a second call asks for nothing else."""
    folder = small_gemma3(tmp_path / "folder")
    gguf = write_gguf(folder, "gemma3-images", CONFIG, SPECIAL).read_bytes()
    tower = write_projector(folder, tmp_path / "tower.gguf", "gemma3-images", CONFIG).read_bytes()
    models = {"m-Q4_K_M.gguf": gguf, "mmproj-m-F16.gguf": tower, "mmproj-m-Q8_0.gguf": tower}
    hub.repositories["a/images"] = {**models, "other/mmproj-Q4_0.gguf": tower}
    notes = Notes()
    path = download("hf:a/images", notes)
    assert [file.name for file in projectors_beside(path)] == ["mmproj-m-Q8_0.gguf"]
    assert notes.lines[1].startswith("gemma3-images in ")
    hub.requests.clear()
    assert download("hf:a/images", notes) == path
    assert not any("mmproj" in request for request in hub.requests)
    hub.repositories["a/large"] = models
    with pytest.raises(DoesNotFit, match=r"; without images \(--no-mmproj\) it needs less$"):
        download("hf:a/large", notes, max_memory=TOO_LITTLE)
    hub.repositories["a/text"] = models
    assert not projectors_beside(download("hf:a/text", notes, images=False))


def test_a_projector_of_another_model_is_not_downloaded(hub: LocalHub, small: Files) -> None:
    hub.repositories["a/gguf"] = {"m-Q4_K_M.gguf": small.gguf, "mmproj-m-f16.gguf": b"GGUF"}
    notes = Notes()
    assert not projectors_beside(download("hf:a/gguf", notes))
    assert "mmproj-m-f16.gguf is not downloaded: Hearth reads no images with it" in notes.lines


def test_other_tools_find_the_file_in_the_cache() -> None:
    path = download("hf:a/gguf", Silent())
    assert try_to_load_from_cache("a/gguf", path.name, revision="main") == str(path)
    assert path.parent.name == COMMIT


def test_a_folder_has_what_a_bake_reads(small: Files) -> None:
    notes = Notes()
    path = download("hf:a/folder", notes)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == small.folder
    assert "gemma3 in int8-g32, 2048 tokens of context or more, 4 slots" in notes.lines


def test_a_model_of_speech_arrives_after_its_verdict(hub: LocalHub, tmp_path: Path) -> None:
    folder = small_whisper(tmp_path / "whisper")
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    hub.repositories["a/whisper"] = files
    notes = Notes()
    path = download("hf:a/whisper", notes)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == files
    _, model, memory = notes.lines
    assert model == "whisper in int8-g32, 128 tokens of context"
    assert memory.startswith("memory: ")


@pytest.mark.parametrize("reference", ["hf:a/gguf", "hf:a/folder"])
def test_a_second_pull_downloads_nothing(reference: str, hub: LocalHub) -> None:
    path = download(reference, Silent())
    hub.requests.clear()
    notes = Notes()
    assert download(reference, notes) == path
    assert [request.path.partition("?")[0] for request in hub.requests] == [
        f"/api/models/{reference.removeprefix('hf:')}/revision/main"
    ]
    assert notes.lines == []


def test_the_header_is_read_before_the_tensors_and_nothing_else(
    hub: LocalHub, small: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request is too short for the header, which the second one has."""
    (tmp_path / "model.gguf").write_bytes(small.gguf)
    tensors = tensor_ranges(tmp_path / "model.gguf")
    assert tensors is not None
    start = min(bytes_.start for bytes_ in tensors.values()) * 3 // 4
    monkeypatch.setattr("hearthd.baker.hub.header_copy._FIRST_GGUF", start)
    with pytest.raises(DoesNotFit):
        download("hf:a/gguf", Silent(), max_memory=TOO_LITTLE)
    assert hub.ranges()[:2] == [f"bytes=0-{start - 1}", f"bytes={start}-{2 * start - 1}"]
    assert hub.sent == 2 * start


@pytest.mark.nightly
def test_a_model_that_does_not_fit_is_refused_with_a_quantization_that_does(
    hub: LocalHub, small: Files, larger: bytes
) -> None:
    hub.repositories["a/gguf"] = {
        "m-Q2_K.gguf": small.gguf,
        "m-Q3_K.gguf": larger[:-32],
        "m-Q4_K_M.gguf": larger,
        "m-Q8_0.gguf": larger + bytes(32),
    }
    notes = Notes()
    download("hf:a/gguf:Q2_K", notes)
    needed = float(notes.lines[2].partition(" MB")[0].removeprefix("memory: "))
    limit = int((needed + 1) * 1e6)
    for memory, end in (
        (limit, "what fits: hf:a/gguf:Q2_K"),
        (TOO_LITTLE, "no smaller file of the repository fits"),
    ):
        with pytest.raises(DoesNotFit) as error:
            download("hf:a/gguf", notes, max_memory=memory)
        start, _, rest = str(error.value).partition(" MB of memory")
        assert float(start.removeprefix("hf:a/gguf: needs ")) > limit / 1e6
        assert rest == f", and there are {memory / 1e6:.1f} MB; {end}"


def test_force_downloads_what_does_not_fit(small: Files) -> None:
    notes = Notes()
    path = download("hf:a/gguf", notes, max_memory=TOO_LITTLE, force=True)
    assert path.read_bytes() == small.gguf
    assert "needs 1" in notes.lines[-1]


def test_a_model_of_speech_arrives_after_the_verdict(hub: LocalHub, tmp_path: Path) -> None:
    folder, notes = small_whisper(tmp_path / "whisper"), Notes()
    hub.repositories["a/ears"] = {path.name: path.read_bytes() for path in folder.iterdir()}
    path = download("hf:a/ears", notes)
    assert (path / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert "whisper in int8-g32, 128 tokens of context" in notes.lines


def test_what_a_bake_refuses_is_refused_before_the_download(hub: LocalHub, small: Files) -> None:
    """By its name on the hub, not by the path of the copy of its header."""
    key, config = b"tokenizer.ggml.tokens", json.loads(small.folder["config.json"])
    hub.repositories["a/gguf"] = {"m.gguf": small.gguf.replace(key, b"?" * len(key))}
    message = r"^hf:a/gguf: not supported: m\.gguf: tokenizer\.ggml\.tokens is missing; "
    with pytest.raises(DoesNotFit, match=message):
        download("hf:a/gguf", Silent())
    changed = json.dumps(config | {"hidden_act": "relu"}).encode()
    hub.repositories["a/folder"] = {**small.folder, "config.json": changed}
    message = r"^hf:a/folder: not supported: a/folder: as gemma3: config\.json: hidden_act"
    with pytest.raises(DoesNotFit, match=message):
        download("hf:a/folder", Silent())


def test_an_unknown_architecture_is_refused_before_the_download(
    hub: LocalHub, small: Files
) -> None:
    hub.repositories["a/gguf"] = {"m.gguf": small.gguf.replace(b"gemma3", b"gemmaX")}
    with pytest.raises(DoesNotFit, match=r"^hf:a/gguf: not supported: m\.gguf: .*'gemmaX'"):
        download("hf:a/gguf", Silent())
    assert hub.sent == len(small.gguf)  # the header, in a request for 8 MiB


def test_the_token_is_sent_to_the_hub_alone(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.faults.token = "hf_secret"
    with pytest.raises(HubError, match=r"no such model at .*, or it is private; .* HF_TOKEN"):
        download("hf:a/gguf", Silent())
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.requests.clear()
    download("hf:a/gguf", Silent())
    for request in hub.requests:
        assert (request.token is None) == request.path.startswith("/cdn/")


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        (401, {}, r"refuses access \(401\); set HF_TOKEN"),
        (401, {"X-Error-Code": "RepoNotFound"}, r"no such model at .*/a/gguf, or it is private"),
        (403, {"X-Error-Code": "GatedRepo"}, r"accept its terms at .*/a/gguf, and set HF_TOKEN"),
        (404, {"X-Error-Code": "RevisionNotFound"}, r"no revision 'main'"),
        (429, {"Retry-After": "40"}, r"too many requests \(429\); try again in 40 s"),
        (429, {"RateLimit": '"api";r=0;t=55'}, r"too many requests \(429\); try again in 55 s"),
        (503, {}, r"answers with status 503; try again later"),
        (200, {}, r"is not a hub"),
    ],
)
def test_a_refusal_of_the_hub_is_one_sentence(
    status: int, headers: dict[str, str], message: str, hub: LocalHub
) -> None:
    hub.faults.refusal = status, headers
    with pytest.raises(HubError, match=rf"^hf:a/gguf: .*{message}[^\n]*$"):
        download("hf:a/gguf", Silent())


@pytest.mark.parametrize("path", ["../../up.gguf", "a/../../b.gguf", "..\\b.gguf", "/abs.gguf"])
def test_a_path_outside_of_the_repository_is_refused(
    path: str, hub: LocalHub, small: Files, tmp_path: Path
) -> None:
    named = f"{tmp_path}/abs.gguf" if path.startswith("/") else path
    hub.repositories["a/hostile"] = {named: small.gguf}
    with pytest.raises(HubError, match=r"^hf:a/hostile: the path .* leaves the repository$"):
        download("hf:a/hostile", Silent())
    assert not [*tmp_path.rglob("*.gguf")]


def test_a_digest_that_is_a_path_is_refused(hub: LocalHub) -> None:
    hub.digests["config.json"] = "../../../up"
    with pytest.raises(HubError, match=r"has neither digest nor size of config\.json"):
        download("hf:a/folder", Silent())


def test_a_model_that_does_not_exist_is_said() -> None:
    with pytest.raises(HubError, match="hf:a/b: there is no such model at http"):
        download("hf:a/b", Silent())


def test_without_ranges_the_file_comes_without_a_verdict(hub: LocalHub, small: Files) -> None:
    hub.faults.ranges = False
    notes = Notes()
    assert download("hf:a/gguf", notes).read_bytes() == small.gguf
    assert "whole files only" in notes.lines[-1]


def test_offline_uses_the_cache_alone(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [download(reference, Silent()) for reference in ("hf:a/gguf", "hf:a/folder")]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert paths == [download(reference, Silent()) for reference in ("hf:a/gguf", "hf:a/folder")]
    with pytest.raises(HubError, match="hf:a/other: not in the cache, and HF_HUB_OFFLINE is set"):
        download("hf:a/other", Silent())
    with pytest.raises(HubError, match="no GGUF file has Q8_0; it has Q4_K_M"):
        download("hf:a/gguf:Q8_0", Silent())
    assert hub.requests == []


def test_a_branch_whose_commit_is_in_the_cache_is_there_offline(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = f"https://huggingface.co/a/gguf/tree/{COMMIT}"
    path = download(commit, Silent())
    hub.requests.clear()
    assert download("hf:a/gguf", Silent()) == path
    assert hub.ranges() == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert path == download("hf:a/gguf", Silent()) == download(commit, Silent())
    assert [ref.name for ref in path.parents[2].glob("refs/*")] == ["main"]


def test_a_folder_that_is_incomplete_is_not_there_offline(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.faults.content = b"wrong"
    with pytest.raises(HubError):
        download("hf:a/folder", Silent(), force=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="not in the cache"):
        download("hf:a/folder", Silent())


def test_without_a_connection_the_cache_is_used_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = download("hf:a/gguf", Silent())
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    notes = Notes()
    assert download("hf:a/gguf", notes) == path
    assert notes.lines[0].endswith("; using the cache")
    with pytest.raises(HubError, match=r"cannot reach http://127\.0\.0\.1:1 \(.*; check the conn"):
        download("hf:a/other", Silent())


def test_the_command_prints_the_path_alone_on_stdout(
    small: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, stdout, stderr = pull(["hf:a/gguf"], monkeypatch, capsys)
    assert code == 0
    assert Path(stdout.removesuffix("\n")).read_bytes() == small.gguf
    assert "download model-Q4_K_M.gguf, 0.4 MB" in stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["a/gguf"], 2, "got 'a/gguf', expected hf:ORG/REPO, "),
        (["hf:a/gguf:Q2_K"], 1, "hf:a/gguf:Q2_K: no GGUF file has Q2_K; it has Q4_K_M, Q8_0"),
        (["hf:a/b"], 1, "hf:a/b: there is no such model at http"),
        (["hf:a/gguf", "--memory"], 2, "No such option"),
    ],
)
def test_a_failure_of_the_command_is_one_line(
    arguments: list[str],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = pull(arguments, monkeypatch, capsys)
    assert (ended[0], ended[1]) == (code, "")
    assert ended[2].startswith(f"hearth pull: {message}")
    assert ended[2].count("\n") == 1


def test_the_command_refuses_what_exceeds_the_limit_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = Limit(bytes=TOO_LITTLE, source="memory.max")
    monkeypatch.setattr("hearthd.hub_weights.memory_limit", lambda *_: limit)
    code, _, stderr = pull(["hf:a/gguf:Q8_0"], monkeypatch, capsys)
    assert code == 1
    assert "\nhearth pull: hf:a/gguf:Q8_0: needs 1" in stderr
    assert stderr.endswith("; --force downloads it anyway\n")
    assert pull(["hf:a/gguf:Q8_0", "--force"], monkeypatch, capsys)[0] == 0


def pull(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str, str]:
    """The exit code, stdout and stderr of `hearth pull`."""
    monkeypatch.setattr(sys, "argv", ["hearth", "pull", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main()
    return exit_.value.code, *capsys.readouterr()


def test_a_program_reads_the_progress_and_bakes(
    small: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    baked: list[tuple[object, ...]] = []

    def bake(path: str, home: Path, _: dict[str, str], *, name: str) -> Path:
        baked.append((Path(path).read_bytes(), home, name))
        return home / name

    monkeypatch.setattr("hearthd.pull.find_or_bake", bake)
    home = ["--home", str(tmp_path)]
    arguments = ["hf:a/gguf", "--json", "--bake", "--name", "mine", *home]
    code, stdout, stderr = pull(arguments, monkeypatch, capsys)
    assert (code, stderr) == (0, "")
    assert baked == [(small.gguf, tmp_path, "mine")]
    *progress, last = [json.loads(line) for line in stdout.splitlines()]
    assert last == {"path": str(tmp_path / "mine")}
    size = len(small.gguf)
    first, *_, end = (line for line in progress if line.get("stage", "").startswith("download"))
    assert (first["total"], first["completed"]) == (size, 0)
    assert (end["total"], end["completed"]) == (size, size)
    assert progress[-1]["stage"] == "bake model-Q4_K_M.gguf"
