"""`hearth batch`: each request is answered once, also if the process is killed again and again."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from typer.testing import CliRunner
from typing_extensions import override

from hearthd.server.batch.batch_targets import UrlTarget, in_process
from hearthd.server.batch.cli import app
from hearthd.server.batch.files import Answers, BadBatch, Requests
from hearthd.server.batch_requests.batch_request import (
    BatchRequest,
    BatchTarget,
    CannotReach,
    Reply,
)
from hearthd.server.batch_requests.runner import answer as send
from hearthd.server.batch_requests.runner import run
from hearthd.server.errors import SelfTestFailed
from hearthd.server.services.language_service import LocalLanguageService
from hearthd.text.media_marker import KNOWN_MARKER
from hearthd.text.tokenizer import Tokenizer
from tests.baker.small_smolvlm import ROWS
from tests.fake_runtime import FakeRuntime
from tests.patience import PATIENCE
from tests.server import fakes
from tests.server.full_disk import full_disk
from tests.server.images.image_service import TALL, anthropic, chat, image_service, openai
from tests.server.openai_servers import LIBRARY, chatty

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages", "/generate")


def body(url: str, number: int) -> dict[str, Any]:
    text = f"the dog {number}"
    fields = {"max_tokens": 3, "seed": number}
    match url:
        case "/v1/embeddings":
            return {"input": text}
        case "/v1/completions" | "/generate":
            return {"prompt": text, **fields}
    return {"messages": [{"role": "user", "content": text}], **fields}


def written(path: Path, count: int, paths: Sequence[str] = PATHS) -> Path:
    """A file with `count` requests."""
    urls = [paths[number % len(paths)] for number in range(count)]
    lines = [
        {"custom_id": f"é{number}", "method": "POST", "url": url, "body": body(url, number)}
        for number, url in enumerate(urls)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def answers_in(path: Path) -> dict[str, Any]:
    """The answers by their ids; each id must be there once."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    by_id = {line["custom_id"]: line for line in lines}
    assert len(by_id) == len(lines)
    return by_id


def in_fake_process(requests: Path, out: Path, service: LocalLanguageService | None = None) -> int:
    """Answer the file with a fake service in this process; return how many were answered."""

    async def answer() -> int:
        todo = Requests(requests)
        with Answers(out, todo) as answers:
            async with in_process(fakes.pool(service or chatty()), 4) as target:
                return (await run(todo, answers, target, lambda: None)).answered

    return asyncio.run(answer())


def test_every_route_is_answered_in_openais_format(tmp_path: Path) -> None:
    requests = written(tmp_path / "requests", 20)
    out = tmp_path / "answers"
    assert in_fake_process(requests, out) == 20
    answers = answers_in(out)
    assert set(answers) == {f"é{number}" for number in range(20)}
    with fakes.running(chatty()) as client:
        for line in map(json.loads, requests.read_text().splitlines()):
            answer = answers[line["custom_id"]]
            assert set(answer) == {"id", "custom_id", "response", "error"}
            assert answer["error"] is None
            assert answer["response"]["status_code"] == 200
            assert answer["response"]["request_id"]
            expected = client.post(line["url"], json=line["body"]).json()
            for name in ("choices", "content", "data", "text"):
                assert answer["response"]["body"].get(name) == expected.get(name)
    assert in_fake_process(requests, out) == 0


