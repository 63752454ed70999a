#!/usr/bin/env python3
"""Live capture beside dumpcap, tcpdump and tshark, in a network namespace with a virtual cable: live.py [--seconds N] [--rates A,B] [--soak MINUTES]

Needs root, iproute2 (ip, unshare), tshark, dumpcap, tcpdump; builds rdmascope and the sender with --release first (not with --no-build, or where
RDMASCOPE and RDMASCOPE_SEND name them). A sender plays SMB Direct
over RoCEv2 (what make_capture.py makes of --kind, again between other hosts after 50,000 frames: no frame comes twice) at a set rate into one end
of the cable, with two threads where one is too slow; each program in turn captures at the other end. Printed: frames sent, seen, dropped as
the program itself says, how far sent and seen + dropped are apart (one row is of a program stopped for a second, so that frames are lost), CPU (user and system, in percent of one core) and peak memory.
--ours leaves the other programs out. Where the sender comes to less than it is asked for, the machine can do no more: sender and capture share it.
All programs get a filter for UDP 4791 and a buffer of 64 MiB. With --soak, connections come and go for so long, and memory is printed every 30 s."""
import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# a program that is stopped so long loses frames, and has to say how many
STOPPED = ", stopped for a second"
# frames a second that one thread of the sender is trusted with
ONE_THREAD = 500_000
# frames that a thread of the sender has in memory: more would be read from memory that is far, and slow it down
FRAMES_MAX = 50_000
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
OURS = os.environ.get("RDMASCOPE") or os.path.join(TARGET, "release", "rdmascope")
SEND = os.environ.get("RDMASCOPE_SEND") or os.path.join(TARGET, "release", "examples", "send")


def ip(arguments):
    subprocess.run(["ip"] + arguments.split(), check=True)


def usage(pid):
    """CPU seconds and resident KiB of a process and of its children."""
    cpu = memory = 0
    pids = [pid]
    try:
        pids += map(int, open(f"/proc/{pid}/task/{pid}/children").read().split())
    except OSError:
        pass
    for one in pids:
        try:
            words = open(f"/proc/{one}/stat").read().rsplit(")", 1)[1].split()
            cpu += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
            memory += int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{one}/status").read()).group(1))
        except (OSError, AttributeError):
            pass
    return cpu, memory


def number(text):
    return int(text.replace(",", ""))


def programs(folder, seconds):
    """Name, command, and what reads (seen, dropped) from what it wrote on stderr and stdout."""
    out = os.path.join(folder, "out.pcapng")

    def ours(text):
        m = re.search(r"vb: ([\d,]+) frames? captured.*dropped ([\d,]+) by the kernel \(ring full\), ([\d,]+) by the interface", text)
        return number(m.group(1)), number(m.group(2)) + number(m.group(3))

    def dumpcap(text):
        m = re.search(r"Packets received/dropped on interface '\S+': (\d+)/(\d+)", text)
        return int(m.group(1)), int(m.group(2))

    def tcpdump(text):
        return int(re.search(r"(\d+) packets captured", text).group(1)), int(re.search(r"(\d+) packets dropped by kernel", text).group(1))

    def tshark(text):
        seen = re.search(r"^(\d+) packets? captured", text, re.M)
        dropped = re.search(r"(\d+) packets? dropped", text)
        return int(seen.group(1)) if seen else 0, int(dropped.group(1)) if dropped else 0

    udp = "udp port 4791"
    return [
        ("rdmascope capture, analysis on, nothing written", [OURS, "capture", "-i", "vb", "--metrics", "0"], ours),
        ("rdmascope capture -w, analysis on", [OURS, "capture", "-i", "vb", "--metrics", "0", "--force", "-w", out], ours),
        ("rdmascope capture -w", [OURS, "capture", "-i", "vb", "--force", "-w", out], ours),
        (f"rdmascope capture -w, analysis on{STOPPED}", [OURS, "capture", "-i", "vb", "--metrics", "0", "--force", "-w", out], ours),
        ("dumpcap -w", ["dumpcap", "-q", "-i", "vb", "-f", udp, "-B", "64", "-w", out], dumpcap),
        ("tcpdump -w", ["tcpdump", "-q", "-i", "vb", "-B", "65536", "-w", out, udp], tcpdump),
        ("tshark -i -q -z io,stat,0 (dissects)", ["tshark", "-i", "vb", "-f", udp, "-B", "64", "-q", "-z", "io,stat,0", "-a", f"duration:{seconds + 5:.0f}"], tshark),
    ]


