#define NAME hearth_linear_int4_minimum
#define BITS 4
#define HALVES 0
#define MINIMUM 1
#define ROUTED 0
#define ADAPTED 0
#include "linear_small.h"
