//! The conformance probe: cases that an SMB Direct server is put to, by the names of Microsoft's MS-SMBD server suite, so that results can be
//! compared. Each opens a connection of its own and changes nothing on the server.

use crate::channel::{Channel, Config, Event};
use crate::error::{Error, Result};
use crate::smb2::{Writer, header, message};
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::smb2::Command;
use rdmascope_dissector::wire::smbd::{self, DataTransfer, NegotiateRequest, NegotiateResponse, VERSION_1_0};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Seconds until the server must have closed a connection that broke a rule.
const CLOSE_WITHIN: Duration = Duration::from_secs(8);
/// Seconds until it must have answered.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
const NOT_SUPPORTED: u32 = 0xc000_00bb;
/// Credits that the cases ask for.
const CREDITS: u16 = 255;
const MAX_RECEIVE: u32 = 8192;

/// What a case came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the specification says.
    Pass,
    /// Not so.
    Fail(String),
    /// It cannot be tried here.
    NotApplicable(String),
}

impl Verdict {
    /// `pass`, `fail` or `n/a`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::NotApplicable(_) => "n/a",
        }
    }

    /// Why, where it did not pass.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Pass => None,
            Self::Fail(why) | Self::NotApplicable(why) => Some(why),
        }
    }
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name in the suite.
    pub name: &'static str,
    /// The section of \[MS-SMBD\].
    pub section: &'static str,
    /// What is tried, and what is to come of it.
    pub text: &'static str,
    run: fn(&mut Run<'_>) -> Result<Verdict>,
}

/// Who is put to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// What carries it, and how.
    pub config: Config,
    /// Pause between MPA and the first message: Linux's software iWARP misses what comes while it still accepts.
    pub settle: Duration,
}

