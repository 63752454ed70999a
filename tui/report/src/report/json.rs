//! The report for programs. Keys are a contract: they are only ever added. Times are numbers, in seconds since the
//! first frame with nine decimals; dates are ISO 8601; sizes are in bytes; values that may not fit a double are hex
//! digits in a string; unknown values are null.
//!
//! A key is declared once, in `object!` of `schema.rs`: from there come the JSON and its schema.

use super::schema::{Counted, Date, Hex, Pair, Seconds, Version, object};
use super::{Detail, ReportData, ending, side};
use rdmascope_analyzer::devices::{Device, Spread};
use rdmascope_analyzer::episodes::time::{Behind, Owner, Time};
use rdmascope_analyzer::episodes::{Cause, Episode, Waiter};
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::{Blame, Finding};
use rdmascope_analyzer::outcome::Outcome;
use rdmascope_analyzer::report::{self as analyzed, Connection, SideReport, Signed};
use rdmascope_analyzer::timeline::{self, Timeline};

/// Number of intervals in the network timeline.
const STRETCHES: usize = 60;
/// The version of this form.
const VERSION: u32 = 2;

/// The whole report as one object.
///
/// # Errors
/// Cannot happen: JSON can express all values.
pub fn render(data: &ReportData) -> serde_json::Result<String> {
    let mut text = crate::output::pretty_json(&Root::of(data))?;
    text.push('\n');
    Ok(text)
}

/// The JSON Schema of the output of [`render`].
pub fn schema() -> serde_json::Value {
    super::schema::document::<Root>("rdmascope analyze")
}

object! {
    /// The report of `rdmascope analyze`.
    struct Root {
        /// Version of this format. Within a version, keys are only added.
        schema: Version<VERSION>,
        /// Version of the program.
        rdmascope: &'static str,
        /// The captures, in the order of the command line.
        inputs: Vec<Input>,
        /// Totals of all captures.
        capture: Capture,
        /// The report in a sentence.
        verdict: VerdictJson,
        /// Waiting times of requests, and their causes; null if none was answered.
        answer: Option<AnswerJson>,
        /// The selection by -Y.
        filter?: Filter,
        /// Findings that --ignore removed.
        ignored?: Vec<Ignored>,
        /// Connections, by number. With -Y, those with a frame that passes.
        connections: Vec<ConnectionJson>,
        /// Findings, the most important first.
        findings: Vec<FindingJson>,
        /// The requests that took longest, over all connections.
        slowest: Vec<Row>,
        /// Events on the network over time, all connections together; null if there were none.
        timeline: Option<TimelineJson>,
        /// SMB sessions, NFS sessions and NFS mounts, and the connections that they used.
        sessions: Vec<Session>,
        /// Progress of each client and server on the way to RDMA.
        paths: Vec<PathJson>,
        /// Counters of RDMA devices that grew during the capture, if it has them.
        hardware: Vec<HardwareJson>,
        /// Numbers of items dropped because of limits.
        dropped: Dropped,
    }
}

object! {
    /// The report in a sentence, as text and HTML have it.
    struct VerdictJson {
        /// failed: a connection failed, or there are errors; warned: there are warnings; clear: no problem was found,
        /// and everything could be judged; open: no problem was found in what could be judged.
        state: &'static str,
        /// The sentences.
        text: String,
        /// Encrypted messages that could not be read.
        unread_messages: u64,
    }
}

impl VerdictJson {
    fn of(data: &ReportData) -> Self {
        let headline = super::headline(data, &data.entries());
        let state = match headline.mark {
            "✗" => "failed",
            "!" => "warned",
            "✓" => "clear",
            _ => "open",
        };
        Self { state, text: headline.text, unread_messages: super::unread(&data.report) }
    }
}

object! {
    /// A counter of an RDMA device that grew while frames were captured.
    struct HardwareJson {
        /// The device, such as mlx5_0.
        device: String,
        /// Its port.
        port: u32,
        /// The counter, as the driver names it.
        counter: String,
        /// Its total growth.
        increase: u64,
        /// Each increase, with its time.
        steps: Vec<(Seconds, u64)>,
    }
}

impl HardwareJson {
    fn of(hardware: &rdmascope_capture::Hardware, row: &rdmascope_capture::HardwareRow, start: i64) -> Self {
        let steps = hardware.steps(row).filter(|(_, n)| *n > 0).map(|(t, n)| (Seconds(t.saturating_sub(start)), n));
        let (device, counter) = (row.counter.device.clone(), row.counter.name.clone());
        Self { device, port: row.counter.port, counter, increase: row.increase(), steps: steps.collect() }
    }
}

object! {
    /// One capture.
    struct Input {
        /// Its name as given.
        path: String,
        /// Frames read from it.
        frames: u64,
        /// Their bytes on the wire.
        bytes: u64,
        /// Time of its first frame.
        first: Option<Seconds>,
        /// Time of its last frame.
        last: Option<Seconds>,
        /// The same as a date, UTC.
        begun: Option<Date>,
        /// The same as a date, UTC.
        ended: Option<Date>,
        /// Its link type.
        link_types: Vec<&'static str>,
        /// Reason why it could not be read to its end.
        error: Option<String>,
    }
}

object! {
    /// Frames of all inputs.
    struct Capture {
        /// Frames.
        frames: u64,
        /// Their bytes on the wire.
        bytes: u64,
        /// Date of the first frame, from which all times count.
        begun: Option<Date>,
        /// Time from the first frame to the last.
        duration: Seconds,
        /// Frames by the highest protocol in them.
        dissected: Counted,
        /// Frames of followed connections that could not be decoded.
        undecoded: u64,
        /// Frames of a link type that is not known: none of them could be decoded.
        unknown_link?: UnknownLink,
        /// Frames that the capture cut short.
        cut: u64,
        /// Packets that were on the wire but not in the capture, by their sequence numbers; of TCP, one for each gap.
        lost_by_capture: u64,
        /// Frames that the capturing machine reports as lost.
        dropped_while_capturing: u64,
        /// Frames that came through a tunnel.
        tunnelled: u64,
        /// Mirror sessions and tunnels.
        mirrors: Vec<Mirror>,
        /// Ethernet pause frames.
        pauses: u64,
        /// Pauses by device and class.
        paused: Vec<PausedJson>,
        /// Packets by class, 0 to 7: the priority of their VLAN tag, else the upper three bits of their DSCP.
        classes: Vec<u64>,
    }
}

object! {
    /// Frames of a link type that is not known.
    struct UnknownLink {
        /// The number of the first such type.
        link_type: u16,
        /// Frames.
        frames: u64,
    }
}

object! {
    /// A mirror session or a tunnel.
    struct Mirror {
        /// Its kind.
        kind: &'static str,
        /// Its number.
        session: u32,
        /// Frames that came through it.
        frames: u64,
        /// Frames that it truncated.
        truncated: u64,
    }
}

