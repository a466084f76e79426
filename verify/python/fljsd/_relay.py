# SPDX-License-Identifier: Apache-2.0
"""Stands between the engine and a function in another process: passes lines on, one there and one back.

    python _relay.py SOCKET

Only the standard library, and not even the package around it, so that it starts in no time.
"""
import socket
import sys


def main():
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(sys.argv[1])
    stream = channel.makefile("rwb")
    for line in sys.stdin.buffer:
        stream.write(line)
        stream.flush()
        reply = stream.readline()
        if not reply:  # the other side is gone
            sys.exit("the process that holds the function has ended")
        sys.stdout.buffer.write(reply)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
