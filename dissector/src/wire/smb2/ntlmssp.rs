//! NTLMSSP, \[MS-NLMP\] 2.2.1: negotiate, challenge, authenticate; the logon of SMB2 sessions without Kerberos.
//!
//! ```text
//! client ── NEGOTIATE ──▶ server      flags
//! client ◀── CHALLENGE ── server      flags, eight random bytes, who the server is
//! client ── AUTHENTICATE ─▶ server    who the user is, the response to the challenge, the session key
//! ```

use super::blob::{Blob, number};
use super::text::Utf16;
use super::{f as shared, filetime, flags32};
use crate::fault::{Fault, PResult};
use crate::field::Def;
use crate::leaf::{self, read};
use crate::trace::{Trace, Value, report, scope};
use core::fmt;

/// First bytes of every message.
pub const SIGNATURE: &[u8] = b"NTLMSSP\0";

wire_enum! {
    /// Type of a message.
    pub enum MessageType: u32 {
        NEGOTIATE = 0x00000001, "NTLMSSP_NEGOTIATE";
        CHALLENGE = 0x00000002, "NTLMSSP_CHALLENGE";
        AUTHENTICATE = 0x00000003, "NTLMSSP_AUTH";
    }
}

wire_enum! {
    /// Type of a pair of the target information, \[MS-NLMP\] 2.2.2.1.
    pub enum AvId: u16 {
        EOL = 0x0000, "End of list";
        NB_COMPUTER_NAME = 0x0001, "NetBIOS computer name";
        NB_DOMAIN_NAME = 0x0002, "NetBIOS domain name";
        DNS_COMPUTER_NAME = 0x0003, "DNS computer name";
        DNS_DOMAIN_NAME = 0x0004, "DNS domain name";
        DNS_TREE_NAME = 0x0005, "DNS tree name";
        FLAGS = 0x0006, "Flags";
        TIMESTAMP = 0x0007, "Timestamp";
        SINGLE_HOST = 0x0008, "Restrictions";
        TARGET_NAME = 0x0009, "Target Name";
        CHANNEL_BINDINGS = 0x000a, "Channel Bindings";
    }
}

const UNICODE: u32 = 0x0000_0001;

