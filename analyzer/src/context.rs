//! Context of the current frame, which every layer of a connection needs, handed down as one argument.
//!
//! It holds the connection of the frame, the roles of its ends and the parts that were missed, and takes findings. The
//! observer of decoding goes beside it, as everywhere.

use crate::env::Env;
use crate::episodes::{Episodes, not_before};
use crate::exchange::Exchange;
use crate::finding::{Blame, Certainty, Rule, RuleSink, Site};
use crate::missed::{Decision, Evidence, Missed, Rests};
use crate::notes::{Broken, Layer};
use crate::op::{At, End};
use crate::roles::Roles;
use crate::settle::Settling;
use crate::summary::{Protocol, Transport};
use alloc::boxed::Box;
use alloc::string::ToString;
use core::fmt;

/// Facts about the connection of a frame, without its layers.
#[derive(Clone, Copy, Debug, Default)]
pub struct About {
    /// Its number, from 1.
    pub id: u32,
    /// Transport that carries the connection; `None` until it is known.
    pub transport: Option<Transport>,
    /// Upper-layer protocol.
    pub protocol: Protocol,
    /// True if the handshake that opened it was seen.
    pub opening_seen: bool,
    /// Time at which that handshake was done, if it was seen.
    pub established: Option<At>,
    /// The ports of its ends; 0 if they have none.
    pub ports: [u16; 2],
    /// Packets of it that were retransmitted.
    pub retransmissions: u64,
    /// Sequence number of the packet at hand.
    pub sequence: Option<u32>,
    /// By sender: up to which sequence number it was acknowledged, and the first time that it was. At the end only.
    pub acked: [Option<(At, u32)>; 2],
}

impl About {
    /// Protocol of its ports: a hint that decides nothing alone.
    pub const fn port_hint(&self) -> Protocol {
        match self.ports {
            [445 | 5445, _] | [_, 445 | 5445] => Protocol::SmbDirect,
            [20049, _] | [_, 20049] => Protocol::RpcRdma,
            _ => Protocol::Unknown,
        }
    }
}

/// Data about the current frame that every layer of a connection needs.
pub struct FrameContext<'e> {
    /// The frame.
    pub at: At,
    /// Its sender; `None` at the end, where there is no frame.
    pub sender: Option<End>,
    /// The connection of the frame.
    pub about: About,
    /// True if no checksum shows that the packets in question were undamaged: there is none, or the capture lacks some
    /// of the bytes that it covers.
    pub is_unchecked: bool,
    /// Roles of the ends: client and server.
    pub roles: &'e mut Roles,
    /// Parts of the connection that the capture missed.
    pub missed: &'e mut Missed,
    /// Requests whose reply is not yet known to have arrived.
    pub settling: &'e mut Settling,
    /// Delays of its traffic.
    pub episodes: &'e mut Episodes,
    /// State that all connections share.
    pub env: &'e mut Env,
}

impl FrameContext<'_> {
    /// Goes on with a message, which rests on earlier packets too. Returns what [`FrameContext::is_unchecked`] is behind
    /// it again.
    pub fn goes_on(&mut self, is_unchecked: bool) -> bool {
        let before = self.is_unchecked;
        self.is_unchecked |= is_unchecked;
        before
    }

    /// Blame for an end: client or server, or unknown while that is not sure.
    pub fn blame(&self, end: End) -> Blame {
        blame(self.roles, end)
    }

    /// `by` broke a rule in the frame at hand.
    pub fn report(&mut self, rule: Rule, by: End, rests: Rests, text: fmt::Arguments<'_>) {
        self.report_at(self.at, rule, by, rests, text);
    }

    /// `by` broke a rule in an earlier frame, as is known now.
    pub fn report_at(&mut self, at: At, rule: Rule, by: End, rests: Rests, text: fmt::Arguments<'_>) {
        let decision = self.missed.verdict(rests, self.sender);
        if self.is_unchecked && decision == Decision::Wait {
            self.missed.unchecked(rule, by);
        }
        match decision {
            Decision::Silent => {}
            Decision::Report(certainty) => {
                self.report_as(at, rule, by, certainty, text);
            }
            Decision::Wait => {
                let severity = rule.row().severity;
                let evidence = Evidence { rule, severity, by, at, text: text.to_string() };
                if self.env.frame.is_observed(at.frame) {
                    let (by, certainty, text) = (self.blame(by), Certainty::IfNothingWasMissed, evidence.text.clone());
                    self.env.frame.broken(Broken { rule, severity, by, certainty, text });
                }
                self.missed.wait(rests, self.sender, evidence);
            }
        }
    }

    /// `by` seems to have broken a rule: inferred from timing or shape.
    pub fn guess(&mut self, rule: Rule, by: End, text: fmt::Arguments<'_>) {
        self.report_as(self.at, rule, by, Certainty::Guess, text);
    }

    /// `by` broke a rule, as sure as the caller says.
    pub fn report_as(&mut self, at: At, rule: Rule, by: End, certainty: Certainty, text: fmt::Arguments<'_>) {
        if self.is_unchecked {
            self.missed.unchecked(rule, by);
        }
        let (by, site) = (self.blame(by), self.site(at));
        self.env.report(rule, by, site, certainty, text);
    }

    /// Certainty of something that would be explained by frames lost at the very end, which nothing shows: a capture
    /// that lost others may have lost these.
    pub fn at_the_end(&self) -> Certainty {
        at_the_end(self.env)
    }

    /// The same for a request of `caller` that was not answered until `end`: if it is not known to have arrived, it may
    /// have been lost; and with packets lost it may have arrived only now.
    pub fn unanswered(&self, exchange: &Exchange, caller: End, end: At) -> Certainty {
        /// ns that a server has for an answer.
        const PATIENCE: i64 = 1_000_000_000;
        let is_troubled = self.about.retransmissions > 0;
        let is_there = |(at, acked): (At, u32)| {
            exchange.sequence.is_none_or(|mine| not_before(acked, mine)) && !(is_troubled && end.since(at) < PATIENCE)
        };
        if self.about.acked[caller.index()].is_none_or(is_there) { self.at_the_end() } else { Certainty::Guess }
    }

    /// A request was answered in the frame at hand by `replier`. It is done when the reply is known to have arrived.
    pub fn answered(&mut self, exchange: Box<Exchange>, replier: End) {
        self.settling.push(exchange, replier, self.about.sequence);
    }

    /// A frame of this connection.
    pub fn site(&self, at: At) -> Site {
        Site { connection: Some(self.about.id), frame: at.frame, time_ns: at.time }
    }

    /// The frame was understood up to `layer`.
    #[inline]
    pub fn layer(&mut self, layer: Layer) {
        self.env.frame.understood(layer);
    }
}

