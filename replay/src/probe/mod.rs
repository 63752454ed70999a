//! The conformance probe: test cases for an SMB Direct server, with the names of Microsoft's MS-SMBD server suite, so
//! that results can be compared, and some of our own. Each opens connections of its own. Only those declared as writing
//! write, into a file that they make and remove.

mod own;

use crate::error::{Error, Result};
use crate::smb2::Credentials;
use crate::smb2::client::{Client, Opened, Options, Pending, access, descriptor, disposition};
use crate::smb2::transform::{self, Crypto};
use crate::smb2::{Writer, header, message};
use crate::smbd::{data_header, data_message};
use crate::stack::{Config, Event, SmbDirect};
use crate::transport::case::{OwnCase, Steps};
use crate::transport::{Fabric, KINDS, Kind, Rights};
use crate::wire::Wire;
use rdmascope_analyzer::keys::{CipherId, Dialect, SigningAlgorithm};
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::smb2::access::file_attribute;
use rdmascope_dissector::wire::smb2::create::options::DELETE_ON_CLOSE;
use rdmascope_dissector::wire::smb2::negotiate::RdmaTransformId;
use rdmascope_dissector::wire::smb2::rdma_channel::{Channel as RdmaChannel, RdmaTransformFixed, TransformType};
use rdmascope_dissector::wire::smb2::{Command, NtStatus};
use rdmascope_dissector::wire::smbd::{
    self, BufferDescriptorV1, DataTransfer, NegotiateRequest, NegotiateResponse, VERSION_1_0,
};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Seconds until the server must have closed a connection that broke a rule.
const CLOSE_WITHIN: Duration = Duration::from_secs(8);
/// Seconds until it must have answered.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// Maximum time in which a server must ask a silent client for a response: Windows and Linux wait 120 s.
const IDLE_WITHIN: Duration = Duration::from_secs(150);
/// Credits that the cases request.
const CREDITS: u16 = 255;
const MAX_RECEIVE: u32 = 8192;

/// Result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server follows the specification.
    Pass,
    /// The server broke the rule; the text describes how.
    Fail(String),
    /// It cannot be tried here.
    NotApplicable(String),
    /// Some runs pass and some fail, depending on the server's timing.
    Unstable(String),
}

impl Verdict {
    /// `pass`, `fail`, `n/a` or `unstable`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::NotApplicable(_) => "n/a",
            Self::Unstable(_) => "unstable",
        }
    }

    /// The reason for which it did not pass; `None` if it did.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Pass => None,
            Self::Fail(why) | Self::NotApplicable(why) | Self::Unstable(why) => Some(why),
        }
    }
}

/// A case of the probe.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name in the suite.
    pub name: &'static str,
    /// The section of \[MS-SMBD\], or of the specification that it names.
    section: &'static str,
    /// Description of the case and of the required behaviour of the server.
    pub text: &'static str,
    /// It takes minutes: it waits for a timer of the server's.
    pub slow: bool,
    /// It leaves the server a connection that ends in the middle of negotiation. ksmbd (Linux 7.2) loses a place of its
    /// listen backlog with each.
    pub dies_negotiating: bool,
    way: Way,
}

/// How a case is run.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Over any transport.
    OverAny(fn(&mut Run<'_>) -> Result<Verdict>),
    /// Over this one alone.
    Over(&'static Kind, Steps),
}

/// A case that needs no particular transport: a row of `CASES`.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    section: &'static str,
    text: &'static str,
    slow: bool,
    dies_negotiating: bool,
    run: fn(&mut Run<'_>) -> Result<Verdict>,
}

impl From<Row> for Case {
    fn from(row: Row) -> Self {
        let Row { name, section, text, slow, dies_negotiating, run } = row;
        Self { name, section, text, slow, dies_negotiating, way: Way::OverAny(run) }
    }
}

impl Case {
    /// Specification and section: `[MS-SMBD] 3.1.5.6`.
    pub fn spec(&self) -> String {
        if self.section.starts_with('[') { self.section.to_owned() } else { format!("[MS-SMBD] {}", self.section) }
    }
}

/// The server to test, and how.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address and port of the server.
    pub address: SocketAddr,
    /// The transport and its options.
    pub config: Config,
    /// Pause between MPA and the first message, and before each connection: Linux's software iWARP misses packets that
    /// arrive while it still accepts.
    pub settle: Duration,
    /// Credentials of the session, for the cases of SMB2 over the RDMA channel.
    pub who: Credentials,
    /// The share that they use.
    pub share: String,
    /// True if cases may write, into a file that they make and remove.
    pub writes: bool,
}

impl Target {
    /// A server, with default options: an anonymous session that writes nothing.
    pub fn new(address: SocketAddr) -> Self {
        let (config, who) = (Config::default(), Credentials::Anonymous);
        Self { address, config, settle: Duration::ZERO, who, share: "share".into(), writes: false }
    }
}

impl Target {
    /// True if the server still takes a connection and negotiates. A busy one gets a second chance.
    pub fn answers(&self) -> bool {
        (0..2).any(|_| {
            let Ok(wire) = Wire::new(Box::new(io::sink()), "wire") else { return false };
            matches!(Run { target: self, wire }.accepted(request(), 0), Ok(Verdict::Pass))
        })
    }
}

/// The file that cases write to.
const SCRATCH: &str = "rdmascope-probe.tmp";

/// All cases, in order, followed by those of each transport.
pub fn all() -> impl Iterator<Item = Case> {
    let own = |kind: &'static Kind| {
        kind.cases.iter().map(move |case| {
            let OwnCase { name, section, text, dies_negotiating, steps } = *case;
            Case { name, section, text, slow: false, dies_negotiating, way: Way::Over(kind, steps) }
        })
    };
    CASES.iter().map(|row| Case::from(*row)).chain(KINDS.iter().flat_map(own))
}

