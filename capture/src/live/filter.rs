//! Capture filters: a small language, and the classic BPF program that the kernel runs on each frame.
//!
//! ```text
//! filter    = all { "or" all }            all = one { "and" one }            one = "not" one | "(" filter ")" | test
//! test      = NAME                                    one of NAMES below: rdma, everything, roce, iwarp, …
//!           | ["src"|"dst"] ["tcp"|"udp"] "port" N[-M]
//!           | ["src"|"dst"] "host" ADDRESS[/BITS]
//!           | "ethertype" N | "proto" N | "vlan" [N]
//! ```
//! The registers of the program, after its first part has looked at the frame (spec: Linux
//! `Documentation/networking/filter.rst`):
//!
//! | M | content |
//! | --- | --- |
//! | 0 | ethertype behind up to two VLAN tags in the frame |
//! | 1 | offset of the network header |
//! | 2 | IP protocol; 0xffff if there is none |
//! | 3 | offset of the transport header |
//! | 4 | offset of an IP fragment; 0 for a first one and for whole datagrams |
//!
//! A load beyond the end of a frame ends a program with "no", so every test looks at the length before it loads.

use std::fmt;
use std::net::IpAddr;

/// Filters that have a name. Each is written in the language itself, or is one of its atoms.
pub const NAMES: [(&str, &str, &str); 11] = [
    (
        "rdma",
        "roce or iwarp or smb or tunnels or extended or pause or fragments",
        "the default: everything that carries, or may carry, storage over RDMA",
    ),
    ("everything", "", "all frames"),
    ("roce", "udp port 4791 or ethertype 0x8915", "RoCE versions 2 and 1"),
    (
        "iwarp",
        "tcp port 5445 or tcp port 20049 or mpa",
        "SMB Direct and NFS over RDMA on TCP, and MPA handshakes on any port",
    ),
    ("smb", "tcp port 445", "SMB over TCP, where SMB Direct connections begin"),
    ("nfs", "tcp port 2049 or tcp port 20049 or port 111", "NFS with and without RDMA, portmap"),
    (
        "tunnels",
        "proto 47 or proto 4 or proto 41 or udp port 4789 or udp port 8472 or udp port 6081 or ethertype 0x8847 or \
            ethertype 0x8848",
        "GRE and ERSPAN, IP in IP, VXLAN, GENEVE, MPLS: whatever they carry",
    ),
    (
        "extended",
        "ip6 and (proto 0 or proto 43 or proto 51 or proto 60)",
        "IPv6 with extension headers, behind which ports are not looked for",
    ),
    ("pause", "ethertype 0x8808", "Ethernet pause frames, priority flow control among them"),
    ("fragments", "", "IP fragments behind the first, which have no ports"),
    ("mpa", "", "the first TCP segment of an MPA handshake (RFC 5044), on any port"),
];

/// Maximum nesting of filters.
const DEPTH_MAX: u32 = 64;
/// BPF_MAXINSNS.
const PROGRAM_MAX: usize = 4096;

/// A capture filter: which frames to capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    text: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Everything,
    All(Box<Test>, Box<Test>),
    Any(Box<Test>, Box<Test>),
    Not(Box<Test>),
    Ethertype(u16),
    Protocol(u8),
    Port { side: Side, tcp: bool, udp: bool, low: u16, high: u16 },
    Host { side: Side, address: IpAddr, bits: u8 },
    Vlan(Option<u16>),
    Fragment,
    Mpa,
}

/// End of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Either,
    Source,
    Destination,
}

#[cfg(any(test, feature = "libpcap"))]
impl Side {
    fn word(self) -> &'static str {
        match self {
            Side::Either => "",
            Side::Source => "src ",
            Side::Destination => "dst ",
        }
    }
}

/// A syntax error in a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// The mistake, as a sentence without a period.
    pub message: String,
    /// Byte offset of the mistake in the filter's text.
    pub at: usize,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at character {})", self.message, self.at + 1)
    }
}

impl std::error::Error for FilterError {}

impl Default for Filter {
    fn default() -> Self {
        let test = named("rdma").unwrap_or(Test::Everything);
        Self { text: "rdma".to_owned(), test }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut parser = Parser { words: words(text), next: 0, end: text.len() };
        if parser.words.is_empty() {
            return Err(FilterError { message: "an empty filter; everything captures all frames".to_owned(), at: 0 });
        }
        let test = parser.any(0)?;
        if let Some((word, at)) = parser.words.get(parser.next) {
            return Err(FilterError { message: format!("\"{word}\" where and, or, or the end was expected"), at: *at });
        }
        Ok(Self { text: text.to_owned(), test })
    }
}

fn words(text: &str) -> Vec<(&str, usize)> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices() {
        let is_sign = matches!(c, '(' | ')');
        if (c.is_whitespace() || is_sign) && start.is_some() {
            let from = start.take().unwrap_or(at);
            words.push((&text[from..at], from));
        }
        if is_sign {
            words.push((&text[at..=at], at));
        } else if !c.is_whitespace() && start.is_none() {
            start = Some(at);
        }
    }
    if let Some(from) = start {
        words.push((&text[from..], from));
    }
    words
}

