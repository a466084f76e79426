// SPDX-License-Identifier: Apache-2.0
// The page's style sheet. It holds neither & nor <, so that it may stand in XHTML as it is.
//
// Colours are named once for light and once for dark; each text colour has a contrast of at least 4.5 on each
// background that it stands on. Colour repeats what words, shapes or places say already.
#include "verify/audit/render_html.h"

namespace fljsd::html {

const char* style_sheet() {
  return R"css(
:root {
  color-scheme: light dark;
  --page: #ffffff; --panel: #f5f7f9; --ink: #1a2026; --dim: #56616c; --line: #cfd6dd; --grid: #e4e9ed;
  --bf16: #a13f08; --fp32: #0a58a0; --f64: #0a6349;
  --bad: #ab1c27; --bad-page: #fdeaea; --good: #176338; --some: #eef4fa; --near: #d5e5f4; --bf16-page: #fbeee3;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161a; --panel: #1a2026; --ink: #e7eaed; --dim: #a5afb9; --line: #3b454f; --grid: #29313a;
    --bf16: #ffa36b; --fp32: #80bfff; --f64: #62d5b0;
    --bad: #ff9494; --bad-page: #441a1e; --good: #78da9e; --some: #1a2836; --near: #1f3a55; --bf16-page: #38261a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
main { max-width: 1240px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 30px; line-height: 1.2; margin: 4px 0 8px; text-wrap: balance; }
h2 { font-size: 21px; line-height: 1.3; margin: 0 0 8px; }
h3 { font-size: 16px; margin: 20px 0 6px; }
p { margin: 0 0 8px; max-width: 48em; }
section { margin-top: 40px; padding-top: 20px; border-top: 1px solid var(--line); }
figure { margin: 12px 0 0; min-width: 0; }
a { color: var(--fp32); }
code { font: 14px/1.5 ui-monospace, "SFMono-Regular", Menlo, Consolas, monospace; overflow-wrap: anywhere; }

.kicker, .note, .dim { color: var(--dim); }
.kicker { font-size: 14px; margin: 0; }
.note { font-size: 14px; margin-top: 8px; }
.status { font-size: 18px; font-weight: 600; }
.good { color: var(--good); }
.bad { color: var(--bad); font-weight: 600; }
.verdict { font-weight: 600; white-space: nowrap; }
b.bf16 { color: var(--bf16); } b.fp32 { color: var(--fp32); } b.f64 { color: var(--f64); }

.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 12px; margin: 20px 0; }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 14px 16px 8px; }
.card h2 { font-size: 16px; }
.card p { font-size: 15px; }
.found h2 { font-size: 18px; }
.found ul { margin: 0; padding-left: 20px; }
.found li { margin-bottom: 6px; max-width: 52em; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin-top: 24px; font-size: 15px; }

.scroll { overflow-x: auto; margin: 12px 0; }
.scroll:focus-visible { outline: 2px solid var(--fp32); outline-offset: 2px; }
table { border-collapse: collapse; font-size: 14px; line-height: 1.35; }
caption { text-align: left; color: var(--dim); padding-bottom: 6px; }
caption span.text { display: block; max-width: calc(100vw - 40px); }
th, td { padding: 5px 10px; text-align: left; vertical-align: top; border-bottom: 1px solid var(--grid); }
thead th { vertical-align: bottom; border-bottom: 1px solid var(--line); font-weight: 600; }
tbody th { font-weight: 400; position: sticky; left: 0; background: var(--page); }
.number { text-align: right; }
td.number { white-space: nowrap; }
.nowrap, .digits { white-space: nowrap; }
.digits { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 13px; color: var(--dim); }
.digits b { color: var(--ink); }
.prose { min-width: 20em; }
.ratios td { white-space: nowrap; }
.ratios thead .candidate { white-space: normal; display: inline-block; max-width: 6.5em; }
.some { background: var(--some); }
.near { background: var(--near); }
.broken { background: var(--bad-page); color: var(--bad); font-weight: 700; }
.formats { font-size: 13px; }
.formats th, .formats td { padding: 5px 7px; }
.keeps-16 { background: var(--bf16-page); color: var(--bf16); font-weight: 600; }
.keeps-fp32 { background: var(--some); color: var(--fp32); }

.candidate { white-space: nowrap; }
.key { display: inline-block; width: 14px; height: 14px; vertical-align: -2px; overflow: visible; }
.definitions { position: absolute; }
.marker { fill: none; stroke-width: 1.7; }
.bf16 { --class: var(--bf16); } .fp32 { --class: var(--fp32); } .f64 { --class: var(--f64); }
.marker, .budget { stroke: var(--class, var(--ink)); }
.legend { list-style: none; margin: 8px 0; padding: 0; font-size: 14px; display: flex; flex-wrap: wrap; gap: 4px 22px; }
.legend .candidate { margin-left: 6px; }
.swatch { display: inline-block; width: 26px; height: 8px; background: var(--ink); opacity: 0.2; }

.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 20px 40px; }
.figures h3 { margin-top: 8px; }
.row { display: grid; grid-template-columns: 170px minmax(0, 1fr); align-items: center; gap: 8px;
       border-bottom: 1px solid var(--grid); }
