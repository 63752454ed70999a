//! SMB2 messages that must be signed, \[MS-SMB2\] 3.2.4.1.1, 3.2.5.1.3, 3.2.5.3.1, 3.3.4.1.1, 3.3.5.5.3 and 3.3.5.7:
//! the part that can be checked without keys.
//!
//! A session signs everything if either end asks for it and the user is no guest. NEGOTIATE, SESSION_SETUP, CANCEL,
//! interim replies and notifications of the server have rules of their own and are left alone, as are encrypted
//! messages.

use alloc::vec::Vec;
use rdmascope_dissector::wire::smb2::negotiate::Dialect;
use rdmascope_dissector::wire::smb2::negotiate::security_mode::SIGNING_REQUIRED;
use rdmascope_dissector::wire::smb2::session::flags::{ENCRYPT_DATA, IS_GUEST, IS_NULL};
use rdmascope_dissector::wire::smb2::{Body, Command, Header, NtStatus, Pdu};

/// Sessions remembered per connection at most.
const SESSIONS_MAX: usize = 256;
/// Sessions that have no key.
const WITHOUT_KEY: u16 = IS_GUEST | IS_NULL;

/// Values for signing in a SESSION_SETUP request, kept until its reply comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setup {
    required: bool,
    binding: bool,
}

impl Setup {
    /// Of a request; nothing of other commands.
    pub(crate) fn of(body: &Body<'_>) -> Self {
        match body {
            Body::SessionSetupRequest(r) => {
                Self { required: r.fixed.security_mode & SIGNING_REQUIRED != 0, binding: r.fixed.binding() }
            }
            _ => Self::default(),
        }
    }
}

/// Known facts about one session.
#[derive(Clone, Copy, Debug)]
struct Session {
    id: u64,
    /// Its messages must be signed.
    required: bool,
}

/// The sessions of one connection that have a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signing {
    /// True if the server requires it of every session.
    server: bool,
    dialect: u16,
    sessions: Vec<Session>,
}

impl Signing {
    /// Takes the reply to a request, with the values of that request.
    pub(crate) fn learn(&mut self, pdu: &Pdu<'_>, setup: Setup) {
        let header = &pdu.header;
        match &pdu.body {
            Ok(Body::NegotiateResponse(r)) => {
                self.server = r.fixed.security_mode & SIGNING_REQUIRED != 0;
                self.dialect = r.dialect().0;
            }
            Ok(Body::SessionSetupResponse(r)) if header.status() == NtStatus::SUCCESS => {
                self.sessions.retain(|s| s.id != header.session_id);
                // another channel of a session takes over the agreement of the first
                if r.fixed.session_flags & (WITHOUT_KEY | ENCRYPT_DATA) == 0
                    && !setup.binding
                    && self.sessions.len() < SESSIONS_MAX
                {
                    self.sessions.push(Session { id: header.session_id, required: self.server || setup.required });
                }
            }
            Ok(Body::Empty) if header.command == Command::LOGOFF => self.sessions.retain(|s| s.id != header.session_id),
            _ => {}
        }
    }

    /// Reason why a request that travels in the clear must be signed; `None` if it need not be, or is.
    pub(crate) fn request(&self, header: &Header) -> Option<&'static str> {
        if header.is_signed() || matches!(header.command, Command::NEGOTIATE | Command::SESSION_SETUP | Command::CANCEL)
        {
            return None;
        }
        let session = self.sessions.iter().find(|s| s.id == header.session_id)?;
        match session.required {
            true => Some("of a session that must be signed"),
            // 3.3.5.7: the signature proves that the negotiation was not changed
            false if header.command == Command::TREE_CONNECT && self.dialect == Dialect::SMB_3_1_1.0 => {
                Some("in dialect 0x0311")
            }
            false => None,
        }
    }

    /// True if a reply in the clear to a signed request must be signed and is not.
    pub(crate) fn reply(header: &Header) -> bool {
        let apart = matches!(header.command, Command::NEGOTIATE | Command::SESSION_SETUP | Command::CANCEL);
        !header.is_signed() && !header.is_interim() && !is_without_session(header) && !apart
    }

    /// The place in [`Smb::signatures`] at which a message in the clear is counted; `None` if it tells nothing: without
    /// a signature, messages of the set-up and those that are never signed.
    ///
    /// [`Smb::signatures`]: crate::summary::Smb::signatures
    pub(crate) fn counted(header: &Header) -> Option<usize> {
        let is_of_setup = matches!(header.command, Command::NEGOTIATE | Command::SESSION_SETUP | Command::TREE_CONNECT);
        let is_notification = header.is_response() && header.message_id == u64::MAX;
        let is_never_signed = header.command == Command::CANCEL
            || header.is_interim()
            || is_notification
            || header.session_id == 0
            || header.is_response() && is_without_session(header);
        match (header.is_signed(), is_of_setup) {
            (true, true) => Some(2),
            (true, false) => Some(1),
            (false, false) if !is_never_signed => Some(0),
            (false, _) => None,
        }
    }
}

