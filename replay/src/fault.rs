//! Faults of a peer, by name: a server that breaks one rule, for tests of clients. Up to the moment of its fault, and
//! after it if the fault allows, it is the built-in peer. Most faults wait for the first READ or WRITE, so that a
//! client is in the middle of its work.

use crate::error::Result;
use crate::smb2::server::{STOP_WITHIN, ServerConnection, Share};
use crate::smb2::{ERROR_BODY, Writer, message, reply_header};
use crate::smbd::{DATA_OFFSET, data_header, data_message};
use crate::stack::{ACCEPT_WITHIN, Config, Event, SmbDirect};
use crate::transport::{Fabric, Fault as Below, Kind, Request, Rights, StartupFault};
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::smb2::header::{Header, flags};
use rdmascope_dissector::wire::smb2::{Command, NtStatus, read_write};
use rdmascope_dissector::wire::smbd::{
    BufferDescriptorV1, DataTransfer, NegotiateRequest, NegotiateResponse, VERSION_1_0, parse_negotiate_request,
};
use std::sync::Arc;
use std::time::Duration;

/// One way to be wrong.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Its name, for a command line.
    pub name: &'static str,
    /// Description for `--list-faults`.
    pub text: &'static str,
    /// True if it is below SMB Direct: not every transport can be made to do it
    /// ([`crate::transport::Kind::faults_below`]).
    pub below: bool,
    act: Act,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// This answers the connection request, and nothing follows.
    Startup(StartupFault),
    /// This answers the Negotiate Request, and nothing follows.
    Negotiate(fn(NegotiateResponse) -> Option<Vec<u8>>),
    /// Applied once SMB Direct is established; everything else is correct.
    Session(fn(&mut SmbDirect)),
    /// Done in place of answering the first READ or WRITE; nothing follows.
    Transfer(fn(&mut SmbDirect, &ReadOrWrite)),
}

/// A READ or WRITE.
#[derive(Clone, Copy, Debug)]
struct ReadOrWrite {
    header: Header,
    /// Bytes.
    length: u32,
    /// The first advertised memory, if there is any.
    memory: BufferDescriptorV1,
}

impl ReadOrWrite {
    fn of(bytes: &[u8]) -> Option<Self> {
        let (_, header) = Header::parse(bytes, &mut Off).ok()?;
        let (length, memory) = match header.command {
            Command::READ => read_write::read_request(bytes, &mut Off)
                .ok()
                .map(|(_, r)| (r.fixed.length, r.channel.descriptors().next()))?,
            Command::WRITE => read_write::write_request(bytes, &mut Off)
                .ok()
                .map(|(_, w)| (w.fixed.remaining_bytes, w.channel.descriptors().next()))?,
            _ => return None,
        };
        Some(Self { header, length, memory: memory.unwrap_or(BufferDescriptorV1 { offset: 0, token: 0, length: 0 }) })
    }

    /// A reply that reports `count` moved bytes.
    fn success(&self, count: u32) -> Vec<u8> {
        let body = match self.header.command {
            Command::READ => Writer::default().u16(17).u8(80).u8(0).u32(0).u32(count).u32(0).0,
            _ => Writer::default().u16(17).u16(0).u32(count).u32(0).u16(0).u16(0).0,
        };
        message(&Header { credits: 8, ..reply_header(&self.header, NtStatus::SUCCESS) }, &body)
    }
}

