#!/usr/bin/env python3
"""Thousands of captures as one set of tables, on Spark:

    spark-submit fleet.py export --tables DIR [--rdmascope FILE] CAPTURE|FOLDER|PATTERN|@LIST …
    spark-submit fleet.py ask --tables DIR [QUERY …]

`export` runs `rdmascope export parquet` on the executors, a capture a task, and puts what it writes into
DIR/TABLE/day=DAY/host=HOST/capture=ID. `ask` registers the tables and answers the queries of queries.sql beside this file.

Captures may lie wherever Spark reads: a path that the executor sees itself is read in place, anything else (file://, hdfs://, s3a://, …) is fetched
into a scratch folder. All tasks of a machine together have --scratch MiB there. DIR must be a path that driver and executors all see.

What can go wrong: a capture is damaged, a worker or the driver dies, a task runs twice, a run is repeated.
- Every attempt writes into a folder of its own below DIR/_attempts, and its result last. So an attempt with a result is whole.
- The driver takes results as they come, one for each capture: it removes DIR/_captures/ID.json, then what stood there of the same capture, moves the
  attempt's tables to their place, and writes DIR/_captures/ID.json. What was begun and not finished can be gone on with.
- The next run takes over what a dead driver left: whole attempts, and those that it was moving.
So no row is there twice, none is lost, and whatever could not be read is told, with as much of it as could be."""
import argparse
import contextlib
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import uuid

TABLES = ["frames", "messages", "exchanges", "episodes", "findings", "credits", "connections", "sessions"]
# Their columns that are points in time.
TIMES = {"episodes": ["begin", "end"], "findings": ["time", "last_time"], "connections": [], "sessions": []}
# Times have nanoseconds, which Spark reads as numbers only.
NANOS = "spark.sql.legacy.parquet.nanosAsLong"
# The file in which an attempt leaves its result.
RESULT = "result.json"
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


def canonical(path):
    """A path with a scheme as it is written: Spark says file:/a of file:///a."""
    return re.sub(r"^([a-z][a-z0-9+.-]*):/(?!/)", r"\1:///", path)


def write_json(path, value):
    """A file that is there whole, or not."""
    with open(path + ".new", "w") as file:
        json.dump(value, file)
    os.rename(path + ".new", path)


@contextlib.contextmanager
def locked(path):
    """Waits until this process is the only one that has it."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def scratch(folder, size, limit):
    """A folder for one file of `size` bytes, once it fits beside those of the other tasks of this machine. Whoever uses a folder holds its lock: what a
    dead task left has none, and goes."""
    os.makedirs(folder, exist_ok=True)
    place = os.path.join(folder, f"{uuid.uuid4().hex}.{size}")
    while True:
        with locked(os.path.join(folder, "lock")):
            used = 0
            for other in os.scandir(folder):
                if not other.is_dir():
                    continue
                with open(os.path.join(other.path, "lock"), "a") as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(other.path, ignore_errors=True)
                    except BlockingIOError:
                        used += int(other.name.rsplit(".", 1)[1])
            if used + size <= limit:
                os.mkdir(place)
                mine = open(os.path.join(place, "lock"), "w")
                fcntl.flock(mine, fcntl.LOCK_EX)
                break
        time.sleep(0.2)
    try:
        yield place
    finally:
        with locked(os.path.join(folder, "lock")):
            shutil.rmtree(place, ignore_errors=True)
            mine.close()


def about(capture, o):
    """What is known of a capture before it is read."""
    return {"schema": 1, "capture": capture, "id": identity(capture), "host": host_of(capture, o["host"]), "day": "unknown", "attempt": None, "error": None, "rows": {},
            "bytes": 0, "seconds": 0.0}


def export_one(capture, content, o):
    """Runs on an executor: one capture into a folder of this attempt's own. Returns what the driver needs to know, and leaves it beside the tables."""
    attempt = os.path.join(o["tables"], "_attempts", o["run"], uuid.uuid4().hex)
    told = about(capture, o) | {"attempt": attempt}
    began = time.monotonic()
    try:
        os.makedirs(attempt)
        if content is None:
            export_tables(capture, told, o)
        else:
            with scratch(o["scratch_folder"], len(content), o["scratch"]) as folder:
                source = os.path.join(folder, os.path.basename(capture))
                with open(source, "wb") as file:
                    file.write(content)
                export_tables(source, told, o)
    except Exception as e:  # whatever it is, the other captures go on
        told["error"] = f"{type(e).__name__}: {e}"
    told["seconds"] = time.monotonic() - began
    write_json(os.path.join(attempt, RESULT), told)
    return told