/// The meaning of a name.
fn named(name: &str) -> Option<Test> {
    let (_, text, _) = NAMES.iter().find(|(n, ..)| *n == name)?;
    Some(match name {
        "everything" => Test::Everything,
        "fragments" => Test::Fragment,
        "mpa" => Test::Mpa,
        _ => {
            let mut parser = Parser { words: words(text), next: 0, end: text.len() };
            parser.any(0).ok()?
        }
    })
}

struct Parser<'t> {
    words: Vec<(&'t str, usize)>,
    next: usize,
    end: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t str> {
        self.words.get(self.next).map(|w| w.0)
    }

    fn take(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(word);
        self.next += usize::from(is);
        is
    }

    fn word(&mut self, wanted: &str) -> Result<&'t str, FilterError> {
        let word = self.peek().ok_or_else(|| self.error(format!("{wanted} is missing")))?;
        self.next += 1;
        Ok(word)
    }

    fn error(&self, message: String) -> FilterError {
        FilterError { message, at: self.words.get(self.next).map_or(self.end, |w| w.1) }
    }

    fn wrong(&self, message: String) -> FilterError {
        FilterError { message, at: self.words.get(self.next.saturating_sub(1)).map_or(self.end, |w| w.1) }
    }

    fn any(&mut self, depth: u32) -> Result<Test, FilterError> {
        let mut test = self.all(depth)?;
        while self.take("or") || self.take("||") {
            test = Test::Any(Box::new(test), Box::new(self.all(depth)?));
        }
        Ok(test)
    }

    fn all(&mut self, depth: u32) -> Result<Test, FilterError> {
        let mut test = self.one(depth)?;
        while self.take("and") || self.take("&&") {
            test = Test::All(Box::new(test), Box::new(self.one(depth)?));
        }
        Ok(test)
    }

    fn one(&mut self, depth: u32) -> Result<Test, FilterError> {
        if depth > DEPTH_MAX {
            return Err(self.error(format!("more than {DEPTH_MAX} levels")));
        }
        if self.take("not") || self.take("!") {
            return Ok(Test::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.take("(") {
            let test = self.any(depth + 1)?;
            return if self.take(")") {
                Ok(test)
            } else {
                Err(self.error("a closing parenthesis is missing".to_owned()))
            };
        }
        let side = match self.peek() {
            Some("src") => Side::Source,
            Some("dst") => Side::Destination,
            _ => Side::Either,
        };
        self.next += usize::from(side != Side::Either);
        let word = self.word("a test")?;
        match word {
            "host" | "net" => return self.host(side),
            "port" | "ports" => return self.port(side, true, true),
            "tcp" | "udp" => {
                return if self.take("port") || self.take("ports") {
                    self.port(side, word == "tcp", word == "udp")
                } else if side == Side::Either {
                    Ok(Test::Protocol(if word == "tcp" { 6 } else { 17 }))
                } else {
                    Err(self.error(format!("{word} is not followed by port")))
                };
            }
            _ if side != Side::Either => {
                return Err(self.wrong("src and dst must be followed by host or port".to_owned()));
            }
            _ => {}
        }
        match word {
            "ip" => Ok(Test::Ethertype(0x0800)),
            "ip6" => Ok(Test::Ethertype(0x86dd)),
            "arp" => Ok(Test::Ethertype(0x0806)),
            "icmp" => Ok(Test::Protocol(1)),
            "ethertype" => {
                let word = self.word("a number")?;
                let value = number(word).and_then(|n| u16::try_from(n).ok());
                value.map(Test::Ethertype).ok_or_else(|| {
                    self.wrong(format!(
                        "\"{word}\" is not an Ethertype, such as \
                    0x8915"
                    ))
                })
            }
            "proto" => {
                let word = self.word("a number")?;
                let value = number(word).and_then(|n| u8::try_from(n).ok());
                value.map(Test::Protocol).ok_or_else(|| {
                    self.wrong(format!(
                        "\"{word}\" is not an IP protocol, from 0 \
                    to 255"
                    ))
                })
            }
            "vlan" => {
                let id = self.peek().and_then(number).and_then(|n| u16::try_from(n).ok()).filter(|n| *n < 4096);
                self.next += usize::from(id.is_some());
                Ok(Test::Vlan(id))
            }
            _ => named(word).ok_or_else(|| {
                let names: Vec<&str> = NAMES.iter().map(|n| n.0).collect();
                self.wrong(format!(
                    "\"{word}\" is not known; there are {}, port, tcp port, udp port, host, ethertype, proto, vlan, \
                        ip, ip6, arp, and, or, \
                    not",
                    names.join(", ")
                ))
            }),
        }
    }

    fn port(&mut self, side: Side, tcp: bool, udp: bool) -> Result<Test, FilterError> {
        let word = self.word("a port")?;
        let (low, high) = word.split_once('-').unwrap_or((word, word));
        match (low.parse::<u16>(), high.parse::<u16>()) {
            (Ok(low), Ok(high)) if low <= high => Ok(Test::Port { side, tcp, udp, low, high }),
            _ => Err(self.wrong(format!("\"{word}\" is not a port, such as 5445 or 5000-5010"))),
        }
    }

    fn host(&mut self, side: Side) -> Result<Test, FilterError> {
        let word = self.word("an address")?;
        let (text, bits) = word.split_once('/').map_or((word, None), |(a, b)| (a, Some(b)));
        let address: Option<IpAddr> = text.parse().ok();
        let Some(address) = address else { return Err(self.wrong(format!("\"{word}\" is not an IP address"))) };
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => Some(most),
            Some(bits) => bits.parse::<u8>().ok().filter(|b| *b <= most),
        };
        let Some(bits) = bits else { return Err(self.wrong(format!("\"{word}\": from 0 to {most} bits"))) };
        Ok(Test::Host { side, address, bits })
    }
}

fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

// ── The program
// ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/// An instruction of classic BPF, as `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation code, as in `struct sock_filter`.
    pub code: u16,
    /// Number of instructions to skip if the condition is true.
    pub jt: u8,
    /// Number of instructions to skip if it is false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// First bytes of a frame, for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// An Ethernet header.
    Ethernet,
    /// The IP header; the kernel knows the ethertype.
    Ip,
}

pub(super) const LD_W_ABS: u16 = 0x20;
const LD_H_ABS: u16 = 0x28;
const LD_W_IND: u16 = 0x40;
const LD_H_IND: u16 = 0x48;
const LD_B_IND: u16 = 0x50;
const LD_LEN: u16 = 0x80;
const LD_IMM: u16 = 0x00;
const LD_MEM: u16 = 0x60;
const LDX_MEM: u16 = 0x61;
const ST: u16 = 0x02;
const ADD_X: u16 = 0x0c;
const SUB_X: u16 = 0x1c;
const AND_K: u16 = 0x54;
const LSH_K: u16 = 0x64;
pub(super) const RSH_K: u16 = 0x74;
const JA: u16 = 0x05;
pub(super) const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
pub(super) const RET: u16 = 0x06;
pub(super) const TAX: u16 = 0x07;
pub(super) const XOR_X: u16 = 0xac;
pub(super) const MUL_K: u16 = 0x24;
/// Returns the accumulator.
pub(super) const RET_A: u16 = 0x16;

/// Offsets from the network layer's header, wherever the frame begins.
pub(super) const NET: u32 = 0xfff0_0000;
/// Offsets outside the frame: ancillary data of the kernel.
const AD: u32 = 0xffff_f000;
pub(super) const AD_PROTOCOL: u32 = AD;
const AD_PKTTYPE: u32 = AD + 4;
const AD_VLAN_TAG: u32 = AD + 44;
const AD_VLAN_TAG_PRESENT: u32 = AD + 48;
/// PACKET_OUTGOING
const OUTGOING: u32 = 4;

/// A place in a program, counted from its end.
type Label = usize;

/// Builds a program from its end to its beginning, so that the target of a jump is known when the jump is made.
struct Assembler {
    reversed: Vec<Instruction>,
    begins: Begins,
}

impl Filter {
    /// The program for a socket. It keeps `snap_len` bytes of a frame; `not_outgoing` leaves out outgoing frames (on a
    /// loopback interface all frames come in as well). `None` if it would be longer than the kernel accepts.
    pub fn program(&self, begins: Begins, snap_len: u32, not_outgoing: bool) -> Option<Vec<Instruction>> {
        let mut a = Assembler { reversed: Vec::new(), begins };
        let no = a.push(RET, 0);
        let yes = a.push(RET, snap_len);
        let mut entry = a.test(&self.test, yes, no);
        if self.test != Test::Everything {
            entry = a.prologue(entry);
        }
        if not_outgoing {
            a.jump(JEQ, OUTGOING, no, entry);
            a.push(LD_W_ABS, AD_PKTTYPE);
        } else if entry + 1 != a.reversed.len() {
            a.go(entry);
        }
        if a.reversed.len() > PROGRAM_MAX {
            return None;
        }
        a.reversed.reverse();
        Some(a.reversed)
    }

