// Sixteen lanes, whatever the target's vectors are: the compiler splits or joins them.
#ifndef HEARTH_VECTOR_H
#define HEARTH_VECTOR_H

#include <stddef.h>
#include <stdint.h>

enum { LANES = 16 };

// The caches that bytes are fetched into, and the nearest one for bytes that are not read in one
// long run. On x86 it is the second: measured on Zen 4. A core that runs in order, as the
// Cortex-A53, would wait for the second one.
enum { SECOND_CACHE = 2, FIRST_CACHE = 3 };
#if defined(__x86_64__)
enum { NEAREST = SECOND_CACHE };
#else
enum { NEAREST = FIRST_CACHE };
#endif

typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef uint16_t u16x32 __attribute__((vector_size(64)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef _Float16 f16x16 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int8_t i8x16 __attribute__((vector_size(16)));

#define INLINE static inline __attribute__((always_inline))
// Loops are unrolled before anything else is done to them, so that nothing but sums stays of them.
#define UNROLL _Pragma("clang loop unroll(full)")

INLINE size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Fetches a line that will be written: otherwise a store waits until the core that wrote it last
// gives it up. Compilers know this instruction on targets that name it alone, but x86-64 CPUs that
// lack it ignore it.
INLINE void fetch_to_write(float *to) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*to));
#else
    __builtin_prefetch(to, 1, NEAREST);
#endif
}