def export_tables(source, told, o):
    """Exports one file, and counts what came of it."""
    import pyarrow.parquet as parquet

    attempt = told["attempt"]
    told["bytes"] = os.path.getsize(source)
    done = subprocess.run([o["rdmascope"], "export", "parquet", source, attempt], capture_output=True, text=True, timeout=o["timeout"])
    if done.returncode != 0:
        # a damaged file has rows up to the damage
        said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1].removeprefix("rdmascope: ")
        # the capture is named beside it, and a copy that was fetched is nobody's
        told["error"] = said.replace(f"{source}: ", "")
    written = {entry.name for entry in os.scandir(attempt) if entry.is_dir()}
    if written - set(TABLES):
        # of a newer program: nothing is dropped in silence
        told["error"] = told["error"] or f"fleet.py does not know the tables {', '.join(sorted(written - set(TABLES)))}"
    for table in TABLES:
        files = sorted(glob.glob(os.path.join(glob.escape(attempt), table, "capture=*", "*.parquet")))
        try:
            heads = [parquet.read_metadata(file) for file in files]
        except Exception as e:
            told["error"] = told["error"] or f"{table}: {e}"
            shutil.rmtree(os.path.join(attempt, table), ignore_errors=True)
            continue
        if heads:
            told["rows"][table] = sum(head.num_rows for head in heads)
        if table == "frames":
            told["day"] = day_of(first_time(heads))


def first_time(heads):
    """The earliest time of a table, in ns."""
    groups = [head.row_group(i) for head in heads for i in range(head.num_row_groups)]
    column = next((i for i in range(heads[0].num_columns) if heads[0].schema.column(i).name == "time"), None) if heads else None
    stats = [group.column(column).statistics for group in groups] if column is not None else []
    # nanoseconds, as the file has them: a date made of them loses the last three digits
    times = [s.min_raw if hasattr(s, "min_raw") else s.min for s in stats if s is not None and s.has_min_max]
    return min(times) if times else None


