//! The local time zone: the one that `TZ` names, else `/etc/localtime` (tzfile(5)). If neither can be read it is UTC.

use std::path::{Path, PathBuf};

/// Seconds that local time is ahead of UTC, by when it changed.
#[derive(Clone, Debug, Default)]
pub struct Zone {
    /// Unix seconds from which on an offset holds, ascending.
    changes: Vec<(i64, i32)>,
    /// The offset before the first change.
    first: i32,
}

impl Zone {
    /// The zone of this process.
    pub fn local() -> Self {
        let path = match std::env::var("TZ") {
            Err(_) => PathBuf::from("/etc/localtime"),
            Ok(name) => {
                let name = name.strip_prefix(':').unwrap_or(&name);
                if name.is_empty() {
                    return Self::default();
                }
                // a name that leaves the folder of zones is no zone
                match Path::new(name) {
                    path if path.is_absolute() => path.to_owned(),
                    path if path.components().all(|c| matches!(c, std::path::Component::Normal(_))) => {
                        Path::new("/usr/share/zoneinfo").join(path)
                    }
                    _ => return Self::default(),
                }
            }
        };
        std::fs::read(path).ok().and_then(|bytes| Self::parse(&bytes)).unwrap_or_default()
    }

    /// Offset from UTC at a time in Unix seconds, in seconds.
    pub fn offset(&self, seconds: i64) -> i32 {
        match self.changes.partition_point(|(from, _)| *from <= seconds) {
            0 => self.first,
            n => self.changes[n - 1].1,
        }
    }

    /// The second block of a tzfile, with times of 64 bits.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let counts = |header: &[u8]| -> Option<[usize; 6]> {
            let mut counts = [0; 6];
            for (i, count) in counts.iter_mut().enumerate() {
                *count = u32::from_be_bytes(*header.get(20 + 4 * i..)?.first_chunk()?) as usize;
            }
            (header.starts_with(b"TZif") && counts.iter().all(|c| *c < 100_000)).then_some(counts)
        };
        let [utc, standard, leap, times, types, chars] = counts(bytes)?;
        let second = bytes.get(44 + times * 5 + types * 6 + chars + leap * 8 + standard + utc..)?;
        let [_, _, _, times, types, _] = counts(second)?;
        let data = second.get(44..)?;
        let (stamps, rest) = data.split_at_checked(times * 8)?;
        let (indices, rest) = rest.split_at_checked(times)?;
        let offset = |index: usize| -> Option<i32> {
            Some(i32::from_be_bytes(*rest.get(..types * 6)?.get(index * 6..)?.first_chunk()?))
        };
        let mut changes = Vec::with_capacity(times);
        for (stamp, index) in stamps.chunks_exact(8).zip(indices) {
            changes.push((i64::from_be_bytes(*stamp.first_chunk()?), offset(usize::from(*index))?));
        }
        Some(Self { changes, first: offset(0)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_two_changes_is_read_and_its_prefixes_are_not() {
        let block = |wide: bool| {
            let mut b = b"TZif2".to_vec();
            b.extend_from_slice(&[0; 15]);
            for count in [0_u32, 0, 0, 2, 2, 8] {
                b.extend_from_slice(&count.to_be_bytes());
            }
            for at in [1000_i64, 2000] {
                b.extend_from_slice(&at.to_be_bytes()[if wide { 0 } else { 4 }..]);
            }
            b.extend_from_slice(&[1, 0]);
            for offset in [3600_i32, 7200] {
                b.extend_from_slice(&offset.to_be_bytes());
                b.extend_from_slice(&[0, 0]);
            }
            b.extend_from_slice(b"CET\0CST\0");
            b
        };
        let mut file = block(false);
        file.extend(block(true));
        let zone = Zone::parse(&file).unwrap();
        assert_eq!([999, 1000, 1999, 2000].map(|t| zone.offset(t)), [3600, 7200, 7200, 3600]);
        for len in 0..file.len() - 8 {
            assert!(Zone::parse(&file[..len]).is_none(), "{len}");
        }
        assert_eq!(Zone::default().offset(0), 0);
    }
}
