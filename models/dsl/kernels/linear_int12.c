#define NAME hearth_linear_int12
#define BITS 12
#define HALVES 0
#define MINIMUM 0
#define ROUTED 0
#define ADAPTED 0
#include "linear_small.h"
