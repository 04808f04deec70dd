#define NAME hearth_linear_int12_adapted
#define BITS 12
#define HALVES 0
#define MINIMUM 0
#define ROUTED 0
#define ADAPTED 1
#include "linear_small.h"
