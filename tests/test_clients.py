"""What `python -m tools.clients` says when it cannot run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.server import fakes
from tests.server.openai_servers import chatty
from tools.clients.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["clients", *arguments])
    return main()


def test_a_missing_installer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with fakes.running(chatty()) as server:
        address, folder = str(server.base_url), str(tmp_path)
        options = ("--environments", folder, "--only", "openai", "--only", "Codex")
        assert run(monkeypatch, address, *options) == 1
    openai, codex, *_ = capsys.readouterr().out.splitlines()
    assert openai.endswith("uv: not found: install it, or add --skip 'openai'")
    assert codex.endswith("npm: not found: install it, or add --skip 'Codex'")


@pytest.mark.parametrize("path", ["", "/health?"])
def test_a_server_without_models_is_named(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with fakes.running(chatty()) as server:
        address = f"{server.base_url}{path}" if path else "http://127.0.0.1:1"
        with pytest.raises(SystemExit) as ended:
            run(monkeypatch, address)
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"{address}/v1/models: expected a list of models, got " in said
    assert said.endswith("start a server with `hearth serve`")
