//! Entry points of the fuzz targets: bytes of a malicious peer pass through the whole of one end. It must not panic,
//! hang, or write outside of registered memory.

use crate::iwarp::{self, Carrier, Endpoint};
use crate::smb2::server;
use crate::smb2::storage::Storage;
use crate::smbd::data_header;
use crate::stack::{Event, Stack};
use crate::transport::Rights;
use rdmascope_dissector::wire::iwarp::ddp::{self, Buffer, Ddp, Untagged};
use rdmascope_dissector::wire::iwarp::mpa;
use rdmascope_dissector::wire::smbd::{DataTransfer, NegotiateRequest, VERSION_1_0};
use std::sync::Arc;

/// Kerberos tokens, tickets, answers of a KDC, credential caches and keytabs; does nothing without the feature.
pub fn fuzz_kerberos(data: &[u8]) {
    #[cfg(feature = "kerberos")]
    crate::kerberos::fuzz(data);
    #[cfg(not(feature = "kerberos"))]
    let _ = data;
}

/// The stream of an iWARP peer. The first byte selects our end, CRC and markers, whether the startup is complete, and
/// the size of the pieces in which the rest arrives.
///
/// # Panics
/// If memory is written to which the peer has no right.
pub fn fuzz_iwarp_receiver(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let bit = |n: u8| first >> n & 1 == 1;
    let config = iwarp::Config { crc: bit(1), markers: bit(2), ..iwarp::Config::default() };
    let mut end = if bit(0) { Endpoint::initiator(0, config) } else { Endpoint::responder(0, config) };
    if bit(3) {
        // without CRC and markers, so that the input gets further
        end.handle_bytes(0, if bit(0) { b"MPA ID Rep Frame\0\x01\0\0" } else { b"MPA ID Req Frame\0\x01\0\0" });
    }
    let local = end.register(vec![0x11; 64], Rights::LOCAL);
    let readable = end.register(vec![0x22; 64], Rights::REMOTE_READ);
    if let (Some(local), Some(readable)) = (local, readable) {
        // waits for an answer, if one is possible
        let _ = end.read(local.key, local.offset, readable.key, readable.offset, 16);
    }
    for piece in rest.chunks(1 + usize::from(first >> 4) * 7) {
        end.handle_bytes(0, piece);
        while end.poll_transmit().is_some() {}
        while end.poll_event().is_some() {}
    }
    end.handle_eof(0);
    end.handle_timeout(i64::MAX);
    while end.poll_transmit().is_some() {}
    while end.poll_event().is_some() {}
    if let Some(readable) = readable {
        assert!(
            end.memory().bytes(readable.key).is_some_and(|bytes| bytes.iter().all(|b| *b == 0x22)),
            "written without a right"
        );
    }
}

/// One end of a RoCEv2 connection, for bytes of its peer.
struct RoceEnd {
    /// 0 for the initiator, 1 for the acceptor.
    us: usize,
    end: crate::roce::Endpoint,
    to_peer: crate::roce::packet::Path,
    from_peer: crate::roce::packet::Path,
}

