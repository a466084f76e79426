/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several GPUs, one process or thread for each: the vocabulary cut into shards, the tokens into parts, or
 * both.
 *
 *   vocab-parallel   every rank has all tokens of its group and its own rows of both heads (and of the
 *                    biases); rank 0 has the first rows, rank 1 the next, and so on; sizes may differ
 *   token-parallel   every rank has tokens of its own; the loss is the mean over all of them
 *   both             a grid: two communicators for each rank, one of the ranks with the same tokens, one of
 *                    the ranks with the same shard
 *
 * A distributed plan is a plan: fljsd_plan_workspace_bytes, fljsd_forward, fljsd_forward_backward,
 * fljsd_plan_tune, fljsd_plan_describe and fljsd_plan_destroy take it as they take any other. What differs:
 *
 *   - config.vocab is the number of rows of this rank's shard, at least 1; config.valid_vocab counts entries
 *     of the whole vocabulary (0: all), so a rank's shard may lie past it; config.tokens is this rank's, and
 *     may be 0 where the tokens are cut.
 *   - token_loss has this rank's tokens. loss is that of all tokens, the same bits on every rank.
 *   - student_input_grad is complete on every rank of a vocabulary group, and the same bits.
 *   - student_weight_grad and student_bias_grad are of this rank's shard and, where tokens are cut, of this
 *     rank's tokens: to be SUMMED over the ranks with the same shard, not averaged (the loss is the mean
 *     already). sum_weight_gradients does that here.
 *   - Calls are collective: every rank makes the same calls of plans that share a communicator in the same
 *     order, and no two at once. They are enqueued as ever, but each may wait (see timeout_ms) until NCCL has
 *     taken it. fljsd_plan_tune is one of them, with 0 tokens too. They cannot be captured into a CUDA graph,
 *     and the stream must not be cudaStreamPerThread: both are refused.
 *   - A rank that does not come: creating a communicator or a plan, and every call, fail with
 *     FLJSD_COMMUNICATION_ERROR after timeout_ms; and work that is enqueued already is noticed by
 *     fljsd_plan_wait, which is how to wait for a stream that depends on other ranks.
 *   - What fails after its arguments were accepted, with FLJSD_COMMUNICATION_ERROR or another status, leaves
 *     this rank out of step with the others: the communicators of the call are aborted, which ends what is
 *     under way. Destroy plans and communicators; outputs are undefined. A call that refuses its arguments
 *     enqueues nothing and aborts nothing: made again, and rightly, within the others' time limits, it is the
 *     call that they wait for.
 *
 * What travels for each token: its sums over a shard, 256 bytes (448 with gradients, 36 for beta 0 and 1), to
 * every rank of its vocabulary group; with gradients, its row of the input gradient in fp32, summed once; 16
 * bytes for each rank of a token group. docs/distributed.md has the model of the cost.
 *
 * The library finds libnccl.so.2 when a communicator is first made. Built without NCCL's header, it has these
 * functions too, and they return FLJSD_UNSUPPORTED.
 */
#ifndef FLJSD_DISTRIBUTED_H
#define FLJSD_DISTRIBUTED_H

#include "fljsd.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fljsd_communicator fljsd_communicator;

#define FLJSD_COMMUNICATOR_ID_BYTES 128

/* FLJSD_OK if the library was built for several GPUs and finds NCCL; *version: NCCL's, e.g. 22809. */
FLJSD_API fljsd_status fljsd_distributed_available(int32_t* version);

/* An id, made by one rank, for fljsd_communicator_create on all of them; how it gets there is the launcher's
 * business (MPI, PyTorch's store, a file). id: FLJSD_COMMUNICATOR_ID_BYTES bytes to fill. */
FLJSD_API fljsd_status fljsd_communicator_id(void* id);

/* Collective: this rank's end of a communicator of `ranks` ranks, for the current device; every rank needs a
 * device of its own. Non-blocking in NCCL's sense. timeout_ms, > 0: how long this and every later call waits
 * for the other ranks. */
FLJSD_API fljsd_status fljsd_communicator_create(const void* id, int32_t ranks, int32_t rank,
                                                 int64_t timeout_ms, fljsd_communicator** communicator);

/* One for an ncclComm_t of the caller's, made by the same libnccl.so.2, who destroys it later, except after
 * fljsd_communicator_abort or a failure that has aborted it (above), which frees it. No failure of this
 * function does.
 * The current device must be the communicator's. Waits are only bounded if it is non-blocking
 * (ncclConfig_t.blocking = 0). */
FLJSD_API fljsd_status fljsd_communicator_adopt(void* nccl_comm, int64_t timeout_ms,
                                                fljsd_communicator** communicator);

/* Ends what is under way on this rank; peers notice by their time limits. For a rank that gives up. From any
 * thread: a call of another one that waits, fljsd_plan_wait too, ends with FLJSD_COMMUNICATION_ERROR. */
FLJSD_API fljsd_status fljsd_communicator_abort(fljsd_communicator* communicator);

/* After the plans that use it. Null is allowed. */
FLJSD_API void fljsd_communicator_destroy(fljsd_communicator* communicator);

/* Who takes part. */
typedef struct fljsd_ranks {
  uint64_t struct_size; /* sizeof(fljsd_ranks) */
  fljsd_communicator*
      vocab; /* ranks with the same tokens and other shards; null: the vocabulary is not cut */
  fljsd_communicator* tokens; /* ranks with the same shard and other tokens; null: the tokens are not cut */
  /* Nonzero: weight and bias gradients are summed over `tokens`. gradient_dtype must then be FLJSD_F32 (parts
   * that were rounded before they are added lose what rounding once keeps), and student_weight_grad packed.
   */
  int32_t sum_weight_gradients;
  /* Nonzero: the ranks of `tokens` have compared plans before that differ from this one in nothing but
   * tokens, labels, leading dimensions, formats, budget and tiles, so they are not asked again. The plan is
   * then made without them (collectively over `vocab` alone, if that is cut), as a rank needs it whose number
   * of tokens changes while theirs may not. */
  int32_t tokens_compared;
} fljsd_ranks;

/* Collective: fljsd_plan_create, and what the ranks must agree on is compared: a difference is an error that
 * names the field and the ranks, on every rank of the group, and a rank that refuses its configuration or
 * cannot make its part is one on every rank of the grid. Either leaves communicators as they were. They must
 * outlive the plan.
 * config.stage must be "chunked-vocab", the default; where stage "fused" serves, the forward pass has its
 * sweep all the same, unless chunk_tokens or chunk_vocab ask for tiles, and fljsd_plan_describe says so.
 * Synchronises, and allocates for a moment. */
FLJSD_API fljsd_status fljsd_plan_create_distributed(const fljsd_config* config, const fljsd_ranks* ranks,
                                                     fljsd_plan** plan);

/* Waits until the stream has done what was enqueued; after timeout_ms, or when NCCL reports an error or a
 * communicator of the plan was aborted, aborts all of them and returns FLJSD_COMMUNICATION_ERROR. Any plan
 * will do; its device must be the current one. */
FLJSD_API fljsd_status fljsd_plan_wait(const fljsd_plan* plan, void* stream, int64_t timeout_ms);

/* Bytes that a pass sends from this rank, by the counts of ring algorithms: (R - 1)·n for a gather of n bytes
 * a rank, 2·(R - 1)/R·n for a sum of n bytes. 0 for a plan of one GPU. */
FLJSD_API fljsd_status fljsd_plan_exchanged_bytes(const fljsd_plan* plan, int32_t pass, uint64_t* bytes);

#ifdef __cplusplus
}
#endif

#endif
