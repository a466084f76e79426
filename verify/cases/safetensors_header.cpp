// SPDX-License-Identifier: Apache-2.0
#include "verify/cases/safetensors_header.h"

#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/cases/file_parts.h"

namespace fljsd {
namespace {

// Receives the JSON piece by piece and knows what may come next. (A parsed nlohmann::json could not tell
// equal keys: it keeps the last.)
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string origin) : origin_(std::move(origin)) {}

  SafetensorsHeader header;

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::start: place_ = Place::top; return true;
      case Place::tensor_value: place_ = Place::tensor; return true;
      case Place::metadata_object: place_ = Place::metadata; return true;
      default: refuse_value("an object");
    }
  }

  bool key(string_t& key) override {
    key_ = key;
    switch (place_) {
      case Place::top:
        if (!names_.insert(key).second)
          refuse_file(origin_,
                      fmt::format("the header names {} twice, but names must be unique.", in_quotes(key)));
        if (key == format_metadata_key) {
          place_ = Place::metadata_object;
        } else {
          header.entries.push_back({key, {}, {}, {}});
          place_ = Place::tensor_value;
        }
        return true;
      case Place::metadata:
        if (header.metadata.contains(key))
          refuse_file(origin_, fmt::format("the metadata holds the key {} twice, but keys must be unique.",
                                           in_quotes(key)));
        place_ = Place::metadata_value;
        return true;
      default:  // Place::tensor: no other place has keys
        return tensor_key(key);
    }
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      const HeaderEntry& entry = header.entries.back();
      for (const auto& [present, field] :
           {std::pair{entry.dtype.has_value(), "dtype"}, std::pair{entry.shape.has_value(), "shape"},
            std::pair{entry.offsets.has_value(), "data_offsets"}}) {
        if (!present) refuse_file(origin_, fmt::format("tensor {} has no {}.", in_quotes(entry.name), field));
      }
    }
    place_ = Place::top;
    return true;
  }

  bool string(string_t& value) override {
    switch (place_) {
      case Place::metadata_value:
        header.metadata.emplace(key_, value);
        place_ = Place::metadata;
        return true;
      case Place::dtype:
        header.entries.back().dtype = value;
        place_ = Place::tensor;
        return true;
      default: refuse_value("a string");
    }
  }

  bool start_array(std::size_t) override {
    switch (place_) {
      case Place::shape:
        header.entries.back().shape.emplace();
        place_ = Place::shape_array;
        return true;
      case Place::offsets:
        header.entries.back().offsets.emplace();
        place_ = Place::offsets_array;
        return true;
      default: refuse_value("an array");
    }
  }
  bool end_array() override {
    place_ = Place::tensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    switch (place_) {
      case Place::shape_array: header.entries.back().shape->push_back(value); return true;
      case Place::offsets_array: header.entries.back().offsets->push_back(value); return true;
      default: refuse_value(std::to_string(value));
    }
  }
  bool number_integer(number_integer_t value) override { refuse_value(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { refuse_value(text); }
  bool null() override { refuse_value("null"); }
  bool boolean(bool value) override { refuse_value(value ? "true" : "false"); }
  bool binary(binary_t&) override { refuse_value("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    refuse_file(origin_, fmt::format("the header is not valid JSON at its byte {}.", position));
  }

 private:
  enum class Place {
    start,
    top,
    metadata_object,
    metadata,
    metadata_value,
    tensor_value,
    tensor,
    dtype,
    shape,
    shape_array,
    offsets,
    offsets_array,
  };

  bool tensor_key(const std::string& key) {
    HeaderEntry& entry = header.entries.back();
    const auto once = [&](bool seen, Place next) {
      if (seen)
        refuse_file(origin_, fmt::format("tensor {} has {} twice, but it must have it once.",
                                         in_quotes(entry.name), key));
      place_ = next;
      return true;
    };
    if (key == "dtype") return once(entry.dtype.has_value(), Place::dtype);
    if (key == "shape") return once(entry.shape.has_value(), Place::shape);
    if (key == "data_offsets") return once(entry.offsets.has_value(), Place::offsets);
    refuse_file(origin_,
                fmt::format("tensor {} has the field {}, but only dtype, shape and data_offsets are allowed.",
                            in_quotes(entry.name), in_quotes(key)));
  }

  [[noreturn]] void refuse_value(const std::string& what) const {
    const auto tensor = [&](const char* field, const char* wanted) {
      return fmt::format("{} of tensor {} is {}, but it must be {}.", field,
                         in_quotes(header.entries.back().name), what, wanted);
    };
    switch (place_) {
      case Place::metadata_object:
        refuse_file(origin_, fmt::format("{} is {}, but it must be an object.", format_metadata_key, what));
      case Place::metadata_value:
        refuse_file(origin_,
                    fmt::format("metadata {} is {}, but it must be a string.", in_quotes(key_), what));
      case Place::dtype: refuse_file(origin_, tensor("dtype", "a string"));
      case Place::shape: refuse_file(origin_, tensor("shape", "an array of whole numbers"));
      case Place::offsets: refuse_file(origin_, tensor("data_offsets", "an array of two whole numbers"));
      case Place::shape_array:
        refuse_file(origin_, tensor("a size in the shape", "a whole number from 0 to 2^63 − 1"));
      case Place::offsets_array:
        refuse_file(origin_, tensor("an offset in data_offsets", "a whole number from 0 to 2^64 − 1"));
      case Place::tensor_value:
        refuse_file(origin_,
                    fmt::format("tensor {} is {}, but it must be an object.", in_quotes(key_), what));
      default: refuse_file(origin_, fmt::format("the header is {}, but it must be an object.", what));
    }
  }

  std::string origin_;
  Place place_ = Place::start;
  std::string key_;
  std::set<std::string> names_;
};

}  // namespace

std::size_t format_element_bytes(std::optional<DType> dtype) {
  return dtype ? size_of(*dtype) : sizeof(std::int64_t);
}

SafetensorsHeader parse_header(std::string_view text, const std::string& origin) {
  HeaderReader reader(origin);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  return std::move(reader.header);
}

}  // namespace fljsd
