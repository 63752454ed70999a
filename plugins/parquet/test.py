#!/usr/bin/env python3
"""The queries of queries.sql answer what the report says: test.py RDMASCOPE

Exports every sample with the given binary, asks DuckDB, and compares with `analyze --format json`. Needs the
modules duckdb, polars and pytz. Exits with 1 and the first difference."""
import glob
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import duckdb

HERE = os.path.dirname(os.path.abspath(__file__))


def queries():
    parts = open(os.path.join(HERE, "queries.sql")).read().split("-- name: ")[1:]
    return {part.split("\n", 1)[0].strip(): part.split("\n", 1)[1] for part in parts}


def main():
    rdmascope = os.path.abspath(sys.argv[1])
    samples = sorted(glob.glob(os.path.join(HERE, "../../samples/*/*.pcap")))
    assert len(samples) > 30, samples
    compared = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        reports = {}
        for sample in samples:
            name = os.path.basename(sample)
            subprocess.run([rdmascope, "export", "parquet", sample, "tables"], check=True, stdout=subprocess.DEVNULL)
            reports[name] = json.loads(subprocess.run([rdmascope, "analyze", "--format", "json", sample], check=True, capture_output=True).stdout)
        again = subprocess.run([rdmascope, "export", "parquet", samples[0], "tables"], capture_output=True, text=True)
        assert again.returncode == 2 and "not overwritten" in again.stderr, again
        db, ask = duckdb.connect(), queries()
        db.execute(ask.pop("views"))
        rows = {name: db.execute(query).fetchall() for name, query in ask.items()}

        def same(what, ours, theirs):
            nonlocal compared
            compared += len(theirs)
            if ours != theirs:
                sys.exit(f"{what} differ:\n  tables {sorted(set(ours) - set(theirs))[:5]}\n  report {sorted(set(theirs) - set(ours))[:5]}")

        captures = [(n, r["inputs"][0]["frames"], r["inputs"][0]["bytes"]) for n, r in reports.items()]
        same("captures", sorted(row[:3] for row in rows["captures"]), sorted(captures))
        protocols = [(n, p, c) for n, r in reports.items() for p, c in r["capture"]["dissected"].items()]
        same("protocols", sorted(rows["protocols"]), sorted(protocols))
        seconds = lambda text: None if text is None else round(float(text) * 1e9)
        commands = [
            (n, c["id"], e["command"], e["count"], e["errors"], e["bytes"], seconds(e["latency"]["min"]), seconds(e["latency"]["max"]))
            for n, r in reports.items() for c in r["connections"] for e in c["exchanges"]
        ]
        # where nothing was answered, the report has a latency of 0 or none
        plain = lambda row: row[:6] + tuple(x or 0 for x in row[6:])
        same("commands", sorted(map(plain, rows["commands"])), sorted(map(plain, commands)))
        findings = [(n, f["severity"], f["id"], f["connection"], f["frame"], f["by"] or "unknown", f["count"], f["text"]) for n, r in reports.items() for f in r["findings"]]
        key = lambda row: tuple(map(str, row))
        same("findings", sorted(rows["worst"], key=key), sorted(findings, key=key))
        rdma = [
            (n, c["id"], c["rdma"]["reads"], c["rdma"]["read_bytes"], c["rdma"]["writes"], c["rdma"]["write_bytes"])
            for n, r in reports.items() for c in r["connections"] if any(c["rdma"][k] for k in ("reads", "writes", "read_bytes", "write_bytes"))
        ]
        same("RDMA", sorted(row for row in rows["rdma"] if any(row[2:])), sorted(rdma))
        credits = [
            (n, c["id"], c["credits"]["client"]["held_last"], c["credits"]["server"]["held_last"])
            for n, r in reports.items() for c in r["connections"] if c["protocol"] == "smb_direct"
        ]
        same("credits", sorted([(r[0], r[1], r[4], r[5]) for r in rows["least_credits"]], key=key), sorted(credits, key=key))
        assert len(rows["slowest"]) == 20 and rows["throughput"] and rows["files"]
        sys.path.insert(0, HERE)
        from frames import with_polars

        latencies = dict(zip(*with_polars("tables")[["command", "count"]].to_dict(as_series=False).values()))
        counted = db.execute("SELECT command, count(latency) FROM exchanges GROUP BY command HAVING count(latency) > 0").fetchall()
        same("Polars and DuckDB", sorted(latencies.items()), sorted(counted))
        if importlib.util.find_spec("pyspark"):
            from frames import with_spark

            same("Spark and DuckDB", sorted((row["command"], row["count"]) for row in with_spark("tables")), sorted(counted))
    print(f"{len(samples)} captures, {compared} rows equal")


if __name__ == "__main__":
    main()