/// An end as `first` says: initiator (bit 0) or acceptor, established (bit 1) or at the first message of the setup. Its
/// queue pair is 0x11 or 0x12, its communication identifier `comm_id` or the next.
fn roce_end(first: u8, comm_id: u32, config: &crate::roce::Config) -> Option<RoceEnd> {
    use crate::roce::packet::Path;
    use crate::roce::{Endpoint, Numbers, addressed};
    let addresses = [[192, 0, 2, 1], [192, 0, 2, 2]].map(std::net::IpAddr::from);
    let path = |us: usize| Path { local: addresses[us], remote: addresses[1 - us], source_port: 0xc000 };
    let numbers = |end: u32| Numbers { qp: 0x11 + end, comm_id: comm_id + end, psn: 0 };
    let mut client = Endpoint::connect(0, config.clone(), path(0), numbers(0), 40_000, 445, &[]);
    let mut out = Vec::new();
    client.poll_transmit(0, &mut out)?;
    let (_, mad) = addressed(&out)?;
    let mut server = Endpoint::accept(0, config.clone(), path(1), numbers(1), mad).ok()?;
    if first & 2 != 0 {
        for _ in 0..2 {
            out.clear();
            if server.poll_transmit(0, &mut out).is_some() {
                client.handle_datagram(0, 0xc000, false, &out);
            }
            out.clear();
            if client.poll_transmit(0, &mut out).is_some() {
                server.handle_datagram(0, 0xc000, false, &out);
            }
        }
    }
    let (us, end) = if first & 1 != 0 { (0, client) } else { (1, server) };
    Some(RoceEnd { us, end, to_peer: path(us), from_peer: path(1 - us) })
}

/// Datagrams of a RoCEv2 peer, each with two bytes of length before it, little-endian, and a byte that says how it
/// arrives: whether its header is made to fit the connection (bit 0), its CRC is left unchanged (bit 1), with a
/// congestion mark (bit 2), and the delay in ms (the upper four bits). The first byte of all selects our end (bit 0:
/// initiator), and whether the connection is established (bit 1).
///
/// # Panics
/// If memory is written to which the peer has no right.
pub fn fuzz_roce_receiver(data: &[u8]) {
    use crate::roce::{Config, packet};
    use rdmascope_dissector::wire::ib::bth::DEFAULT_P_KEY;
    let Some((first, mut rest)) = data.split_first() else { return };
    let config = Config { path_mtu: 256, ..Config::default() };
    let Some(RoceEnd { us, mut end, from_peer, .. }) = roce_end(*first, 0x11, &config) else { return };
    let mut out = Vec::new();
    let local = end.register(vec![0x11; 64], Rights::LOCAL);
    let readable = end.register(vec![0x22; 64], Rights::REMOTE_READ);
    if let (Some(local), Some(readable)) = (local, readable) {
        // waits for an answer, if one is possible
        let _ = end.read(local.key, local.offset, readable.key, readable.offset, 16);
        let _ = end.send(&[7; 600], None, false);
    }
    let mut now = 0;
    while let Some(([low, high, how], more)) = rest.split_first_chunk::<3>() {
        let (datagram, more) = more.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(more.len()));
        rest = more;
        let mut datagram = datagram.to_vec();
        if how & 1 != 0 && datagram.len() >= 12 {
            datagram[1] &= 0xf0;
            datagram[2..4].copy_from_slice(&DEFAULT_P_KEY.to_be_bytes());
            datagram[5..8].copy_from_slice(&[0, 0, 0x11 + us as u8]);
            datagram.resize(datagram.len().next_multiple_of(4), 0);
        }
        if how & 2 == 0 {
            packet::finish(&from_peer, 0, &mut datagram);
        }
        now += i64::from(how >> 4) * 1_000_000;
        end.handle_datagram(now, 0xc000, how & 4 != 0, &datagram);
        end.handle_timeout(now);
        out.clear();
        while end.poll_transmit(now, &mut out).is_some() {}
        while end.poll_event().is_some() {}
    }
    for _ in 0..100 {
        let Some(at) = end.poll_timeout() else { break };
        now = now.max(at);
        end.handle_timeout(now);
        out.clear();
        while end.poll_transmit(now, &mut out).is_some() {}
    }
    if let Some(readable) = readable {
        assert!(
            end.memory().bytes(readable.key).is_some_and(|bytes| bytes.iter().all(|b| *b == 0x22)),
            "written without a right"
        );
    }
}

