// The compiler's functions for single instructions. To read them takes longer than to compile most
// kernels, so a bake reads them once for all kernels (baker/compiler/kernel_objects.py).
#ifndef HEARTH_INTRINSICS_H
#define HEARTH_INTRINSICS_H

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#endif
