#!/usr/bin/env python3
"""Measures what the tables here and in docs/speed.md say and writes them anew: tables.py [--frames N] [--runs N] [--keep FOLDER] [--into FILE] [--live] [--print] [RDMASCOPE]

Needs python3, tshark and two cores with nothing else to do; builds rdmascope with --release first unless a program is named. Everything
between "<!-- table NAME -->" and "<!-- end -->" in both is replaced; --into does so in a copy of README.md, --print only prints. Of several
runs the best counts; threads are measured in as many rounds of two runs. tshark is RDMASCOPE_TSHARK, or that of the path, or interop/newest-tshark's; without one its columns are left out.
tshark works on one thread, and is measured in CPU seconds; it is run once. --live runs live.py for its table too, five minutes as root.

--keep keeps captures and rows in a folder: after an end too soon, the same command goes on there. Rows of another program or of another
tshark are measured again. Try it with --frames 20000 --runs 1 --into /tmp/tables.md."""
import argparse
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
README = os.path.join(HERE, "README.md")
SPEED = os.path.join(ROOT, "docs", "speed.md")
FIELDS = ["frame.number", "ip.src", "ip.dst", "infiniband.bth.opcode", "infiniband.bth.psn", "smb_direct.credits.granted", "smb2.cmd"]
WANTED = [part for field in FIELDS for part in ("-e", field)]
FORMS = {
    "analysis": (["analyze"], ["-q", "-z", "io,stat,0"]),
    "7 fields": (["dissect", "-T", "fields", *WANTED], ["-T", "fields", *WANTED]),
    "JSON": (["dissect", "-T", "json"], ["-T", "json"]),
    "-V": (["dissect", "-V"], ["-V"]),
}
KINDS = {
    "roce-small": "small requests, 16 connections",
    "roce-bulk": "bulk, MTU 1024, 16 connections",
    "roce-mixed": "mixed, 16 connections",
    "roce-one": "mixed, 1 connection",
    "iwarp-16": "iWARP, mixed, 16 connections",
    "iwarp-mixed": "iWARP, mixed, 1 connection",
}


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


