#define NAME hearth_linear_refined
#define BITS 8
#include "linear_refined.h"
