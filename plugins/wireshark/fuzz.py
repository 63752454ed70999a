#!/usr/bin/env python3
"""Mutated captures through tshark with the Lua plugin: no crash, no hang, no error of Lua. fuzz.py RDMASCOPE [SECONDS] [SEED]

Frames of all samples are changed, cut, repeated, left out and swapped, and read in one pass and in two, as a tree, as fields and counted.
Needs python3 and tshark (RDMASCOPE_TSHARK names another one). Says how many frames were read; what fails stays in a file that it names."""
import glob
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
WAYS = (["-V"], ["-2", "-V"], ["-T", "fields", "-e", "rdmascope.finding.text", "-e", "rdmascope.exchange.time"], ["-q", "-z", "io,stat,0"])
# frames of a piece, and pieces of a file: most of the time goes into starting tshark
FRAMES, PIECES = 600, 6
# what tshark says where a plugin fails, in the tree or on stderr; it has bugs of its own, too
BAD = ("Lua Error", "Lua error", "lua:", ".lua\"]", "bug, protocol rdmascope", "bug, protocol RDMASCOPE", "the engine failed")


def frames_of(path):
    """The frames of a pcap file in little-endian order: its header, then heads and bytes."""
    with open(path, "rb") as file:
        whole = file.read()
    if whole[:4] not in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"):
        return None
    frames, at = [], 24
    while at + 16 <= len(whole):
        captured = struct.unpack_from("<I", whole, at + 8)[0]
        frames.append((whole[at:at + 8], whole[at + 16:at + 16 + captured]))
        at += 16 + captured
    return whole[:24], frames


def mutated(frames, rng):
    """A piece of a capture, some of it changed."""
    start = rng.randrange(max(1, len(frames) - FRAMES // 2))
    out = []
    for head, data in frames[start:start + FRAMES]:
        kind = rng.randrange(24)
        data = bytearray(data)
        if kind < 4 and len(data) > 14:
            for _ in range(rng.randrange(1, 6)):
                data[rng.randrange(14, len(data))] = rng.choice((0, 255, rng.randrange(256)))
        elif kind == 4:
            del data[rng.randrange(len(data)):]
        elif kind == 5:
            continue
        elif kind == 6:
            out.append((head, bytes(data)))
        elif kind == 7 and len(data) > 40:
            at = rng.randrange(34, len(data))
            data[at:at] = rng.randbytes(rng.randrange(1, 40))
        out.append((head, bytes(data)))
        if kind == 8 and len(out) > 1:
            out[-1], out[-2] = out[-2], out[-1]
    return out


def main():
    ours = os.path.realpath(sys.argv[1])
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 60
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
    tshark = os.environ.get("RDMASCOPE_TSHARK", "tshark")
    rng = random.Random(seed)
    captures = [c for c in map(frames_of, sorted(glob.glob(os.path.join(ROOT, "samples", "*", "*.pcap")))) if c and c[1]]
    seconds = max(seconds, 1)
    begun, frames, runs = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        plugin, path = os.path.join(folder, "rdmascope.lua"), os.path.join(folder, "mutated.pcap")
        subprocess.run([ours, "export", "wireshark", "-o", plugin], check=True, stdout=subprocess.DEVNULL)
        beside = os.path.dirname(ours)
        engines = [os.path.join(beside, *part, "librdmascope_engine.so") for part in ((), ("deps",))]
        shutil.copy(max((e for e in engines if os.path.exists(e)), key=os.path.getmtime), folder)
        while time.monotonic() - begun < seconds:
            header = rng.choice(captures)[0]
            alike = [frames for other, frames in captures if other == header]
            changed = [frame for _ in range(PIECES) for frame in mutated(rng.choice(alike), rng)]
            with open(path, "wb") as file:
                file.write(header)
                for head, data in changed:
                    file.write(head + struct.pack("<II", len(data), len(data)) + data)
            os.chmod(path, 0o644)
            way = WAYS[runs % len(WAYS)]
            try:
                done = subprocess.run([tshark, "-X", "lua_script:" + plugin, "-r", path, *way], capture_output=True, timeout=300, check=False)
                said = (done.stdout + done.stderr).decode("utf-8", "replace")
                bad = [word for word in BAD if word in said] + ([f"exit code {done.returncode}"] if done.returncode else [])
            except subprocess.TimeoutExpired:
                said, bad = "", ["no end after 300 s"]
            if bad:
                kept = os.path.join(tempfile.gettempdir(), f"rdmascope-fuzz-{seed}-{runs}.pcap")
                shutil.copy(path, kept)
                lines = [line for line in said.splitlines() if any(word in line for word in BAD)]
                print(f"{tshark} {' '.join(way)} {kept}: {', '.join(bad)}", *lines[:5], sep="\n  ")
                sys.exit(1)
            frames, runs = frames + len(changed), runs + 1
    took = time.monotonic() - begun
    print(f"{frames} frames in {runs} captures, {took:.0f} s, {frames / took * 3600:,.0f} an hour: no crash, no error of Lua (seed {seed})")


if __name__ == "__main__":
    main()
