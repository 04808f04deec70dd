#define NAME hearth_embedding_int12
#define BITS 12
#define HALVES 0
#define MINIMUM 0
#include "embedding_small.h"
