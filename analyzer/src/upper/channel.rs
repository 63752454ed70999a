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
}

impl Agreed {
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
    if is_cut && (!info.blob.inside || !info.is_whole()) {
        // the descriptors were cut off, too
        return false;
    }
    let has_list = info.transform().is_none_or(|t| t.fixed.channel != Channel::NONE.0);
    let room = info.described_length();
    let wraps = info.descriptors().find(|d| d.offset.checked_add(d.length.into()).is_none());
    if !info.blob.inside {
        emit(rule, format_args!("points to {size} bytes of channel information at {offset}, outside the {command}"));
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
    if let Some(dialect) = agreed.dialect.filter(|d| *d != Dialect::SMB_3_1_1.0) {
        emit(Rule::Smb2TransformDialect, format_args!("sent an RDMA transform in dialect {dialect:#06x}"));
    } else if agreed.transforms == Some([false; 2]) {
        let text = format_args!("sent an RDMA transform; the NEGOTIATE reply agrees on none");
        emit(Rule::Smb2TransformDialect, text);
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
    if count == 0 || seen != count {
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
