// SPDX-License-Identifier: Apache-2.0
#include "verify/reproduce/comparison.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace fljsd {
namespace {

const BenchmarkDatum* find(const std::vector<BenchmarkDatum>& data, const std::string& provider,
                           const std::string& mode, const std::string& metric, Index tokens) {
  const auto found = std::find_if(data.begin(), data.end(), [&](const BenchmarkDatum& d) {
    return d.provider == provider && d.mode == mode && d.metric == metric && d.tokens == tokens;
  });
  return found == data.end() ? nullptr : &*found;
}

Pass pass_of(const std::string& mode) {
  return mode == "full" ? Pass::full : Pass::forward;
}

// Liger-Kernel cuts the tokens into ceil(tokens / ceil(vocab / hidden)) at a time, rounded up to a power of
// two.
Index liger_chunks(Index tokens, Index vocab, Index hidden) {
  const Index wanted = (tokens + (vocab + hidden - 1) / hidden - 1) / ((vocab + hidden - 1) / hidden);
  Index rows = 1;
  while (rows < wanted) rows *= 2;
  return (tokens + rows - 1) / rows;
}

std::string explain(const BenchmarkDatum& d, Index vocab, Index hidden) {
  if (d.metric == "memory")
    return d.provider == "torch" ? "MiB, at the peak: both weights and their gradients (the baseline trains "
                                   "the teacher too), and "
                                   "logits in several copies"
                                 : "MiB, at the peak: both weights and a gradient of the student's are in it";
  std::string text;
  if (d.provider == "liger") {
    const Index chunks = liger_chunks(d.tokens, vocab, hidden);
    text = fmt::format(
        "{}{} chunks of {} tokens, each of which reads both weights and reads and writes the "
        "weight's gradient",
        d.mode == "forward" ? "the forward call computes the gradients too; " : "", chunks,
        d.tokens / chunks);
  } else {
    text = d.mode == "forward" ? "logits and log-probabilities through memory, several times"
                               : "the same, and the teacher's gradients too";
  }
  if (d.low == d.high) text += "; a single sample";
  return text;
}

Reproduction judge(const std::string& published_gpu, const std::string& gpu, double published,
                   std::optional<double> measured) {
  if (!measured) return Reproduction::not_measured;
  if (published_gpu != gpu) return Reproduction::different_hardware;
  return std::abs(*measured / published - 1) <= reproduction_tolerance ? Reproduction::reproduced
                                                                       : Reproduction::not_reproduced;
}

}  // namespace

const char* name(Reproduction verdict) {
  switch (verdict) {
    case Reproduction::reproduced: return "reproduced";
    case Reproduction::not_reproduced: return "not reproduced";
    case Reproduction::different_hardware: return "other hardware";
    case Reproduction::not_measured: return "not measured";
  }
  return "?";
}

PublishedComparison compare(const std::vector<BenchmarkDatum>& published,
                            const std::vector<BenchmarkDatum>& peers, const BenchRecord& record,
                            bool measured_now) {
  PublishedComparison c;
  c.measured_now = measured_now;
  c.vocab = record.vocab;
  c.hidden = record.hidden;
  c.measured_gpu = record.gpu.name;
  c.measured_date = record.run.date;
  c.measured_rates = datasheet_rates(record.gpu.name);
  if (!published.empty()) {
    c.published_gpu = published.front().gpu;
    c.published_date = published.front().timestamp.substr(0, 10);
    c.published_version = published.front().version;
    c.published_rates = datasheet_rates(c.published_gpu);
  }
  // The record's own peers, measured in the same run, go before those of another one.
  const bool own_peers =
      std::any_of(record.rows.begin(), record.rows.end(), [](const BenchRow& r) { return r.is_peer(); });
  if (own_peers) {
    c.peers_gpu = c.measured_gpu;
    c.peers_date = c.measured_date;
  } else if (!peers.empty()) {
    c.peers_gpu = peers.front().gpu;
    c.peers_date = peers.front().timestamp;
  }
  const auto measured = [&](const BenchmarkDatum& d) -> std::optional<double> {
    if (!own_peers) {
      const BenchmarkDatum* peer = find(peers, d.provider, d.mode, d.metric, d.tokens);
      return peer == nullptr ? std::nullopt : std::optional(peer->median);
    }
    const BenchRow* row = record.find("uniform", d.tokens, d.mode, d.provider);
    if (row == nullptr) return std::nullopt;
    if (d.metric == "speed") return row->median();
    if (!row->device_bytes) return std::nullopt;  // which is not 0
    return static_cast<double>(*row->device_bytes) / (1 << 20);
  };
  const auto floor = [&](const std::optional<GpuRates>& rates, const std::string& mode, Index tokens) {
    return rates ? std::optional(floors(*rates, pass_of(mode), tokens, c.vocab, c.hidden)) : std::nullopt;
  };
  for (const BenchmarkDatum& d : published) {
    PublishedRow row{d.provider, d.mode, d.metric, d.tokens, d.median, d.low == d.high, {}, {}, {}, {}, {}};
    row.measured = measured(d);
    row.verdict = judge(c.published_gpu, c.peers_gpu, d.median, row.measured);
    if (d.metric == "speed") {
      row.floor = floor(c.published_rates, d.mode, d.tokens);
      row.measured_floor = floor(datasheet_rates(c.peers_gpu), d.mode, d.tokens);
    }
    row.explanation = explain(d, c.vocab, c.hidden);
    c.published.push_back(row);
  }
  for (const BenchRow& r : record.rows) {
    if (r.inputs != "uniform" || r.is_peer()) continue;
    StageRow row{r.variant, r.pass, r.tokens, r.median(), r.median_ratio, {}, {}, {}};
    row.floor = floor(c.measured_rates, r.pass, r.tokens);
    const auto over = [&](const char* provider) -> std::optional<double> {
      const BenchmarkDatum* d = find(published, provider, r.pass, "speed", r.tokens);
      return d == nullptr ? std::nullopt : std::optional(d->median / row.milliseconds);
    };
    row.over_torch = over("torch");
    row.over_liger = over("liger");
    c.stages.push_back(row);
  }
  return c;
}

}  // namespace fljsd
