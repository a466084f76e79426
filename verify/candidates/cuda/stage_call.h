// SPDX-License-Identifier: Apache-2.0
// A call of one CUDA stage on a problem in host memory, watched: everything lies between guard bytes, outputs
// and workspace are poisoned before each run, and what must not change is compared after it.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/fljsd.h"
#include "reference/linear_jsd.h"
#include "verify/candidates/cuda/arena.h"
#include "verify/candidates/cuda/device_buffer.h"
#include "verify/candidates/cuda/plan_cache.h"
#include "verify/candidates/cuda/snapshot.h"

namespace fljsd {

// A matrix in its storage format, rows `ld` elements apart, the gap after the last row included.
struct HostMatrix {
  DType dtype = DType::f32;
  Index rows = 0, cols = 0, ld = 0;
  std::vector<std::byte> bytes;

  MatrixView view() const { return {dtype, bytes.data(), rows, cols, ld}; }
  double at(Index r, Index c) const { return load(dtype, bytes.data(), r * ld + c); }
  void set(Index r, Index c, double value) { store(dtype, bytes.data(), r * ld + c, value); }
};

// What a stage returned.
struct StageOutput {
  float loss = 0;
  std::vector<float> token_loss;
  HostMatrix input_grad, weight_grad;  // empty when not wanted
  std::vector<float> bias_grad;

  // Bit for bit, gaps between rows included.
  bool same_bits(const StageOutput& other) const;
};

struct StageRequest {
  std::string stage;
  bool gradients = true;       // of student input, weight and bias
  DType gradient_dtype = {};   // of the first two: the student's format, or f32
  Index gradient_padding = 0;  // elements between their rows
  // Bytes by which a tensor of this format starts past a multiple of 256; a multiple of the element's size.
  std::function<std::size_t(DType)> offset = [](DType) { return std::size_t{0}; };
  // Fields of the configuration that are to differ: chunks, memory budget.
  std::function<void(fljsd_config&)> configure = [](fljsd_config&) {};
};

// The library says that it does not support what was asked, though it is meaningful.
class StageUnsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws for another status than FLJSD_OK: std::runtime_error with the library's sentence, StageUnsupported
// for FLJSD_UNSUPPORTED.
void check_status(fljsd_status status);

// Sizes, leading dimensions, formats and options of a call; gradients of student input, weight and bias, or
// none. The stage is the library's choice, and rows of the gradients have no gaps.
fljsd_config config_of(const Problem& problem, const Options& options, DType gradient_dtype, bool gradients);

// What calls that follow each other share.
struct CallResources {
  CallMemory memory;
  PlanCache plans;
};

// Throws std::runtime_error with the library's or CUDA's sentence, StageUnsupported for FLJSD_UNSUPPORTED.
class StageCall {
 public:
  // Uploads the problem and makes a plan. Student input and weight must have one format (bf16, f16 or f32),
  // and so must the teacher's; leading dimensions are those of the views. The views are not needed
  // afterwards. With `resources`, whose memory it resets, only the latest call is valid; without, the plan
  // and all memory are its own.
  StageCall(const Problem& problem, const Options& options, const StageRequest& request,
            CallResources* resources = nullptr);
  StageCall(const StageCall&) = delete;
  StageCall& operator=(const StageCall&) = delete;

  // Poisons outputs and workspace, runs on the default stream, waits, and collects. Both passes may be run
  // where gradients are wanted; a forward pass must then leave their memory alone.
  StageOutput run(fljsd_pass pass, std::uint8_t workspace_poison);
  StageOutput run(std::uint8_t workspace_poison = 0xff) { return run(pass(), workspace_poison); }
  // The parts of that, for concurrent runs and graphs: without poison, without waiting.
  void enqueue(cudaStream_t stream) { enqueue(pass(), stream); }
  StageOutput collect();  // waits for the device

  // What collect() found wrong beside the numbers, a sentence each: inputs that changed, bytes written beside
  // a buffer or between rows. Empty when all is well.
  const std::vector<std::string>& violations() const { return violations_; }
  bool inputs_intact() const { return inputs_intact_; }

  // For calls that are made by hand.
  fljsd_plan* plan() const { return plan_.get(); }
  fljsd_tensors tensors() const;
  const DeviceBuffer& workspace() const { return workspaces_[pass()]; }
  fljsd_pass pass() const { return gradients_ ? FLJSD_FORWARD_BACKWARD : FLJSD_FORWARD; }
  // Uses the plan of another call of equal sizes and options.
  void share_plan(const StageCall& other) { plan_ = other.plan_; }

 private:
  struct Input {
    std::string name;
    std::vector<std::byte> host;
    DeviceBuffer device;
  };
  const DeviceBuffer* find(const char* input) const;
  DeviceBuffer make_workspace(fljsd_pass pass) const;
  void enqueue(fljsd_pass pass, cudaStream_t stream);
  StageOutput collect(fljsd_pass pass);
  Snapshot take_snapshot(fljsd_pass pass) const;
  void check_surroundings(const Snapshot& snapshot, fljsd_pass pass);
  void check_untouched(const Snapshot& snapshot, const DeviceBuffer& buffer, const char* name);
  HostMatrix collect_matrix(const Snapshot& snapshot, const DeviceBuffer& buffer, Index rows,
                            const char* name);

  CallMemory* memory_;  // null: none is shared
  Index tokens_, vocab_, hidden_, grad_ld_;
  DType gradient_dtype_;
  bool gradients_;
  PlanPointer plan_;
  std::vector<Input> inputs_;
  DeviceBuffer loss_, token_loss_, input_grad_, weight_grad_, bias_grad_;
  DeviceBuffer workspaces_[2];  // by pass; of exactly the size that the plan asks for
  std::vector<std::string> violations_;
  bool inputs_intact_ = true;
};

// bf16, f16 or f32 as fljsd_dtype.
int dtype_code(DType dtype);

}  // namespace fljsd
