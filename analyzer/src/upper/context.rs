//! Sessions and tree connects that requests and replies of SMB2 name, \[MS-SMB2\] 2.2.1.2, 3.3.5.2.9, 3.3.5.2.11.
//!
//! Only a success of SESSION_SETUP or TREE_CONNECT sets one up. None is forgotten: a request may be on its way when
//! LOGOFF or TREE_DISCONNECT ends it. Channels of one session share its tree connects, so that these are judged only
//! where there is one channel.

use alloc::vec::Vec;
use core::fmt;
use rdmascope_dissector::wire::smb2::{Command, Header, NtStatus};

/// Sessions and tree connects of one connection that are remembered. With more of them, nothing is judged.
const KNOWN_MAX: usize = 64;
/// SessionId of a related request: that of the one before it.
const RELATED_SESSION: u64 = u64::MAX;
/// SessionId of what belongs to no session.
const NO_SESSION: u64 = 0;
/// TreeId of a related request: that of the one before it.
const RELATED_TREE: u32 = u32::MAX;

/// The session and the tree connect that a message names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// SessionId; `None` if it names none.
    session: Option<u64>,
    /// TreeId; `None` if it names none, or has an AsyncId in its place.
    tree: Option<u32>,
}

impl Named {
    pub(crate) fn of(header: &Header) -> Self {
        let is_related = header.is_related();
        let is_named = |id: u64| !is_related || !matches!(id, NO_SESSION | RELATED_SESSION);
        let session = Some(header.session_id).filter(|id| is_named(*id));
        let tree = header.tree_id().filter(|id| !(is_related && *id == RELATED_TREE) && session.is_some());
        Self { session, tree }
    }

    /// Those of a reply: one that failed, or is about no session or the end of one, need not name any.
    pub(crate) fn of_reply(header: &Header) -> Self {
        let named = Self::of(header);
        let is_free = header.status() != NtStatus::SUCCESS || matches!(header.command, Command::ECHO | Command::LOGOFF);
        if is_free && header.session_id == NO_SESSION { Self::default() } else { named }
    }
}

/// A name that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnfitId {
    /// A request names a session that was not set up.
    Session(u64),
    /// A request names a tree connect that was not set up.
    Tree(u32),
    /// A reply has this SessionId where its request has the other.
    OtherSession(u64, u64),
    /// A reply has this TreeId where its request has the other.
    OtherTree(u32, u32),
}

impl fmt::Display for UnfitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) => write!(f, "SessionId {id:#x}"),
            Self::Tree(id) => write!(f, "TreeId {id:#x}"),
            Self::OtherSession(id, asked) => write!(f, "SessionId {id:#x}; the request has {asked:#x}"),
            Self::OtherTree(id, asked) => write!(f, "TreeId {id:#x}; the request has {asked:#x}"),
        }
    }
}

/// Up to [`KNOWN_MAX`] of something.
#[derive(Clone, Debug, Default)]
struct Known<T>(Vec<T>);

impl<T: PartialEq> Known<T> {
    /// The newest are asked for most.
    fn has(&self, one: &T) -> bool {
        self.0.iter().rev().any(|known| known == one)
    }

    /// Adds one. False if there is no room.
    fn add(&mut self, one: T) -> bool {
        if self.has(&one) {
            return true;
        }
        let has_room = self.0.len() < KNOWN_MAX;
        if has_room {
            self.0.push(one);
        }
        has_room
    }
}

/// Sessions and tree connects that were set up on one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    sessions: Known<u64>,
    trees: Known<(u64, u32)>,
    /// True if there may be sessions that are not known.
    is_lost: bool,
    /// True if there may be tree connects that are not known.
    is_shared: bool,
}

/// True if a request names a session that must have been set up.
const fn is_of_session(command: Command) -> bool {
    !matches!(command, Command::NEGOTIATE | Command::SESSION_SETUP | Command::CANCEL)
}

/// True if a request names a tree connect that must have been set up.
const fn is_of_tree(command: Command) -> bool {
    let is_apart = matches!(
        command,
        Command::LOGOFF | Command::TREE_CONNECT | Command::TREE_DISCONNECT | Command::ECHO | Command::OPLOCK_BREAK
    );
    is_of_session(command) && !is_apart
}

impl Context {
    /// Some messages are not known.
    pub(crate) fn lost(&mut self) {
        (self.is_lost, self.is_shared) = (true, true);
    }

