// Attention of new tokens over a ring cache that holds them: ops `attention_cached` and
// `attention_cached_i8`. Each dtype of a cache has a file, which says NAME, Value and load_value,
// and SCALED if each head of a row has a scale.
//
// Only keys that a token sees are read, in blocks of KEYS positions, with a running softmax
// (Milakov and Gimelshein, 2018). Blocks begin at multiples of KEYS and what is not seen counts as
// zero: a token's result does not depend on how many tokens are read with it. Rows of a head are
// far apart, which the CPU's own prefetching does not follow: the values of a block are prefetched
// while its keys are read, and then the keys of the next block.
#ifndef HEARTH_ATTENTION_H
#define HEARTH_ATTENTION_H

#include "vector.h"

enum { QUERIES = 4, KEYS = 64, MOST_WIDTH = 256, TOGETHER = 4 };

typedef struct {
    const Value *key, *value;
    size_t rows, stride, width;  // of the cache; a row has `stride` values, a head `width`
    float scale;                 // of scores
#ifdef SCALED
    const float *key_scale, *value_scale;  // of this head in the first row
    size_t groups;                         // scales of a row
#endif
} Cache;

// Heads of tokens that share their keys: where each lies, in floats, and its position.
typedef struct {
    size_t at[QUERIES], position[QUERIES];
} Queries;

// The positions of a block: where each has its row, in values. As many as a token sees, or more.
typedef struct {
    size_t row[KEYS], keys;
#ifdef SCALED
    float key_scale[KEYS], value_scale[KEYS];
#endif
} Block;

typedef struct {
    float mixed[QUERIES][MOST_WIDTH];  // values, weighted by exp(score - top)
    float top[QUERIES], total[QUERIES];
} State;

INLINE void find_block(Block *block, size_t begin, size_t newest, const Cache *cache) {
    block->keys = newest - begin + 1 < KEYS ? newest - begin + 1 : KEYS;
    size_t row = begin % cache->rows;
    for (int k = 0; k < KEYS; k++) {
        block->row[k] = row * cache->stride;
#ifdef SCALED
        block->key_scale[k] = cache->key_scale[row * cache->groups];
        block->value_scale[k] = cache->value_scale[row * cache->groups];
#endif
        row = row + 1 == cache->rows ? 0 : row + 1;
    }
}

// scores[i][k] = scale * query i times key k of the block.
INLINE void score(const float *query, const Queries *queries, int count, const Cache *cache,
                  const Block *block, float scores[QUERIES][KEYS]) {
    for (size_t k = 0; k < block->keys; k += TOGETHER) {
        f32x16 products[QUERIES][TOGETHER];
        for (int j = 0; j < count; j++)
            for (int i = 0; i < TOGETHER; i++) products[j][i] = (f32x16){};
        for (size_t d = 0; d < cache->width; d += LANES) {
            f32x16 key[TOGETHER];
            for (int i = 0; i < TOGETHER; i++)
                key[i] = load_value(cache->key + block->row[k + i] + d);
            for (int i = 0; i < TOGETHER; i++)
                __builtin_prefetch(cache->value + block->row[k + i] + d);
#pragma clang loop unroll(full)
            for (int j = 0; j < count; j++) {
                f32x16 own = load(query + queries->at[j] + d);
                for (int i = 0; i < TOGETHER; i++)
                    products[j][i] = fma16(own, key[i], products[j][i]);
            }
        }
        for (int j = 0; j < count; j++) {
            f32x4 four = sums4(products[j]) * cache->scale;
            __builtin_memcpy(&scores[j][k], &four, sizeof four);
        }
    }
}

// Scores of the keys from `first` to `last` become weights, others 0; returns what the weights
// before count now.
INLINE float weigh(float scores[KEYS], long first, long last, float *top, float *total) {
    const float before = *top;
    const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    i32x16 seen[KEYS / LANES];
    f32x16 sums = {}, tops = splat(before);
    for (int i = 0; i < KEYS / LANES; i++) {
        seen[i] = (lane + i * LANES >= (int)first) & (lane + i * LANES <= (int)last);
        f32x16 score = load(scores + i * LANES);
        tops = __builtin_elementwise_max(tops, choose(seen[i], score, tops));
    }
    const float most = largest(tops);
    for (int i = 0; i < KEYS / LANES; i++) {
        f32x16 weight = choose(seen[i], exp16(load(scores + i * LANES) - most), (f32x16){});
        store(scores + i * LANES, weight);
        sums += weight;
    }
    const float kept = exp16(splat(before - most))[0];
    *total = *total * kept + sum(sums);
    *top = most;
    return kept;
}

#ifdef SCALED
INLINE void multiply(float values[KEYS], const float scales[KEYS]) {
    for (int k = 0; k < KEYS; k += LANES) store(values + k, load(values + k) * load(scales + k));
}
#endif

