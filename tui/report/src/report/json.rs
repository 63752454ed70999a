//! The report for programs. Keys are a contract: they only ever get added. Times are seconds since the first frame as decimal
//! strings, ids small integers, sizes bytes; what is not known is null.

use super::words::seconds;
use super::{Detail, Story, ending};
use rdmascope_analyzer::exchange::{Exchange, Family};
use rdmascope_analyzer::finding::Finding;
use rdmascope_analyzer::report::{self as analyzed, Connection, SideReport};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// The whole report as one object.
pub fn render(story: &Story) -> serde_json::Result<String> {
    let mut text = crate::output::pretty_json(&Root::of(story))?;
    text.push('\n');
    Ok(text)
}

#[derive(Serialize)]
struct Root {
    rdmascope: &'static str,
    inputs: Vec<Input>,
    capture: Capture,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<Filter>,
    connections: Vec<ConnectionJson>,
    findings: Vec<FindingJson>,
    slowest: Vec<Row>,
    sessions: Vec<Session>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hardware: Vec<HardwareJson>,
    dropped: Dropped,
}

/// A counter of an RDMA device that grew while frames were captured.
#[derive(Serialize)]
struct HardwareJson {
    device: String,
    port: u32,
    counter: String,
    increase: u64,
    /// Where it grew: time since the first frame, and by how much.
    steps: Vec<(String, u64)>,
}

impl HardwareJson {
    fn of(hardware: &rdmascope_capture::Hardware, row: &rdmascope_capture::HardwareRow, start: i64) -> Self {
        let steps = hardware.steps(row).filter(|(_, n)| *n > 0).map(|(t, n)| (seconds(t.saturating_sub(start)), n));
        let (device, counter) = (row.counter.device.clone(), row.counter.name.clone());
        Self { device, port: row.counter.port, counter, increase: row.increase(), steps: steps.collect() }
    }
}

#[derive(Serialize)]
struct Input {
    path: String,
    frames: u64,
    bytes: u64,
    first: Option<String>,
    last: Option<String>,
    link_types: Vec<&'static str>,
    error: Option<String>,
}

#[derive(Serialize)]
struct Capture {
    frames: u64,
    bytes: u64,
    duration: String,
    dissected: Counted,
    undecoded: u64,
    cut: u64,
    lost_by_capture: u64,
    dropped_while_capturing: u64,
    tunnelled: u64,
    mirrors: Vec<Mirror>,
    pauses: u64,
}

#[derive(Serialize)]
struct Mirror {
    kind: &'static str,
    session: u32,
    frames: u64,
    truncated: u64,
}

impl Mirror {
    fn of(mirror: &rdmascope_analyzer::mirror::Mirror) -> Self {
        Self { kind: mirror.kind.key(), session: mirror.session, frames: mirror.frames, truncated: mirror.truncated }
    }
}

/// A mirror session that a connection came through.
#[derive(Serialize)]
struct MirrorName {
    kind: &'static str,
    session: u32,
}

