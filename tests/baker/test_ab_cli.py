"""The command line of `ab`: exit codes and what it writes, on a program small enough to know."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from baker.ab import cli
from baker.ab.llama import EXACT, LlamaCpp, LlamaError
from baker.ab.recording import Best, Case, Recording, write_recording
from tests.server import tiny

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_LLAMA = importlib.util.find_spec("llama_cpp") is None


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ab") / "bundle"
    tiny.write_bundle(path)
    return path


def known_case(steps: int) -> Case:
    """What the tiny program answers to three tokens, by its formula."""
    read = [2, 5, 1]
    best = []
    for _ in range(steps):
        logits = tiny.expected(read).astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum())
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


def reference(folder: Path, case: Case) -> str:
    path = folder / "reference.json"
    write_recording(path, Recording(meta={"engine": "by hand"}, cases=(case,)))
    return str(path)


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ab", *arguments])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    code = exit_.value.code
    assert isinstance(code, int)
    return code


def test_a_right_bundle_passes_and_the_json_says_so(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    recording = reference(tmp_path, known_case(5))
    options = ("--reference", recording, "--blame", "0", "--json", str(out))
    assert exit_code(monkeypatch, str(bundle), *options) == 0
    data = json.loads(out.read_text("utf-8"))
    (case,) = data["cases"]
    assert data["passed"] is True
    assert (case["equal"], case["steps"], case["common_prefix"]) == (5, 5, 5)
    assert case["spread"]["largest"] < 2e-5
    assert case["blame"] is None


def test_a_difference_is_exit_code_1_and_json_goes_to_stdout_alone(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    case = known_case(3)
    shifted = tuple(
        Best(token_ids=best.token_ids, logprobs=tuple(p - 0.03 for p in best.logprobs))
        for best in case.best
    )
    recording = reference(tmp_path, Case(**{**vars(case), "best": shifted}))
    options = ("--reference", recording, "--blame", "0", "--json", "-")
    assert exit_code(monkeypatch, str(bundle), *options) == 1
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert data["passed"] is False
    assert "a log-probability differs by 0.0300, wanted at most 0.02" in data["failures"][0]
    assert "outside the tolerance" in captured.err


def test_usage_errors_are_exit_code_2(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(monkeypatch, str(bundle)) == 2
    assert "--reference FILE.json" in capsys.readouterr().err
    recording = reference(tmp_path, known_case(3))
    assert exit_code(monkeypatch, str(bundle), "--reference", recording, "--save", "x") == 2
    assert "--llama-cpp" in capsys.readouterr().err


def test_refusals_are_one_line_and_exit_code_2(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    too_long = reference(tmp_path, known_case(tiny.CONTEXT))
    for arguments, says in (
        ((str(tmp_path), "--reference", too_long), "is not a bundle"),
        ((str(bundle), "--reference", str(bundle / "manifest.json")), "wanted meta and cases"),
        ((str(bundle), "--reference", too_long, "--blame", "0"), "bake it with `--context 14`"),
    ):
        assert exit_code(monkeypatch, *arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("ab: ")
        assert says in error
        assert error.count("\n") == 1


@pytest.mark.skipif(not WITHOUT_LLAMA, reason="llama-cpp-python is installed")
def test_without_llama_cpp_the_error_says_what_to_install(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, str(bundle), "--llama-cpp", "model.gguf") == 2
    assert "pip install 'hearth[ab]'" in capsys.readouterr().err


@pytest.mark.skipif(WITHOUT_LLAMA, reason="llama-cpp-python (extra `ab`) is not installed")
def test_llama_cpp_refuses_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(LlamaError, match="no such file"):
        LlamaCpp(tmp_path / "absent.gguf", context=64, threads=1, profile=EXACT)
    (tmp_path / "bad.gguf").write_bytes(b"no model")
    with pytest.raises(LlamaError, match="cannot load"):
        LlamaCpp(tmp_path / "bad.gguf", context=64, threads=1, profile=EXACT)
