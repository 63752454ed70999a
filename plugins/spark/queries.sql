-- Questions to a fleet of captures, in the SQL that Spark and DuckDB share. fleet.py ask runs them; every table has day, host and capture beside its
-- columns, and a condition on those reads the files that match alone.

-- name: slowest
-- The slowest requests of the fleet, and where their time went, in ms.
SELECT host, capture, exchange, command, file, latency / 1e6 AS ms, latency_wire / 1e6 AS wire, latency_server / 1e6 AS server, latency_rdma / 1e6 AS rdma,
       wait_for_credit / 1e6 AS credit
FROM exchanges WHERE latency IS NOT NULL ORDER BY latency DESC, capture, exchange LIMIT 50;

-- name: links
-- Which link loses: packets that went out again, by who sent them to whom.
SELECT host, source, destination, count(*) AS packets, count(CASE WHEN retransmission THEN 1 END) AS again,
       count(CASE WHEN retransmission THEN 1 END) / CAST(count(*) AS DOUBLE) AS share
FROM frames WHERE connection IS NOT NULL GROUP BY host, source, destination
HAVING count(CASE WHEN retransmission THEN 1 END) > 0 ORDER BY share DESC, host, source, destination;

-- name: rules
-- Which host breaks which rule: occurrences, and in how many captures.
SELECT CASE f.`by` WHEN 'client' THEN c.client WHEN 'server' THEN c.server ELSE f.`by` END AS who, f.finding, f.severity,
       sum(f.count) AS occurrences, count(DISTINCT f.capture) AS captures
FROM findings f LEFT JOIN (SELECT DISTINCT capture, report, client, server FROM connections) c ON c.capture = f.capture AND c.report = f.connection
GROUP BY CASE f.`by` WHEN 'client' THEN c.client WHEN 'server' THEN c.server ELSE f.`by` END, f.finding, f.severity
ORDER BY CASE f.severity WHEN 'error' THEN 0 WHEN 'warn' THEN 1 ELSE 2 END, occurrences DESC, who, finding;

-- name: by_hour
-- p99 and median of each command by hour, in ms.
SELECT date_trunc('hour', CAST(time AS TIMESTAMP)) AS hour, command, count(latency) AS requests,
       percentile(latency, 0.5) / 1e6 AS median, percentile(latency, 0.99) / 1e6 AS p99
FROM exchanges GROUP BY date_trunc('hour', CAST(time AS TIMESTAMP)), command HAVING count(latency) > 0 ORDER BY hour, command;

-- name: sessions
-- SMB sessions over all hosts and channels: on how many connections, seen in how many captures, with what they moved.
SELECT s.session, c.client, c.server, count(DISTINCT c.port, c.client_qp, c.server_qp) AS channels, count(DISTINCT s.capture) AS captures,
       min(e.time) AS first, max(e.time) AS last, count(e.exchange) AS requests, sum(e.bytes_moved) AS bytes
FROM sessions s JOIN connections c ON c.capture = s.capture AND c.report = s.connection
LEFT JOIN exchanges e ON e.capture = c.capture AND e.connection = c.connection
GROUP BY s.session, c.client, c.server ORDER BY requests DESC, session, client, server;

-- name: two_points
-- The same request seen at two points: how much longer it took at one than at the other, in ms. One end of the way is the difference.
WITH seen AS (
  SELECT e.host, e.capture, c.client, c.server, c.client_qp, c.server_qp, e.command, e.message_id, e.time, e.latency
  FROM exchanges e JOIN connections c ON c.capture = e.capture AND c.connection = e.connection WHERE e.latency IS NOT NULL)
SELECT a.host AS here, b.host AS there, a.client, a.server, a.command, count(*) AS requests, avg(a.latency - b.latency) / 1e6 AS longer_here
FROM seen a JOIN seen b ON a.client = b.client AND a.server = b.server AND a.client_qp = b.client_qp AND a.server_qp = b.server_qp AND a.command = b.command
  AND a.message_id = b.message_id AND a.host < b.host AND abs(CAST(CAST(a.time AS TIMESTAMP) AS DOUBLE) - CAST(CAST(b.time AS TIMESTAMP) AS DOUBLE)) < 60
GROUP BY a.host, b.host, a.client, a.server, a.command ORDER BY requests DESC, here, there, command LIMIT 50;
