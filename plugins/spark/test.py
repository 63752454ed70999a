#!/usr/bin/env python3
"""fleet.py on a cluster of two workers of this machine: test.py RDMASCOPE [CAPTURES]

Exports the samples, copied until there are CAPTURES of them (120 unless said) in folders of several hosts, with a damaged file and one that is no capture
among them; kills a worker in the middle, and a driver; repeats the run; fetches some through Spark; and compares sums with those of one machine without
Spark and with DuckDB's answers. Every query answers rows that are known, in Spark and in DuckDB.
Needs pyspark, pyarrow, duckdb and jsonschema (PyPI), and Java 17 or newer. Exits with 1 and the first difference."""
import contextlib
import datetime
import glob
import io
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
import jsonschema
import pyarrow
import pyarrow.parquet

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import fleet  # noqa: E402

SUMS = {
    "frames": "SELECT count(*), sum(wire_length), sum(captured_length), count(DISTINCT capture) FROM frames",
    "messages": "SELECT count(*), sum(bytes), sum(packets), count(DISTINCT capture) FROM messages",
    "exchanges": "SELECT count(*), sum(latency), sum(bytes_moved), sum(retransmissions) FROM exchanges",
    "episodes": "SELECT count(*), sum(cost), sum(packets), count(DISTINCT capture) FROM episodes",
    "findings": "SELECT count(*), sum(count), count(DISTINCT finding), count(DISTINCT capture) FROM findings",
    "credits": "SELECT count(*), sum(end_a), sum(end_b), count(DISTINCT capture) FROM credits",
    "connections": "SELECT count(*), sum(report), sum(last_frame), count(DISTINCT capture) FROM connections",
    "sessions": "SELECT count(*), count(DISTINCT session), sum(connection), count(DISTINCT capture) FROM sessions",
}


def executors(of):
    """Processes of executors that descend from a process."""
    found = []
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            words = open(folder + "/cmdline", "rb").read().split(b"\0")
        except OSError:
            continue
        pid = int(folder.rsplit("/", 1)[1])
        if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and descends(pid, of):
            found.append(pid)
    return found


def descends(pid, of):
    """Whether a process is one, or descends from it."""
    while pid > 1:
        if pid == of:
            return True
        try:
            pid = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return False


def duck(tables):
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    for table in fleet.TABLES:
        db.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{tables}/{table}/**/*.parquet', hive_partitioning = true)")
    return db


def no_table_is_unknown(tables):
    """What the program writes is what fleet.py collects, and its points in time are those of the files; frames say that they are in order."""
    written = {name: glob.glob(f"{tables}/{name}/*/*.parquet")[0] for name in os.listdir(tables)}
    assert sorted(written) == sorted(fleet.TABLES) == sorted(SUMS), (sorted(written), fleet.TABLES)
    for table, file in written.items():
        schema = pyarrow.parquet.read_schema(file)
        times = [field.name for field in schema if pyarrow.types.is_timestamp(field.type)]
        assert times == fleet.TIMES.get(table, ["time"]), (table, times)
        order = pyarrow.parquet.read_metadata(file).row_group(0).sorting_columns
        assert [column.column_index for column in order] == ([0] if table == "frames" else []), (table, order)


MS = 1_000_000
NOON = 1_700_049_600 * 1000 * MS  # 2023-11-15 12:00 UTC


