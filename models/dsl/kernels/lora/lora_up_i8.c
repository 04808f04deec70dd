// Rows of f32 plus the terms of their adapters times the factors B, int8: op `lora_up`.
#include "lora/adapter_terms.h"

// Adapters, and out f32 (rows, outputs), which is added to. A workgroup computes `blocks_each`
// blocks of `rows_each` rows.
int hearth_lora_up_i8(ADAPTER_ARRAYS, float *out, size_t out_at, size_t workgroup, size_t rows_each,
                      size_t blocks_each, size_t rows, size_t outputs, ADAPTER_SIZES) {
    const size_t sources[SOURCES] = {rows0, rows1, rows2, rows3};
    Adapters adapters = ADAPTERS(sources);
    size_t parts = (adapters.blocks + blocks_each - 1) / blocks_each;
    size_t begin = workgroup % parts * blocks_each, row = workgroup / parts * rows_each;
    add_adapters(&adapters, row, least(row + rows_each, rows), begin,
                 least(begin + blocks_each, adapters.blocks), out + out_at, outputs);
    return 0;
}