fields! {
    /// The fields of the three messages.
    pub mod f ["[MS-NLMP] 2.2.1"] {
        PROTOCOL: Protocol = "ntlmssp", "NTLM Secure Service Provider";
        IDENTIFIER: Str as Keep = "ntlmssp.identifier", "NTLMSSP identifier";
        MESSAGE_TYPE: U32 = "ntlmssp.messagetype", "NTLM Message Type", hex, values MessageType::VALUES;
        FLAGS: U32 = "ntlmssp.negotiateflags", "Negotiate Flags", hex;
        FLAG_UNICODE: Bool & 0x00000001 / 32 = "ntlmssp.negotiateunicode", "Negotiate UNICODE";
        FLAG_OEM: Bool & 0x00000002 / 32 = "ntlmssp.negotiateoem", "Negotiate OEM";
        FLAG_REQUEST_TARGET: Bool & 0x00000004 / 32 = "ntlmssp.requesttarget", "Request Target";
        FLAG_00000008: Bool & 0x00000008 / 32 = "ntlmssp.unused00000008", "Request 0x00000008";
        FLAG_SIGN: Bool & 0x00000010 / 32 = "ntlmssp.negotiatesign", "Negotiate Sign";
        FLAG_SEAL: Bool & 0x00000020 / 32 = "ntlmssp.negotiateseal", "Negotiate Seal";
        FLAG_DATAGRAM: Bool & 0x00000040 / 32 = "ntlmssp.negotiatedatagram", "Negotiate Datagram";
        FLAG_LM_KEY: Bool & 0x00000080 / 32 = "ntlmssp.negotiatelmkey", "Negotiate Lan Manager Key";
        FLAG_00000100: Bool & 0x00000100 / 32 = "ntlmssp.unused00000100", "Negotiate 0x00000100";
        FLAG_NTLM: Bool & 0x00000200 / 32 = "ntlmssp.negotiatentlm", "Negotiate NTLM key";
        FLAG_NT_ONLY: Bool & 0x00000400 / 32 = "ntlmssp.unused00000400", "Negotiate NT Only";
        FLAG_ANONYMOUS: Bool & 0x00000800 / 32 = "ntlmssp.negotiateanonymous", "Negotiate Anonymous";
        FLAG_DOMAIN_SUPPLIED: Bool & 0x00001000 / 32 = "ntlmssp.negotiateoemdomainsupplied", "Negotiate OEM Domain \
            Supplied";
        FLAG_WORKSTATION_SUPPLIED: Bool & 0x00002000 / 32 = "ntlmssp.negotiateoemworkstationsupplied", "Negotiate OEM \
            Workstation Supplied";
        FLAG_00004000: Bool & 0x00004000 / 32 = "ntlmssp.unused00004000", "Negotiate 0x00004000";
        FLAG_ALWAYS_SIGN: Bool & 0x00008000 / 32 = "ntlmssp.negotiatealwayssign", "Negotiate Always Sign";
        FLAG_TARGET_DOMAIN: Bool & 0x00010000 / 32 = "ntlmssp.targettypedomain", "Target Type Domain";
        FLAG_TARGET_SERVER: Bool & 0x00020000 / 32 = "ntlmssp.targettypeserver", "Target Type Server";
        FLAG_TARGET_SHARE: Bool & 0x00040000 / 32 = "ntlmssp.unused00040000", "Target Type Share";
        FLAG_EXTENDED_SECURITY: Bool & 0x00080000 / 32 = "ntlmssp.negotiateextendedsessionsecurity", "Negotiate \
            Extended Security";
        FLAG_IDENTIFY: Bool & 0x00100000 / 32 = "ntlmssp.negotiateidentify", "Negotiate Identify";
        FLAG_00200000: Bool & 0x00200000 / 32 = "ntlmssp.unused00200000", "Negotiate 0x00200000";
        FLAG_NON_NT_SESSION: Bool & 0x00400000 / 32 = "ntlmssp.requestnonntsessionkey", "Request Non-NT Session";
        FLAG_TARGET_INFO: Bool & 0x00800000 / 32 = "ntlmssp.negotiatetargetinfo", "Negotiate Target Info";
        FLAG_01000000: Bool & 0x01000000 / 32 = "ntlmssp.unused01000000", "Negotiate 0x01000000";
        FLAG_VERSION: Bool & 0x02000000 / 32 = "ntlmssp.negotiateversion", "Negotiate Version";
        FLAG_04000000: Bool & 0x04000000 / 32 = "ntlmssp.unused04000000", "Negotiate 0x04000000";
        FLAG_08000000: Bool & 0x08000000 / 32 = "ntlmssp.unused08000000", "Negotiate 0x08000000";
        FLAG_10000000: Bool & 0x10000000 / 32 = "ntlmssp.unused10000000", "Negotiate 0x10000000";
        FLAG_128: Bool & 0x20000000 / 32 = "ntlmssp.negotiate128", "Negotiate 128";
        FLAG_KEY_EXCHANGE: Bool & 0x40000000 / 32 = "ntlmssp.negotiatekeyexch", "Negotiate Key Exchange";
        FLAG_56: Bool & 0x80000000 / 32 = "ntlmssp.negotiate56", "Negotiate 56";
        NEGOTIATE_DOMAIN: Str = "ntlmssp.negotiate.domain", "Calling workstation domain";
        NEGOTIATE_WORKSTATION: Str = "ntlmssp.negotiate.callingworkstation", "Calling workstation name";
        STRING_LENGTH: U16 = "ntlmssp.string.length", "Length", dec;
        STRING_MAXLEN: U16 = "ntlmssp.string.maxlen", "Maxlen", dec;
        STRING_OFFSET: U32 = "ntlmssp.string.offset", "Offset", dec;
        BLOB_LENGTH: U16 = "ntlmssp.blob.length", "Length", dec;
        BLOB_MAXLEN: U16 = "ntlmssp.blob.maxlen", "Maxlen", dec;
        BLOB_OFFSET: U32 = "ntlmssp.blob.offset", "Offset", dec;
        VERSION: None = "ntlmssp.version", "Version";
        VERSION_MAJOR: U8 = "ntlmssp.version.major", "Major Version", dec;
        VERSION_MINOR: U8 = "ntlmssp.version.minor", "Minor Version", dec;
        VERSION_BUILD: U16 = "ntlmssp.version.build_number", "Build Number", dec;
        VERSION_REVISION: U8 = "ntlmssp.version.ntlm_current_revision", "NTLM Current Revision", dec;
        TARGET_NAME: Str = "ntlmssp.challenge.target_name", "Target Name";
        SERVER_CHALLENGE: Bytes as Id = "ntlmssp.ntlmserverchallenge", "NTLM Server Challenge";
        CLIENT_CHALLENGE: Bytes as Id = "ntlmssp.ntlmclientchallenge", "LMv2 Client Challenge";
        RESERVED: Bytes as Keep = "ntlmssp.reserved", "Reserved";
        INFO: None = "ntlmssp.challenge.target_info", "Target Info";
        INFO_LENGTH: U16 = "ntlmssp.challenge.target_info.length", "Length", dec;
        INFO_MAXLEN: U16 = "ntlmssp.challenge.target_info.maxlen", "Maxlen", dec;
        INFO_OFFSET: U32 = "ntlmssp.challenge.target_info.offset", "Offset", dec;
        INFO_ITEM: None = "rdmascope.ntlmssp.challenge.target_info.item", "Attribute";
        INFO_ITEM_TYPE: U16 = "ntlmssp.challenge.target_info.item.type", "Target Info Item Type", hex, values AvId::VALUES;
        INFO_ITEM_LENGTH: U16 = "ntlmssp.challenge.target_info.item.length", "Target Info Item Length", dec;
        INFO_NB_COMPUTER: Utf16 = "ntlmssp.challenge.target_info.nb_computer_name", "NetBIOS Computer Name";
        INFO_NB_DOMAIN: Utf16 = "ntlmssp.challenge.target_info.nb_domain_name", "NetBIOS Domain Name";
        INFO_DNS_COMPUTER: Utf16 = "ntlmssp.challenge.target_info.dns_computer_name", "DNS Computer Name";
        INFO_DNS_DOMAIN: Utf16 = "ntlmssp.challenge.target_info.dns_domain_name", "DNS Domain Name";
        INFO_DNS_TREE: Utf16 = "ntlmssp.challenge.target_info.dns_tree_name", "DNS Tree Name";
        INFO_FLAGS: U32 = "ntlmssp.challenge.target_info.flags", "Flags", hex;
        INFO_TIMESTAMP: AbsTime = "ntlmssp.challenge.target_info.timestamp", "Timestamp";
        INFO_RESTRICTIONS: Bytes as Id = "ntlmssp.challenge.target_info.restrictions", "Restrictions";
        INFO_TARGET: Utf16 = "ntlmssp.challenge.target_info.target_name", "Target Name";
        INFO_BINDINGS: Bytes as Secret = "ntlmssp.challenge.target_info.channel_bindings", "Channel Bindings";
        LM_RESPONSE: Bytes as Secret = "ntlmssp.auth.lmresponse", "Lan Manager Response";
        NT_RESPONSE: Bytes = "ntlmssp.auth.ntresponse", "NTLM Response";
        DOMAIN: Str = "ntlmssp.auth.domain", "Domain name";
        USER: Str = "ntlmssp.auth.username", "User name";
        HOST: Str = "ntlmssp.auth.hostname", "Host name";
        SESSION_KEY: Bytes as Secret = "ntlmssp.auth.sesskey", "Session Key";
        MIC: Bytes as Secret = "ntlmssp.authenticate.mic", "MIC";
        RESPONSE: Bytes = "ntlmssp.ntlmv2_response", "NTLMv2 Response";
        RESPONSE_PROOF: Bytes as Secret = "ntlmssp.ntlmv2_response.ntproofstr", "NTProofStr";
        RESPONSE_VERSION: U8 = "ntlmssp.ntlmv2_response.rversion", "Response Version", dec;
        RESPONSE_HI_VERSION: U8 = "ntlmssp.ntlmv2_response.hirversion", "Hi Response Version", dec;
        RESPONSE_Z: Bytes as Keep = "ntlmssp.ntlmv2_response.z", "Z";
        RESPONSE_TIME: AbsTime = "ntlmssp.ntlmv2_response.time", "Time";
        RESPONSE_CHALLENGE: Bytes as Id = "ntlmssp.ntlmv2_response.chal", "NTLMv2 Client Challenge";
        RESPONSE_PAD: Bytes as Keep = "ntlmssp.ntlmv2_response.pad", "padding";
        PAIR: None = "rdmascope.ntlmssp.ntlmv2_response.item", "Attribute";
        PAIR_TYPE: U16 = "ntlmssp.ntlmv2_response.item.type", "NTLMV2 Response Item Type", hex, values AvId::VALUES;
        PAIR_LENGTH: U16 = "ntlmssp.ntlmv2_response.item.length", "NTLMV2 Response Item Length", dec;
        PAIR_NB_COMPUTER: Utf16 = "ntlmssp.ntlmv2_response.nb_computer_name", "NetBIOS Computer Name";
        PAIR_NB_DOMAIN: Utf16 = "ntlmssp.ntlmv2_response.nb_domain_name", "NetBIOS Domain Name";
        PAIR_DNS_COMPUTER: Utf16 = "ntlmssp.ntlmv2_response.dns_computer_name", "DNS Computer Name";
        PAIR_DNS_DOMAIN: Utf16 = "ntlmssp.ntlmv2_response.dns_domain_name", "DNS Domain Name";
        PAIR_DNS_TREE: Utf16 = "ntlmssp.ntlmv2_response.dns_tree_name", "DNS Tree Name";
        PAIR_FLAGS: U32 = "ntlmssp.ntlmv2_response.flags", "Flags", hex;
        PAIR_TIMESTAMP: AbsTime = "ntlmssp.ntlmv2_response.timestamp", "Timestamp";
        PAIR_RESTRICTIONS: Bytes as Id = "ntlmssp.ntlmv2_response.restrictions", "Restrictions";
        PAIR_TARGET: Utf16 = "ntlmssp.ntlmv2_response.target_name", "Target Name";
        PAIR_BINDINGS: Bytes as Secret = "ntlmssp.ntlmv2_response.channel_bindings", "Channel Bindings";
    }
}

