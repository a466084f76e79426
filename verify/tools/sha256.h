// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for manifests of small files.
#pragma once

#include <string>
#include <string_view>

namespace fljsd {

// The digest of the bytes as 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace fljsd