/// All cases, in order.
pub const CASES: &[Case] = &[
    Case {
        name: "BVT_SmbdNegotiate_Basic",
        section: "3.1.5.6",
        text: "a Negotiate Request is accepted",
        run: |r| r.accepted(request(), 0),
    },
    Case {
        name: "S1_SmbdNegotiate_PreferredSendSize_Zero",
        section: "3.1.5.6",
        text: "PreferredSendSize 0 is accepted",
        run: |r| r.accepted(NegotiateRequest { preferred_send_size: 0, ..request() }, 0),
    },
    Case {
        name: "S1_SmbdNegotiate_PreferredSendSize_LessThan128",
        section: "3.1.5.6",
        text: "PreferredSendSize 127 is accepted",
        run: |r| r.accepted(NegotiateRequest { preferred_send_size: 127, ..request() }, 0),
    },
    Case {
        name: "S1_SmbdNegotiate_PreferredSendSize_UInt32Max",
        section: "3.1.5.6",
        text: "PreferredSendSize 0xffffffff is accepted",
        run: |r| r.accepted(NegotiateRequest { preferred_send_size: u32::MAX, ..request() }, 0),
    },
    Case {
        name: "S1_SmbdNegotiate_Redundancy",
        section: "3.1.5.6",
        text: "492 bytes behind the Negotiate Request are ignored",
        run: |r| r.accepted(request(), 492),
    },
    Case {
        name: "SmbdNegotiate_DisconnectAfterNegotiate",
        section: "3.1.7.1",
        text: "the server serves on after a client went away",
        run: |r| {
            let (channel, _) = r.negotiated(request())?;
            drop(channel);
            r.accepted(request(), 0)
        },
    },
    Case {
        name: "SmbdNegotiate_UncompletedMessage",
        section: "3.1.5.6",
        text: "a Negotiate Request of 19 bytes ends the connection",
        run: |r| {
            let mut bytes = encoded(&request());
            bytes.truncate(19);
            let mut channel = r.connect()?;
            send(&mut channel, bytes);
            closed(&mut channel)
        },
    },
    Case {
        name: "SmbdNegotiate_NegativeParameter_MinVersion",
        section: "3.1.5.6",
        text: "MinVersion 0x0101 is answered with STATUS_NOT_SUPPORTED",
        run: |r| r.unsupported(NegotiateRequest { min_version: 0x0101, max_version: 0x0101, ..request() }),
    },
    Case {
        name: "SmbdNegotiate_NegativeParameter_MaxVersion",
        section: "3.1.5.6",
        text: "MaxVersion 0x00ff is answered with STATUS_NOT_SUPPORTED",
        run: |r| r.unsupported(NegotiateRequest { min_version: 0x00ff, max_version: 0x00ff, ..request() }),
    },
    Case {
        name: "SmbdNegotiate_NegativeParameter_CreditsRequested",
        section: "3.1.5.6",
        text: "CreditsRequested 0 ends the connection",
        run: |r| r.refused(NegotiateRequest { credits_requested: 0, ..request() }),
    },
    Case {
        name: "SmbdNegotiate_NegativeParameter_MaxReceiveSize",
        section: "3.1.5.6",
        text: "MaxReceiveSize 127 ends the connection",
        run: |r| r.refused(NegotiateRequest { max_receive_size: 127, ..request() }),
    },
    Case {
        name: "SmbdNegotiate_NegativeParameter_MaxFragmentedSize",
        section: "3.1.5.6",
        text: "MaxFragmentedSize 131071 ends the connection",
        run: |r| r.refused(NegotiateRequest { max_fragmented_size: 131_071, ..request() }),
    },
    Case {
        name: "SmbdNegotiate_LeastMaxReceiveSize",
        section: "3.1.5.6",
        text: "MaxReceiveSize 128, the least, is accepted",
        run: |r| r.accepted(NegotiateRequest { max_receive_size: 128, ..request() }, 0),
    },
    Case {
        name: "SmbdNegotiate_LeastMaxFragmentedSize",
        section: "3.1.5.6",
        text: "MaxFragmentedSize 131072, the least, is accepted",
        run: |r| r.accepted(NegotiateRequest { max_fragmented_size: 131_072, ..request() }, 0),
    },
    Case {
        name: "SmbdNegotiate_NegotiationTimer",
        section: "3.1.2.1",
        text: "3 s without a Negotiate Request are borne",
        run: |r| {
            let mut channel = r.connect()?;
            match next(&mut channel, Duration::from_secs(3))? {
                Next::Nothing => r.accepted_on(channel, &encoded(&request())),
                _ => Ok(Verdict::Fail("closed before its negotiation timer of 5 s".into())),
            }
        },
    },
    Case {
        name: "SmbdNegotiate_NegotiationTimer_Timeout",
        section: "3.1.6.1",
        text: "without a Negotiate Request the connection ends after 5 s",
        run: |r| {
            let mut channel = r.connect()?;
            closed(&mut channel)
        },
    },
    Case {
        name: "BVT_SmbdDataTransfer_Basic_SendSmallBytesOfData",
        section: "3.1.5.8",
        text: "an SMB2 message in one piece is answered",
        run: |r| r.segments(|message| vec![message.len()], 0),
    },
    Case {
        name: "BVT_SmbdDataTransfer_Basic_SendModerateBytesData",
        section: "3.1.5.8",
        text: "an SMB2 message in segments of 32 bytes is answered",
        run: |r| r.segments(|message| vec![32; message.len().div_ceil(32)], 0),
    },
    Case {
        name: "SmbdDataTransfer_VariableLengthSegment",
        section: "3.1.5.8",
        text: "an SMB2 message in segments of growing length is answered",
        run: |r| r.segments(|_| (1..20).collect(), 0),
    },
    Case {
        name: "SmbdDataTransfer_SmallLengthSegment",
        section: "3.1.5.8",
        text: "an SMB2 message byte by byte is answered",
        run: |r| r.segments(|message| vec![1; message.len()], 0),
    },
    Case {
        name: "SmbdDataTransfer_Redundancy",
        section: "3.1.5.8",
        text: "bytes behind the data are ignored",
        run: |r| r.segments(|message| vec![message.len()], 100),
    },
    Case {
        name: "SmbdDataTransfer_ReceiveMaxReceiveSize",
        section: "3.1.5.8",
        text: "a message as long as MaxReceiveSize is answered",
        run: |r| r.segments(|message| vec![message.len()], usize::MAX),
    },
    Case {
        name: "SmbdDataTransfer_UncompletedMessage",
        section: "3.1.5.8",
        text: "a data transfer message of 19 bytes ends the connection",
        run: |r| r.broken(|header, _| *header, 19),
    },
    Case {
        name: "SmbdDataTransfer_NegativeParameter_DataOffset_Against8ByteAligned",
        section: "3.1.5.8",
        text: "a DataOffset that is no multiple of 8 ends the connection",
        run: |r| r.broken(|h, _| DataTransfer { data_offset: 25, data_length: h.data_length - 1, ..*h }, usize::MAX),
    },
    Case {
        name: "SmbdDataTransfer_NegativeParameter_DataOffset_AgainstMessageLength",
        section: "3.1.5.8",
        text: "a DataOffset behind the message ends the connection",
        run: |r| r.broken(|h, _| DataTransfer { data_offset: 4096, ..*h }, usize::MAX),
    },
    Case {
        name: "SmbdDataTransfer_NegativeParameter_DataLength_AgainstMessageLength",
        section: "3.1.5.8",
        text: "a DataLength past the message ends the connection",
        run: |r| r.broken(|h, _| DataTransfer { data_length: h.data_length + 1, ..*h }, usize::MAX),
    },
    Case {
        name: "SmbdDataTransfer_NegativeParameter_DataLength_AgainstMaxFragmentedSize",
        section: "3.1.5.8",
        text: "more than MaxFragmentedSize ends the connection",
        run: |r| r.broken(|h, agreed| DataTransfer { remaining_data_length: agreed.max_fragmented_size, ..*h }, usize::MAX),
    },
    Case {
        name: "SmbdDataTransfer_IdleConnection_Client",
        section: "3.1.5.8",
        text: "SMB_DIRECT_RESPONSE_REQUESTED is answered within 5 s",
        run: |r| {
            let (mut channel, _) = r.negotiated(request())?;
            let mut bytes = Vec::new();
            DataTransfer { flags: 1, credits_granted: CREDITS, data_offset: 0, ..data_header(0, 0) }.emit(&mut bytes);
            send(&mut channel, bytes);
            match next(&mut channel, Duration::from_secs(5))? {
                Next::Message(_) => Ok(Verdict::Pass),
                Next::Closed => Ok(Verdict::Fail("closed the connection".into())),
                Next::Nothing => Ok(Verdict::Fail("did not answer within 5 s".into())),
            }
        },
    },
    Case {
        name: "SmbdNegotiate_SecondRequest",
        section: "3.1.5.8",
        text: "a second Negotiate Request, which is a data transfer message that makes no sense, does not stop the server",
        run: |r| {
            let (mut channel, _) = r.negotiated(request())?;
            send(&mut channel, encoded(&request()));
            let _ = next(&mut channel, Duration::from_secs(1))?;
            drop(channel);
            r.accepted(request(), 0)
        },
    },
];

