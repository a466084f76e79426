// SPDX-License-Identifier: Apache-2.0
// Faults of what takes part: labels and ignored tokens, ragged tiles of tokens, valid_vocab.
#include <algorithm>
#include <cstring>

#include "verify/zoo/make_fault.h"

namespace fljsd::zoo {
namespace {

constexpr Index token_tile = 4, chunk = 2;

struct LabelsAsInt32 : Twin<double> {
  static constexpr About about{"labels-as-int32", "The int64 labels are read as an array of int32."};
  std::int64_t label(Index token) const override {
    std::int32_t half;
    std::memcpy(&half, reinterpret_cast<const char*>(problem.labels->data()) + token * 4, 4);
    return half;
  }
};

struct LabelsTruncated : Twin<double> {
  static constexpr About about{
      "labels-truncated", "Labels are narrowed to int32: one that is 2^32 off the ignored one is ignored."};
  std::int64_t label(Index token) const override { return static_cast<std::int32_t>(Twin::label(token)); }
};

struct NegativeLabelsIgnored : Twin<double> {
  static constexpr About about{"negative-labels-ignored",
                               "Tokens with any negative label are ignored, not those with ignore_index."};
  bool counts(Index token) const override {
    return Twin::counts(token) && !(problem.labels && label(token) < 0);
  }
};

struct IgnoreIndexHardCoded : Twin<double> {
  static constexpr About about{"ignore-index-hard-coded", "ignore_index is -100, whatever the caller says."};
  bool counts(Index token) const override { return !problem.labels || label(token) != -100; }
};

struct LabelsNotSliced : Twin<double> {
  static constexpr About about{"labels-not-sliced",
                               "Each chunk of tokens is masked by the labels of the first chunk."};
  std::int64_t label(Index token) const override { return Twin::label(token % chunk); }
};

struct IgnoredTimesZero : Twin<double> {
  static constexpr About about{"ignored-times-zero",
                               "Ignored tokens are computed and multiplied by 0, which NaN survives."};
  void visit(Buffers& out, Index token, bool with_grad) override {
    mask = counts(token) ? 1 : 0;
    add_token(out, token, with_grad);
  }
  double token_loss(const Row& log_q, const Row& log_p) const override {
    return mask * Twin::token_loss(log_q, log_p);
  }
  double gradient(double log_q, double log_p, double kl) const override {
    return mask * Twin::gradient(log_q, log_p, kl);
  }
  double mask = 1;
};

struct MaskOnLossOnly : Twin<double> {
  static constexpr About about{"mask-on-loss-only",
                               "Ignored tokens are left out of the loss, but not of the gradients."};
  void visit(Buffers& out, Index token, bool with_grad) override {
    add_token(out, token, with_grad);
    if (!counts(token)) out.token_loss[static_cast<std::size_t>(token)] = 0;
  }
};

struct TokenTailDropped : Twin<double> {
  static constexpr About about{"token-tail-dropped", "Only full tiles of tokens are computed."};
  void visit(Buffers& out, Index token, bool with_grad) override {
    if (token < problem.tokens() / token_tile * token_tile) Twin::visit(out, token, with_grad);
  }
};

struct ValidVocabIgnored : Twin<double> {
  static constexpr About about{"valid-vocab-ignored", "Padded vocabulary columns take part in the softmax."};
  Index entries(Model) const override { return problem.vocab(); }
};

struct ValidVocabOfStudentOnly : Twin<double> {
  static constexpr About about{"valid-vocab-of-student-only",
                               "The teacher's softmax runs over the padded columns, the student's does not."};
  Index entries(Model model) const override {
    return model == Model::teacher ? problem.vocab() : Twin::entries(model);
  }
};

struct MaskOneTooMany : Twin<double> {
  static constexpr About about{"mask-one-too-many", "v <= valid_vocab in place of v < valid_vocab."};
  Index entries(Model model) const override { return std::min(Twin::entries(model) + 1, problem.vocab()); }
};

struct MaskOneTooFew : Twin<double> {
  static constexpr About about{"mask-one-too-few", "v < valid_vocab - 1 in place of v < valid_vocab."};
  Index entries(Model model) const override {
    return std::max<Index>(1, Twin::entries(model) - (options.valid_vocab ? 1 : 0));
  }
};

struct ZeroPaddedVocabulary : Twin<double> {
  static constexpr About about{"zero-padded-vocabulary",
                               "The vocabulary is padded to full tiles with logits of 0, not of -inf."};
  Normaliser normaliser(const Row& x) const override {
    Row padded = x;
    padded.resize((x.size() + 7) / 8 * 8, 0);
    return Twin::normaliser(padded);
  }
};

struct PaddingInInputGradient : Twin<double> {
  static constexpr About about{"padding-in-input-gradient",
                               "dX multiplies padded weight rows by 0; they may hold NaN."};
  void add_input_grad(Gradient& grad, Index token, const Row& g) const override {
    Row padded = g;
    padded.resize(static_cast<std::size_t>(problem.vocab()), 0);
    Twin::add_input_grad(grad, token, padded);
  }
};

struct VocabCutAt4096 : Twin<double> {
  static constexpr About about{"vocab-cut-at-4096",
                               "A row is one block of at most 4096 entries; what is beyond is left out."};
  Index entries(Model model) const override { return std::min<Index>(4096, Twin::entries(model)); }
};

struct TokensCutAt256 : Twin<double> {
  static constexpr About about{"tokens-cut-at-256", "A grid of at most 256 blocks, one for each token."};
  void visit(Buffers& out, Index token, bool with_grad) override {
    if (token < 256) Twin::visit(out, token, with_grad);
  }
};

}  // namespace

std::vector<Fault> selection_faults() {
  return list<LabelsAsInt32, LabelsTruncated, NegativeLabelsIgnored, IgnoreIndexHardCoded, LabelsNotSliced,
              IgnoredTimesZero, MaskOnLossOnly, TokenTailDropped, ValidVocabIgnored, ValidVocabOfStudentOnly,
              MaskOneTooMany, MaskOneTooFew, ZeroPaddedVocabulary, PaddingInInputGradient, VocabCutAt4096,
              TokensCutAt256>("selection");
}

}  // namespace fljsd::zoo
