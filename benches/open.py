#!/usr/bin/env python3
"""How long the terminal UI takes to open a large capture, and to open it again from its index: open.py [--frames N] [--keep FILE] [RDMASCOPE]

Needs python3, tmux, and room for the capture: 3.2 KB a frame, 10 GB by default; as much memory, or the disk is what is measured. Builds
rdmascope with --release unless a program is named. --keep makes the capture there and leaves it, and takes one that is there already.
Printed: seconds to the first screen, and until all frames are there, both from the start of the program; they are looked for every 10 ms."""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

from tables import built, count

HERE = os.path.dirname(os.path.abspath(__file__))
# seconds after which a capture that is not loaded never will be
PATIENCE = 300


def tmux(server, *arguments):
    return subprocess.run(["tmux", "-L", server, *arguments], capture_output=True, text=True).stdout


def opened(program, path, frames, cache):
    """Seconds to the first screen and to the last frame."""
    server = f"rdmascope-{os.getpid()}"
    begun = time.monotonic()
    command = f"XDG_CACHE_HOME='{cache}' '{program}' tui '{path}'"
    tmux(server, "new-session", "-d", "-x", "160", "-y", "48", command)
    first = None
    try:
        while time.monotonic() - begun < PATIENCE:
            screen = tmux(server, "capture-pane", "-p")
            now = time.monotonic() - begun
            head = screen.split("\n", 1)[0]
            if first is None and "Overview" in screen:
                first = now
            shown = re.search(r"([\d,]+) frames", head)
            if shown and int(shown.group(1).replace(",", "")) == frames and "%" not in head and "reading" not in head:
                return first, now
            time.sleep(0.01)
        sys.exit(f"{path} was not loaded after {PATIENCE} s:\n{screen}")
    finally:
        # q leaves the program, which writes its index before; a second of doubt
        tmux(server, "send-keys", "q")
        time.sleep(1)
        tmux(server, "kill-server")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=3_200_000)
    parser.add_argument("--keep")
    parser.add_argument("program", nargs="?")
    options = parser.parse_args()
    program = os.path.abspath(options.program or built())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.abspath(options.keep) if options.keep else os.path.join(folder, "large.pcap")
        if not os.path.exists(path):
            subprocess.run([sys.executable, os.path.join(HERE, "make_capture.py"), "roce-bulk-4k", str(options.frames), path + ".new"], check=True)
            os.replace(path + ".new", path)
        frames = count(path)
        subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
        for what in ("for the first time", "again"):
            first, last = opened(program, path, frames, os.path.join(folder, "cache"))
            print(f"{os.path.getsize(path) / 1e9:.2f} GB, {frames:,} frames, {what}: first screen {first * 1e3:.0f} ms, all frames {last:.2f} s")


if __name__ == "__main__":
    main()
