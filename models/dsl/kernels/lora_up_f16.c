#include "vector.h"

#define NAME hearth_lora_up_f16
typedef _Float16 Value;
#define load_value widen
#include "lora_up.h"
