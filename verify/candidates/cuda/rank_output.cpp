// SPDX-License-Identifier: Apache-2.0
#include "verify/candidates/cuda/rank_output.h"

#include <cstring>

namespace fljsd {

Bytes pack(const RankOutput& output, const std::vector<std::string>& violations) {
  Bytes packed;
  const auto add = [&](const void* data, std::size_t size) {
    const auto* size_bytes = reinterpret_cast<const std::byte*>(&size);
    packed.insert(packed.end(), size_bytes, size_bytes + sizeof size);
    const auto* bytes = static_cast<const std::byte*>(data);
    packed.insert(packed.end(), bytes, bytes + size);
  };
  for (const Bytes* bytes :
       {&output.loss, &output.token_loss, &output.input_grad, &output.weight_grad, &output.bias_grad})
    add(bytes->data(), bytes->size());
  for (const std::string& sentence : violations) add(sentence.data(), sentence.size());
  return packed;
}

void unpack(const Bytes& packed, RankOutput& output, std::vector<std::string>& violations) {
  std::size_t at = 0;
  const auto take = [&] {
    std::size_t size = 0;
    std::memcpy(&size, packed.data() + at, sizeof size);
    at += sizeof size + size;
    return Bytes(packed.begin() + static_cast<std::ptrdiff_t>(at - size),
                 packed.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (Bytes* bytes :
       {&output.loss, &output.token_loss, &output.input_grad, &output.weight_grad, &output.bias_grad})
    *bytes = take();
  violations.clear();
  while (at < packed.size()) {
    const Bytes sentence = take();
    violations.emplace_back(reinterpret_cast<const char*>(sentence.data()), sentence.size());
  }
}

}  // namespace fljsd
