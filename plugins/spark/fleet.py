#!/usr/bin/env python3
"""Thousands of captures as one set of tables, on Spark:

    spark-submit fleet.py export --tables DIR [--rdmascope FILE] CAPTURE|FOLDER|PATTERN|@LIST …
    spark-submit fleet.py ask --tables DIR [QUERY …]

`export` runs `rdmascope export parquet` on the executors, a capture a task, and puts what it writes into
DIR/TABLE/day=DAY/host=HOST/capture=ID. `ask` registers the tables and answers the queries of queries.sql beside this file.

Captures may lie wherever Spark reads: a path that the executor sees itself is read in place, anything else (hdfs://, s3a://, …) is fetched into a
scratch folder, which is bounded by --scratch. DIR must be a path that driver and executors all see.

What can go wrong: a capture is damaged, a worker dies, a task runs twice, a run is repeated. Every attempt writes into a folder of its own below
DIR/_attempts. Spark hands the driver one result for each task, and the driver moves the tables of that attempt, and of no other, to their place; what
stood there of the same capture goes first. DIR/_captures/ID.json then tells what became of it. So no row is there twice, none is lost, and whatever could not be
read is told, with as much of it as could be."""
import argparse
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid

TABLES = ["frames", "messages", "exchanges", "findings", "credits", "connections", "sessions"]
# Times have nanoseconds, which Spark reads as numbers only.
NANOS = "spark.sql.legacy.parquet.nanosAsLong"
# Spark hands over a fetched file as one value, which may have 2 GiB at most.
FETCHED_MAX = (1 << 31) - 1


def identity(path):
    """A capture's name in the tables: its file's name, and what tells it from others of that name."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(path.rstrip("/")))[-80:]
    return f"{name}-{hashlib.sha256(path.encode()).hexdigest()[:10]}"


def host_of(path, pattern):
    """Who captured it: the first group of a pattern, else the folder that it lies in."""
    found = re.search(pattern, path) if pattern else None
    name = found.group(1) if found else os.path.basename(os.path.dirname(path)) or "unknown"
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def listed(words):
    """The captures that are meant: files, folders, patterns, lists. Paths with a scheme are taken as they are."""
    found = []
    for word in words:
        if word.startswith("@"):
            with open(word[1:]) as lines:
                found += listed([line.strip() for line in lines if line.strip() and not line.startswith("#")])
        elif re.match(r"[a-z][a-z0-9]+://", word):
            found.append(word)
        elif os.path.isdir(word):
            for folder, _, names in os.walk(word):
                found += [os.path.join(folder, name) for name in names if re.search(r"\.(pcap|pcapng|cap|erf|snoop)(\.(gz|zst|lz4))?$", name)]
        else:
            found += glob.glob(word) or [word]
    return sorted({f if "://" in f else os.path.abspath(f) for f in found})


def export_one(capture, content, o):
    """Runs on an executor: one capture into a folder of this attempt's own. Returns what the driver needs to know."""
    import pyarrow.parquet as parquet

    attempt = os.path.join(o["tables"], "_attempts", o["run"], uuid.uuid4().hex)
    told = {"capture": capture, "id": identity(capture), "host": host_of(capture, o["host"]), "attempt": attempt, "error": None, "rows": {}, "seconds": 0.0}
    began = time.monotonic()
    scratch = None
    try:
        source = capture
        if content is not None:
            scratch = os.path.join(o["scratch_folder"], uuid.uuid4().hex)
            os.makedirs(scratch)
            source = os.path.join(scratch, os.path.basename(capture))
            with open(source, "wb") as file:
                file.write(content)
        told["bytes"] = os.path.getsize(source)
        os.makedirs(attempt)
        done = subprocess.run([o["rdmascope"], "export", "parquet", source, attempt], capture_output=True, text=True, timeout=o["timeout"])
        if done.returncode != 0:
            # a damaged file has rows up to the damage
            told["error"] = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1].removeprefix("rdmascope: ")
        first = None
        for table in TABLES:
            files = sorted(glob.glob(os.path.join(attempt, table, "capture=*", "*.parquet")))
            try:
                heads = [parquet.read_metadata(file) for file in files]
            except Exception as e:
                told["error"] = told["error"] or f"{table}: {e}"
                shutil.rmtree(os.path.join(attempt, table), ignore_errors=True)
                continue
            told["rows"][table] = sum(head.num_rows for head in heads)
            if table == "frames":
                groups = [head.row_group(i) for head in heads for i in range(head.num_row_groups)]
                column = next((i for i in range(heads[0].num_columns) if heads[0].schema.column(i).name == "time"), None) if heads else None
                stats = [group.column(column).statistics for group in groups] if column is not None else []
                # nanoseconds, as the file has them: a date made of them loses the last three digits
                times = [s.min_raw if hasattr(s, "min_raw") else s.min for s in stats if s is not None and s.has_min_max]
                first = min(times) if times else None
        told["day"] = day_of(first)
    except Exception as e:  # whatever it is, the other captures go on
        told["error"] = f"{type(e).__name__}: {e}"
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
    told["seconds"] = time.monotonic() - began
    return told


