"""A worker releases the Python object of FileHandle.wrap_memory, without the GIL.

"PyEval_SaveThread: the function must be called with the GIL held", or SIGSEGV, while the
interpreter runs. Always under hold_worker.py, now and then without. With `ParameterIndex.load(path,
mmap=True)` in place of wrap_memory nothing happens: IREE then maps the file itself.
"""

import mmap
import tempfile
import time
from pathlib import Path

import iree.compiler
import iree.runtime as rt
import numpy as np

PROGRAM = """
util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<4096xf32>
func.func @f(%x: tensor<4096xf32>) -> tensor<4096xf32> {
  %w = util.global.load @w : tensor<4096xf32>
  %sum = stablehlo.add %x, %w : tensor<4096xf32>
  return %sum : tensor<4096xf32>
}
"""


def main(archive: Path) -> None:
    """Load the program and its parameter, call it, and release everything."""
    rt.save_archive_file({"w": np.arange(4096, dtype=np.float32)}, str(archive))
    code = iree.compiler.compile_str(
        PROGRAM,
        target_backends=["llvm-cpu"],
        input_type="auto",
        extra_args=["--iree-llvmcpu-target-cpu=generic"],
    )
    instance, index = rt.VmInstance(), rt.ParameterIndex()
    with archive.open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    handle = rt.FileHandle.wrap_memory(pages, readable=True, writable=False)
    index.load_from_file_handle(handle, format="irpa")
    modules = [
        rt.create_hal_module(instance, device),
        rt.create_io_parameters_module(instance, index.create_provider(scope="model")),
        rt.VmModule.copy_buffer(instance, code),
    ]
    context = rt.VmContext(instance, modules)
    inputs, outputs = rt.VmVariantList(1), rt.VmVariantList(1)
    inputs.push_ref(
        device.allocator.allocate_buffer_copy(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT,
            device=device,
            buffer=np.ones(4096, np.float32),
            element_type=rt.HalElementType.FLOAT_32,
        )
    )
    context.invoke(modules[-1].lookup_function("f"), inputs, outputs)


device = rt.get_device("local-task")
with tempfile.TemporaryDirectory() as folder:
    main(Path(folder) / "weights.irpa")
time.sleep(10)
