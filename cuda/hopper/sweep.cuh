// SPDX-License-Identifier: Apache-2.0
// Promise: statistics of all tokens from two matrix products whose results never leave the registers.
//
//   X = student_input · student_weightᵀ,  Y = teacher_input · teacher_weightᵀ,  pairs (X_tv, Y_tv) folded
//   into sums
//
// T tokens, V vocab, H_s and H_t hidden. FLOPs 2·T·V·(H_s + H_t) on the tensor cores. Bytes: weights once for
// each group of tokens (tile_order.h), activations once; nothing is written but a few records a token.
//
// A block of threads is one producer warp, which lets the copy engine fill a ring of five stages in shared
// memory, and two warpgroups of consumers, 64 tokens each, which multiply. Two blocks on neighbouring
// multiprocessors form a cluster: they have different tokens and the same vocabulary entries, and each loads
// half of a weight tile for both. A consumer holds the 64 x 160 accumulators of both models, 160 registers a
// thread:
//
//   k loop over H_s  → student logits     meanwhile: the second half of the rows of the tile before
//   k loop over H_t  → teacher logits
//   the first half of the rows, from the accumulators
//   the second half's student logits move to where the first half's teacher logits were: the student's
//   accumulators are free for the next tile
//
// so that half of the statistics is computed while the tensor cores work for the same warpgroup, and the
// other half while they work for the other warpgroup, which may be up to five stages ahead or behind.
// References of a row are the maxima of its first tile. The fast kernel does not scan later ones, which would
// cost 2 % of the time: sums that grow past 2^64 say that a logit lies too far above the reference, and then
// the general kernel (SweepKind::careful) does the group of tokens again.
#pragma once

#include "cuda/hopper/ptx.cuh"
#include "cuda/hopper/statistics.cuh"
#include "cuda/hopper/sweep.h"
#include "cuda/hopper/wgmma.cuh"

