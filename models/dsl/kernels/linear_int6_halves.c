#define NAME hearth_linear_int6_halves
#define BITS 6
#define HALVES 1
#define MINIMUM 0
#define ROUTED 0
#define ADAPTED 0
#include "linear_small.h"