def day_of(first):
    """The day of a capture's first frame, UTC."""
    if first is None:
        return "unknown"
    if isinstance(first, int):
        return time.strftime("%Y-%m-%d", time.gmtime(first // 1_000_000_000))
    return str(first)[:10]


def commit(tables, told):
    """Runs on the driver, once for each capture: what was there of it goes, what the attempt wrote takes its place."""
    for table in TABLES:
        for old in glob.glob(os.path.join(glob.escape(tables), table, "day=*", "host=*", "capture=" + glob.escape(told["id"]))):
            shutil.rmtree(old)
        source = glob.glob(os.path.join(glob.escape(told["attempt"]), table, "capture=*"))
        if source and told["rows"].get(table) is not None:
            place = os.path.join(tables, table, f"day={told.get('day', 'unknown')}", f"host={told['host']}", f"capture={told['id']}")
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.rename(source[0], place)
    kept = {key: value for key, value in told.items() if key != "attempt"}
    path = os.path.join(tables, "_captures", told["id"] + ".json")
    with open(path + ".new", "w") as file:
        json.dump(kept, file)
    os.rename(path + ".new", path)
    shutil.rmtree(told["attempt"], ignore_errors=True)


def export(spark, args):
    captures = listed(args.captures)
    if not captures:
        sys.exit("fleet: no capture is there")
    tables = os.path.abspath(args.tables)
    os.makedirs(os.path.join(tables, "_captures"), exist_ok=True)
    if args.missing:
        # what a run that broke off has done already
        captures = [c for c in captures if not os.path.exists(os.path.join(tables, "_captures", identity(c) + ".json"))]
    run = uuid.uuid4().hex
    o = {"tables": tables, "run": run, "host": args.host, "rdmascope": args.rdmascope, "timeout": args.timeout, "scratch_folder": args.scratch_folder}
    seen, remote = [c for c in captures if "://" not in c], [c for c in captures if "://" in c]
    began = time.monotonic()
    context = spark.sparkContext
    work = context.parallelize(seen, max(len(seen), 1)).map(lambda capture: export_one(capture, None, o))
    if remote:
        # so many at a time on each executor as find room in its scratch folder
        fetched = spark.read.format("binaryFile").load(remote)
        large = fetched.where(fetched.length > min(FETCHED_MAX, args.scratch << 20)).select("path", "length").collect()
        for row in large:
            print(f"fleet: {row.path}: {row.length} bytes do not fit: --scratch has {args.scratch} MiB, and 2 GiB is the most", file=sys.stderr)
        fits = fetched.where(fetched.length <= min(FETCHED_MAX, args.scratch << 20)).repartition(len(remote))
        work = work.union(fits.select("path", "content").rdd.map(lambda row: export_one(row.path, bytes(row.content), o)))
    failed = rows = size = count = 0
    # results come one by one, each of a task that Spark takes for done
    for told in work.toLocalIterator(prefetchPartitions=True) if args.one_by_one else work.collect():
        commit(tables, told)
        count += 1
        size += told.get("bytes", 0)
        rows += sum(told["rows"].values())
        if told["error"]:
            failed += 1
            print(f"fleet: {told['capture']}: {told['error']}", file=sys.stderr)
    shutil.rmtree(os.path.join(tables, "_attempts", run), ignore_errors=True)
    seconds = time.monotonic() - began
    told = {"captures": count, "told": failed, "rows": rows, "bytes": size, "seconds": round(seconds, 3), "captures_per_second": round(count / seconds, 2),
            "gigabytes_per_second": round(size / seconds / 1e9, 4)}
    print(json.dumps(told))
    return 1 if failed or (remote and count < len(captures)) else 0


def register(spark, tables):
    """The tables as views of this session; `captures` tells what became of each file."""
    for table in TABLES:
        place = os.path.join(tables, table)
        if not os.path.isdir(place):
            continue
        rows = spark.read.option("basePath", place).parquet(place)
        for name in [name for name in ("time", "last_time") if name in rows.columns]:
            # Spark knows microseconds; the nanoseconds stay beside, and conditions on those skip row groups
            rows = rows.withColumnRenamed(name, name + "_ns").selectExpr("*", f"timestamp_micros({name}_ns div 1000) AS {name}")
        rows.createOrReplaceTempView(table)
    spark.read.json(os.path.join(tables, "_captures", "*.json")).createOrReplaceTempView("captures")


def queries():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "queries.sql")) as file:
        parts = file.read().split("-- name: ")[1:]
    return {part.split("\n", 1)[0].strip(): part.split("\n", 1)[1].strip().rstrip(";") for part in parts}


