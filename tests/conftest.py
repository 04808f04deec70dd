"""What several tests share: the real model, baked once a session in each precision asked for."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from hearthd.baker.pipeline import recipe
from hearthd.baker.pipeline.bake_options import BakeOptions, bake_options
from hearthd.baker.pipeline.recipe import packaged_weights
from hearthd.baker.reference.numpy_runtime import stored_parameters, traced
from hearthd.baker.weights.open_weights import open_weights
from hearthd.bundle import PARAMETERS, LanguageManifest, bundle_home, read_manifest_of
from hearthd.runtime.system import operating_system
from hearthd.runtime.system.cpu_features import this_machine
from tests.models.numpy_device import model_weights
from tests.quick import Guard, is_quick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig


# A shell has its background jobs ignore Ctrl-C, and they would hand that on to what tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine must not fail a test, nor an example that a run before did not draw: those come at
# night. scripts/nightly uses `--hypothesis-profile night`.
settings.register_profile("patient", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("night", deadline=None, max_examples=400)
settings.load_profile("patient")


def few(share: int) -> settings:
    """Settings for a test whose examples take long: a share of the profile's examples."""
    return settings(max_examples=settings.default.max_examples // share)  # type: ignore[union-attr]


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of a run, which all workers of pytest-xdist share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def _hearth_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the record of known bundles out of the user's home, in processes too.

    Workers share it: one of them bakes the bundles that the others verify.
    """
    os.environ[bundle_home.ENVIRONMENT] = str(session_folder(tmp_path_factory) / "home")


class Silent:
    """A Progress that says nothing."""

    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:  # noqa: ARG002
        yield lambda _: None

    def note(self, text: str) -> None:
        pass


def options_for(out: Path, **options: object) -> BakeOptions:
    """The options of `bake gemma3 --out OUT ...`, small ones by default; raises BadOption.

    In f32 the compiler takes three times as long.
    """
    small = {"precision": "int8-g32", "context": 128}
    return bake_options({"model": "gemma3", "out": out} | small | options)


def packaged(model: str) -> WeightSource:
    """The weights of a model that are installed with the extras."""
    return open_weights(packaged_weights(model))


@contextmanager
def few_entry_points() -> Iterator[None]:
    """Have bakes in this process compile one prefill in place of three, to save time.

    For tests of what a bake does with its program. The shared bundles have all entry points.
    """
    defaults_of = recipe.defaults_of

    def one_chunk(model: str, config: ModelConfig) -> recipe.Defaults:
        return replace(defaults_of(model, config), prefill_tokens=(128,))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "defaults_of", one_chunk)
        yield


def weights_in(bundle: Path) -> dict[str, NDArray[np.float32]]:
    """The weights of an f32 bundle as files have them: queries, keys and values apart."""
    program = traced(read_manifest_of(bundle, LanguageManifest))
    return model_weights(
        program.weights, stored_parameters(program.parameters, bundle / PARAMETERS)
    )


OTHER_TARGET = {"x86_64": "aarch64", "aarch64": "x86_64-v3"}[this_machine()]
# What is baked once a session, each with its options of `bake`.
SHARED = {
    "gemma3": ("gemma3", "--precision", "int8-g32", "--context", "2048", "--slots", "8"),
    "smollm2": ("smollm2", "--activations", "int16", "--kv-cache", "f32", "--slots", "1"),
    "smollm2-f32": ("smollm2", "--precision", "f32", "--slots", "1"),
}
# Needed in every session, and baked beside the quick tests. The others are baked at night.
_BY_DAY = ("smollm2",)
_BAKE = (sys.executable, "-m", "hearthd", "bake")


class Bundles:
    """Real bundles, each baked once, when it is begun or first asked for; one at a time.

    Workers of pytest-xdist share a folder: the first one to get its lock bakes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # A test beside the bake can have changed it when the bake starts.
        self._environment = dict(os.environ)
        self._baked: dict[str, Future[Path]] = {}
        self._pool = ThreadPoolExecutor(1, "bake")
        self._running: subprocess.Popen[str] | None = None
        self._closed = False

    def begin(self, name: str) -> Future[Path]:
        """Have a bundle baked in the background."""
        if name not in self._baked:
            self._baked[name] = self._pool.submit(self._bake, name)
        return self._baked[name]

    def __getitem__(self, name: str) -> Path:
        return self.begin(name).result()

    def close(self) -> None:
        """Give up what is not baked yet."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._running is not None:
            self._running.terminate()
        self._pool.shutdown()

    def _bake(self, name: str) -> Path:
        out = self._folder / name
        command = (*_BAKE, *SHARED[name], "--out", str(out))
        with (self._folder / "lock").open("w") as lock:
            operating_system.lock(lock.fileno(), wait=True)
            if out.exists() or self._closed:
                return out
            self._running = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=self._environment,
            )
            with self._running as process:
                _, said = process.communicate()
        if process.returncode:
            raise RuntimeError(f"bake {' '.join(SHARED[name])}: {said}")
        return out


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory, _hearth_home: None) -> Iterator[Bundles]:
    """Bundles of real models: see SHARED."""
    folder = session_folder(tmp_path_factory) / "bundles"
    folder.mkdir(exist_ok=True)
    shared = Bundles(folder)
    yield shared
    shared.close()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte with 64 KiB left."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "hearth-test", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr}")
    try:
        (disk / "rest").write_bytes(b"\0" * (15 << 16))
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture(autouse=True)
def _same_signal_handlers() -> Iterator[None]:
    """Commands in this process handle signals: see runtime/system/interrupts.py."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _same_log_handlers() -> Iterator[None]:
    """`hearth serve` in this process logs to the stderr of its test, which is closed afterwards."""
    root = logging.getLogger()
    level, handlers = root.level, {*root.handlers}
    yield
    for handler in {*root.handlers} - handlers:
        root.removeHandler(handler)
    root.setLevel(level)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore modules of tests that import what this system lacks, such as fcntl on Windows."""
    if collection_path.suffix != ".py" or sys.platform == "linux":
        return None
    missing = [name for name in _OF_ONE_SYSTEM if importlib.util.find_spec(name) is None]
    lines = collection_path.read_text(encoding="utf-8").splitlines()
    return True if any(f"import {name}" in lines for name in missing) else None


_OF_ONE_SYSTEM = ("fcntl", "pty", "resource", "termios")
_guard = Guard()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark quick tests, and put tests that need a shared bundle last, when it is baked.

    Tests marked nightly run where `-m` names them.

    With `--dist loadgroup` one worker runs a file's tests of one stage: they share fixtures. The
    last stage begins with long tests and goes on with the files of the most tests, so that all
    workers end together.
    """
    if "nightly" not in config.option.markexpr:
        by_day: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            by_day[item.get_closest_marker("nightly") is None].append(item)
        items[:] = by_day[True]
        config.hook.pytest_deselected(items=by_day[False])
    stages = {item: _stage(item) for item in items}
    sizes = Counter((item.path, stage) for item, stage in stages.items())
    for item, stage in stages.items():
        if stage == "fast" and is_quick(item.path):
            item.add_marker("quick")
        module = item.path.relative_to(item.config.rootpath)
        together = module.parent if str(module.parent) in _TOGETHER else module
        item.add_marker(pytest.mark.xdist_group(f"{together}-{stage}"))
    last = _STAGES[-1]
    items.sort(
        key=lambda item: (
            _STAGES.index(stages[item]),
            not item.nodeid.startswith(_LONG_TESTS),
            -sizes[item.path, last] if stages[item] == last else 0,
        )
    )


def pytest_collection() -> None:
    """Collect without the garbage collector: nothing that is imported becomes garbage."""
    gc.disable()


_freeze = gc.freeze


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later search for garbage, which takes a second.

    Also when a server that unloads a model collects garbage: it would search everything.
    """
    _freeze()
    gc.enable()
    for name in ("freeze", "unfreeze"):
        setattr(gc, name, lambda: None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Leave what a file has imported out of searches, too."""
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        _freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a quick test that starts a process or loads the compiler."""
    with _guard.on() if item.get_closest_marker("quick") else nullcontext():
        yield


# The stages of a session, in order.
_STAGES = ("fast", "slow", "bundle")
# Folders whose files share compiled kernels, a browser, and a package that takes long to import.
_TOGETHER = ("tests/models/kernels", "tests/server/web", "tests/server/api/anthropic")
# Files of few tests, which take a quarter of a minute each.
_LONG_TESTS = ("tests/baker/compare/test_compare_real_model.py", "tests/baker/test_bake.py")


def _stage(item: pytest.Item) -> str:
    if not _is_slow(item):
        return "fast"
    return "bundle" if "bundles" in getattr(item, "fixturenames", ()) else "slow"


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


@pytest.fixture(scope="session", autouse=True)
def _baked_meanwhile(request: pytest.FixtureRequest) -> None:
    """Bake the shared bundles beside the fast tests of a session that needs both."""
    if {"fast", "bundle"} <= {_stage(item) for item in request.session.items}:
        for name in _BY_DAY:
            request.getfixturevalue("bundles").begin(name)
