"""Hearth without what only Linux has: see other_system.py for what that says of other systems."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.by_day import first_by_day

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
SYSTEMS = (("darwin", "x86_64"), ("darwin", "arm64"), ("win32", "AMD64"))
_OF_ONE_SYSTEM = {"fcntl", "grp", "msvcrt", "pty", "pwd", "resource", "termios", "tty", "winreg"}
_MAY_ASK = re.compile(rf"\b({'|'.join(sorted(_OF_ONE_SYSTEM))})\b|sys\.platform|os\.name")
# The modules that know which system this is.
_KNOWING = {
    "hearthd.runtime.system.calling_thread",
    "hearthd.runtime.system.cpu_features",
    "hearthd.runtime.system.operating_system",
    "hearthd.runtime.system.resource_limits",
}
_BEGIN = """
import sys
from pathlib import Path
from tests.by_day import first_by_day
from tests.other_system import imitate, modules
imitate(sys.argv[1], sys.argv[2])
"""
_IMPORT = """
import importlib
for name in modules():
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:  # an extra that is not installed
        assert error.name.split(".")[0] in ("cryptography", "llama_cpp", "model_signing"), error
"""
_FALLBACKS = """
import os, socket, sys
from hearthd.baker.compiler.child_process import child_process
from hearthd.runtime.system import operating_system as system, resource_limits

folder = Path(sys.argv[3])
windows = sys.platform == "win32"
first, second = system.open_folder(folder), system.open_folder(folder)
system.lock(first)
try:
    system.lock(second)
    refused = False
except BlockingIOError:
    refused = True
assert refused
os.close(first)
system.lock(second, wait=True)
os.close(second)
(folder / "file").write_bytes(b"bytes")
for path in (folder, folder / "file"):
    system.sync(path, cached=False)
(folder / "link").symlink_to("file")
for path in (folder / "link", folder / "none"):
    try:
        os.close(system.open_distrusted(path))
        raise AssertionError(path)
    except OSError:
        pass
assert os.read(system.open_distrusted(folder / "file"), 9) == b"bytes"
assert system.physical_memory() > 1 << 30
assert resource_limits.soft_limit("RLIMIT_AS") is None
if not windows:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
limit = 2**16 if windows else min(10240, hard) if hard > 0 else 10240
assert resource_limits.raise_open_files(2**16) == limit
pages = system.new_pages(4096, huge=True)
assert pages[:] == bytes(4096)
with socket.socket() as server, socket.socket() as client:
    system.reuse_address(server)
    server.bind(("127.0.0.1", 0))
    server.listen()
    client.connect(server.getsockname())
    assert system.sent_bytes(client) is None
