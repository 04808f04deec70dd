#include "vector.h"

// Sixteen bf16, which are the upper halves of f32, as f32.
INLINE f32x16 values(const uint16_t *from) {
    typedef uint16_t u16x16 __attribute__((vector_size(32)));
    typedef uint32_t u32x16 __attribute__((vector_size(64)));
    u16x16 halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    u32x16 lanes = __builtin_convertvector(halves, u32x16) << 16;
    f32x16 floats;
    __builtin_memcpy(&floats, &lanes, sizeof floats);
    return floats;
}

INLINE float value(uint16_t weight) {
    uint32_t bits = (uint32_t)weight << 16;
    float number;
    __builtin_memcpy(&number, &bits, sizeof number);
    return number;
}

#define NAME hearth_linear_routed_bf16
#define WEIGHT uint16_t
#include "routed_floats.h"
