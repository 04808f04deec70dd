"""`hearth compare`: exit codes and what it writes, on a program small enough to know."""

from __future__ import annotations

import importlib.util
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from hearthd import cli
from hearthd.baker.compare.report.summary import Report
from hearthd.baker.compare.sides.llama_cpp import EXACT, LlamaCpp, LlamaError
from hearthd.baker.compare.sides.recording import (
    Best,
    Case,
    Recording,
    read_recording,
    write_recording,
)
from hearthd.bundle import TOKENIZER
from hearthd.server.app import Guards
from tests.patience import PATIENCE
from tests.server import fakes, tiny
from tests.server.openai_servers import chatty

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_LLAMA = importlib.util.find_spec("llama_cpp") is None
LETTERS = "abcdefg"[: tiny.VOCAB]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny program, with a tokenizer of one letter a token."""
    path = tmp_path_factory.mktemp("ab") / "bundle"
    tiny.write_bundle(path)
    vocabulary = {letter: token for token, letter in enumerate(LETTERS)}
    letters = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    letters.decoder = decoders.Fuse()
    letters.save(str(path / TOKENIZER))
    return path


def known_case(steps: int, *, shift: float = 0.0) -> Case:
    """What the tiny program answers to three tokens, by its formula; probabilities off by a bit."""
    read = [2, 5, 1]
    best = []
    for _ in range(steps):
        logits = tiny.expected(read).astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum()) - shift
        order = [int(token) for token in np.argsort(-logprobs)[:5]]
        best.append(Best(token_ids=tuple(order), logprobs=tuple(logprobs[order].tolist())))
        read.append(order[0])
    ids = tuple(read)
    return Case(
        name="known",
        prompt="p",
        prompt_ids=ids[:3],
        greedy_ids=ids[3:],
        text="t",
        best=tuple(best),
    )


def recording(folder: Path, case: Case) -> str:
    path = folder / "golden.json"
    write_recording(path, Recording(meta={"engine": "by hand"}, cases=(case,)))
    return str(path)


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["hearth", "compare", *arguments])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    code = exit_.value.code
    assert isinstance(code, int)
    return code


def report_in(folder: Path) -> Report:
    return Report.model_validate_json((folder / "report.json").read_text("utf-8"))


@pytest.mark.nightly
def test_a_bundle_equal_to_its_recording_is_within_the_limits(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = recording(tmp_path, known_case(5))
    limits = ("--max-kl", "1e-6", "--max-difference", "2e-5", "--min-agreement", "1")
    out = tmp_path / "deep" / "out"
    assert exit_code(monkeypatch, golden, str(bundle), "--out", str(out), *limits) == 0
    report = report_in(out)
    assert report.answers is not None
    assert report.answers.agree == report.answers.positions == 5
    assert report.answers.largest_difference < 2e-5
    assert report.texts is None
    assert not report.exact
    assert report.failures == []
    assert {path.name for path in out.iterdir()} == {"report.html", "report.md", "report.json"}


def test_an_exceeded_limit_is_exit_code_1_and_named_in_the_report(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    golden = recording(tmp_path, known_case(3, shift=0.03))
    options = ("--out", str(tmp_path), "--max-difference", "0.02")
    assert exit_code(monkeypatch, golden, str(bundle), *options) == 1
    (failure,) = report_in(tmp_path).failures
    assert "is 0.03" in failure
    assert "the limit is 0.02" in failure
    assert failure in capsys.readouterr().out
    assert exit_code(monkeypatch, golden, str(bundle), "--out", str(tmp_path)) == 0


def test_texts_are_cut_to_the_context_of_both_bundles(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text"
    text.write_text("abcdefgabcdefgabcdefg", encoding="utf-8")
    options = ("--text", str(text), "--answers", "0", "--out", str(tmp_path))
    assert exit_code(monkeypatch, str(bundle), str(bundle), *options, "--max-kl", "0") == 0
    report = report_in(tmp_path)
    assert report.exact
    assert report.texts is not None
    assert report.texts.positions == tiny.CONTEXT - 1
    assert report.notes == [f"text: only the first {tiny.CONTEXT} of 21 tokens are compared."]
    logprobs = []
    for end in range(1, tiny.CONTEXT):
        logits = tiny.expected([place % 7 for place in range(end)]).astype(np.float64)
        logprobs.append(logits[end % 7] - np.log(np.exp(logits).sum()))
    assert report.texts.perplexity_a == pytest.approx(np.exp(-np.mean(logprobs)), rel=1e-4)


def test_a_recording_can_be_compared(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "hearthd.baker.compare.comparison.default_prompts", lambda: {"short": "cfb", "x": "a" * 9}
    )
    golden = tmp_path / "golden.json"
    assert exit_code(monkeypatch, str(bundle), "--record", str(golden), "--answers", "5") == 0
    (case,) = read_recording(golden).cases
    assert case.prompt_ids == known_case(5).prompt_ids
    assert case.greedy_ids == known_case(5).greedy_ids
    assert case.text == "".join(LETTERS[token] for token in case.greedy_ids)
    assert "x." in read_recording(golden).meta["left out"]
    options = ("--out", str(tmp_path), "--max-difference", "2e-5")
    assert exit_code(monkeypatch, str(golden), str(bundle), *options) == 0


def test_requests_carry_the_api_key_of_their_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = recording(tmp_path, known_case(2))
    monkeypatch.setenv("OPENAI_API_KEY", "for all")
    with fakes.running(chatty(), guards=Guards(api_keys=("for b",))) as plain:
        url = f"{plain.base_url}/v1"
        assert exit_code(monkeypatch, golden, url, "--out", str(tmp_path)) == 2
        assert "status 401" in capsys.readouterr().err
        monkeypatch.setenv("OPENAI_API_KEY_B", "for b")
        assert exit_code(monkeypatch, golden, url, "--out", str(tmp_path)) == 2
        # With the right key it is only the names of the tokens that are missing.
        assert "--tokenizer BUNDLE" in capsys.readouterr().err


def test_usage_errors_are_exit_code_2(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(monkeypatch, str(bundle)) == 2
    assert "B is missing" in capsys.readouterr().err
    assert exit_code(monkeypatch, str(bundle), "b", "--record", str(tmp_path / "x")) == 2
    assert "takes no B" in capsys.readouterr().err
    record = ("--record", str(tmp_path / "x"))
    assert exit_code(monkeypatch, str(bundle), *record, "--answers", "0") == 2
    assert "--answers must be at least 1" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_errors_are_one_line_and_exit_code_2(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    too_long = recording(tmp_path, known_case(tiny.CONTEXT))
    bad = tmp_path / "bytes"
    bad.write_bytes(b"\xff\xfe")
    name = str(bundle)
    for arguments, says in (
        ((str(tmp_path), too_long), ": not a bundle"),
        ((str(bundle / "manifest.json"), name), "meta: missing field"),
        ((too_long, name), "bake it with --context 14"),
        ((too_long, name, "--text", str(bad)), "remove --text"),
        (
            ("nothing", name),
            "expected a bundle's folder or name, exact:BUNDLE, MODEL.gguf",
        ),
        ((f"{name}+{tmp_path}", name), "has no places for adapters; bake it again with --adapters"),
        ((f"{name}+adapter.gguf", name), "has no places for adapters; bake it again with"),
        ((name, name, "--text", str(tmp_path / "absent")), "cannot be read as UTF-8 text"),
        ((name, name, "--text", str(bad)), "cannot be read as UTF-8 text"),
        (("http://127.0.0.1:1/v1", too_long), "the request failed"),
    ):
        out = tmp_path / "out"
        assert exit_code(monkeypatch, *arguments, "--out", str(out)) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("hearth compare: ")
        assert says in error
        assert not out.exists()


def test_an_interrupt_while_waiting_for_a_server_leaves_no_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    golden = recording(tmp_path, known_case(2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1#m"
        with subprocess.Popen(
            [sys.executable, "-m", "hearthd", "compare", golden, url, "--out", str(out)],
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            connection, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
            connection.close()
            _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert not out.exists()


@pytest.mark.skipif(not WITHOUT_LLAMA, reason="llama-cpp-python is installed")
def test_without_llama_cpp_the_error_says_what_to_install(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, str(bundle), "model.gguf") == 2
    assert "pip install 'hearthd[compare]'" in capsys.readouterr().err


@pytest.mark.skipif(WITHOUT_LLAMA, reason="llama-cpp-python (extra `compare`) is not installed")
def test_llama_cpp_rejects_files_that_are_not_models(tmp_path: Path) -> None:
    with pytest.raises(LlamaError, match="does not exist"):
        LlamaCpp(tmp_path / "absent.gguf", context=64, threads=1, profile=EXACT)
    (tmp_path / "bad.gguf").write_bytes(b"no model")
    with pytest.raises(LlamaError, match="cannot load"):
        LlamaCpp(tmp_path / "bad.gguf", context=64, threads=1, profile=EXACT)
