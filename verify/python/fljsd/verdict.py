# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass


@dataclass
class Finding:
    pass


@dataclass
class Verdict:
    report: dict
    corpus: object
    last_traceback: str
