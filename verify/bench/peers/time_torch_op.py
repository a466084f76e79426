# SPDX-License-Identifier: Apache-2.0
"""Host time of a call of PyTorch's operator over that of the C interface, at a small size.

    python3 verify/bench/peers/time_torch_op.py [--csv overhead.csv] [--processes 3]

The host returns from a call before the device has done it, so the host clock is read around batches of calls, the device
idle at the start of each; operator and direct call in turns. The direct call has its plan, structures, workspace and outputs
at hand: nothing but ctypes and the library. What the operator adds is Python and PyTorch, and depends on how much of their
code the processor has in its caches, so it is taken in three situations:

    in a loop        all calls of a batch but the first: the overhead as such
    behind work      each call behind some layers of PyTorch, which the time leaves out: as in a step of training
    after waiting    the first call of a batch, after the wait for the device and the other function

Each is the difference of medians over batches; of the loop, that of the least as well, because host times of a shared
machine vary by half. So do processes: each figure is the median of fresh ones, one after the other, whose overheads in a loop
are listed below the table. backward() has no counterpart in the C interface: its row has the overhead of the call with
gradients and all that PyTorch's engine and the multiplication of the gradients cost the host. It has batches of its own:
what its thread and allocations leave behind is not the overhead of a call. Beside other implementations:
time_peers.py --fljsd.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ONCE = pathlib.Path(__file__).resolve().with_name("time_torch_op_once.py")


def in_fresh_process():
    done = subprocess.run([sys.executable, str(ONCE)], stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(done.returncode)  # it has said why
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description="Host time of a call of the PyTorch operator.")
    parser.add_argument("--csv", help="writes the result there")
    parser.add_argument("--processes", type=int, default=3, help="how many to measure in, one after the other")
    arguments = parser.parse_args()
    if arguments.processes < 1:
        parser.error(f"--processes is {arguments.processes}, but it must be at least 1.")
    measured = [in_fresh_process() for _ in range(arguments.processes)]
    first = measured[0]
    lines = [f"# verify/bench/peers/time_torch_op.py on {first['device']}, PyTorch {first['torch']}, "
             f"processes: {len(measured)}",
             ",".join(["call", *first["rows"]["forward"]])]
    for call, row in first["rows"].items():
        medians = [statistics.median(one["rows"][call][name] for one in measured) for name in row]
        lines.append(",".join([call, *[f"{us:.1f}" for us in medians]]))
    for call in first["rows"]:
        lines.append(f"# {call}, overhead_us by process: "
                     + " ".join([f"{one['rows'][call]['overhead_us']:.1f}" for one in measured]))
    print("\n".join(lines))
    if arguments.csv:
        pathlib.Path(arguments.csv).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
