// SPDX-License-Identifier: Apache-2.0
// Histograms of errors per token, one for each candidate, on one axis.
#pragma once

#include <optional>
#include <vector>

#include "verify/audit/render_html_parts.h"

namespace fljsd::html {

struct HistogramRow {
  Markup name;
  AccuracyClass accuracy_class = AccuracyClass::fp32_logits;
  std::vector<double> errors;  // one for each token
};

// `reference` is a value that every histogram is to be compared with, drawn as a line.
Markup histogram_drawing(const std::vector<HistogramRow>& rows, const Markup& unit,
                         std::optional<double> reference);

}  // namespace fljsd::html
