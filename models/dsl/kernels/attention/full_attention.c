// Attention of many queries to every row of keys and values. A variant for a dtype of caches
// defines NAME, Value and load_value.
//
// Lanes are queries: scores are (keys, queries) and mixed values (columns, queries), so the softmax
// (Milakov and Gimelshein, 2018) needs no sum or maximum of lanes. A query's result depends on no
// other query.
#include "isa/bf16.h"
#include "isa/transpose.h"
#if BF16_TILES
#include "attention/full_tiles.h"
#else
#include "attention/full_vectors.h"
#endif

// Floats of queries and mixed values of a workgroup, which takes 88 KiB of stack: a worker has 128.
enum { MAX_FLOATS = 17 << 10, VECTORS = SET / LANES };
// A top is raised when a score exceeds it by this, so that sums are seldom multiplied.
#define SLACK 8.0f

// Keys and values of a group.
typedef struct {
    const Value *key, *value;
    const uint16_t *parts;  // of split_rows.c
    size_t stride, width, count;
} Rows;

// Of each query of a set: the highest score so far, or up to SLACK less, and the sum of
// exp(score - top).
typedef struct {
    f32x16 top[VECTORS], total[VECTORS];
} Softmax;

#if BF16_TILES
// Columns of queries as the products read them.
INLINE size_t query_columns(size_t width) { return key_columns(width); }

INLINE void place_columns(float *to, f32x16 x[LANES], size_t column, size_t half) {
    enum { TILE = LANES * LANES };
    float *upper =
        to + (column / TILE_COLUMNS * 4 + half) * TILE + column % TILE_COLUMNS * LANES / 2;
    for (size_t i = 0; i < LANES; i += 2) {
        store(upper + i * LANES / 2, pair(x[i], x[i + 1]));
        store(upper + 2 * TILE + i * LANES / 2, pair(remainder_of(x[i]), remainder_of(x[i + 1])));
    }
}

INLINE void place_weights(float *to, f32x16 x, f32x16 y) {
    store(to, pair(x, y));
    store(to + SET, pair(remainder_of(x), remainder_of(y)));
}

// The scores of a block with `keys` keys. Scores behind its last key are computed too, and get the
// weight 0.
INLINE void score(float *scores, const float *queries, const Rows *rows, size_t begin,
                  size_t keys) {
    (void)keys;
    const uint16_t *block = rows->parts + begin / BLOCK * block_parts(rows->width);
    score_tiles(scores, block, (const uint16_t *)queries, rows->width);
}

INLINE void mix(float *mixed, const float *weights, const Rows *rows, size_t begin, size_t keys) {
    (void)keys;
    const uint16_t *block = rows->parts + begin / BLOCK * block_parts(rows->width);
    mix_tiles(mixed, weights, block + key_parts(rows->width), rows->width);
}
#else
INLINE size_t query_columns(size_t width) { return width; }

INLINE void place_columns(float *to, f32x16 x[LANES], size_t column, size_t half) {
    for (size_t i = 0; i < LANES; i++) store(to + (column + i) * SET + half * LANES, x[i]);
}

INLINE void place_weights(float *to, f32x16 x, f32x16 y) { store(to, x), store(to + SET, y); }

INLINE void score(float *scores, const float *queries, const Rows *rows, size_t begin,
                  size_t keys) {
    for (size_t i = 0; i < keys * SET; i += LANES) store(scores + i, (f32x16){});
    add_product(scores, keys, rows->key + begin * rows->stride, rows->stride, 1, queries,
                rows->width);
}

INLINE void mix(float *mixed, const float *weights, const Rows *rows, size_t begin, size_t keys) {
    add_product(mixed, rows->width, rows->value + begin * rows->stride, 1, rows->stride, weights,
                keys);
}
#endif

// The first `count` queries of a set, scaled, followed by zeros.
INLINE void place_queries(float *to, const float *query, size_t stride, size_t count, size_t width,
                          float scale) {
    for (size_t half = 0; half < VECTORS; half++)
        for (size_t d = 0; d < query_columns(width); d += LANES) {
            f32x16 x[LANES];
            for (size_t i = 0; i < LANES; i++) {
                size_t row = half * LANES + i;
                int exists = row < count && d < width;
                x[i] = exists ? load(query + row * stride + d) * scale : (f32x16){};
            }
            transpose16(x);
            place_columns(to, x, d, half);
        }
}

