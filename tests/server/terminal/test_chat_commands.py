"""The commands of `hearth chat`, on fake models in this process."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.bundle import Corrupt, bundle_home, write_manifest
from hearthd.sampling.options import SamplingParameters
from hearthd.server.terminal import chat_commands
from hearthd.server.terminal.chat import Chat
from hearthd.server.terminal.chat_commands import COMMANDS, Leave, run_command
from hearthd.server.terminal.typed_fields import NOT_HERE, SETTABLE
from tests.fake_runtime import FakeRuntime
from tests.server import fakes
from tests.server.generate_client import LIBRARY
from tests.server.templates import GEMMA, THINKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hearthd.server.services.language_service import LanguageService


def service(_: Path = Path()) -> LanguageService:
    return fakes.fake_service(LIBRARY, template=GEMMA, context=512)


@pytest.fixture
def chat() -> Iterator[Chat]:
    with Chat(Path("first"), service, {"max_tokens": "3", "seed": "1"}, system="Be short.") as chat:
        yield chat


def contents(chat: Chat) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in chat.messages]


def answer(chat: Chat, text: str = "the dog") -> str:
    pieces: list[str] = []
    chat.answer(text, pieces.append)
    return "".join(pieces)


def test_help_lists_every_command(chat: Chat) -> None:
    shown = run_command(chat, "/help")
    for name, command in COMMANDS.items():
        assert f"{name} {command.arguments}" in shown
        assert command.summary in shown


def test_an_unknown_command_names_a_similar_one(chat: Chat) -> None:
    assert "did you mean /save?" in run_command(chat, "/saev x")
    assert "did you mean /help?" in run_command(chat, "/xyz")


def test_every_sampling_field_can_be_set(chat: Chat) -> None:
    shown = run_command(chat, "/set").splitlines()
    assert [line.split()[0] for line in shown] == list(SETTABLE)
    assert set(vars(SamplingParameters())) - NOT_HERE < set(SETTABLE)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("temperature 0.5", "temperature = 0.5"),
        ("top_k 3", "top_k = 3"),
        ("max_tokens 9", "max_tokens = 9"),
        ("ignore_eos on", "ignore_eos = true"),
        ("samplers top_k temperature", 'samplers = ["top_k", "temperature"]'),
        ('stop "a b" c', 'stop = ["a b", "c"]'),
        ('logit_bias {"x": false}', 'logit_bias = {"x": false}'),
        ("seed default", "seed = -1"),
        ("top_k", "Keep the k most likely tokens. 0 and -1 keep all.\ntop_k = 40"),
        ("temperature -1", "temperature: got '-1', expected greater than or equal to 0"),
        ("temprature 1", "temprature: no field of this name; did you mean temperature?"),
        ("stream true", "stream: no field of this name; "),
        ('stop "a', "stop: got '\"a', expected words: No closing quotation"),
    ],
)
def test_set_takes_a_field_as_its_flag_does(typed: str, shown: str, chat: Chat) -> None:
    assert run_command(chat, f"/set {typed}").startswith(shown)


def test_a_field_that_was_set_is_that_of_the_next_request(chat: Chat) -> None:
    run_command(chat, "/set max_tokens 5")
    assert chat.answer("the dog", lambda _: None).completion_tokens == 5
    run_command(chat, "/set temperature x")
    run_command(chat, "/set seed 7")
    assert (summary := chat.answer("the dog", lambda _: None)).seed == 7
    assert summary.completion_tokens == 5


def test_a_variable_of_the_template_is_that_of_the_next_request() -> None:
    thinking = fakes.fake_service(LIBRARY, template=THINKING, context=512)
    prompts: list[int] = []
    with Chat(Path(), lambda _: thinking, {"max_tokens": "1"}) as chat:
        for typed in ("default", '{"enable_thinking": false}'):
            run_command(chat, f"/set chat_template_kwargs {typed}")
            prompts.append(chat.answer("the dog", lambda _: None).prompt_tokens)
    assert prompts[0] != prompts[1]


def test_the_system_message_is_replaced_and_removed(chat: Chat) -> None:
    turn = [("user", "the dog"), ("assistant", answer(chat))]
    assert run_command(chat, "/system Be\nlong.") == "system message replaced"
    assert contents(chat) == [("system", "Be\nlong."), *turn]
    assert run_command(chat, "/clear") == "new conversation"
    assert contents(chat) == [("system", "Be\nlong.")]
    turn = [("user", "the dog"), ("assistant", answer(chat))]
    assert run_command(chat, "/system") == "no system message"
    assert contents(chat) == turn


def test_a_saved_conversation_is_a_request_and_is_continued(chat: Chat, tmp_path: Path) -> None:
    path = tmp_path / "a chat.json"
    answer(chat, "the d\u00f6g")
    saved = contents(chat)
    assert run_command(chat, f"/save {path} ") == f"{path}: 3 messages saved"
    body = json.loads(path.read_text())
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant"]
    expected = answer(chat)
    with fakes.running(service()) as client:
        request = {**body, "seed": 1, "max_tokens": 3}
        request["messages"] += [{"role": "user", "content": "the dog"}]
        reply = client.post("/v1/chat/completions", json=request).json()
    assert reply["choices"][0]["message"]["content"] == expected
    run_command(chat, "/system")
    assert run_command(chat, f"/load {path}") == f"{path}: 3 messages loaded"
    assert contents(chat) == saved
    assert answer(chat) == expected


def test_a_save_replaces_conversations_alone_and_completely(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, saved, link = (tmp_path / name for name in ("notes", "chat.json", "link"))
    for content in (b"my notes", b"[]", b"\xff"):
        notes.write_bytes(content)
        assert run_command(chat, f"/save {notes}").startswith(f"{notes}: not a conversation")
        assert notes.read_bytes() == content
    link.symlink_to(saved)
    for path in (saved, saved, link):
        assert run_command(chat, f"/save {path}") == f"{path}: 1 message saved"
    before = saved.read_bytes()
    assert link.is_symlink()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    answer(chat)
    assert run_command(chat, f"/save {saved}") == f"{saved}: No space left on device"
    assert saved.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"notes", "chat.json", "link"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "No such file or directory"),
        ("{", "not a conversation: "),
        ("[]", "not a conversation: "),
        ('{"messages": []}', "not a conversation: messages: "),
        ('{"messages": [{"role": "x", "content": ""}]}', "not a conversation: messages[0].role: "),
    ],
)
def test_a_file_that_cannot_be_loaded_changes_nothing(
    text: str | None, problem: str, chat: Chat, tmp_path: Path
) -> None:
    path = tmp_path / "chat.json"
    if text is not None:
        path.write_text(text)
    assert run_command(chat, f"/load {path}").startswith(f"{path}: {problem}")
    assert contents(chat) == [("system", "Be short.")]


def test_files_are_named(chat: Chat, tmp_path: Path) -> None:
    assert run_command(chat, "/save") == "FILE is missing, as in /save chat.json"
    assert run_command(chat, f"/save {tmp_path}/no/chat") == (
        f"{tmp_path}/no/chat: No such file or directory"
    )


def baked_in(home: Path) -> Callable[..., Path]:
    """In place of find_or_bake: bundles of a folder, and files that cannot be baked."""

    def find(model: str, folder: Path | None, bake: dict[str, str], *, purpose: str) -> Path:
        assert (folder, bake, purpose) == (home, {}, "chat")
        if model.endswith(".gguf"):
            raise SystemExit(1)
        return bundle_home.named_bundle(model, home)

    return find


def test_another_model_continues_the_conversation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    manifest = fakes.manifest_of(FakeRuntime(vocab_size=300, context=64))
    for name in ("second", "broken"):
        (tmp_path / name).mkdir()
        write_manifest(tmp_path / name, manifest)
    monkeypatch.setattr(chat_commands, "find_or_bake", baked_in(tmp_path))
    opened: list[tuple[str, LanguageService]] = []

    def open_(bundle: Path) -> LanguageService:
        if bundle.name == "broken":
            raise Corrupt("broken: model.vmfb is missing")
        opened.append((bundle.name, service()))
        return opened[-1][1]

    with Chat(Path("first"), open_, {"max_tokens": "3"}, home=tmp_path) as chat:
        answer(chat)
        shown = run_command(chat, "/model second")
        assert shown.startswith(f"{tmp_path}/second: fake in f32, ")
        assert opened[0][1].unavailable() is not None  # it was stopped
        answer(chat)
        assert len(chat.messages) == 4
        assert run_command(chat, "/model broken") == "broken: model.vmfb is missing"
        answer(chat)
        assert "no bundle of this name" in run_command(chat, "/model third")
        assert run_command(chat, "/model bad.gguf") == "bad.gguf was not baked"
        assert run_command(chat, "/model") == shown
    assert [name for name, _ in opened] == ["first", "second", "second"]


@pytest.mark.parametrize("name", ["/bye", "/exit", "/quit"])
def test_bye_leaves(name: str, chat: Chat) -> None:
    with pytest.raises(Leave):
        run_command(chat, name)
