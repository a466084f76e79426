// SPDX-License-Identifier: Apache-2.0
#include "cuda/settings.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cuda/failure.h"
#include "cuda/stage.h"

namespace fljsd::cuda {
namespace {

constexpr Index largest_size = Index{1} << 30;
// CUDA sets and copies rows at a pitch below 2^31 bytes; a row of fp32 may be all of it.
constexpr Index largest_row = (Index{1} << 29) - 1;
// Elements of a matrix. A workspace holds a few such arrays of 4 bytes an element, and its size and the
// kernels' offsets are 63-bit numbers; no device comes near it.
constexpr Index largest_matrix = Index{1} << 56;

void check_size(const char* field, Index value, Index least, Index most) {
  if (value < least || value > most) {
    fail(FLJSD_INVALID_ARGUMENT, field, " is ", value, ", but it must be in [", least, ", ", most, "].");
  }
}

// Both were checked, so the product is a number.
void check_matrix(const char* rows_field, Index rows, const char* columns_field, Index columns) {
  if (rows * columns > largest_matrix) {
    fail(FLJSD_INVALID_ARGUMENT, rows_field, " is ", rows, " and ", columns_field, " is ", columns,
         ", but their product must be at most ", largest_matrix, ".");
  }
}

Index leading_dimension(const char* field, Index value, Index columns) {
  if (value == 0) return columns;
  if (value < columns || value > largest_row) {
    fail(FLJSD_INVALID_ARGUMENT, field, " is ", value, ", but it must be 0 (packed) or in [", columns, ", ",
         largest_row, "].");
  }
  return value;
}

fljsd_dtype check_dtype(const char* field, std::int32_t value, bool may_be_absent) {
  if (value == FLJSD_BF16 || value == FLJSD_F16 || value == FLJSD_F32 ||
      (value == FLJSD_ABSENT && may_be_absent)) {
    return static_cast<fljsd_dtype>(value);
  }
  fail(FLJSD_INVALID_ARGUMENT, field, " is ", value,
       ", but it must be FLJSD_BF16 (1), FLJSD_F16 (2) or FLJSD_F32 (3)",
       may_be_absent ? ", or FLJSD_ABSENT (0)." : ".");
}

}  // namespace

Device find_device(int ordinal) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) fail(FLJSD_NO_DEVICE, "There is no CUDA device: no NVIDIA driver is installed.");
    fail(FLJSD_NO_DEVICE, "The NVIDIA driver supports CUDA ", driver / 1000, ".", driver % 1000 / 10,
         ", but this library needs CUDA ", runtime / 1000, ".", runtime % 1000 / 10, " or newer.");
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    fail(FLJSD_NO_DEVICE, "There is no CUDA device.");
  }
  check(error, "counting the devices");
  if (ordinal < -1 || ordinal >= count) {
    fail(FLJSD_INVALID_ARGUMENT, "device is ", ordinal, ", but it must be -1 (the current one) or in [0, ",
         count - 1, "].");
  }
  Device device;
  device.ordinal = ordinal;
  if (ordinal == -1) check(cudaGetDevice(&device.ordinal), "asking for the current device");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device.ordinal), "reading the device's properties");
  device.capability = 10 * properties.major + properties.minor;
  device.multiprocessors = properties.multiProcessorCount;
  device.name = properties.name;
  return device;
}