impl Mirror {
    fn of(mirror: &rdmascope_analyzer::mirror::Mirror) -> Self {
        Self { kind: mirror.kind.key(), session: mirror.session, frames: mirror.frames, truncated: mirror.truncated }
    }
}

object! {
    /// Pauses of one class by one device. A pause that is not cancelled counts until its quanta run out, at
    /// `link_speed`.
    struct PausedJson {
        /// Ethernet address of the device.
        source: String,
        /// The priority; null for the whole link (802.3x).
        priority: Option<u16>,
        /// Frames that asked to pause.
        frames: u64,
        /// Time of the first.
        first: Seconds,
        /// Its frame.
        first_frame: u64,
        /// Total time.
        paused: Seconds,
        /// The longest.
        longest: Seconds,
        /// Quanta asked for, of 512 bit times each.
        quanta: u64,
        /// The part of `paused` that lasted until quanta ran out: it depends on the link speed.
        ran_out: Seconds,
        /// The link speed used, in bits per second.
        link_speed: u64,
        /// Source of the link speed: capture (if_speed of its interface), smb_interfaces (listed by SMB servers) or
        /// assumed.
        link_speed_from: &'static str,
    }
}

impl PausedJson {
    fn all(capture: &analyzed::Capture, start: i64) -> Vec<Self> {
        let end = capture.last.map_or(start, |at| at.time);
        let row = |row: &rdmascope_analyzer::pauses::Paused| Self {
            source: analyzed::address(&rdmascope_dissector::frame::Addr::Mac(row.source)),
            priority: row.priority.map(u16::from),
            frames: row.frames,
            first: Seconds(row.first.time.saturating_sub(start)),
            first_frame: row.first.frame,
            paused: Seconds(row.time),
            longest: Seconds(row.longest),
            quanta: row.quanta,
            ran_out: Seconds(row.ran_out),
            link_speed: row.speed.bits,
            link_speed_from: row.speed.from.key(),
        };
        capture.paused.rows(end).iter().map(row).collect()
    }
}

object! {
    /// Rate, marks, CNPs, pauses and retransmissions over time: each list has one value per interval.
    struct TimelineJson {
        /// Start of the first interval.
        begin: Seconds,
        /// Length of each interval.
        step: Seconds,
        /// Bytes in frames, of clients and of servers.
        bytes: Pair<Vec<u64>>,
        /// Packets marked congestion experienced.
        marks: Vec<u64>,
        /// Congestion notification packets.
        cnps: Vec<u64>,
        /// Paused time, added up over devices and classes.
        paused: Vec<Seconds>,
        /// Packets and segments that went out again.
        retransmissions: Vec<u64>,
        /// Negative acknowledgments, receiver not ready among them.
        naks: Vec<u64>,
    }
}

impl TimelineJson {
    fn of(data: &ReportData) -> Option<Self> {
        let timeline = Timeline::new(data.report.connections.iter(), &data.report.capture, STRETCHES)?;
        timeline.rows().next()?;
        let list = |value: fn(&timeline::Point) -> u64| timeline.points.iter().map(value).collect();
        Some(Self {
            begin: Seconds(timeline.begin.saturating_sub(data.start())),
            step: Seconds(timeline.step),
            bytes: Pair::of(|end| timeline.points.iter().map(|p| p.bytes[end]).collect()),
            marks: list(|p| p.marks),
            cnps: list(|p| p.cnps),
            paused: timeline.points.iter().map(|p| Seconds(p.paused)).collect(),
            retransmissions: list(|p| p.retransmissions),
            naks: list(|p| p.naks),
        })
    }
}

object! {
    /// Marks of a connection's packets below its transport, and the reaction to congestion.
    struct NetworkJson {
        /// roce_v1, roce_v2_ipv4, roce_v2_ipv6 or infiniband; null on TCP.
        gid: Option<&'static str>,
        /// Path MTU in use, in bytes: the observed one, else the one that the client asked for.
        path_mtu: Option<u16>,
        /// Path MTU that the client asked for (CM REQ), in bytes.
        path_mtu_asked: Option<u16>,
        /// Whether both ends of TCP agreed on ECN; null if their SYNs were not captured, and on RoCE.
        tcp_ecn: Option<bool>,
        /// By end.
        by: Pair<MarkingJson>,
    }
}

object! {
    /// Marks of the packets of one end.
    struct MarkingJson {
        /// Packets.
        packets: u64,
        /// Differentiated services code points.
        dscp: Vec<ValueJson>,
        /// Packets by ECN field.
        ecn: EcnJson,
        /// Priorities of VLAN tags.
        priority: Vec<ValueJson>,
        /// Times to live at the capture point.
        ttl: Vec<ValueJson>,
        /// UDP source ports of RoCEv2, the first eight of them.
        udp_source_ports: Vec<ValueJson>,
        /// Packets with other UDP source ports.
        other_udp_source_ports: u64,
        /// Partition keys.
        p_keys: Vec<ValueJson>,
        /// Service levels of native InfiniBand.
        service_levels: Vec<ValueJson>,
        /// Virtual lanes of native InfiniBand.
        virtual_lanes: Vec<ValueJson>,
        /// Bytes of the largest frame.
        largest_frame: u32,
        /// Congestion notification packets that it sent.
        cnps: CnpsJson,
        /// Its marked packets, and how soon the receiver answered them.
        marks: MarksJson,
        /// Its rate before and during a burst of CNPs; null without one.
        rate: Option<RateJson>,
        /// Values of its TCP; null on RoCE and InfiniBand.
        tcp: Option<TcpJson>,
    }
}

object! {
    /// A value, and how often it occurred.
    struct ValueJson {
        /// The value.
        value: u16,
        /// Number of occurrences.
        packets: u64,
    }
}

object! {
    /// Packets by ECN field.
    struct EcnJson {
        /// Not capable.
        not_ect: u64,
        /// Capable, ECT(1).
        ect_1: u64,
        /// Capable, ECT(0).
        ect_0: u64,
        /// Congestion experienced.
        ce: u64,
    }
}

object! {
    /// Congestion notification packets.
    struct CnpsJson {
        /// Number of packets.
        sent: u64,
        /// Their code points.
        dscp: Vec<ValueJson>,
        /// Priorities of their VLAN tags.
        priority: Vec<ValueJson>,
        /// The shortest time between two.
        shortest_interval: Option<Seconds>,
        /// The mean time between two.
        mean_interval: Option<Seconds>,
    }
}

object! {
    /// Marks, and how soon a CNP answered them.
    struct MarksJson {
        /// Time of the first.
        first: Option<Seconds>,
        /// Time of the last.
        last: Option<Seconds>,
        /// CNPs that came after a mark.
        answered: u64,
        /// CNPs that came later than 10 ms.
        late: u64,
        /// The longest time until a CNP came.
        longest: Seconds,
        /// The mean; null where no CNP came after a mark.
        mean: Option<Seconds>,
    }
}

object! {
    /// The rate of a sender before and during a burst of CNPs, in bytes per second.
    struct RateJson {
        /// Time of the first CNP.
        time: Seconds,
        /// Number of CNPs.
        cnps: u64,
        /// Rate before them.
        before: u64,
        /// Rate during them.
        during: u64,
    }
}

