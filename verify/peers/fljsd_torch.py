# SPDX-License-Identifier: Apache-2.0
"""fljsd.torch.fused_linear_jsd, the PyTorch operator on this project's CUDA library. Needs a GPU: on the CPU the
operator is the reference itself.

Lacks f64. Where input and weight of a model differ in format, both are widened to f32, as a user has to.

    ./fljsd fuzz --candidate "exec:python3 verify/peers/fljsd_torch.py"
"""
import sys

import numpy as np
from needs import need

torch = need("torch")
fljsd = need("fljsd", "fljsd (pip install ./verify/python)")
if not torch.cuda.is_available():
    print(f"{sys.argv[0]} needs a GPU: PyTorch finds no CUDA device.", file=sys.stderr)
    sys.exit(2)
from fljsd.torch import LibraryError, fused_linear_jsd  # noqa: E402
from fljsd.library import load  # noqa: E402

STAGE = sys.argv[1] if len(sys.argv) > 1 else "auto"
LARGEST = 2.0**125  # of logits over the temperature that the library promises something about (cuda/fljsd.h)


def enormous(case):
    with np.errstate(all="ignore"):
        for model in ("student", "teacher"):
            rows = np.float64(getattr(case, model + "_input"))[case.counted]
            logits = rows @ np.float64(getattr(case, model + "_weight")).T / case.temperature
            if (np.isfinite(logits) & (np.abs(logits) > LARGEST)).any():
                return True
            bias = getattr(case, model + "_bias")
            if bias is not None:
                bias = np.float64(bias) / case.temperature
                if (np.isfinite(bias) & (np.abs(bias) > LARGEST)).any():
                    return True
    return False


def one_format(first, second):
    return (first, second) if first.dtype == second.dtype else (first.float(), second.float())


def candidate(case):
    if enormous(case):
        raise fljsd.Unsupported("logits beyond 2^125")
    t = case.torch("cuda")
    tensors = *one_format(t.student_input, t.student_weight), *one_format(t.teacher_input, t.teacher_weight)
    options = dict(beta=t.beta, temperature=t.temperature, student_bias=t.student_bias, teacher_bias=t.teacher_bias,
                   labels=t.labels, ignore_index=t.ignore_index, valid_vocab=t.valid_vocab, stage=STAGE)
    loss = fused_linear_jsd(*tensors, reduction=t.reduction, **options)
    if t.reduction == "none":
        return t.answer(token_loss=loss)
    with torch.no_grad():
        token_loss = fused_linear_jsd(*tensors, reduction="none", **options)
    return t.answer(loss=loss, token_loss=token_loss)


if __name__ == "__main__":
    try:
        load()
    except LibraryError as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)
    # Loss and token_loss come from different stages (with and without gradients), each of which is deterministic.
    fljsd.serve(candidate, lacks=["f64"], deterministic=True)