/// All, in the order of a connection's life.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "silent",
        text: "accepts the TCP connection and sends nothing",
        below: true,
        act: Act::Startup(StartupFault::Silent),
    },
    Fault { name: "reject", text: "refuses in its MPA Reply", below: true, act: Act::Startup(StartupFault::Reject) },
    Fault {
        name: "not-mpa",
        text: "speaks HTTP in place of MPA",
        below: true,
        act: Act::Startup(StartupFault::OtherProtocol),
    },
    Fault {
        name: "no-negotiate",
        text: "never answers the SMB Direct Negotiate Request",
        below: false,
        act: Act::Negotiate(|_| None),
    },
    Fault {
        name: "refuse-negotiate",
        text: "answers the Negotiate Request with STATUS_NOT_SUPPORTED",
        below: false,
        act: Act::Negotiate(|r| {
            emitted(&NegotiateResponse {
                negotiated_version: 0,
                credits_granted: 0,
                status: NtStatus::NOT_SUPPORTED.0,
                ..r
            })
        }),
    },
    Fault {
        name: "short-negotiate",
        text: "answers with a Negotiate Response of 31 bytes",
        below: false,
        act: Act::Negotiate(|r| emitted(&r).map(|b| b[..31].to_vec())),
    },
    Fault {
        name: "no-credits",
        text: "grants no credits in its Negotiate Response",
        below: false,
        act: Act::Negotiate(|r| emitted(&NegotiateResponse { credits_granted: 0, ..r })),
    },
    Fault {
        name: "small-fragments",
        text: "offers a MaxFragmentedSize of 65,536",
        below: false,
        act: Act::Negotiate(|r| emitted(&NegotiateResponse { max_fragmented_size: 65_536, ..r })),
    },
    Fault {
        name: "byte-at-a-time",
        text: "sends every byte in its own TCP segment",
        below: true,
        act: Act::Session(|channel| channel.trickle(1)),
    },
    Fault {
        name: "refuse-credits",
        text: "grants credits when it negotiates, and never again",
        below: false,
        act: Act::Session(|channel| {
            if let Some(smbd) = channel.stack().smbd_mut() {
                smbd.withhold(true);
            }
        }),
    },
    Fault {
        name: "grant-too-much",
        text: "grants 65,535 credits twice",
        below: false,
        act: Act::Session(|channel| {
            for _ in 0..2 {
                send(channel, DataTransfer { credits_granted: u16::MAX, data_offset: 0, ..data_header(0, 0) }, &[]);
            }
        }),
    },
    Fault { name: "stall", text: "answers keepalives and nothing else", below: false, act: Act::Transfer(|_, _| {}) },
    Fault {
        name: "deaf",
        text: "reads and answers nothing, not even keepalives",
        below: false,
        act: Act::Transfer(|channel, _| channel.ignore()),
    },
    Fault {
        name: "half-close",
        text: "closes its direction of the TCP connection",
        below: true,
        act: Act::Transfer(|channel, _| drop(channel.half_close())),
    },
    Fault {
        name: "die",
        text: "disappears in the middle of an FPDU",
        below: true,
        act: Act::Transfer(|channel, _| {
            channel.stack().transport().fault(Below::Part);
            channel.flush();
            channel.abort();
        }),
    },
    Fault {
        name: "garbage",
        text: "sends bytes that are not an FPDU",
        below: true,
        act: Act::Transfer(|channel, _| below(channel, Below::Garbage)),
    },
    Fault {
        name: "bad-crc",
        text: "sends an FPDU with a wrong CRC",
        below: true,
        act: Act::Transfer(|channel, _| below(channel, Below::BadChecksum)),
    },
    Fault {
        name: "wrong-msn",
        text: "skips a message sequence number",
        below: true,
        act: Act::Transfer(|channel, _| below(channel, Below::WrongSequence)),
    },
    Fault {
        name: "bad-lengths",
        text: "sends a DataLength past the end of the message",
        below: false,
        act: Act::Transfer(|channel, _| send(channel, data_header(4000, 0), &[0; 100])),
    },
    Fault {
        name: "bad-offset",
        text: "sends a DataOffset that is not a multiple of 8",
        below: false,
        act: Act::Transfer(|channel, _| {
            send(channel, DataTransfer { data_offset: 25, ..data_header(99, 0) }, &[0; 100])
        }),
    },
    Fault {
        name: "bad-remaining",
        text: "sends fragments whose RemainingDataLength does not fall",
        below: false,
        act: Act::Transfer(|channel, _| {
            for _ in 0..2 {
                send(channel, DataTransfer { remaining_data_length: 500, ..data_header(100, 0) }, &[0; 100]);
            }
        }),
    },
    Fault {
        name: "too-long",
        text: "sends a message longer than the client's MaxReceiveSize",
        below: false,
        act: Act::Transfer(|channel, _| {
            let limit = channel.stack().transport().capabilities().send_max;
            let length = limit.map_or(60_000, |limit| limit - DATA_OFFSET as u32);
            send(channel, data_header(length, 0), &vec![0; length as usize]);
        }),
    },
    Fault {
        name: "not-smb2",
        text: "answers with something other than an SMB2 message",
        below: false,
        act: Act::Transfer(|channel, _| drop(channel.send(vec![0x55; 100], None))),
    },
    Fault {
        name: "wrong-signature",
        text: "answers with an invalid signature",
        below: false,
        act: Act::Transfer(|channel, asked| {
            let head = Header {
                flags: flags::RESPONSE | flags::SIGNED,
                signature: [0x5a; 16],
                ..reply_header(&asked.header, NtStatus::ACCESS_DENIED)
            };
            drop(channel.send(message(&head, &ERROR_BODY), None));
        }),
    },
    Fault {
        name: "wrong-key",
        text: "writes to a key that was never advertised",
        below: false,
        act: Act::Transfer(|channel, asked| {
            write(channel, BufferDescriptorV1 { token: !asked.memory.token, ..asked.memory })
        }),
    },
    Fault {
        name: "out-of-bounds",
        text: "writes or reads past the end of the advertised memory",
        below: false,
        act: Act::Transfer(|channel, asked| {
            let end = asked.memory.offset.wrapping_add(asked.memory.length.into());
            let memory = BufferDescriptorV1 { offset: end.wrapping_sub(8), ..asked.memory };
            if asked.header.command == Command::READ { write(channel, memory) } else { read(channel, memory) }
        }),
    },
    Fault {
        name: "wrong-rights",
        text: "reads memory advertised for writing, and writes into memory advertised for reading",
        below: false,
        act: Act::Transfer(|channel, asked| {
            if asked.header.command == Command::READ {
                read(channel, asked.memory)
            } else {
                write(channel, asked.memory)
            }
        }),
    },
    Fault {
        name: "not-given",
        text: "reads memory that was never advertised",
        below: false,
        act: Act::Transfer(|channel, asked| {
            read(channel, BufferDescriptorV1 { token: !asked.memory.token, ..asked.memory })
        }),
    },
    Fault {
        name: "stale-key",
        text: "answers, then writes to the key of the previous request",
        below: false,
        act: Act::Transfer(|channel, asked| {
            let _ = channel.send(asked.success(0), Some(asked.memory.token));
            write(channel, asked.memory);
        }),
    },
    Fault {
        name: "wrong-invalidate",
        text: "invalidates a key that was never advertised",
        below: false,
        act: Act::Transfer(|channel, asked| drop(channel.send(asked.success(asked.length), Some(!asked.memory.token)))),
    },
    Fault {
        name: "lie",
        text: "reports the full length, and moves nothing",
        below: false,
        act: Act::Transfer(|channel, asked| drop(channel.send(asked.success(asked.length), None))),
    },
    Fault {
        name: "too-much",
        text: "reports more bytes than were asked for",
        below: false,
        act: Act::Transfer(|channel, asked| drop(channel.send(asked.success(asked.length.saturating_add(1)), None))),
    },
];

