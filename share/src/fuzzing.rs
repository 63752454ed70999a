//! Entry points of the fuzz targets: arbitrary bytes in, no panic, bounded cost.

use crate::{Anonymizer, Frame, Options, Payload};
use rdmascope_dissector::frame::LinkType;

/// Frames of a capture, anonymized: as many come out as went in, in their order and of their lengths, whatever is in them, and the file
/// contents among them are gone. Laid out as for `fuzz_pipeline`: the first byte chooses the link type; each frame has its length (two
/// bytes, little-endian), the time since the one before it (a power of two, in ns) and how much of it was cut off.
pub fn fuzz_anonymize(data: &[u8]) {
    const LINKS: [LinkType; 4] = [LinkType::ETHERNET, LinkType::INFINIBAND, LinkType::RAW, LinkType::ERF];
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let payload = if choice & 0x80 == 0 { Payload::Zero } else { Payload::Stream };
    // little room: frames leave while messages are put together
    let mut anonymizer = Anonymizer::with_limit(Options { key: vec![choice], payload, ..Options::default() }, 16 << 10);
    let (mut sent, mut came, mut time_ns) = (Vec::new(), Vec::new(), 0i64);
    while let Some((&[low, high, step, cut], behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_at(usize::from(u16::from_le_bytes([low, high])).min(behind.len()));
        rest = behind;
        time_ns = time_ns.wrapping_add(1 << (step % 40));
        let link_type = LINKS[usize::from(choice & 0x7f) % LINKS.len()];
        let frame = Frame { time_ns, link_type, wire_len: bytes.len() as u32 + u32::from(cut), interface: 0, bytes };
        anonymizer.frame(sent.len(), &frame, |n, bytes| came.push((n, bytes.len())));
        sent.push(bytes.len());
    }
    let frames = sent.len() as u64;
    let tally = anonymizer.finish(|n, bytes| came.push((n, bytes.len())));
    assert_eq!(tally.frames, frames);
    assert_eq!(came, sent.into_iter().enumerate().collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seeds() -> Vec<Vec<u8>> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/pipeline");
        std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn captures_that_are_damaged_come_out_whole(seed in 0..1000usize, at in 0..5000usize, bits in any::<u8>(), cut in 0..5000usize) {
            let all = seeds();
            let mut bytes = all[seed % all.len()].clone();
            fuzz_anonymize(&bytes);
            let length = bytes.len();
            bytes[at % length] ^= bits;
            fuzz_anonymize(&bytes);
            bytes.truncate(cut.max(1));
            fuzz_anonymize(&bytes);
        }
    }
}