impl Evidence {
    /// It is known now, as far as `certainty` says, that nothing is missing that it rests on.
    pub fn report(self, env: &mut Env, connection: u32, roles: &Roles, certainty: Certainty) {
        let site = Site { connection: Some(connection), frame: self.at.frame, time_ns: self.at.time };
        let by = blame(roles, self.by);
        env.report_later(self.severity, self.rule, by, site, certainty, format_args!("{}", self.text));
    }
}

/// See [`FrameContext::at_the_end`].
pub(crate) fn at_the_end(env: &Env) -> Certainty {
    if env.has_lost() { Certainty::Guess } else { Certainty::IfNothingWasMissed }
}

/// Blame for an end: client or server, or unknown while that is not sure.
pub(crate) fn blame(roles: &Roles, end: End) -> Blame {
    match roles.sure_client() {
        Some(client) if client == end => Blame::Client,
        Some(_) => Blame::Server,
        None => Blame::Unknown,
    }
}

/// Facts that a rule of SMB Direct rests on besides its message.
const fn ledger(rule: Rule) -> Rests {
    match rule {
        // which message comes first
        Rule::SmbdNegFirst | Rule::SmbdNegTimeout | Rule::BugKsmbdEarlyData => Rests::START,
        _ => Rests::LEDGER,
    }
}

/// The ledger of a [`Link`](crate::messages::smbd::link::Link) keeps account of what it missed.
impl RuleSink for FrameContext<'_> {
    fn broken(&mut self, rule: Rule, by: End, certainty: Certainty, text: fmt::Arguments<'_>) {
        match certainty {
            Certainty::Certain => self.report(rule, by, Rests::FRAME, text),
            Certainty::IfNothingWasMissed => self.report(rule, by, ledger(rule), text),
            Certainty::Guess => self.guess(rule, by, text),
        }
    }
}

/// One layer of a connection without the others, for its tests: the context of a frame, and the state that outlives it.
#[cfg(test)]
pub(crate) mod alone {
    use super::*;
    use crate::env::Options;
    use crate::sink::Sink;
    use alloc::vec::Vec;

    /// Requests that were answered or given up, for the layer above.
    #[derive(Debug, Default)]
    pub(crate) struct Listener(pub(crate) Vec<Exchange>);

    impl Sink for Listener {
        fn exchange(&mut self, exchange: &Exchange) {
            self.0.push(exchange.clone());
        }
    }

    /// A connection whose client is end A.
    #[derive(Debug)]
    pub(crate) struct Alone {
        pub(crate) about: About,
        roles: Roles,
        pub(crate) missed: Missed,
        settling: Settling,
        episodes: Episodes,
        env: Env<Listener>,
        /// The frame at hand.
        pub(crate) at: At,
    }

    impl Alone {
        /// A connection that was seen from its handshake on.
        pub(crate) fn new() -> Self {
            let mut roles = Roles::default();
            roles.learn(End::A, crate::roles::Source::Handshake);
            let about = About { id: 1, opening_seen: true, ..About::default() };
            let env = Env::new(Options::default(), Listener::default());
            let (missed, settling, episodes) = (Missed::default(), Settling::default(), Episodes::default());
            Self { about, roles, missed, settling, episodes, env, at: At::default() }
        }

        /// The next frame, 1 ms later, of `by`.
        pub(crate) fn frame(&mut self, by: End) -> FrameContext<'_> {
            self.at = At { frame: self.at.frame + 1, time: self.at.time + 1_000_000 };
            let Self { about, roles, missed, settling, episodes, env, at } = self;
            FrameContext {
                at: *at,
                sender: Some(by),
                about: *about,
                is_unchecked: false,
                roles,
                missed,
                settling,
                episodes,
                env,
            }
        }

        /// Requests that were answered by `replier` since the last call.
        pub(crate) fn answered(&mut self, replier: End) -> Vec<Exchange> {
            let mut out = Vec::new();
            while let Some(waiting) = self.settling.oldest(replier) {
                out.push((*waiting.exchange).clone());
                self.settling.done(replier);
            }
            out
        }

        /// Rules that were broken, and by whom.
        pub(crate) fn broken(&self) -> Vec<(Rule, Blame)> {
            self.env.findings.iter().map(|f| (f.rule, f.by)).collect()
        }

        /// Certainty of findings that wait for nothing.
        pub(crate) fn certainties(&self) -> Vec<Certainty> {
            self.env.findings.iter().map(|f| f.certainty).collect()
        }
    }
}
