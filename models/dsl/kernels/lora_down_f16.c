#include "vector.h"

#define NAME hearth_lora_down_f16
typedef _Float16 Value;
#define load_value widen
#include "lora_down.h"
