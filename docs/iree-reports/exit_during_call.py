"""The process exits while a daemon thread is in VmContext.invoke, or in allocate_buffer_copy.

The destructor of gil_scoped_release takes the GIL again. CPython before 3.14 ends the thread with
pthread_exit, whose unwinding meets that noexcept destructor: "terminate called without an active
exception", or "FATAL: exception not rethrown", SIGABRT.
"""

import threading
import time

import iree.compiler
import iree.runtime as rt
import numpy as np

PROGRAM = """
func.func @f(%x: tensor<4096xf32>) -> tensor<4096xf32> {
  %sum = stablehlo.add %x, %x : tensor<4096xf32>
  return %sum : tensor<4096xf32>
}
"""
code = iree.compiler.compile_str(
    PROGRAM,
    target_backends=["llvm-cpu"],
    input_type="stablehlo",
    extra_args=["--iree-llvmcpu-target-cpu=generic"],
)
device, instance = rt.get_device("local-task"), rt.VmInstance()
module = rt.VmModule.copy_buffer(instance, code)
context = rt.VmContext(instance, [rt.create_hal_module(instance, device), module])
function = module.lookup_function("f")


def run() -> None:
    """Call the program for ever."""
    while True:
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
        context.invoke(function, inputs, outputs)


threading.Thread(target=run, daemon=True).start()
time.sleep(0.3)
