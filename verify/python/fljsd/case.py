# SPDX-License-Identifier: Apache-2.0
"""A case: one concrete problem with its tensors and options. docs/math.md says what is computed."""
from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from . import formats, safetensors
from .safetensors import FileError, Tensor

MATRICES = ("student_input", "student_weight", "teacher_input", "teacher_weight")
OPTIONAL = ("student_bias", "teacher_bias", "labels")
RESULTS = ("loss", "token_loss", "student_input_grad", "student_weight_grad", "student_bias_grad")
OPTIONS = {"beta": float, "temperature": float, "ignore_index": int, "reduction": str, "valid_vocab": int}


class Case:
    """Tensors and options, from arrays of any library or from a file.

    student_input [tokens, student_hidden], student_weight [vocab, student_hidden], the teacher's likewise; biases
    [vocab] and labels [tokens] may be None. As attributes they are NumPy arrays that hold the values exactly (float32
    for bf16 and f16); stored(), torch() and jax() give them in the format of the file.

    Options are attributes too: beta, temperature, ignore_index, reduction ("batchmean", "sum" or "none"), valid_vocab.
    A candidate finds in `want` what it is asked for: "loss", "token_loss", "grad".
    """

    def __init__(self, student_input, student_weight, teacher_input, teacher_weight, *, student_bias=None,
                 teacher_bias=None, labels=None, beta=0.5, temperature=1.0, ignore_index=-100, reduction="batchmean",
                 valid_vocab=None, dtype=None):
        """`dtype` (bf16, f16, f32 or f64) rounds the floating-point tensors once; else they keep their formats."""
        given = dict(student_input=student_input, student_weight=student_weight, teacher_input=teacher_input,
                     teacher_weight=teacher_weight, student_bias=student_bias, teacher_bias=teacher_bias)
        tensors = {name: formats.encode(array, dtype) for name, array in given.items() if array is not None}
        if labels is not None:
            tensors["labels"] = formats.encode(labels)
        self._set(tensors, beta, temperature, ignore_index, reduction, valid_vocab, "the case")

    @classmethod
    def read(cls, path) -> Case:
        """The case in a file; FileError, one sentence, when it is not one."""
        tensors, metadata = safetensors.read(path)
        options = dict(beta=0.5, temperature=1.0, ignore_index=-100, reduction="batchmean", valid_vocab=None)
        provenance = {}
        for key, text in metadata.items():
            if key not in OPTIONS:
                provenance[key] = text
                continue
            try:
                options[key] = OPTIONS[key](text)
            except ValueError:
                raise FileError(f"{path} has {key} {text!r}, but it must be a number.") from None
        case = cls.__new__(cls)
        case._set(tensors, origin=str(path), **options)
        case.provenance = provenance
        return case

    def write(self, path) -> None:
        """Writes it as a file that `fljsd loss`, `fljsd check` and candidates read."""
        metadata = dict(self.provenance, beta=repr(self.beta), temperature=repr(self.temperature),
                        ignore_index=str(self.ignore_index), reduction=self.reduction)
        if self.valid_vocab != self.vocab:
            metadata["valid_vocab"] = str(self.valid_vocab)
        safetensors.write(path, self.tensors, metadata)

    def _set(self, tensors, beta, temperature, ignore_index, reduction, valid_vocab, origin):
        self.tensors: dict[str, Tensor] = tensors
        self.beta, self.temperature, self.reduction = float(beta), float(temperature), reduction
        self.ignore_index = int(ignore_index)
        self.provenance: dict[str, str] = {}
        self.want = frozenset(("loss", "token_loss", "grad"))
        self.row_padding = self.misalignment = 0
        self._views: list[tuple[str, object]] = []  # what was handed out, to see whether it was written to
        self._check_tensors(origin)
        self.tokens, self.student_hidden = tensors["student_input"].shape
        self.vocab, self.teacher_hidden = tensors["teacher_weight"].shape
        self.valid_vocab = self.vocab if valid_vocab is None else int(valid_vocab)
        for name, value, good, allowed in (
            ("beta", self.beta, 0 <= self.beta <= 1, "from 0 to 1"),
            ("temperature", self.temperature, 0 < self.temperature < math.inf, "positive and finite"),
            ("reduction", reduction, reduction in ("batchmean", "sum", "none"), "batchmean, sum or none"),
            ("valid_vocab", self.valid_vocab, 1 <= self.valid_vocab <= self.vocab, f"from 1 to vocab, {self.vocab}"),
        ):
            if not good:
                raise FileError(f"{origin} has {name} {value}, but it must be {allowed}.")

    def _check_tensors(self, origin):
        for name in self.tensors:
            if name not in MATRICES and name not in OPTIONAL:
                raise FileError(f"{origin} has a tensor '{name}', which a case does not have.")
        for name in MATRICES:
            if name not in self.tensors:
                raise FileError(f"{origin} has no tensor '{name}', but a case must have it.")
            if len(self.tensors[name].shape) != 2:
                raise FileError(f"{origin}: {name} has shape {list(self.tensors[name].shape)}, but it must be a matrix.")
        for name, tensor in self.tensors.items():
            if (tensor.dtype == "I64") != (name == "labels"):
                raise FileError(f"{origin}: {name} has dtype {tensor.dtype}; labels are I64, all others floating-point.")
        (tokens, _), (vocab, _) = (self.tensors[name].shape for name in ("student_input", "student_weight"))
        expected = dict(
            student_weight=(vocab, self.tensors["student_input"].shape[1]),
            teacher_input=(tokens, self.tensors["teacher_weight"].shape[1]),
            teacher_weight=(vocab, self.tensors["teacher_weight"].shape[1]),
            student_bias=(vocab,), teacher_bias=(vocab,), labels=(tokens,))
        for name, shape in expected.items():
            if name in self.tensors and self.tensors[name].shape != shape:
                raise FileError(f"{origin}: {name} has shape {list(self.tensors[name].shape)}, but with the other "
                                f"tensors it must be {list(shape)}.")

    def lay_out(self, row_padding=0, misalignment=0) -> Case:
        """From now on, tensors are handed out as slices of larger ones are: `row_padding` elements that are NaN follow
        each row of a matrix, and each floating-point tensor starts `misalignment` bytes, rounded down to whole elements,
        past a 64-byte boundary. Not so those of jax(), which have no strides."""
        if row_padding < 0 or not 0 <= misalignment < 64:
            raise ValueError(f"row_padding is {row_padding} and misalignment {misalignment}, but they must be at least 0 "
                             "and from 0 to 63.")
        self.row_padding, self.misalignment = int(row_padding), int(misalignment)
        for name in MATRICES + OPTIONAL:
            self.__dict__.pop(name, None)  # decoded already: once more, where it now belongs
        return self

    def _laid_out(self, array):
        if (self.row_padding == 0 and self.misalignment == 0) or array.dtype.kind == "i":
            return array
        return formats.laid_out(array, self.row_padding, self.misalignment)

    def __getattr__(self, name):
        # Called only for what is not set yet: tensors, which are decoded at their first use.
        if name not in MATRICES and name not in OPTIONAL:
            raise AttributeError(f"a case has no '{name}'")
        array = self._laid_out(formats.decode(self.tensors[name])) if name in self.tensors else None
        if array is not None:
            self._views.append((name, array))
        setattr(self, name, array)
        return array

    def stored(self, name) -> np.ndarray | None:
        """A tensor in the format of the file, bf16 as ml_dtypes.bfloat16; read-only. None when the case lacks it."""
        return self._laid_out(formats.decode_as_stored(self.tensors[name])) if name in self.tensors else None

    @cached_property
    def counted(self) -> np.ndarray:
        """Which tokens take part, [tokens]: those whose label is not ignore_index."""
        return np.ones(self.tokens, bool) if self.labels is None else self.labels != self.ignore_index

    @property
    def divisor(self) -> int:
        """What the sum over tokens is divided by: the number of counted ones for batchmean, or 1."""
        return max(1, int(self.counted.sum())) if self.reduction == "batchmean" else 1

    def torch(self, device=None):
        """The case as PyTorch tensors, student tensors ready for backward(); see fljsd.views.TorchCase."""
        from .views import TorchCase

        return TorchCase(self, device)

    def jax(self):
        """The case as JAX arrays; see fljsd.views.JaxCase."""
        from .views import JaxCase

        return JaxCase(self)

    def changed(self) -> list[str]:
        """Names of tensors that were written to through an array that this case handed out."""
        names = []
        for name, array in self._views:
            now, was = formats.encode(array), self.tensors[name]
            if now.dtype != was.dtype:  # float32 that holds bf16 or f16
                was = formats.encode(formats.decode(was))
            if now.data != was.data and name not in names:
                names.append(name)
        return names

    def __repr__(self):
        hidden = f"{self.student_hidden}" if self.student_hidden == self.teacher_hidden else (
            f"{self.student_hidden} (teacher {self.teacher_hidden})")
        formats_used = ", ".join(sorted({tensor.dtype for tensor in self.tensors.values()} - {"I64"}))
        return (f"Case(tokens {self.tokens}, vocab {self.vocab}, hidden {hidden}, {formats_used}, beta {self.beta:g}, "
                f"temperature {self.temperature:g}, {self.reduction})")
