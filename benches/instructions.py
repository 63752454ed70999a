#!/usr/bin/env python3
"""Instructions that rdmascope needs for a sample of each transport: instructions.py [--update] [RDMASCOPE]

Needs valgrind. Runs a release build under callgrind, on one thread, and counts instructions of user space: what the machine is busy with, how fast it
is and how its caches are does not matter. What a start costs is measured with a capture without frames, and taken off. Each count is held
against the one in instructions.txt, where there is one; what is more than 3 % above it is an error. A count belongs to a compiler: where another rustc
built the program, 15 % are allowed, and instructions.txt should be written anew with --update."""
import os
import re
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
}
LIMIT, OTHER_COMPILER = 3.0, 15.0


def instructions(program, arguments, path, folder):
    out = os.path.join(folder, "callgrind")
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, *arguments, "--threads", "1", path]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "TZ": "UTC", "COLUMNS": "120"})
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return int(found.group(1))


def compiler():
    return subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def kept():
    """The compiler, and the counts by transport and form."""
    counts, by = {}, ""
    if os.path.exists(KEPT):
        with open(KEPT) as file:
            for line in file:
                if line.startswith("# rustc"):
                    by = line[2:].strip()
                elif line.strip() and not line.startswith("#"):
                    transport, form, count = line.rsplit(maxsplit=2)
                    counts[transport.strip(), form] = int(count.replace("_", ""))
    return by, counts


def main():
    arguments = [a for a in sys.argv[1:] if a != "--update"]
    if any(a.startswith("-") for a in arguments):
        sys.exit(__doc__)
    if arguments:
        program = arguments[0]
    else:
        subprocess.run(["cargo", "build", "--release", "--quiet", "--package", "rdmascope"], cwd=ROOT, check=True)
        program = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "rdmascope")
    built_by, before = kept()
    limit = LIMIT if built_by == compiler() else OTHER_COMPILER
    if before and limit != LIMIT:
        print(f"instructions.txt is of {built_by}, this is {compiler()}: {limit:.0f} % are allowed. Write it anew with --update.")
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
                change = (count / before[transport, form] - 1) * 100 if (transport, form) in before else None
                told = "new" if change is None else f"{change:+.1f} %"
                print(f"{transport:18}{form:10}{count:>14,}   {told}", flush=True)
                if change is not None and change > limit:
                    worse.append(f"{transport}, {form}: {before[transport, form]:,} → {count:,} ({told}, {limit:.0f} % are allowed)")
    if "--update" in sys.argv:
        with open(KEPT, "w") as file:
            file.write("# Instructions for a sample of each transport, start of the program taken off: instructions.py --update writes this.\n")
            file.write(f"# {compiler()}\n")
            for (transport, form), count in now.items():
                file.write(f"{transport:18}{form:10}{count}\n")
    elif worse:
        sys.exit("More instructions than before:\n  " + "\n  ".join(worse))


if __name__ == "__main__":
    main()
