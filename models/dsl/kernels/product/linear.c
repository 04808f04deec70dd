// Multiplies rows of f32 with a matrix of integers, with the matrices of their experts, or with a
// matrix to whose products the terms of adapters are added: ops `linear_quantized`,
// `routed_linear_quantized` and `linear_adapted`. A variant defines NAME, ROUTED, ADAPTED, and the
// format of the matrix (matrix.h).
#include "lora/adapted.h"
#include "product/routed.h"
#if GRIDS
#include "product/grid_tables.h"
#endif

// x f32 (rows, columns), or (rows / each, columns) with chosen i32 (rows,) (if ROUTED), adapters
// (if ADAPTED), the arrays of a matrix of (outputs, columns), or of (experts * outputs, columns),
// out f32 (rows, outputs); a workgroup computes `blocks` times sixteen outputs of `rows_each` rows,
// of the rows of `experts_each` experts (if ROUTED), or of all (if ADAPTED).
int NAME(const float *x, size_t x_at,
#if ROUTED
         const int32_t *chosen, size_t chosen_at,
#elif ADAPTED
         ADAPTER_ARRAYS, const int8_t *soon, size_t soon_at,
#endif
         MATRIX_ARRAYS, float *out, size_t out_at, size_t workgroup, size_t blocks,
#if ROUTED
         size_t experts_each, size_t stride,
#elif !ADAPTED
         size_t rows_each,
#endif
         size_t rows,
#if ROUTED
         size_t each,
#endif
         size_t outputs, size_t columns
#if ROUTED
         ,
         size_t experts
#elif ADAPTED
         ,
         ADAPTER_SIZES, SOON_SIZES
#endif
) {
    const Matrix matrix = MATRIX(columns);
#if MINIMUM
    // Known to the compiler, this needs no test in the loop.
    if (!matrix.minimum) __builtin_unreachable();
#endif
#if ROUTED
    Routing routing = {chosen + chosen_at, rows, each, experts};
    const ExpertArrays arrays = arrays_of(&matrix, outputs / ROWS);
    Turns turns = turns_of(workgroup, experts_each, stride, blocks, routing, outputs, &arrays);
    multiply_routed(x + x_at, &matrix, turns, out + out_at, outputs);
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
