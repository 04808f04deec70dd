// Attention of few tokens, in two kernels: attention_scores.c is spread over the keys, and
// attention_mix.c over the groups of heads and their widths. So as many threads work as there are,
// whatever the number of groups.
//
// Only keys that a token sees are read, with a running softmax over blocks of KEYS positions that
// begin at multiples of KEYS. Keys that are not seen count as zero: a token's result does not
// depend on the number of tokens in the call, nor on the number of workgroups. Rows of a head are
// not consecutive, and the CPU's own prefetching does not follow them: they are fetched before they
// are read.
#ifndef HEARTH_ATTENTION_FEW_H
#define HEARTH_ATTENTION_FEW_H

#include "attention/attention_softmax.h"

// Columns that are fetched at a time, of a line of the CPU's caches or less.
enum { LINE_COLUMNS = 64 / sizeof(Value) };

// New tokens; the first one is at position `start`.
typedef struct {
    size_t tokens, heads, groups, width, window, start;
} Call;

// The queries of a group: its heads, token after token.
INLINE size_t queries_of_group(const Call *call) {
    return call->tokens * (call->heads / call->groups);
}

INLINE Queries find_queries(const Call *call, size_t group, size_t first, size_t count) {
    size_t shared = call->heads / call->groups;
    Queries queries;
    for (size_t j = 0; j < count; j++) {
        size_t token = (first + j) / shared, head = group * shared + (first + j) % shared;
        queries.at[j] = (token * call->heads + head) * call->width;
        queries.position[j] = queries.last[j] = call->start + token;
    }
    return queries;
}

// The position of the first score of each query: the block of the oldest one that is seen.
INLINE size_t first_score(const Call *call) {
    Queries queries = find_queries(call, 0, 0, 1);
    return oldest_seen(&queries, call->window) / KEYS * KEYS;
}

INLINE size_t next_row(size_t row, size_t rows) { return row + 1 == rows ? 0 : row + 1; }

#endif