object! {
    /// Values of TCP.
    struct TcpJson {
        /// Maximum segment size that it announced.
        mss: Option<u16>,
        /// Window scale that it announced.
        window_scale: Option<u16>,
        /// The largest window that it announced, not scaled.
        largest_window: u16,
        /// Segments that echo a mark (ECE).
        ece: u64,
        /// Segments that answer such an echo (CWR).
        cwr: u64,
    }
}

fn values(rows: &[(u16, u64)]) -> Vec<ValueJson> {
    rows.iter().map(|(value, packets)| ValueJson { value: *value, packets: *packets }).collect()
}

impl NetworkJson {
    fn of(network: &rdmascope_analyzer::marking::Network, start: i64) -> Self {
        Self {
            gid: network.gid.map(|gid| gid.key()),
            path_mtu: network.path_mtu(),
            path_mtu_asked: network.path_mtu_asked,
            tcp_ecn: network.tcp_ecn(),
            by: Pair::of(|end| MarkingJson::of(&network.directions[end], network.gid.is_none(), start)),
        }
    }
}

impl MarkingJson {
    fn of(d: &rdmascope_analyzer::marking::Direction, is_tcp: bool, start: i64) -> Self {
        let since = |at: rdmascope_analyzer::op::At| Seconds(at.time.saturating_sub(start));
        Self {
            packets: d.packets,
            dscp: values(d.dscp.rows()),
            ecn: EcnJson { not_ect: d.ecn[0], ect_1: d.ecn[1], ect_0: d.ecn[2], ce: d.ecn[3] },
            priority: values(d.priority.rows()),
            ttl: values(d.ttl.rows()),
            udp_source_ports: values(d.ports.rows()),
            other_udp_source_ports: d.ports.others(),
            p_keys: values(d.p_keys.rows()),
            service_levels: values(d.service_levels.rows()),
            virtual_lanes: values(d.lanes.rows()),
            largest_frame: d.largest,
            cnps: CnpsJson {
                sent: d.cnps.count,
                dscp: values(d.cnps.dscp.rows()),
                priority: values(d.cnps.priority.rows()),
                shortest_interval: d.cnps.shortest.map(Seconds),
                mean_interval: d.cnps.mean().map(Seconds),
            },
            marks: MarksJson {
                first: d.marked.map(|(first, _)| since(first)),
                last: d.marked.map(|(_, last)| since(last)),
                answered: d.answers.count,
                late: d.answers.late,
                longest: Seconds(d.answers.longest),
                mean: d.answers.mean().map(Seconds),
            },
            rate: d.pace.reaction().map(|r| RateJson {
                time: since(r.at),
                cnps: r.cnps.into(),
                before: r.before,
                during: r.after,
            }),
            tcp: is_tcp.then(|| TcpJson {
                mss: d.tcp.mss,
                window_scale: d.tcp.window_scale.map(u16::from),
                largest_window: d.tcp.window_most,
                ece: d.tcp.ece,
                cwr: d.tcp.cwr,
            }),
        }
    }
}

object! {
    /// A mirror session that a connection came through.
    struct MirrorName {
        /// Its kind.
        kind: &'static str,
        /// Its number.
        session: u32,
    }
}

object! {
    /// Findings that --ignore removed.
    struct Ignored {
        /// ID of a rule, or ID:SIDE, as given.
        what: String,
        /// Findings taken out.
        findings: u64,
    }
}

object! {
    /// Progress of a client and a server on the way to data that moves by RDMA.
    struct PathJson {
        /// smb or nfs.
        kind: &'static str,
        /// Address of the client.
        client: String,
        /// Address of the server.
        server: String,
        /// Their connections.
        connections: Vec<u32>,
        /// The transport of data: rdma, tcp, both or nothing.
        carried: &'static str,
        /// The questions on the way, in order.
        rungs: Vec<RungJson>,
        /// The interfaces that the server listed, SMB only.
        interfaces: Vec<InterfaceJson>,
        /// The rule of the finding about the first question that was answered with no.
        finding: Option<&'static str>,
    }
}

object! {
    /// A question on the way to RDMA.
    struct RungJson {
        /// dialect, client_multichannel, server_multichannel, interfaces_asked, interfaces_answered, rdma_listed,
        /// address, rdma_tried, rdma_accepted, private_data, negotiated, session, rdma_used or rdma_kept.
        step: &'static str,
        /// yes, no, not_seen or not_needed.
        state: &'static str,
        /// The evidence, in words.
        text: String,
        /// The frame that shows it.
        frame: Option<u64>,
        /// Its time.
        time: Option<Seconds>,
    }
}

object! {
    /// An interface that an SMB server lists.
    struct InterfaceJson {
        /// Its index at the server.
        index: u32,
        /// Its address.
        address: Option<String>,
        /// Bits a second.
        link_speed: u64,
        /// Whether it can spread its receive load.
        rss: bool,
        /// Whether it has RDMA.
        rdma: bool,
    }
}

impl PathJson {
    fn of(path: &rdmascope_analyzer::path::Path, start: i64) -> Self {
        let rungs = path.rungs.iter().map(|rung| RungJson {
            step: rung.step.key(),
            state: rung.state.key(),
            text: rung.text.clone(),
            frame: rung.at.map(|at| at.frame),
            time: rung.at.map(|at| Seconds(at.time.saturating_sub(start))),
        });
        let interfaces = path.interfaces.iter().map(|i| InterfaceJson {
            index: i.index,
            address: i.address.map(|a| a.to_string()),
            link_speed: i.link_speed,
            rss: i.rss,
            rdma: i.rdma,
        });
        Self {
            kind: path.kind.key(),
            client: analyzed::address(&path.client),
            server: analyzed::address(&path.server),
            connections: path.connections.clone(),
            carried: path.carried.key(),
            rungs: rungs.collect(),
            interfaces: interfaces.collect(),
            finding: path.verdict.as_ref().map(|v| v.rule.id()),
        }
    }
}

object! {
    /// A display filter.
    struct Filter {
        /// The filter as given.
        text: String,
        /// Number of frames that pass.
        frames: u64,
    }
}