/// Management datagrams to an end of a RoCEv2 connection. The first byte selects the end (bit 0: initiator) and the
/// state of the connection (bit 1: established). Each datagram has two bytes before it: its length in units of 4 bytes,
/// and its treatment: bit 0 makes it be for this connection, bit 1 from its peer, bits 4 to 7 are the time that passes
/// before it in units of 2^28 ns. A datagram of length 0 closes the connection.
pub fn fuzz_roce_cm(data: &[u8]) {
    use crate::roce::{Config, Endpoint, Event, Numbers, State, addressed, packet};
    use rdmascope_dissector::wire::ib::bth::{Bth, Opcode};
    use rdmascope_dissector::wire::ib::mad::QP1;
    let Some((first, mut rest)) = data.split_first() else { return };
    let config = Config { cm_retries: 3, ..Config::default() };
    let Some(RoceEnd { us, mut end, to_peer, from_peer }) = roce_end(*first, 0x1111, &config) else { return };
    let mut out = Vec::new();
    let (mut now, mut ends) = (0, 0);
    let mut step = |end: &mut Endpoint, now: i64| {
        end.handle_timeout(now);
        // answers, and retransmissions
        for n in 0.. {
            out.clear();
            if end.poll_transmit(now, &mut out).is_none() {
                break;
            }
            assert!(n < 8, "one message is answered by a flood");
        }
        while let Some(event) = end.poll_event() {
            assert_eq!(ends, 0, "nothing follows the end");
            ends += u32::from(matches!(event, Event::Closed(_)));
        }
    };
    while let Some(([length, how], more)) = rest.split_first_chunk::<2>() {
        let (mad, more) = more.split_at((usize::from(*length) * 4).min(more.len()));
        rest = more;
        now += i64::from(how >> 4) << 28;
        if mad.is_empty() {
            end.close(now);
        }
        let mut mad = mad.to_vec();
        mad.resize(mad.len().max(32), 0);
        // the identifiers of sender and receiver begin each message after the common header
        let ids = [0x1111 + 1 - us as u32, 0x1111 + us as u32].map(u32::to_be_bytes);
        for (bit, at, id) in [(2, 24, ids[0]), (1, 28, ids[1])] {
            if how & bit != 0 {
                mad[at..at + 4].copy_from_slice(&id);
            }
        }
        let mut datagram = Vec::new();
        packet::emit(&from_peer, Bth::new(Opcode::UD_SEND_ONLY, QP1, 0), &packet::DETH, &mad, &mut datagram);
        let _ = addressed(&datagram);
        let _ = (Endpoint::receipt(&to_peer, &mad), Endpoint::disconnect_reply(&to_peer, &mad));
        let _ = Endpoint::accept(now, Config::default(), to_peer, Numbers { qp: 0x13, comm_id: 0x1113, psn: 0 }, &mad);
        end.handle_datagram(now, 0xc000, false, &datagram);
        step(&mut end, now);
    }
    // whatever the input was: the connection ends, and reaches its last state
    end.close(now);
    for _ in 0..50 {
        step(&mut end, now);
        let Some(at) = end.poll_timeout() else { break };
        now = now.max(at);
    }
    assert!(end.is_over() && end.state() == State::Reset, "no end");
}