/// The cases whose names hold `pattern`, in any case; `*` stands for anything.
pub fn matching(pattern: &str) -> Vec<&'static Case> {
    let pattern = pattern.to_lowercase();
    let parts: Vec<&str> = pattern.split('*').collect();
    CASES
        .iter()
        .filter(|case| {
            let name = case.name.to_lowercase();
            let mut rest = &name[..];
            parts.iter().all(|part| rest.find(part).map(|at| rest = &rest[at + part.len()..]).is_some())
        })
        .collect()
}

impl Case {
    /// Runs it: the verdict, and our wire as pcapng (several connections are several sections; what a card sends is not seen).
    ///
    /// # Errors
    /// Where the server cannot be reached at all.
    pub fn run(&self, target: &Target) -> Result<(Verdict, Vec<u8>)> {
        let wire = Wire::default();
        let mut run = Run { target, wire: wire.clone() };
        let verdict = match (self.run)(&mut run) {
            Ok(verdict) => verdict,
            Err(e @ Error::Connect { .. }) => return Err(e),
            Err(e) => Verdict::Fail(e.to_string()),
        };
        let bytes = core::mem::take(&mut *wire.0.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((verdict, bytes))
    }
}

/// A buffer that a recorder writes to.
#[derive(Clone, Debug, Default)]
struct Wire(Arc<Mutex<Vec<u8>>>);

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What came next.
enum Next {
    Message(Vec<u8>),
    Closed,
    Nothing,
}

/// A case that runs.
struct Run<'a> {
    target: &'a Target,
    wire: Wire,
}

