"""Holds every JSON that leaves the program to its JSON Schema, on every sample: python schema.py PATH/rdmascope [--every]. Needs jsonschema-rs (PyPI).

Each sample is dissected in one form of each kind, by turns; with --every in all of them."""
import glob
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import jsonschema_rs

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.abspath(sys.argv[1])
# forms of `dissect -T json` and the schema of each
FORMS = {
    "dissect": [[], ["-x"], ["--no-duplicate-keys"], ["--json-names", "short"], ["--json-names", "short", "--no-duplicate-keys", "-x"],
                ["-e", "frame.number", "-e", "smb2.cmd", "-e", "infiniband.bth.opcode"], ["-2"], ["-j", "smb2 rpc"], ["--filter", "smb2 || rpc"]],
    "dissect-raw": [[], ["--no-duplicate-keys"], ["--json-names", "short"]],
    "dissect-ek": [[], ["--json-names", "short"], ["-e", "frame.number", "-e", "smb2.cmd"]],
}
CAPTURE = (".pcap", ".pcapng", ".cap", ".erf", ".snoop", ".gz", ".zst", ".lz4")


def run(*arguments, status=(0,)):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True)
    assert done.returncode in status, (arguments, done.returncode, done.stderr)
    return done.stdout


def ask(*arguments, status=(0,)):
    return json.loads(run(*arguments, status=status))


def strict(schema, path):
    """Every object says what it has, and allows nothing else."""
    if "object" in schema.get("type", ()) and "properties" in schema:
        # a layer has fields of any name
        assert schema["additionalProperties"] is False or "patternProperties" in schema, path
        assert schema.get("required") or "_ws.malformed" in schema["properties"], path
        assert all(v.get("description") for v in schema["properties"].values()), path
    for key, value in schema.get("properties", {}).items():
        strict(value, f"{path}.{key}")
    for value in [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", []), *schema.get("prefixItems", []), *schema.get("$defs", {}).values()]:
        if isinstance(value, dict):
            strict(value, path + "[]")


def merged(pairs):
    """An object whose keys may repeat: such a key has a list of its values, as with --no-duplicate-keys."""
    found = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: values[0] if len(values) == 1 else values for key, values in found.items()}


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
    schemas = dict.fromkeys(line.split()[0] for line in run("schema").decode().splitlines())
    validators = {}
    for name in schemas:
        schema = ask("schema", name)
        jsonschema_rs.meta.validate(schema)
        strict(schema, name)
        schemas[name] = schema
        validators[name] = jsonschema_rs.Draft202012Validator(schema)
        kind, of, version = schema["$id"].rsplit(":", 2)
        assert (kind, of) == ("urn:rdmascope", name) and int(version) >= 1, schema["$id"]
    held = dict.fromkeys(schemas, 0)

    def hold(name, value, where):
        for error in validators[name].iter_errors(value):
            sys.exit(f"{name}: {where}: {list(error.instance_path)}: {error.message}"[:2000])
        held[name] += 1

    folders = os.path.join(HERE, "../../samples")
    samples = sorted(os.path.join(folder, file) for folder, _, files in os.walk(folders) for file in files if file.endswith(CAPTURE))
    assert len(samples) > 10, samples
    keyed = 0

    with tempfile.TemporaryDirectory() as folder:
        sent = os.path.join(folder, "sent.pcapng")
        expected = os.path.join(folder, "expect.toml")
        with open(expected, "w") as file:
            file.write('findings.error = "0"\nREAD.p99 = "< 1 ns"\n')
        for n, (sample, other) in enumerate(zip(samples, samples[1:] + samples[:1])):
            where = os.path.relpath(sample, folders)
            file = os.path.join(os.path.dirname(sample), "keys.txt")
            keys = ["--keys", file] if os.path.isfile(file) else []
            keyed += bool(keys)
            for with_keys in [[], keys] if keys else [[]]:
                hold("analyze", ask("analyze", "--format", "json", "--exchanges", "--credits", *with_keys, sample), where)
            hold("dissect-summary", ask("dissect", "-s", "-T", "json", *keys, sample), where)
            for name, forms in FORMS.items():
                for form in forms if "--every" in sys.argv else [forms[n % len(forms)]]:
                    of = {"dissect": "json", "dissect-raw": "jsonraw", "dissect-ek": "ek"}[name]
                    out = run("dissect", "-T", of, *form, *keys, sample)
                    if of == "ek":
                        for line in out.splitlines():
                            hold(name, json.loads(line), f"{where} {form}")
                    else:
                        hold(name, json.loads(out, object_pairs_hook=merged), f"{where} {form}")
            hold("anonymize", ask("anonymize", "--format", "json", "--force", sample, sent), where)
            hold("diff", ask("diff", "--format", "json", sample, other, status=(0, 1)), where)
            # where two captures have no packet in common, compare says so, and nothing else
            for there in (sent, other):
                done = subprocess.run([PROGRAM, "compare", "--format", "json", sample, there], capture_output=True)
                assert done.returncode in (0, 1, 2), (where, done.stderr)
                if done.stdout:
                    hold("compare", json.loads(done.stdout), where)
            hold("expect-sarif", ask("analyze", "--expect", expected, "--verdicts", "sarif", sample, status=(0, 1)), where)
    assert keyed, "no sample has keys"
    point = os.path.join(folders, "smb-roce/smb-roce.pcap")
    hold("compare", ask("compare", "--format", "json", point, point, point), "three points")
    live(hold)
    for name in ("analyze", "dissect-summary", "probe", "replay"):
        assert schemas[name]["additionalProperties"] is False, name
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
