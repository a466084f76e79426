/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fused linear + generalized Jensen-Shannon divergence on NVIDIA GPUs: the public C interface.
 *
 *   student logits x = (student_input . student_weight^T + student_bias) / temperature      [tokens, vocab]
 *   teacher logits y likewise;  q = softmax(x), p = softmax(y), M = beta p + (1-beta) q
 *   D = beta KL(p|M) + (1-beta) KL(q|M) for 0 < beta < 1;  KL(p|q) for beta = 0;  KL(q|p) for beta = 1
 *
 * docs/math.md states the semantics in full. In short:
 *
 *   fljsd_config config;
 *   fljsd_config_init(&config, sizeof config);
 *   config.tokens = ...; config.vocab = ...; config.student_hidden = config.teacher_hidden = ...;
 *   config.gradients = FLJSD_STUDENT_INPUT_GRAD | FLJSD_STUDENT_WEIGHT_GRAD;
 *   fljsd_plan* plan;
 *   if (fljsd_plan_create(&config, &plan) != FLJSD_OK) puts(fljsd_last_error());
 *   uint64_t bytes;  // of device memory to allocate:
 *   fljsd_plan_workspace_bytes(plan, FLJSD_FORWARD_BACKWARD, &bytes);
 *   fljsd_forward_backward(plan, &tensors, workspace, bytes, stream);  // asynchronous, as a kernel launch is
 *
 * What holds for every call:
 *   - Errors are a status and a sentence: fljsd_last_error() of the same thread. Nothing is written when a
 *     call refuses its arguments; after FLJSD_CUDA_ERROR outputs are undefined.
 *   - Inputs are never written. The workspace may hold any bytes, and holds nothing of value after a call.
 *   - Only fljsd_plan_create and fljsd_plan_tune allocate or synchronise. The other calls enqueue work on the
 *     given stream and return; they can be captured into a CUDA graph. (With CUDA's lazy loading, the first
 *     launch of a kernel loads its code, which the driver may do with device memory of its own;
 *     CUDA_MODULE_LOADING=EAGER avoids that.)
 *   - A plan does not change after creation and tuning: any number of threads and streams may use one at
 *     once, each call with a workspace and outputs of its own.
 *   - Every size and offset is 64-bit: tokens x vocab may exceed 2^31. tokens and vocab are at most
 *     2^30, columns and leading dimensions 2^29 - 1, and the elements of a matrix 2^56, the logits included.
 *   - The same call on the same device with the same plan gives the same bits.
 *   - Logits over the temperature may have any magnitude up to 2^125 (4e37): they are taken relative to a
 *     logit of their row before anything is multiplied. Beyond, an entry may count as impossible. A logit
 *     whose products leave fp32 is infinite, and +inf makes the token one without a distribution: NaN.
 *   - Structures grow at their end: set struct_size to sizeof the structure as compiled.
 */
#ifndef FLJSD_H
#define FLJSD_H

#include <stdint.h>

#if defined(FLJSD_BUILDING_CUDA)
#define FLJSD_API __attribute__((visibility("default")))
#else
#define FLJSD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What a call returns. */
typedef enum fljsd_status {
  FLJSD_OK = 0,
  FLJSD_INVALID_ARGUMENT = 1,    /* a field has a value that is never allowed */
  FLJSD_UNSUPPORTED = 2,         /* meaningful, but not with this stage, format or device */
  FLJSD_WORKSPACE_TOO_SMALL = 3, /* fewer bytes than the plan needs, or a budget too small to plan */
  FLJSD_MISALIGNED = 4,          /* a pointer is not aligned as documented */
  FLJSD_NO_DEVICE = 5,           /* no CUDA device, or a driver older than this library needs */
  FLJSD_CUDA_ERROR = 6,          /* CUDA or cuBLASLt reported an error, or had one pending before the call */
  FLJSD_COMMUNICATION_ERROR = 7  /* NCCL reported an error, or a rank did not come (fljsd_distributed.h) */
} fljsd_status;

/* Element formats. FLJSD_ABSENT: there is no such tensor. */
typedef enum fljsd_dtype { FLJSD_ABSENT = 0, FLJSD_BF16 = 1, FLJSD_F16 = 2, FLJSD_F32 = 3 } fljsd_dtype;

/* batchmean: the sum over tokens that count, divided by their number (by 1 if none counts). none: no scalar
 * loss; gradients are those of the sum. */
typedef enum fljsd_reduction { FLJSD_BATCHMEAN = 0, FLJSD_SUM = 1, FLJSD_NONE = 2 } fljsd_reduction;