impl Run<'_> {
    /// A connection on which nothing but MPA has passed.
    fn connect(&mut self) -> Result<Channel> {
        let address = self.target.address;
        let failed = |source| Error::Connect { address: address.to_string(), source };
        let mut channel = Channel::connect_raw(address, &self.target.config, Duration::from_secs(5)).map_err(failed)?;
        if !channel.is_card() {
            channel.record(Box::new(self.wire.clone()), "wire")?;
        }
        match channel.poll(Duration::from_secs(10))? {
            Some(Event::Connected) => {}
            Some(Event::Closed(why)) => return Err(why.into()),
            _ => return Err(Error::Timeout { what: "the connection request", seconds: 10 }),
        }
        channel.poll(self.target.settle)?;
        Ok(channel)
    }

    /// A connection on which the request was accepted.
    fn negotiated(&mut self, request: NegotiateRequest) -> Result<(Channel, NegotiateResponse)> {
        let mut channel = self.connect()?;
        send(&mut channel, encoded(&request));
        let Next::Message(bytes) = next(&mut channel, ANSWER_WITHIN)? else {
            return Err(Error::Answer { what: "the Negotiate Request", why: "did not come" });
        };
        match smbd::parse_negotiate_response(&bytes, &mut Off) {
            Ok((_, response)) if response.status == 0 => Ok((channel, response)),
            _ => Err(Error::Answer { what: "the Negotiate Request", why: "is a refusal" }),
        }
    }

    fn accepted(&mut self, request: NegotiateRequest, more: usize) -> Result<Verdict> {
        let mut bytes = encoded(&request);
        bytes.resize(bytes.len() + more, 0);
        let channel = self.connect()?;
        self.accepted_on(channel, &bytes)
    }

    fn accepted_on(&mut self, mut channel: Channel, request: &[u8]) -> Result<Verdict> {
        let asked_receive = smbd::parse_negotiate_request(request, &mut Off).map_or(MAX_RECEIVE, |(_, r)| r.max_receive_size);
        send(&mut channel, request.to_vec());
        let bytes = match next(&mut channel, ANSWER_WITHIN)? {
            Next::Message(bytes) => bytes,
            Next::Closed => return Ok(Verdict::Fail("closed the connection".into())),
            Next::Nothing => return Ok(Verdict::Fail("did not answer".into())),
        };
        let Ok((_, r)) = smbd::parse_negotiate_response(&bytes, &mut Off) else {
            return Ok(Verdict::Fail(format!("answered with {} bytes, which are no Negotiate Response", bytes.len())));
        };
        let wrong = [
            (r.status != 0, "Status"),
            (r.negotiated_version != VERSION_1_0, "NegotiatedVersion"),
            (r.credits_granted == 0, "CreditsGranted"),
            (r.credits_requested == 0, "CreditsRequested"),
            (r.max_receive_size < 128, "MaxReceiveSize"),
            (r.max_fragmented_size < 131_072, "MaxFragmentedSize"),
            (r.preferred_send_size > asked_receive, "PreferredSendSize"),
        ];
        let names: Vec<&str> = wrong.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        channel.finish()?;
        Ok(if names.is_empty() { Verdict::Pass } else { Verdict::Fail(format!("answered with a wrong {}: {r:?}", names.join(", "))) })
    }

    fn unsupported(&mut self, request: NegotiateRequest) -> Result<Verdict> {
        let mut channel = self.connect()?;
        send(&mut channel, encoded(&request));
        Ok(match next(&mut channel, ANSWER_WITHIN)? {
            Next::Message(bytes) => match smbd::parse_negotiate_response(&bytes, &mut Off) {
                Ok((_, r)) if r.status == NOT_SUPPORTED => Verdict::Pass,
                Ok((_, r)) => Verdict::Fail(format!("answered with status {:#010x}", r.status)),
                Err(_) => Verdict::Fail("answered with what is no Negotiate Response".into()),
            },
            Next::Closed => Verdict::Fail("closed the connection without the answer STATUS_NOT_SUPPORTED".into()),
            Next::Nothing => Verdict::Fail("did not answer".into()),
        })
    }

    fn refused(&mut self, request: NegotiateRequest) -> Result<Verdict> {
        let mut channel = self.connect()?;
        send(&mut channel, encoded(&request));
        closed(&mut channel)
    }

    /// An SMB2 NEGOTIATE in segments of these lengths, as far as it goes, with `more` bytes behind each.
    fn segments(&mut self, lengths: impl FnOnce(&[u8]) -> Vec<usize>, more: usize) -> Result<Verdict> {
        let (mut channel, agreed) = self.negotiated(request())?;
        let whole = smb2_negotiate();
        let mut credits = u32::from(agreed.credits_granted);
        let mut lengths = lengths(&whole).into_iter();
        let mut at = 0;
        while at < whole.len() {
            let length = lengths.next().unwrap_or(whole.len()).min(whole.len() - at);
            // the server gives more as it goes, in messages without data
            while credits < 2 {
                match next(&mut channel, ANSWER_WITHIN)? {
                    Next::Message(bytes) => credits += granted(&bytes),
                    Next::Closed => return Ok(Verdict::Fail("closed the connection".into())),
                    Next::Nothing => return Ok(Verdict::NotApplicable(format!("granted {} credits only", agreed.credits_granted))),
                }
            }
            credits -= 1;
            let mut bytes = Vec::new();
            // the first one gives the server the credits to answer with
            let grant = if at == 0 { CREDITS } else { 0 };
            DataTransfer { credits_granted: grant, ..data_header(length as u32, (whole.len() - at - length) as u32) }.emit(&mut bytes);
            bytes.resize(24, 0);
            bytes.extend_from_slice(&whole[at..at + length]);
            let room = (agreed.max_receive_size as usize).saturating_sub(bytes.len());
            bytes.resize(bytes.len() + more.min(room), 0);
            send(&mut channel, bytes);
            at += length;
        }
        let until = Instant::now() + ANSWER_WITHIN;
        loop {
            match next(&mut channel, until.saturating_duration_since(Instant::now()))? {
                Next::Message(bytes) => {
                    if let Ok((_, data)) = smbd::parse_data(&bytes, bytes.len() as u32, &mut Off)
                        && data.data.starts_with(b"\xfeSMB")
                    {
                        return Ok(Verdict::Pass);
                    }
                }
                Next::Closed => return Ok(Verdict::Fail("closed the connection".into())),
                Next::Nothing => return Ok(Verdict::Fail("did not answer the SMB2 NEGOTIATE".into())),
            }
        }
    }

    /// A data transfer message with a wrong header, cut to `length`, which must end the connection.
    fn broken(&mut self, spoil: impl FnOnce(&DataTransfer, &NegotiateResponse) -> DataTransfer, length: usize) -> Result<Verdict> {
        let (mut channel, agreed) = self.negotiated(request())?;
        let whole = smb2_negotiate();
        let header = DataTransfer { credits_granted: CREDITS, ..data_header(whole.len() as u32, 0) };
        let mut bytes = Vec::new();
        spoil(&header, &agreed).emit(&mut bytes);
        bytes.resize(24, 0);
        bytes.extend_from_slice(&whole);
        bytes.truncate(length);
        send(&mut channel, bytes);
        closed(&mut channel)
    }
}