Settings check_config(const fljsd_config& config) {
  Settings s;
  check_size("tokens", config.tokens, 0, largest_size);
  check_size("vocab", config.vocab, 1, largest_size);
  check_size("student_hidden", config.student_hidden, 1, largest_row);
  check_size("teacher_hidden", config.teacher_hidden, 1, largest_row);
  check_matrix("tokens", config.tokens, "vocab", config.vocab);
  for (const auto& [field, hidden] : {std::pair{"student_hidden", config.student_hidden},
                                      std::pair{"teacher_hidden", config.teacher_hidden}}) {
    check_matrix("tokens", config.tokens, field, hidden);
    check_matrix("vocab", config.vocab, field, hidden);
  }
  s.tokens = config.tokens;
  s.vocab = config.vocab;
  if (config.valid_vocab < 0 || config.valid_vocab > config.vocab) {
    fail(FLJSD_INVALID_ARGUMENT, "valid_vocab is ", config.valid_vocab,
         ", but it must be 0 (all of vocab) or in [1, ", config.vocab, "].");
  }
  s.valid_vocab = config.valid_vocab == 0 ? config.vocab : config.valid_vocab;

  s.student = {config.student_hidden,
               leading_dimension("student_input_ld", config.student_input_ld, config.student_hidden),
               leading_dimension("student_weight_ld", config.student_weight_ld, config.student_hidden),
               check_dtype("student_dtype", config.student_dtype, false),
               check_dtype("student_bias_dtype", config.student_bias_dtype, true)};
  s.teacher = {config.teacher_hidden,
               leading_dimension("teacher_input_ld", config.teacher_input_ld, config.teacher_hidden),
               leading_dimension("teacher_weight_ld", config.teacher_weight_ld, config.teacher_hidden),
               check_dtype("teacher_dtype", config.teacher_dtype, false),
               check_dtype("teacher_bias_dtype", config.teacher_bias_dtype, true)};
  s.input_grad_ld =
      leading_dimension("student_input_grad_ld", config.student_input_grad_ld, config.student_hidden);
  s.weight_grad_ld =
      leading_dimension("student_weight_grad_ld", config.student_weight_grad_ld, config.student_hidden);
  s.gradient_dtype = check_dtype("gradient_dtype", config.gradient_dtype, true);
  if (s.gradient_dtype == FLJSD_ABSENT) s.gradient_dtype = s.student.dtype;
  if (s.gradient_dtype != s.student.dtype && s.gradient_dtype != FLJSD_F32) {
    fail(FLJSD_INVALID_ARGUMENT, "gradient_dtype is ", name(s.gradient_dtype),
         ", but it must be student_dtype (", name(s.student.dtype), ") or f32.");
  }

  if (!(config.beta >= 0 && config.beta <= 1)) {
    fail(FLJSD_INVALID_ARGUMENT, "beta is ", config.beta, ", but it must be in [0, 1].");
  }
  if (config.beta > 0 && config.beta < 0x1p-100) {  // the other end is no matter: 1 - beta >= 2^-53
    fail(FLJSD_UNSUPPORTED, "beta is ", config.beta, ", but fp32 stages need it to be 0 or in [2^-100, 1].");
  }
  if (!(config.temperature > 0 && std::isfinite(config.temperature))) {
    fail(FLJSD_INVALID_ARGUMENT, "temperature is ", config.temperature,
         ", but it must be positive and finite.");
  }
  if (!(config.temperature >= 0x1p-100 && config.temperature <= 0x1p100)) {
    fail(FLJSD_UNSUPPORTED, "temperature is ", config.temperature,
         ", but fp32 stages need it in [2^-100, 2^100].");
  }
  if (config.reduction < FLJSD_BATCHMEAN || config.reduction > FLJSD_NONE) {
    fail(FLJSD_INVALID_ARGUMENT, "reduction is ", config.reduction,
         ", but it must be FLJSD_BATCHMEAN (0), FLJSD_SUM (1) or FLJSD_NONE (2).");
  }
  constexpr int all_gradients =
      FLJSD_STUDENT_INPUT_GRAD | FLJSD_STUDENT_WEIGHT_GRAD | FLJSD_STUDENT_BIAS_GRAD;
  if ((config.gradients & ~all_gradients) != 0) {
    fail(FLJSD_INVALID_ARGUMENT, "gradients is ", config.gradients,
         ", but it must be fljsd_gradients or-ed, at most ", all_gradients, ".");
  }
  if (config.memory_budget < 0) {
    fail(FLJSD_INVALID_ARGUMENT, "memory_budget is ", config.memory_budget,
         ", but it must be 0 (the stage recommends) or a number of bytes.");
  }
  // More than there is means all of it, and a number that stages may round up.
  const auto chunk = [](const char* field, Index value) {
    if (value < 0)
      fail(FLJSD_INVALID_ARGUMENT, field, " is ", value, ", but it must be 0 (the stage chooses) or more.");
    return std::min(value, largest_size);
  };
  s.chunk_tokens = chunk("chunk_tokens", config.chunk_tokens);
  s.chunk_vocab = chunk("chunk_vocab", config.chunk_vocab);
  s.gradient_chunk_vocab = chunk("gradient_chunk_vocab", config.gradient_chunk_vocab);
  if (config.stage == nullptr)
    fail(FLJSD_INVALID_ARGUMENT, "stage is null, but it must be the name of a stage.");

  s.has_labels = config.has_labels != 0;
  s.ignore_index = config.ignore_index;
  s.beta = config.beta;
  s.temperature = config.temperature;
  s.reduction = static_cast<fljsd_reduction>(config.reduction);
  s.input_grad = (config.gradients & FLJSD_STUDENT_INPUT_GRAD) != 0;
  s.weight_grad = (config.gradients & FLJSD_STUDENT_WEIGHT_GRAD) != 0;
  s.bias_grad = (config.gradients & FLJSD_STUDENT_BIAS_GRAD) != 0;
  s.stage = config.stage;
  s.memory_budget = config.memory_budget;
  const StageEntry& entry = find_stage(s.stage);  // before the device: a wrong name is wrong everywhere
  s.device = find_device(config.device);
  require_device(entry, s.device);
  return s;
}

}  // namespace fljsd::cuda