/* Gradients wanted, to be or-ed. The teacher is frozen. */
typedef enum fljsd_gradients {
  FLJSD_STUDENT_INPUT_GRAD = 1,
  FLJSD_STUDENT_WEIGHT_GRAD = 2,
  FLJSD_STUDENT_BIAS_GRAD = 4 /* allowed without a bias: the gradient of a bias of zeros */
} fljsd_gradients;

/* The two things a plan can do. */
typedef enum fljsd_pass { FLJSD_FORWARD = 0, FLJSD_FORWARD_BACKWARD = 1 } fljsd_pass;

/* What a plan is made for. Everything that does not depend on where the tensors lie. */
typedef struct fljsd_config {
  uint64_t struct_size; /* sizeof(fljsd_config); fljsd_config_init sets it */

  int64_t tokens;         /* rows of both inputs; 0 is an empty batch with loss 0 */
  int64_t vocab;          /* rows of both weights, >= 1 */
  int64_t student_hidden; /* columns of student_input and student_weight, >= 1 */
  int64_t teacher_hidden; /* columns of teacher_input and teacher_weight, >= 1; may differ */

  /* Leading dimensions: elements from one row to the next, at least the number of columns; 0 means packed.
   * Any value up to 2^29 - 1 works; multiples of 8 elements (and pointers at multiples of 16 bytes) are
   * fastest. What lies between the rows is neither read nor written. */
  int64_t student_input_ld;
  int64_t student_weight_ld;
  int64_t teacher_input_ld;
  int64_t teacher_weight_ld;
  int64_t student_input_grad_ld;
  int64_t student_weight_grad_ld;

  /* fljsd_dtype of input and weight of either model; default FLJSD_BF16. FLJSD_F32 is multiplied in fp32, not
   * in TF32. */
  int32_t student_dtype;
  int32_t teacher_dtype;
  /* Of the input and weight gradients: FLJSD_ABSENT (default) is student_dtype; or FLJSD_F32. */
  int32_t gradient_dtype;
  /* FLJSD_ABSENT (default): no bias. A bias may hold -inf: that entry has probability 0. */
  int32_t student_bias_dtype;
  int32_t teacher_bias_dtype;
  /* Nonzero: labels are given, and a token whose label is ignore_index does not count. */
  int32_t has_labels;
  int64_t ignore_index; /* default -100 */
  /* Entries at or past it do not exist; 0 (default) means vocab. Gradients there are 0. */
  int64_t valid_vocab;

  double beta;        /* in [0, 1]; default 0.5. The endpoints are the two KL divergences */
  double temperature; /* > 0 and finite; default 1. Divides both models' logits */
  int32_t reduction;  /* fljsd_reduction; default FLJSD_BATCHMEAN */
  int32_t gradients;  /* fljsd_gradients or-ed; 0 (default): forward only */

  const char* stage; /* name of a stage, see fljsd_stage_get; default "chunked-vocab" */
  /* Bytes of workspace that chunked stages may use; 0 (default): what the stage recommends. More makes them
   * faster. */
  int64_t memory_budget;
  /* CUDA device ordinal; -1 (default): the current device. Calls must be made with it current. */
  int32_t device;
  int32_t reserved; /* 0 */
  /* For tuning and tests; 0 (default): the stage chooses. Results agree up to rounding whatever they are. */
  int64_t chunk_tokens;         /* tokens of a chunk or tile */
  int64_t chunk_vocab;          /* vocabulary entries of a tile, forward */
  int64_t gradient_chunk_vocab; /* of a tile of chunked-vocab's backward pass, which has all tokens */
} fljsd_config;

/* Device pointers of one call. Any alignment to the element size will do; see the leading dimensions for what
 * is fastest. Outputs must overlap neither each other nor inputs. */
typedef struct fljsd_tensors {
  uint64_t struct_size;       /* sizeof(fljsd_tensors) */
  const void* student_input;  /* [tokens, student_hidden] */
  const void* student_weight; /* [vocab, student_hidden] */
  const void* teacher_input;  /* [tokens, teacher_hidden] */
  const void* teacher_weight; /* [vocab, teacher_hidden] */
  const void* student_bias;   /* [vocab], when the plan has one */
  const void* teacher_bias;   /* [vocab], when the plan has one */
  const int64_t* labels;      /* [tokens], when the plan has labels */
  float* loss;                /* [1]; may be null; not written for FLJSD_NONE */
  float* token_loss;          /* [tokens], before reduction, 0 for an ignored token; may be null */
  void* student_input_grad;   /* [tokens, student_hidden]; needed when planned and the pass is
                                 FLJSD_FORWARD_BACKWARD */
  void* student_weight_grad;  /* [vocab, student_hidden]; likewise */
  float* student_bias_grad;   /* [vocab], fp32; likewise */
} fljsd_tensors;

