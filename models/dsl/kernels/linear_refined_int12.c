#define NAME hearth_linear_refined_int12
#define BITS 12
#include "linear_refined.h"