/// The cases that need no particular transport.
const CASES: &[Row] = &[
    Row {
        name: "BVT_SmbdNegotiate_Basic",
        section: "3.1.5.6",
        text: "a Negotiate Request is accepted",
        slow: false,
        dies_negotiating: false,
        run: |r| r.accepted(request(), 0),
    },
    Row {
        name: "S1_SmbdNegotiate_PreferredSendSize_Zero",
        section: "3.1.5.6",
        text: "PreferredSendSize 0 is accepted",
        slow: false,
        dies_negotiating: false,
        run: |r| r.accepted(NegotiateRequest { preferred_send_size: 0, ..request() }, 0),
    },
    Row {
        name: "S1_SmbdNegotiate_PreferredSendSize_LessThan128",
        section: "3.1.5.6",
        text: "PreferredSendSize 127 is accepted",
        slow: false,
        dies_negotiating: false,
        run: |r| r.accepted(NegotiateRequest { preferred_send_size: 127, ..request() }, 0),
    },
    Row {
        name: "S1_SmbdNegotiate_PreferredSendSize_UInt32Max",
        section: "3.1.5.6",
        text: "PreferredSendSize 0xffffffff is accepted",
        slow: false,
        dies_negotiating: false,
        run: |r| r.accepted(NegotiateRequest { preferred_send_size: u32::MAX, ..request() }, 0),
    },
    Row {
        name: "S1_SmbdNegotiate_Redundancy",
        section: "3.1.5.6",
        text: "492 bytes behind the Negotiate Request are ignored",
        slow: false,
        dies_negotiating: false,
        run: |r| r.accepted(request(), 492),
    },
    Row {
        name: "SmbdNegotiate_DisconnectAfterNegotiate",
        section: "3.1.7.1",
        text: "the server goes on after a client disappeared",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            let (channel, _) = r.negotiated(request())?;
            drop(channel);
            r.accepted(request(), 0)
        },
    },
    Row {
        name: "SmbdNegotiate_UncompletedMessage",
        section: "3.1.5.6",
        text: "a Negotiate Request of 19 bytes ends the connection",
        slow: false,
        dies_negotiating: true,
        run: |r| {
            let mut bytes = encoded(&request());
            bytes.truncate(19);
            let mut channel = r.connect()?;
            send(&mut channel, bytes);
            closed(&mut channel)
        },
    },
    Row {
        name: "SmbdNegotiate_NegativeParameter_MinVersion",
        section: "3.1.5.6",
        text: "MinVersion 0x0101 is answered with STATUS_NOT_SUPPORTED",
        slow: false,
        dies_negotiating: true,
        run: |r| r.unsupported(NegotiateRequest { min_version: 0x0101, max_version: 0x0101, ..request() }),
    },
    Row {
        name: "SmbdNegotiate_NegativeParameter_MaxVersion",
        section: "3.1.5.6",
        text: "MaxVersion 0x00ff is answered with STATUS_NOT_SUPPORTED",
        slow: false,
        dies_negotiating: true,
        run: |r| r.unsupported(NegotiateRequest { min_version: 0x00ff, max_version: 0x00ff, ..request() }),
    },
    Row {
        name: "SmbdNegotiate_NegativeParameter_CreditsRequested",
        section: "3.1.5.6",
        text: "CreditsRequested 0 ends the connection",
        slow: false,
        dies_negotiating: true,
        run: |r| r.refused(NegotiateRequest { credits_requested: 0, ..request() }),
    },
    Row {
        name: "SmbdNegotiate_NegativeParameter_MaxReceiveSize",
        section: "3.1.5.6",
        text: "MaxReceiveSize 127 ends the connection",
        slow: false,
        dies_negotiating: true,
        run: |r| r.refused(NegotiateRequest { max_receive_size: 127, ..request() }),
    },
    Row {
        name: "SmbdNegotiate_NegativeParameter_MaxFragmentedSize",
        section: "3.1.5.6",
        text: "MaxFragmentedSize 131071 ends the connection",
        slow: false,
        dies_negotiating: true,
        run: |r| r.refused(NegotiateRequest { max_fragmented_size: 131_071, ..request() }),
    },
    Row {
        name: "SmbdNegotiate_LeastMaxReceiveSize",
        section: "3.1.5.6",
        text: "MaxReceiveSize 128, the minimum, is accepted",
        slow: false,
        dies_negotiating: false,
        run: |r| r.accepted(NegotiateRequest { max_receive_size: 128, ..request() }, 0),
    },
    Row {
        name: "SmbdNegotiate_LeastMaxFragmentedSize",
        section: "3.1.5.6",
        text: "MaxFragmentedSize 131072, the minimum, is accepted",
        slow: false,
        dies_negotiating: false,
        run: |r| r.accepted(NegotiateRequest { max_fragmented_size: 131_072, ..request() }, 0),
    },
    Row {
        name: "SmbdNegotiate_NegotiationTimer",
        section: "3.1.2.1",
        text: "the connection survives 3 s without a Negotiate Request",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            let mut channel = r.connect()?;
            match next(&mut channel, Duration::from_secs(3))? {
                Next::Nothing => accepted_on(channel, &encoded(&request())),
                _ => Ok(Verdict::Fail("closed before its negotiation timer of 5 s".into())),
            }
        },
    },
    Row {
        name: "SmbdNegotiate_NegotiationTimer_Timeout",
        section: "3.1.6.1",
        text: "without a Negotiate Request the connection ends after 5 s",
        slow: false,
        dies_negotiating: true,
        run: |r| {
            let mut channel = r.connect()?;
            closed(&mut channel)
        },
    },
    Row {
        name: "BVT_SmbdDataTransfer_Basic_SendSmallBytesOfData",
        section: "3.1.5.8",
        text: "an SMB2 message in one piece is answered",
        slow: false,
        dies_negotiating: false,
        run: |r| r.segments(|message| vec![message.len()], 0),
    },
    Row {
        name: "BVT_SmbdDataTransfer_Basic_SendModerateBytesData",
        section: "3.1.5.8",
        text: "an SMB2 message in segments of 32 bytes is answered",
        slow: false,
        dies_negotiating: false,
        run: |r| r.segments(|message| vec![32; message.len().div_ceil(32)], 0),
    },
    Row {
        name: "SmbdDataTransfer_VariableLengthSegment",
        section: "3.1.5.8",
        text: "an SMB2 message in segments of growing length is answered",
        slow: false,
        dies_negotiating: false,
        run: |r| r.segments(|_| (1..20).collect(), 0),
    },
    Row {
        name: "SmbdDataTransfer_SmallLengthSegment",
        section: "3.1.5.8",
        text: "an SMB2 message byte by byte is answered",
        slow: false,
        dies_negotiating: false,
        run: |r| r.segments(|message| vec![1; message.len()], 0),
    },
    Row {
        name: "SmbdDataTransfer_Redundancy",
        section: "3.1.5.8",
        text: "bytes behind the data are ignored",
        slow: false,
        dies_negotiating: false,
        run: |r| r.segments(|message| vec![message.len()], 100),
    },
    Row {
        name: "SmbdDataTransfer_ReceiveMaxReceiveSize",
        section: "3.1.5.8",
        text: "a message as long as MaxReceiveSize is answered",
        slow: false,
        dies_negotiating: false,
        run: |r| r.segments(|message| vec![message.len()], usize::MAX),
    },
    Row {
        name: "SmbdDataTransfer_UncompletedMessage",
        section: "3.1.5.8",
        text: "a data transfer message of 19 bytes ends the connection",
        slow: false,
        dies_negotiating: false,
        run: |r| r.broken(|header, _| *header, 19),
    },
    Row {
        name: "SmbdDataTransfer_NegativeParameter_DataOffset_Against8ByteAligned",
        section: "3.1.5.8",
        text: "a DataOffset that is not a multiple of 8 ends the connection",
        slow: false,
        dies_negotiating: false,
        run: |r| r.broken(|h, _| DataTransfer { data_offset: 25, data_length: h.data_length - 1, ..*h }, usize::MAX),
    },
    Row {
        name: "SmbdDataTransfer_NegativeParameter_DataOffset_AgainstMessageLength",
        section: "3.1.5.8",
        text: "a DataOffset past the message ends the connection",
        slow: false,
        dies_negotiating: false,
        run: |r| r.broken(|h, _| DataTransfer { data_offset: 4096, ..*h }, usize::MAX),
    },
    Row {
        name: "SmbdDataTransfer_NegativeParameter_DataLength_AgainstMessageLength",
        section: "3.1.5.8",
        text: "a DataLength past the message ends the connection",
        slow: false,
        dies_negotiating: false,
        run: |r| r.broken(|h, _| DataTransfer { data_length: h.data_length + 1, ..*h }, usize::MAX),
    },
    Row {
        name: "SmbdDataTransfer_NegativeParameter_DataLength_AgainstMaxFragmentedSize",
        section: "3.1.5.8",
        text: "more than MaxFragmentedSize ends the connection",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.broken(|h, agreed| DataTransfer { remaining_data_length: agreed.max_fragmented_size, ..*h }, usize::MAX)
        },
    },
    Row {
        name: "SmbdDataTransfer_IdleConnection_Client",
        section: "3.1.5.8",
        text: "SMB_DIRECT_RESPONSE_REQUESTED is answered within 5 s",
        slow: false,
        dies_negotiating: false,
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
    Row {
        name: "SmbdNegotiate_SecondRequest",
        section: "3.1.5.8",
        text: "a second Negotiate Request, which is an invalid data transfer message, does not stop the server",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            let (mut channel, _) = r.negotiated(request())?;
            send(&mut channel, encoded(&request()));
            let _ = next(&mut channel, Duration::from_secs(1))?;
            drop(channel);
            r.accepted(request(), 0)
        },
    },
    Row {
        name: "SmbdDataTransfer_NegativeParameter_RemainingDataLength_Greater",
        section: "3.1.5.8",
        text: "a second fragment with a greater RemainingDataLength than the first left ends the connection",
        slow: false,
        dies_negotiating: false,
        run: |r| r.fragments(60, 10),
    },
    Row {
        name: "SmbdDataTransfer_NegativeParameter_RemainingDataLength_Less",
        section: "3.1.5.8",
        text: "a second fragment with a smaller RemainingDataLength than the first left ends the connection",
        slow: false,
        dies_negotiating: false,
        run: |r| r.fragments(60, -10),
    },
    Row {
        name: "SmbdDataTransfer_InterleavedMessage",
        section: "3.1.5.8",
        text: "a whole message between the fragments of another ends the connection",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            let (mut channel, _) = r.negotiated(request())?;
            let whole = smb2_negotiate();
            for (piece, remaining) in [(&whole[..60], whole.len() - 60), (&whole[..], 0)] {
                let header = DataTransfer { credits_granted: 64, ..data_header(piece.len() as u32, remaining as u32) };
                send(&mut channel, data_message(&header, piece));
            }
            closed(&mut channel)
        },
    },
    Row {
        name: "SmbdDataTransfer_IdleConnection_Server",
        section: "3.1.6.2",
        text: "a silent client is asked for a response",
        slow: true,
        dies_negotiating: false,
        run: |r| {
            let (mut channel, _) = r.negotiated(request())?;
            grant(&mut channel, CREDITS, 0);
            Ok(match asked(&mut channel, IDLE_WITHIN)? {
                KeepaliveSeen::Yes => Verdict::Pass,
                KeepaliveSeen::Closed => Verdict::Fail("closed the connection without asking".into()),
                KeepaliveSeen::No => Verdict::Fail(format!("did not ask within {} s", IDLE_WITHIN.as_secs())),
            })
        },
    },
    Row {
        name: "SmbdDataTransfer_IdleConnection_Server_Timeout",
        section: "3.1.6.2",
        text: "a client that does not answer when asked is let go within seconds",
        slow: true,
        dies_negotiating: false,
        run: |r| {
            let (mut channel, _) = r.negotiated(request())?;
            grant(&mut channel, CREDITS, 0);
            match asked(&mut channel, IDLE_WITHIN)? {
                KeepaliveSeen::Yes => closed(&mut channel),
                KeepaliveSeen::Closed => Ok(Verdict::Fail("closed the connection without asking".into())),
                KeepaliveSeen::No => {
                    Ok(Verdict::NotApplicable(format!("did not ask within {} s", IDLE_WITHIN.as_secs())))
                }
            }
        },
    },
    Row {
        name: "BVT_SmbdCreditMgmt_OperationWithMinimumCredits",
        section: "3.1.5.9",
        text: "CreditsRequested 1: an SMB2 message in one piece is answered",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.segments_with(NegotiateRequest { credits_requested: 1, ..request() }, |message| vec![message.len()], 0)
        },
    },
    Row {
        name: "SmbdCreditMgmt_OperationWithLimitedCredits",
        section: "3.1.5.9",
        text: "CreditsRequested 10: an SMB2 message in segments of 16 bytes is answered",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.segments_with(
                NegotiateRequest { credits_requested: 10, ..request() },
                |message| vec![16; message.len().div_ceil(16)],
                0,
            )
        },
    },
    Row {
        name: "SmbdCreditMgmt_ConsumeAllSendCredits",
        section: "3.1.5.9",
        text: "CreditsRequested 8, and many more segments: the server grants credits as they are used up",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.segments_with(NegotiateRequest { credits_requested: 8, ..request() }, |message| vec![1; message.len()], 0)
        },
    },
    Row {
        name: "SmbdCreditMgmt_ConsumeAllReceiveCredits",
        section: "3.1.5.1",
        text: "with 4 credits the server sends at most 4 messages, and goes on when it gets more",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            let (mut channel, _) = r.negotiated(request())?;
            for n in 0..12 {
                grant(&mut channel, if n == 0 { 4 } else { 0 }, 1);
            }
            let mut came = 0;
            loop {
                match next(&mut channel, Duration::from_secs(1))? {
                    Next::Message(_) => came += 1,
                    Next::Nothing => break,
                    Next::Closed => return Ok(Verdict::Fail("closed the connection".into())),
                }
            }
            if came > 4 {
                return Ok(Verdict::Fail(format!("sent {came} messages with 4 credits")));
            }
            grant(&mut channel, 64, 1);
            Ok(match next(&mut channel, ANSWER_WITHIN)? {
                Next::Message(_) => Verdict::Pass,
                Next::Closed => Verdict::Fail("closed the connection when it was granted more".into()),
                Next::Nothing => Verdict::Fail("did not go on when it was granted more".into()),
            })
        },
    },
    Row {
        name: "SmbdCreditMgmt_ConsumeAllCreditServer_Timeout",
        section: "3.1.6.2",
        text: "a server with an answer but no credits to send it ends the connection within 150 s (Windows: 5 s)",
        slow: true,
        dies_negotiating: false,
        run: |r| {
            // so little fits into a message that the answer to NEGOTIATE takes more of them than are granted
            let request = NegotiateRequest { max_receive_size: 136, ..request() };
            let (mut channel, _) = r.negotiated(request)?;
            let whole = smb2_negotiate();
            send(
                &mut channel,
                data_message(&DataTransfer { credits_granted: 2, ..data_header(whole.len() as u32, 0) }, &whole),
            );
            let (until, mut came) = (Instant::now() + IDLE_WITHIN, 0);
            loop {
                match next_until(&mut channel, until)? {
                    Next::Message(_) => came += 1,
                    Next::Closed => return Ok(Verdict::Pass),
                    Next::Nothing => return Ok(Verdict::Fail(format!("still open after {} s", IDLE_WITHIN.as_secs()))),
                }
                if came > 2 {
                    return Ok(Verdict::Fail("sent more messages than it was granted credits".into()));
                }
            }
        },
    },
    Row {
        name: "SmbdCreditMgmt_NegativeParameter_CreditRequested",
        section: "3.1.5.8",
        text: "a data transfer message with CreditsRequested 0 ends the connection",
        slow: false,
        dies_negotiating: false,
        run: |r| r.broken(|h, _| DataTransfer { credits_requested: 0, ..*h }, usize::MAX),
    },
    Row {
        name: "SmbdCreditMgmt_GrantsOverflow",
        section: "3.1.5.8",
        text: "65,535 credits granted three times do not stop the server",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            let (mut channel, _) = r.negotiated(request())?;
            for _ in 0..3 {
                grant(&mut channel, u16::MAX, 0);
            }
            let _ = next(&mut channel, Duration::from_secs(1))?;
            drop(channel);
            r.serves_on()
        },
    },
    Row {
        name: "SmbdCreditMgmt_SendWithoutCredit",
        section: "3.1.5.1",
        text: "600 messages sent without credits do not stop the server",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            let (mut channel, _) = r.negotiated(request())?;
            for _ in 0..600 {
                grant(&mut channel, 0, 0);
            }
            let _ = next(&mut channel, Duration::from_secs(1))?;
            drop(channel);
            r.serves_on()
        },
    },
    Row {
        name: "BVT_Smb2OverRdmaChannel_ReadLargeFile",
        section: "3.1.4.5",
        text: "a READ over RDMA returns the same data as a READ inside messages",
        slow: false,
        dies_negotiating: false,
        run: |r| r.reads_large(),
    },
    Row {
        name: "BVT_Smb2OverRdmaChannel_WriteLargeFile",
        section: "3.1.4.6",
        text: "data of a WRITE over RDMA is read back (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| r.with_file(Dialect::SMB_3_1_1, true, |_, client, file| written_back(client, file, 1 << 20, 1)),
    },
    Row {
        name: "Smb2OverRdmaChannel_ReadMultipleOperation",
        section: "3.1.4.5",
        text: "eight READs over RDMA at once are answered",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.with_file(Dialect::SMB_3_1_1, false, |_, client, file| {
                let length = r_length(client, file).min(65_536);
                let expected = client.read_rdma(file.id, 0, length, RdmaChannel::RDMA_V1)?.data;
                let pending: Vec<_> = (0..8)
                    .map(|_| client.start_read(file.id, 0, length, RdmaChannel::RDMA_V1))
                    .collect::<Result<_>>()?;
                for pending in pending {
                    if client.finish_read(pending)?.data != expected {
                        return Ok(Verdict::Fail("other contents came".into()));
                    }
                }
                Ok(Verdict::Pass)
            })
        },
    },
    Row {
        name: "Smb2OverRdmaChannel_StalledReceiver",
        section: "3.1.4.5",
        text: "sixteen READs over RDMA, whose data the client does not receive for 2 s, are answered",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.with_file(Dialect::SMB_3_1_1, false, |_, client, file| {
                let length = r_length(client, file);
                let pending: Vec<_> = (0..16)
                    .map(|_| client.start_read(file.id, 0, length, RdmaChannel::RDMA_V1))
                    .collect::<Result<_>>()?;
                std::thread::sleep(Duration::from_secs(2));
                for pending in pending {
                    let read = client.finish_read(pending)?.data.len();
                    if read != length as usize {
                        return Ok(Verdict::Fail(format!("{read} bytes of {length} came")));
                    }
                }
                Ok(Verdict::Pass)
            })
        },
    },
    Row {
        name: "Smb2OverRdmaChannel_WriteMultipleOperation",
        section: "3.1.4.6",
        text: "data of eight WRITEs over RDMA at once is read back (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| r.with_file(Dialect::SMB_3_1_1, true, |_, client, file| written_back(client, file, 65_536, 8)),
    },
    Row {
        name: "Smb2OverRdmaChannel_ReadWriteMultipleBufferDescriptorList",
        section: "2.2.3.1",
        text: "a READ fills two pieces of memory in the order described",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.with_file(Dialect::SMB_3_1_1, false, |_, client, file| {
                let length = r_length(client, file).min(65_536) & !1;
                let expected = client.read_rdma(file.id, 0, length, RdmaChannel::RDMA_V1)?.data;
                let half = length as usize / 2;
                let mut memory = Vec::new();
                for _ in 0..2 {
                    memory.push(
                        client.channel().stack().register(vec![0; half], Rights::REMOTE_WRITE).ok_or(Error::Memory)?,
                    );
                }
                let info = [descriptor(memory[0]), descriptor(memory[1])].concat();
                let pending = client.start_read_with(file.id, 0, length, RdmaChannel::RDMA_V1, &info)?;
                let pending = client.granted(pending, &memory);
                client.finish_success(pending)?;
                let read: Vec<u8> = memory
                    .iter()
                    .flat_map(|m| client.channel().stack().deregister(m.key).unwrap_or_default())
                    .collect();
                Ok(if read == expected { Verdict::Pass } else { Verdict::Fail("other contents came".into()) })
            })
        },
    },
    Row {
        name: "Smb2OverRdmaChannel_InvalidBufferDescriptor_Offset",
        section: "3.1.4.5",
        text: "memory described 1 MiB off: the READ fails, and the server goes on",
        slow: false,
        dies_negotiating: false,
        run: |r| r.wrong_descriptor(|d| BufferDescriptorV1 { offset: d.offset.wrapping_add(1 << 20), ..d }),
    },
    Row {
        name: "Smb2OverRdmaChannel_InvalidBufferDescriptor_Length",
        section: "3.1.4.5",
        text: "less memory described than is read: the READ fails, and the server goes on",
        slow: false,
        dies_negotiating: false,
        run: |r| r.wrong_descriptor(|d| BufferDescriptorV1 { length: d.length / 2, ..d }),
    },
    Row {
        name: "Smb2OverRdmaChannel_InvalidBufferDescriptor_Token",
        section: "3.1.4.5",
        text: "an unknown token: the READ fails, and the server goes on",
        slow: false,
        dies_negotiating: false,
        run: |r| r.wrong_descriptor(|d| BufferDescriptorV1 { token: !d.token, ..d }),
    },
    Row {
        name: "Smb2OverRdmaChannel_InvalidBufferDescriptor_DeregisteredBuffer",
        section: "3.1.4.5",
        text: "memory that is no longer registered: the READ fails, and the server goes on",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.failing_read(|client, file, length| {
                let memory = client
                    .channel()
                    .stack()
                    .register(vec![0; length as usize], Rights::REMOTE_WRITE)
                    .ok_or(Error::Memory)?;
                client.channel().stack().deregister(memory.key);
                client.start_read_with(file.id, 0, length, RdmaChannel::RDMA_V1, &descriptor(memory))
            })
        },
    },
    Row {
        name: "BVT_SMB2OverRdma_SMB302_Read_RemoteInvalidation",
        section: "3.1.4.2",
        text: "dialect 3.0.2: a READ with SMB2_CHANNEL_RDMA_V1_INVALIDATE is answered with Send with Invalidate",
        slow: false,
        dies_negotiating: false,
        run: |r| r.invalidation(Dialect::SMB_3_0_2, false, RdmaChannel::RDMA_V1_INVALIDATE, true),
    },
    Row {
        name: "BVT_SMB2OverRdma_SMB302_Write_RemoteInvalidation",
        section: "3.1.4.2",
        text: "dialect 3.0.2: a WRITE with SMB2_CHANNEL_RDMA_V1_INVALIDATE is answered with Send with Invalidate \
            (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| r.invalidation(Dialect::SMB_3_0_2, true, RdmaChannel::RDMA_V1_INVALIDATE, true),
    },
    Row {
        name: "SMB2OverRdma_SMB302_Read_NoRemoteInvalidation",
        section: "3.1.4.2",
        text: "dialect 3.0.2: a READ with SMB2_CHANNEL_RDMA_V1 is answered with a plain Send",
        slow: false,
        dies_negotiating: false,
        run: |r| r.invalidation(Dialect::SMB_3_0_2, false, RdmaChannel::RDMA_V1, false),
    },
    Row {
        name: "SMB2OverRdma_SMB302_Write_NoRemoteInvalidation",
        section: "3.1.4.2",
        text: "dialect 3.0.2: a WRITE with SMB2_CHANNEL_RDMA_V1 is answered with a plain Send (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| r.invalidation(Dialect::SMB_3_0_2, true, RdmaChannel::RDMA_V1, false),
    },
    Row {
        name: "SMB2OverRdma_SMB300_Read_RemoteInvalidation",
        section: "3.1.4.2",
        text: "dialect 3.0 has no invalidation: a READ that asks for it is answered with a plain Send",
        slow: false,
        dies_negotiating: false,
        run: |r| r.invalidation(Dialect::SMB_3_0, false, RdmaChannel::RDMA_V1_INVALIDATE, false),
    },
    Row {
        name: "SMB2OverRdma_SMB300_Write_RemoteInvalidation",
        section: "3.1.4.2",
        text: "dialect 3.0 has no invalidation: a WRITE that asks for it is answered with a plain Send (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| r.invalidation(Dialect::SMB_3_0, true, RdmaChannel::RDMA_V1_INVALIDATE, false),
    },
    Row {
        name: "BVT_Smb2OverRdmaChannelTransform_Encryption_ReadLargeFile_AES128CCM",
        section: "[MS-SMB2] 3.3.5.12",
        text: "data of a READ over RDMA is encrypted with AES-128-CCM",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_read(encrypted(CipherId::AES_128_CCM), 1),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_ReadLargeFile_AES128GCM",
        section: "[MS-SMB2] 3.3.5.12",
        text: "data of a READ over RDMA is encrypted with AES-128-GCM",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_read(encrypted(CipherId::AES_128_GCM), 1),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_ReadLargeFile_AES256CCM",
        section: "[MS-SMB2] 3.3.5.12",
        text: "data of a READ over RDMA is encrypted with AES-256-CCM",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_read(encrypted(CipherId::AES_256_CCM), 1),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_ReadLargeFile_AES256GCM",
        section: "[MS-SMB2] 3.3.5.12",
        text: "data of a READ over RDMA is encrypted with AES-256-GCM",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_read(encrypted(CipherId::AES_256_GCM), 1),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_ReadMultipleOperation",
        section: "[MS-SMB2] 3.3.5.12",
        text: "eight READs at once, encrypted",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_read(encrypted(CipherId::AES_128_CCM), 8),
    },
    Row {
        name: "BVT_Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_AES128CCM",
        section: "[MS-SMB2] 3.3.5.13",
        text: "data of a WRITE over RDMA, encrypted with AES-128-CCM, is read back (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_write(encrypted(CipherId::AES_128_CCM), 1),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_AES128GCM",
        section: "[MS-SMB2] 3.3.5.13",
        text: "data of a WRITE over RDMA, encrypted with AES-128-GCM, is read back (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_write(encrypted(CipherId::AES_128_GCM), 1),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_AES256CCM",
        section: "[MS-SMB2] 3.3.5.13",
        text: "data of a WRITE over RDMA, encrypted with AES-256-CCM, is read back (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_write(encrypted(CipherId::AES_256_CCM), 1),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_AES256GCM",
        section: "[MS-SMB2] 3.3.5.13",
        text: "data of a WRITE over RDMA, encrypted with AES-256-GCM, is read back (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_write(encrypted(CipherId::AES_256_GCM), 1),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteMultipleOperation",
        section: "[MS-SMB2] 3.3.5.13",
        text: "eight WRITEs at once, encrypted, are read back (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_write(encrypted(CipherId::AES_128_CCM), 8),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Signing_ReadLargeFile_AES_GMAC",
        section: "[MS-SMB2] 3.3.5.12",
        text: "data of a READ over RDMA is signed with AES-GMAC",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_read(signed(SigningAlgorithm::AES_GMAC), 1),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Signing_ReadLargeFile_AES_CMAC",
        section: "[MS-SMB2] 3.3.5.12",
        text: "data of a READ over RDMA is signed with AES-CMAC",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_read(signed(SigningAlgorithm::AES_CMAC), 1),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Signing_WriteLargeFile_AES_GMAC",
        section: "[MS-SMB2] 3.3.5.13",
        text: "data of a WRITE over RDMA, signed with AES-GMAC, is read back (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_write(signed(SigningAlgorithm::AES_GMAC), 1),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Signing_WriteLargeFile_AES_CMAC",
        section: "[MS-SMB2] 3.3.5.13",
        text: "data of a WRITE over RDMA, signed with AES-CMAC, is read back (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| r.transformed_write(signed(SigningAlgorithm::AES_CMAC), 1),
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_NoTransformIds_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "an encrypted WRITE with an RDMA transform that was not agreed on is refused with \
            STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                Options { transforms: Vec::new(), ..encrypted(CipherId::AES_128_CCM) },
                TransformType::ENCRYPTION,
                NtStatus::INVALID_PARAMETER,
                |c, d| transform::emit(RdmaChannel::RDMA_V1, &[c], d),
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_ZeroTransformCount_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "TransformCount 0 is refused with STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                encrypted(CipherId::AES_128_CCM),
                TransformType::ENCRYPTION,
                NtStatus::INVALID_PARAMETER,
                no_count,
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_MultipleEncryptionStructure_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "two encryption transforms are refused with STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                encrypted(CipherId::AES_128_CCM),
                TransformType::ENCRYPTION,
                NtStatus::INVALID_PARAMETER,
                |c, d| transform::emit(RdmaChannel::RDMA_V1, &[c.clone(), c], d),
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_EncryptionAndSigningStructure_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "an encryption and a signing transform together are refused with STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                Options {
                    transforms: vec![RdmaTransformId::SIGNING, RdmaTransformId::ENCRYPTION],
                    ..encrypted(CipherId::AES_128_CCM)
                },
                TransformType::ENCRYPTION,
                NtStatus::INVALID_PARAMETER,
                |c, d| {
                    let signing = Crypto { kind: TransformType::SIGNING, ..c.clone() };
                    transform::emit(RdmaChannel::RDMA_V1, &[c, signing], d)
                },
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_BufferNotAligned_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "descriptors that do not begin at a multiple of 8 are refused with STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                encrypted(CipherId::AES_128_GCM),
                TransformType::ENCRYPTION,
                NtStatus::INVALID_PARAMETER,
                not_aligned,
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_SignatureLength_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "a signature of 17 bytes is refused with STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                encrypted(CipherId::AES_128_CCM),
                TransformType::ENCRYPTION,
                NtStatus::INVALID_PARAMETER,
                |mut c, d| {
                    c.signature.push(0);
                    transform::emit(RdmaChannel::RDMA_V1, &[c], d)
                },
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_NonceLength_CCM_10_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "a nonce of 10 bytes for AES-CCM is refused with STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                encrypted(CipherId::AES_128_CCM),
                TransformType::ENCRYPTION,
                NtStatus::INVALID_PARAMETER,
                |mut c, d| {
                    c.nonce.truncate(10);
                    transform::emit(RdmaChannel::RDMA_V1, &[c], d)
                },
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_NonceLength_CCM_12_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "a nonce of 12 bytes for AES-CCM is refused with STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                encrypted(CipherId::AES_128_CCM),
                TransformType::ENCRYPTION,
                NtStatus::INVALID_PARAMETER,
                |mut c, d| {
                    c.nonce.push(0);
                    transform::emit(RdmaChannel::RDMA_V1, &[c], d)
                },
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_NonceLength_GCM_11_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "a nonce of 11 bytes for AES-GCM is refused with STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                encrypted(CipherId::AES_128_GCM),
                TransformType::ENCRYPTION,
                NtStatus::INVALID_PARAMETER,
                |mut c, d| {
                    c.nonce.truncate(11);
                    transform::emit(RdmaChannel::RDMA_V1, &[c], d)
                },
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Encryption_WriteLargeFile_NonceLength_GCM_13_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "a nonce of 13 bytes for AES-GCM is refused with STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                encrypted(CipherId::AES_128_GCM),
                TransformType::ENCRYPTION,
                NtStatus::INVALID_PARAMETER,
                |mut c, d| {
                    c.nonce.push(0);
                    transform::emit(RdmaChannel::RDMA_V1, &[c], d)
                },
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Signing_WriteLargeFile_FlagsSignedNotSet_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "a signing transform in a WRITE that is encrypted and not signed is refused with \
            STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                Options { encrypt: true, ..signed(SigningAlgorithm::AES_GMAC) },
                TransformType::SIGNING,
                NtStatus::INVALID_PARAMETER,
                |c, d| transform::emit(RdmaChannel::RDMA_V1, &[c], d),
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Signing_WriteLargeFile_SigningStructure_EncryptionId_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "a signing transform is refused if only encryption was agreed on: with STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                Options { transforms: vec![RdmaTransformId::ENCRYPTION], ..signed(SigningAlgorithm::AES_GMAC) },
                TransformType::SIGNING,
                NtStatus::INVALID_PARAMETER,
                |c, d| transform::emit(RdmaChannel::RDMA_V1, &[c], d),
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Signing_WriteLargeFile_InvalidSignature_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "a WRITE of data with a wrong signature is refused with STATUS_INVALID_SIGNATURE (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                signed(SigningAlgorithm::AES_CMAC),
                TransformType::SIGNING,
                NtStatus::INVALID_SIGNATURE,
                |mut c, d| {
                    c.signature[3] ^= 0x55;
                    transform::emit(RdmaChannel::RDMA_V1, &[c], d)
                },
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Signing_WriteLargeFile_NoTransformIds_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "a signed WRITE with an RDMA transform that was not agreed on is refused with STATUS_INVALID_PARAMETER \
            (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                Options { transforms: Vec::new(), ..signed(SigningAlgorithm::AES_GMAC) },
                TransformType::SIGNING,
                NtStatus::INVALID_PARAMETER,
                |c, d| transform::emit(RdmaChannel::RDMA_V1, &[c], d),
            )
        },
    },
    Row {
        name: "Smb2OverRdmaChannelTransform_Signing_WriteLargeFile_ZeroTransformCount_Fails",
        section: "[MS-SMB2] 3.3.5.13",
        text: "TransformCount 0 in a signed WRITE is refused with STATUS_INVALID_PARAMETER (writes)",
        slow: false,
        dies_negotiating: false,
        run: |r| {
            r.refused_transform(
                signed(SigningAlgorithm::AES_CMAC),
                TransformType::SIGNING,
                NtStatus::INVALID_PARAMETER,
                no_count,
            )
        },
    },
];

