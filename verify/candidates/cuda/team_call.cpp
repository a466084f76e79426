// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/team_call.h"

#include <algorithm>
#include <barrier>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <cuda_runtime_api.h>

#include "verify/candidates/cuda/rank_output.h"
#include "verify/candidates/cuda/stage_call.h"

namespace fljsd {
namespace {

// Device memory between guard bytes, of which the first contents are kept.
class Guarded {
 public:
  explicit Guarded(std::size_t size) : size_(size) {
    check_cuda(cudaMalloc(&memory_, size + 2 * guard));
    check_cuda(cudaMemset(memory_, guard_byte, size + 2 * guard));
  }
  explicit Guarded(std::vector<std::byte> host) : Guarded(host.size()) {
    host_ = std::move(host);
    check_cuda(cudaMemcpy(get(), host_.data(), size_, cudaMemcpyHostToDevice));
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { cudaFree(memory_); }

  std::byte* get() const { return static_cast<std::byte*>(memory_) + guard; }
  std::size_t size() const { return size_; }
  void fill(int value) { check_cuda(cudaMemset(get(), value, size_)); }
  std::vector<std::byte> contents() const { return copy(guard, size_); }
  bool is_intact() const {
    for (const std::size_t start : {std::size_t{0}, guard + size_}) {
      for (const std::byte b : copy(start, guard))
        if (b != std::byte{guard_byte}) return false;
    }
    return true;
  }
  bool is_unchanged() const { return contents() == host_; }

 private:
  static constexpr std::size_t guard = 256;
  static constexpr std::uint8_t guard_byte = 0xa5;
  std::vector<std::byte> copy(std::size_t start, std::size_t count) const {
    std::vector<std::byte> host(count);
    check_cuda(
        cudaMemcpy(host.data(), static_cast<std::byte*>(memory_) + start, count, cudaMemcpyDeviceToHost));
    return host;
  }

  void* memory_ = nullptr;
  std::size_t size_;
  std::vector<std::byte> host_;
};

// A stream that waits for no other, as a rank's own is.
class Stream {
 public:
  Stream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

std::vector<std::byte> rows_of(const MatrixView& m, const Shard& rows) {
  if (rows.size == 0) return {};
  const auto* start = static_cast<const std::byte*>(m.data) +
                      static_cast<std::size_t>(rows.first * m.row_stride) * size_of(m.dtype);
  return {start,
          start + static_cast<std::size_t>((rows.size - 1) * m.row_stride + m.cols) * size_of(m.dtype)};
}
// Rows or entries of a shard that has none: one that does not exist, and whose bytes are NaN in any format.
std::vector<std::byte> none_of(Index elements, DType dtype) {
  return std::vector<std::byte>(static_cast<std::size_t>(elements) * size_of(dtype), std::byte{0xff});
}
std::vector<std::byte> weights_of(const MatrixView& m, const Shard& rows) {
  return rows.size == 0 ? none_of(m.cols, m.dtype) : rows_of(m, rows);
}
std::vector<std::byte> entries_of(const VectorView& v, const Shard& entries) {
  if (entries.size == 0) return none_of(1, v.dtype);
  const auto* start =
      static_cast<const std::byte*>(v.data) + static_cast<std::size_t>(entries.first) * size_of(v.dtype);
  return {start, start + static_cast<std::size_t>(entries.size) * size_of(v.dtype)};
}

// One rank's part of the problem on its GPU.
class RankCall {
 public:
  RankCall(const RankTeam& team, int rank, const Problem& p, const Options& options,
           const TeamRequest& request)
      : shard_(request.shards[static_cast<std::size_t>(rank % team.grid().vocab)]),
        part_(request.parts[static_cast<std::size_t>(rank / team.grid().vocab)]),
        timeout_ms_(team.timeout_ms()),
        gradients_(request.gradients) {
    fljsd_config c = config_of(p, options, request.gradient_dtype, gradients_);
    c.tokens = part_.size;
    const Index rows = std::max<Index>(shard_.size, 1);
    c.vocab = rows;
    if (request.shards.back().size == 0 && c.valid_vocab == 0) c.valid_vocab = p.vocab();
    request.configure(rank, c);
    fljsd_ranks ranks = team.ranks_of(rank);
    ranks.sum_weight_gradients = request.sum_weight_gradients ? 1 : 0;
    fljsd_plan* plan = nullptr;
    check_status(fljsd_plan_create_distributed(&c, &ranks, &plan));
    plan_.reset(plan, fljsd_plan_destroy);

    tensors_.struct_size = sizeof tensors_;
    tensors_.student_input = input(rows_of(p.student_input, part_));
    tensors_.teacher_input = input(rows_of(p.teacher_input, part_));
    tensors_.student_weight = input(weights_of(p.student_weight, shard_));
    tensors_.teacher_weight = input(weights_of(p.teacher_weight, shard_));
    if (p.student_bias) tensors_.student_bias = input(entries_of(*p.student_bias, shard_));
    if (p.teacher_bias) tensors_.teacher_bias = input(entries_of(*p.teacher_bias, shard_));
    if (p.labels) {
      const auto* labels = reinterpret_cast<const std::byte*>(p.labels->data() + part_.first);
      tensors_.labels = reinterpret_cast<const std::int64_t*>(
          input({labels, labels + static_cast<std::size_t>(part_.size) * sizeof(std::int64_t)}));
    }
    const auto output = [&](std::unique_ptr<Guarded>& to, Index count, DType dtype) {
      to = std::make_unique<Guarded>(static_cast<std::size_t>(count) * size_of(dtype));
      return to->get();
    };
    tensors_.loss = reinterpret_cast<float*>(output(loss_, 1, DType::f32));
    tensors_.token_loss = reinterpret_cast<float*>(output(token_loss_, part_.size, DType::f32));
    if (gradients_) {
      const Index hidden = p.student_input.cols;
      tensors_.student_input_grad = output(input_grad_, part_.size * hidden, request.gradient_dtype);
      tensors_.student_weight_grad = output(weight_grad_, rows * hidden, request.gradient_dtype);
      tensors_.student_bias_grad = reinterpret_cast<float*>(output(bias_grad_, rows, DType::f32));
    }
    std::uint64_t bytes = 0;
    check_status(fljsd_plan_workspace_bytes(plan, pass(), &bytes));
    workspace_ = std::make_unique<Guarded>(static_cast<std::size_t>(bytes));
    check_status(fljsd_plan_exchanged_bytes(plan, pass(), &exchanged_bytes));
  }