impl Fault {
    /// The fault with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FAULTS.iter().find(|fault| fault.name == name)
    }

    /// True if a transport can be made to do it.
    pub fn works_over(&self, kind: &Kind) -> bool {
        kind.faults_below || !self.below
    }

    /// Serves one connection, with this fault.
    ///
    /// # Errors
    /// Errors of the network.
    pub fn serve(&self, request: Box<dyn Request>, share: Arc<Share>, config: &Config) -> Result<()> {
        let mut channel = match self.act {
            Act::Startup(fault) => {
                config.acted.add();
                return Ok(request.fault(fault, &config.setup(ACCEPT_WITHIN))?);
            }
            Act::Negotiate(_) => SmbDirect::accept_raw(request, config)?,
            _ => SmbDirect::accept(request, &self.config(config))?,
        };
        self.act(&mut channel, share, config)
    }

    /// The configuration of the connection, adapted to this fault.
    fn config(&self, config: &Config) -> Config {
        let mut config = config.clone();
        if matches!(self.act, Act::Session(_)) {
            config.smbd.receive_credits = config.smbd.receive_credits.min(4);
        }
        config
    }

    /// The transport to listen on: one with checksums for faults that damage bytes, since a receiver recognizes these
    /// only by their checksum.
    pub fn over(&self, transport: Arc<dyn Fabric>) -> Arc<dyn Fabric> {
        match self.act {
            Act::Transfer(_) if self.below => transport.with_checksums().unwrap_or(transport),
            _ => transport,
        }
    }

    fn act(&self, channel: &mut SmbDirect, share: Arc<Share>, config: &Config) -> Result<()> {
        match self.act {
            Act::Startup(_) => Ok(()),
            Act::Negotiate(answer) => {
                let mut answer = Some(answer);
                while !share.is_stopping() {
                    match channel.poll(STOP_WITHIN)? {
                        Some(Event::Raw(bytes)) => {
                            let request = parse_negotiate_request(&bytes, &mut Off).ok().map(|(_, request)| request);
                            let Some((answer, request)) = answer.take().zip(request) else { continue };
                            config.acted.add();
                            if let Some(bytes) = answer(response(&request, config)) {
                                // the pause that software iWARP needs from an acceptor
                                channel.poll(Duration::from_nanos(config.smbd.settle.unsigned_abs()))?;
                                let now = channel.now();
                                channel.stack().send_raw(now, bytes);
                            }
                        }
                        Some(Event::Closed(_)) => return Ok(()),
                        _ => {}
                    }
                }
                channel.close();
                Ok(())
            }
            Act::Session(begin) => self.work(channel, share, config, Some(begin), None),
            Act::Transfer(fail) => self.work(channel, share, config, None, Some(fail)),
        }
    }

    fn work(
        &self,
        channel: &mut SmbDirect,
        share: Arc<Share>,
        config: &Config,
        begin: Option<fn(&mut SmbDirect)>,
        fail: Option<fn(&mut SmbDirect, &ReadOrWrite)>,
    ) -> Result<()> {
        let mut connection = ServerConnection::new(share.clone())?;
        let mut failed = false;
        while !share.is_stopping() {
            let event = channel.poll(STOP_WITHIN)?;
            let now = channel.now();
            match event {
                Some(Event::Established) => {
                    if let Some(begin) = begin {
                        config.acted.add();
                        begin(channel);
                    }
                }
                Some(Event::Message { .. } | Event::ReadDone { .. }) if failed => {}
                Some(Event::Message { bytes, .. }) => match (fail, ReadOrWrite::of(&bytes)) {
                    (Some(fail), Some(asked)) => {
                        failed = true;
                        config.acted.add();
                        fail(channel, &asked);
                    }
                    _ => connection.handle_message(now, &bytes, channel.stack()),
                },
                Some(Event::ReadDone { id }) => connection.handle_read_done(now, id, channel.stack()),
                Some(Event::Closed(_)) => return Ok(()),
                Some(Event::Connected | Event::Raw(_)) | None => {}
            }
            if connection.is_broken() {
                return Ok(());
            }
        }
        channel.close();
        Ok(())
    }
}

