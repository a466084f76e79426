// SPDX-License-Identifier: Apache-2.0
#include "cuda/distributed.h"

#include <algorithm>
#include <optional>

#include "cuda/plan.h"
#include "cuda/rank_agreement.h"
#include "cuda/shard_kernels.h"
#include "cuda/shard_sweep.h"

namespace fljsd::cuda {
namespace {

// Whether input gradients of several shards are added.
bool sums_input_grad(const Settings& s, Index vocab_ranks) {
  return s.input_grad && vocab_ranks > 1;
}

// The shard's sweep adds up its input gradient in a packed array: where the caller wants fp32 rows that may
// lie apart, in one of ours.
Settings sweep_settings(const Settings& s, Index vocab_ranks) {
  Settings sweep = s;
  if (sums_input_grad(s, vocab_ranks) && s.gradient_dtype == FLJSD_F32)
    sweep.input_grad_ld = s.student.hidden;
  return sweep;
}

// Compares with a group (null: nobody), which hears of a refusal of this rank, and this one of theirs or of a
// difference. The bits of all ranks, [ranks][terms].
std::vector<std::int64_t> compare(const Communicator* communicator, const char* group,
                                  const std::vector<Term>& terms, std::optional<Failure>& refusal) {
  if (communicator == nullptr) return {};
  try {
    return agree(*communicator, group, terms, refusal.has_value());
  } catch (const Failure& failure) {
    if (failure.status() != FLJSD_INVALID_ARGUMENT) throw;  // not an answer
    refusal = failure;
    return {};
  }
}

// The token group, where it is to be asked.
const Communicator* asked_tokens(const RankGroups& groups) {
  return groups.tokens_compared ? nullptr : groups.tokens;
}

// This rank's part by itself; valid_vocab is left to the vocabulary group.
Settings check_part(fljsd_config config, const RankGroups& groups) {
  config.valid_vocab = 0;  // counts entries of all shards
  Settings s = check_config(config);
  if (s.stage != "chunked-vocab") {
    fail(FLJSD_UNSUPPORTED, "stage is \"", s.stage,
         "\", but several GPUs are served by \"chunked-vocab\" only.");
  }
  for (const Communicator* c : {groups.vocab, groups.tokens}) {
    if (c != nullptr && c->device() != s.device.ordinal) {
      fail(FLJSD_INVALID_ARGUMENT, "device is ", s.device.ordinal,
           ", but a communicator was made for device ", c->device(), ".");
    }
  }
  if (groups.sum_weight_gradients && s.weight_grad && s.gradient_dtype != FLJSD_F32) {
    fail(FLJSD_UNSUPPORTED, "gradient_dtype is ", name(s.gradient_dtype),
         ", but sum_weight_gradients needs f32.");
  }
  if (groups.sum_weight_gradients && s.weight_grad && s.weight_grad_ld != s.student.hidden) {
    fail(FLJSD_UNSUPPORTED, "student_weight_grad_ld is ", s.weight_grad_ld,
         ", but sum_weight_gradients needs packed rows of ", s.student.hidden, ".");
  }
  s.counts_elsewhere = groups.tokens != nullptr;
  return s;
}

}  // namespace

Settings settings_of_rank(const fljsd_config* given, const RankGroups& groups,
                          std::optional<Failure>& refusal) {
  Settings s;
  fljsd_config config{};
  try {
    config = read_struct("config", given);
    s = check_part(config, groups);
  } catch (const Failure& failure) {
    refusal = failure;
  }

  // What both kinds of group compare.
  const std::vector<Term> common = {
      Term::same("beta", config.beta),
      Term::same("temperature", config.temperature),
      Term::same("reduction", Index{config.reduction}),
      Term::same("gradients", Index{config.gradients}),
      Term::same("valid_vocab", config.valid_vocab),
      Term::same("student_hidden", config.student_hidden),
      Term::same("teacher_hidden", config.teacher_hidden),
  };
  std::vector<Term> of_vocab_group = {
      Term::told("vocab", s.vocab),
      Term::same("tokens", config.tokens),
      Term::same("has_labels", Index{config.has_labels != 0}),
      Term::same("ignore_index", config.ignore_index),
  };
  of_vocab_group.insert(of_vocab_group.end(), common.begin(), common.end());
  const std::vector<std::int64_t> shards = compare(groups.vocab, "vocabulary", of_vocab_group, refusal);
  Index first_entry = 0, all_entries = shards.empty() ? s.vocab : 0;
  for (std::size_t r = 0; r * of_vocab_group.size() < shards.size(); ++r) {
    if (r == static_cast<std::size_t>(groups.vocab->rank())) first_entry = all_entries;
    all_entries += shards[r * of_vocab_group.size()];
  }
  if (!refusal && (config.valid_vocab < 0 || config.valid_vocab > all_entries)) {
    refusal = Failure(FLJSD_INVALID_ARGUMENT, "valid_vocab is " + std::to_string(config.valid_vocab) +
                                                  ", but it must be 0 (all) or in [1, " +
                                                  std::to_string(all_entries) + "], the rows of all shards.");
  }
  std::vector<Term> of_token_group = {Term::same("vocab", s.vocab),
                                      Term::same("first entry of the shard", first_entry),
                                      Term::same("sum_weight_gradients", Index{groups.sum_weight_gradients})};
  of_token_group.insert(of_token_group.end(), common.begin(), common.end());
  compare(asked_tokens(groups), "token", of_token_group, refusal);
  const Index valid = config.valid_vocab == 0 ? all_entries : config.valid_vocab;
  s.valid_vocab = std::clamp<Index>(valid - first_entry, 0, s.vocab);
  return s;
}

// What only one group heard in the comparison gets to the whole grid: first to the ranks with the same
// tokens, and from each of them to those with the same shard.
void tell_refusal(const RankGroups& groups, std::optional<Failure>& refusal) {
  compare(groups.vocab, "vocabulary", {}, refusal);
  compare(asked_tokens(groups), "token", {}, refusal);
}

// Everything that is made once.
struct Distributed::Parts {
  OnePassStatistics statistics;
  std::optional<ShardSweep> sweep;  // none for a shard or batch without entries
};

// Arrays of one pass in the workspace.
struct Distributed::Arrays {
  BatchArrays batch;
  ShardSweep::Arrays sweep;
  float* record = nullptr;          // [tokens, state_floats]: of this shard
  float* records = nullptr;         // [ranks, tokens, state_floats]; null if the vocabulary is not cut
  float* merged = nullptr;          // [tokens, state_floats]
  float* input_grad_sum = nullptr;  // [tokens, hidden]: where the sweep has none
  Tally* own_tally = nullptr;       // [1]
  Tally* tallies = nullptr;         // [ranks]
};

Distributed::Distributed(const Settings& settings, const RankGroups& groups)
    : settings_(settings), groups_(groups), parts_(std::make_unique<Parts>()) {
  const Settings& s = settings_;
  Parts& p = *parts_;
  p.statistics.kind = divergence_kind(s.beta);
  if (s.tokens > 0) p.statistics = OnePassStatistics(s);
  if (s.tokens > 0 && s.valid_vocab > 0) {
    p.sweep.emplace(sweep_settings(s, vocab_ranks()), p.statistics);
    p.sweep->prepare([&](fljsd_pass pass) { return workspace_bytes(pass); });
    return;
  }
  for (const fljsd_pass pass : {FLJSD_FORWARD, FLJSD_FORWARD_BACKWARD}) {
    if (s.memory_budget == 0 || (pass == FLJSD_FORWARD_BACKWARD && !s.any_grad())) continue;
    if (workspace_bytes(pass) > s.memory_budget) {
      fail(FLJSD_WORKSPACE_TOO_SMALL, "memory_budget is ", s.memory_budget,
           " bytes, but this rank, which has ", s.tokens, " tokens and ", s.valid_vocab,
           " entries that exist, needs ", workspace_bytes(pass), ".");
    }
  }
}

Distributed::~Distributed() = default;

Index Distributed::workspace_bytes(fljsd_pass pass) const {
  Workspace measure(nullptr);
  lay_out(pass, measure, nullptr);
  return measure.used();
}

Distributed::Arrays Distributed::lay_out(fljsd_pass pass, Workspace& workspace, const Call* call) const {
  const Settings& s = settings_;
  Arrays a;
  if (groups_.tokens != nullptr) {
    a.own_tally = workspace.take<Tally>(1);
    a.tallies = workspace.take<Tally>(token_ranks());
  }
  if (s.tokens == 0) return a;
  a.batch = begin_batch(s, pass, workspace, call);
  const Index record = s.tokens * parts_->statistics.record_floats(pass);
  a.record = workspace.take<float>(record);
  a.merged = a.record;
  if (groups_.vocab != nullptr) {
    a.records = workspace.take<float>(vocab_ranks() * record);
    a.merged = workspace.take<float>(record);
  }
  if (parts_->sweep) a.sweep = parts_->sweep->lay_out(pass, workspace);
  if (pass == FLJSD_FORWARD_BACKWARD && sums_input_grad(s, vocab_ranks())) {
    a.input_grad_sum = parts_->sweep && s.gradient_dtype != FLJSD_F32
                           ? a.sweep.tiled.backward.input_grad_sum
                           : workspace.take<float>(s.tokens * s.student.hidden);
  }
  return a;
}

void Distributed::run(fljsd_pass pass, const Call& call) const {
  if (groups_.vocab != nullptr || groups_.tokens != nullptr) {
    // NCCL launches the kernels of a non-blocking communicator from a thread of its own, where this means
    // another stream.
    if (call.stream == cudaStreamPerThread)
      fail(FLJSD_UNSUPPORTED,
           "stream is cudaStreamPerThread, but other ranks need a stream with a name of its own.");
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(call.stream, &capture), "asking whether the stream is being captured");
    if (capture != cudaStreamCaptureStatusNone)
      fail(FLJSD_UNSUPPORTED,
           "stream is being captured into a CUDA graph, but calls that wait for other ranks cannot be.");
  }
  run_in_step(groups_, [&] { enqueue(pass, call); });
}

