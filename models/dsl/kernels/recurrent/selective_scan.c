// The recurrence of Mamba (Gu and Dao, 2023), token by token: op `selective_scan`.
//
//     dt = softplus(steps + bias)
//     state = exp(dt rates) state + key dt x;  output = silu(gate) (state^T query + skip x)
//
// A channel depends on no other one, so a strip of them reads all tokens while their states are in
// the first cache. Every token is computed in the same way, so the bits do not depend on how a text
// is split.
#include "gates.h"
#include "recurrent/rows.h"

// Vectors of channels that are computed together: exponentials of several overlap.
enum { STRIP = 2 };

// The inputs of a token: of its channels, and the queries and keys that all channels read.
struct inputs {
    const float *query, *key, *x, *steps, *gate;
};

// A token: `from` and `to` are the states (keys, width) of a strip before and after it; no `from`
// is zeros. One that does not count changes no state.
INLINE void update(const float *from, float *to, struct inputs in, const float *bias,
                   const float *rates, const float *skip, float *out, size_t keys, size_t width,
                   int vectors, int counts, int is_alone) {
    f32x16 mixed[STRIP] = {}, value[STRIP], dt[STRIP];
    UNROLL for (int v = 0; v < vectors; v++) {
        dt[v] = counts ? softplus(load(in.steps + v * LANES) + load(bias + v * LANES)) : (f32x16){};
        value[v] = load(in.x + v * LANES) * dt[v];
    }
    for (size_t i = 0; i < keys; i++) {
        f32x16 key = splat(in.key[i]), query = splat(in.query[i]);
        UNROLL for (int v = 0; v < vectors; v++) {
            size_t at = i * width + v * LANES;
            f32x16 state = from ? load(from + at) : (f32x16){};
            state = fma16(key, value[v], state * exp16(dt[v] * load(rates + at)));
            mixed[v] = fma16(state, query, mixed[v]);
            store_state(to + at, state, is_alone);
        }
    }
    UNROLL for (int v = 0; v < vectors; v++) {
        f32x16 x = load(in.x + v * LANES), gate = load(in.gate + v * LANES);
        store(out + v * LANES, silu(gate) * fma16(load(skip + v * LANES), x, mixed[v]));
    }
}

// positions i32 (2,): of the first token and of the last one that counts; query and key f32
// (tokens, keys), x, steps and gate f32 (tokens, channels), which begin at `..._start` and have
// rows of `..._step` values; bias and skip f32 (channels,), rates f32 (keys, channels), out f32
// (ring, keys, channels): the state after position p is row p mod ring; behind these rows, outputs
// (tokens, channels). A workgroup computes `share` channels.
int hearth_selective_scan(const int32_t *positions, size_t positions_at, const float *query,
                          size_t query_at, const float *key, size_t key_at, const float *x,
                          size_t x_at, const float *steps, size_t steps_at, const float *gate,
                          size_t gate_at, const float *bias, size_t bias_at, const float *rates,
                          size_t rates_at, const float *skip, size_t skip_at, float *out,
                          size_t out_at, size_t workgroup, size_t tokens, size_t channels,
                          size_t keys, size_t ring, size_t every, size_t share, size_t query_start,
                          size_t query_step, size_t key_start, size_t key_step, size_t x_start,
                          size_t x_step, size_t steps_start, size_t steps_step, size_t gate_start,
                          size_t gate_step) {
    size_t row = keys * channels, end = least((workgroup + 1) * share, channels);
    size_t first = (size_t)positions[positions_at], last = (size_t)positions[positions_at + 1];
    size_t counted = every ? tokens : last - first + 1;
    float *states = out + out_at, *outputs = states + ring * row;
    int is_alone = tokens == 1 && is_aligned(states) && channels % LANES == 0;
    for (size_t at = workgroup * share, vectors; at < end; at += vectors * LANES) {
        vectors = end - at < STRIP * LANES ? 1 : STRIP;
        const float *from = first ? states + (first + ring - 1) % ring * row + at : 0;
        for (size_t t = 0; t < tokens; t++) {
            struct inputs in = {
                .query = query + query_at + query_start + t * query_step,
                .key = key + key_at + key_start + t * key_step,
                .x = x + x_at + x_start + t * x_step + at,
                .steps = steps + steps_at + steps_start + t * steps_step + at,
                .gate = gate + gate_at + gate_start + t * gate_step + at,
            };
            float *to = states + (every ? first + t : last) % ring * row + at;
            const float *biases = bias + bias_at + at, *skips = skip + skip_at + at;
            const float *of_keys = rates + rates_at + at;
            float *output = outputs + t * channels + at;
            int counts = t < counted;
            if (vectors == STRIP && is_alone)
                update(from, to, in, biases, of_keys, skips, output, keys, channels, STRIP, counts,
                       1);
            else if (vectors == STRIP)
                update(from, to, in, biases, of_keys, skips, output, keys, channels, STRIP, counts,
                       0);
            else
                update(from, to, in, biases, of_keys, skips, output, keys, channels, 1, counts, 0);
            from = to;
        }
    }
    return 0;
}
