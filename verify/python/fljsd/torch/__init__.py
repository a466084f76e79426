# SPDX-License-Identifier: Apache-2.0
"""Fused linear + generalized Jensen-Shannon divergence for PyTorch 2.4 and later.

    from fljsd.torch import fused_linear_jsd
    loss = fused_linear_jsd(student_input, student_weight, teacher_input, teacher_weight, beta=0.5)

docs/pytorch.md is the guide; docs/math.md says what is computed.
"""
from .compatible import FusedLinearJSD, generalized_jsd_loss
from .function import fused_linear_jsd
from ..library import LibraryError

__all__ = ["FusedLinearJSD", "LibraryError", "fused_linear_jsd", "generalized_jsd_loss"]
