//! The key file: text, an entry a line or a few, in any mixture of the forms in which other programs print or keep
//! keys. `#` begins a comment line. Hex digits may be upper or lower case, and apart by spaces or colons.
//!
//! ```text
//! # as `smbinfo keys FILE` prints them on the client: a session id opens an entry, the lines that follow belong to it
//! Session Id: 45 00 00 08 00 c8 00 00
//! Cipher: AES-128-GCM
//! Session Key: 00 bf ed c7 f1 95 0e 29 06 e8 82 87 b5 c8 72 06
//! ServerIn  Key: a6 fd 04 f6 04 ea 0e 6e 60 c0 1b b1 ee 63 38 e9
//! ServerOut key: a6 e3 e3 22 8c c2 b0 6e b1 9d 40 ea d0 89 6d d8
//!
//! # as the kernel logs them, with CONFIG_CIFS_DEBUG_DUMP_KEYS or ksmbd's debugging of "auth"
//! [ 1234.567890] CIFS: VFS: Session Id    45 00 00 08 00 c8 00 00
//! [ 1234.567891] CIFS: VFS: Signing Key   a4 0f 15 64 d2 69 02 2f 4e 78 60 7a fe 3e 31 4e
//!
//! # as Wireshark's smb2_seskey_list has them: session id, session key, server to client key, client to server key
//! 4500000800c80000,00bfedc7f1950e2906e88287b5c87206,,
//!
//! # passwords, or their NT hashes, of one user or of any
//! user=DOMAIN\alice password=all that follows, to the end of the line
//! nthash=a4f49c406510bdcab6824ee7c30fd852
//! ```
//!
//! A session id in hex is the eight bytes in the order in which they are sent. One that begins with `0x`, or that is
//! decimal as ksmbd prints it, is the number itself. Labels: `Session Id`, `Session Key`, `Signing Key`, `ServerIn
//! Key`, `ServerOut Key`; the older `Server Encryption Key` and `Server Decryption Key` are the latter two, also
//! without `Server`. A key of zeros is none. Other lines of a kernel log are passed over; any other line is an error.

use crate::keys::{Key, Keys, Secret, ntlm};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Meaning of a line, or of a group of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Keys of the session with this number.
    Session(u64, Keys),
    /// A password.
    Secret(Secret),
}

/// A line that is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFileError {
    /// Its number, from 1.
    pub line: usize,
    /// The problem with it. Never contains its text: that may be a secret.
    pub what: &'static str,
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl core::error::Error for KeyFileError {}

/// Meaning of a label.
#[derive(Clone, Copy)]
enum Label {
    SessionId,
    SessionKey,
    Signing,
    ClientToServer,
    ServerToClient,
    Ignored,
}

const LABELS: &[(&str, Label)] = &[
    ("session id", Label::SessionId),
    ("session key", Label::SessionKey),
    ("signing key", Label::Signing),
    ("serverin key", Label::ClientToServer),
    ("serverout key", Label::ServerToClient),
    ("server encryption key", Label::ClientToServer),
    ("server decryption key", Label::ServerToClient),
    ("encryption key", Label::ClientToServer),
    ("decryption key", Label::ServerToClient),
    ("cipher type", Label::Ignored),
    ("cipher", Label::Ignored),
    ("ccm encryption", Label::Ignored),
    ("gcm encryption", Label::Ignored),
    ("smb3.0 encryption", Label::Ignored),
    ("smb3.0 ccm encryption", Label::Ignored),
    ("unknown encryption", Label::Ignored),
];

/// Prefixes of messages from the kernel. A line of its log may also begin with a time in brackets.
const LOG_MARKS: &[&str] = &["CIFS: VFS:", "CIFS:", "ksmbd:", "kernel:"];