#[rustfmt::skip]
const FLAGS: &[Def] = &[
    f::FLAG_UNICODE, f::FLAG_OEM, f::FLAG_REQUEST_TARGET, f::FLAG_00000008, f::FLAG_SIGN, f::FLAG_SEAL, f::FLAG_DATAGRAM, f::FLAG_LM_KEY,
    f::FLAG_00000100, f::FLAG_NTLM, f::FLAG_NT_ONLY, f::FLAG_ANONYMOUS, f::FLAG_DOMAIN_SUPPLIED, f::FLAG_WORKSTATION_SUPPLIED, f::FLAG_00004000,
    f::FLAG_ALWAYS_SIGN, f::FLAG_TARGET_DOMAIN, f::FLAG_TARGET_SERVER, f::FLAG_TARGET_SHARE, f::FLAG_EXTENDED_SECURITY, f::FLAG_IDENTIFY,
    f::FLAG_00200000, f::FLAG_NON_NT_SESSION, f::FLAG_TARGET_INFO, f::FLAG_01000000, f::FLAG_VERSION, f::FLAG_04000000, f::FLAG_08000000,
    f::FLAG_10000000, f::FLAG_128, f::FLAG_KEY_EXCHANGE, f::FLAG_56,
];

/// Text of a message: UTF-16 or the OEM character set, as its flags say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// As it is on the wire.
    pub bytes: &'a [u8],
    /// True if it is UTF-16.
    pub unicode: bool,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unicode {
            return fmt::Display::fmt(&Utf16(self.bytes), f);
        }
        self.bytes.iter().try_for_each(|b| match b {
            0x20..=0x7e => write!(f, "{}", char::from(*b)),
            _ => write!(f, "\\x{b:02x}"),
        })
    }
}

