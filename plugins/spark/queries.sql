-- Questions to a fleet of captures, in the SQL that Spark and DuckDB share: test.py holds both to known answers. fleet.py ask runs them; every table has
-- day, host and capture beside its columns, and a condition on those reads the files that match alone. In DuckDB, say SET TimeZone = 'UTC' first.

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
SELECT CASE f.by WHEN 'client' THEN c.client WHEN 'server' THEN c.server ELSE f.by END AS who, f.finding, f.severity,
       sum(f.count) AS occurrences, count(DISTINCT f.capture) AS captures
FROM findings f LEFT JOIN (SELECT DISTINCT capture, report, client, server FROM connections) c ON c.capture = f.capture AND c.report = f.connection
GROUP BY CASE f.by WHEN 'client' THEN c.client WHEN 'server' THEN c.server ELSE f.by END, f.finding, f.severity
ORDER BY CASE f.severity WHEN 'error' THEN 0 WHEN 'warn' THEN 1 ELSE 2 END, occurrences DESC, who, finding;

-- name: waits
-- What held requests up: kind and cause of the episodes, whose packets waited, and what it cost the requests, in ms.
SELECT e.host, e.kind, e.cause, e.from AS held_up, count(*) AS episodes, sum(e.requests) AS requests, sum(e.cost) / 1e6 AS cost
FROM episodes e GROUP BY e.host, e.kind, e.cause, e.from ORDER BY cost DESC, e.host, e.kind, e.cause, held_up;

-- name: by_hour
-- p99 and median of each command by hour, in ms.
SELECT date_trunc('hour', CAST(time AS TIMESTAMP)) AS hour, command, count(latency) AS requests,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY latency) / 1e6 AS median, percentile_cont(0.99) WITHIN GROUP (ORDER BY latency) / 1e6 AS p99
FROM exchanges GROUP BY date_trunc('hour', CAST(time AS TIMESTAMP)), command HAVING count(latency) > 0 ORDER BY hour, command;

-- name: sessions
-- Sessions over all hosts and channels: on how many connections, seen in how many captures, with what they moved. A connection has one name in every
-- capture that saw it. A session is named after the connection that set it up, since servers give an id again; where a capture has only a channel that was
-- bound to it, that belongs to the one set-up of the id in the fleet, and stands alone if there are several. A request counts once, however many captures
-- have it.
WITH channels AS (
  SELECT s.capture, s.number, s.session, s.kind, s.role, c.connection, c.client, c.server,
         concat_ws(' ', c.client, c.server, CAST(c.port AS STRING), CAST(c.client_port AS STRING), coalesce(CAST(c.client_qp AS STRING), '-'),
                   coalesce(CAST(c.server_qp AS STRING), '-')) AS channel
  FROM sessions s JOIN connections c ON c.capture = s.capture AND c.report = s.connection),
here AS (
  SELECT capture, number, min(channel) AS channel FROM channels WHERE role = 'first' GROUP BY capture, number),
fleet AS (
  SELECT session, kind, min(channel) AS channel FROM channels WHERE role = 'first' GROUP BY session, kind HAVING count(DISTINCT channel) = 1),
placed AS (
  SELECT k.*, CASE WHEN k.kind = 'nfs_session' THEN '' WHEN k.kind = 'nfs_mount' THEN concat_ws(' ', k.client, k.server)
                   WHEN k.role = 'first' THEN k.channel ELSE coalesce(h.channel, f.channel, k.channel) END AS set_up
  FROM channels k LEFT JOIN here h ON h.capture = k.capture AND h.number = k.number
  LEFT JOIN fleet f ON f.session = k.session AND f.kind = k.kind),
asked AS (
  SELECT p.session, p.kind, p.set_up, p.channel, p.capture, p.client, p.server, e.exchange, e.time, e.bytes_moved,
         lag(e.time) OVER (PARTITION BY p.session, p.kind, p.set_up, p.channel, e.command, e.message_id ORDER BY e.time) AS seen_before
  FROM placed p LEFT JOIN exchanges e ON e.capture = p.capture AND e.connection = p.connection AND (e.session = p.session OR p.kind = 'nfs_mount'))
SELECT session, kind, min(client) AS client, min(server) AS server, count(DISTINCT channel) AS channels, count(DISTINCT capture) AS captures,
       min(time) AS first, max(time) AS last,
       count(CASE WHEN seen_before IS NULL OR time > seen_before + INTERVAL '60' SECOND THEN exchange END) AS requests,
       sum(CASE WHEN seen_before IS NULL OR time > seen_before + INTERVAL '60' SECOND THEN bytes_moved END) AS bytes
FROM asked GROUP BY session, kind, set_up ORDER BY requests DESC, session, client, server;

-- name: two_points
-- The same request seen at two points: how much longer it took at one than at the other, in ms. One end of the way is the difference. iWARP and TCP have
-- no queue pairs: there, the ports tell connections apart.
WITH seen AS (
  SELECT e.host, e.capture, c.client, c.server, c.port, c.client_port, c.client_qp, c.server_qp, e.command, e.message_id, e.time, e.latency
  FROM exchanges e JOIN connections c ON c.capture = e.capture AND c.connection = e.connection WHERE e.latency IS NOT NULL)
SELECT a.host AS here, b.host AS there, a.client, a.server, a.command, count(*) AS requests, avg(a.latency - b.latency) / 1e6 AS longer_here
FROM seen a JOIN seen b ON a.client = b.client AND a.server = b.server AND a.port = b.port AND a.client_port = b.client_port
  AND a.client_qp IS NOT DISTINCT FROM b.client_qp AND a.server_qp IS NOT DISTINCT FROM b.server_qp AND a.command = b.command
  AND a.message_id = b.message_id AND a.host < b.host
  AND a.time BETWEEN b.time - INTERVAL '60' SECOND AND b.time + INTERVAL '60' SECOND
GROUP BY a.host, b.host, a.client, a.server, a.command ORDER BY requests DESC, here, there, a.client, a.server, command LIMIT 50;
