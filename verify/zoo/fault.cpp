// SPDX-License-Identifier: Apache-2.0
#include "verify/zoo/fault.h"

#include <stdexcept>
#include <vector>

#include "verify/report/suggest.h"
#include "verify/zoo/bf16_logits.h"
#include "verify/zoo/make_fault.h"

namespace fljsd::zoo {
namespace {

struct Correct : Twin<double> {
  static constexpr About about{"correct", "No fault: the textbook's algorithm in float64."};
};

struct CorrectInFloat32 : Twin<float> {
  static constexpr About about{"correct-fp32", "No fault: the same in fp32."};
};

struct CorrectWithBfloat16Logits : Bfloat16LogitsTwin {
  static constexpr About about{"correct-bf16-logits", "No fault: fp32, with logits rounded to bf16 once."};
};

}  // namespace

std::span<const Fault> faults() {
  static const std::vector<Fault> all = [] {
    std::vector<Fault> joined;
    for (const auto& part :
         {reading_faults(), selection_faults(), logit_faults(), softmax_faults(), divergence_faults(),
          reduction_faults(), gradient_faults(), state_faults(), process_faults()})
      joined.insert(joined.end(), part.begin(), part.end());
    return joined;
  }();
  return all;
}

std::span<const Fault> correct_twins() {
  static const std::vector<Fault> twins = list<Correct, CorrectInFloat32, CorrectWithBfloat16Logits>("none");
  return twins;
}

const Fault& find_fault(std::string_view name) {
  for (const auto part : {faults(), correct_twins()})
    for (const Fault& fault : part)
      if (fault.about.name == name) return fault;
  std::vector<std::string> names;
  for (const Fault& fault : faults()) names.emplace_back(fault.about.name);
  throw std::invalid_argument(unknown_name("fault", name, names));
}

std::unique_ptr<Candidate> make(const Fault& fault) {
  return fault.make(fault);
}

}  // namespace fljsd::zoo
