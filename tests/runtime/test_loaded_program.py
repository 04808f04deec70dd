"""A program at the end of the process: IREE calls Python no more when the interpreter finalizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server import tiny

ROOT = Path(__file__).parents[2]

# The first exit handler runs last: it sees what the others have left.
SCRIPT = """
import atexit, sys, threading, time

@atexit.register
def last():
    from hearthd.runtime.iree import loaded_program
    print(len(loaded_program._modules), "modules")

from hearthd.runtime.iree import loaded_program
from pathlib import Path
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.runtime.language_model import IreeRuntime

bundle = Path(sys.argv[1])
model = IreeRuntime(bundle, read_manifest_of(bundle, LanguageManifest), threads=1)

def call():
    return model.decode([0], [1], [0])
"""

ENDS = {
    "a global has the program": "logits = call()",
    "a traceback has the program": "call(); sys.last_value = RuntimeError(model)",
    "another reference cycle has the program": "call(); cycle = [model]; cycle.append(cycle)",
    "a thread calls it": """
def run():
    while True:
        call()
threading.Thread(target=run, daemon=True).start()
time.sleep(0.05)
""",
    "a worker releases it later": """
modules = loaded_program._modules
modules.add(-1)
call()
atexit.register(lambda: threading.Timer(0.2, modules.discard, [-1]).start())
""",
    "the main thread calls it later": """
atexit.unregister(loaded_program._end)
@atexit.register
def late():
    try:
        call()
    except RuntimeError as error:
        print(error)
atexit.register(loaded_program._end)
""",
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "tiny"
    tiny.write_bundle(path)
    return path


@pytest.mark.parametrize("end", ENDS)
def test_no_module_is_loaded_when_the_last_exit_handler_ends(bundle: Path, end: str) -> None:
    script = SCRIPT + ENDS[end]
    done = subprocess.run(
        [sys.executable, "-c", script, str(bundle)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = "the interpreter exits: IREE can neither load nor call programs\n"
    assert done.stdout == (said if "main thread" in end else "") + "0 modules\n"
