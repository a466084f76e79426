// SPDX-License-Identifier: Apache-2.0
// The C interface: checks arguments, turns exceptions into a status and a sentence.
#include <cstring>
#include <memory>
#include <string>

#include "cuda/batch.h"
#include "cuda/failure.h"
#include "cuda/plan.h"
#include "cuda/settings.h"
#include "cuda/stage.h"
#include "cuda/workspace.h"

using namespace fljsd::cuda;

namespace {

void check_pass_is_planned(const fljsd_plan& plan, fljsd_pass pass) {
  if (pass == FLJSD_FORWARD_BACKWARD && !plan.settings.any_grad()) {
    fail(FLJSD_INVALID_ARGUMENT, "The plan was made with gradients = 0, so it has no backward pass.");
  }
}

void check_pointer(const char* field, const void* pointer, Index alignment) {
  if (pointer == nullptr) fail(FLJSD_INVALID_ARGUMENT, field, " is null, but the plan needs it.");
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address % static_cast<std::uintptr_t>(alignment) != 0) {
    fail(FLJSD_MISALIGNED, field, " is at address ", address, ", but it must be a multiple of ", alignment,
         " bytes.");
  }
}

Call check_call(const fljsd_plan& plan, fljsd_pass pass, const fljsd_tensors* tensors, void* workspace,
                std::uint64_t workspace_bytes, void* stream) {
  const Settings& s = plan.settings;
  check_pass_is_planned(plan, pass);
  Call call{read_struct("tensors", tensors), static_cast<std::byte*>(workspace),
            static_cast<cudaStream_t>(stream)};
  const fljsd_tensors& t = call.tensors;
  if (s.tokens > 0) {
    check_pointer("student_input", t.student_input, size_of(s.student.dtype));
    check_pointer("teacher_input", t.teacher_input, size_of(s.teacher.dtype));
    check_pointer("student_weight", t.student_weight, size_of(s.student.dtype));
    check_pointer("teacher_weight", t.teacher_weight, size_of(s.teacher.dtype));
    if (s.student.bias_dtype != FLJSD_ABSENT) {
      check_pointer("student_bias", t.student_bias, size_of(s.student.bias_dtype));
    }
    if (s.teacher.bias_dtype != FLJSD_ABSENT) {
      check_pointer("teacher_bias", t.teacher_bias, size_of(s.teacher.bias_dtype));
    }
    if (s.has_labels) check_pointer("labels", t.labels, 8);
  }
  if (t.loss != nullptr) check_pointer("loss", t.loss, 4);
  if (t.token_loss != nullptr) check_pointer("token_loss", t.token_loss, 4);
  if (pass == FLJSD_FORWARD_BACKWARD) {
    if (s.input_grad && s.tokens > 0) {
      check_pointer("student_input_grad", t.student_input_grad, size_of(s.gradient_dtype));
    }
    if (s.weight_grad) check_pointer("student_weight_grad", t.student_weight_grad, size_of(s.gradient_dtype));
    if (s.bias_grad) check_pointer("student_bias_grad", t.student_bias_grad, 4);
  }
  const auto needed = static_cast<std::uint64_t>(plan.stage->workspace_bytes(pass));
  if (needed > 0) {
    check_pointer("workspace", workspace, Workspace::alignment);
    if (workspace_bytes < needed) {
      fail(FLJSD_WORKSPACE_TOO_SMALL, "workspace_bytes is ", workspace_bytes, ", but this pass needs ",
           needed, ".");
    }
  }
  const cudaError_t pending = cudaPeekAtLastError();
  if (pending != cudaSuccess) {
    fail(FLJSD_CUDA_ERROR, "CUDA had an error pending before this call: ", cudaGetErrorName(pending), " (",
         cudaGetErrorString(pending), ").");
  }
  int device = -1;
  check(cudaGetDevice(&device), "asking for the current device");
  if (device != s.device.ordinal) {
    fail(FLJSD_INVALID_ARGUMENT, "The plan was made for device ", s.device.ordinal, ", but device ", device,
         " is current.");
  }
  return call;
}

// An empty batch: loss 0, and gradients that are sums over nothing.
void run_empty(const Settings& s, fljsd_pass pass, const Call& call) {
  if (call.tensors.loss != nullptr && s.reduction != FLJSD_NONE) {
    check(cudaMemsetAsync(call.tensors.loss, 0, sizeof(float), call.stream), "writing the loss");
  }
  if (pass == FLJSD_FORWARD_BACKWARD) clear_gradients_of_weight(s, call);
}

fljsd_status run(const fljsd_plan* plan, fljsd_pass pass, const fljsd_tensors* tensors, void* workspace,
                 std::uint64_t workspace_bytes, void* stream) {
  return guard([&] {
    const Call call = check_call(required("plan", plan), pass, tensors, workspace, workspace_bytes, stream);
    if (plan->settings.tokens == 0 && !plan->stage->takes_empty_batches())
      return run_empty(plan->settings, pass, call);
    plan->stage->run(pass, call);
  });
}

}  // namespace