with child_process([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
    pass
assert child.returncode not in (None, 0)
assert (system.HANGUP is None) == windows
"""
_SERVE = """
import contextlib, json, os, signal, threading, time, urllib.request
from hearthd import cli

weights, out, port = Path(sys.argv[3], "w.safetensors"), Path(sys.argv[3], "gru"), sys.argv[4]

def hearth(*arguments):
    sys.argv = ["hearth", *arguments]
    try:
        cli.main()
    except SystemExit as end:
        return end.code

def ask():
    body = json.dumps({"function": "step", "inputs": {"x": [[0.0] * 3] * 2}}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/run", body, {"Content-Type": "application/json"}
    )
    for _ in range(900):
        with contextlib.suppress(ConnectionError, urllib.error.URLError):
            answers.append(json.load(urllib.request.urlopen(request)))
            break
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)

for _ in range(2):  # the second replaces the first
    assert not hearth("bake", "gru", "--weights", str(weights), "--out", str(out), "--batch", "2")
assert sorted(path.name for path in out.parent.iterdir()) == ["gru", "w.safetensors"]
for name in ("manifest.json", "bom.cdx.json"):
    assert b"\\r" not in (out / name).read_bytes()
target = json.loads((out / "manifest.json").read_bytes())["target"]
assert (target["name"], target["cpu"]) == ("host", "x86-64-v3"), target
answers = []
threading.Thread(target=ask, daemon=True).start()
assert not hearth("serve", str(out), "--port", port)
assert "y" in json.dumps(answers), answers
"""


def run(system: str, machine: str, code: str, *arguments: str, home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + code, system, machine, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=540,
        # IREE would look for iree-compile.exe.
        env={**os.environ, "HEARTH_HOME": str(home), "IREE_TOOL_PATH": str(_iree_tools())},
    )
    assert done.returncode == 0, done.stderr[-3000:]


def _iree_tools() -> Path:
    spec = importlib.util.find_spec("iree.compiler")
    assert spec
    assert spec.origin
    return Path(spec.origin).parent / "_mlir_libs"


def test_one_module_asks_which_system_this_is() -> None:
    asking = {name for name, source in _sources() if _asks(source)}
    assert asking == _KNOWING


def _sources() -> Iterator[tuple[str, str]]:
    from tests.test_layout import PACKAGES, name_of

    for package in {*PACKAGES} - {"benchmarks", "examples"}:
        for path in (ROOT / package).rglob("*.py"):
            name = name_of(path)
            if not name.startswith("server.cluster"):
                yield f"hearthd.{name.removeprefix('hearthd.')}", path.read_text(encoding="utf-8")


def _asks(source: str) -> bool:
    if not _MAY_ASK.search(source):  # parsing every module takes seconds
        return False
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
            if names & _OF_ONE_SYSTEM:
                return True
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.platform", "os.name"):
            return True
    return False


@pytest.mark.parametrize("source", ["import fcntl", "from resource import x", "sys.platform == 1"])
def test_a_module_that_asks_is_reported(source: str) -> None:
    assert _asks(source)
    assert not _asks("import os, sys\nos.getpid(), sys.argv")
    assert not _asks("resource = sys.argv  # not sys.platform")


@pytest.mark.parametrize(("system", "machine"), first_by_day(SYSTEMS))
def test_every_module_can_be_imported(system: str, machine: str, tmp_path: Path) -> None:
    run(system, machine, _IMPORT, home=tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("system", "machine"), first_by_day([SYSTEMS[0], SYSTEMS[2]]))
def test_each_fallback_runs(system: str, machine: str, tmp_path: Path) -> None:
    run(system, machine, _FALLBACKS, str(tmp_path), home=tmp_path)


@pytest.mark.parametrize(
    ("system", "machine", "cpu"),
    [
        ("darwin", "arm64", "cortex-a76+i8mm+reserve-x18"),
        ("darwin", "x86_64", "x86-64-v3"),
        ("win32", "AMD64", "x86-64-v3"),
    ],
)
@pytest.mark.nightly
def test_host_is_a_target_that_the_cpu_is_known_to_run(
    system: str, machine: str, cpu: str, tmp_path: Path
) -> None:
    code = f"""
from hearthd.baker.compiler.targets import find_target, runs_here
target = find_target("host")
assert (target.name, target.cpu) == ("host", {cpu!r}), target
assert runs_here(target)
"""
    run(system, machine, code, home=tmp_path)


@pytest.mark.nightly
def test_macos_refuses_code_that_may_use_its_register(tmp_path: Path) -> None:
    code = """
from hearthd.baker.compiler.targets import find_target, runs_here
from hearthd.bundle import ProgramFile
from hearthd.runtime.system.cpu_features import UnsupportedCpu, cpu_features, fastest
host, aarch64 = (
    ProgramFile(file="", target=find_target(name), instructions=None)
    for name in ("host", "aarch64")
)
assert fastest([host], "aarch64", cpu_features()) is host
assert not runs_here(aarch64.target)
try:
    fastest([aarch64], "aarch64", cpu_features())
    raise AssertionError("not refused")
except UnsupportedCpu as error:
    assert "a register that this system reserves" in str(error)
"""
    run("darwin", "arm64", code, home=tmp_path)


@pytest.mark.nightly
def test_clang_keeps_from_the_reserved_register(tmp_path: Path) -> None:
    """Zig ignores -ffixed-x18 without a word: the objects show whether a flag is heeded."""
    code = """
from hearthd.baker.compiler.kernel_objects import build
from hearthd.baker.compiler.targets import find_target
folder = Path(sys.argv[3])
for name in ("host", "aarch64-i8mm"):
    (folder / name).mkdir()
    build(["attention_many"], find_target(name), folder / name)
"""
    run("darwin", "arm64", code, str(tmp_path), home=tmp_path)
    reserved, free = (_x18_moves(tmp_path / name) for name in ("host", "aarch64-i8mm"))
    assert not reserved
    assert free


def _x18_moves(folder: Path) -> int:
    """Loads of 64 bits into x18 in an object: LDR with an unsigned offset (Arm ARM, C6.2)."""
    data = (folder / "attention_many.o").read_bytes()
    words = struct.unpack_from(f"<{len(data) // 4}I", data)
    return sum(word & 0xFFC0001F == 0xF9400012 for word in words)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("system", "machine"), [SYSTEMS[0], SYSTEMS[2]])
def test_a_gru_is_baked_twice_and_served(system: str, machine: str, tmp_path: Path) -> None:
    import socket

    from safetensors.numpy import save_file

    from tests.baker.gru.gru_example import weights

    folder = tmp_path / "bundles"
    folder.mkdir()
    save_file(weights(), folder / "w.safetensors")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    run(system, machine, _SERVE, str(folder), port, home=tmp_path / "home")
