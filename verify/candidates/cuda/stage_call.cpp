// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/stage_call.h"

#include <algorithm>
#include <cstring>

namespace fljsd {
namespace {

std::vector<std::byte> bytes_of(const void* data, std::size_t size) {
  const auto* first = static_cast<const std::byte*>(data);
  return size == 0 ? std::vector<std::byte>() : std::vector<std::byte>(first, first + size);
}

// From the first element to the last, the gaps between the rows included.
std::size_t extent(const MatrixView& m) {
  return m.rows == 0 ? 0 : static_cast<std::size_t>((m.rows - 1) * m.row_stride + m.cols) * size_of(m.dtype);
}

std::vector<float> floats(const Snapshot& snapshot, const DeviceBuffer& buffer) {
  std::vector<float> values(buffer.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), snapshot.contents(buffer), buffer.size());
  return values;
}

bool is_poison(const std::byte* first, std::size_t size) {
  return std::all_of(first, first + size, [](std::byte b) { return b == std::byte{0xff}; });
}

int reduction_code(Reduction reduction) {
  switch (reduction) {
    case Reduction::batchmean: return FLJSD_BATCHMEAN;
    case Reduction::sum: return FLJSD_SUM;
    case Reduction::none: return FLJSD_NONE;
  }
  return -1;
}

fljsd_config make_config(const Problem& p, const Options& options, const StageRequest& request) {
  fljsd_config c = config_of(p, options, request.gradient_dtype, request.gradients);
  c.student_input_grad_ld = c.student_weight_grad_ld = p.student_input.cols + request.gradient_padding;
  c.stage = request.stage.c_str();
  request.configure(c);
  return c;
}

}  // namespace

void check_status(fljsd_status status) {
  if (status == FLJSD_UNSUPPORTED) throw StageUnsupported(fljsd_last_error());
  if (status != FLJSD_OK) throw std::runtime_error(fljsd_last_error());
}

fljsd_config config_of(const Problem& p, const Options& options, DType gradient_dtype, bool gradients) {
  fljsd_config c{};
  check_status(fljsd_config_init(&c, sizeof c));
  c.tokens = p.tokens();
  c.vocab = p.vocab();
  c.student_hidden = p.student_input.cols;
  c.teacher_hidden = p.teacher_input.cols;
  c.student_input_ld = p.student_input.row_stride;
  c.student_weight_ld = p.student_weight.row_stride;
  c.teacher_input_ld = p.teacher_input.row_stride;
  c.teacher_weight_ld = p.teacher_weight.row_stride;
  c.student_dtype = dtype_code(p.student_input.dtype);
  c.teacher_dtype = dtype_code(p.teacher_input.dtype);
  c.gradient_dtype = dtype_code(gradient_dtype);
  c.student_bias_dtype = p.student_bias ? dtype_code(p.student_bias->dtype) : FLJSD_ABSENT;
  c.teacher_bias_dtype = p.teacher_bias ? dtype_code(p.teacher_bias->dtype) : FLJSD_ABSENT;
  c.has_labels = p.labels.has_value();
  c.ignore_index = options.ignore_index;
  c.valid_vocab = options.valid_vocab.value_or(0);
  c.beta = options.beta;
  c.temperature = options.temperature;
  c.reduction = reduction_code(options.reduction);
  c.gradients =
      gradients ? FLJSD_STUDENT_INPUT_GRAD | FLJSD_STUDENT_WEIGHT_GRAD | FLJSD_STUDENT_BIAS_GRAD : 0;
  return c;
}

int dtype_code(DType dtype) {
  switch (dtype) {
    case DType::bf16: return FLJSD_BF16;
    case DType::f16: return FLJSD_F16;
    case DType::f32: return FLJSD_F32;
    default: throw std::runtime_error("The CUDA stages take bf16, f16 and f32, but a tensor is f64.");
  }
}

bool StageOutput::same_bits(const StageOutput& other) const {
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
             return std::memcmp(&x, &y, sizeof x) == 0;
           });
  };
  return std::memcmp(&loss, &other.loss, sizeof loss) == 0 && same(token_loss, other.token_loss) &&
         input_grad.bytes == other.input_grad.bytes && weight_grad.bytes == other.weight_grad.bytes &&
         same(bias_grad, other.bias_grad);
}