void Distributed::enqueue(fljsd_pass pass, const Call& call) const {
  const Settings& s = settings_;
  const Parts& p = *parts_;
  for (const Communicator* c : {groups_.vocab, groups_.tokens})
    if (c != nullptr) c->check_health();
  Workspace workspace(call.workspace);
  const Arrays a = lay_out(pass, workspace, &call);
  const bool backward = pass == FLJSD_FORWARD_BACKWARD, cut_tokens = groups_.tokens != nullptr;

  if (backward && s.divisor_on_device() && cut_tokens) {
    exchange_tallies(call, a, nullptr);
    if (s.tokens > 0) {
      launch_combined_factor(call.stream, a.tallies, token_ranks(), gradient_alpha(s), a.batch.scalars);
    }
  }
  if (s.tokens > 0) {
    const Ignored ignored = ignored_tokens(s, call);
    const OnePassStatistics& statistics = p.statistics;
    if (p.sweep) {
      p.sweep->run_sums(pass, call, a.batch, a.sweep, a.record);
    } else {
      launch_empty_records(call.stream, statistics.kind, basis_of(pass), s.tokens, a.record);
    }
    if (a.records != nullptr) {
      const Index floats = statistics.record_floats(pass);
      groups_.vocab->all_gather(a.record, a.records, s.tokens * floats * Index{sizeof(float)}, call.stream);
      launch_merge_records(call.stream, statistics.kind, basis_of(pass), statistics.mixture,
                           statistics.weights[pass].phase_step,
                           {a.records, vocab_ranks(), floats, s.tokens * floats}, s.tokens, ignored,
                           a.merged);
    }
    statistics.finish(call.stream, pass, {a.merged, 1}, s.tokens, ignored, a.batch.token_loss,
                      a.sweep.tiled.backward.constants);
  }
  if (backward) run_gradients(call, a);
  if (s.reduction == FLJSD_NONE) return;
  if (cut_tokens) {
    exchange_tallies(call, a, a.batch.token_loss);
    if (call.tensors.loss != nullptr) {
      launch_combined_loss(call.stream, a.tallies, token_ranks(), s.reduction == FLJSD_BATCHMEAN,
                           call.tensors.loss);
    }
  } else if (s.tokens > 0) {
    finish_losses(s, call, a.batch.token_loss);
  } else if (call.tensors.loss != nullptr) {
    check(cudaMemsetAsync(call.tensors.loss, 0, sizeof(float), call.stream), "writing the loss");
  }
}

