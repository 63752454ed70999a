#!/usr/bin/env python3
"""Instructions that rdmascope needs for a sample of each transport: instructions.py [--update] [RDMASCOPE]

Needs valgrind. Runs a build of the profile `checked` under callgrind, on one thread, and counts instructions of user space: what the machine is busy
with, how fast it is and how its caches are does not matter. What a start costs is measured with a capture without frames, and taken off. The C library is told
to use no instructions that not every processor has. Each count is held against the one in instructions.txt; what is more than 3 % above it is an error.

A count belongs to a compiler, a C library and what the processor can do, which instructions.txt names: where one of them is another, 15 % are
allowed, and on another kind of processor nothing is held against anything. --update writes the file anew."""
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
KEPT = os.path.join(HERE, "instructions.txt")
SAMPLES = {"RoCEv2": "smb-roce", "iWARP": "smb-iwarp-crc", "TCP": "smb-tcp-seal", "NFS over RoCEv2": "nfs-roce-v42"}
FIELDS = ["frame.number", "ip.src", "ip.dst", "infiniband.bth.opcode", "infiniband.bth.psn", "smb_direct.credits.granted", "smb2.cmd"]
FORMS = {
    "lines": ["dissect"],
    "analysis": ["analyze"],
    "fields": ["dissect", "-T", "fields", *(part for field in FIELDS for part in ("-e", field))],
    "JSON": ["dissect", "-T", "json"],
    "-V": ["dissect", "-V"],
}
LIMIT, OTHER = 3.0, 15.0
# Copying and comparing as every x86-64 can: the C library's choice by processor is no choice of ours.
TUNABLES = "glibc.cpu.hwcaps=" + ",".join("-" + name for name in (
    "AVX512F", "AVX512VL", "AVX512BW", "AVX512_ERMS", "AVX2", "AVX2_Usable", "AVX", "AVX_Fast_Unaligned_Load", "EVEX", "ERMS", "FSRM",
    "Fast_Unaligned_Copy", "SSSE3", "Fast_Copy_Backward", "SSE4_1", "SSE4_2"))
# What our own dependencies choose by, of what valgrind lets them see.
FEATURES = ("pclmulqdq", "avx2", "aes", "bmi2")


def instructions(program, arguments, path, folder):
    out = os.path.join(folder, "callgrind")
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, *arguments, "--threads", "1", path]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "TZ": "UTC", "COLUMNS": "120", "GLIBC_TUNABLES": TUNABLES})
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return int(found.group(1))


def about():
    """What a count depends on besides the sources."""
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    flags = set()
    try:
        with open("/proc/cpuinfo") as file:
            flags = next((set(line.split(":", 1)[1].split()) for line in file if line.startswith("flags")), set())
    except OSError:
        pass
    can = " ".join(feature for feature in FEATURES if feature in flags) or "nothing"
    valgrind = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return [rustc, platform.machine(), f"processor with {can}", " ".join(platform.libc_ver()), valgrind]


def kept():
    """What the counts depend on, and the counts by transport and form."""
    counts, by = {}, []
    if os.path.exists(KEPT):
        with open(KEPT) as file:
            for line in file:
                if line.startswith("# of "):
                    by = line[5:].strip().split("; ")
                elif line.strip() and not line.startswith("#"):
                    transport, form, count = line.rsplit(maxsplit=2)
                    counts[transport.strip(), form] = int(count.replace("_", ""))
    return by, counts


def judged(name, before, now, limit):
    """How a count compares, in words; and whether it is too high."""
    if before is None:
        return "new", None
    change = (now / before - 1) * 100
    told = f"{change:+.1f} %"
    return told, f"{name}: {before:,} before, {now:,} now ({told}; {limit:.0f} % are allowed)" if change > limit else None


def main():
    arguments = [a for a in sys.argv[1:] if a != "--update"]
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not there; Debian's package has that name")
    if any(a.startswith("-") for a in arguments):
        sys.exit(__doc__)
    if arguments:
        program = arguments[0]
    else:
        # as CI makes it: the program that the integration tests run
        subprocess.run(["cargo", "test", "--profile", "checked", "--quiet", "--package", "rdmascope", "--package", "rdmascope-report", "--package", "rdmascope-sim", "--test", "reports", "--no-run"], cwd=ROOT, check=True)
        program = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "checked", "rdmascope")
    by, before = kept()
    here = about()
    others = [f"{was} there, {now} here" for was, now in zip(by, here) if was != now]
    if len(by) > 1 and by[1] != here[1]:
        print(f"instructions.txt is of {by[1]}, this is {here[1]}: nothing is compared.")
        before = {}
    limit = OTHER if others else LIMIT
    if before and others:
        print(f"instructions.txt is of another machine ({'; '.join(others)}): {limit:.0f} % are allowed. Write it anew with --update.")
    now, worse = {}, []
    with tempfile.TemporaryDirectory() as folder:
        empty = os.path.join(folder, "empty.pcap")
        with open(empty, "wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for form, arguments in FORMS.items():
            start = instructions(program, arguments, empty, folder)
            for transport, sample in SAMPLES.items():
                path = os.path.join(ROOT, "samples", sample, sample + ".pcap")
                count = instructions(program, arguments, path, folder) - start
                now[transport, form] = count
                told, wrong = judged(f"{transport}, {form}", before.get((transport, form)), count, limit)
                print(f"{transport:18}{form:10}{count:>14,}   {told}", flush=True)
                worse += [wrong] if wrong else []
    if "--update" in sys.argv:
        with open(KEPT, "w") as file:
            file.write("# Instructions for a sample of each transport, start of the program taken off: instructions.py --update writes this.\n")
            file.write(f"# of {'; '.join(here)}\n")
            for (transport, form), count in now.items():
                file.write(f"{transport:18}{form:10}{count}\n")
    elif worse:
        sys.exit("More instructions than before:\n  " + "\n  ".join(worse))


if __name__ == "__main__":
    main()
