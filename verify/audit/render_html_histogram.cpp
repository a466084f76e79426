// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/render_html_histogram.h"

#include <algorithm>

#include <fmt/format.h>

#include "verify/audit/histogram.h"

namespace fljsd::html {
namespace {

constexpr double height = 47, room_for_text = 15;

// What every bar of a drawing is measured with.
struct Scale {
  LogAxis axis;
  std::size_t most;  // tokens in the fullest bin; edges that hold more are as high, and say how many
  double bar(std::size_t count) const {
    const double share = std::min(1.0, static_cast<double>(count) / static_cast<double>(most));
    return std::max(1.5, (height - room_for_text) * share);
  }
};

Markup bar(double left, double width, double size, const std::string& classes) {
  return element("rect", {{"class", classes},
                          {"x", percent_of_width(left)},
                          {"width", percent_of_width(width)},
                          {"y", height - size},
                          {"height", size}});
}

Markup count_above(double place, double size, std::size_t count) {
  return element("text",
                 {{"class", "count"},
                  {"x", percent_of_width(place)},
                  {"y", height - size - 3},
                  {"text-anchor", "middle"}},
                 fmt::format("{}", count));
}

Markup draw(const HistogramRow& row, const Histogram& h, const Scale& scale,
            std::optional<double> reference) {
  const LogAxis& axis = scale.axis;
  const std::string colour = css(row.accuracy_class);
  Markup content = axis_lines(axis, height);
  content += line_at(axis, reference, 0, height, "zero-line");
  std::string spoken = fmt::format("{} tokens", h.total);
  if (h.zero > 0) {
    content += bar(LogAxis::zero_place - 1.2, 2.4, scale.bar(h.zero), "bin " + colour);
    content += count_above(LogAxis::zero_place, scale.bar(h.zero), h.zero);
    spoken += fmt::format(", {} with error 0", h.zero);
  }
  std::size_t fullest = 0;
  for (std::size_t b = 0; b < h.counts.size(); ++b) {
    if (h.counts[b] == 0) continue;
    const double from = axis.place(h.low(b)), to = axis.place(h.high(b));
    content += bar(from, std::max(to - from, 0.3), scale.bar(h.counts[b]), "bin " + colour);
    if (h.counts[b] > h.counts[fullest]) fullest = b;
  }
  if (!h.counts.empty()) {
    const double middle = (axis.place(h.low(fullest)) + axis.place(h.high(fullest))) / 2;
    content += count_above(middle, scale.bar(h.counts[fullest]), h.counts[fullest]);
    spoken +=
        fmt::format(", errors from {} to {}", error_text(h.low(0)), error_text(h.high(h.counts.size() - 1)));
  }
  if (h.not_finite > 0) {
    content += bar(LogAxis::not_finite_place - 1.2, 2.4, scale.bar(h.not_finite), "bin bad");
    content += count_above(LogAxis::not_finite_place, scale.bar(h.not_finite), h.not_finite);
    spoken += fmt::format(", {} NaN or infinite", h.not_finite);
  }
  return drawing_row(row.name, fmt::format("{} tokens", h.total), svg(height, spoken + '.', content));
}

}  // namespace

Markup histogram_drawing(const std::vector<HistogramRow>& rows, const Markup& unit,
                         std::optional<double> reference) {
  std::vector<Histogram> histograms;
  std::vector<double> ends;
  std::size_t most = 1;
  if (reference) ends.push_back(*reference);
  for (const HistogramRow& row : rows) {
    Histogram h = histogram(row.errors);
    for (const std::size_t count : h.counts) most = std::max(most, count);
    if (!h.counts.empty()) ends.insert(ends.end(), {h.low(0), h.high(h.counts.size() - 1)});
    histograms.push_back(std::move(h));
  }
  const Scale scale{LogAxis(ends), most};
  Markup content = axis_labels(scale.axis, unit);
  for (std::size_t i = 0; i < rows.size(); ++i) content += draw(rows[i], histograms[i], scale, reference);
  content += axis_labels(scale.axis, unit);
  return element("div", {{"class", "drawing"}}, content);
}

}  // namespace fljsd::html