def known(folder, schemas):
    """Two captures of one load, host1 the client's and host2 the server's, written by hand: two sessions on one connection, a session of two channels over
    two pairs of addresses, a session that another server gave the same number, iWARP without queue pairs. Clocks differ by 2 s. A third capture, hours
    later, has a session with a number that was there before, and an NFS mount."""
    zero = {pyarrow.int64(): 0, pyarrow.string(): "", pyarrow.bool_(): False}
    captures = {"host1": "client.pcap", "host2": "server.pcap", "host3": "later.pcap"}
    rows = {(table, host): [] for table in fleet.TABLES for host in captures}

    def row(table, host, **cells):
        schema = schemas[table]
        rows[table, host].append({f.name: cells.pop(f.name, None if f.nullable else zero.get(f.type, NOON)) for f in schema})
        assert not cells, cells

    def connection(host, number, client, server, client_port=0, qps=(None, None)):
        row("connections", host, connection=number, report=number, client=client, server=server, port=445, client_port=client_port, client_qp=qps[0], server_qp=qps[1])

    def request(host, connection, session, message_id, at_ms, latency_ms, moved=0, command="READ"):
        clock = {"host1": 0, "host2": 2000, "host3": 3 * 3600_000}[host]
        row("exchanges", host, exchange=len(rows["exchanges", host]) + 1, connection=connection, session=session, message_id=message_id, command=command,
            time=NOON + (clock + at_ms) * MS, latency=None if latency_ms is None else round(latency_ms * MS), bytes_moved=moved)

    for host in ("host1", "host2"):
        longer = 0.5 if host == "host1" else 0
        # RoCE: sessions A and B on one connection
        connection(host, 1, "10.0.0.1", "10.0.0.9", qps=(17, 18))
        # iWARP: two connections of the same hosts; C has been set up on the first and has a channel over another network
        connection(host, 2, "10.0.0.2", "10.0.0.9", client_port=40001)
        connection(host, 3, "10.1.0.2", "10.1.0.9", client_port=40002)
        # another server has given the number of C, too
        connection(host, 4, "10.0.0.2", "10.0.0.8", client_port=40003)
        for number, session, on, role in ((1, "A", 1, "first"), (2, "B", 1, "first"), (3, "C", 2, "first"), (3, "C", 3, "bound"), (4, "C", 4, "first")):
            row("sessions", host, number=number, session=session, kind="smb", connection=on, role=role)
        for message_id in range(1, 5):
            request(host, 1, "A", message_id, message_id * 10, message_id + longer, 100)
        request(host, 1, "B", 5, 50, 9 + longer, 1000)
        request(host, 1, None, 0, 0, None, command="NEGOTIATE")
        for message_id in (1, 2, 3):
            request(host, 2, "C", message_id, message_id * 10, 2 + longer, 10)
            request(host, 4, "C", message_id, message_id * 10, 4 + longer, 7)
        request(host, 3, "C", 1, 15, 2 + longer, 10_000, "WRITE")
    connection("host3", 1, "10.0.0.1", "10.0.0.9", qps=(17, 18))
    row("sessions", "host3", number=1, session="A", kind="smb", connection=1, role="first")
    # the number of a message that was there hours ago is another message
    request("host3", 1, "A", 1, 0, 100, 5)
    connection("host3", 2, "10.0.0.3", "10.0.0.7", client_port=900)
    row("sessions", "host3", number=2, session="", kind="nfs_mount", connection=2, role="member")
    request("host3", 2, None, 77, 0, 1, 3, "GETATTR")
    for n in range(10):
        row("frames", "host1", frame=n + 1, connection=1, source="10.0.0.1", destination="10.0.0.9", retransmission=n >= 7)
        row("frames", "host2", frame=n + 1, connection=1, source="10.0.0.1", destination="10.0.0.9")
    row("frames", "host1", frame=11, connection=None, source="10.0.0.5", destination="10.0.0.6", retransmission=True)
    row("findings", "host1", finding="SMBD-CREDITS", severity="error", connection=1, by="server", count=3)
    row("findings", "host2", finding="SMBD-CREDITS", severity="error", connection=4, by="server", count=2)
    row("findings", "host2", finding="SMBD-CREDITS", severity="error", connection=1, by="server", count=1)
    row("findings", "host1", finding="IB-LOSS", severity="warn", connection=2, by="network", count=7)
    row("findings", "host1", finding="CAP-LATE", severity="note", connection=None, by="capture", count=1)
    # one whose directions were paired late has two numbers and one report
    row("connections", "host1", connection=9, report=1, client="10.0.0.1", server="10.0.0.9", port=445, client_qp=17, server_qp=18)
    for cost, n in ((30, 1), (12, 2)):
        row("episodes", "host1", connection=1, episode=n, kind="recovery", cause="loss", cost=cost * MS, requests=n, **{"from": "server", "end": NOON + n})
    row("episodes", "host2", connection=1, episode=1, kind="idle", cause="unknown", cost=MS, requests=1, **{"from": None})
    for (table, host), cells in rows.items():
        place = f"{folder}/{table}/day=2023-11-15/host={host}/capture={captures[host]}"
        os.makedirs(place)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(cells, schema=schemas[table]), place + "/part-00000.parquet")
    os.makedirs(folder + "/_captures")
    with open(folder + "/_captures/one.json", "w") as file:
        json.dump({"capture": "client.pcap"}, file)


