// SPDX-License-Identifier: Apache-2.0
#include "cuda/vocab_tiles.h"

#include <algorithm>

namespace fljsd::cuda {
namespace {

constexpr float zero = 0, one = 1;

}  // namespace

Pieces cut(Index total, Index size, Index unit) {
  if (size >= total) return {total, total};
  const Index even = round_up(ceil_div(total, ceil_div(total, size)), unit);
  return {total, std::min(total, std::max(unit, std::min(even, round_up(size, unit))))};
}

Index whole_waves(const Device& device, Index rows, Index bytes_of_entry, Index bytes) {
  const Index processors = device.multiprocessors, down = ceil_div(rows, 128);
  const Index most = std::max<Index>(1, bytes / bytes_of_entry / rows / 256);
  Index best = 1;
  double best_share = 0;
  for (Index across = most; across >= std::max<Index>(1, most / 2); --across) {
    const Index pieces = down * across;
    const double share = static_cast<double>(pieces) / static_cast<double>(round_up(pieces, processors));
    if (share >= 0.97) return 256 * across;
    if (share > best_share) best = across, best_share = share;
  }
  return 256 * best;
}

TileBuffers take_tile(Workspace& workspace, Index rows, Index columns, fljsd_dtype logits) {
  TileBuffers buffers;
  buffers.gemm_workspace = workspace.take<std::byte>(Gemm::workspace_size);
  buffers.student_logits = workspace.take(logits, rows * logits_ld(columns));
  buffers.teacher_logits = workspace.take(logits, rows * logits_ld(columns));
  return buffers;
}

LogitProducts::LogitProducts(const std::shared_ptr<const LtHandle>& lt, const Settings& s, Index rows,
                             Index columns, fljsd_dtype logits)
    : student_model_(s.student),
      teacher_model_(s.teacher),
      student_(lt, logits_spec("student logits", s.student, rows, columns, logits)),
      teacher_(lt, logits_spec("teacher logits", s.teacher, rows, columns, logits)) {}

Gemm::Operands LogitProducts::operands(const Model& m, const void* input, const void* weight, void* logits,
                                       const TileBuffers& buffers, Index token, Index entry) const {
  return {at(input, m.dtype, token * m.input_ld),
          at(weight, m.dtype, entry * m.weight_ld),
          logits,
          &one,
          &zero,
          buffers.gemm_workspace};
}
Gemm::Operands LogitProducts::student_operands(const Call& call, const TileBuffers& buffers, Index token,
                                               Index entry) const {
  return operands(student_model_, call.tensors.student_input, call.tensors.student_weight,
                  buffers.student_logits, buffers, token, entry);
}
Gemm::Operands LogitProducts::teacher_operands(const Call& call, const TileBuffers& buffers, Index token,
                                               Index entry) const {
  return operands(teacher_model_, call.tensors.teacher_input, call.tensors.teacher_weight,
                  buffers.teacher_logits, buffers, token, entry);
}

void LogitProducts::run(const Call& call, const TileBuffers& buffers, Index token, Index entry) const {
  student_.run(call.stream, student_operands(call, buffers, token, entry));
  teacher_.run(call.stream, teacher_operands(call, buffers, token, entry));
}

void LogitProducts::tune(const Call& call, const TileBuffers& buffers, Index token, Index entry) {
  student_.tune(call.stream, student_operands(call, buffers, token, entry));
  teacher_.tune(call.stream, teacher_operands(call, buffers, token, entry));
}

std::string LogitProducts::describe() const {
  return "  " + student_.describe() + "\n  " + teacher_.describe() + "\n";
}

LogitTile logit_tile(const Settings& s, const Call& call, const BatchArrays& batch,
                     const TileBuffers& buffers, Index token, Index rows, Index entry, Index columns) {
  const auto from = [&](const float* bias) { return bias != nullptr ? bias + entry : nullptr; };
  return {static_cast<const float*>(buffers.student_logits),
          static_cast<const float*>(buffers.teacher_logits),
          logits_ld(columns),
          rows,
          columns,
          from(batch.student_bias),
          from(batch.teacher_bias),
          ignored_tokens(s, call, token)};
}

}  // namespace fljsd::cuda