/// An object with a number for each name.
struct Counted(Vec<(&'static str, u64)>);

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, n) in &self.0 {
            map.serialize_entry(name, n)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct Filter {
    text: String,
    frames: u64,
}

#[derive(Serialize)]
struct Pair<T> {
    client: T,
    server: T,
}

impl<T> Pair<T> {
    fn of(mut each: impl FnMut(usize) -> T) -> Self {
        Self { client: each(0), server: each(1) }
    }
}

#[derive(Serialize)]
struct ConnectionJson {
    id: u32,
    transport: &'static str,
    protocol: &'static str,
    client: String,
    server: String,
    client_known: bool,
    port: Pair<Option<u16>>,
    qp: Pair<Option<u32>>,
    first_frame: u64,
    last_frame: u64,
    first: String,
    last: String,
    handshake: &'static str,
    closed_by: Option<&'static str>,
    ended: String,
    rejected: Option<String>,
    negotiated: Negotiated,
    smb: Smb,
    messages: Messages,
    credits: Pair<Credits>,
    rdma: Rdma,
    transport_health: Health,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mirrors: Vec<MirrorName>,
    exchanges: Vec<Command>,
    failures: Vec<Failure>,
    last_exchange: Option<Last>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange_list: Option<Vec<Row>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credit_timeline: Option<Vec<Point>>,
}

#[derive(Serialize)]
struct Negotiated {
    max_send_size_client: Option<u32>,
    max_send_size_server: Option<u32>,
    max_receive_size_client: Option<u32>,
    max_receive_size_server: Option<u32>,
    max_fragmented_size_client: Option<u32>,
    max_fragmented_size_server: Option<u32>,
    max_read_write_size: Option<u32>,
    status: Option<u32>,
}

#[derive(Serialize)]
struct Smb {
    dialect: Option<String>,
    sessions: Vec<String>,
    signed: bool,
    encrypted: bool,
    encrypted_messages: Pair<u64>,
}

#[derive(Serialize)]
struct Messages {
    client: u64,
    server: u64,
    fragmented: u64,
    fragments: u64,
    keepalives: u64,
    empty: u64,
}

#[derive(Serialize)]
struct Credits {
    requested_max: u32,
    granted_total: u64,
    spent_total: u64,
    held_min: Option<i64>,
    held_last: Option<i64>,
    stalls: u64,
    stalled_time: String,
    stall_longest: String,
    overruns: u64,
}

#[derive(Serialize)]
struct Rdma {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    keys_advertised: u64,
    keys_invalidated_remotely: u64,
    outside_advertised: u64,
}

#[derive(Serialize)]
struct Health {
    retransmissions: u64,
    naks: u64,
    rnr_naks: u64,
    sequence_gaps: u64,
    duplicates: u64,
    icrc_bad: u64,
    crc_bad: u64,
    ecn_marked: u64,
    cnps: u64,
}

#[derive(Serialize)]
struct Command {
    command: &'static str,
    count: u64,
    errors: u64,
    unanswered: u64,
    bytes: u64,
    latency: Latency,
    waits: Waits,
}

#[derive(Serialize)]
struct Latency {
    min: Option<String>,
    median: Option<String>,
    p99: Option<String>,
    max: Option<String>,
}

#[derive(Serialize)]
struct Waits {
    credit: String,
    server: String,
    rdma: String,
    wire: String,
}

#[derive(Serialize)]
struct Failure {
    command: &'static str,
    status: String,
    count: u64,
}

#[derive(Serialize)]
struct Last {
    command: &'static str,
    frame_request: u64,
    frame_reply: Option<u64>,
    status: Option<String>,
    failed: bool,
}

#[derive(Serialize)]
struct Row {
    id: u64,
    connection: u32,
    command: &'static str,
    frame_request: u64,
    frame_reply: Option<u64>,
    time: String,
    status: Option<String>,
    file: Option<String>,
    offset: Option<u64>,
    length: Option<u32>,
    channel: &'static str,
    descriptors: Vec<Descriptor>,
    descriptor_count: u32,
    rdma: Vec<Moved>,
    latency: Option<String>,
    waits: Waits,
    wait_for_credit: String,
    bytes_moved: u64,
    retransmissions: u32,
    pending: bool,
    sha256: Option<String>,
    payload_holes: Option<u64>,
}

#[derive(Serialize)]
struct Descriptor {
    offset: u64,
    token: u32,
    length: u32,
}

/// RDMA of one kind that a request caused. `frames` are the first and the last.
#[derive(Serialize)]
struct Moved {
    kind: &'static str,
    operations: u32,
    packets: u32,
    frames: [u64; 2],
    bytes: u64,
}

#[derive(Serialize)]
struct Point {
    frame: u64,
    time: String,
    client_held: Option<i64>,
    server_held: Option<i64>,
}

#[derive(Serialize)]
struct FindingJson {
    id: &'static str,
    severity: &'static str,
    certainty: &'static str,
    connection: Option<u32>,
    frame: u64,
    time: String,
    by: Option<&'static str>,
    title: &'static str,
    text: String,
    spec: &'static str,
    count: u64,
    frames: Vec<u64>,
    last_time: String,
}

#[derive(Serialize)]
struct Session {
    id: String,
    connections: Vec<u32>,
}

#[derive(Serialize)]
struct Dropped {
    connections_not_reported: u64,
    findings_not_reported: u64,
    rows_not_listed: u64,
    tables: Counted,
}

impl Root {
    fn of(story: &Story) -> Self {
        let start = story.start();
        let since = |ns: i64| seconds(ns.saturating_sub(start));
        let capture = &story.report.capture;
        let inputs = story.inputs.iter().map(|input| Input {
            path: input.path.clone(),
            frames: input.frames,
            bytes: input.bytes,
            first: input.first.map(since),
            last: input.last.map(since),
            link_types: input.link_types.iter().map(|l| l.name()).collect(),
            error: input.error.clone(),
        });
        let connections = story.report.connections.iter().zip(&story.details).map(|(c, detail)| connection(story, c, detail));
        let sessions =
            story.report.sessions.iter().map(|(id, connections)| Session { id: format!("{id:#018x}"), connections: connections.clone() });
        Self {
            rdmascope: env!("CARGO_PKG_VERSION"),
            inputs: inputs.collect(),
            capture: Capture {
                frames: capture.frames,
                bytes: capture.bytes,
                duration: seconds(story.length()),
                dissected: Counted(capture.dissected.clone()),
                undecoded: capture.undecoded,
                cut: capture.cut,
                lost_by_capture: capture.lost_by_capture,
                dropped_while_capturing: story.lost_frames,
                tunnelled: capture.tunnelled,
                mirrors: capture.mirrors.list().iter().map(Mirror::of).collect(),
                pauses: capture.pauses,
            },
            filter: story.filter.as_ref().map(|(text, frames)| Filter { text: text.clone(), frames: *frames }),
            connections: connections.collect(),
            findings: story.report.findings.ranked().into_iter().map(|f| finding(f, start)).collect(),
            slowest: story.report.slowest.iter().map(|e| row(e, start)).collect(),
            sessions: sessions.collect(),
            hardware: story.hardware.grown().into_iter().map(|row| HardwareJson::of(&story.hardware, row, start)).collect(),
            dropped: Dropped {
                connections_not_reported: story.report.connections_dropped,
                findings_not_reported: story.report.findings.dropped(),
                rows_not_listed: story.details_dropped,
                tables: Counted(capture.dropped.clone()),
            },
        }
    }
}

fn connection(story: &Story, c: &Connection, detail: &Detail) -> ConnectionJson {
    let start = story.start();
    let since = |ns: i64| seconds(ns.saturating_sub(start));
    let [client, server] = c.peers.map(|p| analyzed::address(&p.address));
    let n = &c.negotiated;
    let sum = |field: fn(&SideReport) -> u64| c.sides.iter().map(field).sum::<u64>();
    let (r, h) = (&c.rdma, &c.health);
    ConnectionJson {
        id: c.id,
        transport: c.transport.map_or("unknown", |t| t.key()),
        protocol: c.protocol.key(),
        client,
        server,
        client_known: c.client_known,
        port: Pair::of(|end| Some(c.peers[end].port).filter(|p| *p > 0)),
        qp: Pair::of(|end| c.peers[end].qp),
        first_frame: c.first.frame,
        last_frame: c.last.frame,
        first: since(c.first.time),
        last: since(c.last.time),
        handshake: c.handshake.key(),
        closed_by: c.closed.and_then(|(by, ..)| by).map(super::side),
        ended: ending(c),
        rejected: c.rejected.clone(),
        negotiated: Negotiated {
            max_send_size_client: n.max_send_size[0],
            max_send_size_server: n.max_send_size[1],
            max_receive_size_client: n.max_receive_size[0],
            max_receive_size_server: n.max_receive_size[1],
            max_fragmented_size_client: n.max_fragmented_size[0],
            max_fragmented_size_server: n.max_fragmented_size[1],
            max_read_write_size: n.max_read_write_size,
            status: n.status,
        },
        smb: Smb {
            dialect: c.smb.dialect.map(|d| format!("{d:#06x}")),
            sessions: c.smb.sessions.iter().map(|s| format!("{s:#018x}")).collect(),
            signed: c.smb.signed,
            encrypted: c.smb.encrypted,
            encrypted_messages: Pair::of(|end| c.smb.sealed[end].0),
        },
        messages: Messages {
            client: c.sides[0].messages,
            server: c.sides[1].messages,
            fragmented: sum(|s| s.fragmented),
            fragments: sum(|s| s.fragments),
            keepalives: sum(|s| s.keepalives),
            empty: sum(|s| s.empty),
        },
        credits: Pair::of(|end| credits(&c.sides[end])),
        rdma: Rdma {
            reads: r.reads,
            read_bytes: r.read_bytes,
            writes: r.writes,
            write_bytes: r.write_bytes,
            keys_advertised: r.keys_advertised,
            keys_invalidated_remotely: r.keys_invalidated_remotely,
            outside_advertised: r.outside_advertised,
        },
        mirrors: story.report.capture.mirrors.of(c.mirrors).map(|m| MirrorName { kind: m.kind.key(), session: m.session }).collect(),
        transport_health: Health {
            retransmissions: h.retransmissions,
            naks: h.naks,
            rnr_naks: h.rnr_naks,
            sequence_gaps: h.sequence_gaps,
            duplicates: h.duplicates,
            icrc_bad: h.icrc_bad,
            crc_bad: h.crc_bad,
            ecn_marked: h.ecn_marked,
            cnps: h.cnps,
        },
        exchanges: c.commands.iter().map(command).collect(),
        failures: detail
            .failures
            .iter()
            .map(|(command, status, count)| Failure { command, status: status.clone(), count: *count })
            .collect(),
        last_exchange: detail.last.as_ref().map(|last| Last {
            command: last.command,
            frame_request: last.request.frame,
            frame_reply: last.reply.map(|at| at.frame),
            status: last.status.map(|code| super::status(last.family, code)),
            failed: last.failed,
        }),
        exchange_list: story.wanted.exchanges.then(|| detail.exchanges.iter().map(|e| row(e, start)).collect()),
        credit_timeline: story.wanted.credits.then(|| {
            let point = |(at, client, server): &(rdmascope_analyzer::op::At, Option<i64>, Option<i64>)| Point {
                frame: at.frame,
                time: since(at.time),
                client_held: *client,
                server_held: *server,
            };
            detail.timeline.iter().map(point).collect()
        }),
    }
}

fn credits(side: &SideReport) -> Credits {
    Credits {
        requested_max: side.requested_max,
        granted_total: side.granted_total,
        spent_total: side.spent_total,
        held_min: side.held_min,
        held_last: side.held_last,
        stalls: side.stalls,
        stalled_time: seconds(side.stalled_time),
        stall_longest: seconds(side.stall_longest),
        overruns: side.overruns,
    }
}

fn command(c: &analyzed::Command) -> Command {
    let [credit, wire, server, rdma] = c.split.map(seconds);
    Command {
        command: c.name,
        count: c.count,
        errors: c.errors,
        unanswered: c.unanswered,
        bytes: c.bytes,
        latency: Latency {
            min: c.latency.min().map(seconds),
            median: c.latency.quantile(500).map(seconds),
            p99: c.latency.quantile(990).map(seconds),
            max: c.latency.max().map(seconds),
        },
        waits: Waits { credit, server, rdma, wire },
    }
}

fn row(e: &Exchange, start: i64) -> Row {
    let split = e.split();
    let moved = [("read", &e.reads), ("write", &e.writes)].into_iter().filter(|(_, m)| m.frames > 0);
    Row {
        id: e.id,
        connection: e.connection,
        command: e.command,
        frame_request: e.request.frame,
        frame_reply: e.reply.map(|at| at.frame),
        time: seconds(e.request.time.saturating_sub(start)),
        status: e.status.map(|code| status(e.family, code)),
        file: e.file.as_deref().map(str::to_owned),
        offset: e.offset,
        length: e.length,
        channel: e.channel.name(),
        descriptors: e
            .descriptors
            .iter()
            .take(e.descriptor_count as usize)
            .map(|d| Descriptor { offset: d.offset, token: d.token, length: d.length })
            .collect(),
        descriptor_count: e.descriptor_count,
        rdma: moved
            .map(|(kind, m)| Moved {
                kind,
                operations: m.operations,
                packets: m.frames,
                frames: [m.first.frame, m.last.frame],
                bytes: m.bytes,
            })
            .collect(),
        latency: e.latency().map(seconds),
        waits: Waits { credit: seconds(split.credit), server: seconds(split.server), rdma: seconds(split.rdma), wire: seconds(split.wire) },
        wait_for_credit: seconds(e.wait_for_credit),
        bytes_moved: e.bytes_moved,
        retransmissions: e.retransmissions,
        pending: e.pending,
        sha256: e.sha256.map(|hash| hash.iter().map(|b| format!("{b:02x}")).collect()),
        payload_holes: e.payload_holes,
    }
}

fn status(family: Family, code: u32) -> String {
    super::status(family, code)
}

fn finding(f: &Finding, start: i64) -> FindingJson {
    use rdmascope_analyzer::finding::Blame;
    FindingJson {
        id: f.rule.id(),
        severity: f.severity.name(),
        certainty: f.certainty.name(),
        connection: f.connection,
        frame: f.frame,
        time: seconds(f.time_ns.saturating_sub(start)),
        by: Some(f.by).filter(|b| *b != Blame::Unknown).map(Blame::name),
        title: f.rule.row().title,
        text: f.text.clone(),
        spec: f.rule.row().spec,
        count: f.count,
        frames: f.frames.to_vec(),
        last_time: seconds(f.last_time_ns.saturating_sub(start)),
    }
}
