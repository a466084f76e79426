# SPDX-License-Identifier: Apache-2.0
"""fljsd.torch_distributed without a GPU: what it hands to the library, and what it makes of the answer. On GPUs:
check_process_groups.py."""
import contextlib
import sys
import unittest
from unittest import mock

try:
    import torch
    import torch.distributed as dist
except ImportError:
    if __name__ == "__main__":
        print("skipped: PyTorch is not installed.")
        sys.exit(0)
    raise unittest.SkipTest("PyTorch is not installed.")

from fljsd import distributed, library, torch_distributed
from fljsd.torch_distributed import parallel_linear_jsd
from library_on_host import LibraryOnHost


def tensors(tokens=3, hidden=2, vocab=4, teacher_hidden=3, dtype=torch.float32):
    shapes = (tokens, hidden), (vocab, hidden), (tokens, teacher_hidden), (vocab, teacher_hidden)
    made = [torch.ones(shape, dtype=dtype) for shape in shapes]
    return made[0].requires_grad_(), made[1].requires_grad_(), *made[2:]


class Calls(unittest.TestCase):
    """The CPU stands in for a GPU, a process group of one rank for a larger one."""

    @classmethod
    def setUpClass(cls):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        cls.addClassCleanup(dist.destroy_process_group)

    def setUp(self):
        stream = mock.Mock(cuda_stream=7)
        for target, name, value in ((torch.cuda, "device", lambda _: contextlib.nullcontext()),
                                    (torch.cuda, "current_device", lambda: 0),
                                    (torch.cuda, "current_stream", lambda *_: stream)):
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(self.forget)

    def forget(self):
        for cached in (distributed.load, torch_distributed._plans, torch_distributed._communicator):
            cached.cache_clear()
        torch_distributed._latest = None

    def play(self, **sizes):
        self.forget()
        host = LibraryOnHost(sizes)
        patch = mock.patch.object(library, "load", lambda: host)
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(lambda: self.assertEqual(host.faults, []))
        return host

    def test_gradients(self):
        """Catches: what no GPU is needed to see of the calls into the library, gradients that are exchanged, multiplied by
        anything but the upstream gradient, or asked for where none is wanted."""
        host = self.play(student_input_grad=6, student_weight_grad=8, student_bias_grad=4)
        x, w, y, u = tensors()
        bias = torch.zeros(4, requires_grad=True)
        labels = torch.tensor([[0, 9], [-100, 9], [1, 9]])[:, 0]  # a column: not contiguous
        loss = parallel_linear_jsd(x, w, y, u, vocab_group=dist.group.WORLD, beta=0.25, temperature=2.0, student_bias=bias,
                                   labels=labels, valid_vocab=400, reduction="sum", timeout=2.5)
        self.assertEqual(loss.item(), 1.5)
        (3 * loss).backward()
        for name, tensor in (("student_input_grad", x), ("student_weight_grad", w), ("student_bias_grad", bias)):
            self.assertEqual(tensor.grad.flatten().tolist(), [3 * value for value in host.of(name)], name)
        config, given = host.configs[0], host.tensors[0]
        self.assertEqual((config.tokens, config.vocab, config.student_hidden, config.teacher_hidden), (3, 4, 2, 3))
        self.assertEqual((config.beta, config.temperature, config.valid_vocab, config.reduction, config.has_labels,
                          config.ignore_index, config.gradients), (0.25, 2.0, 400, 1, 1, -100, 7))
        self.assertEqual((config.student_dtype, config.teacher_dtype, config.student_bias_dtype, config.teacher_bias_dtype),
                         (library.F32, library.F32, library.F32, library.ABSENT))
        self.assertEqual((given.student_input, given.teacher_weight), (x.data_ptr(), u.data_ptr()))
        self.assertEqual((given.teacher_bias, given.token_loss), (None, None))
        self.assertEqual(host.ranks, [(0x100, None, 0)])
        self.assertEqual(dict(host.calls)["fljsd_communicator_create"][3], 2500)

    def test_without_gradients(self):
        """Catches: a frozen model that pays for gradients; a plan or a communicator for every call."""
        host = self.play()
        x, w, y, u = tensors(dtype=torch.bfloat16)
        for _ in range(2):
            with torch.no_grad():
                loss = parallel_linear_jsd(x, w, y, u, token_group=dist.group.WORLD)
        self.assertEqual((loss.item(), loss.requires_grad), (1.5, False))
        self.assertEqual(host.names().count("fljsd_forward"), 2)
        for name in ("fljsd_plan_create_distributed", "fljsd_communicator_create"):
            self.assertEqual(host.names().count(name), 1)
        self.assertEqual((host.configs[0].gradients, host.configs[0].student_dtype), (0, library.BF16))
        self.assertEqual(host.ranks, [(None, 0x100, 0)])

    def test_other_tokens(self):
        """Catches: a rank whose number of tokens is new to it and that asks the ranks of its token group, who make a call
        meanwhile; a plan that is made again for a number that was seen; a kind of plan that nobody compared."""
        host = self.play()
        for tokens in (3, 5, 3, 0, 5):
            parallel_linear_jsd(*[t.detach() for t in tensors(tokens)], token_group=dist.group.WORLD)
        self.assertEqual([config.tokens for config in host.configs], [3, 5, 0])
        self.assertEqual(host.compared, [0, 1, 1])
        for options in (dict(beta=0.25), dict(beta=0.25)):
            parallel_linear_jsd(*[t.detach() for t in tensors(5)], token_group=dist.group.WORLD, **options)
        self.assertEqual(host.compared, [0, 1, 1, 0])

    def test_only_its_own_groups_push_a_plan_out(self):
        """Catches: a plan that is made again on one rank alone, because that rank made many with other ranks since."""
        host = self.play()
        with mock.patch.object(torch_distributed, "_MOST", 2):
            for group in ("vocab_group", "token_group", "token_group", "token_group", "vocab_group"):
                beta = 0.5 if group == "vocab_group" else len(host.configs) / 8
                parallel_linear_jsd(*[t.detach() for t in tensors()], beta=beta, **{group: dist.group.WORLD})
        self.assertEqual(len(host.configs), 4)

    def test_without_an_id(self):
        """Catches: a rank 0 that fails before it tells the others anything, which then wait for as long as their group
        does."""
        host = self.play()
        host.fails = "fljsd_communicator_id"
        told = []
        with mock.patch.object(dist, "broadcast_object_list", lambda box, **_: told.extend(box)):
            with self.assertRaisesRegex(library.LibraryError, "Rank 0 of the group: A sentence of the library"):
                parallel_linear_jsd(*[t.detach() for t in tensors()], token_group=dist.group.WORLD)
        self.assertEqual(told, [None, "A sentence of the library."])

    def test_fp16_waits_in_fp32(self):
        """Catches: small fp16 gradients that are lost before a loss scaler's upstream gradient brings them into range."""
        host = self.play(student_weight_grad=8)
        x, w, y, u = tensors(dtype=torch.float16)
        parallel_linear_jsd(x.detach(), w, y, u, vocab_group=dist.group.WORLD).backward()
        self.assertEqual((host.configs[0].student_dtype, host.configs[0].gradient_dtype), (library.F16, library.F32))
        self.assertEqual((w.grad.dtype, w.grad.flatten().tolist()), (torch.float16, host.of("student_weight_grad")))
        self.assertEqual(host.tensors[0].student_input_grad, None)

    def test_wait(self):
        """Catches: a wait for another stream, or one that is not bounded by what the caller says."""
        torch_distributed.wait()  # nothing was enqueued
        host = self.play()
        x, w, y, u = (t.detach() for t in tensors())
        parallel_linear_jsd(x, w, y, u, vocab_group=dist.group.WORLD)
        torch_distributed.wait(timeout=0.25)
        self.assertEqual(dict(host.calls)["fljsd_plan_wait"], (0x5001, 7, 250))
        host.fails = "fljsd_plan_wait"
        with self.assertRaisesRegex(library.LibraryError, "A sentence of the library"):
            torch_distributed.wait()

    def test_refusals(self):
        """Catches: bad arguments that reach the library, whose peers would wait."""
        host = self.play()
        x, w, y, u = tensors()
        for sentence, arguments, options in (
                ("reduction is 'none', but it must be 'batchmean' or 'sum'", (x, w, y, u), dict(reduction="none")),
                ("valid_vocab is 0", (x, w, y, u), dict(valid_vocab=0)),
                ("student_weight has shape .4, 3., but .* must be .4, 2.", (x, u, y, w), {}),
                ("teacher_weight has dtype torch.float16, but it must be torch.float32", (x, w, y, u.half()), {}),
                ("labels has dtype torch.int32", (x, w, y, u), dict(labels=torch.zeros(3, dtype=torch.int32))),
                ("beta is 1.5", (x, w, y, u), dict(beta=1.5))):
            with self.assertRaisesRegex(ValueError, sentence):
                parallel_linear_jsd(*arguments, **options)
        with mock.patch.object(dist, "get_rank", lambda group: -1):
            with self.assertRaisesRegex(ValueError, "token_group does not have this process"):
                parallel_linear_jsd(x, w, y, u, token_group=dist.group.WORLD)
        self.assertEqual(host.calls, [])


if __name__ == "__main__":
    unittest.main()
