// Rows of a matrix of int8 in groups and in halves, as f32: op `embedding_halved`.
#include "grouped.h"

// ids i32 (M,), upper, lower and scale of (V, columns), out f32 (M, columns); a workgroup reads one
// row.
int hearth_embedding_halved(const int32_t *ids, size_t ids_at, const uint8_t *upper,
                            size_t upper_at, const uint8_t *lower, size_t lower_at,
                            const _Float16 *scale, size_t scale_at, float *out, size_t out_at,
                            size_t token, size_t columns) {
    size_t groups = columns / GROUP, id = (size_t)ids[ids_at + token], lane = id % ROWS;
    Integers integers = {8, .upper = upper + upper_at, .lower = lower + lower_at};
    out += out_at + token * columns;
    for (size_t i = 0; i < groups; i++) {
        size_t group = id / ROWS * groups + i;
        Quad quads[QUADS];
        unpack(quads, integers, group);
        for (int j = 0; j < GROUP; j++)
            *out++ = (float)quads[j / QUAD][lane * QUAD + j % QUAD] *
                     (float)scale[scale_at + group * ROWS + lane];
    }
    return 0;
}
