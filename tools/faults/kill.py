"""Kill bakes at every stage and at random moments, and check the files afterwards."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from hearthd.bundle import ArraysManifest, digest, read_manifest_of, verify_files

_BAKE = (sys.executable, "-u", "-m", "hearthd", "bake", "gru", "--steps", "2")


def kill_bakes(folder: Path, *, rounds: int, seed: int) -> None:
    """Kill bakes in a folder; prints a line per bake, raises AssertionError if a check fails."""
    bake = _Bakes(folder)
    began = time.monotonic()
    stages = bake.bake()
    seconds = time.monotonic() - began
    print(f"a bake takes {seconds:.1f} s: {', '.join(stages)}")  # noqa: T201
    for stage in stages:
        bake.killed(f"after {stage!r}", stage=stage)
    rng = random.Random(seed)
    for _ in range(rounds):
        after = rng.uniform(0, 1.1 * seconds)
        bake.killed(f"after {after:.2f} s", seconds=after)
    print(f"{len(stages) + rounds} bakes killed, {bake.leftovers} left a temporary folder")  # noqa: T201


class _Bakes:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._out = folder / "bundle"
        self._seed = 0
        self._digest = ""
        self.leftovers = 0

    def bake(self) -> list[str]:
        """Bake without interruption; returns the names of the stages."""
        with self._start() as process:
            _, said = process.communicate()
        assert process.returncode == 0, said
        assert [path.name for path in self._folder.glob(".*")] == [], "a temporary folder remains"
        self._digest = self._look()
        return [line.partition(" s  ")[2] for line in said.splitlines()]

    def killed(self, when: str, *, stage: str = "", seconds: float = 0) -> None:
        """Kill a bake, check the files, and bake again."""
        with self._start() as process:
            if stage:
                assert process.stderr is not None
                while stage not in process.stderr.readline():
                    pass
            time.sleep(seconds)
            process.kill()
            process.communicate()
        current = self._look()
        leftovers = list(self._folder.glob(".bundle.bake-*"))
        self.leftovers += bool(leftovers)
        deadline = time.monotonic() + 5
        while running := processes_in(self._folder):
            assert time.monotonic() < deadline, f"{running} still run"
            time.sleep(0.01)
        found = "the old bundle" if current == self._digest else "the new bundle"
        print(f"killed {when}: {found}, {len(leftovers)} folders left")  # noqa: T201
        self.bake()

    def _start(self) -> subprocess.Popen[str]:
        """Begin a bake of weights that no bake had before."""
        self._seed += 1
        rng = np.random.default_rng(self._seed)
        shapes = {"weight_ih_l0": (48, 8), "weight_hh_l0": (48, 16), "bias_ih_l0": (48,)}
        tensors = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        weights = self._folder / "gru.safetensors"
        save_file({**tensors, "bias_hh_l0": tensors["bias_ih_l0"]}, weights)
        order = (*_BAKE, "--weights", str(weights), "--out", str(self._out))
        return subprocess.Popen(
            order, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path.cwd()
        )

    def _look(self) -> str:
        """The digest of the bundle that is there, which must be whole."""
        manifest = read_manifest_of(self._out, ArraysManifest)
        verify_files(self._out, manifest)
        return digest(manifest)


def processes_in(folder: Path) -> list[int]:
    """The processes that were given a path in a folder."""
    process_ids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in line:
            process_ids.append(int(process.name))
    return process_ids