def test_an_error_of_a_request_is_its_answer(tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    lines = [
        {"custom_id": "a", "url": "/v1/completions", "body": {"prompt": 5}},
        {"custom_id": "b", "url": "/nope", "body": {}},
    ]
    requests.write_text("\n".join(map(json.dumps, lines)))
    assert in_fake_process(requests, tmp_path / "answers") == 2
    answers = answers_in(tmp_path / "answers")
    assert answers["a"]["response"]["status_code"] == 400
    assert answers["a"]["response"]["body"]["error"]["param"] == "prompt"
    assert answers["b"]["response"]["status_code"] == 404


def test_a_torn_line_is_removed_and_answered_again(tmp_path: Path) -> None:
    requests = written(tmp_path / "requests", 6)
    out = tmp_path / "answers"
    in_fake_process(requests, out)
    whole = answers_in(out)
    content = out.read_bytes()
    for cut in (1, 30, len(content.splitlines()[-1]), len(content)):
        out.write_bytes(content[:-cut])
        missing = 6 - content[:-cut].count(b"\n")
        assert in_fake_process(requests, out) == missing
        assert set(answers_in(out)) == set(whole)


@pytest.mark.parametrize("content", ["notes", '{"custom_id": "é0"', "its own requests"])
def test_a_file_without_answers_stays_as_it_is(content: str, tmp_path: Path) -> None:
    requests = written(tmp_path / "requests", 1)
    requests.write_text(requests.read_text().rstrip())
    for end in ("", "\n"):
        out = tmp_path / "out"
        out.write_text((requests.read_text() if "own" in content else content) + end)
        before = out.read_bytes()
        with pytest.raises(BadBatch, match=r"out: line 1: (not an answer|not the start|not JSON)"):
            in_fake_process(requests, out)
        assert out.read_bytes() == before


def test_zeros_of_a_power_failure_are_removed(tmp_path: Path) -> None:
    requests, out = written(tmp_path / "requests", 2), tmp_path / "answers"
    in_fake_process(requests, out)
    content = out.read_bytes()
    for end in (bytes(10), b'{"id": "bat' + bytes(10)):
        out.write_bytes(content.splitlines(keepends=True)[0] + end)
        assert in_fake_process(requests, out) == 1
        assert len(answers_in(out)) == 2


def test_a_batch_goes_on_after_a_full_disk(tmp_path: Path) -> None:
    requests, out = written(tmp_path / "in.jsonl", 6), tmp_path / "out.jsonl"
    with full_disk(2000), pytest.raises(OSError, match="File too large") as caught:
        in_fake_process(requests, out)
    assert caught.value.filename == str(out)
    assert out.stat().st_size == 2000  # a part of a line
    in_fake_process(requests, out)
    assert len(answers_in(out)) == 6


@pytest.fixture
def slow_server() -> Iterator[str]:
    service = fakes.fake_service(LIBRARY, slots=2, batch=2, delay=0.01)
    with fakes.running(service) as client:
        yield str(client.base_url)


def test_a_batch_that_is_killed_loses_nothing(tmp_path: Path, slow_server: str) -> None:
    count, kills = 120, 3
    requests = written(tmp_path / "requests", count, ("/v1/completions",))
    out = tmp_path / "answers"
    command = [sys.executable, "-m", "hearthd", "batch", str(requests), "--out", str(out)]
    command += ["--url", slow_server, "--parallel", "5"]
    for kill in range(kills):
        enough = count * (kill + 1) // (kills + 1)
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        deadline = time.monotonic() + PATIENCE
        while not out.exists() or out.read_bytes().count(b"\n") < enough:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.kill()
        process.communicate()
        assert out.read_bytes().count(b"\n") < count
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(answers_in(out)) == {f"é{number}" for number in range(count)}
    said = re.fullmatch(r"(\d+) requests: (\d+) answered now\n", done.stderr)
    assert said
    assert int(said[1]) == count > int(said[2])


class Scripted(BatchTarget):
    """A target with a list of replies."""

    parallel = 1

    def __init__(self, *replies: Reply | CannotReach) -> None:
        self._replies = list(replies)

    @override
    async def post(self, request: BatchRequest) -> Reply:
        assert request.url
        reply = self._replies.pop(0)
        if isinstance(reply, CannotReach):
            raise reply
        return reply


def reply(status: int, retry_after: float | None = None) -> Reply:
    return Reply(status=status, body=b"{}", retry_after=retry_after)


def test_a_busy_target_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("hearthd.server.batch_requests.runner.asyncio.sleep", sleep)
    todo = Requests(written(tmp_path / "requests", 1))
    with Answers(tmp_path / "answers", todo) as answers:
        target = Scripted(reply(429, 7), *[reply(429)] * 9, reply(503), CannotReach(), reply(500))
        counts = asyncio.run(run(todo, answers, target, lambda: None))
    assert (counts.answered, counts.failed) == (1, 1)
    assert waits == [7, *[1.0] * 9, 1.0, 2.0]
    with Answers(tmp_path / "other", todo) as answers, pytest.raises(CannotReach, match="again"):
        asyncio.run(run(todo, answers, Scripted(*[reply(503)] * 5), lambda: None))
    assert (tmp_path / "other").read_bytes() == b""


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 500 Error\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
    ],
)
def test_a_server_that_ends_within_a_response_is_asked_again(response: bytes) -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

    def serve() -> None:
        for sent in (response, whole):
            connection, _ = bound.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(sent)

    with (
        socket.create_server(("127.0.0.1", 0)) as bound,
        ThreadPoolExecutor() as server,
        UrlTarget(f"127.0.0.1:{bound.getsockname()[1]}/v1", api_key=None, parallel=1) as target,
        mock.patch("hearthd.server.batch_requests.runner._FIRST_WAIT", 0.0),
    ):
        bound.settimeout(PATIENCE)
        served = server.submit(serve)
        request = BatchRequest(custom_id="a", url="/", body=b"{}")
        assert asyncio.run(send(target, request)) == Reply(status=200, body=b"{}")
        served.result()


