// SPDX-License-Identifier: Apache-2.0
// Numbers as text and as JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace fljsd {

// A finite number as a JSON number that reads back as the same double; "nan", "inf" or "-inf" as strings,
// because JSON has no such numbers.
nlohmann::ordered_json json_number(double x);

// The inverse of json_number. Throws std::invalid_argument for anything that json_number never writes.
double number_from_json(const nlohmann::ordered_json& value);

// The C hex float of x, as printf's %a: exact, and readable by strtod.
std::string hex_float(double x);

// For a person: `digits` significant digits, or two and an exponent where plain digits would be long: "0",
// "0.137", "303", "1.4e-5", "nan". At most 6 characters for two digits, 7 for three, and a sign.
std::string short_number(double x, int digits = 3);

// A share as a percentage with two significant digits: "137 %", "3.2 %", "0.17 %", "4e-05 %".
std::string percent(double share);

// 1234567 bytes as "1.2 MB".
std::string byte_count(double bytes);

// 0.4 as "0.4 s", 75 as "75 s", 754 as "12 min 34 s".
std::string duration(double seconds);

}  // namespace fljsd
