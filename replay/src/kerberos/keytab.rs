//! The keys of a service, as `ktutil` and `kadmin ktadd` leave them: a file of MIT Kerberos' format, version 2
//! (big-endian, "Keytab file format" of its documentation).

use super::{EncryptionKey, Error, Principal, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of the largest keytab that is read.
const LENGTH_MAX: u64 = 1 << 20;

/// Keys of services.
#[derive(Clone, Debug, Default)]
pub struct Keytab {
    /// Of encryption types that are spoken here.
    pub entries: Vec<Entry>,
}

/// A key of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Principal of the entry.
    pub principal: Principal,
    /// Key of the principal.
    pub key: EncryptionKey,
}

impl Keytab {
    /// The one in a file.
    ///
    /// # Errors
    /// If it cannot be read, or has no key of a supported encryption type.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |why| Error::Format { path: path.display().to_string(), why };
        let bytes = contents(path, LENGTH_MAX)?;
        let keytab = Self::parse(&bytes).ok_or_else(|| wrong("is no keytab"))?;
        if keytab.entries.is_empty() {
            return Err(wrong("has no key for AES"));
        }
        Ok(keytab)
    }

    /// Parses a keytab; `None` if the bytes are not one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut i = bytes.strip_prefix(&[5, 2])?;
        let mut entries = Vec::new();
        while let Some((length, rest)) = i.split_first_chunk::<4>() {
            // a hole, left by a removed entry, has a negative length
            let length = i32::from_be_bytes(*length);
            let (entry, rest) = rest.split_at_checked(length.unsigned_abs() as usize)?;
            if length > 0 {
                entries.extend(self::entry(entry)?);
            }
            i = rest;
        }
        i.is_empty().then_some(Self { entries })
    }
}

/// One entry; the inner value is `None` if its encryption type is not supported.
fn entry(i: &[u8]) -> Option<Option<Entry>> {
    let (count, i) = i.split_first_chunk::<2>()?;
    let (mut i, realm) = counted(i)?;
    let mut parts = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let part;
        (i, part) = counted(i)?;
        parts.push(part);
    }
    let (name_type, i) = i.split_first_chunk::<4>()?;
    // when it was made, and its version of 8 bits
    let (_, i) = i.split_first_chunk::<5>()?;
    let (kind, i) = i.split_first_chunk::<2>()?;
    let (length, i) = i.split_first_chunk::<2>()?;
    let value = i.get(..u16::from_be_bytes(*length).into())?.to_vec();
    let principal = Principal { name_type: u32::from_be_bytes(*name_type), parts, realm };
    Some(EncryptionKey::new(u16::from_be_bytes(*kind).into(), value).ok().map(|key| Entry { principal, key }))
}

fn counted(i: &[u8]) -> Option<(&[u8], String)> {
    let (length, i) = i.split_first_chunk::<2>()?;
    let (bytes, i) = i.split_at_checked(u16::from_be_bytes(*length).into())?;
    Some((i, String::from_utf8_lossy(bytes).into_owned()))
}

/// All of a file that is not longer than this.
pub(super) fn contents(path: &Path, length_max: u64) -> Result<Vec<u8>> {
    let name = || path.display().to_string();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(length_max + 1).read_to_end(&mut bytes));
    read.map_err(|source| Error::File { path: name(), source })?;
    if bytes.len() as u64 > length_max {
        return Err(Error::Format { path: name(), why: "is too long" });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A keytab written by ktadd of kadmin.local, MIT Kerberos 1.20, in a realm that was made for this test.
    const KEYTAB: &[u8] = include_bytes!("testdata/keytab");

    #[test]
    fn the_keytab_of_ktadd_is_read() {
        let keytab = Keytab::parse(KEYTAB).unwrap();
        let entries: Vec<_> =
            keytab.entries.iter().map(|e| (e.principal.to_string(), e.key.encryption_type())).collect();
        assert_eq!(
            entries,
            [
                ("cifs/server.lab.example@LAB.EXAMPLE".to_owned(), 18),
                ("cifs/server.lab.example@LAB.EXAMPLE".to_owned(), 17)
            ]
        );
        // a hole between the two
        let (first, rest) = KEYTAB[2..].split_at(4 + u32::from_be_bytes(*KEYTAB[2..].first_chunk().unwrap()) as usize);
        let hole = [&[5, 2], first, &(-3i32).to_be_bytes(), b"abc", rest].concat();
        assert_eq!(Keytab::parse(&hole).unwrap().entries, keytab.entries);
    }

    #[test]
    fn a_keytab_that_is_cut_is_none_but_between_its_entries() {
        assert_eq!((0..KEYTAB.len()).filter(|n| Keytab::parse(&KEYTAB[..*n]).is_some()).count(), 2);
    }

    proptest! {
        #[test]
        fn any_bytes_do(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Keytab::parse(&[&[5, 2], &bytes[..]].concat());
        }
    }
}