/// The cases whose names contain `pattern`, in any case; `*` matches anything.
pub fn matching(pattern: &str) -> Vec<Case> {
    let pattern = pattern.to_lowercase();
    let parts: Vec<&str> = pattern.split('*').collect();
    all()
        .filter(|case| {
            let name = case.name.to_lowercase();
            let mut rest = &name[..];
            parts.iter().all(|part| rest.find(part).map(|at| rest = &rest[at + part.len()..]).is_some())
        })
        .collect()
}

impl Case {
    /// Runs it, and again each time it fails, at most `times` times: if the verdicts differ, it is unstable.
    ///
    /// # Errors
    /// If the server cannot be reached at all.
    pub fn run_repeatedly(&self, target: &Target, times: u32) -> Result<(Verdict, Vec<u8>)> {
        let (first, wire) = self.run(target)?;
        let Verdict::Fail(why) = &first else { return Ok((first, wire)) };
        for n in 1..times {
            if self.run(target)?.0 == Verdict::Pass {
                return Ok((Verdict::Unstable(format!("failed {n} of {} times: {why}", n + 1)), wire));
            }
        }
        Ok((first, wire))
    }

    /// Runs it: the verdict, and our wire as pcapng, all connections of the case in it.
    ///
    /// # Errors
    /// If the server cannot be reached at all.
    pub fn run(&self, target: &Target) -> Result<(Verdict, Vec<u8>)> {
        if let Way::Over(kind, _) = self.way
            && kind.name != target.config.transport.kind().name
        {
            return Ok((Verdict::NotApplicable(format!("it needs --transport {}", kind.name)), Vec::new()));
        }
        let kept = SharedBuffer::default();
        let wire = Wire::new(Box::new(kept.clone()), "wire").map_err(io::Error::other)?;
        let mut run = Run { target, wire: wire.clone() };
        let verdict = match self.way {
            Way::OverAny(case) => case(&mut run),
            Way::Over(_, steps) => own::run(&mut run, steps),
        };
        let verdict = match verdict {
            Ok(verdict) => verdict,
            Err(e @ Error::Connect { .. }) => return Err(e),
            Err(e) => Verdict::Fail(e.to_string()),
        };
        wire.flush()?;
        let bytes = core::mem::take(&mut *kept.0.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((verdict, bytes))
    }
}

/// A buffer that a capture is written to.
#[derive(Clone, Debug, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The next event.
pub(crate) enum Next {
    Message(Vec<u8>),
    Closed,
    Nothing,
}

/// A case that is run.
pub(crate) struct Run<'a> {
    pub(crate) target: &'a Target,
    wire: Wire,
}

