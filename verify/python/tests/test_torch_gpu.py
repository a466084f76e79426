# SPDX-License-Identifier: Apache-2.0
"""fljsd.torch on a GPU, with the library and the program."""
import os
import sys
import unittest

import fljsd

try:
    import torch

    missing = "" if torch.cuda.is_available() else "PyTorch finds no CUDA device."
except ImportError:
    missing = "PyTorch is not installed."
if missing:
    if __name__ == "__main__":
        print(f"skipped: {missing}")
        sys.exit(0)
    raise unittest.SkipTest(missing)

from fljsd.torch import FusedLinearJSD, fused_linear_jsd
from fljsd.torch.plan import plan_for

OPTIONS = ("beta", "temperature", "student_bias", "teacher_bias", "labels", "ignore_index", "valid_vocab", "reduction")


def tensors(tokens=96, hidden=64, vocab=1000, dtype=torch.bfloat16):
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = (tokens, hidden), (vocab, hidden), (tokens, 2 * hidden), (vocab, 2 * hidden)
    made = [torch.randn(shape, generator=generator, device="cuda") for shape in shapes]
    made = [(x * (1 if at % 2 == 0 else x.shape[1] ** -0.5)).to(dtype) for at, x in enumerate(made)]
    return made[0].requires_grad_(), made[1].requires_grad_(), *made[2:]


def gradients(loss, *of):
    return torch.autograd.grad(loss, of, retain_graph=True)