def test_a_server_that_does_not_answer_is_named_without_a_number_of_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    request = BatchRequest(custom_id="a", url="/", body=b"{}")
    says = f"127.0.0.1:{port} does not answer: Connection refused$"
    with (
        UrlTarget(f"127.0.0.1:{port}", api_key=None, parallel=1) as target,
        pytest.raises(CannotReach, match=says),
    ):
        asyncio.run(target.post(request))


def test_only_one_batch_writes_a_file(tmp_path: Path) -> None:
    todo = Requests(written(tmp_path / "requests", 1))
    with Answers(tmp_path / "answers", todo), pytest.raises(BadBatch, match="another batch"):
        Answers(tmp_path / "answers", todo)


GOOD = '{"custom_id": "a", "url": "/generate", "body": {}}'


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (f"{GOOD}\n{GOOD}", "line 2: custom_id 'a' occurs twice"),
        ("[]", "line 1: expected a JSON object"),
        ("{", "line 1: "),
        ('{"custom_id": 5}', "line 1: custom_id: got 5"),
        (GOOD.replace("{}", "[]"), "line 1: body"),
        (GOOD.replace("{}", '{"stream": true}'), "line 1: body: .* without stream"),
        (GOOD.replace("/gen", "gen"), "line 1: url: got 'generate'"),
        (GOOD.replace("generate", "a b"), "line 1: url: got '/a b'"),
        (GOOD.replace('"url"', '"method": "GET", "url"'), "line 1: method: got 'GET'"),
    ],
)
def test_all_requests_are_checked_first(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "requests").write_text(content)
    with pytest.raises(BadBatch, match=problem):
        Requests(tmp_path / "requests")


def test_answers_to_other_requests_are_refused(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text('{"custom_id": "z"}\n')
    with pytest.raises(BadBatch, match="answers 'z', which is not in the file of requests"):
        Answers(tmp_path / "answers", Requests(written(tmp_path / "requests", 1)))
    assert (tmp_path / "answers").read_text() == '{"custom_id": "z"}\n'


def test_a_failed_self_test_ends_the_batch(tmp_path: Path) -> None:
    good, wrong = (FakeRuntime(vocab_size=400, context=64, spread=spread) for spread in (3.0, 2.0))
    service = LocalLanguageService(
        wrong, Tokenizer(LIBRARY, bos=fakes.BOS), fakes.manifest_of(good)
    )
    with pytest.raises(SelfTestFailed):
        in_fake_process(written(tmp_path / "requests", 1), tmp_path / "answers", service)


def test_the_command_needs_one_target(tmp_path: Path) -> None:
    requests = written(tmp_path / "requests", 1)
    asked = CliRunner().invoke(app, [str(requests), "--out", str(tmp_path / "answers")])
    assert asked.exit_code == 2
    assert "--bundle or --url" in asked.output


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--bundle", ".", "--ray"], "--ray needs --bundle and --threads"),
        (["--url", "http://x", "--threads", "1", "--ray"], "--ray needs --bundle and --threads"),
        (["--bundle", ".", "--engines", "2"], "--engines needs --ray"),
    ],
)
def test_ray_needs_a_bundle_and_threads(
    tmp_path: Path, options: Sequence[str], problem: str
) -> None:
    requests = written(tmp_path / "requests", 1)
    asked = CliRunner().invoke(app, [str(requests), "--out", str(tmp_path / "answers"), *options])
    assert asked.exit_code == 2
    assert problem in asked.output


def test_images_are_in_batch_files(tmp_path: Path) -> None:
    """The answer has the usage that the server reports."""
    requests, out = tmp_path / "requests", tmp_path / "answers"
    bodies = {
        "/v1/chat/completions": chat(openai(TALL)),
        "/v1/messages": chat(anthropic(TALL)),
        "/completion": {
            "prompt": {"prompt_string": KNOWN_MARKER, "multimodal_data": [TALL]},
            "n_predict": 1,
        },
    }
    lines = [
        {"custom_id": path, "method": "POST", "url": path, "body": body}
        for path, body in bodies.items()
    ]
    requests.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert in_fake_process(requests, out, image_service()) == 3
    answers = {path: line["response"]["body"] for path, line in answers_in(out).items()}
    count = answers["/v1/chat/completions"]["usage"]["prompt_tokens"]
    usage = answers["/v1/messages"]["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == count
    assert count > answers["/completion"]["tokens_evaluated"] > 3 * ROWS
