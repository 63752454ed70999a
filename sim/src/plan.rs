//! Plan of a simulation, derived from a seed.

use crate::end::{End, PATIENCE, QUICK, SLOW};
use crate::endpoint::{self, Ours};
use crate::fault::{self, Fault, Who};
use crate::frame::Service;
use crate::nfs::{self, Command as Nfs};
use crate::nfs_host::{self, Limits, Path};
use crate::observer::Observer;
use crate::random::Random;
use crate::rc::{self, Rdma};
use crate::smb::{Command, Sizes};
use crate::smb_host::{Host, Io, Script};
use crate::tcp::{self, Iwarp};
use crate::transport::{MICROSECOND, MILLISECOND, ReadDelay, SECOND, Stamp, Time, Transport};
use crate::world::{Link, Trouble, World};
use rdmascope_dissector::wire::rpcrdma::INLINE_DEFAULT;

/// Transport of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// RoCEv2.
    Roce,
    /// iWARP.
    Iwarp,
}

/// Protocol of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// SMB2 over SMB Direct.
    Smb,
    /// NFS over RPC-over-RDMA.
    Nfs,
}

impl Protocol {
    /// The faults that an end of it can have.
    pub fn faults(self) -> &'static [Fault] {
        match self {
            Self::Smb => fault::FAULTS,
            Self::Nfs => fault::NFS,
        }
    }
}

/// Plan of a simulation, derived from a seed.
#[derive(Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Protocol of the conversation.
    pub protocol: Protocol,
    /// Transport of the conversation.
    pub carrier: Carrier,
    /// True if the ends are the RoCEv2 endpoints of the active mode, and not the simulator's own.
    pub ours: bool,
    /// The link.
    pub link: Link,
    /// The end that has a fault, the fault, and the number of the request at which it happens.
    pub fault: Option<(usize, &'static Fault, u64)>,
    /// The observer.
    pub observer: Observer,
    /// Number of a request for which the server takes longer, and the additional time.
    pub slow: Option<(u64, Time)>,
    /// The ends take no messages for a while.
    pub not_ready: [Vec<(Time, Time, u8)>; 2],
    /// True if an end leaves without disconnecting.
    pub rude: bool,
    /// True if the identification of IP counts packets.
    pub counts: bool,
    /// True if nothing goes wrong: neither a fault, nor a loss, nor a slow server. Then nothing must be reported.
    pub clean: bool,
    /// Time after which a packet is retransmitted, in ns.
    pub timeout: Time,
    /// The client is late to answer RDMA Reads.
    pub lag: Option<ReadDelay>,
    /// An end that stops in the middle of a message: its number, the continuation part before which it stops, and the
    /// duration.
    pub stops: Option<(usize, u64, Time)>,
}

/// Values that the user gives in place of those of the seed.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The protocol.
    pub protocol: Option<Protocol>,
    /// The carrier.
    pub carrier: Option<Carrier>,
    /// True for the RoCEv2 endpoints of the active mode, false for the simulator's own.
    pub ours: Option<bool>,
    /// The fault, one of the protocol; `Some(None)` for none.
    pub fault: Option<Option<&'static Fault>>,
    /// True if the observer sees the whole traffic.
    pub whole: bool,
}

