# SPDX-License-Identifier: Apache-2.0
"""Host time of a call of PyTorch's operator over that of the C interface, at a small size.

    python3 verify/bench/peers/time_torch_op.py [--csv overhead.csv]

The host returns from a call before the device has done it, so the host clock is read around batches of calls, the device
idle at the start of each; operator and direct call in turns. The first call of a batch, which finds the processor's caches
as waiting and the function before have left them, is timed apart. Of the others, the median over batches, and, because
host times of a shared machine vary by half, the least as well. The direct call has its plan, structures, workspace and outputs at hand:
nothing but ctypes and the library. backward() has no counterpart there: its row has the overhead of the call with gradients
and all that PyTorch's engine and the multiplication of the gradients cost the host. Beside other implementations:
time_peers.py --fljsd.
"""
import argparse
import ctypes
import pathlib
import statistics
import sys
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "verify" / "python"))
import torch  # noqa: E402
from fljsd import library  # noqa: E402
from fljsd.torch import fused_linear_jsd  # noqa: E402
from fljsd.torch.layout import layouts  # noqa: E402
from fljsd.torch.plan import plan_for  # noqa: E402


def small(tokens=16, hidden=64, vocab=256):
    made = [torch.randn(shape, device="cuda").bfloat16() for shape in ((tokens, hidden), (vocab, hidden)) * 2]
    return [made[0].requires_grad_(), made[1].requires_grad_(), *made[2:]]


def direct_call(tensors, with_gradients):
    """The same call through ctypes alone, as a function without arguments."""
    options = (0.5, 1.0, -100, 0, "batchmean", "auto", 0)
    plan = plan_for(layouts((*tensors, None, None, None)), options, (with_gradients, with_gradients, False))
    loss = torch.empty((), device="cuda")
    call = library.Tensors(ctypes.sizeof(library.Tensors), *[t.data_ptr() for t in tensors], loss=loss.data_ptr())
    kept = [loss]
    if with_gradients:
        kept += [torch.empty_like(t) for t in tensors[:2]]
        call.student_input_grad, call.student_weight_grad = kept[1].data_ptr(), kept[2].data_ptr()
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    stream, run, address = torch.cuda.current_stream().cuda_stream, plan._run, workspace.data_ptr()

    def function():
        library.check(run(plan._handle, ctypes.byref(call), address, plan.workspace_bytes, stream))

    function.kept = kept, workspace
    return function


def backward(tensors):
    fused_linear_jsd(*tensors).backward()
    tensors[0].grad = tensors[1].grad = None


class Times(NamedTuple):
    """Microseconds of host time of a call."""

    median: float
    least: float
    first: float  # the median of first calls of a batch


def microseconds(functions, batches=400, calls=20):
    """Times of a call of each function."""
    times = {name: [] for name in functions}
    for at in range(batches + 5):
        for name, function in functions.items():
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            function()
            first = time.perf_counter_ns()
            for _ in range(calls - 1):
                function()
            if at >= 5:  # warm
                times[name].append(((time.perf_counter_ns() - first) / (calls - 1) / 1000, (first - start) / 1000))
    found = {}
    for name, samples in times.items():
        others, firsts = zip(*samples)
        found[name] = Times(statistics.median(others), min(others), statistics.median(firsts))
    return found


def main():
    parser = argparse.ArgumentParser(description="Host time of a call of the PyTorch operator.")
    parser.add_argument("--csv", help="writes the result there")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("There is no GPU to measure: PyTorch finds no CUDA device.")
    tensors = small()
    frozen = [t.detach() for t in tensors]
    found = microseconds({("forward", "direct"): direct_call(frozen, False),
                          ("forward", "operator"): lambda: fused_linear_jsd(*frozen),
                          ("with gradients", "direct"): direct_call(tensors, True),
                          ("with gradients", "operator"): lambda: fused_linear_jsd(*tensors),
                          ("and backward()", "operator"): lambda: backward(tensors)})
    found["and backward()", "direct"] = found["with gradients", "direct"]
    lines = [f"# verify/bench/peers/time_torch_op.py on {torch.cuda.get_device_name()}, PyTorch {torch.__version__}",
             "call,direct_us,operator_us,overhead_us,overhead_of_least_us,overhead_of_first_us"]
    for call in ("forward", "with gradients", "and backward()"):
        direct, operator = found[call, "direct"], found[call, "operator"]
        differences = [of - over for of, over in zip(operator, direct)]
        lines.append(f"{call},{direct.median:.1f},{operator.median:.1f}," + ",".join(f"{us:.1f}" for us in differences))
    print("\n".join(lines))
    if arguments.csv:
        pathlib.Path(arguments.csv).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
