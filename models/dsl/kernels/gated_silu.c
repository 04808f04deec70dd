// silu(gate) * up: op `gated_silu`.
#define NAME hearth_gated_silu
#define ACTIVATION(x) ((x) * sigmoid16(x))
#include "gated.h"
