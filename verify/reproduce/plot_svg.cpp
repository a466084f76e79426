// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "verify/reproduce/render.h"

namespace fljsd {
namespace {

struct Line {
  std::string label, colour;
  bool dashed = false;
  std::map<Index, double> points;  // tokens, milliseconds
};

// A logarithmic axis in pixels.
struct Axis {
  double low, high, from, to;
  double operator()(double value) const {
    return from + (to - from) * std::log(value / low) / std::log(high / low);
  }
};

std::vector<Line> lines_of(const PublishedComparison& c) {
  // Colour-blind safe (Okabe and Ito).
  std::vector<Line> lines;
  const auto published = [&](const char* provider, const char* label, const char* colour) {
    Line line{fmt::format("{}, published ({})", label, c.published_gpu), colour, false, {}};
    Line again{fmt::format("{}, measured ({})", label, c.peers_gpu), colour, true, {}};
    for (const PublishedRow& r : c.published) {
      if (r.provider != provider || r.mode != "forward" || r.metric != "speed") continue;
      line.points[r.tokens] = r.published;
      if (r.measured) again.points[r.tokens] = *r.measured;
    }
    lines.push_back(line);
    lines.push_back(again);
  };
  published("liger", "Liger", "#D55E00");
  published("torch", "PyTorch", "#0072B2");
  const auto stage = [&](const char* name, const char* colour) {
    Line line{fmt::format("{} ({})", name, c.measured_gpu), colour, false, {}};
    for (const StageRow& r : c.stages)
      if (r.stage == name && r.mode == "forward") line.points[r.tokens] = r.milliseconds;
    lines.push_back(line);
  };
  stage("chunked-vocab", "#009E73");
  stage("fused", "#E69F00");
  stage("unfused", "#CC79A7");
  stage("gemm", "#000000");
  Line floor{fmt::format("floor ({})", c.measured_gpu), "#888888", true, {}};
  for (const StageRow& r : c.stages)
    if (r.floor && r.mode == "forward") floor.points[r.tokens] = r.floor->binding_ms();
  lines.push_back(floor);
  std::erase_if(lines, [](const Line& line) { return line.points.empty(); });
  return lines;
}

}  // namespace

std::string comparison_svg(const PublishedComparison& c) {
  const std::vector<Line> lines = lines_of(c);
  double low_x = 1e300, high_x = 0, low_y = 1e300, high_y = 0;
  for (const Line& line : lines) {
    for (const auto& [tokens, ms] : line.points) {
      low_x = std::min(low_x, static_cast<double>(tokens));
      high_x = std::max(high_x, static_cast<double>(tokens));
      low_y = std::min(low_y, ms);
      high_y = std::max(high_y, ms);
    }
  }
  if (lines.empty() || !(low_x < high_x)) low_x = 1, high_x = 2, low_y = 1, high_y = 10;
  low_y = std::pow(10, std::floor(std::log10(low_y)));
  high_y = std::pow(10, std::ceil(std::log10(high_y)));
  const Axis x{low_x, high_x, 70, 470}, y{low_y, high_y, 380, 30};
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 430\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n<rect width=\"860\" height=\"430\" fill=\"#ffffff\"/>\n";
  for (double ms = low_y; ms <= high_y * 1.001; ms *= 10) {
    svg += fmt::format(
        "<line x1=\"70\" x2=\"470\" y1=\"{0:.1f}\" y2=\"{0:.1f}\" stroke=\"#dddddd\"/>"
        "<text x=\"62\" y=\"{1:.1f}\" text-anchor=\"end\">{2:g}</text>\n",
        y(ms), y(ms) + 4, ms);
  }
  std::map<Index, bool> ticks;
  for (const Line& line : lines)
    for (const auto& point : line.points) ticks[point.first] = true;
  for (const auto& tick : ticks) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"30\" y2=\"380\" stroke=\"#eeeeee\"/>"
        "<text x=\"{0:.1f}\" y=\"398\" text-anchor=\"middle\">{1}</text>\n",
        x(static_cast<double>(tick.first)), tick.first);
  }
  svg += "<text x=\"270\" y=\"420\" text-anchor=\"middle\">tokens</text>\n";
  svg += fmt::format(
      "<text x=\"70\" y=\"18\">forward pass, ms; vocab {}, hidden {}, bf16, published inputs</text>\n",
      c.vocab, c.hidden);
  double label_y = 40;
  for (const Line& line : lines) {
    std::string path;
    for (const auto& [tokens, ms] : line.points)
      path +=
          fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x(static_cast<double>(tokens)), y(ms));
    const char* dash = line.dashed ? " stroke-dasharray=\"6 4\"" : "";
    svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n", path,
                       line.colour, dash);
    svg += fmt::format(
        "<line x1=\"490\" x2=\"515\" y1=\"{0:.0f}\" y2=\"{0:.0f}\" stroke=\"{1}\" stroke-width=\"2\"{2}/>"
        "<text x=\"522\" y=\"{3:.0f}\">{4}</text>\n",
        label_y, line.colour, dash, label_y + 4, line.label);
    label_y += 22;
  }
  return svg + "</svg>\n";
}

}  // namespace fljsd
