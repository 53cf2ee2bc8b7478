// gpu.h: what a .cu file includes. The one folder, gpu/, in which PTX is allowed; every wrapper
// there has a host branch of the same name and signature beside it, so that each kernel also runs
// on the twin.
#pragma once

#include "kernels/device/gpu/collect.h"
#include "kernels/device/gpu/line.h"
#include "kernels/device/gpu/matrix.h"
#include "kernels/device/gpu/memory.h"
#include "kernels/device/gpu/number.h"
#include "kernels/device/gpu/thread.h"
#include "kernels/device/gpu/vector.h"
