# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's operator costs over the C interface, and the operator beside published implementations.

    python3 verify/bench/peers/time_torch_op.py                  host time of a call, at small sizes
    python3 verify/bench/peers/time_torch_op.py --tokens 4096    besides, time and memory beside eager and Liger-Kernel

Overhead: the host returns from a call before the device has done it, so the host clock is read around batches of
calls, the device idle at the start of each; the median over batches, operator and direct call in turns. The direct call
has its plan, structures, workspace and outputs at hand: nothing but ctypes and the library.
"""
import argparse
import ctypes
import pathlib
import statistics
import sys
import time
from types import SimpleNamespace

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "verify" / "python"), str(pathlib.Path(__file__).resolve().parent)]
import torch  # noqa: E402
from fljsd import library  # noqa: E402
from fljsd.torch import fused_linear_jsd  # noqa: E402
from fljsd.torch.layout import Options, layouts  # noqa: E402
from fljsd.torch.plan import plan_for  # noqa: E402


def small(tokens=16, hidden=64, vocab=256):
    made = [torch.randn(shape, device="cuda").bfloat16() for shape in ((tokens, hidden), (vocab, hidden)) * 2]
    return [made[0].requires_grad_(), made[1].requires_grad_(), *made[2:]]


def direct_call(tensors, with_gradients):
    """The same call through ctypes alone, as a function without arguments."""
    flags = library.INPUT_GRAD | library.WEIGHT_GRAD if with_gradients else 0
    options = Options(0.5, 1.0, -100, 0, "batchmean", "auto", 0)
    plan = plan_for(layouts((*tensors, None, None, None)), options, flags)
    loss = torch.empty((), device="cuda")
    call = library.Tensors(ctypes.sizeof(library.Tensors), *[t.data_ptr() for t in tensors], loss=loss.data_ptr())
    kept = [loss]
    if with_gradients:
        kept += [torch.empty_like(t) for t in tensors[:2]]
        call.student_input_grad, call.student_weight_grad = kept[1].data_ptr(), kept[2].data_ptr()
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    stream, run, address = torch.cuda.current_stream().cuda_stream, plan._run, workspace.data_ptr()

    def function():
        library.check(run(plan._handle, call, address, plan.workspace_bytes, stream))

    function.kept = kept, workspace
    return function


def microseconds(functions, batches=200, calls=20):
    """Median host time of a call of each function."""
    times = {name: [] for name in functions}
    for at in range(batches + 5):
        for name, function in functions.items():
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            for _ in range(calls):
                function()
            if at >= 5:  # warm
                times[name].append((time.perf_counter_ns() - start) / calls / 1000)
    return {name: statistics.median(samples) for name, samples in times.items()}


def overhead():
    tensors = small()
    frozen = [t.detach() for t in tensors]
    medians = microseconds({"forward, direct": direct_call(frozen, False),
                            "forward, operator": lambda: fused_linear_jsd(*frozen),
                            "with gradients, direct": direct_call(tensors, True),
                            "with gradients, operator": lambda: fused_linear_jsd(*tensors)})
    for name, median in medians.items():
        print(f"{name:26s}{median:8.1f} us a call")
    for mode in ("forward", "with gradients"):
        print(f"{mode}: overhead {medians[mode + ', operator'] - medians[mode + ', direct']:.1f} us")


def beside_peers(tokens, vocab, hidden, compiled, rounds=10):
    import time_peers

    inputs = [time_peers.uniform(tokens, hidden, 1 + at) for at in range(2)]
    weights = [time_peers.uniform(vocab, hidden, 3 + at) for at in range(2)]
    t = SimpleNamespace(student_input=inputs[0].requires_grad_(), student_weight=weights[0].requires_grad_(),
                        teacher_input=inputs[1], teacher_weight=weights[1])
    functions = time_peers.peers(t)
    if not compiled:
        del functions["torch-compile"]
    functions["fljsd"] = lambda t: fused_linear_jsd(t.student_input, t.student_weight, t.teacher_input,
                                                    t.teacher_weight)
    held = torch.cuda.memory_allocated()
    for full in (False, True):
        calls = {name: lambda function=function: time_peers.call(function, t, full)
                 for name, function in functions.items()}
        calls["matmul"] = lambda: time_peers.products(t, full)
        for name, call in calls.items():
            t.student_input.grad = t.student_weight.grad = None
            call()
            torch.cuda.synchronize()
            t.student_input.grad = t.student_weight.grad = None
            torch.cuda.reset_peak_memory_stats()
            call()
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - held
            samples = []
            for _ in range(rounds):
                start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                call()
                stop.record()
                torch.cuda.synchronize()
                samples.append(start.elapsed_time(stop))
            print(f"{tokens} tokens, {'full' if full else 'forward'}, {name}: {statistics.median(samples):.3f} ms, "
                  f"{peak / 2**20:.0f} MiB above the inputs", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Times the PyTorch operator.")
    parser.add_argument("--tokens", type=int, help="also beside published implementations, at this size")
    parser.add_argument("--vocab", type=int, default=128256)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--compile", action="store_true", help="torch.compile of the eager form besides")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("There is no GPU to measure: PyTorch finds no CUDA device.")
    overhead()
    if arguments.tokens:
        beside_peers(arguments.tokens, arguments.vocab, arguments.hidden, arguments.compile)


if __name__ == "__main__":
    main()
