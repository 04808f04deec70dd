// The factors of the results of a token's experts: op `expert_factors`. A variant defines NAME and
// SCALED.
#include "gates.h"

// The most experts of a token.
enum { MAX_CHOSEN = 64 };

// The largest of `count` floats.
INLINE float largest_of(const float *from, size_t count) {
    float top = from[0];
    for (size_t i = 1; i < count; i++) top = from[i] > top ? from[i] : top;
    return top;
}

// The sum of exp(x - top) over `count` floats x.
INLINE float sum_of_powers(const float *x, size_t count, float top) {
    f32x16 sums = {};
    size_t at = 0;
    for (; at + LANES <= count; at += LANES) sums += exp16(load(x + at) - top);
    float rest[LANES] = {};
    for (size_t i = at; i < count; i++) rest[i - at] = x[i];
    f32x16 powers = exp16(load(rest) - top);
    for (size_t i = 0; i + at < count; i++) sums[i] += powers[i];
    return sum(sums);
}

// The scores of experts, of the logits of those that are chosen.
//
// scores  0: the softmax of all logits, 1: their sigmoid, 2: the softmax of the chosen ones
INLINE void score(float chosen[MAX_CHOSEN], size_t count, const float *logits, size_t experts,
                  size_t scores) {
    float top = 0.0f, whole = 1.0f;
    if (scores == 0) top = largest_of(logits, experts);
    if (scores == 0) whole = sum_of_powers(logits, experts, top);
    if (scores == 2) top = largest_of(chosen, count);
    if (scores == 2) whole = sum_of_powers(chosen, count, top);
    for (size_t at = 0; at < count; at += LANES) {
        f32x16 x = load(chosen + at);
        store(chosen + at, scores == 1 ? sigmoid16(x) : exp16(x - top) / whole);
    }
}

// logits f32 (rows, experts) and chosen i32 (rows, count), scale f32 (experts,) (if SCALED), out
// f32 (rows, count). A workgroup has `share` rows. If `normalized`, factors are divided by their
// sum plus `sum_offset`, or by `min_sum` if that is more; then they are multiplied by `factor`, and
// by the scale of the expert.
int NAME(const float *logits, size_t logits_at, const int32_t *chosen, size_t chosen_at,
#if SCALED
         const float *scale, size_t scale_at,
#endif
         float *out, size_t out_at, size_t workgroup, size_t share, size_t rows, size_t experts,
         size_t count, size_t scores, size_t normalized, float sum_offset, float min_sum,
         float factor) {
    size_t end = least(workgroup * share + share, rows);
    for (size_t row = workgroup * share; row < end; row++) {
        const float *own = logits + logits_at + row * experts;
        float factors[MAX_CHOSEN] = {}, *to = out + out_at + row * count, total = 0.0f;
        size_t places[MAX_CHOSEN];
        for (size_t i = 0; i < count; i++) {
            int32_t expert = chosen[chosen_at + row * count + i];
            places[i] = least(expert < 0 ? 0 : (size_t)expert, experts - 1);
            factors[i] = own[places[i]];
        }
        score(factors, count, own, experts, scores);
        for (size_t i = 0; i < count; i++) total += factors[i];
        total += sum_offset;
        if (total < min_sum) total = min_sum;
        for (size_t i = 0; i < count; i++) {
            to[i] = (normalized ? factors[i] / total : factors[i]) * factor;
#if SCALED
            to[i] *= scale[scale_at + places[i]];
#endif
        }
    }
    return 0;
}
