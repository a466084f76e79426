# SPDX-License-Identifier: Apache-2.0
"""The program of torch_eager.py through torch.compile, which keeps float32 between the two products.

Compiles once for each kind of case (bias, endpoint, sizes of 1), not for each size; on the CPU that needs a C++ compiler.
The first cases take a minute. Lacks what torch_eager.py lacks.

    ./fljsd fuzz --candidate "exec:python3 verify/peers/torch_compile.py"
"""
import torch_eager
from torch_parts import reduce, serve, torch

torch._dynamo.config.recompile_limit = 1000  # past it, the rest would silently run uncompiled
torch._dynamo.config.fail_on_recompile_limit_hit = True
compiled = {function: torch.compile(function, dynamic=True)
            for function in (torch_eager.jsd, torch_eager.teacher_kl, torch_eager.student_kl)}


def pipeline(t):
    # As tensors, beta and temperature are inputs of the compiled program rather than constants in it.
    beta, temperature = torch.tensor([t.beta, t.temperature], dtype=torch.float32, device=t.device)
    divergence = compiled[torch_eager.divergence(t.beta)]
    token_loss = divergence((t.student_input, t.student_weight, t.student_bias),
                            (t.teacher_input, t.teacher_weight, t.teacher_bias), temperature, beta)
    token_loss, loss = reduce(token_loss, t.counted, t.reduction)
    return token_loss, loss.to(t.student_input.dtype)


if __name__ == "__main__":
    serve(pipeline)