void Distributed::exchange_tallies(const Call& call, const Arrays& a, const float* token_loss) const {
  launch_tally(call.stream, token_loss, ignored_tokens(settings_, call), settings_.tokens, a.own_tally);
  groups_.tokens->all_gather(a.own_tally, a.tallies, Index{sizeof(Tally)}, call.stream);
}

void Distributed::run_gradients(const Call& call, const Arrays& a) const {
  const Settings& s = settings_;
  if (parts_->sweep) {
    Call shard = call;
    // In fp32 the sweep adds up where the result is wanted: here, in our array. In another format it adds up
    // in its own array, and rounds that too; what is rounded below replaces it.
    if (a.input_grad_sum != nullptr && s.gradient_dtype == FLJSD_F32)
      shard.tensors.student_input_grad = a.input_grad_sum;
    parts_->sweep->run_gradients(shard, a.batch, a.sweep, groups_.vocab == nullptr);
  } else {
    clear_gradients_of_weight(s, call);
  }
  if (s.tokens > 0 && s.input_grad) {
    if (a.input_grad_sum != nullptr) {
      const Index count = s.tokens * s.student.hidden;
      if (!parts_->sweep) {
        check(cudaMemsetAsync(a.input_grad_sum, 0, static_cast<std::size_t>(count) * sizeof(float),
                              call.stream),
              "clearing the input gradient");
      }
      groups_.vocab->all_reduce_sum(a.input_grad_sum, count, call.stream);
      launch_round(call.stream, a.input_grad_sum, s.tokens, s.student.hidden, call.tensors.student_input_grad,
                   s.gradient_dtype, s.input_grad_ld);
      // NaN in a weight leaves NaN in the sums of tokens that do not count.
      if (s.has_labels) {
        launch_clear_ignored(call.stream, s.tokens, s.student.hidden, call.tensors.student_input_grad,
                             s.gradient_dtype, s.input_grad_ld, ignored_tokens(s, call));
      }
    }
  }
  if (groups_.sum_weight_gradients && groups_.tokens != nullptr) sum_gradients_of_weight(call);
}

