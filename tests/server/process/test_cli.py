"""`hearth serve` as a process, on a small compiled bundle."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from hearthd.bundle import (
    MANIFEST,
    TOKENIZER,
    VMFB,
    Golden,
    GoldenStep,
    LanguageManifest,
    read_manifest_of,
    record_file,
    write_manifest,
)
from hearthd.server.version import version
from tests.by_day import first_by_day
from tests.patience import PATIENCE
from tests.server import tiny
from tests.server.certificates import certificate

PROMPT = (1, 2, 3, 4, 5)
ENVIRONMENT = {"PATH": "", "NO_COLOR": "1", "COLUMNS": "120", "PYTHONPATH": "."}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny program with a tokenizer of seven words and its right golden values."""
    path = tmp_path_factory.mktemp("bundles") / "tiny"
    manifest = tiny.write_bundle(path)
    words = {
        word: i for i, word in enumerate(["zero", "one", "two", "three", "four", "five", "six"])
    }
    tokenizer = Tokenizer(WordLevel(words, unk_token="zero"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(path / TOKENIZER))
    tokens = list(PROMPT)
    steps = []
    for _ in range(3):
        logits = tiny.expected(tokens)
        best = [int(i) for i in logits.argsort()[::-1][:3]]
        steps.append(
            GoldenStep(token_ids=tuple(best), logits=tuple(float(logits[i]) for i in best))
        )
        tokens.append(best[0])
    golden = Golden(prompt="", prompt_ids=PROMPT, steps=tuple(steps))
    files = (*manifest.files, record_file(path / TOKENIZER))
    write_manifest(path, replace(manifest, golden=(golden,), files=files))
    return path


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    """A copy of the bundle, to be broken."""
    path = tmp_path / "copy"
    path.mkdir()
    for file in bundle.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    return path


def serve(
    *arguments: object, env: dict[str, str] | None = None, own_session: bool = False
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hearthd", "serve", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, "HEARTH_HOME": os.environ["HEARTH_HOME"], **(env or {})},
        start_new_session=own_session,  # without a terminal
    )


def failure(*arguments: object, env: dict[str, str] | None = None) -> tuple[int, str]:
    """The exit code and the error output of a `hearth serve` that must not start."""
    process = serve(*arguments, env=env)
    output, errors = process.communicate(timeout=PATIENCE)
    assert output == ""
    assert "Traceback" not in errors
    return process.returncode, errors


def address_in(line: str) -> str:
    match = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert match, line
    return match.group()


def test_serve_answers_and_ends_on_sigterm(bundle: Path) -> None:
    process = serve(bundle, "--port", "0", "--threads", "1")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        pattern = (
            rf"Hearth {re.escape(version())} serves tiny \(f32\) at http://127\.0\.0\.1:\d+ "
            r"\(ready after \d+\.\d s\)\n"
        )
        assert re.fullmatch(pattern, line)
        with httpx.Client(base_url=address_in(line), timeout=PATIENCE) as client:
            assert client.get("/health").json()["self_test"]["passed"]
            body = {"prompt": "one two three four five", "temperature": 0, "max_tokens": 3}
            data = client.post("/generate", json=body).json()
            steps = read_manifest_of(bundle, LanguageManifest).golden[0].steps
            assert data["token_ids"] == [step.token_ids[0] for step in steps]
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert output == ""
        assert "POST /generate" in errors  # the access log
    finally:
        process.kill()
        process.communicate()


def test_sighup_before_the_server_serves_does_not_end_it(bundle: Path) -> None:
    process = serve(bundle, "--port", "0", own_session=True)
    try:
        assert process.stdout is not None
        with ThreadPoolExecutor(1) as pool:
            line = pool.submit(process.stdout.readline)
            while not _handles(process.pid, signal.SIGTERM):  # Python is starting
                time.sleep(0.01)
            while not line.done():
                time.sleep(0.05)
                process.send_signal(signal.SIGHUP)
        client = httpx.Client(base_url=address_in(line.result()), timeout=PATIENCE)
        with client:
            assert client.get("/health").status_code == 200
    finally:
        process.kill()
        process.communicate()


def _handles(process: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    caught = re.search(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


@pytest.mark.nightly
def test_in_json_mode_every_line_is_json(bundle: Path) -> None:
    process = serve(bundle, "--port", "0", "--log-format", "json")
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["level"] == "info"
        assert ready["message"].startswith(
            f"Hearth {version()} serves tiny (f32) at {ready['url']}"
        )
        assert ready["seconds"] > 0
        with httpx.Client(base_url=ready["url"], timeout=PATIENCE) as client:
            client.get("/health")
            client.post(
                "/generate", json={"prompt": "one two", "max_tokens": 2, "ignore_eos": True}
            )
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=PATIENCE)
        assert output == ""
        lines = [json.loads(line) for line in errors.splitlines()]
        (access,) = [line for line in lines if line["logger"].endswith("access_log")]
        assert access["message"] == "POST /generate"
        assert (access["client"], access["model"]) == ("127.0.0.1", bundle.name)
        assert (access["prompt_tokens"], access["completion_tokens"]) == (2, 2)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.nightly
def test_the_server_runs_when_logs_cannot_be_written(bundle: Path) -> None:
    """To /dev/full nothing can be written, as to a file on a full disk."""
    port = _free_port()
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "hearthd", "serve", str(bundle)],
            stdout=full,
            stderr=full,
            env={
                "PATH": "",
                "PYTHONPATH": ".",
                "HEARTH_PORT": str(port),
                "HEARTH_HOME": os.environ["HEARTH_HOME"],
            },
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            deadline = time.monotonic() + PATIENCE
            while not _is_ready(client):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            for _ in range(3):
                body = {"prompt": "one two three", "max_tokens": 2}
                assert client.post("/generate", json=body).status_code == 200
        process.send_signal(signal.SIGTERM)
        # stdout is not complete. 120 is Python's own, for a stderr that is not complete.
        assert process.wait(PATIENCE) in (1, 120)
    finally:
        process.kill()
        process.communicate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/health/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_settings_come_from_the_environment_and_flags_win(bundle: Path) -> None:
    environment = {"HEARTH_BUNDLE": str(bundle), "HEARTH_PORT": "1", "HEARTH_LOG_LEVEL": "error"}
    process = serve("--port", "0", env=environment)
    try:
        assert process.stdout is not None
        client = httpx.Client(base_url=address_in(process.stdout.readline()))
        with client:
            assert client.get("/health").status_code == 200
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
        assert errors == ""
    finally:
        process.kill()
        process.communicate()


@pytest.mark.nightly
def test_a_failed_self_test_is_reported(copy: Path) -> None:
    manifest = read_manifest_of(copy, LanguageManifest)
    (golden,) = manifest.golden
    wrong = replace(golden, prompt_ids=(1, 2, 3, 4, 6))
    write_manifest(copy, replace(manifest, golden=(wrong,)))
    process = serve(copy, "--port", "0")
    try:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        line = next(line for line in lines if line.startswith("hearth serve: "))
        assert line.startswith("hearth serve: the self-test failed: a value differs by ")
    finally:
        process.kill()
        process.communicate()
    process = serve(copy, "--port", "0", "--self-test", "off")
    try:
        assert process.stdout is not None
        with httpx.Client(base_url=address_in(process.stdout.readline())) as client:
            assert client.get("/health/ready").status_code == 200
            self_test = client.get("/v1/bundle").json()["self_test"]
            assert (self_test["level"], self_test["passed"], self_test["files"]) == (
                "off",
                None,
                [MANIFEST],
            )
            assert "hearth_self_test_passed" not in client.get("/metrics").text
    finally:
        process.kill()
        process.communicate()


@pytest.mark.nightly
def test_a_missing_bundle_is_an_error_in_one_line(tmp_path: Path) -> None:
    code, errors = failure(tmp_path, "--port", "0")
    assert code == 1
    assert errors.startswith(f"hearth serve: {tmp_path}: not a bundle: ")
    assert errors.count("\n") == 1


def test_a_corrupt_bundle_is_an_error_in_one_line(copy: Path) -> None:
    (copy / VMFB).write_bytes(b"")
    code, errors = failure(copy, "--port", "0")
    assert code == 1
    last = errors.splitlines()[-1]
    assert re.fullmatch(
        r"hearth serve: .*model\.vmfb: wrong size: got 0 bytes, .*; copy the bundle again", last
    )


@pytest.mark.nightly
def test_a_bad_tokenizer_is_an_error_in_one_line(copy: Path) -> None:
    (copy / TOKENIZER).write_text("{}")
    manifest = read_manifest_of(copy, LanguageManifest)
    files = tuple(r for r in manifest.files if r.name != TOKENIZER)
    files += (record_file(copy / TOKENIZER),)
    write_manifest(copy, replace(manifest, files=files))
    code, errors = failure(copy, "--port", "0")
    assert code == 1
    last = errors.splitlines()[-1]
    assert re.fullmatch(r"hearth serve: .*tokenizer\.json is not a valid tokenizer: .*", last)


def test_a_port_in_use_is_found_before_the_bundle_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, errors = failure(tmp_path, "--port", port)
    assert code == 1
    assert errors == (
        f"hearth serve: cannot listen on 127.0.0.1 port {port}: Address already in use; choose "
        "another --host or --port (--port 0 chooses a free one)\n"
    )


@pytest.mark.nightly
def test_an_invalid_host_is_an_error_in_one_line(tmp_path: Path) -> None:
    code, errors = failure(tmp_path, "--host", "256.0.0.1")
    assert code == 1
    assert errors.startswith("hearth serve: cannot listen on 256.0.0.1 port 8080: ")


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    first_by_day(
        [
            ((), {}, "MODEL is missing"),
            (("x",), {"HEARTH_PORT": "many"}, "port: "),
            (("x", "--port", "70000"), {}, "port: "),
            (("x", "--threads", "0"), {}, "threads: "),
            (("x", "--log-level", "loud"), {}, "log_level: "),
        ],
        2,
    ),
)
def test_invalid_settings_are_usage_errors(
    arguments: tuple[str, ...], environment: dict[str, str], expected: str
) -> None:
    code, errors = failure(*arguments, env=environment)
    assert code == 2
    assert expected in errors