/* A stage: one way to compute the same thing. */
typedef struct fljsd_stage {
  uint64_t struct_size;    /* sizeof(fljsd_stage), set by the caller */
  const char* name;        /* e.g. "chunked-vocab" */
  const char* description; /* one sentence */
  int32_t is_baseline;     /* nonzero: matrix products only; loss is set to NaN, and token_loss too unless the
                              description says otherwise; gradients mean nothing */
  int32_t logits_dtype;    /* fljsd_dtype that logits are rounded to before the loss is taken */
  /* 10 * major + minor of the oldest GPU it runs on; not always on all newer ones */
  int32_t minimum_capability;
  int32_t reserved;
} fljsd_stage;

typedef struct fljsd_plan fljsd_plan;

/* Version of the library that is loaded: 10000 * major + 100 * minor + patch. */
FLJSD_API int32_t fljsd_version(void);

/* Which GPUs the library holds code for, as CMake names architectures, e.g. "80-real 90a-real 80-virtual". */
FLJSD_API const char* fljsd_architectures(void);

/* Why the last call of this thread did not return FLJSD_OK, in one sentence; "" if it did. Calls that return
 * no status leave it. Valid until the next call of this thread. */
FLJSD_API const char* fljsd_last_error(void);

/* Stages are numbered 0 .. fljsd_stage_count() - 1, the baselines first. The strings live as long as the
 * library. */
FLJSD_API int32_t fljsd_stage_count(void);
FLJSD_API fljsd_status fljsd_stage_get(int32_t index, fljsd_stage* stage);

/* FLJSD_OK if the stage runs on the device (-1: the current one), otherwise FLJSD_UNSUPPORTED or
 * FLJSD_NO_DEVICE and why. */
FLJSD_API fljsd_status fljsd_stage_available(const char* name, int32_t device);

/* Fills in the defaults named above. struct_size: sizeof(fljsd_config). */
FLJSD_API fljsd_status fljsd_config_init(fljsd_config* config, uint64_t struct_size);

/* Checks the configuration and makes a plan: chooses chunks, creates a cuBLASLt handle and asks its
 * heuristics for algorithms, fits quadrature weights for a new beta where the stage needs them (about ten
 * milliseconds). Creates the CUDA context if there is none. No kernel is launched. `config` and the strings
 * it points to are not needed afterwards. */
FLJSD_API fljsd_status fljsd_plan_create(const fljsd_config* config, fljsd_plan** plan);

/* Null is allowed. The plan's calls must have been issued, not necessarily finished. */
FLJSD_API void fljsd_plan_destroy(fljsd_plan* plan);

/* Bytes of workspace that a pass (fljsd_pass) needs, at least; never more than memory_budget if that was set.
 */
FLJSD_API fljsd_status fljsd_plan_workspace_bytes(const fljsd_plan* plan, int32_t pass, uint64_t* bytes);

/* The plan in words: stage, chunks, the cuBLASLt algorithm chosen for each product and, after tuning, its
 * time. Valid until the plan is tuned or destroyed. */
FLJSD_API const char* fljsd_plan_describe(const fljsd_plan* plan);

/* Measures the candidates of cuBLASLt's heuristics for each matrix product of the pass and keeps the fastest.
 * Without this, the heuristics' first choice is used. Synchronises, writes the workspace and all outputs, and
 * must not run while another call uses the plan. A tuned plan may round differently from an untuned one.
 * Arguments as for the pass itself. */
FLJSD_API fljsd_status fljsd_plan_tune(fljsd_plan* plan, int32_t pass, const fljsd_tensors* tensors,
                                       void* workspace, uint64_t workspace_bytes, void* stream);

/* The losses. workspace: device memory at a multiple of 256 bytes, used until the enqueued work is done.
 * stream: a cudaStream_t; null is the default stream. */
FLJSD_API fljsd_status fljsd_forward(const fljsd_plan* plan, const fljsd_tensors* tensors, void* workspace,
                                     uint64_t workspace_bytes, void* stream);

/* The losses and the gradients that were planned (at least one). Gradients are those of the reduced loss. */
FLJSD_API fljsd_status fljsd_forward_backward(const fljsd_plan* plan, const fljsd_tensors* tensors,
                                              void* workspace, uint64_t workspace_bytes, void* stream);

#ifdef __cplusplus
}
#endif

#endif
