#!/usr/bin/env python3
"""fleet.py on a cluster of two workers of this machine: test.py RDMASCOPE [CAPTURES]

Exports the samples, copied until there are CAPTURES of them (120 unless said) in folders of several hosts, with a damaged file and one that is no capture
among them; kills a worker in the middle; repeats the run; and compares sums with those of one machine without Spark and with DuckDB's answers.
Needs pyspark, pyarrow and duckdb (PyPI), and Java 17 or newer. Exits with 1 and the first difference."""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import duckdb

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import fleet  # noqa: E402

SUMS = {
    "frames": "SELECT count(*), sum(wire_length), sum(captured_length), count(DISTINCT capture) FROM frames",
    "messages": "SELECT count(*), sum(bytes), sum(packets), count(DISTINCT capture) FROM messages",
    "exchanges": "SELECT count(*), sum(latency), sum(bytes_moved), sum(retransmissions) FROM exchanges",
    "findings": "SELECT count(*), sum(count), count(DISTINCT finding), count(DISTINCT capture) FROM findings",
    "credits": "SELECT count(*), sum(end_a), sum(end_b), count(DISTINCT capture) FROM credits",
    "connections": "SELECT count(*), sum(report), sum(last_frame), count(DISTINCT capture) FROM connections",
    "sessions": "SELECT count(*), count(DISTINCT session), sum(connection), count(DISTINCT capture) FROM sessions",
}


def executors():
    """Processes of executors that are children of ours."""
    found = []
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            words = open(folder + "/cmdline", "rb").read().split(b"\0")
            parent = open(folder + "/stat").read().rsplit(")", 1)[1].split()[1]
        except OSError:
            continue
        if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words:
            found.append((int(folder.rsplit("/", 1)[1]), int(parent)))
    return found


def ours(pid):
    """Whether a process descends from this one."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return False


def duck(tables):
    db = duckdb.connect()
    for table in fleet.TABLES:
        db.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{tables}/{table}/**/*.parquet', hive_partitioning = true)")
    return db


def main():
    rdmascope = os.path.abspath(sys.argv[1])
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 120
    samples = sorted(glob.glob(os.path.join(HERE, "../../samples/*/*.pcap")))
    assert len(samples) > 30, samples
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for n in range(wanted):
            sample = samples[n % len(samples)]
            place = f"captures/host{n // len(samples) % 4}/{n:05}-{os.path.basename(sample)}"
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copy(sample, place)
        whole = open(samples[0], "rb").read()
        open("captures/host1/damaged.pcap", "wb").write(whole[: len(whole) // 2 + 7])
        open("captures/host1/no-capture.pcap", "wb").write(b"this is no capture\n" * 40)
        captures = fleet.listed(["captures"])
        assert len(captures) == wanted + 2
        # one machine, without Spark
        began = time.monotonic()
        alone = {"frames": 0, "exchanges": 0, "findings": 0}
        for capture in captures:
            done = subprocess.run([rdmascope, "export", "parquet", capture, "alone/" + fleet.identity(capture)], capture_output=True, text=True)
            assert (done.returncode == 0) == ("damaged" not in capture and "no-capture" not in capture), (capture, done)
        alone_seconds = time.monotonic() - began
        db = duckdb.connect()
        one = {t: db.execute(SUMS[t].replace(f"FROM {t}", f"FROM read_parquet('alone/*/{t}/*/*.parquet', hive_partitioning = true)")).fetchone() for t in SUMS}

        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        cluster = os.environ.get("RDMASCOPE_SPARK_MASTER", "local-cluster[2,1,1024]")
        builder = SparkSession.builder.master(cluster).config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        builder = builder.config(fleet.NANOS, "true").config("spark.executor.memory", "1g").config("spark.driver.memory", "1g").config("spark.python.worker.reuse", "true")
        spark = builder.config("spark.executorEnv.PYTHONPATH", HERE).appName("test").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        spark.sparkContext.addPyFile(os.path.join(HERE, "fleet.py"))

        def run(tables, *more):
            words = ["--tables", tables, "--rdmascope", rdmascope, *more, "captures"]
            args = type("Args", (), {"captures": ["captures"], "tables": tables, "rdmascope": rdmascope, "host": None, "scratch": 64,
                                     "scratch_folder": os.path.join(folder, "scratch"), "timeout": 600, "missing": "--missing" in more, "one_by_one": False})
            began = time.monotonic()
            status = fleet.export(spark, args)
            return status, time.monotonic() - began, words

        def same(what, tables):
            fleet.register(spark, os.path.abspath(tables))
            by_spark = {t: tuple(spark.sql(SUMS[t]).first()) for t in SUMS}
            by_duck = {t: duck(os.path.abspath(tables)).execute(SUMS[t]).fetchone() for t in SUMS}
            for t in SUMS:
                # names of partitions differ, how many there are does not
                if not (tuple(map(plain, by_spark[t])) == tuple(map(plain, by_duck[t])) == tuple(map(plain, one[t]))):
                    sys.exit(f"{what}: {t}: Spark {by_spark[t]}, DuckDB {by_duck[t]}, one machine {one[t]}")
            told = [json.load(open(path)) for path in glob.glob(os.path.join(tables, "_captures", "*.json"))]
            errors = sorted(os.path.basename(t["capture"]) for t in told if t["error"])
            assert len(told) == wanted + 2 and errors == ["damaged.pcap", "no-capture.pcap"], (what, len(told), errors)
            assert not glob.glob(os.path.join(tables, "_attempts", "*", "*")), "attempts are left"
            print(f"{what}: the same sums, by Spark, DuckDB and one machine: {by_duck['frames'][0]} frames, {by_duck['exchanges'][0]} requests")

        def plain(value):
            return None if value is None else int(value)

        # warm: workers begin their Python once
        spark.sparkContext.parallelize(range(4), 4).map(lambda n: n).collect()
        status, seconds, _ = run("tables")
        assert status == 1, "a damaged file is told"
        same("two workers", "tables")
        size = sum(os.path.getsize(c) for c in captures)
        print(f"{len(captures)} captures, {size / 1e6:.1f} MB: two workers {len(captures) / seconds:.1f} captures/s, {size / seconds / 1e9:.4f} GB/s; "
              f"one process, no Spark {len(captures) / alone_seconds:.1f} captures/s")

        run("tables")
        same("the same run again", "tables")

        def kill():
            # once some captures are done, and not all
            for _ in range(600):
                if len(glob.glob("killed/_attempts/*/*")) > wanted // 8:
                    break
                time.sleep(0.05)
            victims = [pid for pid, _ in executors() if ours(pid)]
            assert victims, "no executor is found"
            os.kill(victims[0], signal.SIGKILL)
            killed.append(victims[0])

        killed = []
        killer = threading.Thread(target=kill)
        killer.start()
        run("killed")
        killer.join()
        assert killed, "no worker was killed"
        same("a worker killed in the middle", "killed")

        # a run that broke off, and is gone on with
        gone = sorted(glob.glob("killed/_captures/*.json"))[: wanted // 3]
        for path in gone:
            os.remove(path)
        run("killed", "--missing")
        same("the rest of a run that broke off", "killed")

        fleet.register(spark, os.path.abspath("tables"))
        for name, query in fleet.queries().items():
            rows = spark.sql(query).collect()
            assert rows, f"{name} answers nothing"
            print(f"query {name}: {len(rows)} rows")
        spark.stop()


if __name__ == "__main__":
    main()
