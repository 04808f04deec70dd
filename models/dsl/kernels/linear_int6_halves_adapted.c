#define NAME hearth_linear_int6_halves_adapted
#define BITS 6
#define HALVES 1
#define MINIMUM 0
#define ROUTED 0
#define ADAPTED 1
#include "linear_small.h"
