// SPDX-License-Identifier: Apache-2.0
// Faults of reading the tensors: strides, alignment, formats, tails of the hidden size.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "verify/zoo/make_fault.h"

namespace fljsd::zoo {
namespace {

constexpr Index tile = 8;

struct LeadingDimensionIgnored : Twin<double> {
  static constexpr About about{"leading-dimension-ignored",
                               "Rows are taken to follow each other, whatever the row stride is."};
  double element(const MatrixView& m, Index row, Index col) const override {
    return load(m.dtype, m.data, row * m.cols + col);
  }
};

struct AlignmentAssumed : Twin<double> {
  static constexpr About about{"alignment-assumed",
                               "Vector loads: the address of a tensor is rounded down to 8 bytes."};
  double element(const MatrixView& m, Index row, Index col) const override {
    MatrixView aligned = m;
    aligned.data =
        reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(m.data) & ~std::uintptr_t{7});
    return Twin::element(aligned, row, col);
  }
};

struct OffsetsWrap : Twin<double> {
  static constexpr About about{
      "offsets-wrap", "Element offsets in int32 wrap in large tensors; scaled down, to 2^8 elements."};
  double element(const MatrixView& m, Index row, Index col) const override {
    return load(m.dtype, m.data, (row * m.row_stride + col) & 0xff);
  }
};

struct Float64ReadAsFloat32 : Twin<double> {
  static constexpr About about{"float64-read-as-float32", "Float64 tensors are narrowed to fp32 first."};
  double element(const MatrixView& m, Index row, Index col) const override {
    return static_cast<float>(Twin::element(m, row, col));
  }
};

struct Float16ReadAsBfloat16 : Twin<double> {
  static constexpr About about{"float16-read-as-bfloat16", "Every 16-bit format is decoded as bf16."};
  double element(const MatrixView& m, Index row, Index col) const override {
    MatrixView assumed = m;
    if (m.dtype == DType::f16) assumed.dtype = DType::bf16;
    return Twin::element(assumed, row, col);
  }
};

struct Float16SubnormalsFlushed : Twin<double> {
  static constexpr About about{"float16-subnormals-flushed",
                               "Decoding fp16 by moving bits turns subnormals, all below 6e-5, into 0."};
  double element(const MatrixView& m, Index row, Index col) const override {
    const double x = Twin::element(m, row, col);
    return m.dtype == DType::f16 && std::abs(x) < 0x1p-14 ? 0 : x;
  }
};

struct SubnormalsFlushed : Twin<double> {
  static constexpr About about{"subnormals-flushed",
                               "Flush-to-zero mode drops subnormal inputs, which a large factor made count."};
  double element(const MatrixView& m, Index row, Index col) const override {
    const double x = Twin::element(m, row, col);
    return m.dtype != DType::f64 && std::abs(x) < 0x1p-126 ? 0 : x;
  }
};

struct BiasInFormatOfWeight : Twin<double> {
  static constexpr About about{"bias-in-format-of-weight",
                               "The bias is decoded in the weight's format, though its own is wider."};
  double bias(Model model, Index entry) const override {
    std::optional<VectorView> b = bias_vector(model);
    if (!b) return 0;
    if (size_of(weight(model).dtype) < size_of(b->dtype)) b->dtype = weight(model).dtype;
    return load(b->dtype, b->data, entry);
  }
};

struct HiddenTailDropped : Twin<double> {
  static constexpr About about{"hidden-tail-dropped", "Only full tiles of the hidden size are summed."};
  Index hidden(Model model) const override { return Twin::hidden(model) / tile * tile; }
};

struct HiddenTileOverlaps : Twin<double> {
  static constexpr About about{"hidden-tile-overlaps",
                               "Off by one in a tile's end: the element at each boundary counts twice."};
  double dot(Model model, Index token, Index entry) const override {
    double sum = Twin::dot(model, token, entry);
    for (Index h = tile; h < hidden(model); h += tile)
      sum += element(input(model), token, h) * element(weight(model), entry, h);
    return sum;
  }
};

struct StudentHiddenForTeacher : Twin<double> {
  static constexpr About about{"student-hidden-for-teacher",
                               "The teacher's dot products run over the student's hidden size."};
  Index hidden(Model) const override {
    return std::min(Twin::hidden(Model::student), Twin::hidden(Model::teacher));
  }
};

struct HiddenCutAt256 : Twin<double> {
  static constexpr About about{"hidden-cut-at-256", "One block of at most 256 hidden units is summed."};
  Index hidden(Model model) const override { return std::min<Index>(256, Twin::hidden(model)); }
};

struct SecondTilesDropped : Twin<double> {
  static constexpr About about{"second-tiles-dropped",
                               "Past the first tile of 64 tokens and of 64 entries, only the first 64 hidden "
                               "units are summed."};
  double dot(Model model, Index token, Index entry) const override {
    inner = token >= 64 && entry >= 64 ? 64 : Twin::hidden(model);
    const double sum = Twin::dot(model, token, entry);
    inner.reset();
    return sum;
  }
  Index hidden(Model model) const override {
    return std::min(inner.value_or(Twin::hidden(model)), Twin::hidden(model));
  }
  mutable std::optional<Index> inner;  // of the dot product that is being computed
};

}  // namespace

std::vector<Fault> reading_faults() {
  return list<LeadingDimensionIgnored, AlignmentAssumed, OffsetsWrap, Float64ReadAsFloat32,
              Float16ReadAsBfloat16, Float16SubnormalsFlushed, SubnormalsFlushed, BiasInFormatOfWeight,
              HiddenTailDropped, HiddenTileOverlaps, StudentHiddenForTeacher, HiddenCutAt256,
              SecondTilesDropped>("reading");
}

}  // namespace fljsd::zoo