object! {
    /// A connection.
    struct ConnectionJson {
        /// Its number.
        id: u32,
        /// rocev2, infiniband, iwarp, tcp or unknown.
        transport: &'static str,
        /// smb_direct, rpcrdma, smb2, rpc or unknown.
        protocol: &'static str,
        /// Address of the client.
        client: String,
        /// Address of the server.
        server: String,
        /// Whether it is known which side is the client.
        client_known: bool,
        /// Ports.
        port: Pair<Option<u16>>,
        /// Queue pairs.
        qp: Pair<Option<u32>>,
        /// Its first frame.
        first_frame: u64,
        /// Its last frame.
        last_frame: u64,
        /// Time of the first.
        first: Seconds,
        /// Time of the last.
        last: Seconds,
        /// seen, inferred or pinned.
        handshake: &'static str,
        /// The side that closed it.
        closed_by: Option<&'static str>,
        /// Its end, in words.
        ended: String,
        /// Its outcome; null if it has nothing to do with storage.
        outcome: Option<OutcomeJson>,
        /// The reason of its rejection, in words.
        rejected: Option<String>,
        /// Values negotiated by SMB Direct.
        negotiated: Negotiated,
        /// Values negotiated by SMB2.
        smb: Smb,
        /// Messages of SMB Direct or RPC-over-RDMA.
        messages: Messages,
        /// Credits by end.
        credits: Pair<Credits>,
        /// RDMA.
        rdma: Rdma,
        /// Problems of the transport below.
        transport_health: Health,
        /// Marks of its packets below the transport, and the reaction to congestion.
        network: NetworkJson,
        /// Mirror sessions that it came through.
        mirrors: Vec<MirrorName>,
        /// The episodes that cost most, by time.
        episodes: Vec<EpisodeJson>,
        /// Episodes that are not in that list.
        episodes_omitted: u64,
        /// Reaction times of the adapters; null if nothing went wrong.
        devices: Pair<Option<DeviceJson>>,
        /// The shortest round trip from the capture point to each end, if measured.
        round_trip: Pair<Option<Seconds>>,
        /// The time of its requests by owner. A compound counts once; requests that wait for an event (such as
        /// CHANGE_NOTIFY) do not count.
        time_by_owner: TimeJson,
        /// Requests by command.
        exchanges: Vec<Command>,
        /// Failed requests by command and status.
        failures: Vec<Failure>,
        /// The last request.
        last_exchange: Option<Last>,
        /// With --exchanges, every request.
        exchange_list?: Vec<Row>,
        /// With --credits, the credits of both ends after every message.
        credit_timeline?: Vec<Point>,
    }
}

object! {
    /// The outcome of a connection.
    struct OutcomeJson {
        /// Its purpose: smb_direct, nfs_rdma, smb_tcp, rpc_tcp or rdma.
        purpose: &'static str,
        /// The last stage that it reached: asked, connected, negotiated, session or work.
        reached: &'static str,
        /// open, waiting, closed, refused, no_transport, no_negotiation, no_session, no_mount, no_answer, out_of_credits,
        /// aborted or hung_up.
        ending: &'static str,
        /// Whether it served its purpose: yes, no, replaced (it was refused, and a later one of the same client took
        /// its place) or unknown.
        success: &'static str,
        /// The side that caused a failure: client or server.
        by: Option<&'static str>,
        /// client or server.
        closed_by: Option<&'static str>,
        /// The frame in which it ended, or the last of the capture.
        frame: u64,
        /// Its time.
        time: Seconds,
        /// Waiting time of the side that gave up.
        waited: Seconds,
        /// certain, if_nothing_was_missed or guess.
        certainty: &'static str,
        /// The finding that explains a failure.
        cause: Option<&'static str>,
        /// The outcome as a sentence.
        text: String,
    }
}

impl OutcomeJson {
    fn of(outcome: &Outcome, start: i64) -> Self {
        Self {
            purpose: outcome.purpose.name(),
            reached: outcome.reached.name(),
            ending: outcome.ending.name(),
            success: outcome.success.name(),
            by: outcome.by.map(side),
            closed_by: outcome.closed_by.map(side),
            frame: outcome.at.frame,
            time: Seconds(outcome.at.time.saturating_sub(start)),
            waited: Seconds(outcome.waited),
            certainty: outcome.certainty.name(),
            cause: outcome.cause.map(|(rule, _)| rule.id()),
            text: outcome.sentence(start) + ".",
        }
    }
}

object! {
    /// Values negotiated by SMB Direct, in bytes; null if they were not seen.
    struct Negotiated {
        /// Preferred send size of the client.
        max_send_size_client: Option<u32>,
        /// Preferred send size of the server.
        max_send_size_server: Option<u32>,
        /// Largest message that the client receives.
        max_receive_size_client: Option<u32>,
        /// Largest message that the server receives.
        max_receive_size_server: Option<u32>,
        /// Largest fragmented message that the client receives.
        max_fragmented_size_client: Option<u32>,
        /// Largest fragmented message that the server receives.
        max_fragmented_size_server: Option<u32>,
        /// Largest RDMA Read or Write.
        max_read_write_size: Option<u32>,
        /// Status of the response.
        status: Option<u32>,
    }
}

object! {
    /// Values negotiated by SMB2.
    struct Smb {
        /// The dialect, such as 0x0311.
        dialect: Option<String>,
        /// Session ids.
        sessions: Vec<String>,
        /// Whether all messages are signed that may be, apart from those of the set-up.
        signed: bool,
        /// Signed messages: all, in_part (only those of the set-up, too) or no.
        signing: &'static str,
        /// Whether messages are encrypted.
        encrypted: bool,
        /// Encrypted messages by sender.
        encrypted_messages: Pair<u64>,
    }
}

object! {
    /// Messages.
    struct Messages {
        /// Sent by the client.
        client: u64,
        /// Sent by the server.
        server: u64,
        /// Messages in fragments.
        fragmented: u64,
        /// Number of those fragments.
        fragments: u64,
        /// Keepalives.
        keepalives: u64,
        /// Messages without data.
        empty: u64,
    }
}

object! {
    /// Credits of one end.
    struct Credits {
        /// The most credits that it asked for.
        requested_max: u32,
        /// Credits granted to it in total.
        granted_total: u64,
        /// Credits that it spent.
        spent_total: u64,
        /// The fewest credits that it held.
        held_min: Option<i64>,
        /// Credits that it held at the end.
        held_last: Option<i64>,
        /// Number of times that it waited for credits.
        stalls: u64,
        /// Total waiting time.
        stalled_time: Seconds,
        /// Longest wait.
        stall_longest: Seconds,
        /// Messages sent without a credit.
        overruns: u64,
    }
}

object! {
    /// RDMA.
    struct Rdma {
        /// RDMA Reads.
        reads: u64,
        /// Bytes that they moved.
        read_bytes: u64,
        /// RDMA Writes.
        writes: u64,
        /// Bytes that they moved.
        write_bytes: u64,
        /// Remote keys that were advertised.
        keys_advertised: u64,
        /// Remote keys that a Send with Invalidate invalidated.
        keys_invalidated_remotely: u64,
        /// Operations outside the advertised memory.
        outside_advertised: u64,
    }
}

object! {
    /// Problems of the transport below.
    struct Health {
        /// Packets or segments that went out again.
        retransmissions: u64,
        /// Negative acknowledgments for a gap or an error.
        naks: u64,
        /// Negative acknowledgments because no receive buffer was posted (RNR).
        rnr_naks: u64,
        /// Places where packets were missing.
        sequence_gaps: u64,
        /// Packets that came twice.
        duplicates: u64,
        /// Wrong invariant CRCs.
        icrc_bad: u64,
        /// Wrong MPA CRCs.
        crc_bad: u64,
        /// Packets marked congestion experienced.
        ecn_marked: u64,
        /// Congestion notification packets.
        cnps: u64,
    }
}

