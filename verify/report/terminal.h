// SPDX-License-Identifier: Apache-2.0
// What the terminal can show. Everything here is decided once, from the process's environment.
#pragma once

#include <string>
#include <string_view>

namespace fljsd {

bool stdout_is_terminal();
bool stderr_is_terminal();

// Columns of the terminal on standard output, 80 when it is none. Never below 40.
int terminal_width();

// Whether the locale's character set is UTF-8, so that block characters can be drawn.
bool utf8_output();

enum class Style { plain, bold, dim, good, bad, warning };

// Escape sequences appear only when standard output is a terminal that can show them and NO_COLOR is unset.
std::string styled(Style style, std::string_view text);

// Columns that UTF-8 text without escape sequences takes, every code point counted as one.
int display_width(std::string_view text);

// Breaks text at spaces so that no line is longer than `width` columns; words longer than that stay whole.
// The second and later lines start with `indent` spaces, which are not counted.
std::string wrapped(std::string_view text, int width, int indent = 0);

}  // namespace fljsd