class Gpu(unittest.TestCase):
    @unittest.skipUnless("FLJSD" in os.environ, "the environment variable FLJSD does not name the program")
    def test_within_the_budgets(self):
        """Catches: an option, tensor or gradient that is exchanged or lost on the way, in each dtype and reduction."""
        for family, dtype, options in (
                ("lm-like", "bf16", dict(beta=0.3, bias=True)), ("kaiming", "f16", dict(beta=0, reduction="sum")),
                ("padded-vocab", "bf16", dict(temperature=2.0)), ("ignored-labels", "f32", dict(beta=1)),
                ("ignored-labels", "bf16", dict(reduction="none", bias=True))):
            case = fljsd.generate(family, tokens=70, hidden=40, teacher_hidden=48, vocab=777, dtype=dtype, **options)
            t = case.torch("cuda")
            given = {name: getattr(t, name) for name in OPTIONS}
            inputs = t.student_input, t.student_weight, t.teacher_input, t.teacher_weight
            loss = fused_linear_jsd(*inputs, **given)
            with torch.no_grad():
                token_loss = fused_linear_jsd(*inputs, **dict(given, reduction="none"))
            result = t.answer(None, loss) if t.reduction == "none" else t.answer(loss, token_loss)
            verdict = fljsd.check(result, case)
            self.assertTrue(verdict.passed, f"{family} {dtype}\n{verdict}")

    def test_frozen_head(self):
        """Catches: a gradient of the head that is allocated although nobody asks for it."""
        x, w, y, u = tensors(tokens=128, hidden=1024, vocab=65536)
        w.requires_grad_(False)
        before = torch.cuda.memory_allocated()
        for stage in ("auto", "fused", "chunked-vocab"):
            with self.subTest(stage):
                torch.cuda.reset_peak_memory_stats()
                fused_linear_jsd(x, w, y, u, stage=stage, memory_budget=64 << 20).backward()
                self.assertLess(torch.cuda.max_memory_allocated() - before, 2 * w.numel())  # of the gradient in bf16

    @unittest.skipUnless(hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"), "PyTorch is older than 2.8.")
    def test_backward_memory(self):
        """Catches: a second copy of the weight gradient in the last backward."""
        x, w, y, u = tensors(tokens=128, hidden=1024, vocab=65536)
        loss = fused_linear_jsd(x, w, y, u, memory_budget=64 << 20)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        loss.backward()
        self.assertLess(torch.cuda.max_memory_allocated() - before, 2 * w.numel())  # bytes of the gradient in bf16

    def test_graphed_second_backward(self):
        """Catches: gradients scaled in place by a captured backward, which is replayed alone for the second walk."""
        x, w, y, u = tensors()
        graphed = torch.cuda.make_graphed_callables(lambda x, w: fused_linear_jsd(x, w, y, u), (x, w))
        loss = graphed(x, w)
        first = [t.clone() for t in gradients(4 * loss, x, w)]  # the graph's own tensors are written again
        for a, b in zip(first, gradients(4 * loss, x, w)):
            self.assertTrue(torch.equal(a, b))

    def test_second_backward(self):
        """Catches: gradients scaled in place. Powers of two, so that bf16 is exact."""
        x, w, y, u = tensors()
        loss = fused_linear_jsd(x, w, y, u)
        for a, b in zip(gradients(loss, x, w), gradients(4 * loss, x, w)):
            self.assertTrue(torch.equal(4 * a, b))

    def test_upstream_gradient_is_not_rounded(self):
        """Catches: an upstream gradient that is rounded to bf16 before the product is."""
        x, w, y, u = tensors()
        scale = 1 + 3 * 2.0**-9  # in bf16 1 + 2^-7
        loss = fused_linear_jsd(x, w, y, u)
        plain = gradients(loss, x, w)
        expected = [(t.float() * scale).bfloat16() for t in plain]  # rounded in fp32 and then in bf16, as in the operator
        self.assertFalse(torch.equal(expected[1], (1 + 2.0**-7) * plain[1]))
        for found in (gradients(scale * loss, x, w), torch.autograd.grad(scale * loss, (x, w))):
            for a, b in zip(found, expected):
                self.assertTrue(torch.equal(a, b))

    def test_compile(self):
        """Catches: a compiled call that differs from the plain one: the same kernels give the same bits."""
        x, w, y, u = tensors()
        compiled = torch.compile(lambda *a: fused_linear_jsd(*a), fullgraph=True)(x, w, y, u)
        plain = fused_linear_jsd(x, w, y, u)
        self.assertTrue(torch.equal(compiled, plain))
        for a, b in zip(gradients(compiled, x, w), gradients(plain, x, w)):
            self.assertTrue(torch.equal(a, b))

    def test_graph(self):
        """Catches: work on another stream than the captured one, or memory from outside the graph's pool."""
        x, w, y, u = tensors()

        def step():
            loss = fused_linear_jsd(x, w, y, u)
            return loss, *torch.autograd.grad(loss, (x, w))

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()
        with torch.no_grad():
            x.mul_(-0.5)
        graph.replay()
        for a, b in zip(captured, step()):
            self.assertTrue(torch.equal(a, b))

    @unittest.skipUnless("FLJSD" in os.environ, "the environment variable FLJSD does not name the program")
    def test_rows_apart(self):
        """Catches: a leading dimension that is lost. What lies between the rows is NaN."""
        x, w, y, u = tensors()
        apart = []
        for tensor in (x, w, y, u):
            wide = torch.full((tensor.shape[0], tensor.shape[1] + 8), float("nan"), dtype=tensor.dtype, device="cuda")
            wide[:, :tensor.shape[1]] = tensor.detach()
            apart.append(wide[:, :tensor.shape[1]].requires_grad_(tensor.requires_grad))
        loss = fused_linear_jsd(*apart)
        grad_x, grad_w = gradients(loss, *apart[:2])
        with torch.no_grad():
            token_loss = fused_linear_jsd(*apart, reduction="none")
        result = dict(loss=loss, token_loss=token_loss, student_input_grad=grad_x, student_weight_grad=grad_w)
        verdict = fljsd.check(result, fljsd.Case(x, w, y, u))
        self.assertTrue(verdict.passed, str(verdict))

    def test_autocast(self):
        """Catches: fp32 products under autocast, or gradients that do not come back in the parameters' dtype."""
        x, w, y, u = tensors(dtype=torch.float32)
        with torch.autocast("cuda", torch.bfloat16):
            loss = fused_linear_jsd(x, w, y, u)
        low = [t.detach().bfloat16().requires_grad_(t.requires_grad) for t in (x, w, y, u)]
        plain = fused_linear_jsd(*low)
        self.assertTrue(torch.equal(loss, plain))
        for a, b in zip(gradients(loss, x, w), gradients(plain, *low[:2])):
            self.assertEqual(a.dtype, torch.float32)
            self.assertTrue(torch.equal(a, b.float()))

    def test_side_stream(self):
        """Catches: work that is not on the current stream: the inputs are written there just before."""
        x, w, y, u = (t.detach() for t in tensors())
        expected = fused_linear_jsd(x, w, y, u)
        late = torch.zeros_like(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(20_000_000)
            late.copy_(x)
            loss = fused_linear_jsd(late, w, y, u)
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(loss, expected))

    def test_other_devices_and_empty_batches(self):
        """Catches: a tensor on the CPU taken for one on the GPU, and an empty batch that fails."""
        x, w, y, u = tensors()
        with self.assertRaisesRegex(ValueError, "is on cuda:0, but it must be on cpu"):
            fused_linear_jsd(x.detach().cpu(), w, y, u)
        with self.assertRaisesRegex(ValueError, "teacher_weight is on cpu"):
            fused_linear_jsd(x, w, y, u.cpu())
        loss = fused_linear_jsd(x[:0], w, y[:0], u)
        self.assertEqual(loss.item(), 0)
        self.assertEqual(gradients(loss, w)[0].abs().max().item(), 0)

    @unittest.skipUnless("FLJSD" in os.environ, "the environment variable FLJSD does not name the program")
    def test_in_place_of_liger(self):
        """Catches: a swap of the two modules that changes more than the accuracy. Each keeps the budgets of its class, on
        a case that half of the tokens ignore."""
        try:
            from liger_kernel.transformers.fused_linear_jsd import LigerFusedLinearJSD
        except ImportError as error:
            self.skipTest(f"Liger-Kernel cannot be imported: {error}.")
        x, w, y, u = tensors(tokens=64, vocab=1024)
        labels = torch.arange(64, device="cuda") % 2
        arguments = dict(jsd_beta=0.25, ignore_index=1, temperature=2.0)
        case = fljsd.Case(x, w, y, u, labels=labels, beta=0.25, ignore_index=1, temperature=2.0)
        for module, accuracy_class in ((LigerFusedLinearJSD, "bf16-logits"), (FusedLinearJSD, "fp32-logits")):
            loss = module(**arguments)(x, w, y, u, labels)
            grad_x, grad_w = torch.autograd.grad(loss, (x, w))
            result = dict(loss=loss, student_input_grad=grad_x, student_weight_grad=grad_w)
            verdict = fljsd.check(result, case, accuracy_class=accuracy_class)
            self.assertTrue(verdict.passed, f"{module.__name__}\n{verdict}")

    def test_opcheck(self):
        """Catches: a fake kernel whose shapes, dtypes or strides differ from those of the CUDA kernel."""
        options = (0.5, 1.0, -100, 0, "batchmean", "auto", 0)
        op = torch.ops.fljsd.fused_linear_jsd.default
        for dtype in (torch.bfloat16, torch.float16):
            torch.library.opcheck(op, (*tensors(dtype=dtype), None, None, None, *options, True, True, False))

    def test_plans_are_kept(self):
        """Catches: a plan made anew for each call."""
        x, w, y, u = tensors(tokens=33)
        fused_linear_jsd(x, w, y, u)
        misses = plan_for.cache_info().misses
        fused_linear_jsd(x, w, y, u)
        self.assertEqual(plan_for.cache_info().misses, misses)


if __name__ == "__main__":
    unittest.main()
