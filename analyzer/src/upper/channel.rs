//! Rules of SMB2 RDMA channels: channel information of READ and WRITE, \[MS-SMB2\] 2.2.19 and 2.2.21, and
//! SMB2_RDMA_TRANSFORM, 2.2.43.

use crate::finding::Rule;
use core::fmt;
use rdmascope_dissector::wire::smb2::negotiate::{Cipher, ContextType, Dialect, NegotiateResponse, RdmaTransformId};
use rdmascope_dissector::wire::smb2::rdma_channel::{RdmaTransform, TransformType};
use rdmascope_dissector::wire::smb2::{Channel, ChannelInfo};
use rdmascope_dissector::wire::smbd::BufferDescriptorV1;

/// Bytes of every signature and authentication tag of SMB2.
const SIGNATURE: u16 = 16;

/// Content of the server's NEGOTIATE reply, if it was seen whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The dialect.
    pub dialect: Option<u16>,
    /// True if a request may be charged more than one credit (SMB2_GLOBAL_CAP_LARGE_MTU).
    pub multi_credit: Option<bool>,
    /// True if data that RDMA moves may be encrypted; true if it may be signed.
    transforms: Option<[bool; 2]>,
    /// Bytes of the cipher's nonce.
    nonce: Option<u16>,
    /// Bytes that the server reads, and writes, for one request: MaxReadSize, MaxWriteSize.
    pub most: Option<[u32; 2]>,
}

impl Agreed {
    /// True if the reply, as far as it is known, allows RDMA transforms.
    fn may_transform(&self) -> bool {
        self.dialect.is_none_or(|d| d == Dialect::SMB_3_1_1.0) && self.transforms != Some([false; 2])
    }

    /// Content of a successful reply; `is_whole` if nothing of it was cut off.
    pub(crate) fn of(reply: &NegotiateResponse<'_>, is_whole: bool) -> Self {
        let ids =
            |context: ContextType| reply.contexts.filter(move |c| c.context_type == context).flat_map(|c| c.ids());
        let has = |id: RdmaTransformId| ids(ContextType::RDMA_TRANSFORM).any(|i| i == id.0);
        let cipher = ids(ContextType::ENCRYPTION).next().map(Cipher).filter(|c| Cipher::ALL.contains(c));
        Self {
            dialect: Some(reply.dialect().0),
            multi_credit: Some(reply.fixed.large_mtu()),
            transforms: is_whole.then(|| [has(RdmaTransformId::ENCRYPTION), has(RdmaTransformId::SIGNING)]),
            nonce: cipher.map(|c| c.nonce_len() as u16).filter(|_| is_whole),
            most: Some([reply.fixed.max_read_size, reply.fixed.max_write_size]),
        }
    }
}