.label { font-size: 13px; line-height: 1.25; padding: 2px 0; }
.below { display: block; color: var(--dim); font-size: 12px; }
.below span { display: block; }
.unit { color: var(--dim); }
.row > svg { display: block; width: 100%; overflow: visible; }
.row > svg text { font-size: 12px; fill: var(--dim); }
.instead { margin: 0; padding: 6px 0; color: var(--dim); font-size: 13px; }
.gutter { fill: var(--bad-page); opacity: 0.7; }
.grid { stroke: var(--grid); }
.allowed { fill: var(--class); opacity: 0.2; }
.budget { stroke-width: 2.5; }
.zero-line { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 4 3; }
.bf16-line { stroke: var(--bf16); stroke-width: 1.5; stroke-dasharray: 1 2.5; }
.row > svg text.beyond { fill: var(--class); font-weight: 600; }
.bin { fill: var(--class, var(--ink)); opacity: 0.75; }
.bin.bad { fill: var(--bad); opacity: 1; }

.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 560px), 1fr)); gap: 12px 40px; }
.panel { min-width: 0; }
.waterfall { width: 100%; min-width: 560px; table-layout: fixed; }
.waterfall caption { color: var(--ink); font-weight: 600; }
.waterfall thead th:first-child { width: 190px; }
.waterfall thead th { font-size: 12px; font-weight: 400; }
.waterfall thead .dim { white-space: nowrap; font-size: 11px; }
.does { display: block; font-size: 12px; color: var(--dim); }
.bars svg { display: block; width: 100%; margin-top: 3px; }
.bars span { font-size: 13px; }
.added { fill: var(--class, var(--ink)); }
.added.all { fill: var(--ink); }
.so-far { stroke: var(--ink); stroke-width: 1.5; }
.total { font-weight: 600; border-top: 1px solid var(--line); }

dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 6px 20px; margin: 12px 0; }
dt { font-weight: 600; }
dd { margin: 0; max-width: 48em; }

@media (max-width: 640px) {
  main { padding: 16px 14px 48px; }
  h1 { font-size: 24px; }
  .row { grid-template-columns: minmax(0, 1fr); gap: 0; padding: 3px 0; }
  .row .below, .row .below span { display: inline; margin-left: 8px; }
  .waterfall { min-width: 0; }
  .waterfall th, .waterfall td { padding: 4px 6px 4px 0; overflow-wrap: break-word; }
  .waterfall thead th:first-child { width: 100px; }
  .waterfall thead .dim { white-space: normal; }
  .prose { min-width: 16em; }
  dl { grid-template-columns: minmax(0, 1fr); gap: 0; }
  dd { margin-bottom: 8px; }
}
@media print {
  :root {
    color-scheme: light;
    --page: #ffffff; --panel: #f5f7f9; --ink: #1a2026; --dim: #56616c; --line: #cfd6dd; --grid: #e4e9ed;
    --bf16: #a13f08; --fp32: #0a58a0; --f64: #0a6349;
    --bad: #ab1c27; --bad-page: #fdeaea; --good: #176338; --some: #eef4fa; --near: #d5e5f4; --bf16-page: #fbeee3;
  }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  nav { display: none; }
  .row, .card, .panel, tr, h2, h3 { break-inside: avoid; }
  h2, h3, figcaption, caption { break-after: avoid; }
  body { font-size: 13px; }
  main { max-width: none; padding: 0; }
  .scroll { overflow: visible; }
  table, .digits, .does, .bars span, .waterfall thead th { font-size: 10px; }
  .formats { font-size: 8.5px; }
  th, td, .formats th, .formats td { padding: 3px 4px; }
  .prose { min-width: 0; }
  .digits { white-space: normal; overflow-wrap: anywhere; }
  .waterfall { min-width: 0; }
  .panels { grid-template-columns: minmax(0, 1fr); }
  .cards { grid-template-columns: repeat(3, minmax(0, 1fr)); }
}
)css";
}

}  // namespace fljsd::html
