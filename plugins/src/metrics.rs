//! A live analysis as Prometheus metrics, with a minimal HTTP server.
//!
//! Spec: Prometheus text exposition format, version 0.0.4. Names and meanings: [`METRICS`].

use rdmascope_analyzer::finding::Findings;
use rdmascope_analyzer::latency::Latency;
use rdmascope_analyzer::report;
use rdmascope_analyzer::rules::Rule;
use rdmascope_analyzer::totals::Totals;
use rdmascope_capture::live::Counters;
use rdmascope_capture::live::rdma::Counter;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Name, kind, help of every metric.
pub const METRICS: &[(&str, &str, &str)] = &[
    ("rdmascope_start_time_seconds", "gauge", "When the capture began, in seconds since 1970"),
    ("rdmascope_frames_total", "counter", "Frames analysed"),
    ("rdmascope_frame_bytes_total", "counter", "Bytes of the frames on the wire"),
    ("rdmascope_undecoded_frames_total", "counter", "Frames of followed connections that could not be decoded"),
    ("rdmascope_capture_delivered_frames_total", "counter", "Frames handed over by the kernel, by interface"),
    (
        "rdmascope_capture_dropped_frames_total",
        "counter",
        "Frames lost while capturing: by the kernel (ring full) or by the interface",
    ),
    (
        "rdmascope_capture_missed_packets_total",
        "counter",
        "Packets that were on the wire but not in the capture, by their sequence numbers",
    ),
    ("rdmascope_forgotten_total", "counter", "Items dropped to stay within limits, by kind"),
    ("rdmascope_connections", "gauge", "Open connections"),
    ("rdmascope_connections_total", "counter", "Connections seen"),
    ("rdmascope_bytes_total", "counter", "Bytes in frames, by sender"),
    ("rdmascope_messages_total", "counter", "Messages, by sender"),
    ("rdmascope_credits_granted_total", "counter", "Credits granted to an end"),
    ("rdmascope_credits_spent_total", "counter", "Credits that an end spent"),
    ("rdmascope_credits_held", "gauge", "Fewest credits that an end of an open connection holds"),
    ("rdmascope_credit_stalls_total", "counter", "Times that an end waited for credits"),
    ("rdmascope_credit_stall_seconds_total", "counter", "How long it waited"),
    ("rdmascope_credit_overruns_total", "counter", "Sends without credit"),
    ("rdmascope_rdma_operations_total", "counter", "RDMA Reads and Writes"),
    ("rdmascope_rdma_bytes_total", "counter", "Bytes moved by RDMA"),
    ("rdmascope_rdma_outside_advertised_total", "counter", "RDMA outside the advertised memory"),
    ("rdmascope_retransmissions_total", "counter", "Packets or segments that went out again"),
    ("rdmascope_naks_total", "counter", "Negative acknowledgments, by kind"),
    ("rdmascope_sequence_gaps_total", "counter", "Places where packets were missing when the next one came"),
    ("rdmascope_cnps_total", "counter", "Congestion notification packets"),
    ("rdmascope_ecn_marked_total", "counter", "Packets marked congestion experienced"),
    ("rdmascope_crc_errors_total", "counter", "Wrong invariant CRCs and MPA CRCs"),
    ("rdmascope_request_errors_total", "counter", "Requests that failed, by command"),
    ("rdmascope_requests_unanswered_total", "counter", "Requests without a reply, by command"),
    ("rdmascope_request_bytes_total", "counter", "Payload that requests moved, by command"),
    ("rdmascope_request_duration_seconds", "histogram", "Time from request to reply, by command"),
    ("rdmascope_request_time_seconds_total", "counter", "Time from request to reply, by command and owner"),
    ("rdmascope_findings_total", "counter", "Broken rules, by finding (rdmascope explain ID)"),
    ("rdmascope_rdma_hw_counter", "untyped", "hw_counters of RDMA devices, as the driver reports them"),
];

/// Upper ends of the latency buckets, ns.
const BUCKETS: [(i64, &str); 19] = [
    (10_000, "0.00001"),
    (25_000, "0.000025"),
    (50_000, "0.00005"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
];

/// The values to serve.
#[derive(Debug)]
pub struct View<'a> {
    /// ns since 1970.
    pub started_ns: i64,
    /// Frames.
    pub capture: &'a report::Capture,
    /// Connections.
    pub totals: &'a Totals,
    /// Broken rules.
    pub findings: &'a Findings,
    /// Counters of interfaces, by name.
    pub interfaces: &'a [(String, Counters)],
    /// Counters of RDMA devices.
    pub hardware: &'a [Counter],
}

