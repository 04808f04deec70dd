"""The runtime of functions on arrays: each call is given all that it reads, and keeps nothing.

It knows the ABI of models/bundle/array_manifest.py. Callers check names, shapes and dtypes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from runtime.device import Device, result

if TYPE_CHECKING:
    from pathlib import Path

    from models.bundle import ArraysManifest
    from runtime.array_bytes import Arrays


class Functions(Protocol):
    """What the layers above need of a program of functions on arrays."""

    def run(self, function: str, inputs: Arrays) -> Arrays:
        """The outputs of a function, owned by the caller, in the manifest's order.

        An input whose default is zeros may be left out.
        """


class ArraysRuntime:
    """A bundle of functions, loaded on this machine's CPU."""

    def __init__(self, bundle: Path, manifest: ArraysManifest, *, threads: int | None) -> None:
        """Load a bundle; `threads` as in start_threads. Raises CannotLoad."""
        self._device = Device(bundle, threads=threads)
        self._specs = {spec.name: spec for spec in manifest.functions}
        self._compiled = {name: self._device.function(name) for name in self._specs}

    def run(self, function: str, inputs: Arrays) -> Arrays:
        """As Functions.run."""
        spec = self._specs[function]
        arguments = []
        for given in spec.inputs:
            array = inputs.get(given.name)
            if array is None:
                assert given.default == "zeros", f"{function} without {given.name}"
                arguments.append(self._device.zeros(given.shape, given.dtype))
            else:
                assert array.shape == given.shape, f"{given.name} of shape {array.shape}"
                # Copied, also since an output may take the buffer.
                arguments.append(self._device.upload(np.ascontiguousarray(array), given.dtype))
        found = self._device.call(self._compiled[function], arguments, results=len(spec.outputs))
        return {out.name: result(found, i, out.shape) for i, out in enumerate(spec.outputs)}