/// True if a reply says that there is no session, and so no key to sign it with.
fn is_without_session(header: &Header) -> bool {
    const SESSION_EXPIRED: NtStatus = NtStatus(0xc000_035c);
    [NtStatus::USER_SESSION_DELETED, SESSION_EXPIRED, NtStatus::ACCESS_DENIED].contains(&header.status())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_dissector::wire::smb2::header::flags;

    fn header(command: Command, flags: u32, status: u32) -> Header {
        Header { flags, session_id: 7, status_or_channel_sequence: status, ..Header::request(command, 3) }
    }

    #[test]
    fn a_session_that_must_be_signed_is() {
        let mut signing = Signing { dialect: Dialect::SMB_3_1_1.0, ..Signing::default() };
        assert_eq!(signing.request(&header(Command::ECHO, 0, 0)), None, "nothing is known of the session");
        signing.sessions.push(Session { id: 7, required: true });
        for (command, flags, expected) in [
            (Command::ECHO, 0, true),
            (Command::ECHO, flags::SIGNED, false),
            (Command::CANCEL, 0, false),
            (Command::SESSION_SETUP, 0, false),
        ] {
            assert_eq!(signing.request(&header(command, flags, 0)).is_some(), expected, "{command}");
        }
        signing.sessions[0].required = false;
        assert!(signing.request(&header(Command::TREE_CONNECT, 0, 0)).is_some());
        assert_eq!(signing.request(&header(Command::ECHO, 0, 0)), None);
    }

    #[test]
    fn replies_to_signed_requests_are_signed_where_there_is_a_session() {
        let reply = |status, more| Signing::reply(&header(Command::READ, flags::RESPONSE | more, status));
        assert!(reply(0, 0) && reply(0xc000_0034, 0) && !reply(0, flags::SIGNED));
        assert!(!reply(0x103, flags::ASYNC) && reply(0, flags::ASYNC) && !reply(0xc000_0203, 0));
    }

    #[test]
    fn messages_of_the_set_up_do_not_tell_if_a_session_signs() {
        let signed = flags::SIGNED;
        for (command, flags, status, expected) in [
            (Command::TREE_CONNECT, signed, 0, Some(2)),
            (Command::SESSION_SETUP, signed | flags::RESPONSE, 0, Some(2)),
            (Command::SESSION_SETUP, 0, 0, None),
            (Command::NEGOTIATE, flags::RESPONSE, 0, None),
            (Command::READ, signed, 0, Some(1)),
            (Command::READ, 0, 0, Some(0)),
            // never signed
            (Command::CANCEL, 0, 0, None),
            (Command::READ, flags::RESPONSE | flags::ASYNC, 0x103, None),
            (Command::READ, flags::RESPONSE, 0xc000_0203, None),
        ] {
            assert_eq!(Signing::counted(&header(command, flags, status)), expected, "{command} {flags:#x}");
        }
        let notification = Header { message_id: u64::MAX, ..header(Command::OPLOCK_BREAK, flags::RESPONSE, 0) };
        assert_eq!(Signing::counted(&notification), None);
        assert_eq!(Signing::counted(&Header { session_id: 0, ..header(Command::ECHO, 0, 0) }), None);
    }
}