fn emitted(response: &NegotiateResponse) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    response.emit(&mut out);
    Some(out)
}

fn response(request: &NegotiateRequest, config: &Config) -> NegotiateResponse {
    NegotiateResponse {
        min_version: VERSION_1_0,
        max_version: VERSION_1_0,
        negotiated_version: VERSION_1_0,
        reserved: 0,
        credits_requested: config.smbd.send_credits,
        credits_granted: config.smbd.receive_credits.min(request.credits_requested),
        status: 0,
        max_read_write_size: config.smbd.max_read_write_size,
        preferred_send_size: config.smbd.max_send_size.min(request.max_receive_size),
        max_receive_size: config.smbd.max_receive_size,
        max_fragmented_size: config.smbd.max_fragmented_size,
    }
}

fn send(channel: &mut SmbDirect, header: DataTransfer, bytes: &[u8]) {
    let now = channel.now();
    channel.stack().send_raw(now, data_message(&header, bytes));
}

/// 16 bytes into the memory described.
fn write(channel: &mut SmbDirect, to: BufferDescriptorV1) {
    // the reaction to this write is what is tested
    let _ = channel.stack().write(to.token, to.offset, &[0xbd; 16]);
}

fn below(channel: &mut SmbDirect, fault: Below) {
    channel.stack().transport().fault(fault);
}

fn read(channel: &mut SmbDirect, from: BufferDescriptorV1) {
    if let Some(sink) = channel.stack().register(vec![0; 64], Rights::LOCAL) {
        // this fails only if the client answers no reads at all, which is then the client's fault
        let _ = channel.stack().read(sink, 0, from.token, from.offset, 16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_their_own() {
        let mut names: Vec<&str> = FAULTS.iter().map(|f| f.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAULTS.len());
        assert!(Fault::named("stall").is_some() && Fault::named("none").is_none());
    }
}