fn request() -> NegotiateRequest {
    NegotiateRequest {
        min_version: VERSION_1_0,
        max_version: VERSION_1_0,
        reserved: 0,
        credits_requested: CREDITS,
        preferred_send_size: 1364,
        max_receive_size: MAX_RECEIVE,
        // more than the least, which ksmbd refuses
        max_fragmented_size: 262_144,
    }
}

fn encoded(request: &NegotiateRequest) -> Vec<u8> {
    let mut out = Vec::new();
    request.emit(&mut out);
    out
}

fn data_header(length: u32, remaining: u32) -> DataTransfer {
    DataTransfer {
        credits_requested: CREDITS,
        credits_granted: 0,
        flags: 0,
        reserved: 0,
        remaining_data_length: remaining,
        data_offset: 24,
        data_length: length,
    }
}

/// An SMB2 NEGOTIATE for dialect 3.0.
fn smb2_negotiate() -> Vec<u8> {
    let body = Writer::default().u16(36).u16(1).u16(1).u16(0).u32(4).bytes(&[0x5a; 16]).u64(0).u16(0x0300).0;
    message(&header(Command::NEGOTIATE, 0), &body)
}

fn granted(message: &[u8]) -> u32 {
    smbd::parse_data(message, message.len() as u32, &mut Off).map_or(0, |(_, d)| d.header.credits_granted.into())
}