object! {
    /// Requests of one command.
    struct Command {
        /// The command.
        command: &'static str,
        /// Requests.
        count: u64,
        /// Requests that failed.
        errors: u64,
        /// Requests without a reply.
        unanswered: u64,
        /// Payload that they moved.
        bytes: u64,
        /// Time from request to reply.
        latency: Latency,
        /// Their total time by reason.
        waits: Waits,
        /// Their total latency by owner.
        time_by_owner: TimeJson,
        /// Time from request to reply without delays by credits, recovery and the like.
        latency_undisturbed: Latency,
    }
}

object! {
    /// Waiting times of requests, and their causes.
    struct AnswerJson {
        /// The same in words.
        text: String,
        /// Total time.
        waited: Seconds,
        /// The total time by owner.
        time_by_owner: TimeJson,
        /// Causes of delay, the most expensive first.
        hindrances: Vec<HindranceJson>,
        /// Latency of the most affected command without these delays.
        relief: Option<ReliefJson>,
    }
}

object! {
    /// A cause of delay: episodes of one kind and direction, on all connections.
    struct HindranceJson {
        /// As in `episodes`.
        kind: &'static str,
        /// As in `episodes`; every kind of loss is `lost`.
        cause: &'static str,
        /// The side whose packets were held up: client or server; null if not known.
        from: Option<&'static str>,
        /// Number of episodes.
        count: u64,
        /// Total time.
        lasted: Seconds,
        /// Time that requests spent in it.
        cost: Seconds,
        /// Packets that were lost, late or missing.
        packets: u64,
        /// Of those, packets of which either the packet or its acknowledgment was lost.
        unsure: u64,
        /// Of those, packets that seem to be acknowledgments.
        acknowledgments: u64,
        /// Start of the first episode.
        first: Seconds,
        /// Start of the last episode.
        last: Seconds,
        /// Connections with such episodes.
        connections: u64,
    }
}

object! {
    /// Latency of a command without delays.
    struct ReliefJson {
        /// The command.
        command: &'static str,
        /// p99, or max where there are too few.
        of: &'static str,
        /// The measured value.
        with: Seconds,
        /// The value without delays.
        without: Seconds,
    }
}

impl AnswerJson {
    fn of(data: &ReportData) -> Option<Self> {
        let found = rdmascope_analyzer::answer::answer(&data.report)?;
        let since = |ns: i64| Seconds(ns.saturating_sub(data.start()));
        let hindrances = found.hindrances.iter().map(|h| HindranceJson {
            kind: h.kind.key(),
            cause: if h.cause == Cause::LostBefore { "lost" } else { h.cause.key() },
            from: h.from.map(|by| super::side(by.index())),
            count: h.count,
            lasted: Seconds(h.lasted),
            cost: Seconds(h.cost),
            packets: h.packets,
            unsure: h.unsure,
            acknowledgments: h.acks,
            first: since(h.first.time),
            last: since(h.last.time),
            connections: h.connections,
        });
        Some(Self {
            text: super::answer::text(&data.report)?,
            waited: Seconds(found.waited),
            time_by_owner: TimeJson::of(&found.time),
            hindrances: hindrances.collect(),
            relief: found.relief.map(|r| ReliefJson {
                command: r.command,
                of: if r.is_p99 { "p99" } else { "max" },
                with: Seconds(r.with),
                without: Seconds(r.without),
            }),
        })
    }
}

object! {
    /// Time by owner; adds up to the whole.
    struct TimeJson {
        /// The client, between its own dependent parts.
        client: Seconds,
        /// Waiting for credits, or for the receive window.
        credit: Seconds,
        /// Waiting in the sender's queue, or between that and the capture point.
        send_queue: Seconds,
        /// On the wire, and the way to the server and back.
        wire: Seconds,
        /// Packets went out again.
        recovery: Seconds,
        /// The receiver was not ready.
        rnr: Seconds,
        /// Pause frames stopped the sender.
        pause: Seconds,
        /// RDMA moved data.
        rdma: Seconds,
        /// The server worked on it.
        server: Seconds,
        /// Unknown: the capture does not show the owner.
        unknown: Seconds,
    }
}

impl TimeJson {
    fn of(time: &Time) -> Self {
        let of = |owner| Seconds(time.of(owner));
        Self {
            client: of(Owner::Client),
            credit: of(Owner::Credit),
            send_queue: of(Owner::SendQueue),
            wire: of(Owner::Wire),
            recovery: of(Owner::Recovery),
            rnr: of(Owner::Rnr),
            pause: of(Owner::Pause),
            rdma: of(Owner::Rdma),
            server: of(Owner::Server),
            unknown: of(Owner::Unknown),
        }
    }
}

object! {
    /// An interval in which a direction of a connection was held up.
    struct EpisodeJson {
        /// Its number on the connection.
        id: u32,
        /// recovery, rnr, credit, pause, congestion, zero_window, silence, nagle, held_up, idle, interrupted or gap.
        kind: &'static str,
        /// The cause: lost_before_capture, lost_behind_capture, unacknowledged, acknowledgment_lost, response_lost,
        /// damaged, wrong_queue_pair, reordered, needless, smb_direct_credits, rpcrdma_credits, smb2_credits, read_depth, read_response, sent_late,
        /// receiver_paused, priority_unknown, other_port or unknown.
        cause: &'static str,
        /// What a recovery began with: nak, rnr_nak, timeout, fast_retransmit, rto or unknown.
        trigger: &'static str,
        /// The side whose packets were held up: client or server; null for both.
        from: Option<&'static str>,
        /// Its start.
        begin: Seconds,
        /// Its end; null if it did not end.
        end: Option<Seconds>,
        /// The frame in which it began.
        first_frame: u64,
        /// The frame in which it ended.
        last_frame: Option<u64>,
        /// Packets that were lost, late or missing.
        packets: u32,
        /// Packets that went out again.
        repeated: u32,
        /// Their bytes.
        bytes: u64,
        /// Time that requests spent in it, added up over requests.
        cost: Seconds,
        /// Requests that waited.
        requests: u32,
        /// Those that waited longest, the longest first: up to three.
        waited: Vec<WaiterJson>,
    }
}

object! {
    /// A request that waited in an episode.
    struct WaiterJson {
        /// Its number.
        exchange: u64,
        /// Its command.
        command: &'static str,
        /// Its first frame.
        first_frame: u64,
        /// The last frame of its reply.
        last_frame: u64,
        /// Time that it waited in the episode.
        time: Seconds,
    }
}

/// Requests' time that the problem of a finding cost, in ns.
fn cost(data: &ReportData, f: &Finding) -> i64 {
    let costs = rdmascope_analyzer::answer::concerned(&data.report, f.rule, f.connection)
        .map(|c| rdmascope_analyzer::answer::cost(c, f.rule, f.by));
    costs.fold(0, i64::saturating_add)
}