namespace fljsd::cuda::hopper {

constexpr int k_block = 64;  // elements of hidden in a stage: 128 bytes, one swizzle row
constexpr int stages = 5;
constexpr int consumers = 256;                       // threads
constexpr int input_bytes = cta_rows * k_block * 2;  // of a stage

// Shared memory, from an address at a multiple of 1024 (the swizzle's atom).
template <class Sums>
struct Layout {
  static constexpr int weight_bytes = tile_columns * k_block * 2, stage_bytes = input_bytes + weight_bytes;
  static constexpr int per_lane = Sums::sums / 4;
  static constexpr int half_floats = per_lane * consumers;             // sums of one half of the rows
  static constexpr int sums_bytes = most_turns * 2 * half_floats * 4;  // [turn][half][sum][thread]
  static constexpr int reference_bytes =
      most_turns * cta_rows * static_cast<int>(sizeof(typename Sums::Reference));  // [turn][row]
  static constexpr int sums_at = stages * stage_bytes;
  static constexpr int references_at = sums_at + sums_bytes;
  static constexpr int bytes = references_at + reference_bytes + 1024;  // 1024: to reach that multiple
};

// Position in the ring: a stage, and the parity of its barriers' phase.
struct RingPosition {
  std::uint32_t stage = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

// The general kernel goes on to the next group that the fast one has marked.
template <bool general>
__device__ __forceinline__ void skip_unmarked(TileCursor& cursor, const SweepArguments& p) {
  if constexpr (general) {
    if (p.marks == nullptr || !cursor.first_of_group()) return;
    while (!cursor.done() && p.marks[cursor.group.index] == 0) cursor.skip_group();
  }
}

// Fills the ring, one thread a block.
template <class L, bool general>
__device__ __forceinline__ void produce(const SweepMaps& maps, const SweepArguments& p, std::uint32_t ring,
                                        std::uint32_t full, std::uint32_t empty, int cluster, int rank) {
  constexpr std::uint16_t both = (1u << cluster_size) - 1;
  RingPosition at;
  TileCursor cursor(p.order, cluster);
  skip_unmarked<general>(cursor, p);
  for (; !cursor.done(); cursor.advance(), skip_unmarked<general>(cursor, p)) {
    const int row = cursor.block() * block_rows + rank * cta_rows;
    const int column = cursor.column_tile() * tile_columns + rank * (tile_columns / cluster_size);
    for (int model = 0; model < 2; ++model) {
      const CUtensorMap* input = model == 0 ? &maps.student_input : &maps.teacher_input;
      const CUtensorMap* weight = model == 0 ? &maps.student_weight : &maps.teacher_weight;
      const int blocks = model == 0 ? p.student_k_blocks : p.teacher_k_blocks;
      for (int k = 0; k < blocks; ++k, at.advance()) {
        barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
        const std::uint32_t to = ring + at.stage * L::stage_bytes, barrier = full + 8 * at.stage;
        barrier_arrive_expect(barrier, L::stage_bytes);
        copy_box(to, input, barrier, k * k_block, row);
        copy_box_multicast(to + input_bytes + rank * (L::weight_bytes / cluster_size), weight, barrier,
                           k * k_block, column, both);
      }
    }
  }
}

template <int value>
struct Constant {
  static constexpr int v = value;
};
// f(Constant<0>), ..., f(Constant<count − 1>): a loop whose index can subscript registers.
template <int count, int i = 0, class F>
__device__ __forceinline__ void unrolled(const F& f) {
  if constexpr (i < count) {
    f(Constant<i>{});
    unrolled<count, i + 1>(f);
  }
}

template <class Sums, class Element, bool general>
__device__ __forceinline__ void consume(const SweepArguments& p, unsigned char* shared, std::uint32_t ring,
                                        std::uint32_t full, std::uint32_t empty, int cluster, int rank) {
  using L = Layout<Sums>;
  constexpr int accumulators_of_model = tile_columns / 2;  // of a thread
  constexpr int column_groups = tile_columns / 8;
  constexpr int pairs = 2 * column_groups;  // of a thread in a half of the rows
  // Pairs of the second half between two steps of the k loop: so few that this warpgroup's next product is
  // not late. With four a step the sweep was 2 to 3 % slower, with one as fast.
  constexpr int burst_pairs = 2, bursts = pairs / burst_pairs;
  const int thread = static_cast<int>(threadIdx.x) - 128, group = thread / 128, in_group = thread % 128;
  const int lane = thread % 32, quad_lane = lane % 4;
  const int first_row = group * 64 + in_group / 32 * 16 + lane / 4;  // of the block's; the other half: + 8

  float student[accumulators_of_model] = {}, teacher[accumulators_of_model] = {};
  RingPosition at;
  int release = -1;  // the stage that the products before the last ones read
  // Threads 0 and 1 of a warpgroup tell the two blocks of the cluster that a stage may be filled again.
  const bool tells = in_group < cluster_size;
  const std::uint32_t told = tells ? cluster_address(empty, static_cast<std::uint32_t>(in_group)) : 0;
  const auto release_stage = [&] {
    if (release >= 0 && tells) barrier_arrive_cluster(told + 8 * release);
  };
  // Products of k blocks [k, end). One group of products is always under way; what it reads is released one
  // round later. The loop's own instructions cost power as the statistics do, so everything that is the same
  // for a warp is made to be known as such, and addresses are kept from being computed anew.
  const std::uint32_t first_a =
      same_for_warp(operand_low(ring + static_cast<std::uint32_t>(group) * (input_bytes / 2)));
  const std::uint32_t first_b = same_for_warp(operand_low(ring + input_bytes));
  const std::uint32_t first_full = kept(full);
  const auto k_loop = [&](float(&accumulators)[accumulators_of_model], int& k, int end) {
    for (; k < end; ++k) {
      barrier_wait(first_full + 8 * at.stage, at.parity);
      const std::uint32_t from = same_for_warp(at.stage * (L::stage_bytes / 16));
      wgmma_fence();
      Wgmma<Element, tile_columns>::add(accumulators, first_a + from, first_b + from, k != 0);
      wgmma_commit();
      wgmma_wait<1>();
      release_stage();
      release = at.stage;
      at.advance();
    }
  };

  float* const all_sums = reinterpret_cast<float*>(shared + L::sums_at);
  using Reference = typename Sums::Reference;
  Reference* const all_references = reinterpret_cast<Reference*>(shared + L::references_at);
  const auto sums_of = [&](int turn, int half) {
    return all_sums + (2 * turn + half) * L::half_floats + thread;
  };
  const auto reference_of = [&](int turn, int half) -> Reference& {
    return all_references[turn * cta_rows + first_row + 8 * half];
  };
  const auto row_sums = [&](int turn, int half) {
    return RowSums{sums_of(turn, half) - quad_lane, L::per_lane, consumers};
  };
  const unsigned quad = 0xfu << (lane - quad_lane);

  Sums sums;
  int turn = 0;      // of the tile whose pairs are being added
  bool bad = false;  // whether sums of this group are, where they may be
  // Scans a half of the rows, whose pair i is (x(i), y(i)), in registers, and raises the row's reference if
  // need be. Registers may change here, so not while products are under way: the compiler would wait for
  // those.
  const auto scan_half = [&](int half, const auto& x, const auto& y) {
    if constexpr (Sums::scans != Scans::no_tile) {
      typename Sums::Scan tile;
#pragma unroll
      for (int i = 0; i < pairs; ++i) tile.see(x(i), y(i));
      tile.join_quad();
      Reference reference = reference_of(turn, half);
      if (Sums::exceeds(tile, reference, p.scale)) {  // the same in the whole quad
        const Reference raised = Sums::raised(tile, reference, p.scale);
        __syncwarp(quad);
        if (quad_lane == 0) {
          Sums::raise(row_sums(turn, half), reference, raised, p);
          reference_of(turn, half) = raised;
        }
        __syncwarp(quad);
        reference = raised;
      }
      const float x_base = Sums::student_base(reference), y_base = Sums::teacher_base(reference);
      if (x_base != 0 || y_base != 0) {
        bad = true;
        if constexpr (general) {
#pragma unroll
          for (int i = 0; i < pairs; ++i) x(i) -= x_base, y(i) -= y_base;
        }
      }
    }
  };
  // Adds the sums of a half of the rows to what earlier tiles left.
  const auto end_half = [&](int half) {
    if constexpr (Sums::marks) bad = bad || sums.are_bad();
    float totals[L::per_lane];
    reduce_quad<Sums::sums>(sums.m, lane, totals);
    float* mine = sums_of(turn, half);
#pragma unroll
    for (int i = 0; i < L::per_lane; ++i) mine[i * consumers] += totals[i];
  };
  // Adds pairs first, first + 1, ..., first + count − 1 of half a row.
  const auto add_pairs = [&](auto first, auto count, const auto& x, const auto& y) {
    constexpr int begin = decltype(first)::v, n = Sums::pairs_at_once;
#pragma unroll
    for (int i = begin; i < begin + decltype(count)::v; i += n) {
      sums.add([&](int j) { return x(i + j); }, [&](int j) { return y(i + j); }, p);
      pin(sums.m);
    }
  };
  // Row of the group that this thread has in a turn and a half.
  const auto row_of_group = [&](const Group& of, int t, int half) {
    const int block = (cluster + t * p.order.clusters) % of.blocks;
    return block * block_rows + rank * cta_rows + first_row + 8 * half;
  };
  const auto clear_sums = [&](const Group& next) {
    for (int t = 0; t < next.turns; ++t) {
      for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < L::per_lane; ++i) sums_of(t, half)[i * consumers] = 0;
        const int token = next.first_block * block_rows + row_of_group(next, t, half);
        if (quad_lane == 0) reference_of(t, half) = Sums::first_reference(p, token);
      }
    }
    __syncwarp();
  };
  // Records of a finished group, named by what the order makes it from: fewer registers than the group.
  const auto write_records = [&](int index, int first_block, std::int64_t first_record) {
    const Group finished = p.order.group_from(index, first_block, first_record);
    // Rows of ignored tokens mark too: the kernel has no labels. Such a group is done twice, and the last
    // bits of its other tokens may then be the general kernel's; nothing else of an ignored token shows.
    if constexpr (Sums::marks) {
      if (bad) p.marks[index] = 1;
      bad = false;
    }
    __syncwarp();
#pragma unroll 1
    for (int t = 0; t < finished.turns; ++t) {
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        const int row = row_of_group(finished, t, half);
        if (finished.first_block * block_rows + row >= p.tokens) continue;
        const std::int64_t record = finished.first_record + std::int64_t{row} * finished.slots +
                                    cluster / (finished.blocks / finished.turns);
        Sums::write(row_sums(t, half), reference_of(t, half), quad_lane,
                    p.records + record * Sums::record_floats);
      }
    }
    __syncwarp();
  };

  // Pairs of the first half of the rows: in both models' accumulators. Of the second one, after the move:
  // both in the teacher's registers.
  const auto first_x = [&](int i) -> float& { return student[4 * (i / 2) + i % 2]; };
  const auto first_y = [&](int i) -> float& { return teacher[4 * (i / 2) + i % 2]; };
  const auto last_x = [&](int i) -> float& { return student[4 * (i / 2) + 2 + i % 2]; };
  const auto last_y = [&](int i) -> float& { return teacher[4 * (i / 2) + 2 + i % 2]; };
  const auto second_x = first_y;
  const auto second_y = last_y;
  const auto burst = [&](auto index) {
    constexpr int b = decltype(index)::v;
    if constexpr (b == 0) sums.begin(reference_of(turn, 1));
    add_pairs(Constant<burst_pairs * b>{}, Constant<burst_pairs>{}, second_x, second_y);
    if constexpr (b == bursts - 1) end_half(1);
  };

  TileCursor cursor(p.order, cluster);
  skip_unmarked<general>(cursor, p);
  // Of the tile whose second half is pending: its group, if the tile closes it, otherwise -1.
  int closed_group = -1, closed_block = 0;
  std::int64_t closed_record = 0;
  const auto finish_second_half = [&](auto index) {
    burst(index);
    if constexpr (decltype(index)::v == bursts - 1) {
      if (closed_group >= 0) write_records(closed_group, closed_block, closed_record);
    }
  };
  const auto teacher_loop_and_first_half = [&] {
    if (cursor.first_of_group()) clear_sums(cursor.group);
    turn = cursor.turn();
    pin(teacher);
    int k = 0;
    k_loop(teacher, k, p.teacher_k_blocks);
    wgmma_wait<0>();
    pin(student);
    pin(teacher);
    release_stage();
    release = -1;
    const int column = cursor.column_tile() * tile_columns + 2 * quad_lane;
    if constexpr (general) {
#pragma unroll
      for (int i = 0; i < accumulators_of_model; ++i) {
        const int entry = column + i / 4 * 8 + i % 2;
        if (entry < p.vocab) {
          if (p.student_bias != nullptr) student[i] += p.student_bias[entry];
          if (p.teacher_bias != nullptr) teacher[i] += p.teacher_bias[entry];
        }
      }
    }
    if (cursor.column_tile() + 1 == p.order.column_tiles) {
      // Columns that do not exist are -inf where the sums know what that is, and can then never be a
      // reference, not even of a row of nothing but -inf. In the fast kernel they are -2^100: so low that
      // both exponentials are 0, the same in both models, so that their difference is 0 and not NaN, and as a
      // reference a reason for marking.
      const float no_entry = Sums::takes_infinity ? -infinity() : -0x1p100f;
#pragma unroll
      for (int i = 0; i < accumulators_of_model; ++i) {
        if (column + i / 4 * 8 + i % 2 >= p.vocab) student[i] = teacher[i] = no_entry;
      }
    }
    if (Sums::scans == Scans::every_tile || cursor.visit < cursor.group.turns) {
      scan_half(0, first_x, first_y);
      scan_half(1, last_x, last_y);
    }
    sums.begin(reference_of(turn, 0));
    add_pairs(Constant<0>{}, Constant<pairs>{}, first_x, first_y);
    end_half(0);
#pragma unroll
    for (int j = 0; j < column_groups; ++j) {
      teacher[4 * j] = student[4 * j + 2];
      teacher[4 * j + 1] = student[4 * j + 3];
    }
    pin(teacher);
    closed_group = cursor.last_of_group() ? cursor.group.index : -1;
    closed_block = cursor.group.first_block;
    closed_record = cursor.group.first_record;
    cursor.advance();
    skip_unmarked<general>(cursor, p);
  };

  if (cursor.done()) return;
  bool pending = false;
  do {
    pin(student);
    int k = 0;
    unrolled<bursts>([&](auto index) {
      k_loop(student, k, kept(p.student_k_blocks * (decltype(index)::v + 1) / (bursts + 1)));
      if (pending) finish_second_half(index);
    });
    k_loop(student, k, p.student_k_blocks);
    teacher_loop_and_first_half();
    pending = true;
  } while (!cursor.done());
  unrolled<bursts>(finish_second_half);
}

