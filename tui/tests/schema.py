"""Holds every JSON that leaves the program to its JSON Schema, on every sample: python schema.py PATH/rdmascope. Needs jsonschema (PyPI)."""
import glob
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import jsonschema

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.abspath(sys.argv[1])
# frames of a sample that dissect writes: a validator in Python takes its time
FRAMES = "40"


def run(*arguments, status=(0,)):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True)
    assert done.returncode in status, (arguments, done.returncode, done.stderr)
    return done.stdout


def ask(*arguments, status=(0,)):
    return json.loads(run(*arguments, status=status))


# Written by hand: not every key of these has its sentence yet.
TERSE = {"anonymize", "compare", "diff"}


def strict(schema, path):
    """Every object says what it has, and allows nothing else."""
    if schema.get("type") == "object" and "properties" in schema:
        assert schema["additionalProperties"] is False, path
        assert path.split(".")[0].rstrip("[]") in TERSE or schema["required"] and all(v.get("description") for v in schema["properties"].values()), path
    for key, value in schema.get("properties", {}).items():
        strict(value, f"{path}.{key}")
    for value in [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", []), *schema.get("prefixItems", []), *schema.get("$defs", {}).values()]:
        if isinstance(value, dict):
            strict(value, path + "[]")


def live(hold):
    """What replay and probe write, with a server of ours."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    peer = subprocess.Popen([PROGRAM, "peer", "--listen", address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                socket.create_connection((address.split(":")[0], int(address.split(":")[1]))).close()
                break
            except OSError:
                time.sleep(0.1)
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "replay.json")
            sample = os.path.join(HERE, "../../samples/smb-iwarp/smb-iwarp.pcap")
            run("replay", sample, "--to", address, "--prepare", "--report", out, status=(0, 1))
            report = json.load(open(out))
            assert report["operations"] and any(o["live"] for o in report["operations"]), "the replay did nothing"
            hold("replay", report, "replay")
        report = ask("probe", address, "--case", "Negotiate_Basic", "--format", "json", status=(0, 1))
        assert report["cases"], report
        hold("probe", report, "probe")
    finally:
        peer.kill()
        peer.wait()


def main():
    names = [line.split()[0] for line in run("schema").decode().splitlines()]
    validators = {}
    for name in names:
        schema = ask("schema", name)
        jsonschema.Draft202012Validator.check_schema(schema)
        strict(schema, name)
        validators[name] = jsonschema.Draft202012Validator(schema)
    held = dict.fromkeys(names, 0)

    def hold(name, value, where):
        for error in validators[name].iter_errors(value):
            sys.exit(f"{name}: {where}: {error.json_path}: {error.message}"[:2000])
        held[name] += 1

    samples = sorted(glob.glob(os.path.join(HERE, "../../samples/*/*.pcap")))
    assert len(samples) > 10, samples
    for sample in samples:
        hold("analyze", ask("analyze", "--format", "json", "--exchanges", "--credits", sample), sample)
        hold("dissect", ask("dissect", "-T", "json", "-c", FRAMES, sample), sample)
        for line in run("dissect", "-T", "ek", "-c", FRAMES, sample).splitlines():
            hold("dissect-ek", json.loads(line), sample)
        hold("dissect-summary", ask("dissect", "-s", "-T", "json", sample), sample)
    with tempfile.TemporaryDirectory() as folder:
        hold("anonymize", ask("anonymize", "--format", "json", samples[0], os.path.join(folder, "sent.pcap")), "anonymize")
    here, there = (os.path.join(HERE, f"../../samples/{name}/{name}.pcap") for name in ("smb-roce", "smb-roce-loss"))
    hold("compare", ask("compare", "--format", "json", here, there), "compare")
    hold("diff", ask("diff", "--format", "json", here, there), "diff")
    live(hold)
    for name in ("analyze", "dissect-summary", "probe", "replay"):
        assert validators[name].schema["additionalProperties"] is False, name
    broken = ask("analyze", "--format", "json", samples[0])
    broken["more"] = 1
    assert not validators["analyze"].is_valid(broken), "it allows anything"
    # what a command of a later day writes is held to its schema here, too: say which
    print("held to their schemas: " + ", ".join(f"{count} of {name}" for name, count in held.items()))
    elsewhere = [name for name, count in held.items() if count == 0]
    if elsewhere:
        sys.exit("no output was held to these schemas: " + ", ".join(elsewhere))


if __name__ == "__main__":
    main()
