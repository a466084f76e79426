# SPDX-License-Identifier: Apache-2.0
"""fljsd.torch without a GPU: the mirror of the C interface, and the operator on the CPU."""
import ctypes
import inspect
import os
import re
import sys
import unittest
import warnings
from pathlib import Path
from unittest import mock

import numpy as np

import fljsd
from fljsd import library

try:
    import torch
except ImportError:
    if __name__ == "__main__":
        print("skipped: PyTorch is not installed.")
        sys.exit(0)
    raise unittest.SkipTest("PyTorch is not installed.")

from torch.utils._python_dispatch import TorchDispatchMode

from fljsd.torch import FusedLinearJSD, LibraryError, fused_linear_jsd, generalized_jsd_loss, recent

HEADER = Path(__file__).resolve().parents[3] / "cuda" / "fljsd.h"
needs_program = unittest.skipUnless("FLJSD" in os.environ, "the environment variable FLJSD does not name the program")


def tensors(tokens=3, hidden=2, vocab=4, teacher_hidden=3, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (tokens, hidden), (vocab, hidden), (tokens, teacher_hidden), (vocab, teacher_hidden)
    made = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    return made[0].requires_grad_(), made[1].requires_grad_(), *made[2:]


class Header(unittest.TestCase):
    def compare(self, name, mirror):
        text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
        body = re.search(rf"typedef struct {name} {{(.*?)}} {name};", text, re.S).group(1)
        declared, offset, alignment = [], 0, 1
        for type_name, field in re.findall(r"([\w ]+[ *]+)(\w+);", body):
            kind = type_name.strip()
            size = 8 if kind.endswith("*") else {"uint64_t": 8, "int64_t": 8, "double": 8, "int32_t": 4}[kind]
            offset = -(-offset // size) * size  # natural alignment
            declared.append((field, offset, size, kind == "double", kind.startswith("u") or kind.endswith("*")))
            offset += size
            alignment = max(alignment, size)
        unsigned = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_char_p)
        mirrored = [(field, getattr(mirror, field).offset, getattr(mirror, field).size, kind is ctypes.c_double,
                     kind in unsigned) for field, kind in mirror._fields_]
        self.assertEqual(mirrored, declared)
        self.assertEqual(ctypes.sizeof(mirror), -(-offset // alignment) * alignment)

    def test_structures(self):
        """Catches: a field that the header has gained, moved or given another type."""
        self.compare("fljsd_config", library.Config)
        self.compare("fljsd_tensors", library.Tensors)
        self.compare("fljsd_stage", library.Stage)

    def test_enumerations_and_functions(self):
        """Catches: a constant or a function that was renamed or renumbered."""
        text = HEADER.read_text()
        for name, value in (("FLJSD_BF16", library.BF16), ("FLJSD_F16", library.F16), ("FLJSD_F32", library.F32),
                            ("FLJSD_STUDENT_INPUT_GRAD", library.INPUT_GRAD), ("FLJSD_FORWARD", library.FORWARD),
                            ("FLJSD_STUDENT_WEIGHT_GRAD", library.WEIGHT_GRAD),
                            ("FLJSD_STUDENT_BIAS_GRAD", library.BIAS_GRAD),
                            ("FLJSD_FORWARD_BACKWARD", library.FORWARD_BACKWARD),
                            *((f"FLJSD_{name.upper()}", value) for name, value in library.REDUCTIONS.items())):
            self.assertRegex(text, rf"\b{name} = {value}\b")
        for name in library.SIGNATURES:
            self.assertRegex(text, rf"FLJSD_API [^;]*\b{name}\(")

    def test_missing_library(self):
        """Catches: a wrong path that is passed over, and another library taken for it."""
        with mock.patch.dict(os.environ, FLJSD_CUDA_LIBRARY="/no/such/library.so"):
            with self.assertRaisesRegex(LibraryError, "FLJSD_CUDA_LIBRARY is '/no/such/library.so'"):
                library.find_library()


class Refusals(unittest.TestCase):
    def refuse(self, sentence, *arguments, error=ValueError, **options):
        with self.assertRaisesRegex(error, sentence):
            fused_linear_jsd(*arguments, **options)

    def test_sentences(self):
        """Catches: bad arguments that reach a kernel. No case needs the program: each is refused before."""
        x, w, y, u = tensors()
        self.refuse("student_weight has shape .4, 3., but .* must be .4, 2.", x, u, y, w)
        self.refuse("teacher_input has shape", x, w, y[:2], u)
        self.refuse("student_input has shape .2., but it must be a matrix", x[0], w, y, u)
        self.refuse("student_weight has strides .1, 4., .*contiguous", x, w.T.contiguous().T, y, u)
        self.refuse("teacher_input has strides .0, 1.", x, w, y[:1].expand(3, 3), u)
        self.refuse("student_weight has dtype torch.float32, but it must be torch.float64", x, w.float(), y, u)
        self.refuse("labels has dtype torch.int32", x, w, y, u, labels=torch.zeros(3, dtype=torch.int32))
        self.refuse("labels has shape", x, w, y, u, labels=torch.zeros(4, dtype=torch.int64))
        self.refuse("student_bias has shape", x, w, y, u, student_bias=torch.zeros(3))
        self.refuse("beta is 1.5", x, w, y, u, beta=1.5)
        self.refuse("beta is nan", x, w, y, u, beta=float("nan"))
        self.refuse("temperature is 0.0", x, w, y, u, temperature=0)
        self.refuse("reduction is 'mean'", x, w, y, u, reduction="mean")
        self.refuse("valid_vocab is 5", x, w, y, u, valid_vocab=5)
        self.refuse("valid_vocab is 0", x, w, y, u, valid_vocab=0)
        self.refuse("memory_budget is 0", x, w, y, u, memory_budget=0)
        self.refuse("teacher_weight is on meta", x, w, y, u.to("meta"))


@needs_program
class Cpu(unittest.TestCase):
    def compare(self, dtype, reduction, **options):
        x, w, y, u = tensors(dtype=dtype)
        labels = torch.tensor([1, -100, 0])
        b = torch.tensor([0.5, -0.25, 0.0, 2.0], dtype=torch.float32, requires_grad=True)
        loss = fused_linear_jsd(x, w, y, u, student_bias=b, labels=labels, reduction=reduction, **options)
        # A loss per token takes every gradient through sum(), whose upstream gradient is 1.
        (loss.sum() if reduction == "none" else loss).backward()
        true = fljsd.truth(x, w, y, u, student_bias=b, labels=labels, reduction=reduction, **options)
        expected = true.token_loss if reduction == "none" else true.loss
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        self.assertEqual(loss.dtype, wide)
        self.assertTrue(torch.equal(loss, torch.as_tensor(expected, dtype=torch.float64).to(wide)))
        for tensor, name in ((x, "student_input"), (w, "student_weight"), (b, "student_bias")):
            self.assertEqual(tensor.grad.dtype, tensor.dtype)
            # Rounded once, or to fp32 first where the dtype is fp16 (both roundings here, too).
            kept = torch.from_numpy(getattr(true, name + "_grad"))
            kept = kept.to(torch.float32).to(tensor.dtype) if tensor.dtype == torch.float16 else kept.to(tensor.dtype)
            self.assertTrue(torch.equal(tensor.grad, kept), name)

    def test_values_are_the_reference(self):
        """Catches: an option, a tensor or a gradient that is exchanged or lost on the way."""
        self.compare(torch.float64, "batchmean", beta=0.3, temperature=0.7, valid_vocab=3)
        self.compare(torch.bfloat16, "sum", beta=0.0)
        self.compare(torch.float16, "none", beta=1.0)

    def test_gradcheck(self):
        """Catches: a derivative that does not belong to the loss, by finite differences in float64."""
        x, w, y, u = tensors(tokens=1, hidden=1, vocab=3)
        self.assertTrue(torch.autograd.gradcheck(lambda x, w: fused_linear_jsd(x, w, y, u, beta=0.3), (x, w)))

    def test_opcheck(self):
        """Catches: a fake kernel whose shapes, dtypes or strides differ from those of the real one."""
        options = (0.5, 1.0, -100, 0, "batchmean", "auto", 0)
        op = torch.ops.fljsd.fused_linear_jsd.default
        torch.library.opcheck(op, (*tensors(), None, None, None, *options, True, True, False))

    def test_second_backward(self):
        """Catches: gradients scaled in place, so that a second walk of the graph gives the product of the scales."""
        x, w, y, u = tensors()
        loss = fused_linear_jsd(x, w, y, u)
        first, = torch.autograd.grad(3 * loss, x, retain_graph=True)
        second, = torch.autograd.grad(2 * loss, x)  # powers of two and 3 times a double: one rounding each
        self.assertTrue(np.allclose(first / 3, second / 2, rtol=2.0**-51, atol=0))  # of 4 roundings of 2^-53

    def test_last_backward_is_in_place(self):
        """Catches: a second copy of the gradients in a walk that ends the life of the graph; and gradients overwritten in
        one that does not, or that somebody else holds."""
        x, w, y, u = tensors()
        expected = torch.autograd.grad(3 * fused_linear_jsd(x, w, y, u), (x, w))

        def walk(loss, retain_graph=False):
            node = loss.grad_fn
            kept = [t.data_ptr() for t in node.saved_tensors]
            found = torch.autograd.grad(3 * loss, (x, w), retain_graph=retain_graph)
            for one, other in zip(found, expected):
                self.assertTrue(torch.equal(one, other))
            return [t.data_ptr() for t in found] == kept

        loss = fused_linear_jsd(x, w, y, u)
        self.assertFalse(walk(loss, retain_graph=True))
        self.assertFalse(walk(loss, retain_graph=True))
        can_tell = hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks")  # since 2.8
        self.assertEqual(walk(loss), can_tell)
        with self.assertRaisesRegex(RuntimeError, "second time"):
            torch.autograd.grad(loss, x)
        held = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: held.append(t) or t, lambda t: t):
            loss = fused_linear_jsd(x, w, y, u)
        before = [t.clone() for t in held]
        self.assertFalse(walk(loss))
        outputs = torch.ops.fljsd.fused_linear_jsd(x, w, y, u, None, None, None, 0.5, 1.0, -100, 0, "batchmean", "auto",
                                                   0, True, True, False)
        held, before = held + outputs[1:], before + [t.clone() for t in outputs[1:]]
        self.assertFalse(walk(outputs[0]))
        self.assertTrue(all(torch.equal(one, other) for one, other in zip(held, before)))

    def test_upstream_gradient_is_not_rounded(self):
        """Catches: an upstream gradient that is rounded to bf16 before the product is."""
        x, w, y, u = tensors(vocab=64, hidden=16, teacher_hidden=16, dtype=torch.bfloat16)
        scale = 1 + 3 * 2.0**-9  # in bf16 1 + 2^-7
        loss = fused_linear_jsd(x, w, y, u)
        plain = torch.autograd.grad(loss, (x, w), retain_graph=True)
        expected = [(t.float() * scale).bfloat16() for t in plain]  # rounded in fp32 and then in bf16, as in the operator
        self.assertFalse(torch.equal(expected[1], (1 + 2.0**-7) * plain[1]))
        for keep in (True, False):
            for a, b in zip(torch.autograd.grad(scale * loss, (x, w), retain_graph=keep), expected):
                self.assertTrue(torch.equal(a, b))
        compiled = torch.compile(lambda *a: scale * fused_linear_jsd(*a), fullgraph=True, backend="aot_eager")
        for a, b in zip(torch.autograd.grad(compiled(x, w, y, u), (x, w)), expected):
            self.assertTrue(torch.equal(a, b))

    def test_accumulated_gradients(self):
        """Catches: a .grad that shares memory with what a later walk reads: changed in place between two walks."""
        x, w, y, u = tensors()
        loss = fused_linear_jsd(x, w, y, u)
        loss.backward(retain_graph=True)
        once = w.grad.clone()
        w.grad.mul_(4)
        loss.backward()
        self.assertTrue(torch.equal(w.grad, 4 * once + once))
        w.grad = None
        loss = fused_linear_jsd(x, w, y, u)
        saved = loss.grad_fn.saved_tensors[1].data_ptr()
        loss.backward()
        self.assertTrue(torch.equal(w.grad, once))
        # Where the saved gradient is multiplied in place it becomes .grad itself; autograd copies it if anyone holds it.
        self.assertEqual(w.grad.data_ptr() == saved, hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"))

    def test_batched_upstream_gradients(self):
        """Catches: vmap over upstream gradients, which cannot be written into one copy of the gradients."""
        x, w, y, u = tensors()
        expected, = torch.autograd.grad(fused_linear_jsd(x, w, y, u), w)
        scales = torch.tensor([1.0, -2.0], dtype=torch.float64)  # powers of two: exact
        found, = torch.autograd.grad(fused_linear_jsd(x, w, y, u), w, scales, is_grads_batched=True)
        self.assertTrue(torch.equal(found, scales[:, None, None] * expected))

    def test_second_derivative_is_refused(self):
        """Catches: a second derivative that is silently zero."""
        x, w, y, u = tensors()
        gradient, = torch.autograd.grad(fused_linear_jsd(x, w, y, u), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "first derivatives only"):
            gradient.sum().backward()

    def test_weighted_tokens(self):
        """Catches: weights of tokens that are lost, or gradients of the head that do not know them."""
        x, w, y, u = tensors()
        weights = torch.tensor([1.0, 0.0, -2.0])
        with self.assertRaisesRegex(RuntimeError, "one by one"):
            (weights * fused_linear_jsd(x, w, y, u, reduction="none")).sum().backward()
        frozen = w.detach()
        (weights * fused_linear_jsd(x, frozen, y, u, reduction="none")).sum().backward()
        true = fljsd.truth(x, frozen, y, u, reduction="none").student_input_grad
        self.assertTrue(np.array_equal(x.grad, true * weights.numpy()[:, None]))  # by powers of two: exact

    def test_what_requires_no_gradient_gets_none(self):
        """Catches: gradients computed where nobody asked, and a teacher that is trained."""
        x, w, y, u = tensors()
        self.assertFalse(fused_linear_jsd(x.detach(), w.detach(), y.requires_grad_(), u).requires_grad)
        fused_linear_jsd(x, w.detach(), y, u.requires_grad_()).backward()
        self.assertIsNotNone(x.grad)
        self.assertTrue(y.grad is None and u.grad is None)
        out = torch.ops.fljsd.fused_linear_jsd(x, w, y, u, None, None, None, 0.5, 1.0, -100, 0, "sum", "auto", 0,
                                               True, False, False)
        self.assertEqual([tuple(t.shape) for t in out], [(), (3, 2)])

    def test_compile(self):
        """Catches: a break of the graph, or a compiled call that differs from the plain one."""
        x, w, y, u = tensors()
        function = torch.compile(lambda *a: 2 * fused_linear_jsd(*a), fullgraph=True, backend="aot_eager")
        function(x, w, y, u).backward()
        plain, = torch.autograd.grad(2 * fused_linear_jsd(x, w, y, u), x)
        self.assertTrue(torch.equal(x.grad, plain))

    def test_a_call_like_an_earlier_one(self):
        """Catches: a call taken for an earlier one that it is not like, or past those who watch operators."""
        x, w, y, u = tensors()
        options = 0.5, 1.0, -100, 0, "batchmean", "auto", 0

        def is_known(*four):
            return recent.find((*four, None, None, None), options) is not None

        class Watch(TorchDispatchMode):
            seen = []

            def __torch_dispatch__(self, function, types, arguments=(), options=None):
                self.seen.append(function)
                return function(*arguments, **(options or {}))

        first = fused_linear_jsd(x, w, y, u)
        self.assertEqual(is_known(x, w, y, u), recent.TensorGuards is not None)
        self.assertTrue(torch.equal(fused_linear_jsd(x, w, y, u), first))
        self.assertFalse(is_known(x, w.detach(), y, u))
        self.assertFalse(is_known(x[:2], w, y[:2], u))
        self.assertFalse(is_known(x, w, y, u.T.contiguous().T))
        self.assertFalse(is_known(x, w, y, u.float()))
        self.assertFalse(is_known(x, w, y, torch.nn.Parameter(u)))
        with torch.no_grad():
            self.assertFalse(is_known(x, w, y, u))
            self.assertFalse(fused_linear_jsd(x, w, y, u).requires_grad)
            self.assertTrue(fused_linear_jsd(x, w, y, u, beta=0.25) != first)
        with Watch() as watch:
            fused_linear_jsd(x, w, y, u)
        self.assertIn(torch.ops.fljsd.fused_linear_jsd.default, watch.seen)
        with torch.autograd.profiler.profile() as profile:
            fused_linear_jsd(x, w, y, u)
        self.assertIn("fljsd::fused_linear_jsd", [event.name for event in profile.function_events])
        torch.func.grad(lambda x: self.assertFalse(is_known(x, w, y, u)) or x.sum())(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # deprecated, but there
            torch.jit.trace(lambda z: self.assertFalse(is_known(x, w, y, u)) or z, x, check_trace=False)
        with torch.autocast("cpu"):
            self.assertFalse(is_known(x, w, y, u))

    def test_rows_apart(self):
        """Catches: what lies between rows taken for elements."""
        x, w, y, u = tensors()
        wide = torch.full((4, 5), float("nan"), dtype=torch.float64)
        wide[:, :2] = w.detach()
        self.assertTrue(torch.equal(fused_linear_jsd(x, wide[:, :2], y, u), fused_linear_jsd(x, w, y, u)))

    def test_empty_batch(self):
        """Catches: a batch without tokens that fails; its loss is 0."""
        x, w, y, u = tensors()
        self.assertEqual(fused_linear_jsd(x[:0], w, y[:0], u).item(), 0)
        nothing = torch.from_numpy(np.zeros((0, 2))).as_strided((0, 2), (0, 0))  # strides that mean nothing
        self.assertEqual(fused_linear_jsd(nothing, w, y[:0], u).item(), 0)

    def test_compatible_forms(self):
        """Catches: arguments of the other packages' forms in the wrong place, or another divisor than theirs."""
        x, w, y, u = tensors(tokens=6)
        labels = torch.tensor([0, -1, 2, 0, -1, 3])
        module = FusedLinearJSD(0.25, -1, 2.0)
        self.assertEqual(module(x, w, y, u, labels).item(),
                         fljsd.truth(x, w, y, u, labels=labels, beta=0.25, ignore_index=-1, temperature=2.0).loss)
        with self.assertRaisesRegex(ValueError, "accum_dtype is torch.float64"):
            FusedLinearJSD(accum_dtype=torch.float64)
        batches = x.view(2, 3, -1), w, y.view(2, 3, -1), u
        total = fljsd.truth(x, w, y, u, reduction="sum").loss
        self.assertEqual(generalized_jsd_loss(*batches).item(), total / 2)
        labels[labels == -1] = -100
        self.assertEqual(generalized_jsd_loss(*batches, labels.view(2, 3)).item(),
                         fljsd.truth(x, w, y, u, labels=labels).loss)

    def test_kernel_and_operator_agree(self):
        """Catches: the short way of a plain call and the operator that torch.compile sees giving different results."""
        x, w, y, u = tensors()
        b = torch.zeros(4, dtype=torch.float64, requires_grad=True)
        plain = fused_linear_jsd(x, w, y, u, student_bias=b, reduction="none")
        watched = torch.ops.fljsd.fused_linear_jsd(x, w, y, u, b, None, None, 0.5, 1.0, -100, 0, "none", "auto", 0,
                                                   True, True, True)[0]
        self.assertTrue(torch.equal(plain, watched))
        for one, other in zip(*[torch.autograd.grad(loss.sum(), (x, w, b)) for loss in (plain, watched)]):
            self.assertTrue(torch.equal(one, other))
        with torch.profiler.profile() as profile:
            fused_linear_jsd(x, w, y, u)
        self.assertIn("fljsd::fused_linear_jsd", {event.name for event in profile.events()})


class InPlaceOfLiger(unittest.TestCase):
    def test_signatures(self):
        """Catches: an argument that LigerFusedLinearJSD takes and ours does not, or in another place."""
        try:
            from liger_kernel.transformers.fused_linear_jsd import LigerFusedLinearJSD
        except ImportError as error:
            self.skipTest(f"Liger-Kernel cannot be imported: {error}.")
        for method in ("__init__", "forward"):
            theirs, ours = [list(inspect.signature(getattr(kind, method)).parameters.values())
                            for kind in (LigerFusedLinearJSD, FusedLinearJSD)]
            self.assertEqual([p.name for p in ours[:len(theirs)]], [p.name for p in theirs], method)
            for mine, other in zip(ours, theirs):
                if other.default is not inspect.Parameter.empty:
                    self.assertEqual(mine.default, other.default, f"{method}: {other.name}")


if __name__ == "__main__":
    unittest.main()
