#include "vector.h"

#define NAME hearth_attention_many_i8
typedef int8_t Value;
#define load_value widen_i8
#define SCALED
#include "attention_many.h"
