// Blocks of a cache, queries that share its keys, and their running softmax (Milakov and
// Gimelshein, 2018).
#ifndef HEARTH_ATTENTION_SOFTMAX_H
#define HEARTH_ATTENTION_SOFTMAX_H

#include "isa/vector.h"

enum { QUERIES = 4, KEYS = 64, MAX_WIDTH = 512 };

// How a variant stores keys and values. It defines Value and load_value, which loads LANES columns,
// and SCALED if each head of a row has a scale. Or it defines PACKED: keys have 6
// bits and values 4, and each SCALE_GROUP columns have a scale (cache/packed_rows.h).
#ifdef PACKED
#include "cache/packed_rows.h"
enum { key_BITS = 6, value_BITS = 4, STEP = SCALE_GROUP };
typedef _Float16 Scale;
#else
enum { STEP = LANES };
typedef float Scale;
#endif
#if defined(SCALED) || defined(PACKED)
#define HAS_SCALES
#endif

typedef struct {
    const Value *key, *value;
    size_t rows, key_stride, value_stride, width;  // Values of a row; columns of a head
    float scale;                                   // of scores
#ifdef HAS_SCALES
    const Scale *key_scale, *value_scale;  // of this head in the first row
    size_t scales;                         // of a row
#endif
} Cache;