def ask(spark, args):
    register(spark, os.path.abspath(args.tables))
    known = queries()
    for name in args.queries or known:
        if name not in known:
            sys.exit(f"fleet: no query \"{name}\"; there are {', '.join(known)}")
        print(f"-- {name}")
        spark.sql(known[name]).show(args.rows, truncate=60)
    return 0


def main():
    parser = argparse.ArgumentParser(description="Thousands of captures as one set of tables, on Spark")
    verbs = parser.add_subparsers(required=True, dest="verb")
    e = verbs.add_parser("export", help="run rdmascope export parquet on the executors")
    e.add_argument("captures", nargs="+", help="files, folders, patterns, URIs, or @FILE with one on each line")
    e.add_argument("--tables", required=True, help="the folder of the tables, seen by driver and executors")
    e.add_argument("--rdmascope", default="rdmascope", help="the binary, on the executors")
    e.add_argument("--host", help="pattern whose first group is the host, in the path of a capture; otherwise its folder's name is")
    e.add_argument("--scratch", type=int, default=1024, metavar="MiB", help="the largest capture that is fetched")
    e.add_argument("--scratch-folder", default="/tmp/rdmascope-fleet", help="where captures are fetched to, on the executors")
    e.add_argument("--timeout", type=int, default=3600, metavar="S", help="the longest that one capture may take")
    e.add_argument("--missing", action="store_true", help="only captures of which _captures tells nothing: go on with a run that broke off")
    e.add_argument("--one-by-one", action="store_true", help="one task after the other: the driver keeps one result at a time")
    a = verbs.add_parser("ask", help="answer queries of queries.sql")
    a.add_argument("queries", nargs="*")
    a.add_argument("--tables", required=True)
    a.add_argument("--rows", type=int, default=20)
    args = parser.parse_args()
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("rdmascope fleet").config("spark.sql.session.timeZone", "UTC").config(NANOS, "true").getOrCreate()
    try:
        return {"export": export, "ask": ask}[args.verb](spark, args)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