def hour(n):
    return datetime.datetime(2023, 11, 15, n)


# Of a row of an answer, the columns that are held to it.
ANSWERS = {
    "slowest": [("host", "command", "ms"), [("host3", "READ", 100.0), ("host1", "READ", 9.5), ("host2", "READ", 9.0)]],
    "links": [("host", "source", "destination", "packets", "again", "share"), [("host1", "10.0.0.1", "10.0.0.9", 10, 3, 0.3)]],
    "rules": [("who", "finding", "occurrences", "captures"),
              [("10.0.0.9", "SMBD-CREDITS", 4, 2), ("10.0.0.8", "SMBD-CREDITS", 2, 1), ("network", "IB-LOSS", 7, 1), ("capture", "CAP-LATE", 1, 1)]],
    "waits": [("host", "kind", "cause", "held_up", "episodes", "requests", "cost"),
              [("host1", "recovery", "loss", "server", 2, 3, 42.0), ("host2", "idle", "unknown", None, 1, 1, 1.0)]],
    # in order 1 1.5, four 2, four 2.5, 3 | 3.5, four 4, four 4.5, 9 9.5: the median is between 3 and 3.5
    "by_hour": [("hour", "command", "requests", "median", "p99"),
                [(hour(12), "READ", 22, 3.25, 9.395), (hour(12), "WRITE", 2, 2.25, 2.495), (hour(15), "GETATTR", 1, 1.0, 1.0), (hour(15), "READ", 1, 100.0, 100.0)]],
    "sessions": [("session", "kind", "client", "server", "channels", "captures", "requests", "bytes"),
                 [("A", "smb", "10.0.0.1", "10.0.0.9", 1, 3, 5, 405), ("C", "smb", "10.0.0.2", "10.0.0.9", 2, 2, 4, 10030),
                  ("C", "smb", "10.0.0.2", "10.0.0.8", 1, 2, 3, 21), ("", "nfs_mount", "10.0.0.3", "10.0.0.7", 1, 1, 1, 3),
                  ("B", "smb", "10.0.0.1", "10.0.0.9", 1, 2, 1, 1000)]],
    "two_points": [("here", "there", "client", "server", "command", "requests", "longer_here"),
                   [("host1", "host2", "10.0.0.1", "10.0.0.9", "READ", 5, 0.5), ("host1", "host2", "10.0.0.2", "10.0.0.8", "READ", 3, 0.5),
                    ("host1", "host2", "10.0.0.2", "10.0.0.9", "READ", 3, 0.5), ("host1", "host2", "10.1.0.2", "10.1.0.9", "WRITE", 1, 0.5)]],
}


def every_query_is_right(spark, folder, schemas):
    known(folder, schemas)
    fleet.register(spark, folder)
    db = duck(folder)
    assert sorted(fleet.queries()) == sorted(ANSWERS), "a query without a known answer"
    for name, query in fleet.queries().items():
        columns, rows = ANSWERS[name]
        asked = db.execute(query)
        names = [column[0] for column in asked.description]
        answers = {"DuckDB": [dict(zip(names, row)) for row in asked.fetchall()], "Spark": [row.asDict() for row in spark.sql(query).collect()]}
        for engine, answer in answers.items():
            told = [tuple(round(float(cell), 6) if isinstance(expected, float) else cell for cell, expected in zip((row[c] for c in columns), known_row))
                    for row, known_row in zip(answer, rows)]
            whole = name == "slowest" or len(answer) == len(rows)
            if told != rows or not whole:
                sys.exit(f"{name} in {engine}: {len(answer)} rows\n  " + "\n  ".join(map(str, [tuple(row[c] for c in columns) for row in answer])) + f"\nexpected {len(rows)}\n  "
                         + "\n  ".join(map(str, rows)))
        print(f"query {name}: {len(answers['Spark'])} rows, the same in Spark and DuckDB, as known")