/// All metrics as text.
pub fn render(view: &View<'_>) -> String {
    let mut out = Page { text: String::new() };
    out.one("rdmascope_start_time_seconds", &seconds(view.started_ns));
    out.one("rdmascope_frames_total", &view.capture.frames);
    out.one("rdmascope_frame_bytes_total", &view.capture.bytes);
    out.one("rdmascope_undecoded_frames_total", &view.capture.undecoded);
    out.head("rdmascope_capture_delivered_frames_total");
    for (name, counted) in view.interfaces {
        out.row("rdmascope_capture_delivered_frames_total", &[("interface", name)], &counted.delivered);
    }
    out.head("rdmascope_capture_dropped_frames_total");
    for (name, counted) in view.interfaces {
        out.row(
            "rdmascope_capture_dropped_frames_total",
            &[("interface", name), ("by", "kernel")],
            &counted.dropped_by_kernel,
        );
        out.row(
            "rdmascope_capture_dropped_frames_total",
            &[("interface", name), ("by", "interface")],
            &counted.dropped_by_interface,
        );
    }
    out.one("rdmascope_capture_missed_packets_total", &view.capture.lost_by_capture);
    out.head("rdmascope_forgotten_total");
    for (what, n) in &view.capture.dropped {
        out.row("rdmascope_forgotten_total", &[("what", what)], n);
    }
    let rows: Vec<([(&str, &str); 2], &rdmascope_analyzer::totals::Total)> = view
        .totals
        .rows()
        .iter()
        .map(|r| ([("transport", r.transport.key()), ("protocol", r.protocol.key())], r))
        .collect();
    let kind = |labels: &[(&'static str, &'static str); 2], more: &[(&'static str, &'static str)]| {
        [&labels[..], more].concat()
    };
    out.head("rdmascope_connections");
    rows.iter().for_each(|(l, r)| out.row("rdmascope_connections", l, &r.open));
    out.head("rdmascope_connections_total");
    rows.iter().for_each(|(l, r)| out.row("rdmascope_connections_total", l, &r.connections));
    const SIDES: [&str; 2] = ["client", "server"];
    out.head("rdmascope_bytes_total");
    for (labels, row) in &rows {
        for (side, bytes) in SIDES.into_iter().zip(row.bytes) {
            out.row("rdmascope_bytes_total", &kind(labels, &[("sender", side)]), &bytes);
        }
    }
    type OfSide = fn(&rdmascope_analyzer::totals::SideTotal) -> Option<String>;
    let of_sides: [(&str, &'static str, OfSide); 7] = [
        ("rdmascope_messages_total", "sender", |s| Some(s.messages.to_string())),
        ("rdmascope_credits_granted_total", "end", |s| Some(s.granted.to_string())),
        ("rdmascope_credits_spent_total", "end", |s| Some(s.spent.to_string())),
        ("rdmascope_credits_held", "end", |s| s.held_least.map(|h| h.to_string())),
        ("rdmascope_credit_stalls_total", "end", |s| Some(s.stalls.to_string())),
        ("rdmascope_credit_stall_seconds_total", "end", |s| Some(seconds(s.stalled_time))),
        ("rdmascope_credit_overruns_total", "end", |s| Some(s.overruns.to_string())),
    ];
    for (name, label, value) in of_sides {
        out.head(name);
        for (labels, row) in &rows {
            for (end, side) in SIDES.into_iter().zip(&row.sides) {
                if let Some(value) = value(side) {
                    out.row(name, &kind(labels, &[(label, end)]), &value);
                }
            }
        }
    }
    out.head("rdmascope_rdma_operations_total");
    for (labels, row) in &rows {
        out.row("rdmascope_rdma_operations_total", &kind(labels, &[("operation", "read")]), &row.rdma.reads);
        out.row("rdmascope_rdma_operations_total", &kind(labels, &[("operation", "write")]), &row.rdma.writes);
    }
    out.head("rdmascope_rdma_bytes_total");
    for (labels, row) in &rows {
        out.row("rdmascope_rdma_bytes_total", &kind(labels, &[("operation", "read")]), &row.rdma.read_bytes);
        out.row("rdmascope_rdma_bytes_total", &kind(labels, &[("operation", "write")]), &row.rdma.write_bytes);
    }
    type OfHealth = fn(&rdmascope_analyzer::totals::Total) -> u64;
    let of_health: [(&str, OfHealth); 5] = [
        ("rdmascope_rdma_outside_advertised_total", |r| r.rdma.outside_advertised),
        ("rdmascope_retransmissions_total", |r| r.health.retransmissions),
        ("rdmascope_sequence_gaps_total", |r| r.health.sequence_gaps),
        ("rdmascope_cnps_total", |r| r.health.cnps),
        ("rdmascope_ecn_marked_total", |r| r.health.ecn_marked),
    ];
    for (name, value) in of_health {
        out.head(name);
        rows.iter().for_each(|(l, r)| out.row(name, l, &value(r)));
    }
    out.head("rdmascope_naks_total");
    for (labels, row) in &rows {
        out.row("rdmascope_naks_total", &kind(labels, &[("kind", "nak")]), &row.health.naks);
        out.row("rdmascope_naks_total", &kind(labels, &[("kind", "rnr")]), &row.health.rnr_naks);
    }
    out.head("rdmascope_crc_errors_total");
    for (labels, row) in &rows {
        out.row("rdmascope_crc_errors_total", &kind(labels, &[("crc", "icrc")]), &row.health.icrc_bad);
        out.row("rdmascope_crc_errors_total", &kind(labels, &[("crc", "mpa")]), &row.health.crc_bad);
    }
    type OfCommand = fn(&report::Command) -> u64;
    let of_commands: [(&str, OfCommand); 3] = [
        ("rdmascope_request_errors_total", |c| c.errors),
        ("rdmascope_requests_unanswered_total", |c| c.unanswered),
        ("rdmascope_request_bytes_total", |c| c.bytes),
    ];
    for (name, value) in of_commands {
        out.head(name);
        for (labels, row) in &rows {
            for command in row.commands.rows() {
                out.row(name, &kind(labels, &[("command", command.name)]), &value(command));
            }
        }
    }
    out.head("rdmascope_request_duration_seconds");
    for (labels, row) in &rows {
        for command in row.commands.rows() {
            out.histogram(
                "rdmascope_request_duration_seconds",
                &kind(labels, &[("command", command.name)]),
                &command.latency,
            );
        }
    }
    out.head("rdmascope_request_time_seconds_total");
    for (labels, row) in &rows {
        for command in row.commands.rows() {
            for (owner, time) in command.time.parts() {
                let labels = kind(labels, &[("command", command.name), ("owner", owner.key())]);
                out.row("rdmascope_request_time_seconds_total", &labels, &seconds(time));
            }
        }
    }
    out.head("rdmascope_findings_total");
    for rule in Rule::all() {
        let n = view.findings.occurrences(rule);
        if n > 0 {
            out.row("rdmascope_findings_total", &[("id", rule.id()), ("severity", rule.row().severity.name())], &n);
        }
    }
    out.head("rdmascope_rdma_hw_counter");
    for counter in view.hardware {
        let port = counter.port.to_string();
        out.row(
            "rdmascope_rdma_hw_counter",
            &[("device", &counter.device), ("port", &port), ("counter", &counter.name)],
            &counter.value,
        );
    }
    out.text
}

/// ns as seconds.
fn seconds(ns: i64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns.rem_euclid(1_000_000_000))
}

struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str) {
        let (kind, help) = METRICS.iter().find(|m| m.0 == name).map_or(("untyped", ""), |m| (m.1, m.2));
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn one(&mut self, name: &str, value: &dyn std::fmt::Display) {
        self.head(name);
        self.row(name, &[], value);
    }

    fn row(&mut self, name: &str, labels: &[(&str, &str)], value: &dyn std::fmt::Display) {
        self.text.push_str(name);
        for (n, (key, text)) in labels.iter().enumerate() {
            self.text.push(if n == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{key}=\"");
            for c in text.chars() {
                match c {
                    // names on this machine may contain characters that a terminal obeys
                    c if c.is_control() && c != '\n' => drop(write!(self.text, "\\\\u{{{:x}}}", u32::from(c))),
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], latency: &Latency) {
        let counted = latency.histogram();
        let bucket = format!("{name}_bucket");
        let mut at = 0;
        let mut sum = 0;
        for (upper, le) in BUCKETS {
            while let Some((_, n)) = counted.get(at).filter(|(end, _)| *end <= upper) {
                sum += n;
                at += 1;
            }
            self.row(&bucket, &[labels, &[("le", le)]].concat(), &sum);
        }
        self.row(&bucket, &[labels, &[("le", "+Inf")]].concat(), &latency.count());
        self.row(&format!("{name}_sum"), labels, &seconds(latency.sum()));
        self.row(&format!("{name}_count"), labels, &latency.count());
    }
}

// ── HTTP
// ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Maximum size of a request, in bytes.
const REQUEST_MAX: usize = 8 << 10;
/// From the first byte of a request to the last of its reply.
const DEADLINE: Duration = Duration::from_secs(5);

/// Maximum number of clients that are served at the same time; further ones are rejected.
const CLIENTS_MAX: usize = 16;

/// Listens for requests. Each client is served by a thread of its own, so that a silent one does not block the others.
#[derive(Debug)]
pub struct Server {
    asked: Receiver<MetricsRequest>,
    address: SocketAddr,
}

/// A request for the metrics.
#[derive(Debug)]
pub struct MetricsRequest {
    answer: SyncSender<String>,
}

impl MetricsRequest {
    /// Answers with the metrics. A client that has disconnected gets nothing.
    pub fn answer(self, text: String) {
        let _ = self.answer.try_send(text);
    }
}

impl Server {
    /// Begins to listen. The thread that does ends with the process.
    pub fn start(address: SocketAddr) -> io::Result<Server> {
        Self::with_deadline(address, DEADLINE)
    }

    fn with_deadline(address: SocketAddr, deadline: Duration) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (ask, asked) = channel();
        thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            let clients = Arc::new(());
            for stream in listener.incoming() {
                match stream {
                    // the listener has one reference itself
                    Ok(mut stream) if Arc::strong_count(&clients) > CLIENTS_MAX => {
                        let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
                        let _ = reply(&mut stream, "503 Service Unavailable", "too many connections\n");
                    }
                    Ok(stream) => {
                        let (ask, client) = (ask.clone(), clients.clone());
                        // errors of a client do not matter, nor a thread that could not be started
                        let _ = thread::Builder::new().name("metrics client".to_owned()).spawn(move || {
                            let _ = serve(stream, &ask, deadline);
                            drop(client);
                        });
                    }
                    // no descriptors left, and the like
                    Err(_) => thread::sleep(Duration::from_millis(100)),
                }
            }
        })?;
        Ok(Server { asked, address })
    }

    /// Address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next request, if there is one.
    pub fn asked(&self) -> Option<MetricsRequest> {
        self.asked.try_recv().ok()
    }
}

