//! The credential cache of a user, as `kinit` leaves it: a file of MIT Kerberos' format, versions 3 and 4 (big-endian,
//! "Credential cache file format" of its documentation).

use super::{Credential, EncryptionKey, Error, Principal, Result, decode};
use picky_krb::data_types::Ticket;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Bytes of the largest cache that is read.
const LENGTH_MAX: u64 = 16 << 20;
const PARTS_MAX: u32 = 64;
const NOT_A_CACHE: &str = "is not a credential cache of MIT Kerberos (version 3 or 4)";

/// A credential cache.
#[derive(Clone, Debug)]
pub struct CredentialCache {
    /// Path of the cache.
    pub path: String,
    /// Default principal of the cache.
    pub client: Principal,
    /// Its tickets; those of encryption types that are not spoken here are not among them.
    pub credentials: Vec<Credential>,
}

impl CredentialCache {
    /// The one of this name, as `KRB5CCNAME` has it: a path, or `FILE:` and a path.
    ///
    /// # Errors
    /// If it is of another kind, or cannot be read.
    pub fn named(name: &str) -> Result<Self> {
        let path = match name.split_once(':') {
            Some(("FILE", path)) => path,
            Some((kind, _)) if !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_uppercase()) => {
                let why = "is not a file: run kinit and rdmascope with KRB5CCNAME=FILE:/tmp/tickets";
                return Err(Error::Format { path: name.to_owned(), why });
            }
            _ => name,
        };
        Self::read(Path::new(path))
    }

    /// The one in a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let bytes = super::keytab::contents(path, LENGTH_MAX)?;
        Self::parse(&bytes, &name).ok_or(Error::Format { path: name, why: NOT_A_CACHE })
    }

    /// Parses a cache; `None` if the bytes are not one.
    pub fn parse(bytes: &[u8], path: &str) -> Option<Self> {
        let (version, i) = bytes.split_first_chunk::<2>()?;
        let mut i = match version {
            [5, 3] => i,
            [5, 4] => counted16(i)?.0,
            _ => return None,
        };
        let client;
        (i, client) = principal(i)?;
        let mut credentials = Vec::new();
        while !i.is_empty() {
            let credential;
            (i, credential) = entry(i)?;
            credentials.extend(credential);
        }
        Some(Self { path: path.to_owned(), client, credentials })
    }
}

/// Path of the default cache.
pub(super) fn default_name() -> String {
    #[cfg(unix)]
    let user = rustix::process::getuid().as_raw();
    #[cfg(not(unix))]
    let user = 0;
    format!("/tmp/krb5cc_{user}")
}

/// One credential; the inner value is `None` if it cannot be used: a setting, or an encryption type that is not
/// supported.
fn entry(i: &[u8]) -> Option<(&[u8], Option<Credential>)> {
    let (i, client) = principal(i)?;
    let (i, server) = principal(i)?;
    let (kind, i) = i.split_first_chunk::<2>()?;
    let (i, value) = counted(i)?;
    // when it was made, when it begins, ends, and can be renewed until
    let (times, i) = i.split_first_chunk::<16>()?;
    let end = u32::from_be_bytes(*times[8..].first_chunk()?);
    // whether it is a key of user to user, and flags
    let (_, mut i) = i.split_first_chunk::<5>()?;
    // addresses and authorization data: type, bytes
    for _ in 0..2 {
        let (count, mut rest) = i.split_first_chunk::<4>()?;
        for _ in 0..u32::from_be_bytes(*count) {
            rest = counted(rest.split_first_chunk::<2>()?.1)?.0;
        }
        i = rest;
    }
    let (i, ticket) = counted(i)?;
    let (i, _second) = counted(i)?;
    let key = EncryptionKey::new(u16::from_be_bytes(*kind).into(), value.to_vec()).ok();
    let ticket = decode::<Ticket>(ticket, NOT_A_CACHE).ok();
    let end = UNIX_EPOCH + Duration::from_secs(end.into());
    Some((i, key.zip(ticket).map(|(key, ticket)| Credential { client, server, key, ticket, end })))
}

fn principal(i: &[u8]) -> Option<(&[u8], Principal)> {
    let (name_type, i) = i.split_first_chunk::<4>()?;
    let (count, i) = i.split_first_chunk::<4>()?;
    let (mut i, realm) = counted(i)?;
    let count = u32::from_be_bytes(*count);
    if count > PARTS_MAX {
        return None;
    }
    let mut parts = Vec::new();
    for _ in 0..count {
        let part;
        (i, part) = counted(i)?;
        parts.push(String::from_utf8_lossy(part).into_owned());
    }
    let realm = String::from_utf8_lossy(realm).into_owned();
    Some((i, Principal { name_type: u32::from_be_bytes(*name_type), parts, realm }))
}

/// A length of 32 bits, and that many bytes.
fn counted(i: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, i) = i.split_first_chunk::<4>()?;
    let (bytes, i) = i.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((i, bytes))
}

/// A length of 16 bits, and that many bytes.
fn counted16(i: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, i) = i.split_first_chunk::<2>()?;
    let (bytes, i) = i.split_at_checked(u16::from_be_bytes(*length).into())?;
    Some((i, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A cache written by kinit and kvno of MIT Kerberos 1.20, in a realm that was made for this test.
    const CACHE: &[u8] = include_bytes!("testdata/credential_cache");

    #[test]
    fn the_cache_of_kinit_is_read() {
        let cache = CredentialCache::parse(CACHE, "cache").unwrap();
        assert_eq!(cache.client.to_string(), "alice@LAB.EXAMPLE");
        let names: Vec<String> = cache.credentials.iter().map(|c| c.server.to_string()).collect();
        assert_eq!(names, ["krbtgt/LAB.EXAMPLE@LAB.EXAMPLE", "cifs/server.lab.example@LAB.EXAMPLE"]);
        // klist: 11/22/26 05:15:17
        assert!(
            cache.credentials.iter().all(|c| c.end == UNIX_EPOCH + Duration::from_secs(1_795_324_517)),
            "{cache:?}"
        );
        assert!(cache.credentials.iter().all(|c| c.client == cache.client));
    }

    #[test]
    fn a_cache_that_is_cut_is_none_but_between_its_entries() {
        let whole = (0..CACHE.len()).filter(|n| CredentialCache::parse(&CACHE[..*n], "cut").is_some()).count();
        // one for each entry of kinit and kvno: a setting and two tickets
        assert_eq!(whole, 3);
    }

    #[test]
    fn other_kinds_are_named() {
        let error = CredentialCache::named("KEYRING:persistent:0").unwrap_err().to_string();
        assert!(
            error.starts_with("KEYRING:persistent:0 is not a file: run kinit and rdmascope with KRB5CCNAME=FILE:"),
            "{error}"
        );
        let error = CredentialCache::named("FILE:/nowhere/at/all").unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/at/all cannot be read"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_do(bytes in prop::collection::vec(any::<u8>(), 0..300), version in 3..5u8) {
            let _ = CredentialCache::parse(&[&[5, version], &bytes[..]].concat(), "any");
        }

        #[test]
        fn a_changed_cache_does(at in 0..CACHE.len(), byte: u8) {
            let mut bytes = CACHE.to_vec();
            bytes[at] = byte;
            let _ = CredentialCache::parse(&bytes, "changed");
        }
    }
}