namespace fljsd::cuda {

std::string& last_error() {
  thread_local std::string sentence;
  return sentence;
}

void require_current_device(const Settings& settings) {
  int current = -1;
  check(cudaGetDevice(&current), "asking for the current device");
  if (current != settings.device.ordinal) {
    fail(FLJSD_INVALID_ARGUMENT, "device is ", settings.device.ordinal, ", but device ", current,
         " is current; make it current before creating the plan.");
  }
  check(cudaFree(nullptr), "creating the CUDA context");
}

}  // namespace fljsd::cuda

int32_t fljsd_version(void) {
  return 10000 * FLJSD_VERSION_MAJOR + 100 * FLJSD_VERSION_MINOR + FLJSD_VERSION_PATCH;
}

const char* fljsd_architectures(void) {
  return FLJSD_ARCHITECTURES;
}

const char* fljsd_last_error(void) {
  return last_error().c_str();
}

int32_t fljsd_stage_count(void) {
  return static_cast<int32_t>(stages().size());
}

fljsd_status fljsd_stage_get(int32_t index, fljsd_stage* stage) {
  return guard([&] {
    const fljsd_stage given = read_struct("stage", stage);
    if (index < 0 || index >= fljsd_stage_count()) {
      fail(FLJSD_INVALID_ARGUMENT, "index is ", index, ", but it must be in [0, ", fljsd_stage_count() - 1,
           "].");
    }
    const StageEntry& entry = stages()[static_cast<std::size_t>(index)];
    const fljsd_stage full{given.struct_size,
                           entry.name,
                           entry.description,
                           entry.is_baseline ? 1 : 0,
                           entry.logits_dtype,
                           entry.minimum_capability,
                           0};
    std::memcpy(stage, &full, static_cast<std::size_t>(given.struct_size));
  });
}

fljsd_status fljsd_stage_available(const char* name, int32_t device) {
  return guard([&] {
    required("name", name);
    const StageEntry& entry = find_stage(name);
    require_device(entry, find_device(device));
  });
}

fljsd_status fljsd_config_init(fljsd_config* config, uint64_t struct_size) {
  return guard([&] {
    fljsd_config defaults{};
    defaults.student_dtype = FLJSD_BF16;
    defaults.teacher_dtype = FLJSD_BF16;
    defaults.ignore_index = -100;
    defaults.beta = 0.5;
    defaults.temperature = 1;
    defaults.reduction = FLJSD_BATCHMEAN;
    defaults.stage = "chunked-vocab";
    defaults.device = -1;
    init_struct("config", config, struct_size, defaults);
  });
}

fljsd_status fljsd_plan_create(const fljsd_config* config, fljsd_plan** plan) {
  return guard([&] {
    required("plan", plan);
    *plan = nullptr;
    const Settings settings = check_config(read_struct("config", config));
    require_current_device(settings);
    auto made = std::make_unique<fljsd_plan>();
    made->settings = settings;
    made->stage = find_stage(settings.stage).make(settings);
    made->describe();
    *plan = made.release();
  });
}

void fljsd_plan_destroy(fljsd_plan* plan) {
  delete plan;
}

fljsd_status fljsd_plan_workspace_bytes(const fljsd_plan* plan, int32_t pass, uint64_t* bytes) {
  return guard([&] {
    required("bytes", bytes);
    check_pass_is_planned(required("plan", plan), check_pass(pass));
    *bytes = static_cast<uint64_t>(plan->stage->workspace_bytes(static_cast<fljsd_pass>(pass)));
  });
}

const char* fljsd_plan_describe(const fljsd_plan* plan) {
  return plan == nullptr ? "" : plan->description.c_str();
}

fljsd_status fljsd_plan_tune(fljsd_plan* plan, int32_t pass, const fljsd_tensors* tensors, void* workspace,
                             uint64_t workspace_bytes, void* stream) {
  return guard([&] {
    const Call call =
        check_call(required("plan", plan), check_pass(pass), tensors, workspace, workspace_bytes, stream);
    if (plan->settings.tokens == 0 && !plan->stage->takes_empty_batches()) return;
    plan->stage->tune(static_cast<fljsd_pass>(pass), call);
    check(cudaStreamSynchronize(call.stream), "tuning");
    plan->describe();
  });
}

fljsd_status fljsd_forward(const fljsd_plan* plan, const fljsd_tensors* tensors, void* workspace,
                           uint64_t workspace_bytes, void* stream) {
  return run(plan, FLJSD_FORWARD, tensors, workspace, workspace_bytes, stream);
}

fljsd_status fljsd_forward_backward(const fljsd_plan* plan, const fljsd_tensors* tensors, void* workspace,
                                    uint64_t workspace_bytes, void* stream) {
  return run(plan, FLJSD_FORWARD_BACKWARD, tensors, workspace, workspace_bytes, stream);
}