// Adds the values of the block's positions, weighted.
INLINE void mix(State *state, int count, const float kept[QUERIES], const Cache *cache,
                const Block *block, const Block *next, float weights[QUERIES][KEYS]) {
    enum { WIDE = 4 };
    for (size_t d = 0; d < cache->width; d += WIDE * LANES) {
        f32x16 sums[QUERIES][WIDE];
        for (int j = 0; j < count; j++)
            for (int i = 0; i < WIDE; i++)
                sums[j][i] = load(state->mixed[j] + d + i * LANES) * kept[j];
        for (size_t k = 0; k < block->keys; k++) {
            const Value *row = cache->value + block->row[k] + d;
            f32x16 value[WIDE];
            for (int i = 0; i < WIDE; i++) value[i] = load_value(row + i * LANES);
            for (int i = 0; i < WIDE; i++)
                __builtin_prefetch(cache->key + next->row[k] + d + i * LANES);
#pragma clang loop unroll(full)
            for (int j = 0; j < count; j++)
                for (int i = 0; i < WIDE; i++)
                    sums[j][i] = fma16(splat(weights[j][k]), value[i], sums[j][i]);
        }
        for (int j = 0; j < count; j++)
            for (int i = 0; i < WIDE; i++) store(state->mixed[j] + d + i * LANES, sums[j][i]);
    }
}

// The first `count` queries, of which the first is the oldest.
INLINE void attend(const float *query, const Queries *queries, int count, const Cache *cache,
                   size_t window, float *out) {
    State state;
    for (int j = 0; j < count; j++) {
        for (size_t d = 0; d < cache->width; d += LANES) store(state.mixed[j] + d, (f32x16){});
        state.top[j] = -0x1p126f;
        state.total[j] = 0.0f;
    }
    size_t oldest = queries->position[0] + 1, newest = queries->position[count - 1];
    oldest = oldest > window ? oldest - window : 0;
    Block blocks[2], *block = &blocks[0], *next = &blocks[1];
    find_block(next, oldest / KEYS * KEYS, newest, cache);
    for (size_t begin = oldest / KEYS * KEYS; begin <= newest; begin += KEYS) {
        float weights[QUERIES][KEYS], kept[QUERIES];
        for (int j = 0; j < count; j++)
            for (int k = 0; k < KEYS; k += LANES) store(weights[j] + k, (f32x16){});
        Block *free = block;
        block = next, next = free;
        find_block(next, begin + KEYS, newest, cache);
        score(query, queries, count, cache, block, weights);
        for (int j = 0; j < count; j++) {
            long last = (long)queries->position[j] - (long)begin, first = last - (long)window + 1;
            if (first < 0) first = 0;
#ifdef SCALED
            multiply(weights[j], block->key_scale);
#endif
            kept[j] = weigh(weights[j], first, last, &state.top[j], &state.total[j]);
#ifdef SCALED
            multiply(weights[j], block->value_scale);
#endif
        }
        mix(&state, count, kept, cache, block, next, weights);
    }
    for (int j = 0; j < count; j++)
        for (size_t d = 0; d < cache->width; d += LANES)
            store(out + queries->at[j] + d, load(state.mixed[j] + d) / state.total[j]);
}

// query f32 (tokens, heads, width), key and value (rows, groups, width), their scales f32
// (rows, groups), start i32 (1,), out f32 (tokens, heads, width). A workgroup computes QUERIES of
// `together` heads of one group, token after token.
int NAME(const float *query, size_t query_at, const Value *key, size_t key_at, const Value *value,
         size_t value_at,
#ifdef SCALED
         const float *key_scale, size_t key_scale_at, const float *value_scale,
         size_t value_scale_at,
#endif
         const int32_t *start, size_t start_at, float *out, size_t out_at, size_t workgroup,
         size_t tokens, size_t heads, size_t groups, size_t width, size_t rows, size_t window,
         size_t together, float scale) {
    size_t parts = heads / together, head = workgroup % parts * together;
    size_t begin = workgroup / parts * QUERIES, end = tokens * together;
    size_t group = head / (heads / groups);
    Cache cache = {
        key + key_at + group * width,
        value + value_at + group * width,
        rows,
        groups * width,
        width,
        scale,
#ifdef SCALED
        key_scale + key_scale_at + group,
        value_scale + value_scale_at + group,
        groups,
#endif
    };
    Queries queries;
    size_t count = end - begin < QUERIES ? end - begin : QUERIES;
    for (size_t j = 0; j < count; j++) {
        size_t token = (begin + j) / together;
        queries.at[j] = (token * heads + head + (begin + j) % together) * width;
        queries.position[j] = (size_t)start[start_at] + token;
    }
    query += query_at;
    out += out_at;
    if (count == 4) attend(query, &queries, 4, &cache, window, out);
    if (count == 3) attend(query, &queries, 3, &cache, window, out);
    if (count == 2) attend(query, &queries, 2, &cache, window, out);
    if (count == 1) attend(query, &queries, 1, &cache, window, out);
    return 0;
}

#endif