    /// The same in the language of pcap-filter(7), with and without a VLAN tag; `None` if that language cannot express
    /// it.
    #[cfg(any(test, feature = "libpcap"))]
    pub(super) fn libpcap(&self) -> Option<String> {
        fn text(test: &Test) -> Option<String> {
            Some(match test {
                Test::Everything => "len >= 0".to_owned(),
                Test::All(a, b) => format!("({} and {})", text(a)?, text(b)?),
                Test::Any(a, b) => format!("({} or {})", text(a)?, text(b)?),
                Test::Not(inner) => format!("(not {})", text(inner)?),
                Test::Ethertype(0x0800) => "ip".to_owned(),
                Test::Ethertype(0x86dd) => "ip6".to_owned(),
                Test::Ethertype(kind) => format!("ether proto {kind:#x}"),
                Test::Protocol(protocol) => format!("(ip proto {protocol} or ip6 proto {protocol})"),
                Test::Port { side, tcp, udp, low, high } => {
                    let side = side.word();
                    let protocol = match (tcp, udp) {
                        (true, false) => "tcp ",
                        (false, true) => "udp ",
                        _ => "",
                    };
                    format!("{protocol}{side}portrange {low}-{high}")
                }
                // bits beyond the prefix have to be zero there
                Test::Host { side, address, bits } => match address {
                    IpAddr::V4(a) => {
                        let mask = (!0u32).checked_shl(32 - u32::from(*bits)).unwrap_or(0);
                        format!("{}net {}/{bits}", side.word(), std::net::Ipv4Addr::from(u32::from(*a) & mask))
                    }
                    IpAddr::V6(a) => {
                        let mask = (!0u128).checked_shl(128 - u32::from(*bits)).unwrap_or(0);
                        format!("{}net {}/{bits}", side.word(), std::net::Ipv6Addr::from(u128::from(*a) & mask))
                    }
                },
                Test::Vlan(_) => return None,
                Test::Fragment => {
                    "((ip and ip[6:2] & 0x1fff != 0) or (ip6 and ip6[6] = 44 and ip6[42:2] & 0xfff8 != 0))".to_owned()
                }
                Test::Mpa => "(ip and tcp and tcp[((tcp[12] & 0xf0) >> 2):4] = 0x4d504120)".to_owned(),
            })
        }
        let plain = text(&self.test)?;
        Some(if self.test == Test::Everything { String::new() } else { format!("({plain}) or (vlan and ({plain}))") })
    }

    /// The same filter, and TCP on these ports too.
    pub fn with_tcp_ports(&self, ports: &[u16]) -> Self {
        let mut test = self.test.clone();
        for port in ports {
            test = Test::Any(
                Box::new(Test::Port { side: Side::Either, tcp: true, udp: false, low: *port, high: *port }),
                Box::new(test),
            );
        }
        Self { text: self.text.clone(), test }
    }

    /// True if it looks for MPA handshakes on every port: then the ports of handshakes are captured as well.
    pub fn finds_mpa(&self) -> bool {
        fn has(test: &Test) -> bool {
            match test {
                Test::Mpa => true,
                Test::All(a, b) | Test::Any(a, b) => has(a) || has(b),
                _ => false,
            }
        }
        has(&self.test)
    }
}

impl Assembler {
    fn push(&mut self, code: u16, k: u32) -> Label {
        self.reversed.push(Instruction { code, jt: 0, jf: 0, k });
        self.reversed.len() - 1
    }

    /// Adds a jump to a place.
    fn go(&mut self, to: Label) -> Label {
        let skip = self.reversed.len() - to - 1;
        self.push(JA, skip as u32)
    }

    /// A place near enough for a conditional jump.
    fn near(&mut self, to: Label) -> Label {
        // another trampoline may come in between
        if self.reversed.len() - to > 250 { self.go(to) } else { to }
    }

    fn jump(&mut self, code: u16, k: u32, yes: Label, no: Label) -> Label {
        let (yes, no) = (self.near(yes), self.near(no));
        let here = self.reversed.len();
        self.reversed.push(Instruction { code, jt: (here - yes - 1) as u8, jf: (here - no - 1) as u8, k });
        here
    }

    /// Instructions that run before the place that was made last.
    fn before(&mut self, instructions: &[(u16, u32)]) -> Label {
        for (code, k) in instructions.iter().rev() {
            self.push(*code, *k);
        }
        self.reversed.len() - 1
    }