/// The parts of a message that keys and names are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// NEGOTIATE
    Negotiate {
        /// Flags offered.
        flags: u32,
    },
    /// CHALLENGE
    Challenge {
        /// Flags chosen.
        flags: u32,
        /// Random.
        server_challenge: [u8; 8],
        /// Name of the domain or server.
        target_name: Text<'a>,
        /// The list of pairs.
        target_info: &'a [u8],
    },
    /// AUTHENTICATE
    Authenticate {
        /// Flags agreed on.
        flags: u32,
        /// LMv2 response.
        lm_response: &'a [u8],
        /// NTLMv2 response: 16 bytes of proof, then the hashed bytes.
        nt_response: &'a [u8],
        /// Domain of the user.
        domain: Text<'a>,
        /// User.
        user: Text<'a>,
        /// Host of the client.
        workstation: Text<'a>,
        /// The session key, encrypted.
        session_key: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Takes a message apart; `None` if it is not one, or its fixed part is cut. Parts that point outside are empty or
    /// cut.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if !bytes.starts_with(SIGNATURE) {
            return None;
        }
        let word = |at| number(bytes, at, 4) as u32;
        let piece = |at: usize| Blob::of(bytes, 12, number(bytes, at + 4, 4) as u32, number(bytes, at, 2) as u32).bytes;
        let needs = |length: usize| (bytes.len() >= length).then_some(());
        match MessageType(word(8)) {
            MessageType::NEGOTIATE => needs(16).map(|()| Self::Negotiate { flags: word(12) }),
            MessageType::CHALLENGE => {
                needs(32)?;
                let flags = word(20);
                let target_name = Text { bytes: piece(12), unicode: flags & UNICODE != 0 };
                let target_info = if bytes.len() >= 48 { piece(40) } else { &[] };
                Some(Self::Challenge { flags, server_challenge: *bytes[24..].first_chunk()?, target_name, target_info })
            }
            MessageType::AUTHENTICATE => {
                needs(64)?;
                let flags = word(60);
                let text = |at| Text { bytes: piece(at), unicode: flags & UNICODE != 0 };
                Some(Self::Authenticate {
                    flags,
                    lm_response: piece(12),
                    nt_response: piece(20),
                    domain: text(28),
                    user: text(36),
                    workstation: text(44),
                    session_key: piece(52),
                })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Negotiate { .. } => f.write_str("NTLMSSP_NEGOTIATE"),
            Self::Challenge { .. } => f.write_str("NTLMSSP_CHALLENGE"),
            Self::Authenticate { domain, user, .. } => write!(f, "NTLMSSP_AUTH, User: {domain}\\{user}"),
        }
    }
}

