# SPDX-License-Identifier: Apache-2.0
"""A tiny student learns from its teacher through one implementation of the loss after the other, and what each reports is
set beside the true loss of the same parameters.

    python3 verify/bench/peers/distillation.py --csv distillation.csv

One linear layer and a head, fp32 parameters, bf16 in the products as under autocast; Adam, its rate falling to 0 as a
cosine. The student starts near the teacher and can reach it. One hidden unit is 1 in both models and its weights are the
same for all entries: logits then lie around OFFSET as those of language models do, which no probability depends on.

Implementations, all of which are given the same bf16 tensors and return bf16 gradients of them:

    float64       the definition in float64, by autograd
    fljsd         fljsd.torch; on the CPU the reference, which is slow
    liger         Liger-Kernel as installed; needs a GPU
    bf16-logits   logits rounded to bf16, all else in fp32
    torch         bf16 logits and bf16 log-probabilities: verify/peers/torch_eager.py

Columns of the CSV: implementation, seed, step, reported (the loss that the implementation returned), true (in float64, of
the parameters at that step, on the tokens of that step).
"""
import argparse
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "verify" / "peers"), str(ROOT / "verify" / "python")]
import torch  # noqa: E402
import torch_eager  # noqa: E402
from fljsd.torch import fused_linear_jsd  # noqa: E402

TOKENS, VOCAB, HIDDEN = 256, 256, 32
LOGIT_SCALE, OFFSET = 3.0, 20.0
RATE = 3e-3


def divergence(student_logits, teacher_logits):
    """The mean divergence for beta = 1/2, in the dtype of the logits."""
    log_q, log_p = student_logits.log_softmax(-1), teacher_logits.log_softmax(-1)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return ((log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)) / 2).sum(-1).mean()


def float64(x, w, y, u):
    return divergence(x.double() @ w.double().T, y.double() @ u.double().T)


def bf16_logits(x, w, y, u):
    return divergence((x @ w.T).float(), (y @ u.T).float())


def eager(x, w, y, u):
    return torch_eager.jsd((x, w, None), (y, u, None), 1.0, 0.5).mean()


def implementations(device):
    found = {"float64": float64, "fljsd": fused_linear_jsd, "bf16-logits": bf16_logits, "torch": eager}
    if device == "cuda":
        try:
            from liger_kernel.transformers.fused_linear_jsd import LigerFusedLinearJSD
        except ImportError:
            print("Liger-Kernel is not installed and is left out.", file=sys.stderr)
        else:
            found["liger"] = lambda x, w, y, u: LigerFusedLinearJSD()(x, w, y, u, None)
    return found


def distil(loss_of, steps, seed, device):
    """Yields (reported, true) of each step. All randomness is drawn on the CPU, so that devices agree."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    teacher_head = normal(VOCAB, HIDDEN) * LOGIT_SCALE / HIDDEN**0.5
    head = teacher_head + 0.2 * normal(VOCAB, HIDDEN) * LOGIT_SCALE / HIDDEN**0.5
    body = torch.eye(HIDDEN) + 0.08 * normal(HIDDEN, HIDDEN) / HIDDEN**0.5
    teacher_head[:, 0] = head[:, 0] = OFFSET
    states = normal(steps, TOKENS, HIDDEN)
    states[:, :, 0] = 1
    teacher_head, states = teacher_head.to(device).bfloat16(), states.to(device).bfloat16()
    head, body = head.to(device).requires_grad_(), body.to(device).requires_grad_()
    optimizer = torch.optim.Adam([head, body], lr=RATE)
    for step, y in enumerate(states):
        optimizer.param_groups[0]["lr"] = RATE * (1 + math.cos(math.pi * step / steps)) / 2
        x, w = y @ body.bfloat16(), head.bfloat16()
        loss = loss_of(x, w, y, teacher_head)
        true = float64(x.detach(), w.detach(), y, teacher_head)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach(), true


def main():
    parser = argparse.ArgumentParser(description="Distils a tiny model through several implementations of the loss.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--every", type=int, default=10, help="steps between rows of the CSV")
    parser.add_argument("--only", help="implementations, separated by commas")
    parser.add_argument("--csv")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "a CPU"
    lines = [f"# verify/bench/peers/distillation.py on {name}, PyTorch {torch.__version__}, {arguments.steps} steps",
             "implementation,seed,step,reported,true"]
    chosen = implementations(device)
    for kind in arguments.only.split(",") if arguments.only else chosen:
        for seed in range(arguments.seeds):
            results = list(distil(chosen[kind], arguments.steps, seed, device))  # read at the end: no waiting at each step
            for step, (reported, true) in enumerate(results):
                if step % arguments.every == 0 or step == len(results) - 1:
                    lines.append(f"{kind},{seed},{step},{reported.item():.4g},{true.item():.4g}")
            print(f"{kind}, seed {seed}: reported {reported.item():.3g}, true {true.item():.3g}", flush=True)
    if arguments.csv:
        pathlib.Path(arguments.csv).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