/// The entries of a key file, in their order.
///
/// # Errors
/// The first line that is not understood.
pub fn parse(text: &str) -> Result<Vec<Entry>, KeyFileError> {
    let mut entries = Vec::new();
    // the session that labels belong to
    let mut open: Option<(u64, Keys)> = None;
    for (n, raw) in text.lines().enumerate() {
        let fail = |what| KeyFileError { line: n + 1, what };
        let whole = raw.trim_start_matches(['\u{feff}', ' ', '\t']);
        if whole.trim().is_empty() || whole.starts_with('#') {
            continue;
        }
        if let Some(secret) = secret(whole).map_err(fail)? {
            entries.push(Entry::Secret(secret));
            continue;
        }
        let (line, logged) = match LOG_MARKS.iter().find_map(|mark| whole.split_once(mark)) {
            Some((_, rest)) => (rest.trim(), true),
            None => (whole.trim(), whole.starts_with('[')),
        };
        if let Some((label, value)) = labelled(line) {
            match label {
                Label::SessionId => {
                    entries.extend(open.take().map(|(id, keys)| Entry::Session(id, keys)));
                    open = Some((
                        session_id(value).ok_or_else(|| fail("not a session id: eight bytes in hex, or a number"))?,
                        Keys::default(),
                    ));
                }
                Label::Ignored => {}
                _ => {
                    let (_, keys) = open.as_mut().ok_or_else(|| fail("a key before its Session Id"))?;
                    set(keys, label, value).map_err(fail)?;
                }
            }
            continue;
        }
        if logged {
            continue;
        }
        let (id, keys) = wireshark(line).map_err(fail)?;
        entries.push(Entry::Session(id, keys));
    }
    entries.extend(open.map(|(id, keys)| Entry::Session(id, keys)));
    Ok(entries)
}

/// `[user=NAME ]password=…` and `[user=NAME ]nthash=…`
fn secret(line: &str) -> Result<Option<Secret>, &'static str> {
    let (user, rest) = match line.strip_prefix("user=") {
        None => (None, line),
        Some(after) => {
            let end = [" password=", " nthash="].iter().filter_map(|mark| after.find(mark)).min();
            let (name, rest) = after.split_at(end.ok_or("a user without password= or nthash=")?);
            let name = name.trim();
            (Some(String::from(name.rsplit_once('\\').map_or(name, |(_, user)| user))), &rest[1..])
        }
    };
    if let Some(password) = rest.strip_prefix("password=") {
        return Ok(Some(Secret { user, nt_hash: ntlm::nt_hash(password) }));
    }
    let Some(hash) = rest.strip_prefix("nthash=") else { return Ok(None) };
    match hex(hash).and_then(|b| b.try_into().ok()) {
        Some(nt_hash) => Ok(Some(Secret { user, nt_hash })),
        None => Err("not an NT hash: 16 bytes in hex"),
    }
}

/// The label that begins the line, in any case and with any spaces, and the text behind it and perhaps a colon.
fn labelled(line: &str) -> Option<(Label, &str)> {
    LABELS.iter().find_map(|(text, label)| {
        let mut rest = line;
        for (n, word) in text.split(' ').enumerate() {
            if n > 0 {
                rest = rest.strip_prefix([' ', '\t'])?.trim_start();
            }
            let (found, after) = rest.split_at_checked(word.len())?;
            if !found.eq_ignore_ascii_case(word) {
                return None;
            }
            rest = after;
        }
        let after = rest.trim_start();
        let value = after.strip_prefix(':').unwrap_or(after);
        (value.len() < rest.len() || rest.is_empty()).then_some((*label, value.trim()))
    })
}

fn set(keys: &mut Keys, label: Label, value: &str) -> Result<(), &'static str> {
    match label {
        Label::SessionKey => keys.session_key = session_key(value)?,
        Label::Signing => keys.signing = key(value)?,
        Label::ClientToServer => keys.client_to_server = key(value)?,
        Label::ServerToClient => keys.server_to_client = key(value)?,
        Label::SessionId | Label::Ignored => {}
    }
    Ok(())
}

/// `id,session key[,server to client[,client to server]]`, each perhaps in quotes.
fn wireshark(line: &str) -> Result<(u64, Keys), &'static str> {
    const UNKNOWN: &str = "not a session's keys, a password or a comment";
    let line = line.strip_prefix("uat:").unwrap_or(line);
    let line = line.strip_prefix("smb2_seskey_list:").unwrap_or(line);
    let mut fields = line.split(',').map(|f| f.trim().trim_matches('"'));
    let id = fields.next().filter(|_| line.contains(',')).ok_or(UNKNOWN)?;
    let id: [u8; 8] = hex(id).and_then(|b| b.try_into().ok()).ok_or(UNKNOWN)?;
    let mut keys = Keys { session_key: session_key(fields.next().unwrap_or(""))?, ..Keys::default() };
    keys.server_to_client = key(fields.next().unwrap_or(""))?;
    keys.client_to_server = key(fields.next().unwrap_or(""))?;
    if fields.next().is_some() {
        return Err("more than four fields");
    }
    Ok((u64::from_le_bytes(id), keys))
}