    /// A session may have several channels.
    pub(crate) fn shared(&mut self) {
        self.is_shared = true;
    }

    /// The session and the tree connect that a request names, if the connection shows how that was set up.
    pub(crate) fn tree(&self, named: &Named) -> Option<(u64, u32)> {
        named.session.zip(named.tree).filter(|tree| self.trees.has(tree))
    }

    /// Finds what does not fit in the names of a request and its reply.
    pub(crate) fn wrong(&self, request: &Named, reply: &Named, command: Command) -> Option<UnfitId> {
        // without any session, none is needed either
        let needs_one = command != Command::ECHO && !self.sessions.0.is_empty();
        let is_judged = |id: &u64| is_of_session(command) && (*id != NO_SESSION || needs_one);
        let asked = request.session.filter(is_judged)?;
        let is_known = self.sessions.has(&asked);
        if !self.is_lost && !is_known {
            return Some(UnfitId::Session(asked));
        }
        if let Some(named) = reply.session.filter(|named| *named != asked && *named != RELATED_SESSION) {
            return Some(UnfitId::OtherSession(named, asked));
        }
        let tree = request.tree.filter(|_| is_of_tree(command))?;
        if !self.is_shared && !self.trees.has(&(asked, tree)) {
            return Some(UnfitId::Tree(tree));
        }
        reply.tree.filter(|named| *named != tree && *named != RELATED_TREE).map(|named| UnfitId::OtherTree(named, tree))
    }

    /// The tree connect that a request names, if it was not set up on this connection and the one in its reply was: then
    /// the client may have meant that.
    pub(crate) fn meant(&self, request: &Named, reply: &Named) -> Option<UnfitId> {
        let (session, asked) = request.session.zip(request.tree)?;
        let is_meant = reply.tree.is_some_and(|named| self.trees.has(&(session, named)));
        (is_meant && !self.trees.has(&(session, asked))).then_some(UnfitId::Tree(asked))
    }

