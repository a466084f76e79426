# SPDX-License-Identifier: Apache-2.0
"""Liger-Kernel's LigerFusedLinearJSD as installed. Its kernels are Triton: it needs a GPU.

Lacks: losses per token, biases, a padded vocabulary, the reductions sum and none, f64 (its loss is float32). Tensors of
one case must have one format.

    ./fljsd fuzz --candidate "exec:python3 verify/peers/liger.py"
"""
import sys

from needs import need

torch = need("torch")
fljsd = need("fljsd", "fljsd (pip install ./verify/python)")
if not torch.cuda.is_available():
    print(f"{sys.argv[0]} needs a GPU: Liger-Kernel's kernels are Triton, and PyTorch finds no CUDA device.", file=sys.stderr)
    sys.exit(2)
liger = need("liger_kernel.transformers.fused_linear_jsd", "liger-kernel")


def candidate(case):
    t = case.torch()
    formats = {tensor.dtype for tensor in (t.student_input, t.student_weight, t.teacher_input, t.teacher_weight)}
    if len(formats) > 1:
        raise fljsd.Unsupported("tensors of different formats")
    module = liger.LigerFusedLinearJSD(jsd_beta=t.beta, ignore_index=t.ignore_index, temperature=t.temperature)
    loss = module(t.student_input, t.student_weight, t.teacher_input, t.teacher_weight, t.labels)
    return t.answer(loss=loss)


if __name__ == "__main__":
    # Logits in float32 since 0.8.2 on GPUs from Ampere on; before that, in the format of the input.
    fljsd.serve(candidate, accuracy_class="bf16-logits",
                lacks=["token_loss", "bias", "valid_vocab", "reduction_sum", "reduction_none", "f64"])
