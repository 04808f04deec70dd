#define NAME hearth_embedding_int6_halves
#define BITS 6
#define HALVES 1
#define MINIMUM 0
#include "embedding_small.h"