    /// Takes note of what a reply sets up.
    pub(crate) fn learn(&mut self, reply: &Header, request: &Named, command: Command) {
        if reply.status() != NtStatus::SUCCESS {
            return;
        }
        match command {
            Command::SESSION_SETUP => {
                let has_room = self.sessions.add(reply.session_id);
                self.is_lost |= !has_room;
                self.is_shared |= !has_room;
            }
            Command::TREE_CONNECT => {
                let session = request.session.filter(|id| *id != NO_SESSION).unwrap_or(reply.session_id);
                let is_known = reply.tree_id().is_some_and(|tree| self.trees.add((session, tree)));
                self.is_shared |= !is_known;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_dissector::wire::smb2::header::{Ids, flags};

    fn header(command: Command, session_id: u64, tree: u32) -> Header {
        let ids = Ids::Sync { process_id: 0, tree_id: tree };
        let related = if tree == RELATED_TREE { flags::RELATED } else { 0 };
        Header { session_id, ids, flags: flags::RESPONSE | related, ..Header::request(command, 3) }
    }

    /// What is wrong in a request and its reply, each with its session and its tree connect.
    fn wrong(context: &Context, command: Command, request: (u64, u32), reply: (u64, u32)) -> Option<UnfitId> {
        let (request, reply) = (header(command, request.0, request.1), header(command, reply.0, reply.1));
        context.wrong(&Named::of(&request), &Named::of_reply(&reply), command)
    }

    fn with_a_tree() -> Context {
        let mut context = Context::default();
        context.learn(&header(Command::SESSION_SETUP, 7, 0), &Named::default(), Command::SESSION_SETUP);
        context.learn(
            &header(Command::TREE_CONNECT, 7, 1),
            &Named { session: Some(7), tree: Some(0) },
            Command::TREE_CONNECT,
        );
        context
    }

    #[test]
    fn only_names_that_were_set_up_fit() {
        let context = with_a_tree();
        for (command, request, reply, expected) in [
            (Command::READ, (7, 1), (7, 1), None),
            (Command::READ, (8, 1), (8, 1), Some(UnfitId::Session(8))),
            (Command::READ, (8, 1), (7, 1), Some(UnfitId::Session(8))),
            (Command::READ, (7, 1), (8, 1), Some(UnfitId::OtherSession(8, 7))),
            (Command::READ, (7, 2), (7, 2), Some(UnfitId::Tree(2))),
            (Command::READ, (7, 1), (7, 2), Some(UnfitId::OtherTree(2, 1))),
            // a related request; a reply that names nothing
            (Command::READ, (u64::MAX, u32::MAX), (7, 1), None),
            (Command::READ, (7, u32::MAX), (7, 1), None),
            (Command::READ, (7, 1), (u64::MAX, u32::MAX), None),
            // all ones, and not related
            (Command::READ, (u64::MAX, 1), (7, 1), Some(UnfitId::Session(u64::MAX))),
            // none
            (Command::READ, (0, 1), (0, 1), Some(UnfitId::Session(0))),
            (Command::READ, (0, u32::MAX), (7, 1), None),
            (Command::READ, (7, 1), (0, 1), Some(UnfitId::OtherSession(0, 7))),
            (Command::LOGOFF, (7, 0), (0, 0), None),
            // of no session, or of no tree connect
            (Command::SESSION_SETUP, (9, 0), (9, 0), None),
            (Command::SESSION_SETUP, (0, 0), (9, 0), None),
            (Command::ECHO, (0, 0), (0, 0), None),
            (Command::ECHO, (7, 5), (7, 0), None),
            (Command::ECHO, (7, 0), (0, 0), None),
            (Command::TREE_CONNECT, (7, 0), (7, 3), None),
        ] {
            assert_eq!(wrong(&context, command, request, reply), expected, "{command} {request:?} {reply:?}");
        }
    }

    #[test]
    fn who_sets_up_no_session_needs_none() {
        let context = Context::default();
        assert_eq!(wrong(&context, Command::READ, (0, 1), (0, 1)), None);
        assert_eq!(wrong(&context, Command::READ, (7, 1), (7, 1)), Some(UnfitId::Session(7)));
    }

    #[test]
    fn a_failure_need_not_name_its_session() {
        let context = with_a_tree();
        let failed = Header { status_or_channel_sequence: NtStatus::ACCESS_DENIED.0, ..header(Command::READ, 0, 0) };
        let request = Named::of(&header(Command::READ, 7, 1));
        assert_eq!(context.wrong(&request, &Named::of_reply(&failed), Command::READ), None);
        let other = Header { session_id: 8, ..failed };
        let wrong = context.wrong(&request, &Named::of_reply(&other), Command::READ);
        assert_eq!(wrong, Some(UnfitId::OtherSession(8, 7)));
    }

    #[test]
    fn a_request_whose_reply_names_what_was_set_up_meant_that() {
        let context = with_a_tree();
        let meant = |asked, named| {
            let of = |tree| Named::of(&header(Command::READ, 7, tree));
            context.meant(&of(asked), &of(named))
        };
        assert_eq!(meant(0, 1), Some(UnfitId::Tree(0)));
        assert_eq!([meant(1, 2), meant(2, 3), meant(1, 1)], [None; 3]);
    }

    #[test]
    fn what_may_have_been_set_up_elsewhere_is_not_judged() {
        let mut context = with_a_tree();
        context.shared();
        assert_eq!(wrong(&context, Command::READ, (7, 2), (7, 2)), None, "on another channel");
        assert_eq!(wrong(&context, Command::READ, (8, 1), (8, 1)), Some(UnfitId::Session(8)), "each channel is bound");
        context.lost();
        assert_eq!(wrong(&context, Command::READ, (8, 1), (8, 1)), None);
        assert_eq!(
            wrong(&context, Command::READ, (8, 1), (7, 1)),
            Some(UnfitId::OtherSession(7, 8)),
            "the two of them are enough"
        );
    }

    #[test]
    fn a_session_that_was_refused_is_none_and_very_many_are_not_judged() {
        let mut context = Context::default();
        let setup = header(Command::SESSION_SETUP, 7, 0);
        let refused = Header { status_or_channel_sequence: NtStatus::ACCESS_DENIED.0, ..setup };
        context.learn(&refused, &Named::default(), Command::SESSION_SETUP);
        assert_eq!(wrong(&context, Command::READ, (7, 1), (7, 1)), Some(UnfitId::Session(7)));
        for session_id in 1..=KNOWN_MAX as u64 {
            context.learn(&Header { session_id, ..setup }, &Named::default(), Command::SESSION_SETUP);
        }
        assert_eq!(wrong(&context, Command::READ, (99, 1), (99, 1)), Some(UnfitId::Session(99)));
        context.learn(&Header { session_id: 98, ..setup }, &Named::default(), Command::SESSION_SETUP);
        assert_eq!(wrong(&context, Command::READ, (99, 1), (99, 1)), None);
    }
}
