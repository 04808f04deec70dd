"""Deployment files: images, compose file, health check.

No engine is needed: the files are read and held against each other, the project and the settings.
"""

from __future__ import annotations

import http.server
import os
import re
import shlex
import socket
import ssl
import subprocess
import sys
import threading
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml
from typing_extensions import override

from hearthd.server.environment import PREFIX
from hearthd.server.services.language_service import LocalLanguageService
from hearthd.server.settings import Settings
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime
from tests.patience import PATIENCE
from tests.server import fakes
from tests.server.certificates import certificate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parent.parent
HEALTHCHECK = ROOT / "docker/healthcheck.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SHUTDOWN_TIMEOUT = Settings.model_fields["shutdown_timeout"].default
LIBRARY = fakes.gemma_like()


class Step(NamedTuple):
    """One instruction of a Dockerfile, as `COPY`, and the words after it."""

    instruction: str
    words: list[str]


def read_stages(text: str) -> dict[str, list[Step]]:
    """The stages of a Dockerfile by name, each with its FROM first."""
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    stages: dict[str, list[Step]] = {}
    for line in filter(str.strip, lines):
        instruction, rest = line.split(maxsplit=1)
        words = shlex.split(rest)
        if instruction == "FROM":
            assert words[1] == "AS", f"a stage without a name: {line}"
            stages[words[2]] = []
        stages[[*stages][-1]].append(Step(instruction, words))
    return stages


STAGES = read_stages((ROOT / "docker/Dockerfile").read_text(encoding="utf-8"))
COMPOSE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text(encoding="utf-8"))
PROGRAMS = {"bake": ["bake"], "serve": ["hearth", "serve"]}
TARGETS = tuple(PROGRAMS)
each_target = pytest.mark.parametrize("target", TARGETS)


def steps(stage: str, instruction: str) -> list[list[str]]:
    return [step.words for step in STAGES[stage] if step.instruction == instruction]


def exec_form(words: list[str]) -> list[str]:
    """The arguments in ["a", "b"], whose quotes the shell's rules have taken away."""
    text = " ".join(words)
    assert text.startswith("["), f"a shell would stand before {text}"
    return [word.strip() for word in text.strip("[]").split(",")]


def reached(stage: str) -> set[str]:
    """The stage and all others that it takes anything from."""
    stages = {stage}
    sources = [words[0] for words in steps(stage, "FROM")]
    sources += [words[0].removeprefix("--from=") for words in steps(stage, "COPY")]
    for source in set(sources) & {*STAGES} - stages:
        stages |= reached(source)
    return stages


def environment(stage: str) -> dict[str, str]:
    return dict(word.split("=", 1) for words in steps(stage, "ENV") for word in words)


def assert_settings(names: Mapping[str, str]) -> None:
    ours = {name.removeprefix(PREFIX).lower() for name in names if name.startswith(PREFIX)}
    assert ours
    assert ours <= {*Settings.model_fields}


def test_stages_start_from_debian_or_an_earlier_stage() -> None:
    earlier: list[str] = []
    for name in STAGES:
        (source, *_), *others = steps(name, "FROM")
        assert not others
        assert source in earlier or re.fullmatch(r"debian:\w+-slim", source)
        earlier.append(name)
    assert earlier[-1] == "serve", "the last stage is what is built when none is named"


@each_target
def test_images_run_hearth_as_an_unprivileged_user(target: str) -> None:
    assert steps(target, "USER") == [["10001:10001"]], "a number: Kubernetes cannot read a name"
    assert [exec_form(words) for words in steps(target, "ENTRYPOINT")] == [PROGRAMS[target]]
    assert PROGRAMS[target][0] in PROJECT["project"]["scripts"]
    order = [step.instruction for step in STAGES[target]]
    assert not {"RUN", "COPY"} & {*order[order.index("USER") :]}


def test_only_the_bake_image_has_the_compiler() -> None:
    with_compiler = {
        name
        for name in STAGES
        if any(
            "bake" in word for words in steps(name, "RUN") + steps(name, "ARG") for word in words
        )
    }
    assert with_compiler == {"build-bake"}
    assert "build-bake" in reached("bake")
    assert reached("serve") == {"serve", "build", "python"}


def test_copied_files_exist_and_are_in_the_build_context() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {
        source
        for stage in STAGES
        for words in steps(stage, "COPY")
        if not words[0].startswith("--from=")
        for source in words[:-1]
    }
    assert "*" in lines, "all that is not named stays here"
    assert sent == copied
    assert all((ROOT / name).exists() for name in copied)
    hatch = PROJECT["tool"]["hatch"]
    readme = hatch["metadata"]["hooks"]["fancy-pypi-readme"]["fragments"]
    wheel = hatch["build"]["targets"]["wheel"]["packages"]
    assert copied >= {*wheel, "pyproject.toml", *(part["path"] for part in readme)}


