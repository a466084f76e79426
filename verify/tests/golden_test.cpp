// SPDX-License-Identifier: Apache-2.0
#include "verify/tools/golden.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "verify/cases/families.h"
#include "verify/cases/safetensors.h"
#include "verify/properties/compare.h"
#include "verify/report/number.h"
#include "verify/tools/sha256.h"

namespace fljsd {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const fs::path golden_folder = fs::path(FLJSD_SOURCE_DIR) / "data" / "golden";

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const Json& manifest() {
  static const Json json = Json::parse(read(golden_folder / "manifest.json"));
  return json;
}

// A folder that is gone with the object.
struct TemporaryFolder {
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "golden_test_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path = pattern;
  }
  ~TemporaryFolder() { fs::remove_all(path); }
  fs::path path;
};

// Catches an answer, a generator or a format that has changed since the files were made: all are remade from
// the list of recipes, certified once more, and compared byte by byte. (Certified bounds of values that
// settle no double may differ with another version of MPFI; nothing else can.)
TEST(Golden, IsRemadeByteByByte) {
  const TemporaryFolder remade;
  make_golden(remade.path);
  for (const auto& entry : fs::directory_iterator(remade.path)) {
    const fs::path name = entry.path().filename();
    EXPECT_TRUE(read(entry.path()) == read(golden_folder / name)) << name << " is not what make_golden makes";
  }
}

// Catches files that were edited or are missing, and files that nobody lists.
TEST(Golden, FilesAreThoseOfTheManifest) {
  std::set<std::string> listed{"manifest.json", "README.md", "read_golden.py"};
  for (const Json& entry : manifest().at("cases")) {
    for (const char* kind : {"case", "answer"}) {
      const auto file = entry.at(kind).get<std::string>();
      EXPECT_EQ(sha256(read(golden_folder / file)), entry.at(std::string(kind) + "_sha256")) << file;
      EXPECT_TRUE(listed.insert(file).second) << file << " is listed twice";
    }
  }
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(golden_folder)) {
    if (entry.is_directory()) continue;  // __pycache__
    EXPECT_EQ(listed.count(entry.path().filename().string()), 1u) << entry.path() << " is not listed";
    bytes += entry.file_size();
  }
  EXPECT_LT(bytes, 1000000u);
}

// Catches a set that loses a family or an option as cases come and go.
TEST(Golden, CoversFamiliesAndOptions) {
  std::set<std::string> families_seen, reductions, dtypes;
  std::set<double> betas;
  std::map<std::string, int> seen;
  for (const Json& entry : manifest().at("cases")) {
    families_seen.insert(entry.at("family"));
    reductions.insert(entry.at("reduction"));
    betas.insert(entry.at("beta").get<double>());
    std::set<std::string> own_dtypes;
    for (const auto& [tensor, dtype] : entry.at("dtypes").items()) own_dtypes.insert(dtype);
    dtypes.insert(own_dtypes.begin(), own_dtypes.end());
    seen["mixed"] += own_dtypes.size() > 1;
    seen["student_bias"] += entry.at("dtypes").contains("student_bias");
    seen["teacher_bias"] += entry.at("dtypes").contains("teacher_bias");
    seen["labels"] += entry.at("labels").get<bool>();
    seen["temperature"] += entry.at("temperature") != 1.0;
    seen["valid_vocab"] += entry.at("valid_vocab") < entry.at("vocab");
    seen["hidden differ"] += entry.at("student_hidden") != entry.at("teacher_hidden");
    seen["no tokens"] += entry.at("tokens") == 0;
    seen["vocab 1"] += entry.at("vocab") == 1;
    const std::string answer = read(golden_folder / entry.at("answer").get<std::string>());
    seen["nan"] += answer.find("\"nan\"") != std::string::npos;
    seen["inf"] += answer.find("\"inf\"") != std::string::npos;
  }
  EXPECT_GE(manifest().at("cases").size(), 40u);
  EXPECT_EQ(families_seen.size(), families().size());
  EXPECT_EQ(reductions.size(), 3u);
  EXPECT_EQ(dtypes.size(), 4u);
  for (const double beta : {0.0, 1.0, 0.5, 1e-3}) EXPECT_EQ(betas.count(beta), 1u) << beta;
  for (const auto& [what, count] : seen) EXPECT_GT(count, 0) << what;
}

// One entry of an answer against the double tier's value, whose error is at most `allowed`.
void expect_value(const Json& entry, double value, double allowed, const std::string& what) {
  if (entry.is_string()) {
    const double truth = number_from_json(entry);
    EXPECT_TRUE(value == truth || (std::isnan(value) && std::isnan(truth))) << what << " is " << value;
    return;
  }
  const auto bound = [&](const char* end) {
    return std::strtod(entry.at(end).get<std::string>().c_str(), nullptr);
  };
  const double lo = bound("lo"), hi = bound("hi");
  ASSERT_LE(lo, hi) << what;
  if (!entry.at("nearest").is_null()) {
    // The decimals, read by the C library, must round to that double or, next to a midpoint, to its
    // neighbour.
    const double nearest = std::strtod(entry.at("nearest").get<std::string>().c_str(), nullptr);
    EXPECT_TRUE(lo == nearest || hi == nearest) << what << ": bounds " << lo << ", " << hi;
    EXPECT_LE(hi, std::nextafter(lo, INFINITY)) << what;
  }
  // Both ends as doubles are within half a spacing of the ends.
  const double spacing = 0x1p-53 * std::max(std::abs(lo), std::abs(hi));
  EXPECT_LE(value, hi + allowed + spacing) << what;
  EXPECT_GE(value, lo - allowed - spacing) << what;
}

