//! Registered memory of the transports in user space: ranges that a peer may read or write, under unguessable keys (RFC
//! 5040 5.1, RFC 5042 6.3; IBA volume 1, 10.6).

pub use crate::transport::{Handle, Rights};
use hashbrown::HashMap;

/// Reason for which an access is refused; the numbers are those of RFC 5041 7.1 and RFC 5040 4.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No region has the key, or it was invalidated.
    Key,
    /// Not inside the region.
    Bounds,
    /// The region does not grant this.
    Rights,
    /// The end of the access is past the largest offset.
    Wrap,
}

#[derive(Debug)]
struct Region {
    data: Vec<u8>,
    base: u64,
    rights: Rights,
    /// Bytes that the peer wrote, as often as it did.
    written: u64,
}

/// All regions of a connection.
#[derive(Debug, Default)]
pub struct Regions {
    regions: HashMap<u32, Region>,
}

impl Regions {
    /// Maximum number of regions at the same time.
    pub const MAX: usize = 4096;

    /// Registers `data`. `None` if there are too many regions, or it is too long.
    pub fn register(&mut self, data: Vec<u8>, rights: Rights) -> Option<Handle> {
        let length = u32::try_from(data.len()).ok()?;
        if self.regions.len() >= Self::MAX {
            return None;
        }
        let mut random = [0; 12];
        let key = loop {
            getrandom::fill(&mut random).ok()?;
            let key = u32::from_le_bytes([random[0], random[1], random[2], random[3]]);
            // a peer writes 0 to mean no key
            if key != 0 && !self.regions.contains_key(&key) {
                break key;
            }
        };
        let word = u64::from_le_bytes([
            random[4], random[5], random[6], random[7], random[8], random[9], random[10], random[11],
        ]);
        let base = word & 0x0000_7fff_ffff_f000;
        self.regions.insert(key, Region { data, base, rights, written: 0 });
        Some(Handle { key, offset: base, length })
    }

    /// Registers `data` under a key and at an address that the caller chose, in place of what had the key. For ends whose
    /// keys must be known beforehand: a peer can guess them.
    pub fn register_at(&mut self, handle: Handle, data: Vec<u8>, rights: Rights) {
        self.regions.insert(handle.key, Region { data, base: handle.offset, rights, written: 0 });
    }

    /// Ends a region and returns its bytes; `None` if it has ended already.
    pub fn deregister(&mut self, key: u32) -> Option<Vec<u8>> {
        self.regions.remove(&key).map(|region| region.data)
    }

    /// The peer invalidates a key. The bytes stay, and can be taken with [`Regions::deregister`]; the peer cannot
    /// access them any more. False if it is not a granted key.
    pub fn invalidate(&mut self, key: u32) -> bool {
        match self.regions.get_mut(&key) {
            Some(region) if region.rights != Rights::LOCAL => {
                region.rights = Rights::LOCAL;
                true
            }
            _ => false,
        }
    }

    /// The bytes of a region.
    pub fn bytes(&self, key: u32) -> Option<&[u8]> {
        self.regions.get(&key).map(|region| &region.data[..])
    }

    /// Number of regions.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// The bytes that a peer reads.
    ///
    /// # Errors
    /// The reason for which the access is refused.
    pub fn read(&self, key: u32, offset: u64, length: u32) -> Result<&[u8], Refusal> {
        let region = self.regions.get(&key).ok_or(Refusal::Key)?;
        if !region.rights.read {
            return Err(if region.rights == Rights::LOCAL { Refusal::Key } else { Refusal::Rights });
        }
        let range = range(region, offset, u64::from(length))?;
        Ok(&region.data[range])
    }

    /// Checks that a peer may write this number of bytes there.
    ///
    /// # Errors
    /// The reason for which the access is refused.
    pub fn may_write(&self, key: u32, offset: u64, length: u32) -> Result<(), Refusal> {
        let region = self.regions.get(&key).ok_or(Refusal::Key)?;
        if !region.rights.write {
            return Err(if region.rights == Rights::LOCAL { Refusal::Key } else { Refusal::Rights });
        }
        range(region, offset, length.into()).map(drop)
    }

    /// Places bytes of a peer's RDMA Write.
    ///
    /// # Errors
    /// The reason for which the access is refused.
    pub fn write(&mut self, key: u32, offset: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let region = self.regions.get_mut(&key).ok_or(Refusal::Key)?;
        if !region.rights.write {
            return Err(if region.rights == Rights::LOCAL { Refusal::Key } else { Refusal::Rights });
        }
        let range = range(region, offset, bytes.len() as u64)?;
        region.data[range].copy_from_slice(bytes);
        region.written += bytes.len() as u64;
        Ok(())
    }

    /// Bytes that the peer wrote into a region, counted each time; 0 if there is no such region.
    pub fn written(&self, key: u32) -> u64 {
        self.regions.get(&key).map_or(0, |region| region.written)
    }

    /// Stores bytes that we requested: no right is needed.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn place(&mut self, key: u32, offset: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let region = self.regions.get_mut(&key).ok_or(Refusal::Key)?;
        let range = range(region, offset, bytes.len() as u64)?;
        region.data[range].copy_from_slice(bytes);
        Ok(())
    }

    /// True if our sink has room for an answer.
    pub fn has_room(&self, key: u32, offset: u64, length: u32) -> bool {
        self.regions.get(&key).is_some_and(|region| range(region, offset, length.into()).is_ok())
    }
}

fn range(region: &Region, offset: u64, length: u64) -> Result<std::ops::Range<usize>, Refusal> {
    let end = offset.checked_add(length).ok_or(Refusal::Wrap)?;
    let start = offset.checked_sub(region.base).ok_or(Refusal::Bounds)?;
    let end = end - region.base;
    if end > region.data.len() as u64 {
        return Err(Refusal::Bounds);
    }
    Ok(start as usize..end as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_granted_can_be_reached() {
        let mut regions = Regions::default();
        let w = regions.register(vec![0; 100], Rights::REMOTE_WRITE).unwrap();
        let r = regions.register(vec![7; 100], Rights::REMOTE_READ).unwrap();
        assert_ne!(w.key, r.key);
        assert_eq!(regions.write(w.key, w.offset + 90, &[1; 10]), Ok(()));
        assert_eq!(regions.written(w.key), 10);
        assert_eq!(regions.write(w.key, w.offset + 91, &[1; 10]), Err(Refusal::Bounds));
        assert_eq!(regions.write(w.key, w.offset - 1, &[1; 1]), Err(Refusal::Bounds));
        assert_eq!(regions.write(w.key, u64::MAX, &[1; 2]), Err(Refusal::Wrap));
        assert_eq!(regions.write(r.key, r.offset, &[1]), Err(Refusal::Rights));
        assert_eq!(regions.read(w.key, w.offset, 1), Err(Refusal::Rights));
        assert_eq!(regions.read(r.key, r.offset, 100).unwrap(), [7; 100]);
        assert_eq!(regions.read(r.key.wrapping_add(1), r.offset, 1), Err(Refusal::Key));
        assert!(regions.invalidate(r.key) && !regions.invalidate(r.key));
        assert_eq!(regions.read(r.key, r.offset, 1), Err(Refusal::Key));
        assert_eq!(regions.deregister(w.key).unwrap()[90..], [1; 10]);
        assert_eq!(regions.deregister(w.key), None);
    }
}