fn send(channel: &mut Channel, bytes: Vec<u8>) {
    let now = channel.now();
    channel.lane().send_raw(now, bytes);
}

fn next(channel: &mut Channel, wait: Duration) -> Result<Next> {
    Ok(match channel.poll(wait)? {
        Some(Event::Raw(bytes)) => Next::Message(bytes),
        Some(Event::Closed(_)) => Next::Closed,
        Some(_) | None => Next::Nothing,
    })
}

/// Whether the server closes in time.
fn closed(channel: &mut Channel) -> Result<Verdict> {
    let until = Instant::now() + CLOSE_WITHIN;
    loop {
        match next(channel, until.saturating_duration_since(Instant::now()))? {
            Next::Closed => return Ok(Verdict::Pass),
            Next::Message(bytes) if bytes.len() >= 32 && bytes[0] == 0 => {
                return Ok(Verdict::Fail(format!("answered with {} bytes", bytes.len())));
            }
            Next::Message(bytes) => {
                // credits may come before the end; an answer to what was wrong may not
                if smbd::parse_data(&bytes, bytes.len() as u32, &mut Off).is_ok_and(|(_, d)| !d.data.is_empty()) {
                    return Ok(Verdict::Fail("answered instead of ending the connection".into()));
                }
            }
            Next::Nothing => return Ok(Verdict::Fail(format!("still open after {} s", CLOSE_WITHIN.as_secs()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_found_by_pattern() {
        assert_eq!(matching("").len(), CASES.len());
        assert_eq!(matching("*").len(), CASES.len());
        assert_eq!(matching("preferredsendsize").len(), 3);
        assert_eq!(matching("NegativeParameter*DataOffset").len(), 2);
        assert!(matching("nothing").is_empty());
        let mut names: Vec<&str> = CASES.iter().map(|c| c.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
    }
}
