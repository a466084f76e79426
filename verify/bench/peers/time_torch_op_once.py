# SPDX-License-Identifier: Apache-2.0
"""The measurements of time_torch_op.py in one process, printed as one line of JSON."""
import ctypes
import json
import pathlib
import statistics
import sys
import time

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


class Work:
    """What a training step enqueues between two calls: a few layers forward."""

    def __init__(self, layers=3, width=64):
        self._weights = [torch.randn(width, width, device="cuda", requires_grad=True) for _ in range(layers)]
        self._input = torch.randn(16, width, device="cuda")

    def __call__(self):
        x = self._input
        for weight in self._weights:
            x = torch.nn.functional.gelu(torch.nn.functional.linear(x, weight))
            x = torch.nn.functional.layer_norm(x, x.shape[-1:])


def microseconds(functions, work=None, batches=100, calls=20):
    """Host times in microseconds of the functions, by name, in turns: of the first call of each batch, and of each batch
    the mean of its other calls, with `work` before each call, outside the time."""
    firsts, others = [{name: [] for name in functions} for _ in range(2)]
    for at in range(batches + 5):
        for name, function in functions.items():
            torch.cuda.synchronize()
            spent = []
            for count in (1, calls - 1) if work is None else [1] * calls:
                if work is not None:
                    work()
                start = time.perf_counter_ns()
                for _ in range(count):
                    function()
                spent.append(time.perf_counter_ns() - start)
            if at >= 5:  # warm
                firsts[name].append(spent[0] / 1000)
                others[name].append(sum(spent[1:]) / (calls - 1) / 1000)
    return firsts, others


def measure():
    """Rows of the table, from this process."""
    tensors = small()
    frozen = [t.detach() for t in tensors]
    work = Work()
    rows = {}
    with_gradients = direct_call(tensors, True)
    for call, direct, operator in (("forward", direct_call(frozen, False), lambda: fused_linear_jsd(*frozen)),
                                   ("with gradients", with_gradients, lambda: fused_linear_jsd(*tensors)),
                                   ("and backward()", with_gradients, lambda: backward(tensors))):
        functions = {"direct": direct, "operator": operator}
        firsts, others = microseconds(functions)
        _, behind = microseconds(functions, work, batches=30)
        middle = statistics.median
        rows[call] = dict(
            direct_us=middle(others["direct"]), operator_us=middle(others["operator"]),
            overhead_us=middle(others["operator"]) - middle(others["direct"]),
            overhead_of_least_us=min(others["operator"]) - min(others["direct"]),
            overhead_after_work_us=middle(behind["operator"]) - middle(behind["direct"]),
            overhead_of_first_us=middle(firsts["operator"]) - middle(firsts["direct"]))
    return rows


def main():
    if not torch.cuda.is_available():
        sys.exit("There is no GPU to measure: PyTorch finds no CUDA device.")
    print(json.dumps(dict(device=torch.cuda.get_device_name(), torch=torch.__version__, rows=measure())))


if __name__ == "__main__":
    main()