// Where a head's column `d` is in a row of keys or of values, in Values, and the LANES columns of a
// row from there on.
#ifdef PACKED
#define AT(array, d) packed_bytes(d, array##_BITS)
#define COLUMNS(cache, array, row, d)                        \
    unpack((cache)->array + (row) * (cache)->array##_stride, \
           (cache)->array##_scale + (row) * (cache)->scales, d, array##_BITS)
#else
#define AT(array, d) (d)
#define COLUMNS(cache, array, row, d) \
    load_value((cache)->array + (row) * (cache)->array##_stride + (d))
#endif

// Arguments of all kernels of attention: query f32 (tokens, heads, width), key and value
// (rows, groups, width), their scales f32 (rows, groups), start i32 (1,) or (2,), sinks f32
// (heads,). If PACKED, key i8 (rows, groups, width * 6 / 8), value i8 (rows, groups, width / 2),
// and their scales f16 (rows, groups, width / 32).
#ifdef SINKS
#define SINK_INPUTS , const float *sinks, size_t sinks_at
#define SINKS_OF_HEADS (sinks + sinks_at)
#else
#define SINK_INPUTS
#define SINKS_OF_HEADS 0
#endif
#ifdef HAS_SCALES
#define INPUTS                                                                                  \
    const float *query, size_t query_at, const Value *key, size_t key_at, const Value *value,   \
        size_t value_at, const Scale *key_scale, size_t key_scale_at, const Scale *value_scale, \
        size_t value_scale_at, const int32_t *start, size_t start_at SINK_INPUTS
#ifdef PACKED
#define HEAD_SCALES (width / SCALE_GROUP)
#else
#define HEAD_SCALES 1
#endif
#define SCALES(group)                                   \
    , key_scale + key_scale_at + (group) * HEAD_SCALES, \
        value_scale + value_scale_at + (group) * HEAD_SCALES, groups *HEAD_SCALES
#else
#define INPUTS                                                                                \
    const float *query, size_t query_at, const Value *key, size_t key_at, const Value *value, \
        size_t value_at, const int32_t *start, size_t start_at SINK_INPUTS
#define SCALES(group)
#endif
#define SIZES size_t tokens, size_t heads, size_t groups, size_t width, size_t rows, size_t window

// The part of a cache that a group of heads reads.
#define CACHE(group)                                \
    {key + key_at + AT(key, (group) * width),       \
     value + value_at + AT(value, (group) * width), \
     rows,                                          \
     AT(key, groups * width),                       \
     AT(value, groups * width),                     \
     width,                                         \
     scale SCALES(group)}

// Heads of tokens that share their keys: where each lies, in floats, its position, and the last
// position that it sees. The first one is the oldest.
typedef struct {
    size_t at[QUERIES], position[QUERIES], last[QUERIES];
} Queries;

// The positions of a block: the row of each. As many as a token sees, or more.
typedef struct {
    size_t row[KEYS], keys;
#ifdef SCALED
    float key_scale[KEYS], value_scale[KEYS];
#endif
} Block;

// The keys of a block that each query sees: from `first` to `last`, which may be outside it.
typedef struct {
    int first[QUERIES], last[QUERIES];
    int all;     // if each query sees all keys
    int groups;  // of 16 keys, up to the last one that is seen
} Seen;

// Of each query: the highest score so far, the sum of exp(score - top), and by what to multiply
// what was added up below the top before.
typedef struct {
    float top[QUERIES], total[QUERIES], kept[QUERIES];
} Softmax;

INLINE void find_block(Block *block, size_t begin, size_t newest, const Cache *cache) {
    block->keys = least(newest - begin + 1, KEYS);
    size_t row = begin % cache->rows;
    for (int k = 0; k < KEYS; k++) {
        block->row[k] = row;
#ifdef SCALED
        block->key_scale[k] = cache->key_scale[row * cache->scales];
        block->value_scale[k] = cache->value_scale[row * cache->scales];
#endif
        row = row + 1 == cache->rows ? 0 : row + 1;
    }
}

// The oldest position that a query of a set sees.
INLINE size_t oldest_seen(const Queries *queries, size_t window) {
    size_t end = queries->position[0] + 1;
    return end > window ? end - window : 0;
}

INLINE Seen seen_in_block(const Queries *queries, int count, size_t begin, size_t window) {
    Seen seen;
    for (int j = 0; j < count; j++) {
        long first = (long)queries->position[j] - (long)begin - (long)window + 1;
        seen.first[j] = (int)(first < 0 ? 0 : first);
        seen.last[j] = (int)((long)queries->last[j] - (long)begin);
    }
    seen.all = seen.first[count - 1] == 0 && seen.last[0] >= KEYS - 1;
    seen.groups = (int)least((size_t)seen.last[count - 1] / LANES + 1, KEYS / LANES);
    return seen;
}

// The softmax before any key: of no scores, or of the sinks of each query's head, which have no
// value.
INLINE Softmax no_scores(const Queries *queries, int count, const float *sinks, size_t heads,
                         size_t width) {
    Softmax softmax = {};
    for (int j = 0; j < QUERIES; j++) softmax.top[j] = -0x1p126f;
    for (int j = 0; sinks && j < count; j++) {
        float sink = sinks[queries->at[j] / width % heads];
        softmax.top[j] = sink > softmax.top[j] ? sink : softmax.top[j];
        softmax.total[j] = 1.0f;
    }
    return softmax;
}

// All ones in the lanes of the keys from 16 i on that query j sees.
INLINE i32x16 seen_lanes(const Seen *seen, int j, int i) {
    const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return (lane + i * LANES >= seen->first[j]) & (lane + i * LANES <= seen->last[j]);
}

// With `all`, a constant, each query sees all keys.
INLINE void raise_tops_of(Softmax *softmax, int count, float scores[QUERIES][KEYS],
                          const Seen *seen, int all) {
    const int groups = all ? KEYS / LANES : seen->groups;
    f32x16 tops[QUERIES] = {};
    for (int j = 0; j < count; j++) {
        tops[j] = splat(softmax->top[j]);
        for (int i = 0; i < groups; i++) {
            f32x16 score = load(scores[j] + i * LANES);
            if (!all) score = choose(seen_lanes(seen, j, i), score, tops[j]);
            tops[j] = choose(score > tops[j], score, tops[j]);
        }
    }
    f32x4 before, top = largest4(tops);
    __builtin_memcpy(&before, softmax->top, sizeof before);
    __builtin_memcpy(softmax->top, &top, sizeof top);
    before -= top;
    f32x16 kept = exp16(
        __builtin_shufflevector(before, before, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
    __builtin_memcpy(softmax->kept, &kept, sizeof softmax->kept);
}

INLINE void weigh_all(Softmax *softmax, int count, float scores[QUERIES][KEYS], const Seen *seen,
                      int all) {
    const int groups = all ? KEYS / LANES : seen->groups;
    f32x16 sums[QUERIES] = {};
    for (int j = 0; j < count; j++)
        for (int i = 0; i < groups; i++) {
            f32x16 weight = exp16(load(scores[j] + i * LANES) - softmax->top[j]);
            if (!all) weight = choose(seen_lanes(seen, j, i), weight, (f32x16){});
            store(scores[j] + i * LANES, weight);
            sums[j] += weight;
        }
    f32x4 total, kept;
    __builtin_memcpy(&total, softmax->total, sizeof total);
    __builtin_memcpy(&kept, softmax->kept, sizeof kept);
    total = total * kept + sums4(sums);
    __builtin_memcpy(softmax->total, &total, sizeof total);
}

// Takes account of the scores of a block in `top` and `kept`.
INLINE void raise_tops(Softmax *softmax, int count, float scores[QUERIES][KEYS], const Seen *seen) {
    if (seen->all)
        raise_tops_of(softmax, count, scores, seen, 1);
    else
        raise_tops_of(softmax, count, scores, seen, 0);
}

// Scores become weights, 0 of keys that are not seen, and are added to `total`.
INLINE void weigh(Softmax *softmax, int count, float scores[QUERIES][KEYS], const Seen *seen) {
    if (seen->all)
        weigh_all(softmax, count, scores, seen, 1);
    else
        weigh_all(softmax, count, scores, seen, 0);
}

#ifdef SCALED
INLINE void multiply(float values[KEYS], const float scales[KEYS]) {
    for (int k = 0; k < KEYS; k += LANES) store(values + k, load(values + k) * load(scales + k));
}
#endif

#endif
