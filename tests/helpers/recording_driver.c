/* Stands in for NVIDIA's driver: keeps what it is asked to launch, and answers as it is told. */

#include <string.h>
#include <unistd.h>

#include "cuda.h"

#define MOST 64

typedef struct {
  unsigned launches, grid[3], block[3], shared, num_attributes;
  unsigned attributes[4][4]; /* which one, and the first three numbers of its value */
  unsigned torn;             /* launches whose parameters changed meanwhile */
  unsigned contexts_set;
  unsigned long long stream, function, large_clusters;
  unsigned char parameters[MOST][8];
  unsigned long long history[1024]; /* the first parameter of each launch */
} Record;

typedef struct {
  unsigned launch_status, context_status, delay_us, num_parameters;
  unsigned long long unreachable, mapped, mapped_to; /* addresses */
  unsigned char sizes[MOST];                          /* bytes that a kernel reads of each */
} Orders;

Record record;
Orders orders;
static __thread CUcontext current;
static char first_context;

CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = current;
  return orders.context_status;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  record.contexts_set++;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = 70 + ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  if (device != 70)
    return CUDA_ERROR_INVALID_DEVICE;
  *context = (CUcontext)&first_context;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult status, const char **name) {
  *name = status == CUDA_ERROR_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : status == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                                 : NULL;
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult status, const char **text) {
  *text = status == CUDA_ERROR_OUT_OF_MEMORY     ? "out of memory"
          : status == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
                                                 : NULL;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
  if (!current)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (attribute != CU_POINTER_ATTRIBUTE_DEVICE_POINTER || address == orders.unreachable)
    return CUDA_ERROR_INVALID_VALUE;
  *(CUdeviceptr *)data = address == orders.mapped ? orders.mapped_to : address;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED || value != 1)
    return CUDA_ERROR_INVALID_VALUE;
  record.large_clusters = (unsigned long long)function;
  return CUDA_SUCCESS;
}

static void read_parameters(void **parameters, unsigned char out[MOST][8]) {
  memset(out, 0, MOST * 8);
  for (unsigned i = 0; i < orders.num_parameters; i++)
    memcpy(out[i], parameters[i], orders.sizes[i]);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra) {
  unsigned char before[MOST][8], after[MOST][8];
  if (!current)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (extra || config->numAttrs > 4)
    return CUDA_ERROR_INVALID_VALUE;
  read_parameters(parameters, before);
  if (orders.delay_us)
    usleep(orders.delay_us);
  read_parameters(parameters, after);
  if (memcmp(before, after, sizeof before))
    __sync_fetch_and_add(&record.torn, 1);
  unsigned number = __sync_fetch_and_add(&record.launches, 1);
  memcpy(&record.history[number % 1024], before[0], 8);
  memcpy(record.parameters, before, sizeof before);
  unsigned grid[] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  unsigned block[] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  memcpy(record.grid, grid, sizeof grid);
  memcpy(record.block, block, sizeof block);
  record.shared = config->sharedMemBytes;
  record.stream = (unsigned long long)config->hStream;
  record.function = (unsigned long long)function;
  record.num_attributes = config->numAttrs;
  for (unsigned i = 0; i < config->numAttrs; i++) {
    record.attributes[i][0] = config->attrs[i].id;
    memcpy(&record.attributes[i][1], &config->attrs[i].value, 12);
  }
  return orders.launch_status;
}