impl WaiterJson {
    fn of(w: &Waiter) -> Self {
        Self {
            exchange: w.exchange,
            command: w.command,
            first_frame: w.first,
            last_frame: w.last,
            time: Seconds(w.time),
        }
    }
}

impl EpisodeJson {
    fn of(e: &Episode, start: i64) -> Self {
        let since = |ns: i64| Seconds(ns.saturating_sub(start));
        Self {
            id: e.id,
            kind: e.kind.key(),
            cause: e.cause.key(),
            trigger: e.trigger.key(),
            from: e.by.map(|by| super::side(by.index())),
            begin: since(e.begin.time),
            end: e.end.map(|end| since(end.time)),
            first_frame: e.begin.frame,
            last_frame: e.end.map(|end| end.frame),
            packets: e.packets,
            repeated: e.repeated,
            bytes: e.bytes,
            cost: Seconds(e.cost),
            requests: e.requests,
            waited: e.waiters().map(WaiterJson::of).collect(),
        }
    }
}

object! {
    /// Durations.
    struct SpreadJson {
        /// Number of durations.
        count: u64,
        /// The shortest.
        min: Seconds,
        /// The mean.
        mean: Seconds,
        /// The longest.
        max: Seconds,
    }
}

object! {
    /// Reaction times of the adapter of an end, seen at the capture point; null if not seen.
    struct DeviceJson {
        /// From a packet that showed a gap to its NAK for it.
        nak: Option<SpreadJson>,
        /// From a NAK to the first packet that it sent again.
        resend: Option<SpreadJson>,
        /// From its last packet to the first that it sent again without a NAK.
        timeout: Option<SpreadJson>,
        /// The least and the greatest timeout exponent n that fits: a timeout of 4.096 µs × 2^n ends after one to four
        /// times that.
        timeout_exponents: Option<(u32, u32)>,
        /// From an RNR NAK to the Send that it sent again.
        rnr: Option<SpreadJson>,
        /// The longest time that RNR NAKs asked it to wait.
        rnr_asked: Seconds,
        /// Sends that it repeated before that time was over.
        rnr_early: u64,
        /// Acknowledgments that it sent.
        acks: u64,
        /// Packets that those acknowledged.
        acked: u64,
    }
}

impl DeviceJson {
    fn of(device: Device) -> Self {
        let of = |s: Spread| {
            s.mean().map(|mean| SpreadJson {
                count: s.count,
                min: Seconds(s.least),
                mean: Seconds(mean),
                max: Seconds(s.most),
            })
        };
        Self {
            nak: of(device.nak),
            resend: of(device.resend),
            timeout: of(device.timeout),
            timeout_exponents: device.timeout_exponents(),
            rnr: of(device.rnr),
            rnr_asked: Seconds(device.rnr_asked),
            rnr_early: device.rnr_early,
            acks: device.acks,
            acked: device.acked,
        }
    }
}

object! {
    /// The longest wait of a request besides the server's own work: an episode of its connection, or another request.
    struct BehindJson {
        /// Number of the episode.
        episode: Option<u32>,
        /// Number of the request.
        exchange: Option<u64>,
    }
}

impl BehindJson {
    fn of(behind: Behind) -> Self {
        match behind {
            Behind::Episode(id) => Self { episode: Some(id), exchange: None },
            Behind::Exchange(id) => Self { episode: None, exchange: Some(id) },
        }
    }
}

object! {
    /// Latencies of requests; null if none was answered.
    struct Latency {
        /// The shortest.
        min: Option<Seconds>,
        /// The median.
        median: Option<Seconds>,
        /// The 99th percentile.
        p99: Option<Seconds>,
        /// The longest.
        max: Option<Seconds>,
    }
}

object! {
    /// Latency of a request by place.
    struct Waits {
        /// Waiting for a credit, before the request and within it.
        credit: Seconds,
        /// Waiting for the server.
        server: Seconds,
        /// RDMA.
        rdma: Seconds,
        /// Frames of the request and of the reply.
        wire: Seconds,
    }
}

object! {
    /// Failed requests of one command and one status.
    struct Failure {
        /// The command.
        command: &'static str,
        /// The status, by name where it has one.
        status: String,
        /// Number of requests.
        count: u64,
    }
}

object! {
    /// The last request of a connection.
    struct Last {
        /// The command.
        command: &'static str,
        /// Its first frame.
        frame_request: u64,
        /// Last frame of the reply.
        frame_reply: Option<u64>,
        /// Status of the reply.
        status: Option<String>,
        /// Whether that is a failure.
        failed: bool,
    }
}

object! {
    /// A request.
    struct Row {
        /// Its number.
        id: u64,
        /// Its connection.
        connection: u32,
        /// The command.
        command: &'static str,
        /// Its first frame.
        frame_request: u64,
        /// First frame of the reply.
        frame_reply: Option<u64>,
        /// Its start.
        time: Seconds,
        /// Status of the reply.
        status: Option<String>,
        /// The file, as far as known.
        file: Option<String>,
        /// Offset in the file, in bytes.
        offset: Option<u64>,
        /// Bytes asked for.
        length: Option<u32>,
        /// The path of the payload.
        channel: &'static str,
        /// Memory that it advertised, the first few pieces.
        descriptors: Vec<Descriptor>,
        /// Pieces of memory that it advertised.
        descriptor_count: u32,
        /// RDMA that it caused.
        rdma: Vec<Moved>,
        /// Time from request to reply.
        latency: Option<Seconds>,
        /// The latency by place.
        waits: Waits,
        /// The latency by owner.
        time_by_owner: TimeJson,
        /// Its longest wait.
        behind: Option<BehindJson>,
        /// Waiting for a credit, before the request.
        wait_for_credit: Seconds,
        /// Payload moved.
        bytes_moved: u64,
        /// Packets that went out again meanwhile.
        retransmissions: u32,
        /// Whether there was an interim reply.
        pending: bool,
        /// SHA-256 of the payload, if it is complete; with --exchanges.
        sha256: Option<String>,
        /// Bytes of the payload that are missing; with --exchanges.
        payload_holes: Option<u64>,
    }
}

object! {
    /// A piece of memory.
    struct Descriptor {
        /// Its address.
        offset: Hex,
        /// Its remote key.
        token: u32,
        /// Its length in bytes.
        length: u32,
    }
}

object! {
    /// RDMA of one kind that a request caused.
    struct Moved {
        /// read or write.
        kind: &'static str,
        /// Operations.
        operations: u32,
        /// Packets.
        packets: u32,
        /// The first frame and the last.
        frames: Vec<u64>,
        /// Bytes.
        bytes: u64,
    }
}

object! {
    /// Credits at one moment; null where not known.
    struct Point {
        /// The frame after which they were held.
        frame: u64,
        /// Time of that frame.
        time: Seconds,
        /// Credits of the client.
        client_held: Option<i64>,
        /// Credits of the server.
        server_held: Option<i64>,
    }
}

