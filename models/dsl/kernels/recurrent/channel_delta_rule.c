// The delta rule with a decay for each column of a key, token by token: op `channel_delta_rule`.
//
//     state = exp(log_decay) state
//     state = state + key value^T + removed (state^T probe)^T;  output = state^T query
//
// A column of a state depends on no other column, so a strip of them learns all tokens while it is
// in the first cache. Every token is computed in the same way, so the bits do not depend on how a
// text is split.
#include "recurrent/rows.h"

enum { STRIP = 4 };       // vectors of a row of the state that are computed together
enum { MAX_KEYS = 256 };  // as `_MAX_KEYS` of the op

// What a token has for each column of a key.
struct of_keys {
    const float *query, *key, *log_decay, *probe, *removed;
};

// A token: `from` and `to` are a strip of the state before and after it; no `from` is zeros. One
// that does not count changes no state.
INLINE void learn(const float *from, float *to, struct of_keys in, const float *value, float *out,
                  size_t keys, size_t width, int vectors, int counts, int is_alone) {
    float decay[MAX_KEYS];
    f32x16 found[STRIP] = {}, mixed[STRIP] = {};
    for (size_t i = 0; i < keys; i += LANES) {
        f32x16 logs = {};
        for (size_t lane = 0; counts && lane < least(LANES, keys - i); lane++)
            logs[lane] = in.log_decay[i + lane];
        store(decay + i, exp16(logs));
    }
    for (size_t i = 0; from && i < keys; i++) UNROLL for (int v = 0; v < vectors; v++) {
            f32x16 state = load(from + i * width + v * LANES) * splat(decay[i]);
            found[v] = fma16(state, splat(in.probe[i]), found[v]);
        }
    for (size_t i = 0; i < keys; i++) {
        f32x16 key = splat(counts ? in.key[i] : 0), removed = splat(counts ? in.removed[i] : 0);
        UNROLL for (int v = 0; v < vectors; v++) {
            size_t at = i * width + v * LANES;
            f32x16 state = from ? load(from + at) * splat(decay[i]) : (f32x16){};
            state = fma16(removed, found[v], fma16(key, load(value + v * LANES), state));
            store_state(to + at, state, is_alone);
            mixed[v] = fma16(state, splat(in.query[i]), mixed[v]);
        }
    }
    UNROLL for (int v = 0; v < vectors; v++) store(out + v * LANES, mixed[v]);
}

// positions i32 (2,): of the first token and of the last one that counts; query, key, log_decay,
// probe and removed f32 (tokens, heads, keys), value f32 (tokens, heads, width), out f32 (ring,
// heads, keys, width): the state after position p is row p mod ring; behind these rows, outputs
// (tokens, heads, width). A workgroup computes a head.
int hearth_channel_delta_rule(const int32_t *positions, size_t positions_at, const float *query,
                              size_t query_at, const float *key, size_t key_at, const float *value,
                              size_t value_at, const float *log_decay, size_t log_decay_at,
                              const float *probe, size_t probe_at, const float *removed,
                              size_t removed_at, float *out, size_t out_at, size_t head,
                              size_t tokens, size_t heads, size_t keys, size_t width, size_t ring,
                              size_t every) {
    size_t size = keys * width, row = heads * size;
    size_t first = (size_t)positions[positions_at], last = (size_t)positions[positions_at + 1];
    size_t counted = every ? tokens : last - first + 1;
    float *states = out + out_at + head * size, *outputs = out + out_at + ring * row + head * width;
    int is_alone = tokens == 1 && is_aligned(states);
    for (size_t at = 0; at < width; at += STRIP * LANES) {
        int vectors = (int)least(STRIP, (width - at) / LANES);
        const float *from = first ? states + (first + ring - 1) % ring * row + at : 0;
        for (size_t t = 0; t < tokens; t++) {
            size_t of_token = (t * heads + head) * keys;
            struct of_keys in = {
                .query = query + query_at + of_token,
                .key = key + key_at + of_token,
                .log_decay = log_decay + log_decay_at + of_token,
                .probe = probe + probe_at + of_token,
                .removed = removed + removed_at + of_token,
            };
            const float *v = value + value_at + (t * heads + head) * width + at;
            float *to = states + (every ? first + t : last) % ring * row + at;
            float *o = outputs + t * heads * width + at;
            int counts = t < counted;
            if (vectors == STRIP && is_alone)
                learn(from, to, in, v, o, keys, width, STRIP, counts, 1);
            else if (vectors == STRIP)
                learn(from, to, in, v, o, keys, width, STRIP, counts, 0);
            else
                learn(from, to, in, v, o, keys, width, vectors, counts, 0);
            from = to;
        }
    }
    return 0;
}