/// Tells a message and all its fields.
pub(super) fn message<'a, T: Trace>(start: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    scope(f::PROTOCOL, start, t, |i, t| {
        // a string that ends with a NUL, which is not part of its value
        let (rest, identifier) = leaf::take(i, 8).or_else(|_| Fault::short(Some(f::IDENTIFIER), i, 8).fail())?;
        let text = identifier.strip_suffix(&[0]).unwrap_or(identifier);
        t.field(f::IDENTIFIER, i, 8, Value::Bytes(text));
        let i = rest;
        let (i, kind) = read::le32(f::MESSAGE_TYPE, i, t)?;
        match MessageType(kind) {
            MessageType::NEGOTIATE => negotiate(start, i, t)?,
            MessageType::CHALLENGE => challenge(start, i, t)?,
            MessageType::AUTHENTICATE => authenticate(start, i, t)?,
            _ => read::bytes(shared::UNKNOWN, i.len(), i, t).map(|(i, _)| (i, ()))?,
        };
        Ok((&start[start.len()..], ()))
    })
}

fn negotiate<'a, T: Trace>(start: &'a [u8], i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, flags) = flags32(f::FLAGS, FLAGS, i, t)?;
    // older clients end here
    if i.is_empty() {
        return Ok((i, ()));
    }
    let (i, ()) = text(f::NEGOTIATE_DOMAIN, false, start, i, t)?;
    let (i, ()) = text(f::NEGOTIATE_WORKSTATION, false, start, i, t)?;
    version(flags, i, t)
}

fn challenge<'a, T: Trace>(start: &'a [u8], i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let unicode = number(start, 20, 4) as u32 & UNICODE != 0;
    let (i, ()) = text(f::TARGET_NAME, unicode, start, i, t)?;
    let (i, flags) = flags32(f::FLAGS, FLAGS, i, t)?;
    let (i, _) = read::array::<8, T>(f::SERVER_CHALLENGE, i, t)?;
    if i.is_empty() {
        return Ok((i, ()));
    }
    let (i, _) = read::array::<8, T>(f::RESERVED, i, t)?;
    let (i, info) = pieces([f::INFO_LENGTH, f::INFO_MAXLEN, f::INFO_OFFSET], start, i, t)?;
    if !info.is_empty() {
        // it lies elsewhere, and a fault in it is reported there
        let _ = scope(f::INFO, info, t, |i, t| pairs(&INFO, i, t));
    }
    version(flags, i, t)
}

