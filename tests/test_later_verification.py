"""A bundle is compared with NumPy while it is used, if it was not before."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from hearthd import later_verification
from hearthd.baker.checks.cli import ERRORS
from hearthd.baker.pipeline.shared_stages import ComparisonFailed
from hearthd.bundle import Golden, GoldenStep, write_manifest
from hearthd.bundle.kept_bundles import Source, keep
from hearthd.later_verification import COMPARISON_FAILED, Comparison, LaterVerification
from hearthd.runtime.checks.self_test import Verdict
from hearthd.server import cli
from hearthd.server.settings import LoadedSettings, Settings
from hearthd.server.terminal import commands
from hearthd.server.terminal.chat import Chat
from tests.fake_runtime import FakeRuntime
from tests.patience import PATIENCE
from tests.server import fakes
from tests.server.generate_client import LIBRARY
from tests.server.templates import GEMMA

OFF = Verdict(
    passed=True, level="off", files=("model.vmfb",), largest_difference=0.0, tolerance=1.0,
    where="", steps=0, seconds=0.0, error=None,
)  # fmt: skip
PASSED = replace(OFF, level="full", files=(), steps=67, largest_difference=0.25, seconds=1.5)
GOLDEN = Golden(prompt="", prompt_ids=(1,), steps=(GoldenStep(token_ids=(1,), logits=(0.5,)),))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle that was not compared."""
    folder = tmp_path / "fake"
    folder.mkdir()
    write_manifest(
        folder, replace(fakes.manifest_of(FakeRuntime(vocab_size=300, context=64)), golden=())
    )
    return folder


def verified(bundle: Path, comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(later_verification, "_verify", lambda _: comparison)
    verification = LaterVerification(bundle)
    verification.begin()
    if verification.is_alive():
        verification.join(PATIENCE)
    return verification.result


def test_the_result_is_the_verdict_of_hearth_verify(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = verified(bundle, Comparison(status=0, verdicts=(PASSED,)), monkeypatch)
    assert result == ("fake was compared with NumPy: the self-test passed: 67 steps within 0.25")


def test_a_bundle_that_was_compared_is_not_compared_again(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifest(
        bundle,
        replace(fakes.manifest_of(FakeRuntime(vocab_size=300, context=64)), golden=(GOLDEN,)),
    )
    comparison = Comparison(status=0, verdicts=(PASSED,))
    assert verified(bundle, comparison, monkeypatch) == ""
    assert verified(bundle.parent, comparison, monkeypatch) == ""  # who opens it reports it


@pytest.mark.parametrize("kept", [True, False])
def test_a_wrong_bundle_ends_the_process_and_is_removed_if_a_command_baked_it(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, kept: bool
) -> None:
    if kept:
        keep(bundle.parent, Source("contents", "path"), bundle)
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *call: sent.append(call))
    errors = "...\nhearth verify: a value differs\n"
    verified(bundle, Comparison(status=ERRORS[ComparisonFailed], errors=errors), monkeypatch)
    assert ERRORS[ComparisonFailed] == COMPARISON_FAILED
    assert bundle.exists() == (not kept)
    assert sent == [(os.getpid(), signal.SIGTERM)]
    assert "a value differs; answers so far are wrong" in caplog.text
    assert ("the bundle is removed" in caplog.text) == kept


@pytest.mark.parametrize(
    ("comparison", "reason"),
    [
        (Comparison(status=1, errors="hearth verify: No space left on device\n"), "No space left"),
        (Comparison(status=1, verdicts=(replace(PASSED, passed=False),)), "a value differs"),
        (Comparison(status=-signal.SIGKILL), "-9"),
    ],
)
def test_a_comparison_that_cannot_end_is_reported_and_nothing_is_removed(
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    comparison: Comparison,
    reason: str,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert reason in verified(bundle, comparison, monkeypatch)
    assert bundle.is_dir()
    assert "was not compared with NumPy" in caplog.text


def test_hearth_verify_runs_with_a_low_priority(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[object] = []

    class Child:
        pid, returncode = 7, 5

        def communicate(self) -> tuple[bytes, bytes]:
            steps.append("communicate")
            return json.dumps({"model.vmfb": PASSED.as_json()}).encode(), b"stopped \xff\n"

    def child_process(command: list[str], **_: object) -> contextlib.AbstractContextManager[Child]:
        steps.append(command[3:])
        return contextlib.nullcontext(Child())

    monkeypatch.setattr("hearthd.baker.compiler.child_process.child_process", child_process)
    monkeypatch.setattr(later_verification, "lower_priority", steps.append)
    assert later_verification._verify(bundle) == Comparison(
        status=5, verdicts=[PASSED], errors="stopped \ufffd\n"
    )
    assert steps == [["hearthd", "verify", "--json", "--", str(bundle)], 7, "communicate"]


def test_a_comparison_begins_once_when_it_is_told_to(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[Path] = []

    def verify(bundle: Path) -> Comparison:
        compared.append(bundle)
        return Comparison(status=0, verdicts=(PASSED,))

    monkeypatch.setattr(later_verification, "_verify", verify)
    verification = LaterVerification(bundle)
    assert not verification.is_alive()
    for _ in range(2):
        verification.begin()
        verification.join(PATIENCE)
    assert compared == [bundle]


def test_a_chat_compares_after_its_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(LaterVerification, "begin", lambda _: begun.append("comparison"))
    service = fakes.fake_service(LIBRARY, template=GEMMA, context=512)
    with Chat(Path("a"), lambda _: service, {"max_tokens": "3"}) as chat:
        assert begun == []
        chat.answer("the dog", begun.append)
    assert begun[0] != "comparison"
    assert begun[-1] == "comparison"


def test_a_continued_prompt_is_compared_after_its_answer(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(LaterVerification, "begin", lambda _: shown.append(capsys.readouterr().out))
    monkeypatch.setattr(commands, "find_or_bake", lambda *_, **__: bundle)
    monkeypatch.setattr(commands, "_open", lambda *_: fakes.fake_service(LIBRARY, context=512))
    arguments = ["fake", "the dog", "--max-tokens", "3"]
    typer.main.get_command(commands.generate).main(arguments, standalone_mode=False)
    (text,) = shown
    assert text.strip()


def test_a_server_compares_its_bundles_when_it_listens(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps: list[object] = []
    service = SimpleNamespace(verdict=OFF)
    pool = [SimpleNamespace(folder=bundle, current=service), SimpleNamespace(folder=None)]
    settings = Settings(bundle=(str(bundle),), port=0, state_dir=tmp_path / "state")
    loaded = LoadedSettings(settings=settings, origins={})

    def server(*arguments: Any) -> SimpleNamespace:
        return SimpleNamespace(serve_on=lambda _: arguments[-1]())

    for name, value in (
        ("bound_free_memory", lambda: None),
        ("logs", SimpleNamespace(configure=lambda *_: None, report_crashes=lambda: None)),
        ("with_bundles", lambda *_: loaded),
        ("open_pool", lambda *_: pool),
        ("_announce", lambda *_: steps.append("announced")),
        ("_server", server),
    ):
        monkeypatch.setattr(cli, name, value)

    def begin(one: LaterVerification) -> None:
        steps.append(one._bundle)
        one._report(Comparison(status=0, verdicts=(PASSED,)))

    monkeypatch.setattr(LaterVerification, "begin", begin)
    cli.run(loaded, (), {})
    assert steps == ["announced", bundle]
    assert service.verdict == replace(PASSED, files=OFF.files)  # which /health reports
