// SPDX-License-Identifier: Apache-2.0
#include "cuda/rank_agreement.h"

#include <cstring>
#include <sstream>

namespace fljsd::cuda {
namespace {

std::string to_text(const Term& term, std::int64_t bits) {
  std::ostringstream text;
  text.precision(17);
  if (term.kind == Term::Kind::same_double) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    text << value;
  } else {
    text << bits;
  }
  return text.str();
}

}  // namespace

Term Term::same(const char* field, double value) {
  Term term{field, Kind::same_double, 0};
  std::memcpy(&term.bits, &value, sizeof value);
  return term;
}

std::vector<std::int64_t> agree(const Communicator& communicator, const char* group,
                                const std::vector<Term>& terms, bool refused) {
  std::vector<std::int64_t> mine;
  for (const Term& term : terms) mine.push_back(term.bits);
  mine.push_back(refused ? 1 : 0);
  const std::vector<std::byte> bytes = communicator.exchange(mine.data(), mine.size() * sizeof(std::int64_t));
  std::vector<std::int64_t> all(bytes.size() / sizeof(std::int64_t));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  const auto ranks = static_cast<std::size_t>(communicator.ranks());
  std::vector<std::int64_t> values;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::int64_t* theirs = all.data() + r * mine.size();
    if (theirs[terms.size()] != 0 && !refused)
      fail(FLJSD_INVALID_ARGUMENT, "Rank ", r, " of the ", group, " group refused its configuration.");
    values.insert(values.end(), theirs, theirs + terms.size());
  }
  if (refused) return values;
  for (std::size_t r = 1; r < ranks; ++r) {
    for (std::size_t i = 0; i < terms.size(); ++i) {
      const std::int64_t first = values[i], other = values[r * terms.size() + i];
      if (terms[i].kind == Term::Kind::told || first == other) continue;
      fail(FLJSD_INVALID_ARGUMENT, terms[i].field, " must be the same on all ranks of the ", group,
           " group, but rank 0 has ", to_text(terms[i], first), " and rank ", r, " has ",
           to_text(terms[i], other), ".");
    }
  }
  return values;
}

}  // namespace fljsd::cuda
