// Scores of few tokens: scale times each query times each key that it sees.
#include "attention/attention_few.h"

// Keys whose scores are computed together, and queries that read them together: their sums stay in
// registers.
#ifdef __AVX512F__
enum { TOGETHER = 4, SHARING = 4 };
#else
enum { TOGETHER = 4, SHARING = 1 };
#endif
// A workgroup of fewer keys takes longer to start than to compute.
enum { MIN_KEYS = 32 };

// Rows of LANES keys.
typedef struct {
    size_t at[LANES];
} Rows;

INLINE Rows find_rows(size_t position, size_t rows) {
    Rows found;
    size_t row = position % rows;
    for (int i = 0; i < LANES; i++, row = next_row(row, rows)) found.at[i] = row;
    return found;
}

// The scores of the first `count` queries and LANES keys; `stride` floats are between queries.
// Fetches as many keys from `soon`.
INLINE void score(const float *query, const Queries *queries, int count, const Cache *cache,
                  const Rows *rows, const Rows *soon, float *scores, size_t stride) {
    for (int k = 0; k < LANES; k += TOGETHER)
#pragma clang loop unroll(full)
        for (int first = 0; first < count; first += SHARING) {
            f32x16 products[SHARING][TOGETHER];
            for (int j = 0; j < SHARING; j++)
                for (int i = 0; i < TOGETHER; i++) products[j][i] = (f32x16){};
            for (size_t step = 0; step < cache->width; step += STEP)
                UNROLL for (int part = 0; part < STEP / LANES; part++) {
                    size_t d = step + (size_t)part * LANES;
                    f32x16 key[TOGETHER];
                    for (int i = 0; i < TOGETHER; i++)
                        key[i] = COLUMNS(cache, key, rows->at[k + i], d);
                    for (int i = 0; i < TOGETHER && first == 0 && d % LINE_COLUMNS == 0; i++)
                        __builtin_prefetch(
                            cache->key + soon->at[k + i] * cache->key_stride + AT(key, d), 0,
                            NEAREST);
#pragma clang loop unroll(full)
                    for (int j = 0; j < SHARING && first + j < count; j++) {
                        f32x16 own = load(query + queries->at[first + j] + d);
                        for (int i = 0; i < TOGETHER; i++)
                            products[j][i] = fma16(own, key[i], products[j][i]);
                    }
                }
#pragma clang loop unroll(full)
            for (int j = 0; j < SHARING && first + j < count; j++) {
                f32x4 four = sums4(products[j]) * cache->scale;
#ifdef SCALED
                for (int i = 0; i < TOGETHER; i++)
                    four[i] *= cache->key_scale[rows->at[k + i] * cache->scales];
#endif
                __builtin_memcpy(scores + (first + j) * stride + k, &four, sizeof four);
            }
        }
}

// The scores of all queries of a group and LANES keys.
INLINE void score_group(const float *query, const Call *call, size_t group, const Cache *cache,
                        const Rows *rows, const Rows *soon, float *scores, size_t stride) {
    size_t all = queries_of_group(call);
    for (size_t first = 0; first < all; first += QUERIES, soon = rows) {
        size_t count = least(all - first, QUERIES);
        Queries queries = find_queries(call, group, first, count);
        float *to = scores + (group * all + first) * stride;
        if (count == 4) score(query, &queries, 4, cache, rows, soon, to, stride);
        if (count == 3) score(query, &queries, 3, cache, rows, soon, to, stride);
        if (count == 2) score(query, &queries, 2, cache, rows, soon, to, stride);
        if (count == 1) score(query, &queries, 1, cache, rows, soon, to, stride);
    }
}

// scores f32 (groups, queries of a group, keys); only scores of keys that are seen are written.
// Each of at most `workgroups` computes the scores of some keys, LANES at a time.
int NAME(INPUTS, float *scores, size_t scores_at, size_t workgroup, SIZES, size_t keys,
         size_t workgroups, float scale) {
    (void)SINKS_OF_HEADS;
    const Call call = {tokens, heads, groups, width, window, (size_t)start[start_at]};
    size_t begin = first_score(&call), newest = call.start + tokens - 1;
    size_t steps = (newest - begin) / LANES + 1, most = steps / (MIN_KEYS / LANES);
    size_t shares = least(most + !most, workgroups);
    if (workgroup >= shares) return 0;
    size_t step = steps * workgroup / shares, end = steps * (workgroup + 1) / shares;
    Rows next = find_rows(begin + step * LANES, rows);
    for (int i = 0; i < LANES; i++)
        for (size_t d = 0; d < groups * width; d += LINE_COLUMNS)
            __builtin_prefetch(key + key_at + AT(key, next.at[i] * groups * width + d), 0, NEAREST);
    for (; step < end; step++) {
        Rows now = next;
        if (step + 1 < end) next = find_rows(begin + (step + 1) * LANES, rows);
        for (size_t group = 0; group < groups; group++) {
            const Cache cache = CACHE(group);
            float *to = scores + scores_at + step * LANES;
            score_group(query + query_at, &call, group, &cache, &now, &next, to, keys);
        }
    }
    return 0;
}
