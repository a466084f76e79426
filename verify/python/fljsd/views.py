# SPDX-License-Identifier: Apache-2.0
"""A case as PyTorch tensors or JAX arrays, in the formats of the file, and an answer by automatic differentiation."""
from __future__ import annotations

import os

import numpy as np

from . import formats
from .case import MATRICES, OPTIONAL, Case

_OPTIONS = ("beta", "temperature", "ignore_index", "reduction", "valid_vocab", "want", "tokens", "vocab", "divisor")


class TorchCase:
    """The tensors of a case under their names, on one device; absent ones are None. Student tensors require gradients
    when the case asks for them. Options as in Case, and `counted` as a bool tensor.

    The device is the one given, else the environment variable FLJSD_DEVICE, else "cuda" where there is one, else "cpu".
    """

    def __init__(self, case: Case, device=None):
        import torch

        device = device or os.environ.get("FLJSD_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
        self.device = torch.device(device)
        for name in _OPTIONS:
            setattr(self, name, getattr(case, name))
        self.counted = torch.from_numpy(case.counted).to(self.device)
        for name in MATRICES + OPTIONAL:
            tensor = None
            if name in case.tensors:
                tensor = _torch_tensor(case.tensors[name]).to(self.device)
                if tensor.is_floating_point() and (case.row_padding or case.misalignment):
                    tensor = _laid_out(tensor, case.row_padding, case.misalignment)
                case._views.append((name, tensor))
                if name.startswith("student") and "grad" in case.want:
                    # The leaf is another Python object on the same memory.
                    tensor = tensor.view(tensor.shape).requires_grad_()
            setattr(self, name, tensor)

    def answer(self, loss=None, token_loss=None) -> dict:
        """What a candidate returns. Takes gradients by backward() from the loss, or, where the reduction is none, from
        the sum of the losses per token; unless the function has run backward() itself."""
        student = {name: getattr(self, name) for name in ("student_input", "student_weight", "student_bias")}
        student = {name: tensor for name, tensor in student.items() if tensor is not None}
        answer = {"loss": loss, "token_loss": token_loss}
        if "grad" in self.want:
            if all(tensor.grad is None for tensor in student.values()):
                (token_loss.sum() if self.reduction == "none" else loss).backward()
            for name, tensor in student.items():
                answer[name + "_grad"] = tensor.detach() * 0 if tensor.grad is None else tensor.grad
        return answer


def _torch_tensor(tensor):
    import torch

    if tensor.dtype == "BF16":
        bits = np.frombuffer(tensor.data, np.int16).reshape(tensor.shape).copy()
        return torch.from_numpy(bits).view(torch.bfloat16)
    return torch.from_numpy(formats.decode_as_stored(tensor).copy())


def _laid_out(tensor, row_padding, misalignment):
    """formats.laid_out() on the tensor's device: a copy between devices would pack it again."""
    import torch

    first, stride = misalignment // tensor.element_size(), tensor.shape[-1] + row_padding
    rows = tensor.shape[0] if tensor.ndim == 2 else 1
    memory = torch.full((first + rows * stride,), float("nan"), dtype=tensor.dtype, device=tensor.device)
    return memory.as_strided(tensor.shape, (stride, 1)[-tensor.ndim :], first).copy_(tensor)


class JaxCase:
    """The tensors of a case as JAX arrays under their names; absent ones are None. Options as in Case."""

    def __init__(self, case: Case):
        import jax
        import jax.numpy as jnp

        if not jax.config.jax_enable_x64 and any(tensor.dtype == "F64" for tensor in case.tensors.values()):
            raise ValueError("the case has f64 tensors, which JAX rounds to f32 unless jax_enable_x64 is set: "
                             "set it, or declare lacks=['f64']")
        for name in _OPTIONS:
            setattr(self, name, getattr(case, name))
        self.counted = jnp.asarray(case.counted)
        for name in MATRICES:
            setattr(self, name, jnp.asarray(case.stored(name)))
        for name in OPTIONAL:
            array = case.stored(name)
            if name == "labels" and array is not None and not jax.config.jax_enable_x64:
                # int32 is all there is: keep what labels are for, whether they equal ignore_index.
                array = np.where(case.counted, np.int32(case.ignore_index == 0), np.int32(case.ignore_index))
            setattr(self, name, None if array is None else jnp.asarray(array))

    def answer(self, function) -> dict:
        """What a candidate returns, for function(student_input, student_weight, student_bias) -> (loss, token_loss).
        It is differentiated with respect to the student's tensors; where the reduction is none, the sum of token_loss
        is. student_bias may be None, and so may the loss where the reduction is none."""
        import jax

        def objective(student):
            loss, token_loss = function(student["input"], student["weight"], student.get("bias"))
            return token_loss.sum() if self.reduction == "none" else loss, (loss, token_loss)

        student = {"input": self.student_input, "weight": self.student_weight}
        if self.student_bias is not None:
            student["bias"] = self.student_bias
        if "grad" not in self.want:
            loss, token_loss = objective(student)[1]
            return {"loss": loss, "token_loss": token_loss}
        gradients, (loss, token_loss) = jax.grad(objective, has_aux=True)(student)
        return {"loss": loss, "token_loss": token_loss,
                **{f"student_{name}_grad": gradient for name, gradient in gradients.items()}}
