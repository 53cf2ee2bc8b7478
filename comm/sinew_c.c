/* Compiled as C, so that the header stays one that C programs can include. */
#include "comm/sinew.h"

_Static_assert(SINEW_OK == 0 && sizeof(sinew_comm_options) == 3 * sizeof(void*), "as documented");
