#!/usr/bin/env python3
"""rdmascope beside tshark, on the same files in the same run: compare.py [FRAMES] [RUNS]

Needs python3 and tshark; builds rdmascope with --release first. Prints CPU seconds (user and system, the least of RUNS, tshark's of two) and how
many times tshark's, for analysis, chosen fields and JSON on one thread, wall seconds for the same on two, and the peak memory of analysis for two
lengths of capture. RDMASCOPE_TSHARK names another tshark than that of the path: interop/newest-tshark is the newest, once `interop/newest-tshark --get` has fetched it."""
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
FIELDS = ["frame.number", "ip.src", "ip.dst", "infiniband.bth.opcode", "infiniband.bth.psn", "smb_direct.credits.granted", "smb2.cmd"]


def run(command):
    """CPU seconds, wall seconds and peak KiB of a command."""
    with open(os.devnull, "w") as nowhere:
        start = time.monotonic()
        child = subprocess.Popen(command, stdout=nowhere, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - start
    if status != 0:
        sys.exit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss


def least(command, runs):
    return tuple(map(min, zip(*(run(command) for _ in range(runs)))))


def main():
    frames = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    subprocess.run(["cargo", "build", "--release", "--quiet", "--package", "rdmascope"], cwd=ROOT, check=True)
    ours = os.path.join(target, "release", "rdmascope")
    tshark = os.environ.get("RDMASCOPE_TSHARK", "tshark")
    print(subprocess.run([tshark, "--version"], capture_output=True, text=True).stdout.splitlines()[0])
    wanted = [part for field in FIELDS for part in ("-e", field)]
    with tempfile.TemporaryDirectory() as folder:
        # a tshark that gives root up has to read them as well
        os.chmod(folder, 0o755)
        print(f"\n{'':14}{'':22}{'tshark':>10}{'rdmascope':>11}{'times':>7}   (CPU seconds, {frames} frames)")
        for kind in ("roce-mixed", "roce-one", "iwarp-mixed"):
            path = os.path.join(folder, kind + ".pcap")
            subprocess.run([sys.executable, os.path.join(HERE, "make_capture.py"), kind, str(frames), path], check=True)
            subprocess.run(["cat", path], stdout=subprocess.DEVNULL)
            pairs = [
                ("analysis", [tshark, "-r", path, "-q", "-z", "io,stat,0"], ["analyze", path]),
                ("7 fields", [tshark, "-r", path, "-T", "fields", *wanted], ["dissect", "-T", "fields", *wanted, path]),
                ("JSON", [tshark, "-r", path, "-T", "json"], ["dissect", "-T", "json", path]),
            ]
            for name, theirs, mine in pairs:
                them, wall, _ = least(theirs, 2)
                one, _, _ = least([ours, *mine, "--threads", "1"], runs)
                _, two, _ = least([ours, *mine, "--threads", "2"], runs)
                print(f"{kind:14}{name + ', 1 thread':22}{them:10.2f}{one:11.3f}{them / one:7.1f}")
                print(f"{kind:14}{name + ', 2 threads':22}{wall:10.2f}{two:11.3f}{wall / two:7.1f}   (wall seconds)")
        print("\nPeak resident memory of analyze, MiB, pages of the mapped file among it:")
        for count in (frames, frames * 4):
            path = os.path.join(folder, f"{count}.pcap")
            subprocess.run([sys.executable, os.path.join(HERE, "make_capture.py"), "roce-mixed", str(count), path], check=True)
            for threads in ("1", "2"):
                _, _, peak = run([ours, "analyze", "--threads", threads, path])
                print(f"  {count:>9} frames, {threads} threads {peak / 1024:8.1f}")
            os.remove(path)


if __name__ == "__main__":
    main()