StageCall::StageCall(const Problem& p, const Options& options, const StageRequest& request,
                     CallResources* resources)
    : memory_(resources == nullptr ? nullptr : &resources->memory),
      tokens_(p.tokens()),
      vocab_(p.vocab()),
      hidden_(p.student_input.cols),
      grad_ld_(hidden_ + request.gradient_padding),
      gradient_dtype_(request.gradient_dtype),
      gradients_(request.gradients) {
  const fljsd_config config = make_config(p, options, request);
  plan_ = resources == nullptr ? make_plan(config) : resources->plans.get(config);
  if (memory_ != nullptr) memory_->reset();
  const auto upload = [&](const char* name, const void* data, std::size_t size, std::size_t offset) {
    std::vector<std::byte> host = bytes_of(data, size);
    DeviceBuffer device(host, offset, memory_);
    inputs_.push_back({name, std::move(host), std::move(device)});
  };
  const auto upload_matrix = [&](const char* name, const MatrixView& m) {
    upload(name, m.data, extent(m), request.offset(m.dtype));
  };
  const auto upload_vector = [&](const char* name, const std::optional<VectorView>& v) {
    if (v)
      upload(name, v->data, static_cast<std::size_t>(v->size) * size_of(v->dtype), request.offset(v->dtype));
  };
  upload_matrix("student_input", p.student_input);
  upload_matrix("student_weight", p.student_weight);
  upload_matrix("teacher_input", p.teacher_input);
  upload_matrix("teacher_weight", p.teacher_weight);
  upload_vector("student_bias", p.student_bias);
  upload_vector("teacher_bias", p.teacher_bias);
  if (p.labels) upload("labels", p.labels->data(), p.labels->size_bytes(), 0);

  const auto output = [&](Index elements, DType dtype, std::size_t offset) {
    return DeviceBuffer(static_cast<std::size_t>(elements) * size_of(dtype), offset, 0xff, memory_);
  };
  loss_ = output(1, DType::f32, 0);
  token_loss_ = output(tokens_, DType::f32, 0);
  if (gradients_) {
    input_grad_ = output(tokens_ * grad_ld_, gradient_dtype_, request.offset(gradient_dtype_));
    weight_grad_ = output(vocab_ * grad_ld_, gradient_dtype_, request.offset(gradient_dtype_));
    bias_grad_ = output(vocab_, DType::f32, 0);
  }
  workspaces_[pass()] = make_workspace(pass());
}

DeviceBuffer StageCall::make_workspace(fljsd_pass pass) const {
  std::uint64_t bytes = 0;
  check_status(fljsd_plan_workspace_bytes(plan_.get(), pass, &bytes));
  return DeviceBuffer(static_cast<std::size_t>(bytes), 0, 0xff, memory_);
}

const DeviceBuffer* StageCall::find(const char* input) const {
  const auto found =
      std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& i) { return i.name == input; });
  return found == inputs_.end() ? nullptr : &found->device;
}

fljsd_tensors StageCall::tensors() const {
  const auto pointer = [&](const char* input) -> const void* {
    const DeviceBuffer* buffer = find(input);
    return buffer == nullptr ? nullptr : buffer->get();
  };
  fljsd_tensors t{};
  t.struct_size = sizeof t;
  t.student_input = pointer("student_input");
  t.student_weight = pointer("student_weight");
  t.teacher_input = pointer("teacher_input");
  t.teacher_weight = pointer("teacher_weight");
  t.student_bias = pointer("student_bias");
  t.teacher_bias = pointer("teacher_bias");
  t.labels = static_cast<const std::int64_t*>(pointer("labels"));
  t.loss = loss_.as<float>();
  t.token_loss = token_loss_.as<float>();
  t.student_input_grad = input_grad_.get();
  t.student_weight_grad = weight_grad_.get();
  t.student_bias_grad = bias_grad_.as<float>();
  return t;
}

void StageCall::enqueue(fljsd_pass pass, cudaStream_t stream) {
  const fljsd_tensors t = tensors();
  const DeviceBuffer& w = workspaces_[pass];
  const auto call = pass == FLJSD_FORWARD ? fljsd_forward : fljsd_forward_backward;
  check_status(call(plan_.get(), &t, w.get(), w.size(), stream));
}

