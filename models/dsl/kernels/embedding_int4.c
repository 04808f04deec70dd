#define NAME hearth_embedding_int4
#define BITS 4
#define HALVES 0
#define MINIMUM 0
#include "embedding_small.h"
