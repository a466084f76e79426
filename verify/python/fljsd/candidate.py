# SPDX-License-Identifier: Apache-2.0
"""Makes a function a candidate: a process that answers JSON lines. docs/verify_your_kernel.md has the protocol.

    import fljsd

    def my_loss(case):
        ...
        return {"loss": ..., "token_loss": ..., "student_input_grad": ..., "student_weight_grad": ...}

    fljsd.serve(my_loss, lacks=["temperature"])
"""
from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Callable

from . import formats, safetensors
from .case import RESULTS, Case

FEATURES = ("grad", "token_loss", "beta_endpoints", "temperature", "labels", "bias", "valid_vocab", "hidden_differ",
            "reduction_sum", "reduction_none", "f16", "f32", "f64")
CLASSES = ("float64", "fp32-logits", "bf16-logits")


class Unsupported(Exception):
    """Raise it from a candidate for a case that it does not support: counted as skipped, and reported as such."""


class Candidate:
    """A function and what it declares of itself; replies to the engine's requests.

    The function takes a Case and returns a dict with "loss" (a number, or absent where the reduction is none) and what
    case.want names besides: "token_loss" [tokens], "student_input_grad" [tokens, student_hidden],
    "student_weight_grad" [vocab, student_hidden], "student_bias_grad" [vocab] where the student has a bias. Values are
    arrays of any library, in any floating-point format. A bare number is taken for the loss.
    """

    def __init__(self, function: Callable, lacks=(), accuracy_class="fp32-logits", deterministic=False,
                 strided=False):
        if isinstance(lacks, str):
            lacks = [lacks]
        for feature in lacks:
            if feature not in FEATURES:
                raise ValueError(f"lacks names {feature!r}, but it may name only {', '.join(FEATURES)}.")
        if accuracy_class not in CLASSES:
            raise ValueError(f"accuracy_class is {accuracy_class!r}, but it must be one of {', '.join(CLASSES)}.")
        self.function = function
        self.declaration = {"class": accuracy_class, "deterministic": bool(deterministic), "lacks": list(lacks)}
        self.strided = bool(strided)
        if self.strided:
            self.declaration["strided"] = True
        self.traceback = ""  # of the last exception in the function

    def reply(self, line: str | bytes) -> str:
        """The answer to one line of the engine, without the line end."""
        request = json.loads(line)
        if "hello" in request:
            return json.dumps(self.declaration)
        try:
            self._answer(request)
        except Unsupported as why:
            return json.dumps({"error": f"unsupported: {why}"})
        except Exception as error:
            self.traceback = traceback.format_exc()
            return json.dumps({"error": f"{type(error).__name__}: {error}"})
        return '{"ok": true}'

    def _answer(self, request) -> None:
        case = Case.read(request["case"])
        case.want = frozenset(request["want"])
        if self.strided:
            case.lay_out(*(int(case.provenance.pop(key, 0)) for key in ("row_padding", "misalignment")))
        result = self.function(case)
        changed = case.changed()
        if changed:
            raise ValueError(f"the function wrote to its input {' and '.join(changed)}")
        write_result(request["result"], result)


def write_result(path, result) -> None:
    """Writes what a candidate returned as a file. ValueError, one sentence, for what is not a result."""
    if not isinstance(result, dict):
        result = {"loss": result}
    tensors = {}
    for name, value in result.items():
        if name not in RESULTS:
            raise ValueError(f"the result has {name!r}, but it may have only {', '.join(RESULTS)}.")
        if value is None:
            continue
        tensor = formats.encode(value)
        if tensor.dtype == "I64":
            tensor = formats.encode(value, "f64")
        if name == "loss" and tensor.shape == ():
            tensor = tensor._replace(shape=(1,))
        tensors[name] = tensor
    safetensors.write(path, tensors)


def serve(function: Callable, *, lacks=(), accuracy_class="fp32-logits", deterministic=False,
          strided=False) -> None:
    """Answers the engine on standard input and output until it closes them.

    lacks           names from FEATURES of what the function cannot do: such cases are not sent
    accuracy_class  what it promises: "float64", "fp32-logits" (fp32 logits and better after that) or "bf16-logits"
    deterministic   whether the same case always gives the same bits
    strided         whether it takes tensors whose rows are padded and whose addresses are aligned to an element only,
                    as slices of larger tensors are: some cases then come so (Case.lay_out)

    What the function prints goes to standard error. An exception is reported as an error for that case; Unsupported
    counts the case as skipped.
    """
    candidate = Candidate(function, lacks, accuracy_class, deterministic, strided)
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w")
    # From here on 0 and 1 are no channel: neither prints, in Python or below it, nor a child can disturb the protocol.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    for line in requests:
        reply = candidate.reply(line)
        # Standard error first: the engine shows it with the finding.
        print(candidate.traceback, file=sys.stderr, end="", flush=True)
        candidate.traceback = ""
        print(reply, file=replies, flush=True)