fn serve(mut stream: TcpStream, ask: &Sender<MetricsRequest>, deadline: Duration) -> io::Result<()> {
    let begun = Instant::now();
    stream.set_write_timeout(Some(deadline))?;
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
        let left = deadline.saturating_sub(begun.elapsed());
        if left.is_zero() || request.len() > REQUEST_MAX {
            return reply(&mut stream, "400 Bad Request", "the request is too long, or took too long\n");
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            n => request.extend_from_slice(&chunk[..n]),
        }
    }
    let line = request.split(|b| *b == b'\r').next().unwrap_or_default();
    let mut words = line.split(|b| *b == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|b| *b == b'?').next().unwrap_or_default();
    if method != b"GET" {
        return reply(&mut stream, "405 Method Not Allowed", "only GET\n");
    }
    if path != b"/metrics" {
        return reply(&mut stream, "404 Not Found", "there is /metrics\n");
    }
    let (answer, answered) = sync_channel(1);
    let text = ask.send(MetricsRequest { answer }).ok().and_then(|()| answered.recv_timeout(deadline).ok());
    match text {
        Some(text) => reply(&mut stream, "200 OK", &text),
        None => reply(&mut stream, "503 Service Unavailable", "the capture has ended, or is too busy\n"),
    }
}

fn reply(stream: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: \
            {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(text.as_bytes())?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_analyzer::report::{Command, Connection, Protocol, Transport};

    fn page(connections: &[Connection]) -> String {
        let mut totals = Totals::default();
        connections.iter().for_each(|c| totals.add(c, true));
        let counter = Counter { device: "mlx5_0".into(), port: 1, name: "out_of_sequence".into(), value: 17 };
        let counted = Counters { delivered: 9, dropped_by_kernel: 2, ..Counters::default() };
        render(&View {
            started_ns: 1_500_000_000,
            capture: &report::Capture { dropped: vec![("requests", 4)], ..report::Capture::default() },
            totals: &totals,
            findings: &Findings::default(),
            interfaces: &[("a\"b".to_owned(), counted)],
            hardware: &[counter],
        })
    }

    fn connection() -> Connection {
        let mut latency = Latency::default();
        for ns in [5_000, 90_000, 90_000, 20_000_000_000] {
            latency.add(ns);
        }
        let command = Command { name: "READ", count: 4, errors: 1, bytes: 7, latency, ..Command::default() };
        Connection {
            transport: Some(Transport::RoceV2),
            protocol: Protocol::SmbDirect,
            commands: vec![command],
            ..Connection::default()
        }
    }

    #[test]
    fn every_metric_is_there_once_and_reads_like_this() {
        let page = page(&[connection(), connection()]);
        for (name, kind, _) in METRICS {
            assert_eq!(page.matches(&format!("# TYPE {name} {kind}\n")).count(), 1, "{name}");
        }
        for line in [
            "rdmascope_start_time_seconds 1.500000000",
            "rdmascope_capture_dropped_frames_total{interface=\"a\\\"b\",by=\"kernel\"} 2",
            "rdmascope_connections{transport=\"rocev2\",protocol=\"smb_direct\"} 2",
            "rdmascope_request_duration_seconds_bucket{transport=\"rocev2\",protocol=\"smb_direct\",command=\"READ\",le=\"0.00001\"} 2",
            "rdmascope_request_duration_seconds_bucket{transport=\"rocev2\",protocol=\"smb_direct\",command=\"READ\",le=\"0.0001\"} 6",
            "rdmascope_request_duration_seconds_bucket{transport=\"rocev2\",protocol=\"smb_direct\",command=\"READ\",le=\"10\"} 6",
            "rdmascope_request_duration_seconds_bucket{transport=\"rocev2\",protocol=\"smb_direct\",command=\"READ\",le=\"+Inf\"} 8",
            "rdmascope_request_duration_seconds_sum{transport=\"rocev2\",protocol=\"smb_direct\",command=\"READ\"} \
                40.000370000",
            "rdmascope_rdma_hw_counter{device=\"mlx5_0\",port=\"1\",counter=\"out_of_sequence\"} 17",
            "rdmascope_forgotten_total{what=\"requests\"} 4",
        ] {
            assert!(page.lines().any(|l| l == line), "{line}\n{page}");
        }
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_there_are() {
        let dashboard = include_str!("../metrics/dashboard.json");
        let named: Vec<&str> = dashboard
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|w| w.starts_with("rdmascope_"))
            .map(|w| w.trim_end_matches("_bucket").trim_end_matches("_count").trim_end_matches("_sum"))
            .collect();
        assert!(named.len() > 15);
        for name in &named {
            assert!(METRICS.iter().any(|m| m.0 == *name), "{name}");
        }
        for (name, ..) in
            METRICS.iter().filter(|m| m.0.contains("dropped") || m.0.contains("findings") || m.0.contains("stall"))
        {
            assert!(named.contains(name), "{name} is on no panel");
        }
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut all = String::new();
        let _ = stream.read_to_string(&mut all);
        all
    }

    /// A server with a deadline so long that a test that waits for it would hang.
    fn server() -> Server {
        Server::with_deadline("127.0.0.1:0".parse().unwrap(), Duration::from_secs(3600)).unwrap()
    }

    fn answer_until<T>(done: &thread::JoinHandle<T>, server: &Server, text: &str) {
        while !done.is_finished() {
            if let Some(asked) = server.asked() {
                asked.answer(text.to_owned());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn who_asks_is_answered_and_nobody_else() {
        let server = server();
        let address = server.address();
        let asking = thread::spawn(move || {
            let got = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            let other = ask(address, "GET / HTTP/1.1\r\n\r\n");
            let post = ask(address, "POST /metrics HTTP/1.1\r\n\r\n");
            let long = ask(address, &format!("GET /{} HTTP/1.1\r\n", "x".repeat(20_000)));
            (got, other, post, long)
        });
        answer_until(&asking, &server, "rdmascope_frames_total 1\n");
        let (got, other, post, long) = asking.join().unwrap();
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\nrdmascope_frames_total 1\n"), "{got}");
        assert!(other.starts_with("HTTP/1.1 404 ") && post.starts_with("HTTP/1.1 405 "));
        // the rest of the reply may still be in transit
        assert!(long.is_empty() || long.starts_with("HTTP/1.1 400 "), "{long}");
    }

    #[test]
    fn those_who_say_nothing_hold_up_nobody() {
        let server = server();
        let address = server.address();
        let silent: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(address).unwrap()).collect();
        let asking = thread::spawn(move || ask(address, "GET /metrics HTTP/1.1\r\n\r\n"));
        answer_until(&asking, &server, "x\n");
        assert!(asking.join().unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
        drop(silent);
    }

    #[test]
    fn names_of_the_machine_write_no_control_characters() {
        let mut page = Page { text: String::new() };
        page.row("x", &[("interface", "eth\u{1b}[2J\n\u{9b}\"")], &1);
        assert_eq!(page.text, "x{interface=\"eth\\\\u{1b}[2J\\n\\\\u{9b}\\\"\"} 1\n");
    }
}
