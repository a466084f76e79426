// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/stage_call.h"

#include <algorithm>
#include <cstring>

namespace fljsd {
namespace {

void check_status(fljsd_status status) {
  if (status == FLJSD_UNSUPPORTED) throw StageUnsupported(fljsd_last_error());
  if (status != FLJSD_OK) throw std::runtime_error(fljsd_last_error());
}

std::vector<std::byte> bytes_of(const void* data, std::size_t size) {
  const auto* first = static_cast<const std::byte*>(data);
  return size == 0 ? std::vector<std::byte>() : std::vector<std::byte>(first, first + size);
}

// From the first element to the last, the gaps between the rows included.
std::size_t extent(const MatrixView& m) {
  return m.rows == 0 ? 0 : static_cast<std::size_t>((m.rows - 1) * m.row_stride + m.cols) * size_of(m.dtype);
}

std::vector<float> floats(const DeviceBuffer& buffer) {
  const std::vector<std::byte> bytes = buffer.to_host();
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
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
  fljsd_config c;
  check_status(fljsd_config_init(&c, sizeof c));
  c.tokens = p.tokens();
  c.vocab = p.vocab();
  c.student_hidden = p.student_input.cols;
  c.teacher_hidden = p.teacher_input.cols;
  c.student_input_ld = p.student_input.row_stride;
  c.student_weight_ld = p.student_weight.row_stride;
  c.teacher_input_ld = p.teacher_input.row_stride;
  c.teacher_weight_ld = p.teacher_weight.row_stride;
  c.student_input_grad_ld = c.student_weight_grad_ld = p.student_input.cols + request.gradient_padding;
  c.student_dtype = dtype_code(p.student_input.dtype);
  c.teacher_dtype = dtype_code(p.teacher_input.dtype);
  c.gradient_dtype = dtype_code(request.gradient_dtype);
  c.student_bias_dtype = p.student_bias ? dtype_code(p.student_bias->dtype) : FLJSD_ABSENT;
  c.teacher_bias_dtype = p.teacher_bias ? dtype_code(p.teacher_bias->dtype) : FLJSD_ABSENT;
  c.has_labels = p.labels.has_value();
  c.ignore_index = options.ignore_index;
  c.valid_vocab = options.valid_vocab.value_or(0);
  c.beta = options.beta;
  c.temperature = options.temperature;
  c.reduction = reduction_code(options.reduction);
  c.gradients =
      request.gradients ? FLJSD_STUDENT_INPUT_GRAD | FLJSD_STUDENT_WEIGHT_GRAD | FLJSD_STUDENT_BIAS_GRAD : 0;
  c.stage = request.stage.c_str();
  request.configure(c);
  return c;
}

}  // namespace

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

StageCall::StageCall(const Problem& p, const Options& options, const StageRequest& request)
    : tokens_(p.tokens()),
      vocab_(p.vocab()),
      hidden_(p.student_input.cols),
      grad_ld_(hidden_ + request.gradient_padding),
      gradient_dtype_(request.gradient_dtype),
      gradients_(request.gradients) {
  const fljsd_config config = make_config(p, options, request);
  check_status(fljsd_plan_create(&config, &plan_));
  try {
    const auto upload = [&](const char* name, DType dtype, const void* data, std::size_t size) {
      std::vector<std::byte> host = bytes_of(data, size);
      DeviceBuffer device(host, request.offset(dtype));
      inputs_.push_back({name, std::move(host), std::move(device)});
    };
    const auto upload_matrix = [&](const char* name, const MatrixView& m) {
      upload(name, m.dtype, m.data, extent(m));
    };
    const auto upload_vector = [&](const char* name, const std::optional<VectorView>& v) {
      if (v) upload(name, v->dtype, v->data, static_cast<std::size_t>(v->size) * size_of(v->dtype));
    };
    upload_matrix("student_input", p.student_input);
    upload_matrix("student_weight", p.student_weight);
    upload_matrix("teacher_input", p.teacher_input);
    upload_matrix("teacher_weight", p.teacher_weight);
    upload_vector("student_bias", p.student_bias);
    upload_vector("teacher_bias", p.teacher_bias);
    if (p.labels) {
      std::vector<std::byte> host = bytes_of(p.labels->data(), p.labels->size_bytes());
      DeviceBuffer device(host);
      inputs_.push_back({"labels", std::move(host), std::move(device)});
    }
    loss_ = DeviceBuffer(sizeof(float));
    token_loss_ = DeviceBuffer(static_cast<std::size_t>(tokens_) * sizeof(float));
    if (gradients_) {
      const auto matrix = [&](Index rows) {
        return DeviceBuffer(static_cast<std::size_t>(rows * grad_ld_) * size_of(gradient_dtype_),
                            request.offset(gradient_dtype_));
      };
      input_grad_ = matrix(tokens_);
      weight_grad_ = matrix(vocab_);
      bias_grad_ = DeviceBuffer(static_cast<std::size_t>(vocab_) * sizeof(float));
    }
    std::uint64_t bytes = 0;
    check_status(fljsd_plan_workspace_bytes(plan_, pass(), &bytes));
    workspace_ = DeviceBuffer(static_cast<std::size_t>(bytes));
  } catch (...) {
    fljsd_plan_destroy(plan_);
    throw;
  }
}

StageCall::~StageCall() {
  if (owns_plan_) fljsd_plan_destroy(plan_);
}

void StageCall::share_plan(const StageCall& other) {
  if (owns_plan_) fljsd_plan_destroy(plan_);
  plan_ = other.plan_;
  owns_plan_ = false;
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

void StageCall::enqueue(cudaStream_t stream) {
  const fljsd_tensors t = tensors();
  check_status(gradients_ ? fljsd_forward_backward(plan_, &t, workspace_.get(), workspace_.size(), stream)
                          : fljsd_forward(plan_, &t, workspace_.get(), workspace_.size(), stream));
}

StageOutput StageCall::run(std::uint8_t workspace_poison) {
  workspace_.fill(workspace_poison);
  for (DeviceBuffer* output : {&loss_, &token_loss_, &input_grad_, &weight_grad_, &bias_grad_}) {
    if (output->get() != nullptr) output->fill(0xff);
  }
  enqueue(nullptr);
  return collect();
}

HostMatrix StageCall::collect_matrix(const DeviceBuffer& buffer, Index rows, const char* name) {
  const HostMatrix m{gradient_dtype_, rows, hidden_, grad_ld_, buffer.to_host()};
  const auto size = static_cast<std::ptrdiff_t>(size_of(m.dtype));
  for (Index row = 0; row < rows; ++row) {
    const auto gap = m.bytes.begin() + (row * m.ld + m.cols) * size;
    if (std::all_of(gap, gap + (m.ld - m.cols) * size, [](std::byte b) { return b == std::byte{0xff}; })) {
      continue;
    }
    violations_.push_back(std::string("bytes between the rows of ") + name + " were written.");
    break;
  }
  return m;
}

StageOutput StageCall::collect() {
  check_cuda(cudaDeviceSynchronize());
  violations_.clear();
  inputs_intact_ = true;
  for (const Input& input : inputs_) {
    if (input.device.to_host() != input.host) {
      violations_.push_back(input.name + ", an input, was written.");
      inputs_intact_ = false;
    }
    if (!input.device.intact()) violations_.push_back("bytes beside " + input.name + " were written.");
  }
  const std::pair<const char*, const DeviceBuffer*> outputs[] = {
      {"loss", &loss_},
      {"token_loss", &token_loss_},
      {"student_input_grad", &input_grad_},
      {"student_weight_grad", &weight_grad_},
      {"student_bias_grad", &bias_grad_},
      {"the workspace", &workspace_},
  };
  for (const auto& [name, output] : outputs) {
    if (output->get() == nullptr || output->intact()) continue;
    violations_.push_back(std::string("bytes beside ") + name + " were written.");
  }
  StageOutput result;
  result.loss = floats(loss_)[0];
  result.token_loss = floats(token_loss_);
  if (!gradients_) return result;
  result.input_grad = collect_matrix(input_grad_, tokens_, "student_input_grad");
  result.weight_grad = collect_matrix(weight_grad_, vocab_, "student_weight_grad");
  result.bias_grad = floats(bias_grad_);
  return result;
}

}  // namespace fljsd