object! {
    /// A rule that was broken.
    struct FindingJson {
        /// The rule; `rdmascope explain` explains it.
        id: &'static str,
        /// error, warn or note.
        severity: &'static str,
        /// certain, if_nothing_was_missed or guess.
        certainty: &'static str,
        /// The connection, where there is one.
        connection: Option<u32>,
        /// Its first frame.
        frame: u64,
        /// Its time.
        time: Seconds,
        /// client, server, network or capture.
        by: Option<&'static str>,
        /// The rule in a few words.
        title: &'static str,
        /// The first occurrence, as a whole sentence.
        text: String,
        /// The specification and section of the rule.
        spec: &'static str,
        /// Usual causes.
        causes: Vec<&'static str>,
        /// Recommended action.
        action: &'static str,
        /// Number of occurrences.
        count: u64,
        /// Frames of the occurrences, the first few.
        frames: Vec<u64>,
        /// Number of frames that are not in that list.
        frames_omitted: u64,
        /// Time of the last.
        last_time: Seconds,
        /// The finding on the same connection that it follows from.
        root: Option<RootJson>,
        /// Time of requests that it cost, where that is known.
        cost: Seconds,
        /// The page of the rule on the site that --docs-url named.
        page?: String,
    }
}

object! {
    /// The finding that another one follows from.
    struct RootJson {
        /// The rule.
        id: &'static str,
        /// client, server, network or capture; null if not known.
        by: Option<&'static str>,
        /// Its first frame.
        frame: u64,
    }
}

object! {
    /// An SMB session, an NFS session (4.1 and later), or an NFS mount (3, 4.0), over all its connections.
    struct Session {
        /// Its id in hexadecimal; empty for an NFS mount, which has none.
        id: String,
        /// smb, nfs_session or nfs_mount.
        kind: &'static str,
        /// Address of the client.
        client: String,
        /// Address of the server.
        server: String,
        /// Dialect of SMB2 (0x0311 as 785) or version of NFS; null where it was not seen.
        version: Option<u32>,
        /// Whether all messages were signed that may be, apart from those of the set-up.
        signed: bool,
        /// Signed messages: all, in_part (only those of the set-up, too) or no.
        signing: &'static str,
        /// Whether messages were encrypted.
        encrypted: bool,
        /// Connections that it used.
        connections: Vec<u32>,
        /// Requests on all of them.
        requests: u64,
        /// Bytes of files read.
        bytes_read: u64,
        /// Bytes of files written.
        bytes_written: u64,
        /// Each connection, and what it carried.
        channels: Vec<ChannelJson>,
        /// Noteworthy facts, in sentences.
        remarks: Vec<String>,
    }
}

object! {
    /// A connection of a session. It counts all of the connection, also where that carries several sessions.
    struct ChannelJson {
        /// The connection.
        connection: u32,
        /// rocev2, infiniband, iwarp or tcp.
        transport: &'static str,
        /// first, bound or member: how it came to the session.
        role: &'static str,
        /// Requests.
        requests: u64,
        /// Requests with a failing status.
        errors: u64,
        /// Requests without a reply.
        unanswered: u64,
        /// Files opened on it.
        opens: u64,
        /// Locks asked for on it.
        locks: u64,
        /// Bytes of files read.
        bytes_read: u64,
        /// Bytes of files written.
        bytes_written: u64,
        /// Bytes that RDMA moved.
        bytes_by_rdma: u64,
        /// Calls of the server to the client.
        callbacks: u64,
        /// Percentage of the session's bytes; of its requests if there are no bytes.
        share: u64,
        /// Median from request to reply.
        latency_median: Option<Seconds>,
        /// 99 % of the requests took no longer.
        latency_p99: Option<Seconds>,
        /// Packets or segments that went out again.
        retransmissions: u64,
        /// The fewest credits of the transport that the client held.
        credits_min: Option<i64>,
        /// Credits of the transport that the client held at the end.
        credits_last: Option<i64>,
        /// Whether it ended otherwise than by an orderly end of the client.
        broke: bool,
        /// Whether it carries other sessions, too.
        shared: bool,
    }
}

impl Session {
    fn of(session: &rdmascope_analyzer::session::Session) -> Self {
        let (read, written) = session.bytes();
        let channel = |c: &rdmascope_analyzer::session::Channel| ChannelJson {
            connection: c.connection,
            transport: c.transport.map_or("unknown", analyzed::Transport::key),
            role: c.role.key(),
            requests: c.requests,
            errors: c.errors,
            unanswered: c.unanswered,
            opens: c.opens,
            locks: c.locks,
            bytes_read: c.read,
            bytes_written: c.written,
            bytes_by_rdma: c.rdma,
            callbacks: c.callbacks,
            share: session.share(c),
            latency_median: c.latency.quantile(500).map(Seconds),
            latency_p99: c.latency.quantile(990).map(Seconds),
            retransmissions: c.retransmissions,
            credits_min: c.credits.map(|(least, _)| least),
            credits_last: c.credits.map(|(_, last)| last),
            broke: c.broke,
            shared: c.shared,
        };
        Self {
            id: session.id.text(),
            kind: session.id.kind(),
            client: analyzed::address(&session.client),
            server: analyzed::address(&session.server),
            version: Some(session.version).filter(|v| *v > 0),
            signed: session.protected.0 == Signed::All,
            signing: session.protected.0.key(),
            encrypted: session.protected.1,
            connections: session.channels.iter().map(|c| c.connection).collect(),
            requests: session.requests(),
            bytes_read: read,
            bytes_written: written,
            channels: session.channels.iter().map(channel).collect(),
            remarks: session.remarks.clone(),
        }
    }
}

object! {
    /// Numbers of items dropped because of limits.
    struct Dropped {
        /// Connections that are in no list, or of which only a part is.
        connections_not_reported: u64,
        /// Findings that are in no list.
        findings_not_reported: u64,
        /// Rows of exchange_list and points of credit_timeline that are in no list.
        rows_not_listed: u64,
        /// Number of items that were dropped while connections were followed, by kind.
        tables: Counted,
    }
}