def day_of(first):
    """The day of a capture's first frame, UTC."""
    if first is None:
        return "unknown"
    if isinstance(first, int):
        return time.strftime("%Y-%m-%d", time.gmtime(first // 1_000_000_000))
    return str(first)[:10]


def commit(tables, told):
    """Runs on the driver: what was there of a capture goes, what the attempt wrote takes its place. Repeated after a death, it does what is left to do.
    False if tables are missing that the attempt wrote: then nothing is told of the capture, and --missing exports it again."""
    path = os.path.join(tables, "_captures", told["id"] + ".json")
    # first: a capture that is told has all its rows
    if os.path.exists(path):
        os.remove(path)
    attempt = told["attempt"]
    for table in TABLES:
        place = os.path.join(tables, table, f"day={told['day']}", f"host={told['host']}", f"capture={told['id']}")
        source = glob.glob(os.path.join(glob.escape(attempt), table, "capture=*")) if attempt else []
        # without a source, what the attempt wrote of this table was moved before the driver died
        moved = not source and table in told["rows"]
        for old in glob.glob(os.path.join(glob.escape(tables), table, "day=*", "host=*", "capture=" + glob.escape(told["id"]))):
            if not (moved and old == place):
                shutil.rmtree(old)
        if moved and not os.path.isdir(place):
            return False
        if source and table in told["rows"]:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.rename(source[0], place)
    write_json(path, {key: value for key, value in told.items() if key != "attempt"})
    if attempt:
        shutil.rmtree(attempt, ignore_errors=True)
    return True


def results(folder):
    """Results that attempts of a run have left, the earliest first."""
    found = glob.glob(os.path.join(glob.escape(folder), "*", RESULT))
    for path in sorted(found, key=os.path.getmtime):
        with open(path) as file:
            yield os.path.getmtime(path), json.load(file)


def take_over(tables):
    """Takes what drivers that died left: attempts that are whole, where nothing newer is told of their capture. Returns how many."""
    count = 0
    for run in glob.glob(os.path.join(glob.escape(tables), "_attempts", "*")):
        for written, told in results(run):
            path = os.path.join(tables, "_captures", told["id"] + ".json")
            if not os.path.exists(path) or os.path.getmtime(path) < written:
                count += commit(tables, told)
        shutil.rmtree(run, ignore_errors=True)
    return count


def remote_captures(spark, patterns):
    """Files that Spark finds, with their sizes, and what it does not find, with the error."""
    found, lost = {}, {}

    def look(paths):
        for row in spark.read.format("binaryFile").load(paths).select("path", "length").collect():
            found[canonical(row.path)] = row.length

    try:
        look(patterns)
    except Exception:
        for pattern in patterns:
            try:
                look([pattern])
            except Exception as e:
                lost[canonical(pattern)] = (str(e).strip().splitlines() or [type(e).__name__])[0]
    return found, lost


def export(spark, args):
    captures = listed(args.captures)
    if not captures:
        sys.exit("fleet: no capture is there")
    tables = os.path.abspath(args.tables)
    os.makedirs(os.path.join(tables, "_captures"), exist_ok=True)
    lock = open(os.path.join(tables, "_lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"fleet: another run writes to {tables}")
    try:
        return export_all(spark, captures, tables, args)
    finally:
        lock.close()


def export_all(spark, captures, tables, args):
    taken = take_over(tables)
    if taken:
        print(f"fleet: {taken} captures of a run that broke off are taken over", file=sys.stderr)
    patterns = [c for c in captures if "://" in c]
    sizes, lost = remote_captures(spark, patterns) if patterns else ({}, {})
    captures = [c for c in captures if "://" not in c] + sorted(sizes) + sorted(lost)
    if args.missing:
        # what a run that broke off has done already
        captures = [c for c in captures if not os.path.exists(os.path.join(tables, "_captures", identity(c) + ".json"))]
    limit = min(FETCHED_MAX, args.scratch << 20)
    run = uuid.uuid4().hex
    o = {"tables": tables, "run": run, "host": args.host, "rdmascope": args.rdmascope, "timeout": args.timeout, "scratch_folder": args.scratch_folder,
         "scratch": limit}
    began = time.monotonic()
    done = {}

    def take(told):
        if told["id"] in done:
            # another attempt of the same task
            if told["attempt"]:
                shutil.rmtree(told["attempt"], ignore_errors=True)
            return
        if not commit(tables, told):
            return
        done[told["id"]] = told
        if told["error"]:
            print(f"fleet: {told['capture']}: {told['error']}", file=sys.stderr)

    for capture in captures:
        error = lost.get(capture)
        if sizes.get(capture, 0) > limit:
            error = f"{sizes[capture]} bytes do not fit: --scratch has {args.scratch} MiB, and 2 GiB is the most"
        if error:
            take(about(capture, o) | {"error": error, "bytes": sizes.get(capture, 0)})
    rest = [c for c in captures if identity(c) not in done]
    seen, remote = [c for c in rest if "://" not in c], [c for c in rest if "://" in c]
    work = spark.sparkContext.parallelize(seen, max(len(seen), 1)).map(lambda capture: export_one(capture, None, o))
    if remote:
        # a file a task
        spark.conf.set("spark.sql.files.maxPartitionBytes", "1")
        files = spark.read.format("binaryFile").load([re.sub(r"([\\{}\[\]*?])", r"\\\1", path) for path in remote])
        work = work.union(files.select("path", "content").rdd.map(lambda row: export_one(canonical(row.path), bytes(row.content), o)))
    told_by_spark, failure = [], []

    def collect():
        try:
            told_by_spark.extend(work.collect())
        except BaseException as e:
            failure.append(e)

    job = threading.Thread(target=collect, daemon=True)
    job.start()
    attempts = os.path.join(tables, "_attempts", run)
    while job.is_alive():
        job.join(0.5)
        for _, told in results(attempts):
            take(told)
    # a shared file system may show a result late
    for told in told_by_spark:
        take(told)
    shutil.rmtree(attempts, ignore_errors=True)
    if failure:
        raise failure[0]
    seconds = time.monotonic() - began
    all_told = list(done.values())
    failed, size = sum(told["error"] is not None for told in all_told), sum(told["bytes"] for told in all_told)
    summary = {"schema": 1, "captures": len(all_told), "told": failed, "taken_over": taken, "rows": sum(sum(told["rows"].values()) for told in all_told),
            "bytes": size, "seconds": round(seconds, 3), "captures_per_second": round(len(all_told) / seconds, 2),
            "gigabytes_per_second": round(size / seconds / 1e9, 4)}
    print(json.dumps(summary))
    return 1 if failed or len(all_told) < len(captures) else 0


def register(spark, tables):
    """The tables as views of this session; `captures` tells what became of each file."""
    for table in TABLES:
        place = os.path.join(tables, table)
        if not os.path.isdir(place):
            continue
        rows = spark.read.option("basePath", place).parquet(place)
        for name in TIMES.get(table, ["time"]):
            # Spark knows microseconds; the nanoseconds stay beside, and conditions on those skip row groups
            rows = rows.withColumnRenamed(name, name + "_ns").selectExpr("*", f"timestamp_micros({name}_ns div 1000) AS `{name}`")
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
    e.add_argument("--scratch", type=int, default=1024, metavar="MiB", help="room for captures that are fetched, for all tasks of a machine together")
    e.add_argument("--scratch-folder", default="/tmp/rdmascope-fleet", help="where captures are fetched to, on the executors")
    e.add_argument("--timeout", type=int, default=3600, metavar="S", help="the longest that one capture may take")
    e.add_argument("--missing", action="store_true", help="only captures of which _captures tells nothing: go on with a run that broke off")
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