void Distributed::sum_gradients_of_weight(const Call& call) const {
  const Settings& s = settings_;
  if (s.weight_grad) {
    groups_.tokens->all_reduce_sum(static_cast<float*>(call.tensors.student_weight_grad),
                                   s.vocab * s.student.hidden, call.stream);
  }
  if (s.bias_grad) groups_.tokens->all_reduce_sum(call.tensors.student_bias_grad, s.vocab, call.stream);
}

void Distributed::tune(fljsd_pass pass, const Call& call) {
  run(pass, call);  // real data in every operand, and every rank does the same number of exchanges
  const Communicator* any = groups_.vocab != nullptr ? groups_.vocab : groups_.tokens;
  if (any != nullptr) wait_for(call.stream, {groups_.vocab, groups_.tokens}, any->limit());
  if (!parts_->sweep) return;
  Workspace workspace(call.workspace);
  const Arrays a = lay_out(pass, workspace, &call);
  Call shard = call;
  if (a.input_grad_sum != nullptr && settings_.gradient_dtype == FLJSD_F32)
    shard.tensors.student_input_grad = a.input_grad_sum;
  parts_->sweep->tune(pass, shard, a.batch, a.sweep);
}

Index Distributed::exchanged_bytes(fljsd_pass pass) const {
  const Settings& s = settings_;
  const bool backward = pass == FLJSD_FORWARD_BACKWARD;
  const Index v = vocab_ranks(), t = token_ranks();
  const auto sum = [](Index ranks, Index floats) { return 8 * (ranks - 1) * floats / ranks; };
  Index bytes = (v - 1) * s.tokens * parts_->statistics.record_floats(pass) * Index{sizeof(float)};
  if (backward && s.input_grad) bytes += sum(v, s.tokens * s.student.hidden);
  if (groups_.tokens == nullptr) return bytes;
  const Index tallies = (s.reduction != FLJSD_NONE ? 1 : 0) + (backward && s.divisor_on_device() ? 1 : 0);
  bytes += tallies * (t - 1) * Index{sizeof(Tally)};
  if (backward && groups_.sum_weight_gradients) {
    if (s.weight_grad) bytes += sum(t, s.vocab * s.student.hidden);
    if (s.bias_grad) bytes += sum(t, s.vocab);
  }
  return bytes;
}

std::string Distributed::describe() const {
  const auto place = [](const char* what, const Communicator* c) {
    return c == nullptr ? std::string("all ") + what
                        : "rank " + std::to_string(c->rank()) + " of " + std::to_string(c->ranks()) +
                              " for the " + what;
  };
  std::string text = place("vocabulary", groups_.vocab) + ", " + place("tokens", groups_.tokens) + "; " +
                     std::to_string(settings_.valid_vocab) + " entries of its shard exist\n";
  text += "sends " + std::to_string(exchanged_bytes(FLJSD_FORWARD)) + " bytes forward";
  if (settings_.any_grad())
    text += ", " + std::to_string(exchanged_bytes(FLJSD_FORWARD_BACKWARD)) + " with gradients";
  text += "\n";
  return parts_->sweep ? text + parts_->sweep->describe() : text;
}

}  // namespace fljsd::cuda