def test_https_uses_the_certificate(bundle: Path, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    process = serve(bundle, "--port", "0", "--tls-cert", cert, "--tls-key", key)
    try:
        assert process.stdout is not None
        match = re.search(r"https://127\.0\.0\.1:\d+", process.stdout.readline())
        assert match
        trust = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(base_url=match.group(), verify=trust) as client:
            assert client.get("/health").json()["status"] == "ok"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.nightly
def test_a_private_key_of_another_certificate_is_rejected(tmp_path: Path) -> None:
    cert, _ = certificate(tmp_path)
    (tmp_path / "other").mkdir()
    _, key = certificate(tmp_path / "other")
    code, errors = failure(tmp_path, "--port", "0", "--tls-cert", cert, "--tls-key", key)
    assert code == 1
    assert errors.startswith(
        f"hearth serve: cannot serve HTTPS: {cert} and {key} are not a certificate"
    )
    code, errors = failure(tmp_path, "--tls-cert", cert, "--tls-key", tmp_path / "none")
    assert (code, errors) == (
        1,
        f"hearth serve: cannot serve HTTPS: {tmp_path}/none does not exist\n",
    )


def test_help_teaches() -> None:
    process = serve("--help")
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    for word in ("curl http://127.0.0.1:8080/generate", "--port", "HEARTH_PORT", "bake"):
        assert word in output