def killed_driver(rdmascope, wanted):
    """A whole fleet.py is killed in the middle, with all its executors."""
    words = [sys.executable, os.path.join(HERE, "fleet.py"), "export", "--tables", "orphans", "--rdmascope", rdmascope, "captures"]
    conf = "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.memory=1g pyspark-shell"
    driver = subprocess.Popen(words, env=os.environ | {"PYSPARK_SUBMIT_ARGS": conf, "PYSPARK_PYTHON": sys.executable}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=True)
    while len(glob.glob("orphans/_captures/*.json")) < wanted // 6:
        assert driver.poll() is None, "the driver ended before it was killed"
        time.sleep(0.05)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    told = glob.glob("orphans/_captures/*.json")
    assert len(told) < wanted, "nothing was left to do"
    return len(told)


def half_moved(tables):
    """The tables of a capture as a driver leaves them that dies while it moves: some are in their place, the others still where the attempt wrote them."""
    path = sorted(glob.glob(f"{tables}/_captures/0*.json"))[0]
    with open(path) as file:
        told = json.load(file)
    os.remove(path)
    told["attempt"] = os.path.abspath(f"{tables}/_attempts/dead/one")
    for table in fleet.TABLES[3:]:
        os.makedirs(f"{told['attempt']}/{table}")
        os.rename(f"{tables}/{table}/day={told['day']}/host={told['host']}/capture={told['id']}", f"{told['attempt']}/{table}/capture=x")
    fleet.write_json(os.path.join(told["attempt"], fleet.RESULT), told)
    # an attempt that did not end
    os.makedirs(f"{tables}/_attempts/dead/two/frames/capture=x")
    return path


