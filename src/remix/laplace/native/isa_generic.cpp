
#define REMIX_VECTOR_BYTES 16
#define REMIX_ISA generic
#include "kernels.h"

