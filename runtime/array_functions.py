"""The runtime of array functions, which keep no state between calls.

It knows the ABI of bundle/manifests/array_manifest.py. Callers check names, shapes and dtypes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from typing_extensions import override

from hearthd.runtime.iree.device import Device, result

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.bundle import ArraysManifest, ProgramFile
    from hearthd.runtime.array_bytes import Arrays


class Functions(Protocol):
    """The interface of an array program for the layers above."""

    def run(self, function: str, inputs: Arrays) -> Arrays:
        """Run a function; its outputs in the manifest's order, owned by the caller.

        An input whose default is zeros may be omitted.
        """


class ArraysRuntime(Functions):
    """A bundle of array functions, loaded on this machine's CPU."""

    def __init__(
        self,
        bundle: Path,
        manifest: ArraysManifest,
        *,
        threads: int | None,
        program: ProgramFile | None = None,
    ) -> None:
        """Load a program of a bundle, None for model.vmfb. Raises CannotLoad.

        `threads` as in start_threads.
        """
        self.program = program or manifest.programs[0]
        self._device = Device(bundle, threads=threads, program=self.program.file)
        self._specs = {spec.name: spec for spec in manifest.functions}
        self._compiled = {name: self._device.function(name) for name in self._specs}

    @override
    def run(self, function: str, inputs: Arrays) -> Arrays:
        spec = self._specs[function]
        arguments = []
        for item in spec.inputs:
            array = inputs.get(item.name)
            if array is None:
                assert item.default == "zeros", f"{function} without {item.name}"
                arguments.append(self._device.zeros(item.shape, item.dtype))
            else:
                assert array.shape == item.shape, f"{item.name} of shape {array.shape}"
                # A copy, because an output may be written into the buffer.
                arguments.append(self._device.upload(np.ascontiguousarray(array), item.dtype))
        results = self._device.call(self._compiled[function], arguments, results=len(spec.outputs))
        return {out.name: result(results, i, out.shape) for i, out in enumerate(spec.outputs)}