def test_the_image_sets_valid_settings() -> None:
    variables = environment("serve")
    assert_settings(variables)
    assert steps("serve", "EXPOSE") == [[variables["HEARTH_PORT"]]]


def test_the_image_has_the_health_check() -> None:
    ((*options, _, _, _, _),) = steps("serve", "HEALTHCHECK")
    command = exec_form(steps("serve", "HEALTHCHECK")[0][len(options) + 1 :])
    (copied,) = [words for words in steps("serve", "COPY") if str(HEALTHCHECK)[-14:] in words[0]]
    assert ROOT / copied[0] == HEALTHCHECK
    assert command == ["python3", "-IS", copied[1]]


@each_target
def test_compose_runs_the_targets_of_the_dockerfile(target: str) -> None:
    service = COMPOSE["services"][target]
    build = service["build"]
    assert (ROOT / "docker" / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    assert build["target"] == target
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"] == ["/tmp"]


def test_compose_serves_the_bundle_that_it_bakes() -> None:
    bake, serve = (COMPOSE["services"][name] for name in TARGETS)
    bundle = bake["command"][bake["command"].index("--out") + 1]
    assert_settings(serve["environment"])
    assert serve["environment"]["HEARTH_BUNDLE"] == bundle
    (volume,) = COMPOSE["volumes"]
    assert bake["volumes"] == [f"{volume}:{Path(bundle).parent}"]
    assert serve["volumes"] == [f"{volume}:{Path(bundle).parent}:ro"]
    assert [f"install -d -o 10001 -g 10001 {Path(bundle).parent}".split()] == steps("bake", "RUN")
    assert bake["profiles"], "`up` does not bake again"
    assert serve["ports"] == ["127.0.0.1:8080:8080"]
    assert int(serve["stop_grace_period"].removesuffix("s")) > SHUTDOWN_TIMEOUT


def checked(port: int, **more: str) -> tuple[int, str]:
    """The exit code of the health check and what it said; it may not ask a proxy.

    It is repeated where a loaded machine took longer to answer than the check waits.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        result = subprocess.run(
            [sys.executable, "-IS", HEALTHCHECK],
            env={"HEARTH_PORT": str(port), "http_proxy": "http://192.0.2.1", "PATH": os.defpath}
            | more,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert not result.stderr
        if "timed out" not in result.stdout or time.monotonic() > deadline:
            return result.returncode, result.stdout


def test_a_server_that_accepts_requests_is_healthy() -> None:
    with fakes.running(fakes.fake_service(LIBRARY)) as client:
        port = client.base_url.port
        assert port is not None
        code, said = checked(port)
        assert said.startswith("200 ")
        assert code == 0
    code, said = checked(port)
    assert code == 1
    assert said.startswith(f"no response on port {port}: ")


def test_a_server_with_a_failed_self_test_is_unhealthy() -> None:
    wrong = FakeRuntime(vocab_size=LIBRARY.get_vocab_size(), context=64, spread=2.0)
    good = FakeRuntime(vocab_size=LIBRARY.get_vocab_size(), context=64)
    service = LocalLanguageService(
        wrong, Tokenizer(LIBRARY, bos=fakes.BOS), fakes.manifest_of(good)
    )
    with fakes.running(service) as client:
        assert client.base_url.port is not None
        code, said = checked(client.base_url.port)
    assert code == 1
    assert said.startswith("503 ")
    assert "self_test_failed" in said


def test_a_port_without_http_is_unhealthy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def mumble() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"what?\r\n")

        thread = threading.Thread(target=mumble)
        thread.start()
        code, said = checked(port)
        thread.join(PATIENCE)
    assert code == 1
    assert said.startswith("no response")


class _Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health/ready" else 404)
        self.send_header("content-length", "0")
        self.end_headers()

    @override
    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def https(folder: Path) -> Iterator[int]:
    """The port of a server with a certificate that nobody knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(folder))
    with http.server.HTTPServer(("127.0.0.1", 0), _Ready) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(PATIENCE)


def test_the_health_check_accepts_any_certificate(tmp_path: Path) -> None:
    with https(tmp_path) as port:
        assert checked(port, HEARTH_TLS_CERT="cert.pem")[0] == 0
        assert checked(port)[0] == 1