// Raises the tops to the largest of `keys` scores, and scales earlier sums to the new tops.
INLINE void raise_tops(Softmax *softmax, const float *scores, size_t keys, float *mixed,
                       size_t width) {
    for (size_t v = 0; v < VECTORS; v++) {
        f32x16 highest = load(scores + v * LANES), top = softmax->top[v];
        for (size_t k = 1; k < keys; k++) {
            f32x16 next = load(scores + k * SET + v * LANES);
            highest = choose(next > highest, next, highest);
        }
        i32x16 raised = highest > top + SLACK;
        if (!__builtin_reduce_or(raised)) continue;
        softmax->top[v] = choose(raised, highest, top);
        f32x16 kept = exp16(top - softmax->top[v]);
        softmax->total[v] *= kept;
        for (size_t d = 0; d < width; d++) {
            float *sums = mixed + d * SET + v * LANES;
            store(sums, load(sums) * kept);
        }
    }
}

// Turns the scores of `keys` keys into weights; the rest of the block gets 0.
INLINE void weigh(Softmax *softmax, float *scores, size_t keys) {
    for (size_t k = 0; k < BLOCK; k += 2)
        for (size_t v = 0; v < VECTORS; v++) {
            float *from = scores + k * SET + v * LANES;
            f32x16 x = {}, y = {};
            if (k < keys) x = exp16(load(from) - softmax->top[v]);
            if (k + 1 < keys) y = exp16(load(from + SET) - softmax->top[v]);
            softmax->total[v] += x + y;
            place_weights(from, x, y);
        }
}

// Writes the first `count` of the queries of a set.
INLINE void store_mixed(float *out, const float *mixed, const Softmax *softmax, size_t stride,
                        size_t count, size_t width) {
    for (size_t v = 0; v < VECTORS; v++)
        for (size_t d = 0; d < width; d += LANES) {
            f32x16 x[LANES];
            for (size_t i = 0; i < LANES; i++)
                x[i] = load(mixed + (d + i) * SET + v * LANES) / softmax->total[v];
            transpose16(x);
            for (size_t i = 0; i < LANES && v * LANES + i < count; i++)
                store(out + (v * LANES + i) * stride + d, x[i]);
        }
}

// query f32 (tokens, heads, width), key and value (rows, groups, width), last i32 (1,): the last
// row that is read, parts: see split_rows.c, out f32 (tokens, heads, width). A workgroup computes
// `queries`, a multiple of SET, of a head.
int NAME(const float *query, size_t query_at, const Value *key, size_t key_at, const Value *value,
         size_t value_at, const int32_t *last, size_t last_at, const float *parts, size_t parts_at,
         float *out, size_t out_at, size_t workgroup, size_t tokens, size_t heads, size_t groups,
         size_t width, size_t rows, size_t queries, float scale) {
    _Alignas(64) float memory[MAX_FLOATS], scores[BLOCK * SET];
    Softmax softmax[MAX_FLOATS / SET / LANES];
    size_t units = (tokens + queries - 1) / queries, head = workgroup / units;
    size_t first = workgroup % units * queries, all = least(tokens - first, queries);
    size_t sets = (all + SET - 1) / SET, stride = heads * width;
    size_t group = head / (heads / groups), floats = (query_columns(width) + width) * SET;
    Rows from = {key + key_at + group * width,
                 value + value_at + group * width,
                 0,
                 groups * width,
                 width,
                 least((size_t)last[last_at] + 1, rows)};
#if BF16_TILES
    size_t blocks = (rows + BLOCK - 1) / BLOCK;
    from.parts = (const uint16_t *)(parts + parts_at) + group * blocks * block_parts(width);
    shape_tiles(LANES, LANES);
#else
    (void)parts, (void)parts_at;
#endif
    query += query_at + first * stride + head * width;
    out += out_at + first * stride + head * width;
    for (size_t s = 0; s < sets; s++) {
        float *mixed = memory + s * floats;
        place_queries(mixed + width * SET, query + s * SET * stride, stride, all - s * SET, width,
                      scale);
        for (size_t i = 0; i < width * SET; i += LANES) store(mixed + i, (f32x16){});
        for (size_t v = 0; v < VECTORS; v++)
            softmax[s].top[v] = splat(-0x1p126f), softmax[s].total[v] = (f32x16){};
    }
    for (size_t begin = 0; begin < from.count; begin += BLOCK)
        for (size_t s = 0; s < sets; s++) {
            float *mixed = memory + s * floats;
            size_t keys = least(from.count - begin, BLOCK);
            score(scores, mixed + width * SET, &from, begin, keys);
            raise_tops(&softmax[s], scores, keys, mixed, width);
            weigh(&softmax[s], scores, keys);
            mix(mixed, scores, &from, begin, keys);
        }
    for (size_t s = 0; s < sets; s++)
        store_mixed(out + s * SET * stride, memory + s * floats, &softmax[s], stride, all - s * SET,
                    width);
#if BF16_TILES
    _tile_release();
#endif
    return 0;
}