def row(*cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def head(*cells):
    return [row(*cells), row(*("---" for _ in cells))]


class Measure:
    def __init__(self, program, tshark, version, split, folder, frames, runs):
        self.program, self.tshark, self.split_program, self.folder, self.frames, self.runs = program, tshark, split, folder, frames, runs
        with open(program, "rb") as file:
            # in pieces: what this process has in memory counts as its children's peak
            self.ours = hashlib.file_digest(file, "sha256").hexdigest()[:12]
        self.theirs = version
        self.path = os.path.join(folder, "rows.json")
        self.rows = {}
        if os.path.exists(self.path):
            with open(self.path) as file:
                self.rows = json.load(file)

    def known(self, name, measure, of=None):
        """A row that was measured before of the same programs, in as many runs of as many frames, or is now."""
        name = f"{name}, {self.frames} frames, {self.runs} runs, {of or self.ours + ' beside ' + self.theirs}"
        if name not in self.rows:
            self.rows[name] = measure()
            # whole or not at all: an end too soon must not take the rows before with it
            with open(self.path + ".new", "w") as file:
                json.dump(self.rows, file, indent=1)
            os.replace(self.path + ".new", self.path)
        print(self.rows[name], file=sys.stderr, flush=True)
        return self.rows[name]

    def capture(self, kind, frames=None):
        frames = frames or self.frames
        path = os.path.join(self.folder, f"{kind}-{frames}.pcap")
        if not os.path.exists(path):
            subprocess.run([sys.executable, os.path.join(HERE, "make_capture.py"), kind, str(frames), path + ".new"], check=True)
            os.replace(path + ".new", path)
        subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
        return path, os.path.getsize(path), count(path)

    def threads(self):
        """Each form on one thread and on two, beside tshark. Ours is measured in rounds, all rows in each: a machine that is
        slow for a minute is slow for one round of a row, and the best one counts."""
        lines = head("capture", "what", "1 thread, CPU s", "GB/s", "Gb/s", "M frames/s", "2 threads, wall s", "1 / 2", "tshark, CPU s", "times", "times on 2")
        captures = {kind: self.capture(kind) for kind in KINDS}
        rows = [(kind, form) for kind in KINDS for form in FORMS]
        them, best = {}, {}
        for kind, form in rows:
            path, theirs = captures[kind][0], FORMS[form][1]
            if self.tshark:
                told = self.known(f"tshark {kind} {form}", lambda: str(run([self.tshark, "-r", path, *theirs])[0]), self.theirs)
                them[kind, form] = float(told)
        for n in range(self.runs):
            for kind, form in rows:
                path, mine = captures[kind][0], FORMS[form][0]

                def once():
                    # of two runs each: the first one may have to wait for the file
                    (one, wall, _), (_, two, _) = (least([self.program, *mine, "--threads", threads, path], 2) for threads in "12")
                    return f"{one} {wall} {two}"

                told = map(float, self.known(f"{kind} {form}, round {n + 1}", once).split())
                best[kind, form] = tuple(map(min, zip(told, best.get((kind, form), (1e9, 1e9, 1e9)))))
        for kind, form in rows:
            (_, size, frames), (one, wall, two), tshark = captures[kind], best[kind, form], them.get((kind, form))
            beside = (f"{tshark:.2f}", f"{tshark / one:.1f}", f"{tshark / two:.1f}") if tshark else ("", "", "")
            rates = (f"{size / one / 1e9:.2f}", f"{size * 8 / one / 1e9:.1f}", f"{frames / one / 1e6:.2f}")
            lines.append(row(KINDS[kind], form, f"{one:.3f}", *rates, f"{two:.3f}", f"{wall / two:.2f}", *beside))
        return lines

    def bytes(self):
        """Bytes per second and core by the size of the frames, with and without CRC."""
        lines = head("frames", "bytes each", "checks", "CPU s", "GB/s per core", "Gb/s per core", "M frames/s per core")
        for kind, name in (("roce-small", "small requests"), ("roce-bulk", "MTU 1024"), ("roce-bulk-4k", "MTU 4096")):
            path, size, frames = self.capture(kind)
            for option, checks in ((["--no-crc"], "none"), ([], "every ICRC")):

                def measure():
                    cpu, _, _ = least([self.program, "analyze", "--threads", "1", *option, path], self.runs)
                    rates = (f"{size / cpu / 1e9:.2f}", f"{size * 8 / cpu / 1e9:.1f}", f"{frames / cpu / 1e6:.2f}")
                    return row(name, size // frames, checks, f"{cpu:.3f}", *rates)

                lines.append(self.known(f"{kind} {checks}", measure))
        return lines

    def export(self):
        """Parquet tables: frames per second and core."""
        lines = head("capture", "CPU s", "GB/s per core", "M frames/s per core")
        for kind in ("roce-small", "roce-mixed", "iwarp-16"):
            path, size, frames = self.capture(kind)
            out = os.path.join(self.folder, "tables")

            def once():
                shutil.rmtree(out, ignore_errors=True)
                cpu = run([self.program, "export", "parquet", path, out])[0]
                shutil.rmtree(out)
                return cpu

            def measure():
                cpu = min(once() for _ in range(self.runs))
                return row(KINDS[kind], f"{cpu:.3f}", f"{size / cpu / 1e9:.2f}", f"{frames / cpu / 1e6:.2f}")

            lines.append(self.known(f"export {kind}", measure))
        return lines

    def live(self):
        """What live.py prints."""

        def measure():
            told = subprocess.run([sys.executable, os.path.join(HERE, "live.py"), "--seconds", "4"], stdout=subprocess.PIPE, text=True, check=True,
                                  env={**os.environ, "RDMASCOPE": os.path.abspath(self.program)})
            return told.stdout.strip()

        return self.known("live", measure).split("\n")

    def memory(self):
        """Peak resident memory by frames and threads."""
        lines = head("frames", "1 thread, MiB", "2 threads", "4 threads")
        for frames in (self.frames, self.frames * 4):
            path, _, real = self.capture("roce-mixed", frames)

            def measure():
                peaks = [run([self.program, "analyze", "--threads", n, path])[2] / 1024 for n in ("1", "2", "4")]
                return row(f"{real:,}", *(f"{peak:.1f}" for peak in peaks))

            lines.append(self.known(f"memory {frames}", measure))
        return lines

    def split(self):
        """What each of 8 workers has to do, one after the other on this machine: ../analyzer/examples/split.rs."""
        path, _, frames = self.capture("roce-hosts")

        def measure():
            told = subprocess.run([*self.split_program, "8", path], capture_output=True, text=True, check=True).stdout
            one = re.search(r"one worker: .*?([\d.]+) ms; telling whose frame each is: ([\d.]+) ms", told)
            share = re.search(r"largest share: [\d.]+ \(1/([\d.]+)\); all together ([\d.]+) ms", told)
            return row(f"{frames:,}", one.group(1), share.group(2), f"1/{share.group(1)}", one.group(2))

        lines = head("frames between 64 pairs of hosts", "one worker, ms", "8 workers together", "the busiest one's share", "telling whose frame each is, ms")
        return [*lines, self.known("split", measure)]


def cells(lines):
    """The cells of a table's rows, without its head."""
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[2:]]


def span(values, figures=0):
    """The least and the greatest of these numbers."""
    least, most = (f"{end:.{figures}f}" for end in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def glance(tables, tshark):
    """The other tables in a few lines: the range over all captures."""
    lines = head("what", "one thread", "two threads")
    threads = cells(tables["threads"])
    if tshark:
        for form in FORMS:
            of = [line for line in threads if line[1] == form]
            lines.append(row(f"{form}, times as fast as tshark", *(span([float(line[at]) for line in of]) for at in (9, 10))))
    for form in FORMS:
        of = [line for line in threads if line[1] == form]
        lines.append(row(f"{form}, million frames/s", *(span([float(rate(line)) for line in of], 2) for rate in (lambda line: line[5], two_rate))))
    checked = [line for line in cells(tables["bytes"]) if line[2] != "none"]
    lines.extend(row(f"analysis of frames of {line[1]} bytes, every ICRC checked", f"{line[4]} GB/s, {line[5]} Gb/s", "") for line in checked)
    lines.append(row("`export parquet`, million frames/s", span([float(line[3]) for line in cells(tables["export"])], 2), ""))
    lines.extend(row(f"memory of an analysis of {line[0]} frames", f"{line[1]} MiB", f"{line[2]} MiB") for line in cells(tables["memory"]))
    return lines


def two_rate(line):
    """Million frames per second of a row of the threads' table, on two threads."""
    return float(line[5]) * float(line[2]) / float(line[6])


def count(path):
    """Frames of a pcap."""
    import struct
    with open(path, "rb") as file:
        data = file.read(24)
        frames = 0
        while True:
            header = file.read(16)
            if len(header) < 16:
                return frames
            file.seek(struct.unpack("<IIII", header)[2], 1)
            frames += 1


def about(version, frames, runs):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown processor")
    load = os.getloadavg()[0]
    dirty = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return [f"Measured on {datetime.date.today()} at commit {commit}{' with changes' if dirty else ''}: {os.cpu_count()} cores, {model};",
            f"load {load:.1f} before; {frames:,} frames, best of {runs}; {version}."]


def write(tables, source, into):
    """Replaces these tables in the text of `source`."""
    with open(source) as file:
        text = file.read()
    for name, lines in tables.items():
        pattern = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.S)
        if not pattern.search(text):
            sys.exit(f"{source} has no table {name}")
        text = pattern.sub(lambda found: found.group(1) + "\n".join(lines) + "\n" + found.group(2), text)
    with open(into, "w") as file:
        file.write(text)


def built():
    """rdmascope, built with --release."""
    subprocess.run(["cargo", "build", "--release", "--quiet", "--package", "rdmascope"], cwd=ROOT, check=True)
    return os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "rdmascope")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--keep")
    parser.add_argument("--into", default=README)
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("program", nargs="?")
    options = parser.parse_args()
    program = options.program or built()
    built = os.environ.get("RDMASCOPE_SPLIT")
    split = [built] if built else ["cargo", "run", "--release", "--quiet", "--manifest-path", os.path.join(ROOT, "Cargo.toml"),
                                   "--package", "rdmascope-analyzer", "--example", "split", "--"]
    newest = os.path.join(ROOT, "interop", "newest-tshark")
    tshark = os.environ.get("RDMASCOPE_TSHARK") or shutil.which("tshark") or (newest if os.path.exists(newest) else None)
    with tempfile.TemporaryDirectory() as folder:
        if options.keep:
            folder = options.keep
            os.makedirs(folder, exist_ok=True)
        # a tshark that gives root up has to read them as well
        os.chmod(folder, 0o755)
        version = subprocess.run([tshark, "--version"], capture_output=True, text=True).stdout if tshark else "no tshark"
        version = re.sub(r" \(Git.*", "", version.splitlines()[0]).rstrip(".")
        tables = {"about": about(version, options.frames, options.runs)}
        measure = Measure(program, tshark, version, split, folder, options.frames, options.runs)
        for name in ("bytes", "threads", "export", "memory", "split", *(["live"] if options.live else [])):
            tables[name] = getattr(measure, name)()
    summary = {"about": tables["about"], "glance": glance(tables, tshark)}
    if options.print:
        for lines in {**tables, **summary}.values():
            print("\n".join(lines) + "\n")
    else:
        write(tables, README, options.into)
        if options.into == README:
            write(summary, SPEED, SPEED)


if __name__ == "__main__":
    main()