INLINE f32x16 load(const float *from) {
    f32x16 lanes;
    __builtin_memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

INLINE void store(float *to, f32x16 lanes) { __builtin_memcpy(to, &lanes, sizeof lanes); }

// Whether an address suits `store_past`.
INLINE int is_aligned(const float *to) { return (uintptr_t)to % sizeof(f32x16) == 0; }

// Stores past the caches: their lines are not read from memory first, and nothing else leaves them.
INLINE void store_past(float *to, f32x16 lanes) {
    __builtin_nontemporal_store(lanes, (f32x16 *)__builtin_assume_aligned(to, sizeof lanes));
}

// Sixteen times x. To add x to zeros would be an addition, as 0 + -0 is not -0.
INLINE f32x16 splat(float x) { return x - (f32x16){}; }

// Sixteen f16 as f32.
INLINE f32x16 widen(const _Float16 *from) {
    f16x16 lanes;
    __builtin_memcpy(&lanes, from, sizeof lanes);
    return __builtin_convertvector(lanes, f32x16);
}

// Sixteen i8 as f32.
INLINE f32x16 widen_i8(const int8_t *from) {
    i8x16 lanes;
    __builtin_memcpy(&lanes, from, sizeof lanes);
    return __builtin_convertvector(lanes, f32x16);
}

// Sixteen u8 as u32.
INLINE u32x16 widen_u8(const uint8_t *from) {
    u8x16 lanes;
    __builtin_memcpy(&lanes, from, sizeof lanes);
    return __builtin_convertvector(lanes, u32x16);
}

// Sixteen u16 as u32.
INLINE u32x16 widen_u16(const void *from) {
    u16x16 lanes;
    __builtin_memcpy(&lanes, from, sizeof lanes);
    return __builtin_convertvector(lanes, u32x16);
}

// The four bits of each of sixteen bytes from bit `start` on, 0 to 15, as f32.
INLINE f32x16 widen_nibbles(const int8_t *from, int start) {
    u8x16 bytes;
    __builtin_memcpy(&bytes, from, sizeof bytes);
    return __builtin_convertvector(bytes >> start & 15, f32x16);
}

// Two to the power of each of sixteen exponents, less 127, as f32; 0 for the exponent 0.
INLINE f32x16 widen_exponents(const uint8_t *from) {
    u8x16 bytes;
    __builtin_memcpy(&bytes, from, sizeof bytes);
    return (f32x16)(__builtin_convertvector(bytes, i32x16) << 23);
}

// Sixteen floats of 8 bits without a sign, E4M3, as f32: f16 with other exponents. 0x7F is 480.
INLINE f32x16 widen_e4m3(const uint8_t *from) {
    u8x16 bytes;
    __builtin_memcpy(&bytes, from, sizeof bytes);
    u16x16 halves = __builtin_convertvector(bytes, u16x16) << 7;
    return widen((const _Float16 *)&halves) * 0x1p8f;
}

// A bf16, which is the upper half of an f32, as f32.
INLINE float f32_of_bf16(uint16_t number) {
    uint32_t bits = (uint32_t)number << 16;
    float wide;
    __builtin_memcpy(&wide, &bits, sizeof wide);
    return wide;
}

// Sixteen bf16 as f32.
INLINE f32x16 widen_bf16(const uint16_t *from) {
    u16x16 halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    u32x16 lanes = __builtin_convertvector(halves, u32x16) << 16;
    f32x16 floats;
    __builtin_memcpy(&floats, &lanes, sizeof floats);
    return floats;
}

// a * b + c, rounded once.
INLINE f32x16 fma16(f32x16 a, f32x16 b, f32x16 c) { return __builtin_elementwise_fma(a, b, c); }

// Joins the lanes of each of four vectors by JOIN(a, b). Types are of 16, 8 and 4 lanes.
#define SHUFFLE __builtin_shufflevector
#define EVEN 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define ODD 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define DEFINE_JOIN4(name, x16, x8, x4, JOIN)                                                    \
    INLINE x4 name(const x16 v[4]) {                                                             \
        x16 a = JOIN(SHUFFLE(v[0], v[1], EVEN), SHUFFLE(v[0], v[1], ODD));                       \
        x16 b = JOIN(SHUFFLE(v[2], v[3], EVEN), SHUFFLE(v[2], v[3], ODD));                       \
        /* Two lanes of each of v[0] and v[1], next to two of each of v[2] and v[3]. */          \
        x16 c = JOIN(SHUFFLE(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),    \
                     SHUFFLE(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)); \
        x8 d = JOIN(SHUFFLE(c, c, 0, 1, 2, 3, 4, 5, 6, 7),                                       \
                    SHUFFLE(c, c, 8, 9, 10, 11, 12, 13, 14, 15));                                \
        return JOIN(SHUFFLE(d, d, 0, 1, 2, 3), SHUFFLE(d, d, 4, 5, 6, 7));                       \
    }
#define ADD(a, b) ((a) + (b))

// The sums of the lanes of four vectors, and the largest lane of each.
DEFINE_JOIN4(sums4, f32x16, f32x8, f32x4, ADD)
DEFINE_JOIN4(largest4, f32x16, f32x8, f32x4, __builtin_elementwise_max)
DEFINE_JOIN4(largest_integers4, i32x16, i32x8, i32x4, __builtin_elementwise_max)
#undef ADD
#undef DEFINE_JOIN4
#undef EVEN
#undef ODD
#undef SHUFFLE

// The sum of sixteen lanes.
INLINE float sum(f32x16 lanes) {
    f32x16 four[4] = {lanes};
    return sums4(four)[0];
}

// The largest of sixteen lanes.
INLINE float largest(f32x16 lanes) {
    f32x16 four[4] = {lanes, lanes, lanes, lanes};
    return largest4(four)[0];
}

// Lanes of `a` where a mask of all ones or zeros has ones, of `b` elsewhere.
INLINE f32x16 choose(i32x16 mask, f32x16 a, f32x16 b) {
    i32x16 x, y;
    __builtin_memcpy(&x, &a, sizeof x);
    __builtin_memcpy(&y, &b, sizeof y);
    x = (x & mask) | (y & ~mask);
    __builtin_memcpy(&a, &x, sizeof a);
    return a;
}

// exp(x) for x <= 0, to 2 units in the last place; 0x1p-126 for all below -87.
// Cephes' expf: x = n ln 2 + r, and a polynomial for exp(r).
INLINE f32x16 exp16(f32x16 x) {
    const f32x16 zero = {};
    x = __builtin_elementwise_max(x, zero - 87.0f);
    // x / ln 2, rounded to the nearest integer, which is in the last bits of `shifted`.
    const float shift = 0x1.8p23f;
    f32x16 shifted = x * 1.44269504f + shift, n = shifted - shift;
    f32x16 r = fma16(n, zero - 0.693359375f, x);
    r = fma16(n, zero + 2.12194440e-4f, r);
    f32x16 p = zero + 1.9875691500e-4f;
    p = fma16(p, r, zero + 1.3981999507e-3f);
    p = fma16(p, r, zero + 8.3334519073e-3f);
    p = fma16(p, r, zero + 4.1665795894e-2f);
    p = fma16(p, r, zero + 1.6666665459e-1f);
    p = fma16(p, r, zero + 5.0000001201e-1f);
    p = fma16(p, r * r, r) + 1.0f;
    // p times 2^n, which is never subnormal: n is added to its exponent.
    i32x16 exponent, result;
    __builtin_memcpy(&exponent, &shifted, sizeof exponent);
    __builtin_memcpy(&result, &p, sizeof result);
    result += exponent << 23;
    __builtin_memcpy(&p, &result, sizeof p);
    return p;
}

#endif
