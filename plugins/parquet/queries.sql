-- Ready queries for DuckDB over the tables of `rdmascope export parquet FILE DIR`. Run DuckDB in the folder above DIR = tables, or set it:
--   duckdb -c ".read queries.sql"          or, a query at a time, what stands below its name

-- name: views
CREATE OR REPLACE VIEW frames AS SELECT * FROM read_parquet('tables/frames/*/*.parquet', hive_partitioning = true);
CREATE OR REPLACE VIEW messages AS SELECT * FROM read_parquet('tables/messages/*/*.parquet', hive_partitioning = true);
CREATE OR REPLACE VIEW exchanges AS SELECT * FROM read_parquet('tables/exchanges/*/*.parquet', hive_partitioning = true);
CREATE OR REPLACE VIEW episodes AS SELECT * FROM read_parquet('tables/episodes/*/*.parquet', hive_partitioning = true);
CREATE OR REPLACE VIEW findings AS SELECT * FROM read_parquet('tables/findings/*/*.parquet', hive_partitioning = true);
CREATE OR REPLACE VIEW credits AS SELECT * FROM read_parquet('tables/credits/*/*.parquet', hive_partitioning = true);
CREATE OR REPLACE VIEW connections AS SELECT * FROM read_parquet('tables/connections/*/*.parquet', hive_partitioning = true);
CREATE OR REPLACE VIEW sessions AS SELECT * FROM read_parquet('tables/sessions/*/*.parquet', hive_partitioning = true);

-- name: captures
-- What there is: frames and bytes by capture.
SELECT capture, count(*) AS frames, sum(wire_length) AS bytes, min(time) AS first, max(time) AS last FROM frames GROUP BY capture ORDER BY capture;

-- name: protocols
-- Frames by the highest protocol in them.
SELECT capture, protocol, count(*) AS frames FROM frames GROUP BY capture, protocol ORDER BY capture, frames DESC;

-- name: commands
-- Requests by connection and command: how many, failures, payload, latency.
SELECT e.capture, c.report AS connection, e.command, count(*) AS count, count(*) FILTER (failed) AS errors, sum(bytes_moved) AS bytes,
       min(latency) FILTER (NOT poll) AS latency_min, max(latency) FILTER (NOT poll) AS latency_max
FROM exchanges e JOIN connections c USING (capture, connection)
GROUP BY e.capture, c.report, e.command ORDER BY e.capture, c.report, e.command;

-- name: worst
-- Findings, what matters first.
SELECT capture, severity, finding, connection, frame, "by", count, text FROM findings
ORDER BY CASE severity WHEN 'error' THEN 0 WHEN 'warn' THEN 1 ELSE 2 END, count DESC;

-- name: rdma
-- RDMA Reads and Writes by connection.
SELECT m.capture, c.report AS connection,
       count(*) FILTER (verb = 'read_request') AS reads, coalesce(sum(bytes) FILTER (verb = 'read_response'), 0) AS read_bytes,
       count(*) FILTER (verb = 'write') AS writes, coalesce(sum(bytes) FILTER (verb = 'write'), 0) AS write_bytes
FROM messages m JOIN connections c USING (capture, connection) GROUP BY m.capture, c.report ORDER BY m.capture, c.report;

-- name: least_credits
-- The fewest credits that each side held behind a message, and what it held last.
SELECT k.capture, c.report AS connection,
       min(CASE WHEN client_end = 'a' THEN end_a ELSE end_b END) AS client_least, min(CASE WHEN client_end = 'a' THEN end_b ELSE end_a END) AS server_least,
       last(CASE WHEN client_end = 'a' THEN end_a ELSE end_b END ORDER BY frame) AS client_last,
       last(CASE WHEN client_end = 'a' THEN end_b ELSE end_a END ORDER BY frame) AS server_last
FROM credits k JOIN connections c USING (capture, connection) GROUP BY k.capture, c.report ORDER BY k.capture, c.report;

-- name: slowest
-- The slowest requests of all captures, and where their time went, in ms.
SELECT capture, exchange, command, file, latency / 1e6 AS ms, latency_wire / 1e6 AS wire, latency_server / 1e6 AS server, latency_rdma / 1e6 AS rdma
FROM exchanges WHERE latency IS NOT NULL AND NOT poll ORDER BY latency DESC LIMIT 20;

-- name: held_up
-- What held each connection up: episodes by kind and cause, and what they cost its requests, in ms.
SELECT capture, connection, kind, cause, e.from AS held_up, count(*) AS episodes, sum(packets) AS packets, sum(repeated) AS repeated, sum(cost) / 1e6 AS cost
FROM episodes e GROUP BY capture, connection, kind, cause, e.from ORDER BY cost DESC, capture, connection, kind, cause;

-- name: throughput
-- Bytes on the wire by second.
SELECT capture, date_trunc('second', CAST(time AS TIMESTAMPTZ)) AS second, sum(wire_length) AS bytes, count(*) FILTER (retransmission) AS retransmissions
FROM frames GROUP BY capture, second ORDER BY capture, second;

-- name: files
-- Files by payload.
SELECT capture, file, count(*) AS requests, sum(bytes_moved) AS bytes, sum(bytes_moved) FILTER (channel <> 'inline') AS by_rdma
FROM exchanges WHERE file IS NOT NULL GROUP BY capture, file ORDER BY bytes DESC LIMIT 20;
