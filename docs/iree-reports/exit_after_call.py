"""The process exits while a worker has the last reference to a constant of a module.

The worker has signaled that the call is complete, and releases what the call used afterwards. The
deallocator of VmModule.copy_buffer, mmap and wrap_buffer takes the GIL; CPython before 3.14 ends
the thread with pthread_exit, whose unwinding meets a noexcept function: "terminate called without
an active exception", SIGABRT. Always under hold_worker.py, now and then without.
"""

import iree.compiler
import iree.runtime as rt
import numpy as np

VALUES = ", ".join(f"{value:.6f}" for value in np.random.default_rng(0).normal(size=4096))
# The program imports the constant from the module's memory, without a copy.
PROGRAM = f"""
func.func @f(%x: tensor<4096xf32>) -> tensor<4096xf32> {{
  %constant = stablehlo.constant dense<[{VALUES}]> : tensor<4096xf32>
  %sum = stablehlo.add %x, %constant : tensor<4096xf32>
  return %sum : tensor<4096xf32>
}}
"""


def main() -> None:
    """Load the program, call it, and release everything."""
    code = iree.compiler.compile_str(
        PROGRAM,
        target_backends=["llvm-cpu"],
        input_type="stablehlo",
        extra_args=["--iree-llvmcpu-target-cpu=generic"],
    )
    device, instance = rt.get_device("local-task"), rt.VmInstance()
    module = rt.VmModule.copy_buffer(instance, code)
    context = rt.VmContext(instance, [rt.create_hal_module(instance, device), module])
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
    context.invoke(module.lookup_function("f"), inputs, outputs)


main()