template <class Sums, class Element, bool general>
__global__ void __launch_bounds__(384, 1)
    sweep(const __grid_constant__ SweepMaps maps, const __grid_constant__ SweepArguments p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char raw[];
  __shared__ std::uint64_t barriers[2 * stages];  // most_clusters() knows by it that this body was compiled
  using L = Layout<Sums>;
  unsigned char* const shared = raw + ((1024 - shared_address(raw) % 1024) % 1024);
  const std::uint32_t ring = shared_address(shared), full = shared_address(barriers),
                      empty = full + 8 * stages;
  const int rank = static_cast<int>(cluster_rank()), cluster = static_cast<int>(blockIdx.x) / cluster_size;
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, 2 * cluster_size);  // a thread of every consumer warpgroup of the cluster
    }
    barrier_init_fence();
  }
  cluster_sync();
  if (threadIdx.x < 128) {
    give_registers<24>();
    if (threadIdx.x == 0) produce<L, general>(maps, p, ring, full, empty, cluster, rank);
    __syncwarp();  // the barrier below is one instruction for all threads of a warp
  } else {
    take_registers<240>();
    consume<Sums, Element, general>(p, shared, ring, full, empty, cluster, rank);
  }
  cluster_sync();  // a block must not end while the other one may still signal it
#endif
}

}  // namespace fljsd::cuda::hopper
