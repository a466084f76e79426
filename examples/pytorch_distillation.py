# SPDX-License-Identifier: Apache-2.0
"""Distils the head of a teacher into a student of half its width by fljsd.torch, and prints the loss.

    pip install . && python3 examples/pytorch_distillation.py --steps 20

Runs on a GPU where there is one; on the CPU each step is an answer of the float64 reference.
"""
import argparse

import torch
from fljsd.torch import fused_linear_jsd


def main():
    parser = argparse.ArgumentParser(description="A few steps of distillation.")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--beta", type=float, default=0.5)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokens, hidden, vocab = (4096, 1024, 32000) if device == "cuda" else (16, 16, 64)
    torch.manual_seed(0)
    teacher_head = torch.randn(vocab, hidden, device=device) * hidden**-0.5
    body = torch.nn.Linear(hidden, hidden // 2, bias=False, device=device)
    head = torch.nn.Linear(hidden // 2, vocab, bias=False, device=device)
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-2 if device == "cpu" else 1e-3)
    for step in range(arguments.steps):
        states = 2 * torch.randn(tokens, hidden, device=device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = fused_linear_jsd(body(states), head.weight, states, teacher_head, beta=arguments.beta)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
