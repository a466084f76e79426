// SPDX-License-Identifier: Apache-2.0
// Case and result files: what is written is read back, what is broken is refused in one sentence, and a write
// that fails leaves no trace.
#include "verify/cases/safetensors.h"

#include <bit>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "verify/cases/families.h"
#include "verify/cases/fuzz/check_bytes.h"
#include "verify/cases/result.h"

namespace fljsd {
namespace {

namespace fs = std::filesystem;

// An empty folder that disappears with the test.
class Folder {
 public:
  Folder() {
    std::string text = fs::temp_directory_path() / "fljsd-test-XXXXXX";
    path_ = ::mkdtemp(text.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  fs::path operator/(const char* name) const { return path_ / name; }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// A file with this header, `data_bytes` zeros after it, and no padding.
Bytes file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  Bytes bytes(8);
  std::memcpy(bytes.data(), &length, 8);
  const Bytes text = bytes_of(header);
  bytes.insert(bytes.end(), text.begin(), text.end());
  bytes.resize(bytes.size() + data_bytes);
  return bytes;
}

Bytes content(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return bytes_of(std::string(std::istreambuf_iterator<char>(stream), {}));
}

void put(const fs::path& path, const Bytes& bytes) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// The sentence with which `act` is refused.
template <class Act>
std::string refusal(const Act& act) {
  try {
    act();
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_same(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(std::memcmp(a.data.get(), b.data.get(), a.bytes()), 0);
}

void expect_same(const std::optional<Tensor>& a, const std::optional<Tensor>& b) {
  ASSERT_EQ(a.has_value(), b.has_value());
  if (a) expect_same(*a, *b);
}

void expect_same(const Case& a, const Case& b) {
  expect_same(a.student_input, b.student_input);
  expect_same(a.student_weight, b.student_weight);
  expect_same(a.teacher_input, b.teacher_input);
  expect_same(a.teacher_weight, b.teacher_weight);
  expect_same(a.student_bias, b.student_bias);
  expect_same(a.teacher_bias, b.teacher_bias);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.options.beta, b.options.beta);
  EXPECT_EQ(a.options.temperature, b.options.temperature);
  EXPECT_EQ(a.options.reduction, b.options.reduction);
  EXPECT_EQ(a.options.ignore_index, b.options.ignore_index);
  EXPECT_EQ(a.options.valid_vocab, b.options.valid_vocab);
  EXPECT_EQ(a.provenance, b.provenance);
}

// Catches: a dtype, tensor, label or option that is lost or altered on the way.
TEST(CaseFile, ComesBackAsItWas) {
  const Folder folder;
  const fs::path path = folder / "case.safetensors";
  for (const Family& family : families()) {
    for (DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
      CaseSpec spec;
      spec.family = family.number;
      spec.dtype = dtype;
      spec.tokens = 3;
      spec.student_hidden = 5;
      spec.teacher_hidden = 3;
      spec.with_bias = dtype == DType::f16;
      spec.options.beta = 0.1;
      spec.options.temperature = 1.0 / 3;
      spec.options.reduction = Reduction::none;
      spec.options.ignore_index = std::numeric_limits<std::int64_t>::min();
      const Case c = make_case(spec);
      write_case(path, c);
      expect_same(read_case(path), c);
    }
  }
  EXPECT_EQ(folder.entries(), 1u);
}

// Catches: doubles written with too few digits, read with another rounding, or in the locale's spelling.
RC_GTEST_PROP(CaseFile, OptionsComeBackToTheLastBit, ()) {
  static const Folder folder;
  CaseSpec spec;
  const auto bits = *rc::gen::arbitrary<std::uint64_t>();
  // Any positive finite double as the temperature; beta from the same bits, below 1.
  double temperature = std::bit_cast<double>(bits & 0x7fffffffffffffff);
  if (!(temperature > 0 && std::isfinite(temperature))) temperature = 5e-324;
  spec.options.temperature = temperature;
  spec.options.beta = static_cast<double>(bits >> 11) * 0x1p-53;
  spec.options.ignore_index = *rc::gen::arbitrary<std::int64_t>();
  const Case c = make_case(spec);
  write_case(folder / "case", c);
  const Case back = read_case(folder / "case");
  RC_ASSERT(back.options.temperature == temperature);
  RC_ASSERT(back.options.beta == spec.options.beta);
  RC_ASSERT(back.options.ignore_index == spec.options.ignore_index);
}

// Catches: zero tokens refused or misread; a file written over the one that is mapped.
TEST(CaseFile, MayBeEmptyAndMayReplaceItself) {
  const Folder folder;
  CaseSpec spec;
  spec.tokens = 0;
  const Case empty = make_case(spec);
  write_case(folder / "case", empty);
  expect_same(read_case(folder / "case"), empty);

  spec.tokens = 4;
  const Case c = make_case(spec);
  write_case(folder / "case", c);
  const Case mapped = read_case(folder / "case");
  write_case(folder / "case", mapped);
  expect_same(mapped, c);
  expect_same(read_case(folder / "case"), c);
}

// Catches: names or metadata that JSON must escape, empty shapes and tensors, data out of alignment.
TEST(Safetensors, HoldsAnyNamesShapesAndDtypes) {
  const Bytes data(48, std::byte{1});
  const auto borrowed = std::shared_ptr<const std::byte>(std::shared_ptr<const void>(), data.data());
  SafetensorsFile file;
  file.tensors = {{"", {DType::bf16, {3}, borrowed}},
                  {"quote \" backslash \\ newline \n", {DType::f32, {}, borrowed}},
                  {"straße 日本", {std::nullopt, {2, 3}, borrowed}},
                  {"empty", {DType::f64, {2, 0, 5}, borrowed}},
                  {"deep", {DType::f16, {1, 1, 1, 1, 1, 1, 1, 1, 1, 2}, borrowed}}};
  file.metadata = {{"", ""}, {"tab\t", "\x01 null \xc3\xbc"}};
  const Bytes bytes = serialise_safetensors(file);
  const SafetensorsFile back = parse_safetensors(bytes, "bytes");
  EXPECT_TRUE(same_file(back, file));
  for (const auto& [name, tensor] : back.tensors) {
    const std::size_t size = tensor.dtype ? size_of(*tensor.dtype) : 8;
    EXPECT_EQ(static_cast<std::size_t>(tensor.data.get() - bytes.data()) % size, 0u) << name;
  }
  const Folder folder;
  write_safetensors(folder / "file", file);
  EXPECT_EQ(content(folder / "file"), bytes);
  EXPECT_TRUE(same_file(read_safetensors(folder / "file"), file));
  EXPECT_TRUE(same_file(parse_safetensors(serialise_safetensors({}), "bytes"), {}));
}

// Catches: tensors that must be in the order of their names, or aligned, to be read: other writers order and
// pad differently.
TEST(Safetensors, ReadsUnalignedFilesInAnyOrder) {
  Bytes bytes =
      file_of(R"({"b":{"data_offsets":[2,6],"dtype":"F32","shape":[1]},"a":{"dtype":"BF16","shape":[1],)"
              R"("data_offsets":[0,2]}}  )",
              6);
  const float one = 1;
  std::memcpy(bytes.data() + bytes.size() - 4, &one, 4);
  const SafetensorsFile file = parse_safetensors(bytes, "bytes");
  EXPECT_EQ(load(DType::f32, file.tensors.at("b").data.get(), 0), 1);
  EXPECT_EQ(load(DType::bf16, file.tensors.at("a").data.get(), 0), 0);
}

// Catches: each kind of damage passing, or refused without saying what and where.
TEST(Safetensors, RefusesEachKindOfDamageInOneSentence) {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const auto field = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  struct Damage {
    std::string header;
    std::size_t data_bytes;
    std::string sentence;
  };
  const Damage damages[] = {
      {"", 0, "the header does not begin with '{', as the header of a safetensors file must."},
      {" {}", 0, "the header does not begin with '{', as the header of a safetensors file must."},
      {"[]", 0, "the header does not begin with '{', as the header of a safetensors file must."},
      {"{", 0, "the header is not valid JSON at its byte 2."},
      {"{}x", 0, "the header is not valid JSON at its byte 3."},
      {"{\"\xff\":1}", 0, "the header is not valid JSON at its byte 3."},
      {R"({"a":1})", 0, "tensor 'a' is 1, but it must be an object."},
      {R"({"a":null})", 0, "tensor 'a' is null, but it must be an object."},
      {R"({"a":[]})", 0, "tensor 'a' is an array, but it must be an object."},
      {R"({"a":{}})", 0, "tensor 'a' has no dtype."},
      {R"({"a":{"dtype":"F32"}})", 0, "tensor 'a' has no shape."},
      {R"({"a":{"dtype":"F32","shape":[]}})", 0, "tensor 'a' has no data_offsets."},
      {R"({"a":{"strides":[1]}})", 0,
       "tensor 'a' has the field 'strides', but only dtype, shape and data_offsets are allowed."},
      {R"({"a":{"shape":[],"shape":[]}})", 0, "tensor 'a' has shape twice, but it must have it once."},
      {"{" + a + "," + a + "}", 4, "the header names 'a' twice, but names must be unique."},
      {R"({"__metadata__":{},"__metadata__":{}})", 0,
       "the header names '__metadata__' twice, but names must be unique."},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0,
       "the metadata holds the key 'k' twice, but keys must be unique."},
      {R"({"__metadata__":{"k":1}})", 0, "metadata 'k' is 1, but it must be a string."},
      {R"({"__metadata__":{"k":{}}})", 0, "metadata 'k' is an object, but it must be a string."},
      {R"({"__metadata__":"k"})", 0, "__metadata__ is a string, but it must be an object."},
      {field("1", "[1]", "[0,4]"), 4, "dtype of tensor 'a' is 1, but it must be a string."},
      {field(R"("I32")", "[1]", "[0,4]"), 4,
       "tensor 'a' has dtype 'I32', but it must be BF16, F16, F32, F64 or I64."},
      {field(R"("f32")", "[1]", "[0,4]"), 4,
       "tensor 'a' has dtype 'f32', but it must be BF16, F16, F32, F64 or I64."},
      {field(R"("F32")", "1", "[0,4]"), 4,
       "shape of tensor 'a' is 1, but it must be an array of whole numbers."},
      {field(R"("F32")", "[-1]", "[0,4]"), 4,
       "a size in the shape of tensor 'a' is -1, but it must be a whole number from 0 to 2^63 − 1."},
      {field(R"("F32")", "[1.0]", "[0,4]"), 4,
       "a size in the shape of tensor 'a' is 1.0, but it must be a whole number from 0 to 2^63 − 1."},
      {field(R"("F32")", "[[1]]", "[0,4]"), 4,
       "a size in the shape of tensor 'a' is an array, but it must be a whole number from 0 to 2^63 − 1."},
      {field(R"("F32")", "[9223372036854775808]", "[0,4]"), 4,
       "tensor 'a' has the size 9223372036854775808 in its shape, but sizes must be below 2^63."},
      {field(R"("F32")", "[4294967296,4294967296]", "[0,4]"), 4,
       "tensor 'a' has shape [4294967296, 4294967296], but its size must be below 2^63 bytes."},
      {field(R"("F64")", "[1152921504606846976]", "[0,4]"), 4,
       "tensor 'a' has shape [1152921504606846976], but its size must be below 2^63 bytes."},
      {field(R"("F32")", "[1]", "[0]"), 4,
       "data_offsets of tensor 'a' has 1 numbers, but it must have two: begin and end."},
      {field(R"("F32")", "[1]", "[0,4,8]"), 4,
       "data_offsets of tensor 'a' has 3 numbers, but it must have two: begin and end."},
      {field(R"("F32")", "[1]", "[0,-4]"), 4,
       "an offset in data_offsets of tensor 'a' is -4, but it must be a whole number from 0 to 2^64 − 1."},
      {field(R"("F32")", "[1]", "[4,0]"), 4,
       "data_offsets of tensor 'a' is [4, 0], but it must be ascending and within the 4 bytes of data."},
      {field(R"("F32")", "[1]", "[0,8]"), 4,
       "data_offsets of tensor 'a' is [0, 8], but it must be ascending and within the 4 bytes of data."},
      {field(R"("F32")", "[1]", "[18446744073709551612,18446744073709551615]"), 4,
       "data_offsets of tensor 'a' is [18446744073709551612, 18446744073709551615], but it must be ascending "
       "and "
       "within the 4 bytes of data."},
      {field(R"("F32")", "[1]", "[0,3]"), 4,
       "tensor 'a' has 3 bytes of data, but its shape [1] and dtype F32 need 4."},
      {field(R"("F32")", "[0]", "[0,4]"), 4,
       "tensor 'a' has 4 bytes of data, but its shape [0] and dtype F32 need 0."},
      {field(R"("F32")", "[1]", "[4,8]"), 8,
       "bytes 0 to 4 of the data, before tensor 'a', belong to no tensor, but there must be no holes."},
      {field(R"("F32")", "[1]", "[0,4]"), 5,
       "the tensors end at byte 4 of the data, but the file goes on to byte 5 and there must be no trailing "
       "bytes."},
      {"{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6,
       "tensor 'b' begins at byte 2 of the data, but tensor 'a' reaches to byte 4 and they must not "
       "overlap."},
      {"{}", 1,
       "the tensors end at byte 0 of the data, but the file goes on to byte 1 and there must be no trailing "
       "bytes."},
  };
  for (const Damage& damage : damages) {
    const Bytes bytes = file_of(damage.header, damage.data_bytes);
    EXPECT_EQ(refusal([&] { parse_safetensors(bytes, "FILE"); }), "FILE: " + damage.sentence)
        << damage.header;
  }

  Bytes bytes = file_of("{}", 0);
  bytes[7] = std::byte{0x80};
  EXPECT_EQ(
      refusal([&] { parse_safetensors(bytes, "FILE"); }),
      "FILE: the header length is 9223372036854775810, but it must be at most 100000000; this may be no "
      "safetensors file.");
  bytes[7] = std::byte{0};
  bytes[0] = std::byte{3};
  EXPECT_EQ(refusal([&] { parse_safetensors(bytes, "FILE"); }),
            "FILE: the header length is 3, but only 2 bytes follow; the file may be truncated.");
}

// Catches: a million brackets that exhaust the stack.
TEST(Safetensors, RefusesDeepNesting) {
  const Bytes bytes = file_of(R"({"a":)" + std::string(1000000, '['), 0);
  EXPECT_EQ(refusal([&] { parse_safetensors(bytes, "FILE"); }),
            "FILE: tensor 'a' is an array, but it must be an object.");
}

Bytes small_case_bytes() {
  const Folder folder;
  CaseSpec spec;
  spec.family = find_family("ignored-labels").number;
  spec.tokens = 2;
  spec.student_hidden = 1;
  spec.vocab = 2;
  spec.with_bias = true;
  write_case(folder / "case", make_case(spec));
  return content(folder / "case");
}

// Catches: a truncation that goes unnoticed at some length, reading past the end (under a sanitizer), and a
// byte too many.
TEST(CaseFile, IsRefusedTruncatedAtAnyLength) {
  const Bytes whole = small_case_bytes();
  parse_case(whole, "whole");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Bytes cut(whole.begin(),
                    whole.begin() + static_cast<std::ptrdiff_t>(length));  // its own allocation
    EXPECT_NE(refusal([&] { parse_case(cut, "cut"); }), "accepted") << length;
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_NE(refusal([&] { parse_case(longer, "longer"); }), "accepted");
}

// Catches: a single damaged byte that leads to anything but a case or a refusal.
TEST(CaseFile, SurvivesAnyDamagedByte) {
  const Bytes whole = small_case_bytes();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int flip : {0x01, 0x80, 0xff}) {
      Bytes damaged = whole;
      damaged[i] ^= static_cast<std::byte>(flip);
      EXPECT_NO_THROW(check_bytes(damaged)) << i;
    }
  }
}

// The fuzzer's corpus, and every input that once broke the reader. Catches: old faults that come back.
TEST(Safetensors, FuzzerInputsHoldNoSurprise) {
  std::size_t replayed = 0;
  for (const char* folder : {"corpus", "regressions"}) {
    for (const auto& entry :
         fs::directory_iterator(fs::path(FLJSD_SOURCE_DIR) / "verify/cases/fuzz" / folder)) {
      EXPECT_NO_THROW(check_bytes(content(entry.path()))) << entry.path();
      ++replayed;
    }
  }
  EXPECT_GT(replayed, 20u);
  // The fuzzer must start from files that are read.
  const fs::path corpus = fs::path(FLJSD_SOURCE_DIR) / "verify/cases/fuzz/corpus";
  for (const char* name : {"case", "case_with_everything", "case_unpadded", "case_no_tokens"})
    EXPECT_NO_THROW(read_case(corpus / (std::string(name) + ".safetensors"))) << name;
  EXPECT_NO_THROW(read_result(corpus / "result.safetensors"));
}

// A valid case as a file in memory, to be spoilt.
SafetensorsFile case_parts() {
  static const Bytes data(64, std::byte{0});
  const auto borrowed = std::shared_ptr<const std::byte>(std::shared_ptr<const void>(), data.data());
  SafetensorsFile file;
  file.tensors = {{"student_input", {DType::bf16, {2, 1}, borrowed}},
                  {"student_weight", {DType::bf16, {3, 1}, borrowed}},
                  {"teacher_input", {DType::bf16, {2, 2}, borrowed}},
                  {"teacher_weight", {DType::bf16, {3, 2}, borrowed}},
                  {"labels", {std::nullopt, {2}, borrowed}}};
  return file;
}

// Catches: a misspelt, missing or misshapen tensor, or metadata that is half understood.
TEST(CaseFile, RefusesWhatIsNoCaseInOneSentence) {
  const auto expect = [](const SafetensorsFile& file, const std::string& sentence) {
    const Bytes bytes = serialise_safetensors(file);
    EXPECT_EQ(refusal([&] { parse_case(bytes, "FILE"); }), "FILE: " + sentence);
  };
  const Bytes good = serialise_safetensors(case_parts());
  EXPECT_EQ(parse_case(good, "FILE").problem().vocab(), 3);

  SafetensorsFile file = case_parts();
  file.tensors["label"] = file.tensors["labels"];
  expect(
      file,
      "the tensor 'label' is not part of a case; allowed are student_input, student_weight, teacher_input, "
      "teacher_weight, student_bias, teacher_bias, labels.");
  file = case_parts();
  file.tensors.erase("teacher_weight");
  expect(file, "the tensor teacher_weight is missing, but a case must have it.");
  file = case_parts();
  file.tensors["student_input"].shape = {2};
  expect(file, "student_input has shape [2], but it must have 2 dimensions.");
  file = case_parts();
  file.tensors["student_input"].dtype.reset();
  expect(file, "student_input has dtype I64, but it must be BF16, F16, F32 or F64.");
  file = case_parts();
  file.tensors["student_bias"] = {DType::f32, {3, 1}, file.tensors["labels"].data};
  expect(file, "student_bias has shape [3, 1], but it must have 1 dimension.");
  file = case_parts();
  file.tensors["labels"].dtype = DType::f32;
  expect(file, "labels has a floating-point dtype, but it must be I64.");
  file = case_parts();
  file.tensors["labels"].shape = {1, 2};
  expect(file, "labels has shape [1, 2], but it must have 1 dimension.");
  // The sentences of validate().
  file = case_parts();
  file.tensors["labels"].shape = {3};
  expect(file, "labels has 3 entries, but it must have one for each of the 2 tokens.");
  file = case_parts();
  file.tensors["teacher_weight"].shape = {2, 2};
  expect(file, "teacher_weight has vocab 2, but student_weight has 3 and they must be equal.");

  const auto expect_metadata = [&](const char* key, const char* text, const std::string& sentence) {
    SafetensorsFile spoilt = case_parts();
    spoilt.metadata[key] = text;
    expect(spoilt, sentence);
  };
  const std::string real = "but it must be a decimal number within the range of double.";
  const std::string whole = "but it must be a whole number that fits into 64 bits.";
  for (const char* text : {"", "abc", "0.5 ", " 0.5", "+0.5", "0,5", "1e400", "0x1p-1", "0.5e", "1/2"}) {
    expect_metadata("beta", text, "metadata beta is '" + std::string(text) + "', " + real);
    expect_metadata("temperature", text, "metadata temperature is '" + std::string(text) + "', " + real);
  }
  for (const char* text : {"", "1.5", "1e2", " 1", "+1", "9223372036854775808", "0x1"}) {
    expect_metadata("ignore_index", text, "metadata ignore_index is '" + std::string(text) + "', " + whole);
    expect_metadata("valid_vocab", text, "metadata valid_vocab is '" + std::string(text) + "', " + whole);
  }
  expect_metadata("beta", "nan", "beta is nan, but it must be in [0, 1].");
  expect_metadata("beta", "-0.1", "beta is -0.10000000000000001, but it must be in [0, 1].");
  expect_metadata("temperature", "inf", "temperature is inf, but it must be positive and finite.");
  expect_metadata("temperature", "0", "temperature is 0, but it must be positive and finite.");
  expect_metadata("valid_vocab", "4", "valid_vocab is 4, but it must be in [1, 3].");
  expect_metadata("reduction", "mean", "reduction is 'mean', but it must be batchmean, sum or none.");

  file = case_parts();
  file.metadata = {
      {"beta", "0.25"}, {"temperature", "2e0"}, {"reduction", "sum"}, {"Beta", "kept"}, {"format", "pt"}};
  const Bytes bytes = serialise_safetensors(file);
  const Case c = parse_case(bytes, "FILE");
  EXPECT_EQ(c.options.beta, 0.25);
  EXPECT_EQ(c.options.temperature, 2);
  EXPECT_EQ(c.options.reduction, Reduction::sum);
  EXPECT_EQ(c.provenance, (std::map<std::string, std::string>{{"Beta", "kept"}, {"format", "pt"}}));
}

// Catches: paths that are not files leading to a hang, a crash or an obscure message.
TEST(Safetensors, RefusesPathsThatAreNoFiles) {
  const Folder folder;
  const auto read = [](const fs::path& path) { return refusal([&] { read_case(path); }); };
  const fs::path missing = folder / "missing";
  EXPECT_EQ(read(missing), missing.string() + ": the file cannot be read: No such file or directory.");
  const fs::path directory = folder / "directory";
  fs::create_directory(directory);
  EXPECT_EQ(read(directory), directory.string() + ": this is a folder, but it must be a safetensors file.");
  const fs::path empty = folder / "empty";
  put(empty, {});
  EXPECT_EQ(
      read(empty),
      empty.string() + ": the file is empty, but a safetensors file has at least 8 bytes and a header.");
  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read(pipe), pipe.string() + ": this is not a regular file, but it must be one.");
  EXPECT_EQ(read("/dev/zero"), "/dev/zero: this is not a regular file, but it must be one.");
  const fs::path tiny = folder / "tiny";
  put(tiny, Bytes(7));
  EXPECT_EQ(read(tiny),
            tiny.string() + ": the file has 7 bytes, but a safetensors file has at least 8 and a header.");
}

// Catches: a target that is destroyed, half written or left beside a temporary file when writing fails. A
// limit on the size of files stands in for a full disk: both make write() fail half way.
TEST(Safetensors, AFailedWriteLeavesNoTrace) {
  const Folder folder;
  const fs::path path = folder / "case";
  CaseSpec spec;
  const Case before = make_case(spec);
  write_case(path, before);
  const Bytes old = content(path);
  spec.vocab = 5000;
  const Case large = make_case(spec);

  rlimit unlimited{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  rlimit limited = unlimited;
  limited.rlim_cur = 20000;  // the header fits, the weights do not
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limited), 0);
  const std::string sentence = refusal([&] { write_case(path, large); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_EQ(sentence, path.string() + ": the file cannot be written: File too large.");
  EXPECT_EQ(content(path), old);
  EXPECT_EQ(folder.entries(), 1u);
  write_case(path, large);
  expect_same(read_case(path), large);
}

// Catches: a device replaced by a file, a link by its target's copy, a folder removed, or an obscure message.
TEST(Safetensors, WritesOnlyWhereAFileCanBe) {
  const Folder folder;
  const Case c = make_case(CaseSpec{});
  const auto write = [&](const fs::path& path) { return refusal([&] { write_case(path, c); }); };
  EXPECT_EQ(write("/dev/full"),
            "/dev/full: the file cannot be written: it exists and is not a regular file.");
  const fs::path directory = folder / "directory";
  fs::create_directory(directory);
  EXPECT_EQ(write(directory),
            directory.string() + ": the file cannot be written: it exists and is not a regular file.");
  const fs::path nowhere = directory / "missing" / "case";
  EXPECT_EQ(write(nowhere), nowhere.string() + ": the file cannot be written: No such file or directory.");
  const fs::path file = folder / "file";
  put(file, Bytes(1));
  EXPECT_EQ(write(file / "case"),
            (file / "case").string() + ": the file cannot be written: Not a directory.");

  const fs::path link = folder / "link";
  fs::create_symlink("file", link);
  write_case(link, c);
  EXPECT_TRUE(fs::is_symlink(link));
  expect_same(read_case(file), c);
  EXPECT_EQ(folder.entries(), 3u);

  // The process's usual permissions, not those of a temporary file.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  write_case(folder / "new", c);
  struct stat status {};
  ASSERT_EQ(::stat((folder / "new").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0666 & ~mask);
}

// Catches: a header that other readers would refuse.
TEST(Safetensors, WritesNothingThatCannotBeRead) {
  SafetensorsFile file;
  file.tensors["__metadata__"] = {DType::bf16, {0}, nullptr};
  EXPECT_EQ(refusal([&] { serialise_safetensors(file); }),
            "safetensors bytes: a tensor is named __metadata__, but that name stands for the metadata.");
  file = {};
  file.metadata["note"] = "\xff";
  EXPECT_EQ(
      refusal([&] { serialise_safetensors(file); }),
      "safetensors bytes: a tensor name or metadata text is not UTF-8, but a safetensors header must be.");
  Case c = make_case(CaseSpec{});
  c.provenance["beta"] = "0.3";
  EXPECT_EQ(refusal([&] { write_case("/nowhere/case", c); }),
            "/nowhere/case: provenance has the key beta, but that name stands for an option.");
}

// Results.

// Catches: a part that is lost, invented or altered.
TEST(ResultFile, ComesBackAsItWas) {
  const Folder folder;
  const fs::path path = folder / "result";
  for (int parts = 0; parts < 32; ++parts) {
    CaseResult result;
    if (parts & 1) result.loss = 0.1;
    if (parts & 2) result.token_loss = make_tensor(DType::f32, {2}, {1, 2});
    if (parts & 4) result.student_input_grad = make_tensor(DType::bf16, {2, 1}, {3, 4});
    if (parts & 8) result.student_weight_grad = make_tensor(DType::f16, {3, 1}, {5, 6, 7});
    if (parts & 16) result.student_bias_grad = make_tensor(DType::f64, {3}, {8, 9, 10});
    write_result(path, result);
    const CaseResult back = read_result(path);
    EXPECT_EQ(back.loss, result.loss);
    expect_same(back.token_loss, result.token_loss);
    expect_same(back.student_input_grad, result.student_input_grad);
    expect_same(back.student_weight_grad, result.student_weight_grad);
    expect_same(back.student_bias_grad, result.student_bias_grad);
  }
  CaseResult not_finite;
  not_finite.loss = std::numeric_limits<double>::quiet_NaN();
  write_result(path, not_finite);
  EXPECT_TRUE(std::isnan(*read_result(path).loss));
}

// Catches: an answer that is misnamed and so never judged, or judged in the wrong shape.
TEST(ResultFile, RefusesWhatIsNoResultInOneSentence) {
  const Bytes data(64);
  const auto borrowed = std::shared_ptr<const std::byte>(std::shared_ptr<const void>(), data.data());
  const auto expect = [](const SafetensorsFile& file, const std::string& sentence) {
    const Bytes bytes = serialise_safetensors(file);
    EXPECT_EQ(refusal([&] { parse_result(bytes, "FILE"); }), "FILE: " + sentence);
  };
  SafetensorsFile file;
  file.tensors = {{"grad", {DType::f32, {1}, borrowed}}};
  expect(file,
         "the tensor 'grad' is not part of a result; allowed are loss, token_loss, student_input_grad, "
         "student_weight_grad, student_bias_grad.");
  file.tensors = {{"loss", {DType::f32, {2}, borrowed}}};
  expect(file, "loss has shape [2], but it must be [1].");
  file.tensors = {{"loss", {DType::f32, {}, borrowed}}};
  expect(file, "loss has shape [], but it must have 1 dimension.");
  file.tensors = {{"token_loss", {std::nullopt, {2}, borrowed}}};
  expect(file, "token_loss has dtype I64, but it must be BF16, F16, F32 or F64.");

  CaseSpec spec;
  spec.tokens = 2;
  spec.student_hidden = 1;
  spec.vocab = 3;
  const Case c = make_case(spec);
  CaseResult result;
  result.token_loss = make_tensor(DType::f32, {2}, {1, 2});
  result.student_input_grad = make_tensor(DType::f32, {2, 1}, {1, 2});
  result.student_weight_grad = make_tensor(DType::f32, {3, 1}, {1, 2, 3});
  result.student_bias_grad = make_tensor(DType::f32, {3}, {1, 2, 3});
  check_result_shapes(c, result);
  result.student_weight_grad = make_tensor(DType::f32, {1, 3}, {1, 2, 3});
  EXPECT_EQ(refusal([&] { check_result_shapes(c, result, "FILE"); }),
            "FILE: student_weight_grad has shape [1, 3], but for this case it must be [3, 1].");
  result.token_loss = make_tensor(DType::f32, {3}, {1, 2, 3});
  EXPECT_EQ(refusal([&] { check_result_shapes(c, result); }),
            "the result: token_loss has shape [3], but for this case it must be [2].");
}

}  // namespace
}  // namespace fljsd
