//! The shape of SMB2 messages: sizes that are fixed and places that lie inside, \[MS-SMB2\] 2.2 and 3.3.5.2.7. The
//! decoder tolerates violations; the receiver need not.

use core::fmt;
use rdmascope_dissector::wire::smb2::blob::Blob;
use rdmascope_dissector::wire::smb2::{Body, Command, Header, Pdu};

/// A violation in the shape of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShapeViolation {
    /// StructureSize of the header.
    Header(u16),
    /// StructureSize of a request's body, and its right value.
    Size(u16, u16),
    /// NextCommand is not a multiple of 8.
    Next(u32),
    /// A command that does not exist.
    Command(u16),
    /// The first request of a message refers to the one before it.
    Related,
    /// Name, offset and length of a part that is not inside the message.
    Outside(&'static str, u32, u32),
}

impl fmt::Display for ShapeViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(size) => write!(f, "whose header has StructureSize {size} instead of 64"),
            Self::Size(size, own) => write!(f, "with StructureSize {size} instead of {own}"),
            Self::Next(next) => write!(f, "whose NextCommand {next} is not a multiple of 8"),
            Self::Command(command) => write!(f, "with command {command}, which does not exist"),
            Self::Related => f.write_str("that is the first of its message, but marked as related to an earlier one"),
            Self::Outside(what, offset, length) => {
                write!(f, "whose {what}, {length} bytes at {offset}, lies outside it")
            }
        }
    }
}

/// Checks the shape of a message of which nothing was cut off. `emit` is given each violation.
pub(crate) fn check(pdu: &Pdu<'_>, mut emit: impl FnMut(ShapeViolation)) {
    let header = &pdu.header;
    if usize::from(header.header_length) != Header::LEN {
        emit(ShapeViolation::Header(header.header_length));
    }
    if !header.next_command.is_multiple_of(8) {
        emit(ShapeViolation::Next(header.next_command));
    }
    if header.command > Command::SERVER_TO_CLIENT_NOTIFICATION {
        emit(ShapeViolation::Command(header.command.0));
    }
    if !header.is_response() {
        if pdu.offset == 0 && header.is_related() {
            emit(ShapeViolation::Related);
        }
        let size = pdu.bytes.get(Header::LEN..).and_then(|b| b.first_chunk::<2>()).map(|b| u16::from_le_bytes(*b));
        if let (Some(size), Some(own)) = (size, header.command.request_size())
            && size != own
        {
            emit(ShapeViolation::Size(size, own));
        }
    }
    let mut inside = |what: &'static str, blob: &Blob<'_>| {
        if !blob.inside {
            emit(ShapeViolation::Outside(what, blob.offset, blob.length));
        }
    };
    let Ok(body) = &pdu.body else { return };
    match body {
        Body::NegotiateResponse(b) => inside("security buffer", &b.security),
        Body::SessionSetupRequest(b) => inside("security buffer", &b.security),
        Body::SessionSetupResponse(b) => inside("security buffer", &b.security),
        Body::TreeConnectRequest(b) => inside("path", &b.path),
        Body::CreateRequest(b) => {
            inside("name", &b.name);
            inside("list of contexts", &b.context_list);
        }
        Body::CreateResponse(b) => inside("list of contexts", &b.context_list),
        Body::ReadResponse(b) => inside("data", &b.data),
        Body::WriteRequest(b) => inside("data", &b.data),
        Body::IoctlRequest(b) => inside("input", &b.input),
        Body::IoctlResponse(b) => inside("output", &b.output),
        Body::QueryDirectoryRequest(b) => inside("pattern", &b.pattern),
        Body::QueryDirectoryResponse(b) => inside("output", &b.output),
        Body::NotifyResponse(b) => inside("output", &b.output),
        Body::QueryInfoRequest(b) => inside("input", &b.input),
        Body::QueryInfoResponse(b) => inside("output", &b.output),
        Body::SetInfoRequest(b) => inside("buffer", &b.buffer),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use rdmascope_dissector::trace::Off;
    use rdmascope_dissector::wire::smb2::header::flags;
    use rdmascope_dissector::wire::smb2::{Command, Each, encode, parse_message};

    fn wrong(message: &[u8]) -> Vec<ShapeViolation> {
        let mut all = Vec::new();
        let _ = parse_message(message, &mut Off, &mut Each(|pdu: &Pdu<'_>| check(pdu, |wrong| all.push(wrong))));
        all
    }

    #[test]
    fn sizes_and_places() {
        let echo = |header: Header| encode::empty(&header);
        let header = Header::request(Command::ECHO, 1);
        assert_eq!(wrong(&echo(header)), []);
        assert_eq!(wrong(&echo(Header { flags: flags::RELATED, ..header })), [ShapeViolation::Related]);
        let mut odd = echo(header);
        odd[64] = 5;
        assert_eq!(wrong(&odd), [ShapeViolation::Size(5, 4)]);
        odd[4] = 60;
        assert_eq!(wrong(&odd), [ShapeViolation::Header(60), ShapeViolation::Size(5, 4)]);
        let mut pair = echo(Header { next_command: 68, ..header });
        pair.extend(echo(header));
        assert_eq!(wrong(&pair), [ShapeViolation::Next(68)]);
    }
}