    /// Loads the properties of the frame; then goes to `then`.
    fn prologue(&mut self, then: Label) -> Label {
        // X is the offset of the network header
        let other = {
            self.go(then);
            self.before(&[(LD_IMM, 0xffff), (ST, 2)])
        };
        // IPv6: a fragment header directly after the fixed header is decoded, other extension headers are not
        let plain6 = {
            self.go(then);
            self.before(&[(LD_B_IND, 6), (ST, 2), (LDX_MEM, 1), (LD_IMM, 40), (ADD_X, 0), (ST, 3)])
        };
        let fragment6 = {
            self.go(then);
            self.before(&[
                (LD_B_IND, 40),
                (ST, 2),
                (LD_H_IND, 42),
                (AND_K, 0xfff8),
                (ST, 4),
                (LD_IMM, 48),
                (ADD_X, 0),
                (ST, 3),
            ])
        };
        let fragment6 = {
            self.jump(JGE, 48, fragment6, other);
            self.before(&[(LD_LEN, 0), (SUB_X, 0)])
        };
        let v6 = {
            self.jump(JEQ, 44, fragment6, plain6);
            self.before(&[(LD_B_IND, 6)])
        };
        let v6 = {
            self.jump(JGE, 40, v6, other);
            self.before(&[(LD_LEN, 0), (SUB_X, 0)])
        };
        let is_v6 = {
            self.jump(JEQ, 0x86dd, v6, other);
            self.before(&[(LD_MEM, 0)])
        };
        let v4 = {
            self.go(then);
            self.before(&[
                (LD_B_IND, 9),
                (ST, 2),
                (LD_H_IND, 6),
                (AND_K, 0x1fff),
                (ST, 4),
                (LD_B_IND, 0),
                (AND_K, 0x0f),
                (LSH_K, 2),
                (ADD_X, 0),
                (ST, 3),
            ])
        };
        let v4 = {
            self.jump(JGE, 20, v4, other);
            self.before(&[(LD_LEN, 0), (SUB_X, 0)])
        };
        let network = {
            self.jump(JEQ, 0x0800, v4, is_v6);
            self.before(&[(ST, 0), (LD_IMM, 0), (ST, 2), (ST, 3), (ST, 4), (LDX_MEM, 1), (LD_MEM, 0)])
        };
        if self.begins == Begins::Ip {
            return self.before(&[(LD_IMM, 0), (ST, 1), (LD_W_ABS, AD_PROTOCOL)]);
        }
        // M1 first, since A holds the ethertype when `network` begins
        let mut known = network;
        let mut tagged = None;
        for (at, from) in [(22u32, 20u32), (18, 16), (14, 12)] {
            let place = match tagged {
                None => known,
                Some(deeper) => {
                    let mut place = known;
                    for tpid in [0x9100, 0x88a8, 0x8100] {
                        place = self.jump(JEQ, tpid, deeper, place);
                    }
                    place
                }
            };
            if place + 1 != self.reversed.len() {
                self.go(place);
            }
            let short = if from == 12 { None } else { Some(()) };
            let load = self.before(&[(LD_IMM, at), (ST, 1), (LD_H_ABS, from)]);
            tagged = Some(match short {
                None => load,
                // a tag at the end of a frame: the next header is missing
                Some(()) => {
                    self.jump(JGE, from + 2, load, other);
                    self.before(&[(LD_IMM, 0), (ST, 0), (ST, 1), (ST, 3), (ST, 4), (LD_LEN, 0)])
                }
            });
            known = network;
        }
        let Some(entry) = tagged else { return known };
        entry
    }

    /// Makes a test that jumps to `yes` or `no`. Returns its first instruction.
    fn test(&mut self, test: &Test, yes: Label, no: Label) -> Label {
        match test {
            Test::Everything => yes,
            Test::All(a, b) => {
                let second = self.test(b, yes, no);
                self.test(a, second, no)
            }
            Test::Any(a, b) => {
                let second = self.test(b, yes, no);
                self.test(a, yes, second)
            }
            Test::Not(inner) => self.test(inner, no, yes),
            Test::Ethertype(kind) => {
                self.jump(JEQ, u32::from(*kind), yes, no);
                self.before(&[(LD_MEM, 0)])
            }
            Test::Protocol(protocol) => {
                self.jump(JEQ, u32::from(*protocol), yes, no);
                self.before(&[(LD_MEM, 2)])
            }
            Test::Fragment => {
                self.jump(JGT, 0, yes, no);
                self.before(&[(LD_MEM, 4)])
            }
            Test::Port { side, tcp, udp, low, high } => {
                let mut place = no;
                let both: &[u32] = match side {
                    Side::Source => &[0],
                    Side::Destination => &[2],
                    Side::Either => &[2, 0],
                };
                for at in both {
                    place = if low == high {
                        self.jump(JEQ, u32::from(*low), yes, place);
                        self.before(&[(LD_H_IND, *at)])
                    } else {
                        let not_over = self.jump(JGT, u32::from(*high), place, yes);
                        self.jump(JGE, u32::from(*low), not_over, place);
                        self.before(&[(LD_H_IND, *at)])
                    };
                }
                self.jump(JGE, 4, place, no);
                let place = self.before(&[(LDX_MEM, 3), (LD_LEN, 0), (SUB_X, 0)]);
                self.jump(JGT, 0, no, place);
                let place = self.before(&[(LD_MEM, 4)]);
                match (tcp, udp) {
                    (true, false) => self.jump(JEQ, 6, place, no),
                    (false, true) => self.jump(JEQ, 17, place, no),
                    _ => {
                        let udp = self.jump(JEQ, 17, place, no);
                        self.jump(JEQ, 6, place, udp)
                    }
                };
                self.before(&[(LD_MEM, 2)])
            }
            Test::Host { side, address, bits } => self.host(*side, *address, *bits, yes, no),
            Test::Vlan(id) => {
                let inside = match id {
                    None => yes,
                    Some(id) => {
                        self.jump(JEQ, u32::from(*id), yes, no);
                        self.before(&[(LD_H_ABS, 14), (AND_K, 0x0fff)])
                    }
                };
                let mut place = no;
                if self.begins == Begins::Ethernet {
                    for tpid in [0x9100, 0x88a8, 0x8100] {
                        place = self.jump(JEQ, tpid, inside, place);
                    }
                    let load = self.before(&[(LD_H_ABS, 12)]);
                    self.jump(JGE, 16, load, no);
                    place = self.before(&[(LD_LEN, 0)]);
                }
                let beside = match id {
                    None => yes,
                    Some(id) => {
                        self.jump(JEQ, u32::from(*id), yes, place);
                        self.before(&[(LD_W_ABS, AD_VLAN_TAG), (AND_K, 0x0fff)])
                    }
                };
                self.jump(JEQ, 0, place, beside);
                self.before(&[(LD_W_ABS, AD_VLAN_TAG_PRESENT)])
            }
            Test::Mpa => {
                // "MPA ID Req Frame" and "MPA ID Rep Frame"
                self.jump(JEQ, u32::from_be_bytes(*b"ID R"), yes, no);
                let place = self.before(&[(LD_W_IND, 4)]);
                self.jump(JEQ, u32::from_be_bytes(*b"MPA "), place, no);
                let place = self.before(&[(LD_W_IND, 0)]);
                self.jump(JGE, 8, place, no);
                let place = self.before(&[
                    (LD_B_IND, 12),
                    (AND_K, 0xf0),
                    (RSH_K, 2),
                    (ADD_X, 0),
                    (TAX, 0),
                    (LD_LEN, 0),
                    (SUB_X, 0),
                ]);
                self.jump(JGE, 20, place, no);
                let place = self.before(&[(LDX_MEM, 3), (LD_LEN, 0), (SUB_X, 0)]);
                self.jump(JGT, 0, no, place);
                let place = self.before(&[(LD_MEM, 4)]);
                self.jump(JEQ, 6, place, no);
                self.before(&[(LD_MEM, 2)])
            }
        }
    }

