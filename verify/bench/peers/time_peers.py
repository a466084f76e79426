# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch, torch.compile and Liger-Kernel on the tensors of `fljsd bench`, in turns, with CUDA events.

    python3 verify/bench/peers/time_peers.py --tokens 1024,8192 --csv peers.csv
    python3 verify/bench/peers/time_peers.py --tokens 1024,8192 --fljsd --csv pytorch.csv     fljsd.torch among them

`fljsd bench --peers` runs it with --json. Writes times (median, 20 and 80 % quantile) and the peak memory that PyTorch reports, in the columns of Liger-Kernel's
benchmark data; provider `torch-matmul` is the two plain products (full: four), to take ratios to. Forward is under
no_grad; full is forward and backward to student input and weight, the teacher frozen, gradients fresh each time.
Liger-Kernel computes the gradients in its forward call; it is left out, with a line that says so, where it is not
installed. Peers come from verify/peers.
"""
import argparse
import datetime
import importlib.metadata
import json
import pathlib
import statistics
import sys
from types import SimpleNamespace

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "verify" / "peers"), str(ROOT / "verify" / "python")]
import torch  # noqa: E402
import torch_eager  # noqa: E402
from torch_parts import reduce  # noqa: E402

MASK = (1 << 64) - 1


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def mix_number(z):
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def mix(z):
    """SplitMix64 of int64 tensors, as verify/bench/gpu/fill.cu has it; a shift to the right must not bring in the sign."""
    def right(x, by):
        return (x >> by) & ((1 << (64 - by)) - 1)

    z = z + signed(0x9E3779B97F4A7C15)
    z = (z ^ right(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ right(z, 27)) * signed(0x94D049BB133111EB)
    return z ^ right(z, 31)


def uniform(rows, columns, seed):
    """k/256, k = 0..255: the tensor that `fljsd bench` draws for this seed."""
    count, start = rows * columns, signed(mix_number(seed))
    out = torch.empty(count, dtype=torch.bfloat16, device="cuda")
    piece = 1 << 26
    for first in range(0, count, piece):
        index = torch.arange(first, min(first + piece, count), device="cuda", dtype=torch.int64)
        out[first:first + piece] = ((mix(index + start) & 255).float() / 256).bfloat16()
    return out.view(rows, columns)


def peers(t, ours=False):
    """Functions of a namespace of tensors that return the loss, by provider."""
    def eager(t):
        token_loss = torch_eager.jsd((t.student_input, t.student_weight, None), (t.teacher_input, t.teacher_weight, None),
                                     1.0, 0.5)
        return reduce(token_loss, torch.ones_like(token_loss, dtype=torch.bool), "batchmean")[1]

    found = {"torch": eager, "torch-compile": torch.compile(eager)}
    try:
        from liger_kernel.transformers.fused_linear_jsd import LigerFusedLinearJSD
    except ImportError:
        print("Liger-Kernel is not installed and is left out.", file=sys.stderr)
    else:
        module = LigerFusedLinearJSD(jsd_beta=0.5)
        found["liger"] = lambda t: module(t.student_input, t.student_weight, t.teacher_input, t.teacher_weight,
                                           None)  # no labels: all tokens count
    if ours:
        from fljsd.torch import fused_linear_jsd

        for name, budget in (("fljsd", None), ("fljsd-16GiB", 16 << 30)):
            found[name] = lambda t, budget=budget: fused_linear_jsd(
                t.student_input, t.student_weight, t.teacher_input, t.teacher_weight, memory_budget=budget)
    return found


def products(t, full):
    x = t.student_input.detach() @ t.student_weight.detach().T
    t.teacher_input @ t.teacher_weight.T
    if full:
        x @ t.student_weight.detach()
        x.T @ t.student_input.detach()


def call(function, t, full):
    if not full:
        with torch.no_grad():
            function(t)
        return
    t.student_input.grad = t.student_weight.grad = None
    function(t).backward()


def main():
    parser = argparse.ArgumentParser(description="Times published implementations on the tensors of fljsd bench.")
    parser.add_argument("--tokens", default="1024,2048,4096,8192")
    parser.add_argument("--vocab", type=int, default=128256)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--fljsd", action="store_true", help="fljsd.torch too")
    parser.add_argument("--csv", help="times and memory in the columns of Liger-Kernel's benchmark data")
    parser.add_argument("--json", help="every sample, for fljsd bench")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("There is no GPU to measure: PyTorch finds no CUDA device.")
    torch._dynamo.config.automatic_dynamic_shapes = False
    tokens_list = [int(text) for text in arguments.tokens.split(",")]
    most, vocab, hidden, seed = max(tokens_list), arguments.vocab, arguments.hidden, arguments.seed
    inputs = [uniform(most, hidden, seed + i) for i in range(2)]
    weights = [uniform(vocab, hidden, seed + 2 + i) for i in range(2)]
    gpu, versions = torch.cuda.get_device_name(), f'"{{""H"": {hidden}, ""V"": {vocab}, ""torch"": ""{torch.__version__}""}}"'
    try:
        liger_version = importlib.metadata.version("liger_kernel")
    except importlib.metadata.PackageNotFoundError:
        liger_version = ""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    lines = ["kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_label,x_value,y_value_50,"
             "y_value_20,y_value_80,extra_benchmark_config_str,gpu_name,timestamp,liger_version"]

    rows = []

    def line(provider, mode, metric, unit, tokens, middle, low, high):
        lines.append(f"fused_linear_jsd,{provider},{mode},{metric},{unit},BT,B x T,{tokens},{middle},{low},{high},"
                     f"{versions},{gpu},{now},{liger_version if provider == 'liger' else ''}")

    for tokens in tokens_list:
        t = SimpleNamespace(student_input=inputs[0][:tokens].detach().requires_grad_(),
                            student_weight=weights[0].detach().requires_grad_(),
                            teacher_input=inputs[1][:tokens], teacher_weight=weights[1])
        for mode in ("forward", "full"):
            full = mode == "full"
            functions = {"torch-matmul": lambda: products(t, full)}
            for name, function in peers(t, arguments.fljsd).items():
                functions[name] = lambda function=function: call(function, t, full)
            memory = {}
            for name, function in functions.items():  # compiles, warms up, and measures memory
                t.student_input.grad = t.student_weight.grad = None
                function()
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                function()
                torch.cuda.synchronize()
                memory[name] = torch.cuda.max_memory_allocated()
                line(name, mode, "memory", "MB", tokens, *[memory[name] / 2**20] * 3)
            times = {name: [] for name in functions}
            for _ in range(arguments.rounds):
                for name, function in functions.items():
                    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    start.record()
                    function()
                    stop.record()
                    torch.cuda.synchronize()
                    times[name].append(start.elapsed_time(stop))
            for name, samples in times.items():
                middle = statistics.median(samples)
                low, *_, high = statistics.quantiles(samples, n=5, method="inclusive")
                line(name, mode, "speed", "ms", tokens, middle, low, high)
                rows.append({"variant": name, "tokens": tokens, "pass": mode, "milliseconds": samples,
                             "memory_bytes": memory[name]})
                print(f"{tokens} {mode} {name}: {middle:.3f} ms", file=sys.stderr, flush=True)
            if arguments.csv:  # what is there already, should a later size fail
                pathlib.Path(arguments.csv).write_text("\n".join(lines) + "\n")
            if arguments.json:
                pathlib.Path(arguments.json).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
