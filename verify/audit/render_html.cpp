// SPDX-License-Identifier: Apache-2.0
#include "verify/audit/render_html.h"

#include <fmt/format.h>

#include "verify/audit/render.h"

namespace fljsd {

std::string audit_html(const AuditReport& report) {
  using namespace html;
  struct Link {
    std::string anchor, text;
  };
  std::vector<Link> links;
  Markup sections;
  const auto add = [&](const char* anchor, const char* text, const Markup& markup) {
    if (markup.empty()) return;
    links.push_back({anchor, text});
    sections += markup;
  };
  add("candidates", "Candidates", candidates_section(report));
  add("ratios", "Test ratios", ratios_section(report));
  add("errors", "Errors by family", errors_section(report));
  add("tokens", "Tokens", tokens_section(report));
  for (std::size_t i = 0; i < report.in_depth.size(); ++i)
    add(fmt::format("depth-{}", i).c_str(),
        fmt::format("In depth: {}", report.in_depth[i].info.family).c_str(),
        depth_section(report.in_depth[i], i));
  add("rounding", "Roundings", rounding_section(report));
  add("terms", "Terms", terms_section());
  add("record", "Run record", record_section(report.run));

  Markup navigation;
  for (const Link& link : links) navigation += {element("a", {{"href", "#" + link.anchor}}, link.text), " "};

  const Markup head = {
      element("meta", {{"charset", "utf-8"}}),
      element("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}}),
      element("meta", {{"name", "color-scheme"}, {"content", "light dark"}}),
      element("title", {}, fmt::format("fljsd audit: {}", report.pass() ? "passed" : "not passed")),
      element("style", {}, Markup::verbatim(style_sheet()))};
  const Markup body = {
      marker_definitions(),
      element("main", {},
              {verdict_header(report), element("nav", {{"aria-label", "Sections"}}, navigation), sections})};
  const Markup page = element("html", {{"xmlns", "http://www.w3.org/1999/xhtml"}, {"lang", "en"}},
                              {element("head", {}, head), element("body", {}, body)});
  return "<!DOCTYPE html>\n" + page.str() + '\n';
}

}  // namespace fljsd