fn authenticate<'a, T: Trace>(start: &'a [u8], i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let unicode = number(start, 60, 4) as u32 & UNICODE != 0;
    let lowest = (0..6)
        .map(|n| start.len().min(12 + 8 * n))
        .filter(|at| number(start, *at, 2) > 0)
        .map(|at| number(start, at + 4, 4))
        .min();
    let blob = [f::BLOB_LENGTH, f::BLOB_MAXLEN, f::BLOB_OFFSET];
    let (i, lm) = pieces(blob, start, i, t)?;
    if !lm.is_empty() {
        t.field(f::LM_RESPONSE, lm, lm.len(), Value::Bytes(lm));
        if let Some(challenge) = lm.get(16..24) {
            t.down();
            t.field(f::CLIENT_CHALLENGE, challenge, 8, Value::Bytes(challenge));
            t.up();
        }
    }
    let (i, nt) = pieces(blob, start, i, t)?;
    if !nt.is_empty() {
        t.field(f::NT_RESPONSE, nt, nt.len(), Value::Bytes(nt));
        // an NTLMv1 response has 24 bytes and no structure
        if nt.len() > 24 {
            t.down();
            let result = ntlmv2_response(nt, t);
            t.up();
            if let Err(error) = result {
                report(error, t);
            }
        }
    }
    let (i, ()) = text(f::DOMAIN, unicode, start, i, t)?;
    let (i, ()) = text(f::USER, unicode, start, i, t)?;
    let (i, ()) = text(f::HOST, unicode, start, i, t)?;
    let (i, key) = pieces(blob, start, i, t)?;
    if !key.is_empty() {
        t.field(f::SESSION_KEY, key, key.len(), Value::Bytes(key));
    }
    // the oldest clients end before the flags; the variable parts begin at the end of the fixed part
    if lowest.is_some_and(|o| o < 64) || i.is_empty() {
        return Ok((i, ()));
    }
    let (i, flags) = flags32(f::FLAGS, FLAGS, i, t)?;
    let (i, ()) = if lowest.is_some_and(|o| o < 72) { (i, ()) } else { version(flags, i, t)? };
    if lowest.is_some_and(|o| o >= 88) {
        read::array::<16, T>(f::MIC, i, t)?;
    }
    Ok((i, ()))
}

/// NTLMv2_RESPONSE, \[MS-NLMP\] 2.2.2.8.
fn ntlmv2_response<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    t.field(f::RESPONSE, i, i.len(), Value::Bytes(i));
    t.down();
    let result = (|i: &'a [u8], t: &mut T| {
        let (i, _) = read::array::<16, T>(f::RESPONSE_PROOF, i, t)?;
        let (i, _) = read::u8(f::RESPONSE_VERSION, i, t)?;
        let (i, _) = read::u8(f::RESPONSE_HI_VERSION, i, t)?;
        let (i, _) = read::array::<6, T>(f::RESPONSE_Z, i, t)?;
        let (i, _) = filetime(f::RESPONSE_TIME, i, t)?;
        let (i, _) = read::array::<8, T>(f::RESPONSE_CHALLENGE, i, t)?;
        let (i, _) = read::array::<4, T>(f::RESPONSE_Z, i, t)?;
        let (i, ()) = pairs(&PAIRS, i, t)?;
        if !i.is_empty() {
            t.field(f::RESPONSE_PAD, i, i.len(), Value::Bytes(i));
        }
        Ok((&i[i.len()..], ()))
    })(i, t);
    t.up();
    result
}

/// The same pairs stand in the challenge and in the response to it, under different names.
struct Names {
    item: Def,
    id: Def,
    length: Def,
    texts: [Def; 5],
    flags: Def,
    timestamp: Def,
    restrictions: Def,
    target: Def,
    bindings: Def,
}

static INFO: Names = Names {
    item: f::INFO_ITEM,
    id: f::INFO_ITEM_TYPE,
    length: f::INFO_ITEM_LENGTH,
    texts: [f::INFO_NB_COMPUTER, f::INFO_NB_DOMAIN, f::INFO_DNS_COMPUTER, f::INFO_DNS_DOMAIN, f::INFO_DNS_TREE],
    flags: f::INFO_FLAGS,
    timestamp: f::INFO_TIMESTAMP,
    restrictions: f::INFO_RESTRICTIONS,
    target: f::INFO_TARGET,
    bindings: f::INFO_BINDINGS,
};