  RankOutput run(int workspace_poison) {
    for (Guarded* g : outputs()) g->fill(0xff);
    workspace_->fill(workspace_poison);
    check_cuda(cudaDeviceSynchronize());
    const auto call = gradients_ ? fljsd_forward_backward : fljsd_forward;
    check_status(call(plan_.get(), &tensors_, workspace_->get(), workspace_->size(), stream_.get()));
    check_status(fljsd_plan_wait(plan_.get(), stream_.get(), timeout_ms_));
    const auto bytes = [](const std::unique_ptr<Guarded>& g) {
      return g ? g->contents() : std::vector<std::byte>();
    };
    return {bytes(loss_), bytes(token_loss_), bytes(input_grad_), bytes(weight_grad_), bytes(bias_grad_)};
  }

  std::vector<std::string> violations() const {
    std::vector<std::string> found;
    for (const auto& g : inputs_) {
      if (!g->is_unchanged()) found.push_back("an input was written.");
      if (!g->is_intact()) found.push_back("bytes beside an input were written.");
    }
    for (const Guarded* g : outputs())
      if (!g->is_intact()) found.push_back("bytes beside an output were written.");
    if (!workspace_->is_intact()) found.push_back("bytes beside the workspace were written.");
    for (const auto* g : {&weight_grad_, &bias_grad_}) {
      if (shard_.size > 0 || !*g) continue;
      for (const std::byte b : (*g)->contents()) {
        if (b == std::byte{0}) continue;
        found.push_back("an entry that does not exist has a gradient.");
        break;
      }
    }
    return found;
  }

  std::uint64_t exchanged_bytes = 0;

 private:
  fljsd_pass pass() const { return gradients_ ? FLJSD_FORWARD_BACKWARD : FLJSD_FORWARD; }
  const std::byte* input(std::vector<std::byte> host) {
    return inputs_.emplace_back(std::make_unique<Guarded>(std::move(host)))->get();
  }
  std::vector<Guarded*> outputs() const {
    std::vector<Guarded*> all;
    for (const auto* g : {&loss_, &token_loss_, &input_grad_, &weight_grad_, &bias_grad_})
      if (*g) all.push_back(g->get());
    return all;
  }

