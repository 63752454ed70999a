//! Roles of the ends of a connection, client and server, and the evidence for them: later messages may give better
//! evidence.

use crate::op::End;

/// Evidence for the client. Ordered: the strongest evidence is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The shape of a message that either end could send.
    Shape,
    /// One end has the port of a service.
    Port,
    /// A message that only a client, or only a server, sends.
    Message,
    /// The end that opened the connection: TCP SYN, MPA Request, CM REQ.
    Handshake,
    /// A callback of NFS: who asks is the server. Of version 4.0 it may open a connection of its own for them (RFC 7530
    /// 3.3.3 and 16.33.5).
    Callback,
    /// The end that sent the Negotiate Request of SMB Direct, which is the one that opens the connection (\[MS-SMBD\]
    /// 3.1.4.1).
    Negotiation,
}

/// The end that is the client, and the evidence for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    known: Option<(End, Source)>,
}

impl Roles {
    /// Takes evidence that an end is the client. Stronger evidence from before stays.
    pub fn learn(&mut self, client: End, source: Source) {
        if self.known.is_none_or(|(_, before)| source > before) {
            self.known = Some((client, source));
        }
    }

    /// The client, as far as is known.
    pub fn client(&self) -> Option<End> {
        self.known.map(|(client, _)| client)
    }

    /// The client, if more than the shape of a message shows it.
    pub fn sure_client(&self) -> Option<End> {
        self.known.filter(|(_, source)| *source > Source::Shape).map(|(client, _)| client)
    }

    /// The client, or the end that was seen first.
    pub fn client_or_first(&self) -> End {
        self.client().unwrap_or(End::A)
    }

    /// Takes over the evidence from the other half of a connection.
    pub fn adopt(&mut self, by: End, from: &Self, from_end: End) {
        if let Some((client, source)) = from.known {
            self.learn(if client == from_end { by } else { by.peer() }, source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_later_may_know_better() {
        let mut roles = Roles::default();
        assert_eq!((roles.client(), roles.client_or_first()), (None, End::A));
        roles.learn(End::B, Source::Shape);
        assert_eq!((roles.client(), roles.sure_client()), (Some(End::B), None));
        roles.learn(End::A, Source::Shape);
        assert_eq!(roles.client(), Some(End::B), "no better");
        roles.learn(End::A, Source::Message);
        roles.learn(End::B, Source::Port);
        assert_eq!(roles.sure_client(), Some(End::A));
        let mut whole = Roles::default();
        whole.adopt(End::B, &roles, End::A);
        assert_eq!(whole.sure_client(), Some(End::B));
    }
}