// Catches an answer that the everyday arithmetic contradicts, and a file that reads back as something else
// than what was written.
TEST(Golden, DoubleTierAgreesWithinItsBound) {
  for (const Json& entry : manifest().at("cases")) {
    const auto name = entry.at("name").get<std::string>();
    const Case c = read_case(golden_folder / entry.at("case").get<std::string>());
    const Json answer = Json::parse(read(golden_folder / entry.at("answer").get<std::string>()));
    const Evaluation tier(c, double_tier());
    const Result& result = tier.result;
    EXPECT_EQ(answer.at("counted"), result.counted) << name;
    ASSERT_EQ(answer.at("loss").is_null(), !result.loss.has_value()) << name;
    if (result.loss) expect_value(answer.at("loss"), *result.loss, tier.bound.loss, name + ": loss");
    const auto vector = [&](const char* key, const std::vector<double>& values,
                            const std::vector<double>& bound) {
      ASSERT_EQ(answer.at(key).size(), values.size()) << name;
      for (std::size_t i = 0; i < values.size(); ++i)
        expect_value(answer.at(key)[i], values[i], bound[i], fmt::format("{}: {}[{}]", name, key, i));
    };
    // A row's error is bounded in the 2-norm, hence each element's.
    const auto matrix = [&](const char* key, const RowMajorMatrix<double>& values,
                            const std::vector<double>& bound) {
      ASSERT_EQ(answer.at(key).size(), static_cast<std::size_t>(values.rows())) << name;
      for (Index r = 0; r < values.rows(); ++r) {
        const Json& row = answer.at(key)[static_cast<std::size_t>(r)];
        ASSERT_EQ(row.size(), static_cast<std::size_t>(values.cols())) << name;
        for (Index i = 0; i < values.cols(); ++i) {
          expect_value(row[static_cast<std::size_t>(i)], values(r, i), bound[static_cast<std::size_t>(r)],
                       fmt::format("{}: {}[{}, {}]", name, key, r, i));
        }
      }
    };
    vector("token_loss", result.token_loss, tier.bound.token_loss);
    if (answer.contains("gradients_not_judged")) continue;
    matrix("student_input_grad", result.student_input_grad, tier.bound.student_input_grad);
    matrix("student_weight_grad", result.student_weight_grad, tier.bound.student_weight_grad);
    vector("student_bias_grad", result.student_bias_grad, tier.bound.student_bias_grad);
  }
}

// Catches a misspelt name that would quietly make nothing.
TEST(Golden, MakesSingleCases) {
  const TemporaryFolder folder;
  make_golden(folder.path, {"vocab-2"});
  EXPECT_TRUE(fs::exists(folder.path / "vocab-2.json"));
  EXPECT_FALSE(fs::exists(folder.path / "manifest.json"));
  EXPECT_FALSE(fs::exists(folder.path / "kaiming.json"));
  EXPECT_THROW(make_golden(folder.path, {"vocab-3"}), std::invalid_argument);
}

// Catches bounds that are rounded inward, carries that are lost, and digits too many.
TEST(RoundedDecimal, RoundsOutward) {
  EXPECT_EQ(rounded_decimal("1.2345e-7", 3, false), "1.23e-7");
  EXPECT_EQ(rounded_decimal("1.2345e-7", 3, true), "1.24e-7");
  EXPECT_EQ(rounded_decimal("-1.2345", 3, true), "-1.23");
  EXPECT_EQ(rounded_decimal("-1.2345", 3, false), "-1.24");
  EXPECT_EQ(rounded_decimal("1.23001", 3, true), "1.24");
  EXPECT_EQ(rounded_decimal("1.23000", 3, true), "1.23");
  EXPECT_EQ(rounded_decimal("9.9999", 3, true), "1e1");
  EXPECT_EQ(rounded_decimal("9.9999e-2", 3, true), "1e-1");
  EXPECT_EQ(rounded_decimal("-9.9999e-1", 3, false), "-1");
  EXPECT_EQ(rounded_decimal("1.2001e5", 3, false), "1.2e5");
  EXPECT_EQ(rounded_decimal("0", 3, true), "0");
  EXPECT_EQ(rounded_decimal("1.5e-2", 20, true), "1.5e-2");
}

// Catches a wrong round of SHA-256 or a wrong padding: the examples of FIPS 180-4 and lengths around a
// block's end.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(sha256(std::string(55, 'a')), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(sha256(std::string(64, 'a')), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

}  // namespace
}  // namespace fljsd
