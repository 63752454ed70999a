#!/usr/bin/env python3
"""What the Lua plugin costs: tshark with it and without, on the same captures. wireshark_plugin.py [FRAMES] [RUNS] [KIND…]

Needs python3 and tshark (RDMASCOPE_TSHARK names another one); builds rdmascope with --release first, unless RDMASCOPE names a program that has its
engine beside it. Prints CPU seconds (the least of RUNS) and what is added to a frame: by a plugin that does nothing, which is what Wireshark
itself takes to call one, and by ours, its start counted in and without it. Then peak memory that ours adds to tshark's, and what the engine alone
takes for the same frames: more than that and MORE is a failure. Without the plugin, iWARP is measured with Artemis disabled, so that it is decoded.
A field of ours is compared with one of Wireshark's in as many frames or more; without the plugin, there are none of ours."""
import os
import shutil
import subprocess
import sys
import tempfile

from tables import HERE, ROOT, least

# What the plugin's Lua may take beside the engine, in MiB, however many frames there are.
MORE = 12
SEVERAL = ["connection", "exchange", "exchange.time", "credits.client", "finding.id"]


def fields(*names):
    return ["-T", "fields", *(part for name in names for part in ("-e", name))]


# Arguments with the plugin, and those without it.
WAYS = {
    "count": [["-q", "-z", "io,stat,0"]] * 2,
    "one field": [fields("smb2.cmd")] * 2,
    "our field": [fields("rdmascope.exchange"), fields("ip.id")],
    "5 of ours": [fields(*("rdmascope." + name for name in SEVERAL)), fields("ip.ttl", "ip.id", "smb2.cmd", "smb2.msg_id", "smb2.nt_status")],
    "our filter": [["-Y", "rdmascope.stall > 5"], ["-Y", "smb2.time > 5"]],
}
EMPTY = 'local p = Proto("empty", "empty")\nfunction p.dissector() end\nregister_postdissector(p)\n'
# What the engine alone takes: each frame is handed to it, as in its example in Python.
ALONE = """
import resource, struct, sys
sys.path.insert(0, sys.argv[1])
from facts import Engine
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
engine, number = Engine(sys.argv[2]), 0
with open(sys.argv[3], "rb") as file:
    file.read(24)
    while record := file.read(16):
        seconds, microseconds, captured, length = struct.unpack("<IIII", record)
        number += 1
        engine.frame(number, (seconds * 1000000 + microseconds) * 1000, -1, length, file.read(captured))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


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
    too_much = []
    kinds = sys.argv[3:] or ["roce-mixed", "roce-one", "iwarp-mixed"]
    print(f"{'':14}{'':10}{'without':>9}{'with':>7}{'times':>7}{'empty':>8}{'ours':>7}{'no start':>10}{'MiB more':>10}{'engine':>8}   (CPU seconds, µs a frame, {frames} frames)")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        plugin, empty, one = (os.path.join(folder, name) for name in ("rdmascope.lua", "empty.lua", "one.pcap"))
        subprocess.run([ours, "export", "wireshark", "-o", plugin], check=True, stdout=subprocess.DEVNULL)
        with open(empty, "w") as file:
            file.write(EMPTY)
        # beside the program, or where cargo puts what programs depend on; copied to where everybody may read it
        beside = os.path.dirname(os.path.realpath(ours))
        engines = [os.path.join(beside, *part, "librdmascope_engine.so") for part in ((), ("deps",))]
        engine = shutil.copy(max((e for e in engines if os.path.exists(e)), key=os.path.getmtime), folder)
        subprocess.run([sys.executable, os.path.join(HERE, "make_capture.py"), kinds[0], "1", one], check=True)
        for kind in kinds:
            path = os.path.join(folder, kind + ".pcap")
            subprocess.run([sys.executable, os.path.join(HERE, "make_capture.py"), kind, str(frames), path], check=True)
            os.chmod(path, 0o644)
            os.chmod(one, 0o644)
            command = [sys.executable, "-c", ALONE, os.path.join(ROOT, "plugins", "engine", "examples"), engine, path]
            alone = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            # on port 5445 Artemis keeps Wireshark from decoding anything
            alike = ["--disable-protocol", "artemis"] if kind.startswith("iwarp") else []
            for name, (with_ours, stock) in WAYS.items():
                cost, memory = {}, {}
                for script in (None, empty, plugin):
                    loads = ["-X", "lua_script:" + script] if script else []
                    for file in (path, one):
                        rest = with_ours if script == plugin else stock
                        cost[script, file], _, memory[script, file] = least([tshark, *alike, *loads, "-r", file, *rest], runs)
                without, whole = cost[None, path], cost[plugin, path]
                start = cost[plugin, one] - cost[None, one]
                nothing, more, warm = (n / frames * 1e6 for n in (cost[empty, path] - without, whole - without, whole - without - start))
                grown = (memory[plugin, path] - memory[None, path]) / 1024
                print(f"{kind:14}{name:10}{without:9.2f}{whole:7.2f}{whole / without:7.2f}{nothing:8.1f}{more:7.1f}{warm:10.1f}{grown:10.0f}{alone / 1024:8.0f}", flush=True)
                if grown > alone / 1024 + MORE:
                    too_much.append(f"{kind}, {name}: {grown:.0f} MiB more, and the engine takes {alone / 1024:.0f}")
    sys.exit("\n".join(too_much) or None)


if __name__ == "__main__":
    main()