/// The code of the Local Ack Timeout that is nearest to a time: 4.096 µs times 2 to its power (IBA volume 1, 9.7.6.1.3).
fn timeout_code(time: Time) -> u8 {
    (1..31).min_by_key(|code| ((4096 << code) - time).abs()).unwrap_or(0) as u8
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64, overrides: &Overrides) -> Self {
        // NFS was added later: seeds of SMB keep their meaning
        let protocol = if Random::new(seed, 8).chance(1, 3) { Protocol::Nfs } else { Protocol::Smb };
        let protocol = overrides.protocol.unwrap_or(protocol);
        let mut r = Random::new(seed, 1);
        let carrier = if r.chance(1, 2) { Carrier::Roce } else { Carrier::Iwarp };
        let carrier = overrides.carrier.unwrap_or(carrier);
        // added later: seeds of the simulator's own ends keep their meaning
        let ours = overrides.ours.unwrap_or(Random::new(seed, 11).chance(1, 4)) && carrier == Carrier::Roce;
        let at = r.below(3);
        let far = r.pick(&[2 * MICROSECOND, 10 * MICROSECOND, 50 * MICROSECOND, 500 * MICROSECOND]);
        let distance = match at {
            0 => [0, far],
            1 => [far, 0],
            _ => [far / 2, far / 2],
        };
        let mut trouble = [[Trouble::default(); 2]; 2];
        let (mut cut, mut pause) = (None, None);
        let mut not_ready = [Vec::new(), Vec::new()];
        let kind = r.below(16);
        let (from, side) = (r.below(2) as usize, r.below(2) as usize);
        // an end at the tap loses nothing between the two
        let side = match distance {
            [0, _] if from == 0 => 1,
            [0, _] => 0,
            [_, 0] if from == 0 => 0,
            [_, 0] => 1,
            _ => side,
        };
        let spot = &mut trouble[from][side];
        match kind {
            0..=4 => {}
            5..=8 => spot.lose = r.pick(&[10, 50, 100, 300]),
            9 => spot.copy = r.pick(&[50, 200]),
            10 => {
                spot.delay = r.pick(&[50, 200]);
                spot.delay_by = r.pick(&[20 * MICROSECOND, 200 * MICROSECOND, 4 * MILLISECOND, 30 * MILLISECOND]);
            }
            11 => spot.damage = r.pick(&[50, 200]),
            12 => spot.mark = r.pick(&[100, 1000]),
            13 => {
                let begin = r.within(1, 20) * MILLISECOND;
                cut = Some((
                    from,
                    begin,
                    begin + r.pick(&[2 * MILLISECOND, 40 * MILLISECOND, 700 * MILLISECOND]),
                    side == 1,
                ));
            }
            14 => {
                let begin = r.within(1, 20) * MILLISECOND;
                pause = Some((from, begin, begin + r.pick(&[500 * MICROSECOND, 5 * MILLISECOND])));
            }
            _ => {
                let begin = r.within(1, 10) * MILLISECOND;
                let code = r.pick(&[1, 6, 12, 14]);
                not_ready[from].push((begin, begin + r.pick(&[100 * MICROSECOND, 3 * MILLISECOND]), code));
            }
        }
        let fault = if r.chance(1, 3) { Some(r.pick(&fault::FAULTS.iter().collect::<Vec<_>>())) } else { None };
        let draw = |f: Option<&'static Fault>, r: &mut Random| {
            overrides.fault.unwrap_or(f).filter(|f| !f.stream || carrier == Carrier::Iwarp).map(|f| {
                let by = match f.who {
                    Who::Both => r.below(2) as usize,
                    Who::Server => 1,
                    Who::Client => 0,
                };
                (by, f, r.below(6))
            })
        };
        let fault = draw(fault, &mut r);
        let mut own = Random::new(seed, 7);
        let mirror = own.chance(1, 30).then(|| (own.pick(&fault::MIRRORS.iter().collect::<Vec<_>>()), own.below(6)));
        let fault = fault.or(mirror.filter(|_| overrides.fault.is_none()).map(|(f, at)| (0, f, at)));
        let fault = match protocol {
            Protocol::Smb => fault,
            Protocol::Nfs => {
                let mut r = Random::new(seed, 9);
                let fault = r.chance(1, 3).then(|| &fault::NFS[r.below(fault::NFS.len() as u64) as usize]);
                draw(fault, &mut r)
            }
        };
        let slow = r.chance(1, 10).then(|| (r.within(6, 30) as u64, SLOW));
        let observer = Observer::any(&mut r);
        let observer = if overrides.whole { Observer::Whole } else { observer };
        let rude = r.chance(1, 12);
        let clean = fault.is_none() && slow.is_none() && !rude && !matches!(kind, 5..=11 | 13 | 15);
        let timeout = r.pick(&[4 * MILLISECOND, 17 * MILLISECOND, 67 * MILLISECOND, 537 * MILLISECOND]);
        let pace = r.pick(&[80, 320, 800]);
        let lag = own.chance(1, 12).then(|| {
            let from = own.within(0, 3) * MILLISECOND;
            ReadDelay { from, to: from + 20 * MILLISECOND, by: own.pick(&[300 * MICROSECOND, 2 * MILLISECOND]) }
        });
        let stops = own.chance(1, 12).then(|| {
            (own.below(2) as usize, own.below(12), own.pick(&[500 * MICROSECOND, 5 * MILLISECOND, 40 * MILLISECOND]))
        });
        // they always have a receive, and answer Reads at once
        if ours {
            not_ready = Default::default();
        }
        let lag = lag.filter(|_| !ours);
        let link = Link { pace, distance, trouble, cut, pause };
        Self {
            seed,
            protocol,
            carrier,
            ours,
            link,
            fault,
            observer,
            slow,
            not_ready,
            rude,
            counts: r.chance(1, 2),
            clean,
            timeout,
            lag,
            stops,
        }
    }

    /// The two ends and their link.
    pub fn world(&self) -> World {
        let mut r = Random::new(self.seed, 2);
        let stamp = |r: &mut Random| Stamp { id: self.counts.then(|| r.next() as u16) };
        let mtu = r.pick(&[(1024, 3), (2048, 4), (4096, 5)]);
        let psn = [r.next() & 0xff_ffff, r.next() & 0xff_ffff];
        let isn = [r.next() as u32, r.next() as u32];
        let jumbo = r.chance(1, 2);
        let aligned = r.chance(2, 3);
        let window = r.pick(&[16, 64]);
        let ask = r.pick(&[1, 4, 16]);
        let coalesce = r.pick(&[1, 1, 4]);
        let (hold, crc) = (r.pick(&[MILLISECOND, 40 * MILLISECOND]), r.chance(3, 4));
        // a receiver recognizes damaged bytes only by their checksum
        let crc = crc || self.fault.is_some_and(|(_, f, _)| f.stream);
        let mut nfs = Random::new(self.seed, 10);
        let inline = [nfs.pick(&[1, 2, 4]), nfs.pick(&[1, 2, 4, 8])];
        let (announces, invalidates) = (nfs.chance(3, 4), nfs.chance(1, 2));
        // the endpoint of the active mode accepts connections without private data of its own
        let announces = announces && !self.ours;
        let service = match (self.protocol, self.carrier) {
            (Protocol::Smb, Carrier::Roce) => Service { port: 445, private: Default::default() },
            (Protocol::Smb, Carrier::Iwarp) => Service { port: 5445, private: Default::default() },
            (Protocol::Nfs, _) => {
                let private =
                    inline.map(|kilobytes| if announces { nfs::private(kilobytes, invalidates) } else { Vec::new() });
                Service { port: 20049, private }
            }
        };
        let mut end = |me: usize| -> Box<dyn Transport> {
            match self.carrier {
                Carrier::Roce => Box::new(Rdma::new(
                    me,
                    rc::Config {
                        mtu: mtu.0,
                        mtu_code: mtu.1,
                        psn,
                        window,
                        timeout: self.timeout,
                        retries: 7,
                        coalesce,
                        hold: 20 * MICROSECOND,
                        not_ready: self.not_ready[me].clone(),
                        ask,
                        stamp: stamp(&mut r),
                        rude: self.rude,
                        lag: self.lag.filter(|_| me == 0),
                        service: service.clone(),
                    },
                )),
                Carrier::Iwarp => Box::new(Iwarp::new(
                    me,
                    tcp::Config {
                        mss: if jumbo { 8948 } else { 1448 },
                        isn,
                        window: 1 << 17,
                        rto: 200 * MILLISECOND,
                        retries: 8,
                        hold,
                        mulpdu: if jumbo { 8900 } else { 1400 },
                        crc,
                        stamp: stamp(&mut r),
                        aligned,
                        rude: self.rude,
                        lag: self.lag.filter(|_| me == 0),
                        service: service.clone(),
                    },
                )),
            }
        };
        let ends: (Box<dyn Transport>, Box<dyn Transport>) = if self.ours {
            let mut config = || endpoint::Config {
                mtu: mtu.0 as u16,
                psn: psn.map(|psn| psn as u32),
                timeout: timeout_code(self.timeout),
                stamp: stamp(&mut r),
                rude: self.rude,
                service: service.clone(),
            };
            let [client, server] = Ours::pair([config(), config()]);
            (Box::new(client), Box::new(server))
        } else {
            (end(0), end(1))
        };
        if self.protocol == Protocol::Nfs {
            let speed = (QUICK, nfs.pick(&[60, 500]) * MICROSECOND);
            let most = u32::from(inline[0].min(inline[1])) * 1024;
            let most = if announces { most } else { INLINE_DEFAULT };
            // each end has room for what it announces
            let room = |of: usize| if announces { u32::from(inline[of]) * 1024 } else { INLINE_DEFAULT };
            let limits = |of: usize, credits: u32, varies: bool| {
                let (room, invalidates) = (room(1 - of), announces && invalidates);
                Limits { send: most, receive: most, room, credits, varies, invalidates }
            };
            let (asks, grants, varies) = (nfs.pick(&[128, 32]), nfs.pick(&[1, 4, 32, 128]), nfs.chance(1, 4));
            let client = nfs_host::Host::client(
                ends.0,
                limits(0, asks, false),
                Self::script(&mut nfs),
                Random::new(self.seed, 3),
            );
            let server =
                nfs_host::Host::server(ends.1, limits(1, grants, varies), speed, self.slow, Random::new(self.seed, 4));
            return self.between([Box::new(client), Box::new(server)]);
        }
        let sizes = |r: &mut Random| Sizes {
            requested: r.pick(&[255, 32, 10]),
            granted: 0,
            send: r.pick(&[1364, 4096, 8136]),
            receive: r.pick(&[1364, 4096, 8192]),
            fragmented: r.pick(&[131_072, 1 << 20]),
            version: 0x100,
            status: 0,
        };
        let targets = [r.pick(&[255, 32, 8]), r.pick(&[255, 32, 8])];
        let io = (0..r.within(8, 40))
            .map(|_| Io {
                command: r.pick(&[Command::Read, Command::Read, Command::Write, Command::Write, Command::Echo]),
                length: r.pick(&[100, 4096, 4096, 16_384, 65_536]),
                rdma: r.chance(3, 4),
                invalidate: r.chance(1, 2),
            })
            .map(|io| if io.command == Command::Echo { Io { length: 0, rdma: false, ..io } } else { io })
            .collect();
        let script = Script {
            io,
            depth: r.pick(&[1, 2, 4, 8]),
            think: r.pick(&[5 * MICROSECOND, 300 * MICROSECOND]),
            patience: PATIENCE,
            polite: r.chance(9, 10),
        };
        let (ours, theirs) = (sizes(&mut r), sizes(&mut r));
        let mut client = Host::client(ends.0, ours, targets[0], script, Random::new(self.seed, 3));
        let speed = (QUICK, r.pick(&[60, 500]) * MICROSECOND);
        let mut server = Host::server(ends.1, theirs, targets[1], speed, self.slow, Random::new(self.seed, 4));
        if let Some((who, part, by)) = self.stops {
            let host = if who == 0 { &mut client } else { &mut server };
            host.direct.stops = Some((part, by));
        }
        self.between([Box::new(client), Box::new(server)])
    }

    /// The requests of a client of NFS.
    fn script(r: &mut Random) -> nfs_host::Script {
        let io = (0..r.within(8, 40))
            .map(|_| nfs_host::Io {
                command: r.pick(&[
                    Nfs::Read,
                    Nfs::Read,
                    Nfs::Read,
                    Nfs::Write,
                    Nfs::Write,
                    Nfs::Write,
                    Nfs::Getattr,
                    Nfs::Lookup,
                    Nfs::Readdir,
                ]),
                length: r.pick(&[100, 999, 4096, 4096, 4097, 16_384, 65_536]),
                path: r.pick(&[
                    Path::Inline,
                    Path::Chunk(1),
                    Path::Chunk(1),
                    Path::Chunk(2),
                    Path::Chunk(3),
                    Path::Long,
                ]),
                padded: r.chance(1, 2),
                short: r.chance(1, 8),
            })
            .map(|io| match (io.command, io.path) {
                (Nfs::Read | Nfs::Write, _) => io,
                // long replies
                (Nfs::Readdir, _) => nfs_host::Io { path: Path::Long, length: io.length.min(16_384), ..io },
                _ => nfs_host::Io { path: Path::Inline, length: 0, ..io },
            })
            .collect();
        nfs_host::Script {
            version: r.pick(&[3, 4]),
            io,
            depth: r.pick(&[1, 2, 4, 8]),
            think: r.pick(&[5 * MICROSECOND, 300 * MICROSECOND]),
            patience: PATIENCE,
        }
    }

    fn between(&self, mut hosts: [Box<dyn End>; 2]) -> World {
        if let Some((by, fault, at)) = self.fault {
            hosts[by].breaks(fault, at);
        }
        World::new(hosts, self.link.clone(), Random::new(self.seed, 5))
    }

    /// The plan in one line.
    pub fn line(&self) -> String {
        let mut out =
            format!("{:?} over {:?}, tap {:?} ns from the ends", self.protocol, self.carrier, self.link.distance);
        if self.ours {
            out += "; ends of the active mode";
        }
        for from in [0, 1] {
            for side in [0, 1] {
                let t = self.link.trouble[from][side];
                if t.is_any() || t.mark > 0 {
                    let place = if side == 0 { "before" } else { "behind" };
                    out += &format!("; packets of {} {place} the tap: {t:?}", ["the client", "the server"][from]);
                }
            }
        }
        if let Some((from, a, b, behind)) = self.link.cut {
            out += &format!("; cut of direction {from} {a}..{b} ns, behind {behind}");
        }
        if let Some((from, a, b)) = self.link.pause {
            out += &format!("; pause of {from} {a}..{b} ns");
        }
        if let Some((by, fault, at)) = self.fault {
            out += &format!("; {} of {} at its request {at}", fault.name, ["the client", "the server"][by]);
        }
        if let Some((at, by)) = self.slow {
            out += &format!("; request {at} takes {} ms", by / MILLISECOND);
        }
        if !self.not_ready[0].is_empty() || !self.not_ready[1].is_empty() {
            out += &format!("; not ready {:?}", self.not_ready);
        }
        if let Some(lag) = self.lag {
            out += &format!("; the client answers Reads late: {lag:?}");
        }
        if let Some((who, part, by)) = self.stops {
            out += &format!("; {} stops before part {part} for {by} ns", ["the client", "the server"][who]);
        }
        if self.rude {
            out += "; an end leaves without a word";
        }
        let _ = SECOND;
        out + &format!("; observer {:?}, IP counts: {}", self.observer, self.counts)
    }
}
