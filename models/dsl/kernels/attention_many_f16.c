#include "vector.h"

#define NAME hearth_attention_many_f16
typedef _Float16 Value;
#define load_value widen
#include "attention_many.h"
