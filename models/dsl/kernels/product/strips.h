// Rows that were rounded before (round_rows.c) times strips of a matrix.
//
// A strip is some groups of one or two blocks, unpacked once for up to STRIP_SHARE rows. Some rows
// at a time are multiplied with all of it, so that neither weights nor activations are loaded as
// often as they are multiplied. The sums of a row are added in the order of the groups, so it has
// the bits that other kernels give.
#ifndef HEARTH_STRIPS_H
#define HEARTH_STRIPS_H

#include "product/product.h"

// The rows that are multiplied together: four products of each block, which do not wait for each
// other; and the blocks of a strip. With 32 registers two blocks share each activation.
enum { STRIP_ROWS = 4 / PARTS, STRIP_SHARE = 128 };
#if defined(__AVX512F__)
enum { STRIP_BLOCKS = 2 };
#else
enum { STRIP_BLOCKS = 1 };
#endif

// The quads of a strip, as `dot_bytes` takes them, its scales and minimums.
typedef struct {
    Quad quads[STRIP][QUADS][STRIP_BLOCKS];
    f32x16 scale[STRIP][2][STRIP_BLOCKS], minimum[STRIP][2][STRIP_BLOCKS];
} Unpacked;

// Rounded rows are in memory panel after panel: an `Activations` of each row for the panel's
// groups. All panels have the same number of groups, at most STRIP and a multiple of the four that
// are rounded together; the last one has what is left.
_Static_assert(!STRIPS || sizeof(Activations) == STRIP * sizeof(float) * (PARTS == 1 ? 13 : 23),
               "fused/quantized_products.py has another size");

INLINE size_t panel_groups(const Matrix *matrix) {
    size_t panels = (matrix->groups + STRIP - 1) / STRIP;
    return ((matrix->groups + panels - 1) / panels + 3) / 4 * 4;
}

// Unpacks groups `begin` to `end` of `blocks` blocks.
INLINE void unpack_strip(Unpacked *to, const Matrix *matrix, size_t block, int blocks, size_t begin,
                         size_t end) {
    int is_whole = matrix->integers.bits >= 8 && !matrix->integers.values;
    for (int i = 0; i < blocks; i++)
        for (size_t group = begin; group < end; group++) {
            size_t at = (block + (size_t)i) * matrix->groups + group;
            Quad quads[QUADS];
            unpack(quads, matrix->integers, at,
                   matrix->integers.bits < 8 ? matrix->zero : DOT_OFFSET);
            for (int j = 0; j < QUADS; j++)
                to->quads[group - begin][j][i] =
                    is_whole ? quads[j] ^ (int8_t)-DOT_OFFSET : quads[j];
            for (int half = 0; half < (matrix->halves ? 2 : 1); half++) {
                Factors factors = factors_of(matrix, block + (size_t)i, group, half);
                to->scale[group - begin][half][i] = factors.scale;
                if (matrix->minimum) to->minimum[group - begin][half][i] = factors.minimum;
            }
        }
}

// The exact sums of the products of `count` quads of each block with each part of some rows of x.
INLINE void dot_strip(i32x16 dots[STRIP_ROWS][STRIP_BLOCKS][MAX_PARTS], int blocks,
                      const Quad (*quads)[STRIP_BLOCKS], int count,
                      const Activations *const x[STRIP_ROWS], size_t group, int half, int bits) {
    const int8_t *q[STRIP_ROWS];
    UNROLL
    for (int row = 0; row < STRIP_ROWS; row++) {
        int32_t starts[MAX_PARTS];
        q[row] = x[row]->q[group][0] + half * count * QUAD;
        for (int part = 0; part < PARTS; part++) starts[part] = x[row]->start[part][half][group];
#ifdef DOT_RUNS
        Run run = {.count = count, .bits = bits, .quads = (const int8_t *)quads};
        dot_run(dots[row][0], PARTS, run, q[row], starts);
        (void)blocks;
#else
        UNROLL
        for (int i = 0; i < blocks; i++) {
            UNROLL
            for (int part = 0; part < PARTS; part++) dots[row][i][part] = (i32x16){} + starts[part];
            if (IN_PAIRS && bits < 8) dot_small(dots[row][i], PARTS, *quads, count, q[row], bits);
        }
#endif
    }
#ifndef DOT_RUNS
    UNROLL
    for (int j = 0; j < count && !(IN_PAIRS && bits < 8); j++) UNROLL
    for (int row = 0; row < STRIP_ROWS; row++) UNROLL
    for (int part = 0; part < PARTS; part++) UNROLL
    for (int i = 0; i < blocks; i++)
        dots[row][i][part] =
            dot_bytes(dots[row][i][part], quads[j][i], q[row] + part * GROUP + j * QUAD);
#endif
}

