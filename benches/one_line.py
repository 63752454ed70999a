#!/usr/bin/env python3
"""What a change of one line costs: for each crate of ours, rebuilding its unit tests and running them, in seconds on the clock and of the CPU.

    benches/one_line.py             all crates, as rows for CONTRIBUTING.md
    benches/one_line.py analyzer    the crates in these folders
    benches/one_line.py --fast      `.ci/run --fast` as it is (nothing to build), and after a change of one line in each crate

The line is a comment at the end of a crate's root; it is taken out again, whatever happens. Everything is built once before, which is not
counted. Run it on a machine with nothing else to do: CPU seconds are nearly the same on a busy one, those on the clock are not.
"""
import os, resource, subprocess, sys, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
# folder, package, and the targets that have its unit tests
CRATES = [
    ("dissector", "rdmascope-dissector", ["--lib"]),
    ("analyzer", "rdmascope-analyzer", ["--lib"]),
    ("capture/verbs", "rdmascope-verbs", ["--lib"]),
    ("capture", "rdmascope-capture", ["--lib"]),
    ("replay", "rdmascope-replay", ["--lib"]),
    ("plugins/engine", "rdmascope-engine", ["--lib"]),
    ("plugins", "rdmascope-plugins", ["--lib"]),
    ("share", "rdmascope-share", ["--lib"]),
    ("compare", "rdmascope-compare", ["--lib"]),
    ("sim", "rdmascope-sim", ["--lib"]),
    ("tui/report", "rdmascope-report", ["--lib"]),
    ("tui/screens", "rdmascope-screens", ["--lib"]),
    ("tui", "rdmascope", ["--bin", "rdmascope"]),
]
LINE = "\n// one line more, for a measurement\n"


def timed(*command):
    """Seconds on the clock and of the CPU."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def root_of(folder):
    sources = ROOT / folder / "src"
    return next(file for file in (sources / "lib.rs", sources / "main.rs") if file.is_file())


def changed(folder, run):
    """What `run` returns while the crate has one line more."""
    file = root_of(folder)
    text = file.read_text()
    try:
        file.write_text(text + LINE)
        return run()
    finally:
        file.write_text(text)


def fast():
    command = [str(ROOT / ".ci/run"), "--fast"]
    timed(*command)
    print("| changed | seconds | CPU seconds |\n| --- | --- | --- |")
    print("| nothing | {:.1f} | {:.1f} |".format(*timed(*command)), flush=True)
    for folder, _, _ in CRATES:
        print("| `{}` | {:.1f} | {:.1f} |".format(folder, *changed(folder, lambda: timed(*command))), flush=True)
        timed(*command)


def main():
    if sys.argv[1:] == ["--fast"]:
        return fast()
    wanted = sys.argv[1:] or [folder for folder, _, _ in CRATES]
    unknown = set(wanted) - {folder for folder, _, _ in CRATES}
    if unknown:
        sys.exit(f"no crate in {', '.join(sorted(unknown))}")
    print("| a line in | build, seconds | CPU seconds | unit tests, seconds | CPU seconds |\n| --- | --- | --- | --- | --- |")
    for folder, package, targets in CRATES:
        if folder not in wanted:
            continue
        test = [CARGO, "test", "--quiet", "--package", package, *targets]
        timed(*test, "--no-run")
        build = changed(folder, lambda: timed(*test, "--no-run"))
        timed(*test, "--no-run")
        run = timed(*test)
        print("| `{}` | {:.1f} | {:.1f} | {:.1f} | {:.1f} |".format(folder, *build, *run), flush=True)


main()