/// Messages of an SMB Direct client to the built-in peer. The first byte says whether they are whole SMB Direct
/// messages (bit 0) or SMB2 messages that are wrapped here; each has two bytes of length before it, little-endian.
pub fn fuzz_peer(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let files = [("a".to_owned(), vec![7; 5000])];
    let share = Arc::new(server::Share::new("share", Storage::memory(files), true, server::Users::Guests));
    let Ok(mut server) = server::ServerConnection::new(share) else { return };
    let config = iwarp::Config { crc: false, ..iwarp::Config::default() };
    let mut stack =
        Stack::new(crate::smbd::Config::default(), Box::new(Carrier::new(Endpoint::responder(0, config))), false);
    stack.handle_bytes(0, b"MPA ID Req Frame\0\x01\0\0");
    let request = NegotiateRequest {
        min_version: VERSION_1_0,
        max_version: VERSION_1_0,
        reserved: 0,
        credits_requested: 255,
        preferred_send_size: 8192,
        max_receive_size: 8192,
        max_fragmented_size: 1 << 20,
    };
    let mut bytes = Vec::new();
    request.emit(&mut bytes);
    let mut msn = 1;
    let mut message_id = 0;
    deliver(&mut stack, &mut msn, &bytes);
    while let Some((length, more)) = rest.split_first_chunk::<2>() {
        let (message, more) = more.split_at(usize::from(u16::from_le_bytes(*length)).min(more.len()));
        rest = more;
        bytes.clear();
        if first & 1 == 0 {
            DataTransfer { credits_granted: 255, ..data_header(message.len() as u32, 0) }.emit(&mut bytes);
            bytes.resize(24, 0);
        }
        let start = bytes.len();
        bytes.extend_from_slice(message);
        if first & 1 == 0 {
            message_id = numbered(&mut bytes[start..], message_id);
        }
        deliver(&mut stack, &mut msn, &bytes);
        while let Some(event) = stack.poll_event() {
            match event {
                Event::Message { bytes, .. } => server.handle_message(0, &bytes, &mut stack),
                Event::ReadDone { id } => server.handle_read_done(0, id, &mut stack),
                _ => {}
            }
        }
        while stack.poll_transmit(0).is_some() {}
        if server.is_broken() || stack.is_over() {
            return;
        }
    }
}

/// Numbers the requests of a message with MessageIds from `next` on, so that a server with a ledger processes them;
/// returns the next id.
fn numbered(message: &mut [u8], mut next: u64) -> u64 {
    let mut rest = message;
    while rest.len() >= 64 && rest.starts_with(b"\xfeSMB") {
        rest[24..32].copy_from_slice(&next.to_le_bytes());
        next += u64::from(u16::from_le_bytes([rest[6], rest[7]]).max(1));
        match u32::from_le_bytes([rest[20], rest[21], rest[22], rest[23]]) as usize {
            0 => break,
            at => rest = rest.get_mut(at..).unwrap_or_default(),
        }
    }
    next
}

/// One Send of the peer, of any length.
fn deliver(stack: &mut Stack, msn: &mut u32, message: &[u8]) {
    let mut stream = Vec::new();
    let mut at = 0;
    loop {
        let end = (at + 16_000).min(message.len());
        let last = end == message.len();
        let buffer = Buffer::Untagged(Untagged { queue: 0, msn: *msn, offset: at as u32 });
        let mut segment = Vec::new();
        let control = ddp::Control { flags: if last { 0x41 } else { 0x01 } };
        Ddp { control, ulp: 0x43, ulp_word: 0, buffer, payload: &message[at..end] }.emit(&mut segment);
        mpa::emit_fpdu(&segment, false, &mut stream);
        if last {
            break;
        }
        at = end;
    }
    *msn = msn.wrapping_add(1);
    stack.handle_bytes(0, &stream);
}

/// Messages of an SMB Direct server to our endpoint, each with two bytes of length before it, little-endian. The first
/// byte selects our side.
pub fn fuzz_endpoint(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let config = crate::smbd::Config::default();
    let mut end = if first & 1 == 0 {
        crate::smbd::Endpoint::initiator(0, config)
    } else {
        crate::smbd::Endpoint::acceptor(0, config)
    };
    let mut now = 0;
    while let Some((length, more)) = rest.split_first_chunk::<2>() {
        let (message, more) = more.split_at(usize::from(u16::from_le_bytes(*length)).min(more.len()));
        rest = more;
        now += 1_000_000;
        end.handle_message(now, message);
        // refused if nothing was negotiated
        let _ = end.send(now, vec![1; 3000], None);
        while end.poll_transmit(now).is_some() {}
        while end.poll_event().is_some() {}
        if let Some(at) = end.poll_timeout() {
            end.handle_timeout(at.min(now + 1_000_000_000));
        }
    }
}
