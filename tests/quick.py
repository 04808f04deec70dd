"""Which tests are quick: in modules that reach no process, compiler, browser or bundle.

Nothing is marked by hand. The imports of a test module are followed through the project; a module
is quick if it reaches none of SLOW_IMPORTS and is not in _SLOW_PATHS. What imports do not show,
`Guard` does: a quick test that starts a process or loads the compiler fails.

`python -m tests.quick` prints the quick modules: to collect the others takes longer than to run
these.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
# Modules that start processes, compilers or browsers, or that take seconds to import.
SLOW_IMPORTS = frozenset({"iree.compiler", "multiprocessing", "selenium", "subprocess", "torch"})
# Tests that need none of these, and seconds all the same.
_SLOW_PATHS = (
    # Draw with matplotlib, which starts fc-list when it is first imported.
    "baker/compare/test_compare_report.py",
    "baker/presentation/test_plots.py",
    "benchmarks/test_figures.py",
    "baker/pipeline/test_auto_precision.py",  # computes models in NumPy
    "baker/pipeline/test_context_choice.py",  # traces models of published sizes
    "baker/pipeline/test_native.py",  # quantizes and computes models
    "baker/pipeline/test_super_blocks.py",  # quantizes matrices to every format
    "baker/pipeline/test_weights_config.py",  # writes and compares tables of embeddings
    "baker/calibration/test_token_weights.py",  # gradients of every family
    "baker/tokenizer/test_unused_merges.py",  # encodes thousands of texts
    "baker/weights/quantized/test_mxfp4_experts.py",
    "baker/weights/quantized/test_quantized_logits.py",  # computes models in NumPy
    "baker/weights/test_ctranslate2.py",  # damages every byte
    "benchmarks/test_synthetic_weights.py",  # writes a file of each size
    "cluster",  # starts Ray
    "e2e",  # runs the real models
    "docs",  # imports every command
    "fuzz",
    "models/dsl/nn/test_gru.py",  # hundreds of GRUs and their gradients in NumPy
    "models/dsl/test_registry.py",  # traces every op for every document
    "models/families",  # hundreds of tokens of every architecture in NumPy
    "models/lora/test_adapter_programs.py",  # traces programs with every entry point
    "models/lora/test_training.py",
    "models/test_optimized.py",  # programs of every architecture in NumPy
    "sampling/test_constrained.py",  # compiles grammars, and samples whole answers
    "sampling/test_feedback.py",  # thousands of draws
    "text/test_call_grammar.py",  # compiles hundreds of grammars
    "text/test_chat_template.py",
    "text/test_detokenize.py",  # hundreds of random texts
    "text/test_gbnf.py",
    "text/test_grammar.py",
    "text/test_grammar_memory.py",  # fills memory
    "text/test_marked_values.py",
    "text/test_template_sandbox.py",  # fills the memory that a template may use
    "text/test_tool_calls.py",  # every cut of every format
    "text/test_unique_keys.py",  # compiles a grammar for each object
    "server/api",  # each test starts an HTTP server
    "server/engine/test_engine_random.py",  # random requests to engines
    "server/engine/test_snapshots.py",
    "server/engine/test_speculation.py",
    "server/process/test_draining_server.py",  # waits for timeouts
    "server/services/test_deployment.py",  # replaces bundles, under load
    "server/services/test_model_pool.py",  # floods models, and waits for their loads
)
_SLOW = frozenset(ROOT / "tests" / path for path in _SLOW_PATHS)
_CONFTEST = ROOT / "tests/conftest.py"
_PROCESS_EVENTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec"})


@functools.cache
def is_quick(module: Path) -> bool:
    """Whether all tests of a module are quick."""
    is_listed = not _SLOW.isdisjoint((module, *module.parents))
    return not is_listed and next(slow_imports(module), None) is None


def slow_imports(module: Path) -> Iterator[str]:
    """The members of SLOW_IMPORTS that a test module and its conftest.py files reach."""
    done = {str(_CONFTEST)}  # it bakes the shared bundles: tests that ask for one are marked slow
    todo = [str(file) for file in (module, *_conftests(module))]
    while todo:
        path = todo.pop()
        if path not in done:
            done.add(path)
            slow, files = _imports(path)
            yield from slow
            todo += files


# An import at the start of a line, so none that a function makes or that is for types alone.
_IMPORT = re.compile(
    r"""^(?: import\ (?P<module>[\w.]+)
          | from\ (?P<package>[\w.]+)\ import\ (?P<names>\([^)]*\)|.*)
          | (?:\w+\ =\ )?pytest\.importorskip\("(?P<skip>[\w.]+)" )""",
    re.MULTILINE | re.VERBOSE,
)


@functools.cache
def _imports(path: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """The members of SLOW_IMPORTS and the files of the project that loading a file imports."""
    names: list[str] = []
    for match in _IMPORT.finditer(Path(path).read_text(encoding="utf-8")):
        module, package, members, skip = match.group("module", "package", "names", "skip")
        names += (
            (f"{package}.{name}" for name in re.findall(r"\w+", members))
            if package
            else (module or skip,)
        )
    slow = {
        slow
        for slow in SLOW_IMPORTS
        for name in names
        if name.startswith(slow) and f"{name}.".startswith(f"{slow}.")
    }
    return frozenset(slow), tuple(file for name in names for file in _files(name))


@functools.cache
def _files(name: str) -> tuple[str, ...]:
    """The files of the project that importing a dotted name loads."""
    path, files = str(ROOT), list[str]()
    for part in name.split("."):
        path = f"{path}/{part}"
        files += filter(os.path.isfile, (f"{path}/__init__.py", f"{path}.py"))
        if not os.path.isdir(path):  # noqa: PTH112  # thousands: paths as objects take twice as long
            break
    return tuple(files)


def _conftests(module: Path) -> list[Path]:
    files = (folder / "conftest.py" for folder in module.parents if ROOT in folder.parents)
    return [file for file in files if file.is_file()]


class Guard:
    """Raises where a quick test starts a process or loads the compiler.

    It watches the thread of the test: another one bakes the shared bundles meanwhile.
    """

    def __init__(self) -> None:
        self._thread: int | None = None
        sys.addaudithook(self._audit)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Watch this thread until the block ends."""
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._thread = None

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self._thread != threading.get_ident():
            return
        if event in _PROCESS_EVENTS:
            raise RuntimeError(f"a quick test started a process: {args[0]!r}; see tests/quick.py")
        if event == "import" and str(args[0]).startswith("iree.compiler"):
            raise RuntimeError("a quick test loaded the compiler; see tests/quick.py")


if __name__ == "__main__":
    for module in sorted(ROOT.joinpath("tests").rglob("test_*.py")):
        if is_quick(module):
            sys.stdout.write(f"{module.relative_to(ROOT)}\n")