    fn host(&mut self, side: Side, address: IpAddr, bits: u8, yes: Label, no: Label) -> Label {
        let (bytes, kind, header, at) = match address {
            IpAddr::V4(a) => (a.octets().to_vec(), 0x0800, 20, [12u32, 16]),
            IpAddr::V6(a) => (a.octets().to_vec(), 0x86dd, 40, [8, 24]),
        };
        let places: &[u32] = match side {
            Side::Source => &at[..1],
            Side::Destination => &at[1..],
            Side::Either => &at,
        };
        let mut place = no;
        for start in places {
            let otherwise = place;
            let mut matched = yes;
            for (index, word) in bytes.chunks_exact(4).enumerate().rev() {
                let covered = u32::from(bits).saturating_sub(index as u32 * 32).min(32);
                let mask = (!0u32).checked_shl(32 - covered).unwrap_or(0);
                let value = word.try_into().map_or(0, u32::from_be_bytes) & mask;
                self.jump(JEQ, value, matched, otherwise);
                matched = self.before(&[(LD_W_IND, start + index as u32 * 4), (AND_K, mask)]);
            }
            place = matched;
        }
        self.jump(JGE, header, place, no);
        let place = self.before(&[(LDX_MEM, 1), (LD_LEN, 0), (SUB_X, 0)]);
        self.jump(JEQ, kind, place, no);
        self.before(&[(LD_MEM, 0)])
    }
}

