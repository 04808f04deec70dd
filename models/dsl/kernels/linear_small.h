// The body of a kernel that multiplies rows of f32 with a matrix of integers of 4 to 6 or 12 bits,
// with those of their experts, or with one to which they add the terms of adapters: ops
// `linear_small`, `linear_routed_small` and `linear_adapted`. Each form of a matrix has a file for
// each of them, which says NAME, BITS, HALVES, MINIMUM, ROUTED and ADAPTED. That of
// `linear_adapted` for int8 has 8 BITS.
#include "adapted.h"
#include "routed.h"

// x f32 (rows, columns), chosen i32 (rows,) (if ROUTED), adapters (if ADAPTED), low, high (if BITS
// are 5, 6 or 12), scale, minimum (if MINIMUM) of (outputs, columns), or of (experts * outputs,
// columns), out f32 (rows, outputs); a workgroup computes `blocks` times sixteen outputs of
// `rows_each` rows, or of all (if ROUTED or ADAPTED).
int NAME(const float *x, size_t x_at,
#if ROUTED
         const int32_t *chosen, size_t chosen_at,
#elif ADAPTED
         ADAPTER_ARRAYS, const int8_t *soon, size_t soon_at,
#endif
         const uint8_t *low, size_t low_at,
#if BITS != 4 && BITS != 8
         const uint8_t *high, size_t high_at,
#endif
         const _Float16 *scale, size_t scale_at,
#if MINIMUM
         const _Float16 *minimum, size_t minimum_at,
#endif
#if ROUTED
         float *out, size_t out_at, size_t workgroup, size_t blocks, size_t rows, size_t outputs,
         size_t columns, size_t experts) {
#elif ADAPTED
         float *out, size_t out_at, size_t workgroup, size_t blocks, size_t rows, size_t outputs,
         size_t columns, ADAPTER_SIZES, SOON_SIZES) {
#else
         float *out, size_t out_at, size_t workgroup, size_t blocks, size_t rows_each, size_t rows,
         size_t outputs, size_t columns) {
#endif
    Integers integers = {BITS, .low = low + low_at};
    Matrix matrix = {
        .scale = scale + scale_at,
        .zero = zero_of(BITS, MINIMUM),
        .halves = HALVES,
        .groups = columns / GROUP,
    };
#if BITS == 8
    integers.whole = (const int8_t *)low + low_at;
#elif BITS == 12
    integers.whole = (const int8_t *)high + high_at;
#elif BITS > 4
    integers.high = high + high_at;
#endif
#if MINIMUM
    matrix.minimum = minimum + minimum_at;
    // Known to the compiler, this needs no test in the loop.
    if (!matrix.minimum) __builtin_unreachable();
#endif
    matrix.integers = integers;
#if ROUTED
    Routing routing = {chosen + chosen_at, rows, experts};
    multiply_routed(x + x_at, routing, &matrix, workgroup, blocks, out + out_at, outputs);
#elif ADAPTED
    const size_t sources[SOURCES] = {rows0, rows1, rows2, rows3};
    const Adapters adapters = ADAPTERS(sources);
    const Soon next = SOON;
    multiply_adapted(x + x_at, workgroup, blocks, rows, outputs, &matrix, &adapters, &next,
                     out + out_at);
#else
    multiply_all(x + x_at, share_of(workgroup, blocks, rows_each, rows, outputs), &matrix, 0,
                 out + out_at, outputs);
#endif
    return 0;
}