/// Checks the channel information of a READ or WRITE of `length` bytes. `is_cut` if the capture cut the message. `emit`
/// is given each violation. Returns true if ksmbd once trusted what is wrong.
pub(crate) fn check(
    info: &ChannelInfo<'_>,
    length: u32,
    command: &str,
    agreed: &Agreed,
    is_cut: bool,
    emit: &mut impl FnMut(Rule, fmt::Arguments<'_>),
) -> bool {
    let rule = Rule::Smb2Channel;
    let (offset, size) = (info.blob.offset, info.blob.length);
    if info.channel == Channel::NONE {
        if size > 0 {
            emit(rule, format_args!("sent {size} bytes of channel information in a {command} without a channel"));
        }
        return false;
    }
    if let Some(dialect) = agreed.dialect.filter(|d| *d < Dialect::SMB_3_0.0) {
        emit(
            rule,
            format_args!(
                "asked for the RDMA channel in a {command} in dialect {dialect:#06x}; it exists from 0x0300 on"
            ),
        );
    }
    if info.channel.0 > Channel::RDMA_TRANSFORM.0 {
        let channel = info.channel.0;
        emit(rule, format_args!("sent a {command} with the unknown Channel {channel:#010x}"));
        return false;
    }
    let is_transform = info.channel == Channel::RDMA_TRANSFORM;
    if is_transform && !agreed.may_transform() {
        // what it has instead means nothing: see `check_transform`
        return false;
    }
    if is_cut && (!info.blob.inside || !info.is_whole()) {
        // the descriptors were cut off, too
        return false;
    }
    let has_list = info.transform().is_none_or(|t| t.fixed.channel != Channel::NONE.0);
    let room = info.described_length();
    // the last byte may be the last there is
    let wraps = info.descriptors().find(|d| d.offset.checked_add(u64::from(d.length).saturating_sub(1)).is_none());
    if !info.blob.inside {
        emit(rule, format_args!("points to {size} bytes of channel information at {offset}, outside the {command}"));
    } else if is_transform && !info.is_whole() {
        emit(
            rule,
            format_args!("sent {size} bytes with an RDMA transform in a {command} whose parts do not fit in it"),
        );
    } else if !info.is_whole() || size == 0 {
        emit(rule, format_args!("sent {size} bytes of buffer descriptors in a {command}; each has 16"));
    } else if let Some(BufferDescriptorV1 { offset, length, .. }) = wraps {
        emit(rule, format_args!("described {length} bytes of memory at {offset:#x}, which wraps around"));
    } else if room < u64::from(length) && has_list {
        emit(rule, format_args!("described {room} bytes of memory for a {command} of {length}"));
    } else {
        return false;
    }
    true
}

/// Checks an SMB2_RDMA_TRANSFORM of which nothing was cut off; `None` if it is too short to be one.
pub(crate) fn check_transform(
    transform: Option<&RdmaTransform<'_>>,
    agreed: &Agreed,
    emit: &mut impl FnMut(Rule, fmt::Arguments<'_>),
) {
    if !agreed.may_transform() {
        match agreed.dialect.filter(|d| *d != Dialect::SMB_3_1_1.0) {
            Some(dialect) => {
                emit(Rule::Smb2TransformDialect, format_args!("sent an RDMA transform in dialect {dialect:#06x}"))
            }
            None => {
                let text = format_args!("sent an RDMA transform; the NEGOTIATE reply agrees on none");
                emit(Rule::Smb2TransformDialect, text);
            }
        }
        // its content is that of something else
        return;
    }
    let Some(transform) = transform else {
        return emit(Rule::Smb2TransformBounds, format_args!("sent an RDMA transform that is too short"));
    };
    let (count, list) = (transform.fixed.transform_count, &transform.descriptors);
    let (mut seen, mut encrypts, mut signs) = (0u16, false, false);
    for crypto in transform.transforms() {
        seen = seen.saturating_add(1);
        let (kind, signature, nonce) =
            (TransformType(crypto.fixed.transform_type), crypto.fixed.signature_length, crypto.fixed.nonce_length);
        encrypts |= kind == TransformType::ENCRYPTION;
        signs |= kind == TransformType::SIGNING;
        if !matches!(kind, TransformType::ENCRYPTION | TransformType::SIGNING) {
            let kind = kind.0;
            emit(
                Rule::Smb2TransformType,
                format_args!("sent an RDMA transform of the unknown TransformType {kind:#06x}"),
            );
            continue;
        }
        let fits = match agreed.nonce {
            Some(agreed) => nonce == agreed,
            None => matches!(nonce, 11 | 12),
        };
        if signature != SIGNATURE || (kind == TransformType::ENCRYPTION && !fits) {
            let text = format_args!("sent an RDMA transform with SignatureLength {signature} and NonceLength {nonce}");
            emit(Rule::Smb2TransformLengths, text);
        }
        if crypto.fixed.reserved != 0 {
            let reserved = crypto.fixed.reserved;
            emit(Rule::Smb2TransformReserved, format_args!("set Reserved of a crypto transform to {reserved:#06x}"));
        }
    }
    if let Some([encryption, signing]) =
        agreed.transforms.filter(|t| *t != [false; 2] && agreed.dialect == Some(Dialect::SMB_3_1_1.0))
    {
        for (is_used, is_agreed, what) in [(encrypts, encryption, "encrypts"), (signs, signing, "signs")] {
            if is_used && !is_agreed {
                let text =
                    format_args!("sent an RDMA transform that {what}; the NEGOTIATE reply does not agree on that");
                emit(Rule::Smb2TransformDialect, text);
            }
        }
    }
    if encrypts && signs {
        emit(Rule::Smb2TransformLengths, format_args!("asked for encryption and signing at once"));
    }
    if count == 0 {
        emit(Rule::Smb2TransformCount, format_args!("sent an RDMA transform that announces none; it must have one"));
    } else if seen != count {
        emit(Rule::Smb2TransformCount, format_args!("announced {count} transforms; {seen} follow"));
    }
    if transform.fixed.reserved1 != 0 || transform.fixed.reserved2 != 0 {
        emit(Rule::Smb2TransformReserved, format_args!("set a reserved field of an RDMA transform"));
    }
    let (offset, length) = (list.offset, list.length);
    match Channel(transform.fixed.channel) {
        Channel::NONE if offset != 0 || length != 0 => {
            let text = format_args!(
                "sent an RDMA transform with Channel NONE that points to {length} bytes at {offset}; both must be 0"
            );
            emit(Rule::Smb2TransformBounds, text);
        }
        Channel::RDMA_V1 | Channel::RDMA_V1_INVALIDATE if !list.inside || length == 0 => {
            let text = format_args!("points to {length} bytes of descriptors at {offset}, outside the RDMA transform");
            emit(Rule::Smb2TransformBounds, text);
        }
        Channel::NONE | Channel::RDMA_V1 | Channel::RDMA_V1_INVALIDATE => {}
        channel => {
            let channel = channel.0;
            emit(
                Rule::Smb2TransformType,
                format_args!("sent an RDMA transform with Channel {channel:#010x}, which cannot stand in it"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;
    use rdmascope_dissector::wire::smb2::blob::Blob;

    const SMB_3_1_1: Agreed = Agreed {
        dialect: Some(Dialect::SMB_3_1_1.0),
        multi_credit: Some(true),
        transforms: Some([true, false]),
        nonce: Some(12),
        most: None,
    };

    fn descriptor(offset: u64, length: u32) -> Vec<u8> {
        [&offset.to_le_bytes()[..], &7_u32.to_le_bytes(), &length.to_le_bytes()].concat()
    }

    /// What is told of a READ of `length` bytes with this channel information, and whether ksmbd once trusted it.
    fn told_by(agreed: &Agreed, channel: Channel, blob: Blob<'_>, length: u32, is_cut: bool) -> (Vec<String>, bool) {
        let mut told = Vec::new();
        let trusted = check(&ChannelInfo { channel, blob }, length, "READ", agreed, is_cut, &mut |rule, text| {
            assert_eq!(rule, Rule::Smb2Channel);
            told.push(text.to_string());
        });
        (told, trusted)
    }

    fn told(channel: Channel, list: &[u8], length: u32) -> (Vec<String>, bool) {
        told_by(&SMB_3_1_1, channel, Blob::of(list, 0, 0, list.len() as u32), length, false)
    }

    fn one(text: &str, trusted: bool) -> (Vec<String>, bool) {
        ([text.to_string()].into(), trusted)
    }

    #[test]
    fn descriptors_have_to_have_room_for_the_data() {
        let two = [descriptor(0x1000, 4096), descriptor(0x9000, 4096)].concat();
        for channel in [Channel::RDMA_V1, Channel::RDMA_V1_INVALIDATE] {
            assert_eq!(told(channel, &two, 8192), (Vec::new(), false));
            assert_eq!(told(channel, &two, 8193), one("described 8192 bytes of memory for a READ of 8193", true));
            assert_eq!(
                told(channel, &two[..20], 16),
                one("sent 20 bytes of buffer descriptors in a READ; each has 16", true)
            );
            assert_eq!(told(channel, &[], 16), one("sent 0 bytes of buffer descriptors in a READ; each has 16", true));
        }
        // up to the last byte there is
        assert_eq!(told(Channel::RDMA_V1, &descriptor(u64::MAX - 4095, 4096), 4096), (Vec::new(), false));
        let wraps = descriptor(u64::MAX - 9, 4096);
        let text = "described 4096 bytes of memory at 0xfffffffffffffff6, which wraps around";
        assert_eq!(told(Channel::RDMA_V1, &wraps, 4096), one(text, true));
    }

    #[test]
    fn the_channel_says_whether_there_is_a_list() {
        let list = descriptor(0x1000, 4096);
        assert_eq!(told(Channel::NONE, &[], 4096), (Vec::new(), false));
        let text = "sent 16 bytes of channel information in a READ without a channel";
        assert_eq!(told(Channel::NONE, &list, 4096), one(text, false));
        assert_eq!(told(Channel(9), &list, 4096), one("sent a READ with the unknown Channel 0x00000009", false));
        let old = Agreed { dialect: Some(Dialect::SMB_2_1.0), ..SMB_3_1_1 };
        let whole = Blob::of(&list, 0, 0, 16);
        let text = "asked for the RDMA channel in a READ in dialect 0x0210; it exists from 0x0300 on";
        assert_eq!(told_by(&old, Channel::RDMA_V1, whole, 4096, false), one(text, false));
        assert_eq!(told_by(&Agreed::default(), Channel::RDMA_V1, whole, 4096, false), (Vec::new(), false));
    }

    #[test]
    fn what_the_capture_cut_is_not_wrong() {
        let list = descriptor(0x1000, 4096);
        let outside = Blob::of(&list, 0, 8, 16);
        let text = "points to 16 bytes of channel information at 8, outside the READ";
        assert_eq!(told_by(&SMB_3_1_1, Channel::RDMA_V1, outside, 4096, false), one(text, true));
        assert_eq!(told_by(&SMB_3_1_1, Channel::RDMA_V1, outside, 4096, true), (Vec::new(), false));
    }

    /// An SMB2_RDMA_TRANSFORM with these crypto transforms (type, bytes of signature and of nonce), and a descriptor.
    fn transform(channel: Channel, announced: u16, crypto: &[(u16, u16, u16)]) -> Vec<u8> {
        let mut behind = Vec::new();
        for (kind, signature, nonce) in crypto {
            for field in [*kind, *signature, *nonce, 0] {
                behind.extend(field.to_le_bytes());
            }
            behind.resize(behind.len() + usize::from(signature + nonce), 0xaa);
        }
        let list = if channel == Channel::NONE { Vec::new() } else { descriptor(0x1000, 4096) };
        let offset = if list.is_empty() { 0 } else { 16 + behind.len() as u16 };
        let mut out = Vec::new();
        out.extend(offset.to_le_bytes());
        out.extend((list.len() as u16).to_le_bytes());
        out.extend(channel.0.to_le_bytes());
        out.extend(announced.to_le_bytes());
        out.extend([0; 6]);
        [out, behind, list].concat()
    }

    fn broken(agreed: &Agreed, bytes: &[u8]) -> Vec<Rule> {
        let info = ChannelInfo { channel: Channel::RDMA_TRANSFORM, blob: Blob::of(bytes, 0, 0, bytes.len() as u32) };
        let mut rules = Vec::new();
        check_transform(info.transform().as_ref(), agreed, &mut |rule, _| rules.push(rule));
        rules
    }

    #[test]
    fn a_transform_is_held_to_its_own_lengths_and_to_what_was_agreed() {
        let (v1, encrypts, signs) = (Channel::RDMA_V1, (1, 16, 12), (2, 16, 0));
        let good = transform(v1, 1, &[encrypts]);
        assert_eq!(broken(&SMB_3_1_1, &good), []);
        assert_eq!(broken(&Agreed::default(), &good), [], "nothing is known of the negotiation");
        let cases: [(Vec<u8>, &[Rule]); 9] = [
            (good[..15].to_vec(), &[Rule::Smb2TransformBounds]),
            (transform(v1, 2, &[encrypts]), &[Rule::Smb2TransformCount]),
            (transform(v1, 0, &[]), &[Rule::Smb2TransformCount]),
            (transform(v1, 1, &[(3, 16, 12)]), &[Rule::Smb2TransformType]),
            (transform(v1, 1, &[(1, 15, 12)]), &[Rule::Smb2TransformLengths]),
            (transform(v1, 1, &[(1, 16, 11)]), &[Rule::Smb2TransformLengths]),
            (transform(v1, 1, &[signs]), &[Rule::Smb2TransformDialect]),
            (transform(v1, 2, &[encrypts, signs]), &[Rule::Smb2TransformDialect, Rule::Smb2TransformLengths]),
            (transform(Channel::RDMA_TRANSFORM, 1, &[encrypts]), &[Rule::Smb2TransformType]),
        ];
        for (bytes, rules) in &cases {
            assert_eq!(broken(&SMB_3_1_1, bytes), *rules, "{bytes:02x?}");
        }
        let nonces = Agreed { nonce: None, ..SMB_3_1_1 };
        assert_eq!([11, 12, 13].map(|n| broken(&nonces, &transform(v1, 1, &[(1, 16, n)])).len()), [0, 0, 1]);
        for agreed in [
            Agreed { dialect: Some(Dialect::SMB_3_0_2.0), ..SMB_3_1_1 },
            Agreed { transforms: Some([false; 2]), ..SMB_3_1_1 },
        ] {
            assert_eq!(broken(&agreed, &good), [Rule::Smb2TransformDialect]);
        }
    }

    #[test]
    fn the_list_of_a_transform_lies_in_it_or_is_none() {
        let none = transform(Channel::NONE, 1, &[(1, 16, 12)]);
        assert_eq!(broken(&SMB_3_1_1, &none), []);
        let points = |bytes: &[u8], offset: u16, length: u16| {
            let mut bytes = bytes.to_vec();
            bytes[..2].copy_from_slice(&offset.to_le_bytes());
            bytes[2..4].copy_from_slice(&length.to_le_bytes());
            broken(&SMB_3_1_1, &bytes)
        };
        assert_eq!(points(&none, 52, 0), [Rule::Smb2TransformBounds]);
        let good = transform(Channel::RDMA_V1, 1, &[(1, 16, 12)]);
        assert_eq!(points(&good, 52, 16), []);
        assert_eq!(points(&good, 52, 32), [Rule::Smb2TransformBounds]);
        assert_eq!(points(&good, 52, 0), [Rule::Smb2TransformBounds]);
        let mut reserved = good;
        reserved[10] = 1;
        assert_eq!(broken(&SMB_3_1_1, &reserved), [Rule::Smb2TransformReserved]);
    }
}
