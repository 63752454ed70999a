#!/usr/bin/env python3
"""What the Lua plugin costs: tshark with it and without, on the same captures. wireshark_plugin.py [FRAMES] [RUNS]

Needs python3 and tshark (RDMASCOPE_TSHARK names another one); builds rdmascope with --release first. Prints CPU seconds (the least of
RUNS), peak memory, and what the plugin adds to a frame. Without the plugin, iWARP is measured with Artemis disabled, so that it is decoded."""
import os
import shutil
import subprocess
import sys
import tempfile

from tables import HERE, ROOT, least


def main():
    frames = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    ours = os.path.join(target, "release", "rdmascope")
    if not os.environ.get("RDMASCOPE_NO_BUILD"):
        subprocess.run(["cargo", "build", "--release", "--quiet", "--package", "rdmascope"], cwd=ROOT, check=True)
    ours = os.environ.get("RDMASCOPE", ours)
    tshark = os.environ.get("RDMASCOPE_TSHARK", "tshark")
    print(subprocess.run([tshark, "--version"], capture_output=True, text=True).stdout.splitlines()[0])
    print(f"{'':14}{'':10}{'without':>10}{'with':>9}{'times':>7}{'µs/frame':>10}{'MiB more':>10}   (CPU seconds, {frames} frames)")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        plugin = os.path.join(folder, "rdmascope.lua")
        subprocess.run([ours, "export", "wireshark", "-o", plugin], check=True, stdout=subprocess.DEVNULL)
        # beside the program, or where cargo puts what programs depend on; copied to where everybody may read it
        beside = os.path.dirname(os.path.realpath(ours))
        engines = [os.path.join(beside, *part, "librdmascope_engine.so") for part in ((), ("deps",))]
        shutil.copy(max((e for e in engines if os.path.exists(e)), key=os.path.getmtime), folder)
        for kind in ("roce-mixed", "roce-one", "iwarp-mixed"):
            path = os.path.join(folder, kind + ".pcap")
            subprocess.run([sys.executable, os.path.join(HERE, "make_capture.py"), kind, str(frames), path], check=True)
            os.chmod(path, 0o644)
            # on port 5445 Artemis keeps Wireshark from decoding anything
            alike = ["--disable-protocol", "artemis"] if kind.startswith("iwarp") else []
            ways = (("count", ["-q", "-z", "io,stat,0"]), ("lines", []), ("one field", ["-T", "fields", "-e", "smb2.cmd"]))
            for name, rest in ways:
                without, _, small = least([tshark, *alike, "-r", path, *rest], runs)
                cost, _, large = least([tshark, "-X", "lua_script:" + plugin, "-r", path, *rest], runs)
                more = (cost - without) / frames * 1e6
                print(f"{kind:14}{name:10}{without:10.2f}{cost:9.2f}{cost / without:7.2f}{more:10.1f}{(large - small) / 1024:10.0f}", flush=True)


if __name__ == "__main__":
    main()
