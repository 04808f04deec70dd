"""What `python -m tools.clients` says when it cannot run, and the model of its coding agents."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server import fakes
from tests.server.openai_servers import chatty
from tools.clients import scripted_model
from tools.clients.__main__ import main
from tools.clients.checks.agent import edit_a_file
from tools.clients.environments import CLIENTS, ROOT


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["clients", *arguments])
    return main()


def test_every_client_has_a_script_and_every_script_a_client() -> None:
    checks = ROOT / "tools/clients/checks"
    scripts = set(checks.glob("*/[!_]*.py")) | set(checks.glob("*/*.mjs"))
    names = [each.script for each in CLIENTS.values()]
    files = [name if name.endswith(".mjs") else f"{name.replace('.', '/')}.py" for name in names]
    assert scripts == {checks / file for file in files}


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


def test_the_scripted_model_follows_its_prompt() -> None:
    call = {"name": "read", "arguments": {"file": "a.txt"}}
    asked = f"Read a file.\nsay: {json.dumps(call)}\nsay: It says:"
    messages: list[dict[str, Any]] = [{"role": "user", "content": asked}]
    tool = {"name": "read", "parameters": {"type": "object"}}
    body = {"messages": messages, "tools": [{"type": "function", "function": tool}]}
    said = []
    with fakes.running(scripted_model.service()) as client:
        for _ in range(3):
            answer = client.post("/v1/chat/completions", json=body).json()["choices"][0]
            assert answer["message"]["reasoning_content"] == "The next line."
            said.append((answer["finish_reason"], answer["message"]["content"]))
            more = {"role": "user", "content": "Go on."}
            for called in answer["message"].get("tool_calls", ()):
                assert json.loads(called["function"]["arguments"]) == call["arguments"]
                more = {"role": "tool", "tool_call_id": called["id"], "content": "été"}
            messages += [answer["message"], more]
    assert said == [("tool_calls", None), ("stop", "It says:"), ("stop", "été")]


@pytest.mark.parametrize(("edited", "said"), [("blue", "Done."), ("red", "color = blue")])
def test_an_agent_must_edit_the_file_and_read_it(edited: str, said: str) -> None:
    def ask(prompt: str, folder: Path) -> str:
        assert prompt.count("\nsay: {") == 3
        Path(folder, "notes.txt").write_text(f"color = {edited}\n", encoding="utf-8")
        return said

    with pytest.raises(AssertionError, match=said):
        edit_a_file(
            ask, lambda file: ("read", {"file": file}), lambda *given: ("edit", {"": given})
        )
