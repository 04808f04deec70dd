#include "vector.h"

#define NAME hearth_lora_down_i8
typedef int8_t Value;
#define load_value widen_small
#include "lora_down.h"