def measure(name, command, read, sample, rate, seconds, folder):
    log = open(os.path.join(folder, "log"), "w+")
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    time.sleep(2.5)
    cpu_before, _ = usage(child.pid)
    sender = subprocess.Popen([SEND, "va", sample, str(rate), str(seconds), "1"], stdout=subprocess.PIPE, text=True)
    if name.endswith(STOPPED):
        time.sleep(1.5 + seconds / 4)
        child.send_signal(signal.SIGSTOP)
        time.sleep(1)
        child.send_signal(signal.SIGCONT)
    sent, _ = sender.communicate()
    time.sleep(1.5)
    cpu, memory = usage(child.pid)
    # tshark ends by itself: told to, it may go on for minutes
    if command[0] != "tshark":
        child.send_signal(signal.SIGINT)
    try:
        child.wait(timeout=120)
    except subprocess.TimeoutExpired:
        child.kill()
        raise
    log.seek(0)
    text = log.read()
    count, took = re.search(r"sent (\d+) frames in ([\d.]+) s", sent).groups()
    seen, dropped = read(text)
    count = int(count)
    apart = (count - seen - dropped) / count * 100
    print(
        f"| {rate // 1000} k | {name} | {count:,} ({count / float(took) / 1000:.0f} k/s) | {seen:,} | {dropped:,} ({dropped / count:.2%}) | {apart:+.3f} % |"
        f" {(cpu - cpu_before) / float(took) * 100:.0f} % | {memory / 1024:.0f} MB |",
        flush=True,
    )


def compare(sample, rate, seconds, ours):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        for name, command, read in programs(folder, seconds):
            if ours and command[0] != OURS:
                continue
            if shutil.which(command[0]) is None:
                print(f"| {rate // 1000} k | {name} | not installed | | | | | |")
                continue
            try:
                measure(name, command, read, sample, rate, seconds, folder)
            except (AttributeError, subprocess.SubprocessError) as e:
                print(f"| {rate // 1000} k | {name} | failed: {e} | | | | | |", flush=True)


def soak(sample, minutes, rate):
    """Connections come and go: the sender changes all addresses after each round through the sample."""
    command = [OURS, "capture", "-i", "vb", "--metrics", "9418", "--no-crc"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(2)
    sender = subprocess.Popen([SEND, "va", sample, str(rate), str(minutes * 60), "1"])
    begun = time.monotonic()
    print("| minute | resident | connections so far | frames | dropped |\n| --- | --- | --- | --- | --- |", flush=True)
    while sender.poll() is None:
        time.sleep(30)
        import urllib.request

        page = urllib.request.urlopen("http://127.0.0.1:9418/metrics", timeout=10).read().decode()
        total = lambda name: sum(float(v) for v in re.findall(rf"^{name}(?:{{[^}}]*}})? ([\d.]+)$", page, re.M))
        resident = int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{child.pid}/status").read()).group(1))
        print(
            f"| {(time.monotonic() - begun) / 60:.1f} | {resident / 1024:.1f} MB | {total('rdmascope_connections_total'):,.0f} |"
            f" {total('rdmascope_frames_total'):,.0f} | {total('rdmascope_capture_dropped_frames_total'):,.0f} |",
            flush=True,
        )
    child.send_signal(signal.SIGINT)
    child.wait(timeout=60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rates", default="100000,200000,500000,1000000")
    parser.add_argument("--kind", default="roce-mixed")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    parser.add_argument("--rate", type=int, default=20_000, help="of the soak")
    parser.add_argument("--sample", default="smb-roce-loss", help="of the soak")
    parser.add_argument("--no-build", action="store_true")
    arguments = parser.parse_args()
    if "RDMASCOPE_BENCH_INSIDE" not in os.environ:
        packages = {"RDMASCOPE": ["--package", "rdmascope"], "RDMASCOPE_SEND": ["--package", "rdmascope-capture", "--example", "send"]}
        for named, package in packages.items():
            if not arguments.no_build and named not in os.environ:
                subprocess.run(["cargo", "build", "--release", "--quiet"] + package, cwd=ROOT, check=True)
        os.environ["RDMASCOPE_BENCH_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, os.path.abspath(__file__)] + sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ip("link set lo up")
    open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w").write("1")
    ip("link add va mtu 9000 type veth peer name vb mtu 9000")
    ip("link set va up")
    ip("link set vb up")
    if arguments.soak:
        soak(os.path.join(ROOT, "samples", arguments.sample, arguments.sample + ".pcap"), arguments.soak, arguments.rate)
        return
    print("| rate | program | sent | seen | dropped | neither seen nor told | CPU | memory |\n| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for rate in [int(r) for r in arguments.rates.split(",")]:
        with tempfile.TemporaryDirectory() as folder:
            threads = 1 if rate <= ONE_THREAD else 2
            files = [os.path.join(folder, f"{n}.pcap") for n in range(threads)]
            for n, path in enumerate(files):
                frames = int(rate * arguments.seconds / threads)
                frames = min(frames, FRAMES_MAX)
                subprocess.run([sys.executable, os.path.join(HERE, "make_capture.py"), arguments.kind, str(frames), path, str(n * 16)], check=True)
            compare(",".join(files), rate, arguments.seconds, arguments.ours)


main()