// `count` groups of a strip times some rows of x; sums begin at 0 if `is_first`.
INLINE void multiply_strip(const Activations *const x[STRIP_ROWS], const Unpacked *strip,
                           size_t count, int blocks, int is_first, const Matrix *matrix,
                           f32x16 (*to)[STRIP_BLOCKS]) {
    f32x16 sums[STRIP_ROWS][STRIP_BLOCKS];
    int scales = matrix->halves ? 2 : 1, quads = QUADS / scales;
    UNROLL
    for (int row = 0; row < STRIP_ROWS; row++) UNROLL
    for (int i = 0; i < blocks; i++) sums[row][i] = is_first ? (f32x16){} : to[row][i];
    _Pragma("clang loop unroll(disable)") for (size_t group = 0; group < count; group++) {
        UNROLL
        for (int half = 0; half < scales; half++) {
            i32x16 dots[STRIP_ROWS][STRIP_BLOCKS][MAX_PARTS];
            dot_strip(dots, blocks, strip->quads[group] + half * quads, quads, x, group, half,
                      matrix->integers.bits);
            UNROLL
            for (int row = 0; row < STRIP_ROWS; row++) UNROLL
            for (int i = 0; i < blocks; i++) {
                f32x16 scale = strip->scale[group][half][i] * x[row]->scale[group];
                sums[row][i] = fma16(join(dots[row][i], matrix), scale, sums[row][i]);
                if (matrix->minimum)
                    sums[row][i] = fma16(strip->minimum[group][half][i],
                                         splat(x[row]->total[half][group]), sums[row][i]);
            }
        }
    }
    UNROLL
    for (int row = 0; row < STRIP_ROWS; row++) UNROLL
    for (int i = 0; i < blocks; i++) to[row][i] = sums[row][i];
}

// Fetches some of the `groups` groups of `blocks` blocks: all `rows` rows together fetch all.
INLINE void fetch_panel(const Matrix *matrix, size_t block, size_t blocks, size_t begin,
                        size_t groups, size_t row, size_t rows) {
    size_t all = blocks * groups, last = least(row + STRIP_ROWS, rows) * all / rows;
    for (size_t i = row * all / rows; i < last; i++)
        fetch_all(matrix, (block + i / groups) * matrix->groups + begin + i % groups);
}

// The rows of a share, of all `rows` rows of x, times `blocks` blocks from `block` on. Meanwhile
// the groups of `fetched`, the same matrix, are fetched that are read next.
INLINE void multiply_in_strip(const Activations *x, Share share, size_t rows, size_t block,
                              int blocks, const Matrix *matrix, const Matrix *fetched, float *out,
                              size_t stride) {
    Unpacked strip;
    f32x16 sums[STRIP_SHARE + STRIP_ROWS][STRIP_BLOCKS];
    size_t groups = panel_groups(matrix),
           after = least(share.end - block, 2 * STRIP_BLOCKS) - (size_t)blocks;
    out += share.row * stride + block * ROWS;
    x += share.row;
    for (size_t begin = 0; begin < matrix->groups; begin += groups, x += rows) {
        size_t end = least(begin + groups, matrix->groups);
        int is_last = end == matrix->groups;
        unpack_strip(&strip, matrix, block, blocks, begin, end);
        for (size_t row = 0; row < share.rows; row += STRIP_ROWS) {
            size_t count = least(STRIP_ROWS, share.rows - row);
            const Activations *some[STRIP_ROWS];
            for (size_t i = 0; i < STRIP_ROWS; i++) some[i] = x + least(row + i, share.rows - 1);
            if (is_last)
                fetch_panel(fetched, block + (size_t)blocks, after, 0, groups, row, share.rows);
            else
                fetch_panel(fetched, block, (size_t)blocks, end,
                            least(groups, matrix->groups - end), row, share.rows);
            for (size_t i = 0; i < count && is_last; i++)
                for (int j = 0; j < blocks; j++)
                    fetch_to_write(out + (row + i) * stride + j * ROWS);
            multiply_strip(some, &strip, end - begin, blocks, !begin, matrix, sums + row);
            for (size_t i = 0; i < count && is_last; i++)
                for (int j = 0; j < blocks; j++)
                    store(out + (row + i) * stride + j * ROWS, sums[row + i][j]);
        }
    }
}

// A share of all `rows` rows of x times a matrix: out has `stride` floats a row.
INLINE void multiply_strips(const Activations *x, Share share, size_t rows, const Matrix *matrix,
                            float *out, size_t stride) {
    Matrix fetched = *matrix;
    fetched.integers.last = share.end * matrix->groups - 1;
    size_t block = share.begin;
    for (; block + STRIP_BLOCKS <= share.end; block += STRIP_BLOCKS)
        multiply_in_strip(x, share, rows, block, STRIP_BLOCKS, matrix, &fetched, out, stride);
    for (; block < share.end; block++)
        multiply_in_strip(x, share, rows, block, 1, matrix, &fetched, out, stride);
}

// What a workgroup multiplies in strips, in place of a share that has `rows_each` of all `rows`
// rows: the rows of all shares with the same blocks, at most STRIP_SHARE, and some of the blocks.
INLINE Share in_strips(Share share, size_t rows_each, size_t rows) {
    size_t first = share.row / STRIP_SHARE * STRIP_SHARE, count = least(STRIP_SHARE, rows - first);
    size_t parts = (count + rows_each - 1) / rows_each, part = (share.row - first) / rows_each;
    size_t strips = (share.end - share.begin + STRIP_BLOCKS - 1) / STRIP_BLOCKS;
    size_t each = (strips + parts - 1) / parts * STRIP_BLOCKS, begin = share.begin + part * each;
    return (Share){first, count, least(begin, share.end), least(begin + each, share.end)};
}

#endif