  Shard shard_, part_;
  std::int64_t timeout_ms_;
  bool gradients_;
  Stream stream_;
  PlanPointer plan_;
  fljsd_tensors tensors_{};
  std::vector<std::unique_ptr<Guarded>> inputs_;
  std::unique_ptr<Guarded> loss_, token_loss_, input_grad_, weight_grad_, bias_grad_, workspace_;
};

// Puts the ranks' outputs together.
class Assembly {
 public:
  Assembly(const RankGrid& grid, const Problem& p, const TeamRequest& request)
      : grid_(grid), request_(request), hidden_(p.student_input.cols) {
    out_.token_loss.resize(static_cast<std::size_t>(p.tokens()));
    if (!request.gradients) return;
    out_.input_grad.resize(p.tokens(), hidden_);
    out_.weight_grad = RowMajorMatrix<double>::Zero(p.vocab(), hidden_);
    out_.bias_grad.assign(static_cast<std::size_t>(p.vocab()), 0);
  }
  void add(int rank, const RankOutput& mine, const RankOutput& first, const RankOutput& first_of_part) {
    const int v = rank % grid_.vocab, t = rank / grid_.vocab;
    const Shard& shard = request_.shards[static_cast<std::size_t>(v)];
    const Shard& part = request_.parts[static_cast<std::size_t>(t)];
    const std::string who = "rank " + std::to_string(rank) + " has another ";
    if (mine.loss != first.loss) out_.violations.push_back(who + "loss than rank 0.");
    if (mine.token_loss != first_of_part.token_loss)
      out_.violations.push_back(who + "token_loss than the first rank with its tokens.");
    if (mine.input_grad != first_of_part.input_grad)
      out_.violations.push_back(who + "student_input_grad than the first rank with its tokens.");
    if (rank == 0) std::memcpy(&out_.loss, mine.loss.data(), sizeof out_.loss);
    if (v == 0 && part.size > 0)
      std::memcpy(out_.token_loss.data() + part.first, mine.token_loss.data(), mine.token_loss.size());
    if (!request_.gradients) return;
    const DType dtype = request_.gradient_dtype;
    for (Index i = 0; v == 0 && i < part.size * hidden_; ++i) {
      out_.input_grad(part.first + i / hidden_, i % hidden_) = load(dtype, mine.input_grad.data(), i);
    }
    if (t > 0 && request_.sum_weight_gradients) return;
    for (Index i = 0; i < shard.size * hidden_; ++i)
      out_.weight_grad(shard.first + i / hidden_, i % hidden_) += load(dtype, mine.weight_grad.data(), i);
    for (Index i = 0; i < shard.size; ++i) {
      out_.bias_grad[static_cast<std::size_t>(shard.first + i)] += load(DType::f32, mine.bias_grad.data(), i);
    }
  }
  TeamOutput& output() { return out_; }

 private:
  const RankGrid& grid_;
  const TeamRequest& request_;
  Index hidden_;
  TeamOutput out_;
};

}  // namespace

std::vector<Shard> ragged_shards(Index rows, int ranks, std::uint64_t seed) {
  std::vector<Shard> shards;
  if (rows < ranks) {
    for (Index s = 0; s < ranks; ++s) shards.push_back({std::min(s, rows), s < rows ? 1 : 0});
    return shards;
  }
  shards = cut_vocabulary(rows - ranks, ranks, seed);
  for (std::size_t s = 0; s < shards.size(); ++s)
    shards[s] = {shards[s].first + static_cast<Index>(s), shards[s].size + 1};
  return shards;
}

TeamOutput call_team(const RankTeam& team, const Problem& problem, const Options& options,
                     const TeamRequest& request, bool twice) {
  const RankGrid& grid = team.grid();
  const auto ranks = static_cast<std::size_t>(grid.ranks());
  std::vector<RankOutput> outputs(ranks);
  std::vector<std::vector<std::string>> violations(ranks);
  std::uint64_t exchanged_bytes = 0;
  // In one process the driver may make an allocation on one GPU wait for the others, and a kernel there wait
  // for this rank: nobody starts before all are ready, and nobody tidies up before all are done.
  std::barrier meet(static_cast<std::ptrdiff_t>(team.local_ranks().size()));
  team.run([&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    try {
      RankCall call(team, rank, problem, options, request);
      meet.arrive_and_wait();
      outputs[r] = call.run(0xff);
      if (twice && !(call.run(0x3f) == outputs[r]))
        violations[r].push_back("the same call gave other bits when the workspace held other bytes before.");
      for (const std::string& sentence : call.violations()) violations[r].push_back(sentence);
      if (rank == team.local_ranks().front()) exchanged_bytes = call.exchanged_bytes;
      meet.arrive_and_wait();
    } catch (...) {
      meet.arrive_and_drop();
      throw;
    }
  });
  std::vector<Bytes> told(ranks);
  for (std::size_t r = 0; r < ranks; ++r) told[r] = pack(outputs[r], violations[r]);
  team.tell(told);
  for (std::size_t r = 0; r < ranks; ++r) unpack(told[r], outputs[r], violations[r]);
  Assembly assembly(grid, problem, request);
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    assembly.add(rank, outputs[r], outputs[0], outputs[r - r % static_cast<std::size_t>(grid.vocab)]);
    for (const std::string& sentence : violations[r])
      assembly.output().violations.push_back("rank " + std::to_string(rank) + ": " + sentence);
  }
  assembly.output().exchanged_bytes = exchanged_bytes;
  return std::move(assembly.output());
}

}  // namespace fljsd