impl Root {
    fn of(data: &ReportData) -> Self {
        let start = data.start();
        let since = |ns: i64| Seconds(ns.saturating_sub(start));
        let capture = &data.report.capture;
        let inputs = data.inputs.iter().map(|input| Input {
            path: input.path.clone(),
            frames: input.frames,
            bytes: input.bytes,
            first: input.first.map(since),
            last: input.last.map(since),
            begun: input.first.map(Date),
            ended: input.last.map(Date),
            link_types: input.link_types.iter().map(|l| l.name()).collect(),
            error: input.error.clone(),
        });
        let connections =
            data.report.connections.iter().zip(&data.details).map(|(c, detail)| connection(data, c, detail));
        let sessions = data.sessions.iter().map(Session::of);
        Self {
            schema: Version,
            rdmascope: env!("CARGO_PKG_VERSION"),
            inputs: inputs.collect(),
            capture: Capture {
                frames: capture.frames,
                bytes: capture.bytes,
                begun: capture.first.map(|at| Date(at.time)),
                duration: Seconds(data.length()),
                dissected: Counted(capture.dissected.clone()),
                undecoded: capture.undecoded,
                unknown_link: capture.unknown_link.map(|(link_type, frames)| UnknownLink { link_type, frames }),
                cut: capture.cut,
                lost_by_capture: capture.lost_by_capture,
                dropped_while_capturing: data.lost_frames,
                tunnelled: capture.tunnelled,
                mirrors: capture.mirrors.list().iter().map(Mirror::of).collect(),
                pauses: capture.pauses,
                paused: PausedJson::all(capture, start),
                classes: capture.classes.to_vec(),
            },
            ignored: Some(&data.ignored)
                .filter(|i| !i.is_empty())
                .map(|i| i.iter().map(|(what, n)| Ignored { what: what.to_string(), findings: *n }).collect()),
            verdict: VerdictJson::of(data),
            answer: AnswerJson::of(data),
            filter: data.filter.as_ref().map(|(text, frames)| Filter { text: text.clone(), frames: *frames }),
            connections: connections.collect(),
            findings: findings(data),
            slowest: data.report.slowest.iter().map(|e| row(e, start)).collect(),
            timeline: TimelineJson::of(data),
            sessions: sessions.collect(),
            paths: data.report.paths.iter().map(|path| PathJson::of(path, data.start())).collect(),
            hardware: data
                .hardware
                .grown()
                .into_iter()
                .map(|row| HardwareJson::of(&data.hardware, row, start))
                .collect(),
            dropped: Dropped {
                connections_not_reported: data.report.connections_dropped.max(data.forgotten("connections")),
                findings_not_reported: data.report.findings.dropped(),
                rows_not_listed: data.details_dropped,
                tables: Counted(capture.dropped.clone()),
            },
        }
    }
}

fn connection(data: &ReportData, c: &Connection, detail: &Detail) -> ConnectionJson {
    let start = data.start();
    let since = |ns: i64| Seconds(ns.saturating_sub(start));
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
        outcome: c.outcome.as_ref().map(|o| OutcomeJson::of(o, start)),
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
            signed: c.smb.signed() == Signed::All,
            signing: c.smb.signed().key(),
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
        network: NetworkJson::of(&c.network, start),
        mirrors: data
            .report
            .capture
            .mirrors
            .of(c.mirrors)
            .map(|m| MirrorName { kind: m.kind.key(), session: m.session })
            .collect(),
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
        episodes: c.episodes.list.iter().map(|e| EpisodeJson::of(e, start)).collect(),
        episodes_omitted: c.episodes.omitted,
        devices: Pair::of(|end| Some(c.devices[end]).filter(Device::is_known).map(DeviceJson::of)),
        round_trip: Pair::of(|end| c.round_trip[end].map(Seconds)),
        time_by_owner: TimeJson::of(&c.time),
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
        exchange_list: data.wanted.exchanges.then(|| detail.exchanges.iter().map(|e| row(e, start)).collect()),
        credit_timeline: data.wanted.credits.then(|| {
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
        stalled_time: Seconds(side.stalled_time),
        stall_longest: Seconds(side.stall_longest),
        overruns: side.overruns,
    }
}

fn command(c: &analyzed::Command) -> Command {
    let [credit, server, rdma, wire] = c.waits().map(Seconds);
    let latency = |of: &rdmascope_analyzer::latency::Latency| Latency {
        min: of.min().map(Seconds),
        median: of.quantile(500).map(Seconds),
        p99: of.quantile(990).map(Seconds),
        max: of.max().map(Seconds),
    };
    Command {
        command: c.name,
        count: c.count,
        errors: c.errors,
        unanswered: c.unanswered,
        bytes: c.bytes,
        latency: latency(&c.latency),
        waits: Waits { credit, server, rdma, wire },
        time_by_owner: TimeJson::of(&c.time),
        latency_undisturbed: latency(&c.calm),
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
        time: Seconds(e.request.time.saturating_sub(start)),
        status: e.status.map(|code| super::status(e.family, code)),
        file: e.file.as_deref().map(str::to_owned),
        offset: e.offset,
        length: e.length,
        channel: e.channel.name(),
        descriptors: e
            .descriptors
            .iter()
            .take(e.descriptor_count as usize)
            .map(|d| Descriptor { offset: Hex(d.offset), token: d.token, length: d.length })
            .collect(),
        descriptor_count: e.descriptor_count,
        rdma: moved
            .map(|(kind, m)| Moved {
                kind,
                operations: m.operations,
                packets: m.frames,
                frames: vec![m.first.frame, m.last.frame],
                bytes: m.bytes,
            })
            .collect(),
        latency: e.latency().map(Seconds),
        waits: Waits {
            credit: Seconds(split.credit),
            server: Seconds(split.server),
            rdma: Seconds(split.rdma),
            wire: Seconds(split.wire),
        },
        time_by_owner: TimeJson::of(&e.time),
        behind: e.behind.map(BehindJson::of),
        wait_for_credit: Seconds(e.wait_for_credit),
        bytes_moved: e.bytes_moved,
        retransmissions: e.retransmissions,
        pending: e.pending,
        sha256: e.sha256.map(|hash| hash.iter().map(|b| format!("{b:02x}")).collect()),
        payload_holes: e.payload_holes,
    }
}

/// All findings, the most important first, each with its cause.
fn findings(data: &ReportData) -> Vec<FindingJson> {
    let ranked = data.report.findings.ranked();
    let causes = rdmascope_analyzer::roots::causes(&data.report, &ranked);
    let root = |cause: &Option<usize>| {
        let cause = ranked[(*cause)?];
        Some(RootJson { id: cause.rule.id(), by: known(cause.by), frame: cause.frame })
    };
    ranked.iter().zip(&causes).map(|(f, cause)| finding(data, f, root(cause))).collect()
}

/// The side to blame, if it is known.
fn known(by: Blame) -> Option<&'static str> {
    Some(by).filter(|by| *by != Blame::Unknown).map(Blame::name)
}

fn finding(data: &ReportData, f: &Finding, root: Option<RootJson>) -> FindingJson {
    let (row, start) = (f.rule.row(), data.start());
    FindingJson {
        id: f.rule.id(),
        severity: f.severity.name(),
        certainty: f.certainty.name(),
        connection: f.connection,
        frame: f.frame,
        time: Seconds(f.time_ns.saturating_sub(start)),
        by: known(f.by),
        title: row.title,
        text: rdmascope_analyzer::roots::text(&data.report, f),
        spec: row.spec,
        causes: f.causes(),
        action: f.cure(),
        count: f.count,
        frames: f.frames.to_vec(),
        frames_omitted: f.frames.omitted(),
        last_time: Seconds(f.last_time_ns.saturating_sub(start)),
        root,
        cost: Seconds(cost(data, f)),
        page: data.manual.as_ref().map(|manual| manual.page(f.rule)),
    }
}