static PAIRS: Names = Names {
    item: f::PAIR,
    id: f::PAIR_TYPE,
    length: f::PAIR_LENGTH,
    texts: [f::PAIR_NB_COMPUTER, f::PAIR_NB_DOMAIN, f::PAIR_DNS_COMPUTER, f::PAIR_DNS_DOMAIN, f::PAIR_DNS_TREE],
    flags: f::PAIR_FLAGS,
    timestamp: f::PAIR_TIMESTAMP,
    restrictions: f::PAIR_RESTRICTIONS,
    target: f::PAIR_TARGET,
    bindings: f::PAIR_BINDINGS,
};

fn pairs<'a, T: Trace>(names: &Names, mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    loop {
        let id;
        (i, id) = scope(names.item, i, t, |i, t| {
            let (i, id) = read::le16(names.id, i, t)?;
            let (i, length) = read::le16(names.length, i, t)?;
            let Some((value, rest)) = i.split_at_checked(length.into()) else {
                return Fault::short(Some(names.length), i, length.into()).fail();
            };
            let id = AvId(id);
            t.label(format_args!(": {id}"));
            match id {
                AvId::EOL => {}
                AvId(n @ 1..=5) => {
                    t.field(names.texts[usize::from(n) - 1], value, value.len(), Value::Bytes(value));
                    t.label(format_args!(": {}", Utf16(value)));
                }
                AvId::FLAGS => _ = read::le32(names.flags, value, t)?,
                AvId::TIMESTAMP => _ = filetime(names.timestamp, value, t)?,
                AvId::SINGLE_HOST => t.field(names.restrictions, value, value.len(), Value::Bytes(value)),
                AvId::TARGET_NAME => t.field(names.target, value, value.len(), Value::Bytes(value)),
                AvId::CHANNEL_BINDINGS => t.field(names.bindings, value, value.len(), Value::Bytes(value)),
                _ => t.field(shared::UNKNOWN, value, value.len(), Value::Bytes(value)),
            }
            Ok((rest, id))
        })?;
        if id == AvId::EOL || i.is_empty() {
            return Ok((i, ()));
        }
    }
}

/// Length, maximum length and offset of a piece; and the piece, which lies behind the fixed part.
fn pieces<'a, T: Trace>(
    defs: [Def; 3],
    start: &'a [u8],
    i: &'a [u8],
    t: &mut T,
) -> Result<(&'a [u8], &'a [u8]), nom::Err<Fault>> {
    let at = i;
    let (i, length) = read::le16(defs[0], i, t)?;
    let (i, _) = read::le16(defs[1], i, t)?;
    let (i, offset) = read::le32(defs[2], i, t)?;
    let piece = Blob::of(start, 12, offset, length.into());
    if !piece.inside {
        t.fault(&Fault::length(defs[2], at, offset as usize));
    }
    Ok((i, piece.bytes))
}

fn text<'a, T: Trace>(def: Def, unicode: bool, start: &'a [u8], i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, bytes) = pieces([f::STRING_LENGTH, f::STRING_MAXLEN, f::STRING_OFFSET], start, i, t)?;
    if !bytes.is_empty() {
        t.field(def, bytes, bytes.len(), Value::Text(format_args!("{}", Text { bytes, unicode })));
    }
    Ok((i, ()))
}

fn version<'a, T: Trace>(flags: u32, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    const NEGOTIATE_VERSION: u32 = 0x0200_0000;
    if i.len() < 8 {
        return Ok((i, ()));
    }
    if flags & NEGOTIATE_VERSION == 0 {
        // eight bytes all the same, which say nothing
        return Ok((&i[8..], ()));
    }
    scope(f::VERSION, i, t, |i, t| {
        let (i, _) = read::u8(f::VERSION_MAJOR, i, t)?;
        let (i, _) = read::u8(f::VERSION_MINOR, i, t)?;
        let (i, _) = read::le16(f::VERSION_BUILD, i, t)?;
        let (i, _) = leaf::take(i, 3)?;
        let (i, _) = read::u8(f::VERSION_REVISION, i, t)?;
        Ok((i, ()))
    })
}