def main():
    rdmascope = os.path.abspath(sys.argv[1])
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 120
    samples = sorted(glob.glob(os.path.join(HERE, "../../samples/*/*.pcap")))
    assert len(samples) > 30, samples
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for n in range(wanted):
            sample = samples[n % len(samples)]
            place = f"captures/host{n % 4}/{n:05}-{os.path.basename(sample)}"
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copy(sample, place)
        whole = open(samples[0], "rb").read()
        open("captures/host1/damaged.pcap", "wb").write(whole[: len(whole) // 2 + 7])
        open("captures/host1/no-capture.pcap", "wb").write(b"this is no capture\n" * 40)
        captures = fleet.listed(["captures"])
        assert len(captures) == wanted + 2
        # one machine, without Spark
        began = time.monotonic()
        for capture in captures:
            done = subprocess.run([rdmascope, "export", "parquet", capture, "alone/" + fleet.identity(capture)], capture_output=True, text=True)
            assert (done.returncode == 0) == ("damaged" not in capture and "no-capture" not in capture), (capture, done)
        alone_seconds = time.monotonic() - began
        db = duckdb.connect()
        one = {t: db.execute(SUMS[t].replace(f"FROM {t}", f"FROM read_parquet('alone/*/{t}/*/*.parquet', hive_partitioning = true)")).fetchone() for t in SUMS}
        whole_export = f"alone/{fleet.identity(captures[0])}"
        no_table_is_unknown(whole_export)
        schemas = {t: pyarrow.parquet.read_schema(glob.glob(f"{whole_export}/{t}/*/*.parquet")[0]) for t in fleet.TABLES}

        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        cluster = os.environ.get("RDMASCOPE_SPARK_MASTER", "local-cluster[2,1,1024]")
        builder = SparkSession.builder.master(cluster).config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        builder = builder.config(fleet.NANOS, "true").config("spark.executor.memory", "1g").config("spark.driver.memory", "1g").config("spark.python.worker.reuse", "true")
        spark = builder.config("spark.executorEnv.PYTHONPATH", HERE).appName("test").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        spark.sparkContext.addPyFile(os.path.join(HERE, "fleet.py"))

        validator = jsonschema.Draft202012Validator(json.load(open(os.path.join(HERE, "schemas.json"))))
        assert validator.schema["$defs"]["capture"]["properties"]["rows"]["propertyNames"]["enum"] == fleet.TABLES

        def run(tables, *more, words=("captures",), scratch=64):
            args = type("Args", (), {"captures": words, "tables": tables, "rdmascope": rdmascope, "host": None, "scratch": scratch,
                                     "scratch_folder": os.path.join(folder, "scratch"), "timeout": 600, "missing": "--missing" in more})
            began, printed = time.monotonic(), io.StringIO()
            with contextlib.redirect_stdout(printed):
                status = fleet.export(spark, args)
            print(printed.getvalue(), end="")
            validator.validate(json.loads(printed.getvalue()))
            return status, time.monotonic() - began

        def same(what, tables):
            fleet.register(spark, os.path.abspath(tables))
            by_spark = {t: tuple(spark.sql(SUMS[t]).first()) for t in SUMS}
            by_duck = {t: duck(os.path.abspath(tables)).execute(SUMS[t]).fetchone() for t in SUMS}
            for t in SUMS:
                # names of partitions differ, how many there are does not
                if not (tuple(map(plain, by_spark[t])) == tuple(map(plain, by_duck[t])) == tuple(map(plain, one[t]))):
                    sys.exit(f"{what}: {t}: Spark {by_spark[t]}, DuckDB {by_duck[t]}, one machine {one[t]}")
            told = [json.load(open(path)) for path in glob.glob(os.path.join(tables, "_captures", "*.json"))]
            for row in told:
                validator.validate(row)
            errors = sorted(os.path.basename(t["capture"]) for t in told if t["error"])
            assert len(told) == wanted + 2 and errors == ["damaged.pcap", "no-capture.pcap"], (what, len(told), errors)
            assert not glob.glob(os.path.join(tables, "_attempts", "*", "*")), "attempts are left"
            print(f"{what}: the same sums, by Spark, DuckDB and one machine: {by_duck['frames'][0]} frames, {by_duck['exchanges'][0]} requests")

        def plain(value):
            return None if value is None else int(value)

        # warm: workers begin their Python once
        spark.sparkContext.parallelize(range(4), 4).map(lambda n: n).collect()
        status, seconds = run("tables")
        assert status == 1, "a damaged file is told"
        same("two workers", "tables")
        size = sum(os.path.getsize(c) for c in captures)
        print(f"{len(captures)} captures, {size / 1e6:.1f} MB: {cluster} {len(captures) / seconds:.1f} captures/s, {size / seconds / 1e9:.4f} GB/s; "
              f"one process, no Spark {len(captures) / alone_seconds:.1f} captures/s")

        run("tables")
        same("the same run again", "tables")

        def kill():
            # once some captures are done, and not all
            for _ in range(600):
                if len(glob.glob("killed/_captures/*.json")) > wanted // 8:
                    break
                time.sleep(0.05)
            victims = executors(os.getpid())
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

        # a driver that died while it moved the tables of a capture, and rows of which nothing is told
        for path in sorted(glob.glob("killed/_captures/*.json"))[: wanted // 3]:
            os.remove(path)
        half_moved("killed")
        run("killed", "--missing")
        same("the rest of a run that broke off", "killed")
        # all that is left to do is to take over
        half_moved("killed")
        began = time.time()
        run("killed", "--missing")
        same("half a capture moved", "killed")
        again = [path for path in glob.glob("killed/_captures/*.json") if os.path.getmtime(path) > began]
        assert len(again) == 1, again

        done = killed_driver(rdmascope, wanted)
        run("orphans", "--missing")
        same(f"a driver killed with {done} captures done", "orphans")

        # what Spark fetches: from the same disk, by another name
        few = [c for c in captures if "host1/" in c][:12] + captures[-1:]
        large = max(few, key=os.path.getsize)
        room = (sorted(map(os.path.getsize, few))[-2] >> 20) + 1
        if os.path.getsize(large) <= room << 20:
            large = None
        remote = ["file://" + c for c in few] + ["file:///nowhere/at-all.pcap"]
        status, _ = run("fetched", words=remote, scratch=room)
        assert status == 1
        told = {t["capture"]: t for t in (json.load(open(path)) for path in glob.glob("fetched/_captures/*.json"))}
        for one in told.values():
            validator.validate(one)
        assert sorted(told) == sorted(remote), sorted(told)
        assert told[remote[-1]]["error"] and not told["file://" + few[0]]["error"], told
        assert large is None or "do not fit" in told["file://" + large]["error"], told
        local = {t["capture"]: t for t in (json.load(open(path)) for path in glob.glob("tables/_captures/*.json"))}
        for capture in few:
            if capture != large:
                assert told["file://" + capture]["rows"] == local[capture]["rows"], capture
        assert sorted(os.listdir("scratch")) == ["lock"], os.listdir("scratch")
        run("fetched", "--missing", words=remote, scratch=room)
        print(f"{len(few)} captures fetched through Spark: the same rows")

        every_query_is_right(spark, os.path.abspath("known"), schemas)
        spark.stop()


if __name__ == "__main__":
    main()