impl Run<'_> {
    /// Gives the server time to remove the connection before. Linux's ksmbd (6.12) makes two slab caches for each
    /// connection. If one is made while the one of the same name of another connection is removed, the kernel refuses
    /// it because of its name, and ksmbd then deadlocks and accepts no more connections.
    fn pause(&self) {
        std::thread::sleep(self.target.settle);
    }

    /// A connection on which nothing but MPA has passed.
    pub(crate) fn connect(&mut self) -> Result<SmbDirect> {
        self.connect_with(&self.target.config)
    }

    pub(crate) fn connect_with(&mut self, config: &Config) -> Result<SmbDirect> {
        self.pause();
        let address = self.target.address;
        let failed = |source| Error::Connect { address: address.to_string(), source };
        let config = Config { wire: Some(self.wire.clone()), ..config.clone() };
        let mut channel = SmbDirect::connect_raw(address, &config, Duration::from_secs(5)).map_err(failed)?;
        match channel.poll(Duration::from_secs(10))? {
            Some(Event::Connected) => {}
            Some(Event::Closed(why)) => return Err(why.into()),
            _ => return Err(Error::Timeout { what: "the connection request", seconds: 10 }),
        }
        channel.poll(self.target.settle)?;
        Ok(channel)
    }

    /// A connection on which the request was accepted.
    pub(crate) fn negotiated(&mut self, request: NegotiateRequest) -> Result<(SmbDirect, NegotiateResponse)> {
        let channel = self.connect()?;
        negotiated_on(channel, request)
    }

    fn accepted(&mut self, request: NegotiateRequest, more: usize) -> Result<Verdict> {
        let mut bytes = encoded(&request);
        bytes.resize(bytes.len() + more, 0);
        let channel = self.connect()?;
        accepted_on(channel, &bytes)
    }

    fn unsupported(&mut self, request: NegotiateRequest) -> Result<Verdict> {
        let mut channel = self.connect()?;
        send(&mut channel, encoded(&request));
        Ok(match next(&mut channel, ANSWER_WITHIN)? {
            Next::Message(bytes) => match smbd::parse_negotiate_response(&bytes, &mut Off) {
                Ok((_, r)) if r.status == NtStatus::NOT_SUPPORTED.0 => Verdict::Pass,
                Ok((_, r)) => Verdict::Fail(format!("answered with status {:#010x}", r.status)),
                Err(_) => Verdict::Fail("answered with something other than a Negotiate Response".into()),
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

    /// Checks that a new client is served, whatever happened to the one before.
    pub(crate) fn serves_on(&mut self) -> Result<Verdict> {
        Ok(match self.accepted(request(), 0) {
            Ok(Verdict::Fail(why)) => Verdict::Fail(format!("the next client is not served: {why}")),
            Ok(other) => other,
            Err(e) => Verdict::Fail(format!("the next client is not served: {e}")),
        })
    }

    /// Two fragments of an SMB2 message, the second of which announces `wrong` bytes too many.
    fn fragments(&mut self, first: usize, wrong: i64) -> Result<Verdict> {
        let (mut channel, _) = self.negotiated(request())?;
        let whole = smb2_negotiate();
        let rest = whole.len() - first;
        let pieces = [(&whole[..first], rest as i64), (&whole[first..first + 20], rest as i64 - 20 + wrong)];
        for (n, (piece, remaining)) in pieces.into_iter().enumerate() {
            let grant = if n == 0 { CREDITS } else { 0 };
            let header = DataTransfer { credits_granted: grant, ..data_header(piece.len() as u32, remaining as u32) };
            send(&mut channel, data_message(&header, piece));
        }
        closed(&mut channel)
    }

    /// Opens a session on the share; a failure is a verdict.
    fn session(&mut self, options: Options) -> Result<Result<Client, Verdict>> {
        let mut config = self.target.config.clone();
        config.smbd.settle = self.target.settle.as_nanos() as i64;
        config.wire = Some(self.wire.clone());
        self.pause();
        let address = self.target.address;
        let failed = |source| Error::Connect { address: address.to_string(), source };
        let channel = SmbDirect::connect(address, &config, Duration::from_secs(5)).map_err(failed)?;
        let dialect = options.dialects.first().copied().unwrap_or(Dialect::SMB_3_1_1);
        let mut client = match Client::negotiate(channel, options) {
            Err(Error::Status { status, .. }) => {
                return Ok(Err(Verdict::NotApplicable(format!(
                    "{dialect:?} is not supported: {}",
                    crate::error::status_name(status)
                ))));
            }
            other => other?,
        };
        if let Some(lacking) = not_agreed(&client, client.wanted()) {
            let _ = client.leave();
            return Ok(Err(Verdict::NotApplicable(lacking.into())));
        }
        let opened = client
            .session_setup(&self.target.who)
            .and_then(|()| client.tree_connect(&address.ip().to_string(), &self.target.share));
        match opened {
            Ok(()) => Ok(Ok(client)),
            Err(e @ Error::Status { .. }) => {
                Ok(Err(Verdict::NotApplicable(format!("no session on share {}: {e}", self.target.share))))
            }
            Err(e) => Err(e),
        }
    }

    /// Runs a case on an open file: the longest one of the share, or one of our own if it `writes`.
    fn with_file(
        &mut self,
        dialect: Dialect,
        writes: bool,
        case: impl FnOnce(&mut Self, &mut Client, Opened) -> Result<Verdict>,
    ) -> Result<Verdict> {
        // these cases test RDMA data without transforms
        self.with_file_as(Options { transforms: Vec::new(), ..options(dialect) }, writes, case)
    }

    fn with_file_as(
        &mut self,
        options: Options,
        writes: bool,
        case: impl FnOnce(&mut Self, &mut Client, Opened) -> Result<Verdict>,
    ) -> Result<Verdict> {
        if writes && !self.target.writes {
            return Ok(Verdict::NotApplicable("it writes: allow that with --allow-writes".into()));
        }
        let mut client = match self.session(options)? {
            Ok(client) => client,
            Err(verdict) => return Ok(verdict),
        };
        let wanted = client.wanted();
        if (wanted.encrypt || wanted.transforms.contains(&RdmaTransformId::SIGNING)) && !client.is_signed() {
            let _ = client.leave();
            return Ok(Verdict::NotApplicable("an anonymous session has no keys: name a user with --user".into()));
        }
        let name = if writes {
            SCRATCH.to_owned()
        } else {
            let root = client.create("", access::READ, disposition::OPEN, 1)?;
            let files = client.list(root.id, "*")?;
            client.close(root.id)?;
            match files
                .into_iter()
                .filter(|f| f.attributes & file_attribute::DIRECTORY == 0)
                .max_by_key(|f| f.end_of_file)
            {
                Some(file) if file.end_of_file >= 8192 => file.name,
                _ => {
                    return Ok(Verdict::NotApplicable(format!(
                        "no file of 8 KiB or more in share {}",
                        self.target.share
                    )));
                }
            }
        };
        let opened = if writes {
            client.create(
                &name,
                access::READ | access::WRITE | access::DELETE,
                disposition::OVERWRITE_IF,
                DELETE_ON_CLOSE,
            )
        } else {
            client.create(&name, access::READ, disposition::OPEN, 0)
        };
        let file = match opened {
            Err(Error::Status { status, .. }) => {
                return Ok(Verdict::NotApplicable(format!(
                    "{name} cannot be opened: {}",
                    crate::error::status_name(status)
                )));
            }
            other => other?,
        };
        let verdict = case(self, &mut client, file)?;
        // the case may have ended the connection
        let _ = client.close(file.id).and_then(|()| client.leave());
        Ok(verdict)
    }

    /// Reads as much as possible over RDMA, and compares it with an inline read.
    pub(crate) fn reads_large(&mut self) -> Result<Verdict> {
        self.with_file(Dialect::SMB_3_1_1, false, |_, client, file| {
            let length = r_length(client, file);
            let inline = client.read_inline(file.id, 0, length.min(65_536))?.data;
            let read = client.read_rdma(file.id, 0, length, RdmaChannel::RDMA_V1)?.data;
            Ok(if read.len() == length as usize && read.starts_with(&inline) {
                Verdict::Pass
            } else {
                Verdict::Fail("other contents came".into())
            })
        })
    }

    /// Writes over RDMA, and reads it back inline.
    pub(crate) fn writes_large(&mut self) -> Result<Verdict> {
        self.with_file(Dialect::SMB_3_1_1, true, |_, client, file| {
            let data: Vec<u8> = (0..60_000u32).map(|n| (n / 7) as u8).collect();
            let (count, _) = client.write_rdma(file.id, 0, data.clone(), RdmaChannel::RDMA_V1)?;
            let back = client.read_inline(file.id, 0, data.len() as u32)?.data;
            Ok(match count as usize == data.len() && back == data {
                true => Verdict::Pass,
                false => Verdict::Fail("other contents were written".into()),
            })
        })
    }

    /// A case over another transport, or the same with other options.
    pub(crate) fn over(
        &self,
        transport: Arc<dyn Fabric>,
        case: impl FnOnce(&mut Run<'_>) -> Result<Verdict>,
    ) -> Result<Verdict> {
        let mut target = self.target.clone();
        target.config.transport = transport;
        case(&mut Run { target: &target, wire: self.wire.clone() })
    }

    /// A READ that cannot succeed: it fails, or the connection ends, and the server serves on.
    fn failing_read(&mut self, start: impl FnOnce(&mut Client, Opened, u32) -> Result<Pending>) -> Result<Verdict> {
        self.with_file(Dialect::SMB_3_1_1, false, |r, client, file| {
            let length = r_length(client, file).min(65_536);
            let pending = start(client, file, length)?;
            match client.finish_success(pending) {
                Ok(_) => Ok(Verdict::Fail("answered with success".into())),
                Err(Error::Status { .. } | Error::Ended(_)) => r.serves_on(),
                Err(e) => Err(e),
            }
        })
    }

    fn wrong_descriptor(&mut self, spoil: impl FnOnce(BufferDescriptorV1) -> BufferDescriptorV1) -> Result<Verdict> {
        self.failing_read(|client, file, length| {
            let memory = client
                .channel()
                .stack()
                .register(vec![0; length as usize], Rights::REMOTE_WRITE)
                .ok_or(Error::Memory)?;
            let right = BufferDescriptorV1 { offset: memory.offset, token: memory.key, length };
            let mut info = Vec::new();
            spoil(right).emit(&mut info);
            client.start_read_with(file.id, 0, length, RdmaChannel::RDMA_V1, &info)
        })
    }

    fn invalidation(
        &mut self,
        dialect: Dialect,
        writes: bool,
        channel: RdmaChannel,
        expected: bool,
    ) -> Result<Verdict> {
        self.with_file(dialect, writes, |_, client, file| {
            let length = if writes { 65_536 } else { r_length(client, file).min(65_536) };
            let rights = if writes { Rights::REMOTE_READ } else { Rights::REMOTE_WRITE };
            let memory = client.channel().stack().register(vec![0; length as usize], rights).ok_or(Error::Memory)?;
            let info = descriptor(memory);
            // exactly as requested, even if the dialect does not know it
            let pending = if writes {
                client.start_write_with(file.id, 0, &[], length, channel, &info)?
            } else {
                client.start_read_with(file.id, 0, length, channel, &info)?
            };
            let pending = client.granted(pending, &[memory]);
            let reply = client.finish(pending)?;
            let done = reply.invalidated == Some(memory.key);
            client.channel().stack().deregister(memory.key);
            Ok(match (reply.status() == NtStatus::SUCCESS, done == expected) {
                (_, false) if expected => Verdict::Fail("answered with a plain Send".into()),
                (_, false) => Verdict::Fail("answered with Send with Invalidate".into()),
                (false, true) => Verdict::Fail(format!("answered with {}", crate::error::status_name(reply.status()))),
                (true, true) => Verdict::Pass,
            })
        })
    }

    /// READs whose data the server has to encrypt or sign.
    fn transformed_read(&mut self, options: Options, count: u32) -> Result<Verdict> {
        let kind = if options.encrypt { TransformType::ENCRYPTION } else { TransformType::SIGNING };
        self.with_file_as(options, false, |_, client, file| {
            let length = r_length(client, file).min(1 << 18);
            let inline = client.read_inline(file.id, 0, length.min(65_536))?.data;
            let pending: Vec<_> = (0..count)
                .map(|_| client.start_read(file.id, 0, length, RdmaChannel::RDMA_V1))
                .collect::<Result<_>>()?;
            for pending in pending {
                let read = client.finish_read(pending)?;
                if read.transform != Some(kind) {
                    return Ok(Verdict::Fail("the data came without the transform that was agreed on".into()));
                }
                if read.data.len() != length as usize || !read.data.starts_with(&inline) {
                    return Ok(Verdict::Fail("other contents came".into()));
                }
            }
            Ok(Verdict::Pass)
        })
    }

    /// WRITEs of data that is encrypted or signed.
    fn transformed_write(&mut self, options: Options, count: u64) -> Result<Verdict> {
        self.with_file_as(options, true, |_, client, file| {
            let length = if count == 1 { 1 << 18 } else { 65_536 };
            let verdict = written_back(client, file, length, count)?;
            // the data that we encrypted is stored in the clear
            let head = client.read_inline(file.id, 0, 1024)?.data;
            let right = head.iter().zip(0u64..).all(|(byte, at)| *byte == (at / 7) as u8);
            Ok(if right {
                verdict
            } else {
                Verdict::Fail("the file has the transformed data, not the data that was written".into())
            })
        })
    }

    /// A WRITE with a transform of this kind, made by `build`, which must be refused.
    fn refused_transform(
        &mut self,
        options: Options,
        kind: TransformType,
        expected: NtStatus,
        build: impl FnOnce(Crypto, &[u8]) -> Vec<u8>,
    ) -> Result<Verdict> {
        const LENGTH: u32 = 65_536;
        self.with_file_as(options, true, |_, client, file| {
            let mut data = vec![0x5a; LENGTH as usize];
            let crypto = if kind == TransformType::ENCRYPTION { client.seal(&mut data) } else { client.sign(&data) };
            let Some(crypto) = crypto else { return Ok(Verdict::NotApplicable("the session has no keys".into())) };
            let memory = client.channel().stack().register(data, Rights::REMOTE_READ).ok_or(Error::Memory)?;
            let info = build(crypto, &descriptor(memory));
            let pending = client.start_write_with(file.id, 0, &[], LENGTH, RdmaChannel::RDMA_TRANSFORM, &info)?;
            let status = client.finish(pending)?.status();
            client.channel().stack().deregister(memory.key);
            Ok(match status {
                status if status == expected => Verdict::Pass,
                NtStatus::SUCCESS => Verdict::Fail("answered with success".into()),
                other => Verdict::Fail(format!("answered with {}", crate::error::status_name(other))),
            })
        })
    }

    /// An SMB2 NEGOTIATE in segments of these lengths, as far as possible, with `more` bytes after each.
    fn segments(&mut self, lengths: impl FnOnce(&[u8]) -> Vec<usize>, more: usize) -> Result<Verdict> {
        self.segments_with(request(), lengths, more)
    }

    fn segments_with(
        &mut self,
        request: NegotiateRequest,
        lengths: impl FnOnce(&[u8]) -> Vec<usize>,
        more: usize,
    ) -> Result<Verdict> {
        let least = if request.credits_requested == 1 { 1 } else { 2 };
        let (mut channel, agreed) = self.negotiated(request)?;
        let whole = smb2_negotiate();
        let mut credits = u32::from(agreed.credits_granted);
        let mut lengths = lengths(&whole).into_iter();
        let (mut at, patient_until) = (0, Instant::now() + ANSWER_WITHIN);
        while at < whole.len() {
            let length = lengths.next().unwrap_or(whole.len()).min(whole.len() - at);
            // the server grants more from time to time, in messages without data
            while credits < least {
                match next_until(&mut channel, patient_until)? {
                    Next::Message(bytes) => credits += granted(&bytes),
                    Next::Closed => return Ok(Verdict::Fail("closed the connection".into())),
                    Next::Nothing => {
                        return Ok(Verdict::NotApplicable(format!("granted {} credits only", agreed.credits_granted)));
                    }
                }
            }
            credits -= 1;
            let mut bytes = Vec::new();
            // the first one gives the server the credits to answer with
            let grant = if at == 0 { CREDITS } else { 0 };
            DataTransfer {
                credits_granted: grant,
                credits_requested: request.credits_requested,
                ..data_header(length as u32, (whole.len() - at - length) as u32)
            }
            .emit(&mut bytes);
            bytes.resize(24, 0);
            bytes.extend_from_slice(&whole[at..at + length]);
            let room = (agreed.max_receive_size as usize).saturating_sub(bytes.len());
            bytes.resize(bytes.len() + more.min(room), 0);
            send(&mut channel, bytes);
            at += length;
        }
        let until = Instant::now() + ANSWER_WITHIN;
        loop {
            match next_until(&mut channel, until)? {
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
    fn broken(
        &mut self,
        spoil: impl FnOnce(&DataTransfer, &NegotiateResponse) -> DataTransfer,
        length: usize,
    ) -> Result<Verdict> {
        let (mut channel, agreed) = self.negotiated(request())?;
        let whole = smb2_negotiate();
        let header = DataTransfer { credits_granted: CREDITS, ..data_header(whole.len() as u32, 0) };
        let mut bytes = data_message(&spoil(&header, &agreed), &whole);
        bytes.truncate(length);
        send(&mut channel, bytes);
        closed(&mut channel)
    }
}

fn options(dialect: Dialect) -> Options {
    Options { dialects: vec![dialect], timeout: ANSWER_WITHIN, ..Options::default() }
}

/// A session that encrypts messages and RDMA data with this cipher.
fn encrypted(cipher: CipherId) -> Options {
    let transforms = vec![RdmaTransformId::ENCRYPTION];
    Options { encrypt: true, ciphers: vec![cipher], transforms, ..options(Dialect::SMB_3_1_1) }
}

/// A session that signs messages and RDMA data with this algorithm.
fn signed(algorithm: SigningAlgorithm) -> Options {
    Options { signing: vec![algorithm], transforms: vec![RdmaTransformId::SIGNING], ..options(Dialect::SMB_3_1_1) }
}

/// The first feature that a case needs and that was not negotiated; `None` if all were.
fn not_agreed(client: &Client, wanted: &Options) -> Option<&'static str> {
    let lacks = |id| wanted.transforms.contains(&id) && !client.has_transform(id);
    let signing = wanted.transforms.contains(&RdmaTransformId::SIGNING);
    match () {
        () if wanted.encrypt && client.cipher() != wanted.ciphers.first().copied() => {
            Some("the server does not support this cipher")
        }
        () if signing && !wanted.signing.contains(&client.signing()) => {
            Some("the server does not support this signing algorithm")
        }
        () if lacks(RdmaTransformId::ENCRYPTION) || lacks(RdmaTransformId::SIGNING) => {
            Some("the server does not support this RDMA transform")
        }
        () => None,
    }
}

/// A transform whose TransformCount is 0.
fn no_count(crypto: Crypto, descriptors: &[u8]) -> Vec<u8> {
    let mut info = transform::emit(RdmaChannel::RDMA_V1, &[crypto], descriptors);
    info[8..10].copy_from_slice(&[0; 2]);
    info
}

/// A transform with the descriptors directly after it.
fn not_aligned(crypto: Crypto, descriptors: &[u8]) -> Vec<u8> {
    let end = RdmaTransformFixed::LEN + 8 + crypto.signature.len() + crypto.nonce.len();
    let mut info = transform::emit(RdmaChannel::RDMA_V1, &[crypto], &[]);
    info.truncate(end);
    info.extend_from_slice(descriptors);
    info[..2].copy_from_slice(&(end as u16).to_le_bytes());
    info[2..4].copy_from_slice(&(descriptors.len() as u16).to_le_bytes());
    info
}

pub(crate) fn request() -> NegotiateRequest {
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

pub(crate) fn encoded(request: &NegotiateRequest) -> Vec<u8> {
    let mut out = Vec::new();
    request.emit(&mut out);
    out
}

/// An SMB2 NEGOTIATE for dialect 3.0.
fn smb2_negotiate() -> Vec<u8> {
    let body = Writer::default().u16(36).u16(1).u16(1).u16(0).u32(4).bytes(&[0x5a; 16]).u64(0).u16(0x0300).0;
    message(&header(Command::NEGOTIATE, 0), &body)
}

/// A message without data.
fn grant(channel: &mut SmbDirect, credits: u16, flags: u16) {
    let mut bytes = Vec::new();
    DataTransfer { flags, credits_granted: credits, data_offset: 0, ..data_header(0, 0) }.emit(&mut bytes);
    send(channel, bytes);
}

enum KeepaliveSeen {
    Yes,
    Closed,
    No,
}

/// Checks whether the server asks for a response in time.
fn asked(channel: &mut SmbDirect, within: Duration) -> Result<KeepaliveSeen> {
    let until = Instant::now() + within;
    loop {
        match next_until(channel, until)? {
            Next::Message(bytes) => {
                if smbd::parse_data(&bytes, bytes.len() as u32, &mut Off)
                    .is_ok_and(|(_, d)| d.header.response_requested())
                {
                    return Ok(KeepaliveSeen::Yes);
                }
            }
            Next::Closed => return Ok(KeepaliveSeen::Closed),
            Next::Nothing => return Ok(KeepaliveSeen::No),
        }
    }
}

/// Number of bytes of a file that one READ may request.
fn r_length(client: &mut Client, file: Opened) -> u32 {
    let room = client.channel().stack().smbd().map_or(1 << 20, |s| s.max_read_write_size());
    let most = client.max_read_size.min(room).min(1 << 20);
    u32::try_from(file.end_of_file).unwrap_or(u32::MAX).min(most)
}

/// `count` WRITEs of `length` bytes at once, and whether they are read back.
fn written_back(client: &mut Client, file: Opened, length: u32, count: u64) -> Result<Verdict> {
    let data = |n: u64| (0..length).map(|at| (u64::from(at) / 7 + n * 31) as u8).collect::<Vec<u8>>();
    let pending: Vec<_> = (0..count)
        .map(|n| client.start_write(file.id, n * u64::from(length), data(n), RdmaChannel::RDMA_V1))
        .collect::<Result<_>>()?;
    for pending in pending {
        let (took, _) = client.finish_write(pending)?;
        if took != length {
            return Ok(Verdict::Fail(format!("took {took} bytes of {length}")));
        }
    }
    for n in 0..count {
        if client.read_rdma(file.id, n * u64::from(length), length, RdmaChannel::RDMA_V1)?.data != data(n) {
            return Ok(Verdict::Fail("other contents are read back".into()));
        }
    }
    Ok(Verdict::Pass)
}

fn granted(message: &[u8]) -> u32 {
    smbd::parse_data(message, message.len() as u32, &mut Off).map_or(0, |(_, d)| d.header.credits_granted.into())
}

fn send(channel: &mut SmbDirect, bytes: Vec<u8>) {
    let now = channel.now();
    channel.stack().send_raw(now, bytes);
}

pub(crate) fn next(channel: &mut SmbDirect, wait: Duration) -> Result<Next> {
    Ok(match channel.poll(wait)? {
        Some(Event::Raw(bytes)) => Next::Message(bytes),
        Some(Event::Closed(_)) => Next::Closed,
        Some(_) | None => Next::Nothing,
    })
}

/// Negotiates on a connection; an error if the server refuses.
pub(crate) fn negotiated_on(
    mut channel: SmbDirect,
    request: NegotiateRequest,
) -> Result<(SmbDirect, NegotiateResponse)> {
    send(&mut channel, encoded(&request));
    let Next::Message(bytes) = next(&mut channel, ANSWER_WITHIN)? else {
        return Err(Error::Answer { what: "the Negotiate Request", why: "did not come" });
    };
    match smbd::parse_negotiate_response(&bytes, &mut Off) {
        Ok((_, response)) if response.status == 0 => Ok((channel, response)),
        _ => Err(Error::Answer { what: "the Negotiate Request", why: "is a refusal" }),
    }
}

/// Sends a Negotiate Request that the server must accept, and checks its response.
pub(crate) fn accepted_on(mut channel: SmbDirect, request: &[u8]) -> Result<Verdict> {
    let asked_receive =
        smbd::parse_negotiate_request(request, &mut Off).map_or(MAX_RECEIVE, |(_, r)| r.max_receive_size);
    send(&mut channel, request.to_vec());
    let bytes = match next(&mut channel, ANSWER_WITHIN)? {
        Next::Message(bytes) => bytes,
        Next::Closed => return Ok(Verdict::Fail("closed the connection".into())),
        Next::Nothing => return Ok(Verdict::Fail("did not answer".into())),
    };
    let Ok((_, r)) = smbd::parse_negotiate_response(&bytes, &mut Off) else {
        return Ok(Verdict::Fail(format!("answered with {} bytes that are not a Negotiate Response", bytes.len())));
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
    Ok(if names.is_empty() {
        Verdict::Pass
    } else {
        Verdict::Fail(format!("answered with a wrong {}: {r:?}", names.join(", ")))
    })
}

/// As [`next`], but until a point in time. After that, only the end of the connection is returned: messages may come
/// for ever.
fn next_until(channel: &mut SmbDirect, until: Instant) -> Result<Next> {
    let left = until.saturating_duration_since(Instant::now());
    Ok(match next(channel, left)? {
        Next::Message(_) if left.is_zero() => Next::Nothing,
        other => other,
    })
}

/// Checks that the server closes the connection in time.
pub(crate) fn closed(channel: &mut SmbDirect) -> Result<Verdict> {
    let until = Instant::now() + CLOSE_WITHIN;
    loop {
        match next_until(channel, until)? {
            Next::Closed => return Ok(Verdict::Pass),
            Next::Message(bytes) if bytes.len() >= 32 && bytes[0] == 0 => {
                return Ok(Verdict::Fail(format!("answered with {} bytes", bytes.len())));
            }
            Next::Message(bytes) => {
                // credits may come before the end; an answer to the wrong message must not
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
        assert_eq!(matching("").len(), all().count());
        assert_eq!(matching("*").len(), all().count());
        assert_eq!(matching("preferredsendsize").len(), 3);
        assert_eq!(matching("NegativeParameter*DataOffset").len(), 2);
        assert!(matching("no such case").is_empty());
        assert_eq!(all().filter(|c| c.slow).count(), 3);
        assert!(all().filter(|c| c.dies_negotiating).count() >= 6);
        let mut names: Vec<&str> = all().map(|c| c.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn a_case_that_fails_now_and_then_is_unstable() {
        use std::sync::atomic::{AtomicU32, Ordering};
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let flaky = |_: &mut Run<'_>| match RUNS.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(Verdict::Fail("too late".into())),
            _ => Ok(Verdict::Pass),
        };
        let row = Row { name: "Flaky", section: "3", text: "", slow: false, dies_negotiating: false, run: flaky };
        let case = Case::from(row);
        let target = Target::new(SocketAddr::from(([127, 0, 0, 1], 9)));
        assert_eq!(
            case.run_repeatedly(&target, 3).unwrap().0,
            Verdict::Unstable("failed 1 of 2 times: too late".into())
        );
        let always = Case::from(Row { run: |_| Ok(Verdict::Fail("never".into())), ..row });
        assert_eq!(always.run_repeatedly(&target, 3).unwrap().0, Verdict::Fail("never".into()));
    }
}
