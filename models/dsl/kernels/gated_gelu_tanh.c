// gelu_tanh(gate) * up: op `gated_gelu_tanh`. (1 + tanh(u)) / 2 is the sigmoid of 2u.
#define NAME hearth_gated_gelu_tanh
#define ACTIVATION(x) ((x) * sigmoid16(((x) + (x) * (x) * (x) * 0.044715f) * 1.59576912f))
#include "gated.h"