/// Runs a program as a kernel does. Returns the number of bytes to keep of a frame, 0 for none. `beside` returns the
/// kernel's own data about the frame, and what lies at an offset from its network layer. Used where no kernel can run
/// the program.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(super) fn run(program: &[Instruction], frame: &[u8], beside: impl Fn(u32) -> u32) -> u32 {
    let (mut a, mut x, mut m, mut pc) = (0u32, 0u32, [0u32; 16], 0usize);
    while let Some(i) = program.get(pc) {
        pc += 1;
        let load = |at: u32, width: usize| -> Option<u32> {
            if at >= NET {
                return Some(beside(at));
            }
            let bytes = frame.get(at as usize..at as usize + width)?;
            Some(bytes.iter().fold(0, |v, b| v << 8 | u32::from(*b)))
        };
        let jump = |holds: bool| usize::from(if holds { i.jt } else { i.jf });
        let loaded = match i.code {
            LD_W_ABS => load(i.k, 4),
            LD_H_ABS => load(i.k, 2),
            LD_W_IND => load(x.saturating_add(i.k), 4),
            LD_H_IND => load(x.saturating_add(i.k), 2),
            LD_B_IND => load(x.saturating_add(i.k), 1),
            LD_LEN => Some(frame.len() as u32),
            LD_IMM => Some(i.k),
            LD_MEM => m.get(i.k as usize).copied(),
            ADD_X => Some(a.wrapping_add(x)),
            SUB_X => Some(a.wrapping_sub(x)),
            AND_K => Some(a & i.k),
            LSH_K => Some(a << i.k),
            RSH_K => Some(a >> i.k),
            XOR_X => Some(a ^ x),
            MUL_K => Some(a.wrapping_mul(i.k)),
            _ => Some(a),
        };
        let Some(loaded) = loaded else { return 0 };
        a = loaded;
        match i.code {
            LDX_MEM => x = m.get(i.k as usize).copied().unwrap_or(0),
            ST => {
                if let Some(place) = m.get_mut(i.k as usize) {
                    *place = a;
                }
            }
            TAX => x = a,
            JA => pc += i.k as usize,
            JEQ => pc += jump(a == i.k),
            JGT => pc += jump(a > i.k),
            JGE => pc += jump(a >= i.k),
            RET => return i.k,
            RET_A => return a,
            _ => {}
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn passes(filter: &str, frame: &[u8]) -> bool {
        let filter: Filter = filter.parse().unwrap();
        run(&filter.program(Begins::Ethernet, 0x4_0000, false).unwrap(), frame, |_| 0) > 0
    }

    fn frame(ethertype: &[u8], network: &[u8]) -> Vec<u8> {
        [&[0u8; 12][..], ethertype, network].concat()
    }

    fn ipv4(protocol: u8, fragment: u16, transport: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, 0, 0, 0];
        ip.extend_from_slice(&fragment.to_be_bytes());
        ip.extend_from_slice(&[64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
        ip.extend_from_slice(transport);
        ip
    }

    fn ports(source: u16, destination: u16) -> Vec<u8> {
        [&source.to_be_bytes()[..], &destination.to_be_bytes(), &[0; 16]].concat()
    }

    const V4: &[u8] = &[8, 0];

    #[test]
    fn the_default_takes_what_carries_rdma() {
        let default = Filter::default().to_string();
        let mut mpa = ports(40_000, 9999);
        mpa[12] = 0x50;
        mpa.extend_from_slice(b"MPA ID Req Frame");
        let mut other = ports(40_000, 9999);
        other[12] = 0x50;
        for (frame, taken) in [
            (frame(V4, &ipv4(17, 0, &ports(50_000, 4791))), true),
            (frame(V4, &ipv4(17, 0, &ports(4791, 50_000))), true),
            (frame(V4, &ipv4(17, 0, &ports(50_000, 53))), false),
            (frame(V4, &ipv4(6, 0, &ports(50_000, 445))), true),
            (frame(V4, &ipv4(6, 0, &ports(5445, 50_000))), true),
            (frame(V4, &ipv4(6, 0, &ports(50_000, 4791))), false),
            (frame(V4, &ipv4(6, 0, &other)), false),
            (frame(V4, &ipv4(6, 0, &mpa)), true),
            (frame(&[0x81, 0, 0, 5, 8, 0], &ipv4(17, 0, &ports(50_000, 4791))), true),
            (frame(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0], &ipv4(17, 0, &ports(50_000, 4791))), true),
            (frame(&[0x81, 0, 0, 5, 8, 0], &ipv4(17, 0, &ports(50_000, 53))), false),
            (frame(V4, &ipv4(17, 0x2000 | 185, b"not ports")), true),
            (frame(V4, &ipv4(47, 0, &[0; 20])), true),
            (frame(V4, &ipv4(1, 0, &[0; 20])), false),
            (frame(&[0x89, 0x15], &[0; 60]), true),
            (frame(&[0x88, 0x08], &[0; 46]), true),
            (frame(&[8, 6], &[0; 28]), false),
            (vec![], false),
            (frame(&[0x81, 0], &[]), false),
        ] {
            assert_eq!(passes(&default, &frame), taken, "{frame:02x?}");
        }
    }

    #[test]
    fn ipv6_and_its_fragments_are_known() {
        let v6 = |next: u8, rest: &[u8]| {
            let mut ip = vec![0x60, 0, 0, 0, 0, 0, next, 64];
            ip.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            ip.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            ip.extend_from_slice(rest);
            frame(&[0x86, 0xdd], &ip)
        };
        let roce = v6(17, &ports(50_000, 4791));
        assert!(passes("rdma", &roce) && passes("host 2001:db8::1", &roce) && passes("src host 2001:db8::/64", &roce));
        assert!(!passes("dst host 2001:db8::1", &roce) && !passes("host 192.0.2.1", &roce));
        assert!(passes("rdma", &v6(44, &[&[17, 0, 0, 1, 0, 0, 0, 9][..], &ports(50_000, 4791)].concat())));
        // ports after other headers are not checked: the default accepts them all
        let behind = v6(60, &[&[17, 0, 1, 4, 0, 0, 0, 0][..], &ports(50_000, 4791)].concat());
        assert!(
            passes("rdma", &behind)
                && passes("extended", &behind)
                && !passes("roce", &behind)
                && !passes("extended", &roce)
        );
        assert!(passes("fragments", &v6(44, &[17, 0, 0, 0xb8, 0, 0, 0, 9])) && !passes("fragments", &roce));
    }

    #[test]
    fn tests_join_as_written() {
        let roce = frame(V4, &ipv4(17, 0, &ports(50_000, 4791)));
        for (filter, taken) in [
            ("everything", true),
            ("not everything", false),
            ("roce and host 192.0.2.1", true),
            ("roce and dst host 192.0.2.1", false),
            ("roce and host 192.0.2.0/24", true),
            ("src host 198.51.100.7", false),
            ("dst host 198.51.100.7", true),
            ("port 53 or port 4791", true),
            ("udp port 4000-5000", true),
            ("udp port 4000-4790", false),
            ("src port 4791", false),
            ("dst udp port 4791", true),
            ("not (tcp or arp)", true),
            ("not tcp and not udp", false),
            ("(ip or ip6) and udp", true),
            ("vlan", false),
            ("proto 17", true),
        ] {
            assert_eq!(passes(filter, &roce), taken, "{filter}");
        }
        let tagged = frame(&[0x81, 0, 0x20, 5, 8, 0], &ipv4(17, 0, &ports(50_000, 4791)));
        assert!(
            passes("vlan", &tagged)
                && passes("vlan 5", &tagged)
                && !passes("vlan 6", &tagged)
                && passes("vlan 5 and roce", &tagged)
        );
    }

    #[test]
    fn what_the_kernel_took_out_of_the_frame_is_asked_for() {
        let filter: Filter = "vlan 7".parse().unwrap();
        let program = filter.program(Begins::Ethernet, 100, true).unwrap();
        let plain = frame(V4, &ipv4(17, 0, &ports(50_000, 4791)));
        let beside = |tag: u32, kind: u32| {
            move |at: u32| match at {
                AD_VLAN_TAG_PRESENT => 1,
                AD_VLAN_TAG => tag,
                AD_PKTTYPE => kind,
                _ => 0,
            }
        };
        assert_eq!(run(&program, &plain, beside(0x2007, 0)), 100);
        assert_eq!(run(&program, &plain, beside(0x2008, 0)), 0);
        assert_eq!(run(&program, &plain, beside(0x2007, OUTGOING)), 0);
        let ip: Filter = "roce".parse().unwrap();
        let program = ip.program(Begins::Ip, 100, false).unwrap();
        assert_eq!(run(&program, &plain[14..], |at| if at == AD_PROTOCOL { 0x0800 } else { 0 }), 100);
        assert_eq!(run(&program, &plain[14..], |_| 0), 0);
    }

    #[test]
    fn ports_that_were_learnt_are_added() {
        let filter = Filter::default();
        assert!(filter.finds_mpa() && !"roce".parse::<Filter>().unwrap().finds_mpa());
        let ports_learnt: Vec<u16> = (9000..9064).collect();
        let program = filter.with_tcp_ports(&ports_learnt).program(Begins::Ethernet, 100, true).unwrap();
        assert_eq!(run(&program, &frame(V4, &ipv4(6, 0, &ports(50_000, 9063))), |_| 0), 100);
        assert_eq!(run(&program, &frame(V4, &ipv4(6, 0, &ports(50_000, 9064))), |_| 0), 0);
    }

    #[test]
    fn an_invalid_filter_is_reported_with_its_place() {
        for (filter, at, says) in [
            ("", 0, "empty"),
            ("roce or", 7, "missing"),
            ("roce iwarp", 5, "and, or"),
            ("rocee", 0, "not known"),
            ("(roce", 5, "parenthesis"),
            ("tcp port x", 9, "not a port"),
            ("port 10-5", 5, "not a port"),
            ("host 1.2.3", 5, "not an IP address"),
            ("host 1.2.3.4/33", 5, "32 bits"),
            ("src roce", 4, "host or port"),
            ("ethertype 0x10000", 10, "not an Ethertype"),
            ("proto 256", 6, "not an IP protocol"),
        ] {
            let e = filter.parse::<Filter>().unwrap_err();
            assert!(e.at == at && e.message.contains(says), "{filter}: {e}");
        }
        let deep = format!("{}roce{}", "(".repeat(100), ")".repeat(100));
        assert!(deep.parse::<Filter>().is_err());
        assert!("not ".repeat(100_000).parse::<Filter>().is_err());
    }

    #[test]
    fn libpcap_gets_the_same_filter() {
        let text = |filter: &str| filter.parse::<Filter>().unwrap().libpcap();
        let roce = "(udp portrange 4791-4791 or ether proto 0x8915)";
        assert_eq!(text("roce"), Some(format!("({roce}) or (vlan and ({roce}))")));
        assert_eq!(text("everything"), Some(String::new()));
        assert!(text("src host 192.0.2.7/24").unwrap().starts_with("(src net 192.0.2.0/24)"));
        assert!(text("host 2001:db8::1/0").unwrap().starts_with("(net ::/0)"));
        assert_eq!(text("roce and vlan 5"), None);
    }

    #[test]
    fn every_name_stands_for_a_filter() {
        for (name, ..) in NAMES {
            assert!(named(name).is_some(), "{name}");
        }
        let long = vec!["host 2001:db8::1"; 2000].join(" or ");
        assert!(long.parse::<Filter>().unwrap().program(Begins::Ethernet, 1, false).is_none());
    }

    proptest! {
        #[test]
        fn no_text_and_no_frame_is_too_much(
            text in "[a-z0-9/.:()! -]{0,60}",
            words in prop::collection::vec(prop::sample::select(vec!["roce", "rdma", "or", "and", "not", "(", ")", "vlan", "port 5-9", "host ::1", "mpa"]), 0..12),
            bytes in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            for text in [text, words.join(" ")] {
                if let Ok(filter) = text.parse::<Filter>() {
                    for begins in [Begins::Ethernet, Begins::Ip] {
                        if let Some(program) = filter.program(begins, 1, true) {
                            run(&program, &bytes, |at| at & 0x8ff);
                        }
                    }
                }
            }
        }
    }
}