fn session_id(value: &str) -> Option<u64> {
    if let Some(digits) = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        return digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok())?;
    }
    if let Some(bytes) = hex(value).and_then(|b| b.try_into().ok()) {
        return Some(u64::from_le_bytes(bytes));
    }
    value.bytes().all(|b| b.is_ascii_digit()).then(|| value.parse().ok())?
}

fn session_key(value: &str) -> Result<Option<Key>, &'static str> {
    match hex(value) {
        Some(b) if b.is_empty() => Ok(None),
        Some(b) if (8..=Key::LEN_MAX).contains(&b.len()) => Ok(Some(Key::of_slice(&b)).filter(|k| !k.is_zero())),
        _ => Err("not a session key: 8 to 32 bytes in hex"),
    }
}

fn key(value: &str) -> Result<Option<Key>, &'static str> {
    match hex(value) {
        Some(b) if b.is_empty() => Ok(None),
        Some(b) if b.len() == 16 || b.len() == 32 => Ok(Some(Key::of_slice(&b)).filter(|k| !k.is_zero())),
        _ => Err("not a key: 16 or 32 bytes in hex"),
    }
}

/// Pairs of hex digits, apart or not. `None` if there is anything else, or more than any key has.
fn hex(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut high = None;
    for c in text.chars() {
        match (c.to_digit(16), high) {
            (Some(digit), None) => high = Some(digit),
            (Some(digit), Some(h)) => {
                bytes.push((h << 4 | digit) as u8);
                high = None;
            }
            // only between bytes
            (None, None) if matches!(c, ' ' | '\t' | ':') => {}
            (None, _) => return None,
        }
        if bytes.len() > 64 {
            return None;
        }
    }
    high.is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::testing;
    use alloc::format;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn k(text: &str) -> Option<Key> {
        Some(Key::of_slice(&testing::hex(text)))
    }

    const ID: u64 = 0x0000_c800_0800_0045;

    #[test]
    fn what_smbinfo_prints() {
        let entries = parse(
            "Session Id: 45 00 00 08 00 c8 00 00\nCipher: AES-128-GCM\n\
             Session Key: 00 bf ed c7 f1 95 0e 29 06 e8 82 87 b5 c8 72 06\n\
             ServerIn  Key: a6 fd 04 f6 04 ea 0e 6e 60 c0 1b b1 ee 63 38 e9\n\
             ServerOut key: a6 e3 e3 22 8c c2 b0 6e b1 9d 40 ea d0 89 6d d8\n\n\
             CCM encryption\r\nSession Id:   e2 3e ea ae 00 00 00 00\r\n\
             Session Key:  65 7e 0e d5 3c 06 5a 06 50 a3 ef 96 c1 64 3d 1f\r\n\
             Server Encryption Key:  5e 42 a7 b5 57 75 d6 56 4a 5d 33 97 e6 45 07 76\r\n\
             Server Decryption Key:  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\r\n",
        );
        let first = Keys {
            session_key: k("00bfedc7f1950e2906e88287b5c87206"),
            signing: None,
            client_to_server: k("a6fd04f604ea0e6e60c01bb1ee6338e9"),
            server_to_client: k("a6e3e3228cc2b06eb19d40ead0896dd8"),
        };
        let second = Keys {
            session_key: k("657e0ed53c065a0650a3ef96c1643d1f"),
            client_to_server: k("5e42a7b55775d6564a5d3397e6450776"),
            ..Keys::default()
        };
        assert_eq!(entries.unwrap(), [Entry::Session(ID, first), Entry::Session(0xaeea_3ee2, second)]);
    }

    #[test]
    fn what_the_kernel_logs() {
        let entries = parse(
            "[ 12.0] mlx5_core: link up\nNov 27 00:37:32 host kernel: usb 1-1: new device\n\
             [ 12.1] CIFS: Attempting to mount //server/share\n\
             [ 12.2] CIFS: VFS: generate_smb3signingkey: dumping generated AES session keys\n\
             [ 12.3] CIFS: VFS: Session Id    45 00 00 08 00 c8 00 00\n\
             [ 12.4] CIFS: VFS: Cipher type   2\n\
             [ 12.5] CIFS: VFS: Signing Key   a4 0f 15 64 d2 69 02 2f 4e 78 60 7a fe 3e 31 4e\n\
             [ 12.6] ksmbd: Session Id    17\n\
             [ 12.7] ksmbd: Session Key   00 bf ed c7 f1 95 0e 29 06 e8 82 87 b5 c8 72 06\n",
        );
        let client = Keys { signing: k("a40f1564d269022f4e78607afe3e314e"), ..Keys::default() };
        let server = Keys { session_key: k("00bfedc7f1950e2906e88287b5c87206"), ..Keys::default() };
        assert_eq!(entries.unwrap(), [Entry::Session(ID, client), Entry::Session(17, server)]);
    }

    #[test]
    fn what_wireshark_keeps() {
        let long = "11".repeat(32);
        let text = format!(
            "# This file is automatically generated\n4500000800c80000,00bfedc7f1950e2906e88287b5c87206,,\n\
             uat:smb2_seskey_list:4500000800C80000,\"\",{long},\"{long}\"\n"
        );
        let first = Keys { session_key: k("00bfedc7f1950e2906e88287b5c87206"), ..Keys::default() };
        let second = Keys { client_to_server: k(&long), server_to_client: k(&long), ..Keys::default() };
        assert_eq!(parse(&text).unwrap(), [Entry::Session(ID, first), Entry::Session(ID, second)]);
        // which of the two is which
        let both =
            parse("0100000000000000,,0000000000000000000000000000000a,0000000000000000000000000000000b").unwrap();
        let Entry::Session(1, keys) = &both[0] else { panic!("{both:?}") };
        assert_eq!((keys.server_to_client.unwrap().bytes()[15], keys.client_to_server.unwrap().bytes()[15]), (10, 11));
    }

    #[test]
    fn passwords_and_their_hashes() {
        let of = |text: &str| match parse(text).unwrap().pop() {
            Some(Entry::Secret(secret)) => secret,
            other => panic!("{other:?}"),
        };
        let hash = ntlm::nt_hash("Password");
        assert_eq!(of("password=Password"), Secret { user: None, nt_hash: hash });
        assert_eq!(of("nthash=a4f49c406510bdcab6824ee7c30fd852"), Secret { user: None, nt_hash: hash });
        assert_eq!(of("user=DOMAIN\\alice password=Password").user.as_deref(), Some("alice"));
        assert_eq!(
            of("user=Al Ice nthash=A4F49C406510BDCAB6824EE7C30FD852"),
            Secret { user: Some("Al Ice".into()), nt_hash: hash }
        );
        assert_eq!(of("password=#a, b = c ").nt_hash, ntlm::nt_hash("#a, b = c "));
    }

    #[test]
    fn session_ids_in_every_form() {
        for text in [
            "45 00 00 08 00 c8 00 00",
            "4500000800c80000",
            "45:00:00:08:00:C8:00:00",
            "0xc80008000045",
            "219902459772997",
            "0x0000C80008000045",
        ] {
            assert_eq!(session_id(text), Some(ID), "{text}");
        }
        for text in ["", "0x", "45 00", "x", "+5", "0x+5", "99999999999999999999", "0x11112222333344445"] {
            assert_eq!(session_id(text), None, "{text}");
        }
    }

    #[test]
    fn an_error_names_its_line_and_no_secret() {
        let cases = [
            ("\n\nnonsense", 3),
            ("Session Key: 00bfedc7f1950e2906e88287b5c87206", 1),
            ("# a\nSession Id: 1\nSession Key: 00bfed\n", 3),
            ("Session Id: 1\nSigning Key: 00bfedc7f1950e2906e88287b5c8720\n", 2),
            ("Session Id: 1\nServerIn Key: 00bfedc7f1950e2906e88287b5c87206aabb\n", 2),
            ("Session Id: secret\n", 1),
            ("Session Idea: 1\n", 1),
            ("4500000800c800,00bfedc7f1950e2906e88287b5c87206", 1),
            ("4500000800c80000", 1),
            ("4500000800c80000,xyz", 1),
            ("4500000800c80000,,,,", 1),
            ("nthash=1234", 1),
            ("user=alice secret=x", 1),
        ];
        for (text, line) in cases {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.to_string().starts_with(&format!("line {line}: ")) && !error.to_string().contains("secret"));
        }
        assert_eq!(parse("").unwrap(), []);
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_survived(text in "(Session Id: |Session Key|user=|password=|nthash=|[0-9a-f:, \
            \"]{0,20}|\\PC{0,10}|\n){0,12}") {
            if let Err(error) = parse(&text) {
                prop_assert!(error.line >= 1 && error.line <= text.lines().count());
            }
        }
    }
}
