//! Every sample opens to its end, mapped and read, with as many frames as another program counts in it.

use rdmascope_capture::{LinkType, OpenOptions, Source, open};
use std::path::{Path, PathBuf};

/// Captures in `samples/`, and the number of frames that Wireshark's tshark counts in them.
const FRAMES: &[(&str, u64)] = &[
    ("iwarp-small-mss/iwarp-small-mss.pcap", 265),
    ("iwarp-without-ecn/iwarp-without-ecn.pcap", 1572),
    ("nfs-iwarp-not-listening/nfs-iwarp-not-listening.pcap", 147),
    ("nfs-iwarp-v42/nfs-iwarp-v42.pcap", 698),
    ("nfs-roce-fallback/nfs-roce-fallback.pcap", 471),
    ("nfs-roce-firewall-drop/nfs-roce-firewall-drop.pcap", 159),
    ("nfs-roce-not-listening/nfs-roce-not-listening.pcap", 148),
    ("nfs-roce-v3/nfs-roce-v3.pcap", 561),
    ("nfs-roce-v42/nfs-roce-v42.pcap", 909),
    ("nfs-roce-v42/nfs-roce-v42-linux72.pcap", 853),
    ("nfs-tcp-nconnect/nfs-tcp-nconnect.pcap", 191),
    ("nfs-tcp-rpcbind-rdma/nfs-tcp-rpcbind-rdma.pcap", 206),
    ("probes/c1_overrun.pcap", 8),
    ("probes/cnp.pcap", 2),
    ("probes/fp_zero20.pcap", 1),
    ("probes/i1_445.pcap", 9),
    ("probes/i1_5445.pcap", 9),
    ("probes/i1_9000.pcap", 9),
    ("probes/i2_nompa.pcap", 7),
    ("probes/i3_v2.pcap", 9),
    ("probes/i4_packed.pcap", 9),
    ("probes/i5_split.pcap", 10),
    ("probes/i6_ddpseg.pcap", 9),
    ("probes/i7_legacy_ird.pcap", 9),
    ("probes/n1_nocm.pcap", 6),
    ("probes/n2_cm.pcap", 9),
    ("probes/n3_lost.pcap", 8),
    ("probes/t14_transform.pcap", 2),
    ("probes/t1_nocm.pcap", 12),
    ("probes/t2_cm.pcap", 15),
    ("probes/t3_multipkt.pcap", 5),
    ("probes/t4_frag.pcap", 3),
    ("probes/t4b_frag2qp.pcap", 4),
    ("probes/t4c_lost.pcap", 3),
    ("probes/t4d_retx.pcap", 3),
    ("probes/t5_hdr.pcap", 5),
    ("probes/t6_err.pcap", 308),
    ("roce-dscp-one-way/roce-dscp-one-way.pcap", 149),
    ("roce-dscp26/roce-dscp26.pcap", 298),
    ("roce-marks-unanswered/roce-marks-unanswered.pcap", 149),
    ("roce-not-ecn-capable/roce-not-ecn-capable.pcap", 149),
    ("roce-small-mtu/roce-small-mtu.pcap", 310),
    ("roce-two-classes/roce-two-classes.pcap", 298),
    ("roce-two-paths/roce-two-paths.pcap", 149),
    ("smb-iwarp-and-tcp/smb-iwarp-and-tcp.pcap", 666),
    ("smb-iwarp-crc/smb-iwarp-crc.pcap", 724),
    ("smb-iwarp-credits8/smb-iwarp-credits8.pcap", 1101),
    ("smb-iwarp-encryption-fails/smb-iwarp-encryption-fails.pcap", 233),
    ("smb-iwarp-fallback/smb-iwarp-fallback.pcap", 314),
    ("smb-iwarp-firewall-drop/smb-iwarp-firewall-drop.pcap", 160),
    ("smb-iwarp-firewall-reject/smb-iwarp-firewall-reject.pcap", 144),
    ("smb-iwarp-loss/smb-iwarp-loss.pcap", 738),
    ("smb-iwarp-multichannel/smb-iwarp-multichannel.pcap", 716),
    ("smb-iwarp-negotiate-only/smb-iwarp-negotiate-only.pcap", 21),
    ("smb-iwarp-sign/smb-iwarp-sign.pcap", 818),
    ("smb-iwarp/smb-iwarp.pcap", 748),
    ("smb-roce-credits4/smb-roce-credits4.pcap", 1381),
    ("smb-roce-firewall-drop/smb-roce-firewall-drop.pcap", 160),
    ("smb-roce-firewall-reject/smb-roce-firewall-reject.pcap", 150),
    ("smb-roce-link-down/smb-roce-link-down.pcap", 541),
    ("smb-roce-loss/smb-roce-loss.pcap", 1134),
    ("smb-roce-negotiate-refused/smb-roce-negotiate-refused.pcap", 102),
    ("smb-roce-sign/smb-roce-sign.pcap", 471),
    ("smb-roce-smb302/smb-roce-smb302.pcap", 1097),
    ("smb-roce/smb-roce.pcap", 1079),
    ("smb-samba-capability-rdma/smb-samba-capability-rdma.pcap", 160),
    ("smb-samba-rdma-refused/smb-samba-rdma-refused.pcap", 161),
    ("smb-tcp-bridge/smb-tcp-bridge.pcap", 142),
    ("smb-tcp-dialect/smb-tcp-dialect.pcap", 126),
    ("smb-tcp-ksmbd-no-smbdirect/smb-tcp-ksmbd-no-smbdirect.pcap", 144),
    ("smb-tcp-multichannel-off/smb-tcp-multichannel-off.pcap", 125),
    ("smb-tcp-no-multichannel/smb-tcp-no-multichannel.pcap", 134),
    ("smb-tcp-no-rdma-interface/smb-tcp-no-rdma-interface.pcap", 141),
    ("smb-tcp-other-subnet/smb-tcp-other-subnet.pcap", 145),
    ("smb-tcp-rdma-not-tried/smb-tcp-rdma-not-tried.pcap", 133),
    ("smb-tcp-seal/smb-tcp-seal.pcap", 494),
    ("smb-tcp-server-dialect/smb-tcp-server-dialect.pcap", 132),
];

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples")
}

#[test]
fn every_sample_has_the_frames_that_another_program_counts() {
    for (name, expected) in FRAMES {
        for mmap in [true, false] {
            let mut capture = open(samples().join(name), OpenOptions::new().mmap(mmap)).unwrap();
            let mut frames = 0;
            while let Some(record) = capture.next().unwrap() {
                assert!(!record.bytes.is_empty() && record.bytes.len() <= record.wire_len as usize, "{name}");
                assert_ne!(record.link_type.name(), LinkType(0xffff).name(), "{name}");
                frames += 1;
            }
            assert_eq!(frames, *expected, "{name}, mapped: {mmap}");
        }
    }
}

#[test]
fn no_sample_is_left_out() {
    let mut found = 0;
    for folder in std::fs::read_dir(samples()).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()) {
        for path in std::fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.extension().is_some_and(|e| e == "pcap"))
        {
            let name = path.strip_prefix(samples()).unwrap().to_str().unwrap();
            assert!(FRAMES.iter().any(|(n, _)| *n == name), "{name}");
            found += 1;
        }
    }
    assert_eq!(found, FRAMES.len());
}