StageOutput StageCall::run(fljsd_pass pass, std::uint8_t workspace_poison) {
  DeviceBuffer& workspace = workspaces_[pass];
  if (workspace.get() == nullptr) workspace = make_workspace(pass);
  workspace.fill(workspace_poison);
  for (DeviceBuffer* output : {&loss_, &token_loss_, &input_grad_, &weight_grad_, &bias_grad_}) {
    if (output->get() != nullptr) output->fill(0xff);
  }
  enqueue(pass, nullptr);
  return collect(pass);
}

StageOutput StageCall::collect() {
  check_cuda(cudaDeviceSynchronize());  // the call may have been enqueued on any stream
  return collect(pass());
}

Snapshot StageCall::take_snapshot(fljsd_pass pass) const {
  Snapshot snapshot;
  for (const Input& input : inputs_) snapshot.add(input.device);
  for (const DeviceBuffer* output : {&loss_, &token_loss_, &input_grad_, &weight_grad_, &bias_grad_}) {
    if (output->get() != nullptr) snapshot.add(*output);
  }
  snapshot.add(workspaces_[pass], DeviceBuffer::Extent::guards);
  snapshot.take(memory_);
  return snapshot;
}

// What was written that must not be, but for the gradients' own memory.
void StageCall::check_surroundings(const Snapshot& snapshot, fljsd_pass pass) {
  violations_.clear();
  inputs_intact_ = true;
  for (const Input& input : inputs_) {
    if (!input.host.empty() &&
        std::memcmp(snapshot.contents(input.device), input.host.data(), input.host.size()) != 0) {
      violations_.push_back(input.name + ", an input, was written.");
      inputs_intact_ = false;
    }
    if (!snapshot.is_intact(input.device)) {
      violations_.push_back("bytes beside " + input.name + " were written.");
    }
  }
  const std::pair<const char*, const DeviceBuffer*> outputs[] = {
      {"loss", &loss_},
      {"token_loss", &token_loss_},
      {"student_input_grad", &input_grad_},
      {"student_weight_grad", &weight_grad_},
      {"student_bias_grad", &bias_grad_},
      {"the workspace", &workspaces_[pass]},
  };
  for (const auto& [name, output] : outputs) {
    if (output->get() == nullptr || snapshot.is_intact(*output)) continue;
    violations_.push_back(std::string("bytes beside ") + name + " were written.");
  }
}

void StageCall::check_untouched(const Snapshot& snapshot, const DeviceBuffer& buffer, const char* name) {
  if (buffer.size() == 0 || is_poison(snapshot.contents(buffer), buffer.size())) return;
  violations_.push_back(std::string(name) + " was written by a forward pass.");
}

HostMatrix StageCall::collect_matrix(const Snapshot& snapshot, const DeviceBuffer& buffer, Index rows,
                                     const char* name) {
  HostMatrix m{gradient_dtype_, rows, hidden_, grad_ld_, bytes_of(snapshot.contents(buffer), buffer.size())};
  const std::size_t size = size_of(m.dtype);
  for (Index row = 0; row < rows; ++row) {
    const std::byte* gap = m.bytes.data() + static_cast<std::size_t>(row * m.ld + m.cols) * size;
    if (is_poison(gap, static_cast<std::size_t>(m.ld - m.cols) * size)) continue;
    violations_.push_back(std::string("bytes between the rows of ") + name + " were written.");
    break;
  }
  return m;
}

StageOutput StageCall::collect(fljsd_pass pass) {
  const Snapshot snapshot = take_snapshot(pass);
  check_surroundings(snapshot, pass);
  StageOutput result;
  result.loss = floats(snapshot, loss_)[0];
  result.token_loss = floats(snapshot, token_loss_);
  if (pass == FLJSD_FORWARD_BACKWARD) {
    result.input_grad = collect_matrix(snapshot, input_grad_, tokens_, "student_input_grad");
    result.weight_grad = collect_matrix(snapshot, weight_grad_, vocab_, "student_weight_grad");
    result.bias_grad = floats(snapshot, bias_grad_);
  } else if (gradients_) {
    check_untouched(snapshot, input_grad_, "student_input_grad");
    check_untouched(snapshot, weight_grad_, "student_weight_grad");
    check_untouched(snapshot, bias_grad_, "student_bias_grad");
  }
  return result;
}

}  // namespace fljsd
